"""Charts of the undisturbed chains by name: norms, attention, acceptance."""

from __future__ import annotations

from driftscope.show import frames
from driftscope.show.charts import acceptance as acceptance_charts
from driftscope.show.charts import attention as attention_charts
from driftscope.show.charts import jumps as jump_charts
from driftscope.show.charts import norms as norm_charts
from driftscope.show.charts.base import Chart
from driftscope.show.charts.overview import overview as draw_overview
from driftscope.show.drawings.view import Shown, View
from driftscope.show.frames.jumps import jump_sentences
from driftscope.show.frames.norms import SiteMode


def overview(view: View) -> Shown:
    """Growth, bucket masses and excess per step with intervals and onsets."""
    rows = view.of("growth", "matched_growth", "displacement")
    named = rows.assign(quantity=rows["quantity"].str.replace("_", " "))
    return Shown(named, lambda: draw_overview(view.steps, view.marks))


def norms(view: View) -> Shown:
    """Norm of the carried state per step."""
    rows = frames.carry_norms(view.runs, view.unit, view.feed)
    return Shown(rows, lambda: norm_charts.carry(rows, view.unit))


def growth(view: View) -> Shown:
    """The same over step 1, and over the same position without drafting."""
    return Shown(view.of("growth", "matched_growth"), lambda: norm_charts.growth(view.steps, view.marks))


def sites(view: View, mode: SiteMode = "size") -> Shown:
    """Heat-map of site x step."""
    rows = frames.site_norms(view.runs, mode, view.unit, view.feed)
    return Shown(rows, lambda: norm_charts.sites(rows, mode, view.unit))


def jumps(view: View) -> Shown:
    """Per site, the factor where drafting begins and per step behind it."""
    rows = frames.site_jumps(view.runs, view.feed)
    said = tuple(f"{run}: {text}" for run, text in jump_sentences(rows)) if len(rows) else ()
    return Shown(rows, lambda: jump_charts.jumps(rows), said)


def boundaries(view: View) -> Shown:
    """Norm of the target's residual stream by boundary."""
    rows = frames.layer_norms(view.runs, view.unit)
    return Shown(rows, lambda: norm_charts.boundaries(rows, view.unit))


def aux(view: View) -> Shown:
    """Norm of each aux feature and its share of the fused input."""
    rows = frames.aux_norms(view.runs, view.unit)
    return Shown(rows, lambda: norm_charts.aux(rows, view.unit))


def cosines(view: View) -> Shown:
    """Direction of the carried state."""
    rows = frames.cosines(view.runs, view.feed)
    return Shown(rows, lambda: norm_charts.cosines(rows))


def updates(view: View) -> Shown:
    """Updates over the residual that they are added to."""
    rows = frames.update_ratios(view.runs, view.feed)
    return Shown(rows, lambda: norm_charts.updates(rows))


def attention(view: View) -> Shown:
    """Bucket masses of every step, stacked."""
    return Shown(view.of("mass"), lambda: attention_charts.stacked(view.steps))


def masses(view: View, *, split: bool = False) -> Shown:
    """Bucket masses as lines with intervals."""
    return Shown(view.of("mass"), lambda: attention_charts.masses(view.steps, view.marks, split=split))


def excess(view: View, *, split: bool = False) -> Shown:
    """Masses beyond the same position without drafting."""
    return Shown(view.of("excess"), lambda: attention_charts.excess(view.steps, view.marks, split=split))


def displacement(view: View) -> Shown:
    """Share of attention that moved."""
    return Shown(view.of("displacement"), lambda: attention_charts.displacement(view.steps, view.marks))


def per_key(view: View) -> Shown:
    """Attention per key over uniform attention."""
    rows = frames.per_key(view.runs, view.feed)
    return Shown(rows, lambda: attention_charts.per_key(rows))


def heads(view: View, bucket: str = "self_generated", top: int = 24) -> Shown:
    """Head x step, strongest drift first."""
    ranking = frames.head_ranking(view.runs, bucket, view.feed)

    def draw() -> Chart:
        cells = frames.head_masses(view.runs, kinds=["excess"], buckets=[bucket], feed=view.feed, intervals=False)
        return attention_charts.heads(cells, ranking, top=top)

    return Shown(ranking, draw)


def head(view: View, layer: int, head: int, *, excess: bool = False) -> Shown:
    """Masses of one head, raw or as excess."""
    rows = frames.head_masses(view.runs, layer, head, feed=view.feed)
    return Shown(rows, lambda: (attention_charts.excess if excess else attention_charts.masses)(rows))


def one_head(view: View, layer: int, head: int) -> Shown:
    """Both of them, below each other."""
    rows = frames.head_masses(view.runs, layer, head, feed=view.feed)
    return Shown(rows, lambda: attention_charts.one_head(rows))


def entropy(view: View) -> Shown:
    """Entropy of attention."""
    return Shown(view.of("entropy"), lambda: attention_charts.entropy(view.steps))


def acceptance(view: View) -> Shown:
    """Conditional and joint acceptance."""
    return Shown(view.of("conditional", "joint"), lambda: acceptance_charts.acceptance(view.steps))


def survival(view: View) -> Shown:
    """Share of chains with at least k accepted tokens."""
    rows = frames.survival(view.runs, view.depth)
    return Shown(rows, lambda: acceptance_charts.survival(rows))


def lengths(view: View) -> Shown:
    """Distribution of served lengths."""
    rows = frames.served_lengths(view.runs, view.depth)
    return Shown(rows, lambda: acceptance_charts.lengths(rows))


def confidence(view: View) -> Shown:
    """Probabilities of its own and of the target's token."""
    rows = frames.confidence(view.runs)
    return Shown(rows, lambda: acceptance_charts.confidence(rows))


def sampling(view: View) -> Shown:
    """Expected share accepted under sampling."""
    rows = frames.sampling(view.runs, view.depth)
    return Shown(rows, lambda: acceptance_charts.sampling(rows))
