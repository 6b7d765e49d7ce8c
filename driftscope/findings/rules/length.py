"""DS107: acceptance breaks beyond some length of the text."""

from __future__ import annotations

from typing import Any

from driftscope.figures.length import FULL, length_figures
from driftscope.findings.advice import DRIFT_PAPER
from driftscope.findings.measured import Measured, interval_of
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.registry import definition
from driftscope.findings.words import counted, percent
from driftscope.stats.intervals import MIN_PROMPTS, Interval

CODE = "DS107"


def breaks(measured: Measured) -> Finding | NotMeasured | None:
    """The drafter as configured keeps less than the threshold from some length on."""
    if "length" not in measured.run.probes:
        return NotMeasured(CODE, "the length probe was not run")
    tables = [measured.run.table(name, probe="length") for name in ("steps", "heads", "conditions", "variants")]
    limit_of_positions = measured.switches.get("rope.max_position")
    figures = length_figures(*tables, position_limit=limit_of_positions, resamples=measured.resamples)
    kept = _kept(figures.get("policies", {}).get(FULL, []))
    if len(kept) < 2:
        return NotMeasured(CODE, "fewer than two lengths could be measured, or nothing is accepted at the shortest")
    limit = measured.thresholds["length_kept"]
    broken: list[int] = []
    for length in sorted(kept, reverse=True):
        if not _lost(kept[length], limit):
            break
        broken.insert(0, length)
    if not broken:
        return None
    start, texts = broken[0], figures["texts"]
    over = counted(texts, "text")
    evidence = [
        Evidence.of(
            f"length kept at {length} tokens",
            share,
            unit="share",
            over=over,
            threshold=limit if length in broken else None,
        )
        for length, share in kept.items()
    ]
    rescuers = []
    for policy, rows in figures["policies"].items():
        own = _kept(rows)
        if policy != FULL and all(length in own and not _lost(own[length], limit) for length in broken):
            rescuers.append(policy)
            evidence += [
                Evidence.of(f"length kept at {length} tokens, {policy}", own[length], unit="share", over=over)
                for length in broken
            ]
    statement = (
        f"At {start:,} tokens the drafter keeps {percent(kept[start].mean)} of the accepted length at {min(kept):,}"
    )
    statement += f"; {' and '.join(rescuers)} would hold it" if rescuers else "; no window that was tried holds it"
    if texts < MIN_PROMPTS:
        statement += f" (as far as {counted(texts, 'text')} can tell)"
    if isinstance(limit_of_positions, int) and start > limit_of_positions:
        statement += f"; its config names {limit_of_positions:,} positions"
    about = definition(CODE)
    return Finding(CODE, about.title, f"{statement}.", tuple(evidence), about.advice)


def _kept(rows: list[dict[str, Any]]) -> dict[int, Interval]:
    """Length -> share of the accepted length that is kept there."""
    found = {row["text_length"]: interval_of(row.get("length_kept", {}).get("anchor_mean")) for row in rows}
    return {length: share for length, share in found.items() if share is not None}


def _lost(share: Interval, limit: float) -> bool:
    return share.mean < limit and (share.high is None or share.high < 1)


FINDINGS = (
    Coded(
        Definition(
            "DS107",
            "Length break",
            meaning="Beyond some context length the drafter accepts next to nothing, while the target still works.",
            measured="Accepted length at each context length over that at the shortest one, for the drafter as configured;"
            " the same under a window, a window with the sink and a window with the system prompt.",
            limits="Long contexts are built from many short turns; one long document may behave otherwise.",
            advice=(
                "Serve with the attention window that holds acceptance in the table, if one does.",
                "Check the drafter's position limit and rope against the target's: driftscope inspect CHECKPOINT --target"
                " TARGET.",
                "Train on long contexts.",
            ),
            thresholds=("length_kept",),
            probes=("length",),
            sources=(
                DRIFT_PAPER,
                "vllm-project/speculators PR 684: length 2.30 at 2k tokens, 1.08 at 20k",
                "sgl-project/sglang issue 6783: a drafter limited to 2048 positions",
            ),
        ),
        breaks,
        (
            Threshold(
                "length_kept",
                0.5,
                "accepted length in a long context over that in the shortest one",
                "A published break goes from 2.30 accepted at 2k tokens to 1.08 at 20k (vllm-project/speculators PR 684),"
                " lengths with the bonus token: .13 kept without it.",
                below=1.0,
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
