"""DS3xx: what the texts allow to say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.findings.measured import Measured
from driftscope.findings.model import Evidence, Finding, NotMeasured
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
