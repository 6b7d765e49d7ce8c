"""The charts of runs by name, for notebooks: `run.charts.norms()`, `ChartBook([one, other]).attention()`."""

from __future__ import annotations

from typing import Any

from driftscope.show import charts, frames
from driftscope.show.charts import (
    acceptance,
    attention,
    cost,
    depth,
    jumps,
    layers,
    length,
    noise,
    norms,
    pin,
    template,
)
from driftscope.show.charts.theme import ThemeName, themed
from driftscope.show.frames import Runs, probes
from driftscope.show.frames.cost import budget, ends, paths
from driftscope.show.frames.norms import SiteMode, Unit


class ChartBook:
    """Altair charts of one or several runs. `look` is light, dark, or None for Altair's own theme.

    A chart whose probe was not run is a line of text that says so.
    """

    def __init__(self, runs: Runs, look: ThemeName | None = "light") -> None:
        self.runs = tuple(runs)
        self.look = look

    def overview(self, depth: int | None = None) -> Any:
        """Growth, bucket masses and excess per step with intervals and onsets."""
        return self._dressed(charts.overview(*self._steps(depth)))

    def cost(self) -> Any:
        """Where the drafted tokens go: accepted, or lost, by reason."""
        return self._dressed(cost.budget(budget(self.runs)))

    def cost_paths(self) -> Any:
        """What drift costs in all, and through state, attention and values."""
        return self._dressed(cost.paths(paths(self.runs)))

    def cost_steps(self) -> Any:
        """Of the chains alive at a step, those accepted, and why the others end."""
        return self._dressed(cost.ends(ends(self.runs)))

    def norms(self, unit: Unit = "rms") -> Any:
        """Norm of the carried state per step."""
        return self._dressed(norms.carry(frames.carry_norms(self.runs, unit), unit))

    def growth(self, depth: int | None = None) -> Any:
        """The same over step 1, and over the same position without drafting."""
        return self._dressed(norms.growth(*self._steps(depth)))

    def sites(self, mode: SiteMode = "size", unit: Unit = "rms", feed: str = "drafted") -> Any:
        """Heat-map of site x step."""
        return self._dressed(norms.sites(frames.site_norms(self.runs, mode, unit, feed), mode, unit))

    def jumps(self, feed: str = "drafted") -> Any:
        """Per site, the factor where drafting begins and per step behind it."""
        return self._dressed(jumps.jumps(frames.site_jumps(self.runs, feed)))

    def boundaries(self, unit: Unit = "rms") -> Any:
        """Norm of the target's residual stream by boundary."""
        return self._dressed(norms.boundaries(frames.layer_norms(self.runs, unit), unit))

    def aux(self, unit: Unit = "rms") -> Any:
        """Norm of each aux feature and its share of the fused input."""
        return self._dressed(norms.aux(frames.aux_norms(self.runs, unit), unit))

    def cosines(self) -> Any:
        """Direction of the carried state."""
        return self._dressed(norms.cosines(frames.cosines(self.runs)))

    def updates(self) -> Any:
        """Updates over the residual that they are added to."""
        return self._dressed(norms.updates(frames.update_ratios(self.runs)))

    def attention(self, depth: int | None = None) -> Any:
        """Bucket masses of every step, stacked."""
        return self._dressed(attention.stacked(self._steps(depth)[0]))

    def masses(self, depth: int | None = None, *, split: bool = False) -> Any:
        """Bucket masses as lines with intervals."""
        return self._dressed(attention.masses(*self._steps(depth), split=split))

    def excess(self, depth: int | None = None, *, split: bool = False) -> Any:
        """Masses beyond the same position without drafting."""
        return self._dressed(attention.excess(*self._steps(depth), split=split))

    def displacement(self, depth: int | None = None) -> Any:
        """Share of attention that moved."""
        return self._dressed(attention.displacement(*self._steps(depth)))

    def per_key(self) -> Any:
        """Attention per key over uniform attention."""
        return self._dressed(attention.per_key(frames.per_key(self.runs)))

    def heads(self, bucket: str = "self_generated", top: int = 24) -> Any:
        """Head x step, strongest drift first."""
        cells = frames.head_masses(self.runs, kinds=["excess"], buckets=[bucket], intervals=False)
        return self._dressed(attention.heads(cells, frames.head_ranking(self.runs, bucket), top=top))

    def head(self, layer: int, head: int, *, excess: bool = False) -> Any:
        """Masses of one head, raw or as excess."""
        frame = frames.head_masses(self.runs, layer, head)
        return self._dressed((attention.excess if excess else attention.masses)(frame))

    def entropy(self, depth: int | None = None) -> Any:
        """Entropy of attention."""
        return self._dressed(attention.entropy(self._steps(depth)[0]))

    def acceptance(self, depth: int | None = None) -> Any:
        """Conditional and joint acceptance."""
        return self._dressed(acceptance.acceptance(self._steps(depth)[0]))

    def survival(self, depth: int | None = None) -> Any:
        """Share of chains with at least k accepted tokens."""
        return self._dressed(acceptance.survival(frames.survival(self.runs, depth)))

    def lengths(self, depth: int | None = None) -> Any:
        """Distribution of served lengths."""
        return self._dressed(acceptance.lengths(frames.served_lengths(self.runs, depth)))

    def confidence(self) -> Any:
        """Probabilities of its own and of the target's token."""
        return self._dressed(acceptance.confidence(frames.confidence(self.runs)))

    def sampling(self, depth: int | None = None) -> Any:
        """Expected share accepted under sampling."""
        return self._dressed(acceptance.sampling(frames.sampling(self.runs, depth)))

    def noise(self, quantity: str = "anchor_mean_kept") -> Any:
        """Length kept by the size of the noise, with half-points; or kl, flips, cos_carry per step."""
        frame = probes.noise(self.runs)
        if quantity in noise.MOVED:
            return self._dressed(noise.moved(frame, quantity))
        return self._dressed(noise.dose(frame, probes.half_points(self.runs), quantity))

    def pin(self, *, effects: bool = False) -> Any:
        """Excess with the size held, or what the pins remove and cost."""
        return self._dressed((pin.effects if effects else pin.excess)(probes.pin(self.runs)))

    def depth(self) -> Any:
        """Agreement with the target to the horizon."""
        return self._dressed(depth.agreement(probes.depth(self.runs), probes.collapses(self.runs)))

    def rank(self) -> Any:
        """Rank of the target's token to the horizon."""
        return self._dressed(depth.rank(probes.depth(self.runs)))

    def layers(self, quantity: str = "cka", *, best: bool = False) -> Any:
        """Likeness of the carry to the target's boundaries; `best` is the highest over them."""
        frame = probes.layers(self.runs)
        return self._dressed(layers.best(frame) if best else layers.likeness(frame, quantity))

    def template(self) -> Any:
        """What other ways to wrap a prompt leave."""
        return self._dressed(template.matrix(probes.template(self.runs)))

    def length(self, quantity: str = "anchor_mean") -> Any:
        """A figure by length of the text and attention window."""
        return self._dressed(length.by_length(probes.length(self.runs), quantity))

    def _steps(self, depth: int | None) -> tuple[Any, Any]:
        return frames.step_figures(self.runs, depth=depth), frames.onsets(self.runs, depth)

    def _dressed(self, chart: Any) -> Any:
        return chart if self.look is None else themed(chart, self.look)
