"""Acceptance: how many drafted tokens survive verification?

Read from the clean chains: joint and conditional acceptance with their denominators, the anchor mean, and the served length
of the walk t <- t + accepted + 1, the only one that compares with a serving engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftscope.figures.acceptance import COLUMNS, acceptance_figures
from driftscope.probes.clean import CleanProbe
from driftscope.probes.record import Caption, Figures, Layout, Record

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder


def figures(run: RunFolder, depth: int | None) -> Figures:
    return acceptance_figures(run.table("anchors", "clean", columns=COLUMNS), depth)


RECORD = Record(
    figures=figures,
    about={
        "sampling": "per step: the share accepted when both models are sampled, text-fed",
        "survival": "per length: the share of chains and of served rounds with at least so many accepted tokens",
        "served_quantiles": "of the accepted tokens of a served round",
        "rounds": "served rounds",
        "chains": "anchors outside loops",
    },
    printed=False,
    heading="Acceptance: how many drafted tokens survive?",
    pictures=(
        Caption(
            "acceptance",
            "Acceptance by step",
            "Conditional: of the chains whose earlier steps were all accepted; a gap where too few reach the step. Joint: of all "
            "chains, what vLLM calls per-position acceptance.",
            "acceptance",
            table=Layout(("step",)),
        ),
        Caption(
            "survival",
            "Survival of chains",
            "Share with at least k accepted tokens: of the rounds that an engine serves, and of the chains from every position.",
            "survival",
            table=Layout(("step",), counts=False),
        ),
        Caption(
            "lengths",
            "Served lengths",
            "Drafted tokens accepted in a round along the walk that an engine takes, without the bonus token.",
            "lengths",
            table=Layout(("accepted",), None, head="share of rounds", renamed={"length": "accepted"}),
        ),
        Caption(
            "confidence",
            "Confidence",
            "Mean probability that the drafter gives to its own token and to the target's.",
            "confidence",
            table=Layout(("step",)),
        ),
        Caption(
            "sampling",
            "Sampling acceptance",
            "Sum over tokens of min(p, q): the share accepted when both models are sampled; fed with the text.",
            "sampling",
            table=Layout(("step",), None),
        ),
    ),
    page="acceptance",
)

PROBE = CleanProbe("acceptance", "How many drafted tokens survive verification, step by step?", RECORD)
