"""Traffic: on which prompts and tokens is drafting accepted, what does drift cost there, and why do chains end?

Nothing is measured: the tables of `acceptance` and `cost` are read by category and language of the prompts, by kind of token and by
place in the answer (`driftscope.figures.traffic`). Its shard says that it was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscope.figures.traffic import traffic_figure_rows, traffic_figures
from driftscope.probes.base import Variant
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder


def figures(run: RunFolder, depth: int | None) -> Figures:
    groups = traffic_figures(run, depth)
    return {"groups": groups} if groups else {}


RECORD = Record(
    figures=figures,
    about={"groups": "by category, language, kind of token and place: acceptance, cost of drift, reasons of rejection"},
    rows=traffic_figure_rows,
    axes=("by", "group", "quantity"),
    table=Layout(("by", "group"), "quantity", form=".3f", where={"quantity": ("served", "accepted", "cost")}),
    heading="Traffic: on which prompts and tokens is drafting accepted?",
    pictures=(
        Caption(
            "traffic",
            "Acceptance and cost of drift by traffic",
            "By category and language of the prompts: served length and cost of drift in tokens a chain; by kind of token and place"
            f" in the answer: the share drafted right where all before were, and the cost in tokens a token; {INTERVALS}.",
            "traffic",
            table=Layout(("by", "group"), "quantity", form=".3f"),
        ),
    ),
)


@dataclass(frozen=True)
class TrafficProbe:
    """No table of its own."""

    name: str = "traffic"
    question: str = "On which prompts and tokens is drafting accepted, and what does drift cost there?"
    shard: str = "traffic"
    record = RECORD

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        return [Variant("traffic", "clean", {})]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        return {}

    def cost(self, depth: int) -> float:
        return 0.01


PROBE = TrafficProbe()
