"""What the probes with texts of their own store: drafted chains as sums per step and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.prompt_chains import Subject

GROWTH = "log_growth"
"""`sum/log_growth` in the `steps` table: log(RMS carry_k / RMS carry_1), summed over anchors; absent where nothing is
carried."""


def condition_rows(subject: Subject, variant: str) -> dict[str, pd.DataFrame]:
    """`steps` and `heads` rows of the drafted chains under one variant."""
    from driftscope.runs.rows import head_rows, step_rows

    chains = subject.clean("drafted")
    carries = subject.pair.config.carries
    if carries:
        first = chains[0]["rms/carry"].double().log()
        chains = [{**step, GROWTH: step["rms/carry"].double().log() - first} for step in chains]
    return {
        "steps": step_rows(subject, variant, "drafted", chains, (GROWTH,) if carries else ()),
        "heads": head_rows(subject, variant, "drafted", chains),
    }
