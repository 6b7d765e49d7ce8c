"""Depth: where does the drafter collapse when it drafts further than it was trained to?

Undisturbed chains to the run's horizon, fed with their own tokens and with the text, every row kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscope.errors import DriftscopeError
from driftscope.figures.depth import depth_figures, depth_rows
from driftscope.probes.base import Variant
from driftscope.probes.record import Caption, Figures, Layout, Record

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder

VARIANT = "depth"


def figures(run: RunFolder, depth: int | None) -> Figures:
    return depth_figures(run.table("anchors", "depth"), run.table("heads", "depth"))


def sentences(figures: Figures) -> list[tuple[str, str]]:
    at = figures.get("collapse")
    if at is None or at == "not measurable":
        return []
    told = "does not fall" if at == "none" else f"falls from step {at} on"
    return [("", f"agreement with the target {told} under half of step 1's")]


RECORD = Record(
    figures=figures,
    about={
        "drafted": "per step, of chains that embed their own tokens",
        "text": "per step, of chains that embed the text",
        "collapse": "the first step whose text-fed agreement is under half of step 1's, none, or not measurable",
    },
    rows=depth_rows,
    axes=("feed", "step", "quantity", "bucket"),
    table=Layout(("step",), where={"quantity": ("agreement", "conditional")}, counts=False),
    sentences=sentences,
    heading="Depth: where does it collapse when it drafts further?",
    pictures=(
        Caption(
            "depth-agreement",
            "Agreement to the horizon",
            "Share of top tokens that are the target's, fed with the text at every step; and conditional acceptance. The rule "
            "marks where agreement falls under half of step 1's.",
            "depth",
            table=Layout(("step",), "column", counts=False),
        ),
        Caption(
            "depth-rank",
            "Rank of the target's token",
            "Geometric mean of its rank among the draft logits, log scale; 1 is the top.",
            "rank",
            table=Layout(("step",), "column", form=".3g", counts=False),
        ),
        Caption(
            "depth-growth",
            "Growth to the horizon",
            "RMS of the carried state over step 1's, log scale.",
            "depth",
            {"quantity": "growth"},
            Layout(("step",), "column", form=".2f", counts=False),
        ),
    ),
    page="acceptance",
)


@dataclass(frozen=True)
class DepthProbe:
    """Chains of `steps` steps."""

    name: str = "depth"
    question: str = "At which step does it collapse when it drafts to the horizon?"
    shard: str = "depth"
    record = RECORD
    steps: int | None = None
    """At most the run's horizon, which it is when None."""

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        return [Variant(VARIANT, "clean", {"steps": self.steps})]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.runs import rows

        horizon = subject.settings.horizon
        longest = subject.pair.drafter.max_steps
        steps = self.steps or min(horizon, longest or horizon)
        if longest is not None and steps > longest:
            raise DriftscopeError(f"probe depth asks for {steps} steps, a block of this drafter has {longest}")
        if not 1 <= steps <= horizon:
            raise DriftscopeError(f"probe depth asks for {steps} steps, anchors have {horizon} ahead: raise --horizon")
        tables: dict[str, list[pd.DataFrame]] = {"anchors": [], "heads": [], "steps": []}
        for feed in ("drafted", "text"):
            chains = subject.clean(feed, steps)
            tables["anchors"].append(rows.anchor_rows(subject, VARIANT, feed, chains))
            tables["heads"].append(rows.head_rows(subject, VARIANT, feed, chains))
            tables["steps"].append(rows.step_rows(subject, VARIANT, feed, chains))
        return {name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()}

    def cost(self, depth: int) -> float:
        return round(2 * (self.steps or 16) / depth, 1)


PROBE = DepthProbe()
