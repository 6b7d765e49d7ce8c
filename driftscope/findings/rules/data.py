"""DS3xx: what the texts allow to say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.findings.advice import DRIFT_PAPER
from driftscope.findings.measured import Measured
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.registry import definition
from driftscope.findings.words import counted, percent, plain
from driftscope.runs.prompt_sums import PromptCells, chain_order, prompt_codes
from driftscope.stats.intervals import MIN_PROMPTS

NOTHING = "no chains were measured"


def loops(measured: Measured) -> Finding | NotMeasured | None:
    """Anchors within reach of a repetition."""
    text = "{} of anchors ({} of {}) lie where the target repeats itself; only the served length counts them."
    return _share_of_anchors(measured, "DS301", "loop", "loop_share", text)


def near_ties(measured: Measured) -> Finding | NotMeasured | None:
    """Anchors whose text hangs on a near tie."""
    text = "{} of anchors ({} of {}) have a position ahead where the target could as well have written another token."
    return _share_of_anchors(measured, "DS304", "near_tie", "near_tie_share", text)


def _share_of_anchors(
    measured: Measured, code: str, column: str, threshold: str, text: str
) -> Finding | NotMeasured | None:
    rows = measured.anchors
    rows = rows[rows["step"] == 1]
    if rows.empty:
        return NotMeasured(code, NOTHING)
    cells = PromptCells(rows)
    flagged, total = cells.sum(rows[column])[:, 0], cells.size()[:, 0]
    limit = measured.thresholds[threshold]
    share = flagged.sum() / total.sum()
    if share <= limit:
        return None
    interval = stats.ratio_of_sums(flagged[:, None], total[:, None], minimum=1, resamples=measured.resamples).at(0)
    assert interval is not None
    about = definition(code)
    over = f"{counted(len(total), 'prompt')}, {counted(int(total.sum()), 'anchor')}"
    evidence = Evidence.of("share of anchors", interval, unit="share", over=over, threshold=limit)
    statement = text.format(percent(share), f"{int(flagged.sum()):,}", f"{int(total.sum()):,}")
    return Finding(code, about.title, statement, (evidence,), about.advice)


def vocabulary(measured: Measured) -> Finding | NotMeasured | None:
    """Tokens of the text that the draft vocabulary lacks."""
    code = "DS302"
    rows = measured.anchors
    rows = rows[~rows["loop"]]
    if rows.empty:
        return NotMeasured(code, NOTHING)
    if "rank" not in rows or rows["rank"].isna().all():
        return NotMeasured(code, "no ranks were recorded")
    first = rows[rows["step"] == 1]
    cells = PromptCells(first)
    covered, total = cells.sum(first["rank"].notna())[:, 0], cells.size()[:, 0]
    share = covered.sum() / total.sum()
    limit = measured.thresholds["vocabulary_coverage"]
    if share >= limit:
        return None
    interval = stats.ratio_of_sums(covered[:, None], total[:, None], minimum=1, resamples=measured.resamples).at(0)
    assert interval is not None
    depth = int(rows["step"].max())
    # A perfect drafter stops at the first token that it cannot say.
    ceiling = _reach(rows) / len(first)
    over = f"{counted(len(total), 'prompt')}, {counted(int(total.sum()), 'anchor')}"
    evidence = (
        Evidence.of("coverage", interval, unit="share", over=over, threshold=limit),
        Evidence(f"ceiling of the anchor mean at depth {depth}", ceiling, unit="tokens", over=over),
    )
    size = measured.switches.get("draft_vocab_size")
    held = f"The draft vocabulary{f' of {size:,} tokens' if isinstance(size, int) else ''} holds {share:.1%} of the"
    statement = (
        f"{held} text's tokens, so that no drafter with it can accept more than {plain(ceiling)} of {depth} on average."
    )
    about = definition(code)
    return Finding(code, about.title, statement, evidence, about.advice)


def _reach(rows: pd.DataFrame) -> int:
    """Rows whose chain meets no token up to there that the draft vocabulary lacks."""
    codes, anchor, step = (
        prompt_codes(rows["prompt"])[0],
        rows["anchor"].to_numpy(np.int64),
        rows["step"].to_numpy(np.int64),
    )
    order, first = chain_order(codes, anchor, step)
    unknown = np.cumsum(rows["rank"].isna().to_numpy()[order])
    start = np.flatnonzero(first)
    before = unknown[start] - rows["rank"].isna().to_numpy()[order][start]
    return int((unknown == before[np.cumsum(first) - 1]).sum())


def few_prompts(measured: Measured) -> Finding | NotMeasured | None:
    """Fewer prompts than an interval takes."""
    code = "DS303"
    count = measured.prompts
    if count == 0:
        return NotMeasured(code, NOTHING)
    if count >= MIN_PROMPTS:
        return None
    about = definition(code)
    statement = (
        f"{counted(count, 'prompt')} measured, and intervals need {MIN_PROMPTS}: no figure can be told from chance."
    )
    evidence = Evidence("prompts", float(count), over="this run", threshold=float(MIN_PROMPTS))
    return Finding(code, about.title, statement, (evidence,), about.advice)


def left_out(measured: Measured) -> Finding | NotMeasured | None:
    """Prompts that gave nothing to measure."""
    code = "DS305"
    skipped = measured.run.info.provenance.get("skipped_prompts")
    if not isinstance(skipped, Mapping):
        return NotMeasured(code, "the run does not say which prompts were left out")
    reasons = {str(reason).replace("_", " "): int(count) for reason, count in skipped.items() if count}
    gone = sum(reasons.values())
    total = gone + len(measured.run.info.prompts)
    limit = measured.thresholds["skipped_share"]
    if not total or gone / total <= limit:
        return None
    about = definition(code)
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    statement = f"{gone} of {total} prompts were left out: {told}."
    evidence = Evidence("share left out", gone / total, unit="share", over=counted(total, "prompt"), threshold=limit)
    return Finding(code, about.title, statement, (evidence,), about.advice)


def no_sink(measured: Measured) -> Finding | NotMeasured | None:
    """A target without sink positions."""
    if measured.run.info.target.sinks:
        return None
    about = definition("DS306")
    return Finding(
        about.code, about.title, "The target has no sink position, so nothing counts as sink.", (), about.advice
    )


FINDINGS = (
    Coded(
        Definition(
            "DS301",
            "Looping text",
            meaning="The target repeats itself in places. A loop is easy to predict, so it flatters any drafter.",
            measured="Share of anchors within reach of a stretch that repeats a block of at most 32 tokens three times.",
            limits="They are left out of every figure but the served length, which walks the text as an engine does.",
            advice=(
                "Compare the anchor mean instead of the served length.",
                "Shorten the continuations (--max-new-tokens) or choose prompts that the target answers at length.",
            ),
            thresholds=("loop_share",),
            probes=("acceptance",),
            sources=("lightseekorg/tokenspeed issue 1305: a long accepted length out of a loop of two tokens",),
        ),
        loops,
        (
            Threshold(
                "loop_share",
                0.05,
                "share of anchors where the target repeats itself",
                "Loops are predicted nearly always, so that 5% of them can move a served length by as much as a change of"
                " drafter. A published record length came from a loop of two tokens (lightseekorg/tokenspeed issue 1305).",
                below=1.0,
            ),
        ),
    ),
    Coded(
        Definition(
            "DS302",
            "Vocabulary coverage",
            meaning="The draft vocabulary lacks tokens that the target writes. Those are always rejected: the coverage is"
            " a ceiling on acceptance.",
            measured="Share of the text's tokens, at the anchors outside loops, that the draft vocabulary holds; and the"
            " anchor mean of a drafter that gets every other token right.",
            limits="The ceiling is that of these prompts. Another language or code may be covered less.",
            advice=(
                "Rebuild the draft vocabulary from texts like those that you serve, and train the head again.",
                "A larger draft vocabulary costs time in the head and raises the ceiling.",
            ),
            thresholds=("vocabulary_coverage",),
            probes=("acceptance",),
            sources=("SafeAILab/EAGLE issue 222: vocabulary maps that do not fit",),
        ),
        vocabulary,
        (
            Threshold(
                "vocabulary_coverage",
                0.99,
                "share of the text's tokens that the draft vocabulary holds",
                "Below it the vocabulary alone rejects more than one token in a hundred.",
                below=1.0 + 1e-9,
            ),
        ),
    ),
    Coded(
        Definition(
            "DS303",
            "Few prompts",
            meaning="There are too few prompts for intervals. What cannot be told from chance is not called drift.",
            measured="Prompts with a clean measurement; intervals need 12.",
            limits="Figures without an interval are still means over all anchors; their accuracy is unknown.",
            advice=(
                "driftscope probe CHECKPOINT --prompts FILE with more prompts, or without --prompts for the shipped ones.",
            ),
            probes=("norms", "attention", "acceptance"),
            sources=("Coverage of bootstrap intervals by number of prompts: driftscope.stats.intervals",),
        ),
        few_prompts,
    ),
    Coded(
        Definition(
            "DS304",
            "Near ties",
            meaning="At many positions the target's two best tokens are so close that one forward over the text prefers"
            " another than was generated. An engine may write another text there.",
            measured="Share of anchors whose horizon holds a position where the recording forward's best token is not the"
            " text's.",
            limits="Kept in all figures here; left out of exact comparisons.",
            advice=("Use a more exact type (--dtype float32), at least for a comparison with an engine.",),
            thresholds=("near_tie_share",),
            probes=("acceptance",),
        ),
        near_ties,
        (
            Threshold(
                "near_tie_share",
                0.25,
                "share of anchors with a near tie of the target within the horizon",
                "Beyond it a quarter of the anchors is missing from exact comparisons, such as with an engine's log.",
                below=1.0,
            ),
        ),
    ),
    Coded(
        Definition(
            "DS305",
            "Prompts left out",
            meaning="A part of the prompts gave nothing to measure: empty, too short, too long for the target, or with a"
            " continuation shorter than the horizon.",
            measured="Prompts left out over all prompts, by reason.",
            limits="Short answers are left out as a kind, so the figures are of longer ones.",
            advice=("Lower --horizon or --depth for short answers; raise --max-new-tokens where it cut them off.",),
            thresholds=("skipped_share",),
        ),
        left_out,
        (
            Threshold(
                "skipped_share",
                0.1,
                "share of prompts that were left out",
                "Beyond it the figures may be of other prompts than those that were meant.",
                below=1.0,
            ),
        ),
    ),
    Coded(
        Definition(
            "DS306",
            "No sink",
            meaning="The target has no position that attention rests on whatever the text, so there is no sink to lose."
            " Targets such as gpt-oss and Qwen3-Next are built so.",
            measured="Early positions that more than a tenth of the target's heads give over .3 of their attention.",
            limits="The other figures of drift stand.",
            advice=("Name positions yourself (--sink 0) if you know the target to have one.",),
            probes=("attention",),
            sources=(DRIFT_PAPER, "alpha and its threshold: arXiv 2410.10781"),
        ),
        no_sink,
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
