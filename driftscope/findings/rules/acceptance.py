"""DS105 and DS108: what acceptance itself tells."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.findings.advice import DRIFT_PAPER, EAGLE31, TTT
from driftscope.findings.measured import Measured
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.registry import definition
from driftscope.findings.words import counted, percent, plain, with_interval
from driftscope.runs.prompt_sums import PromptCells, chains
from driftscope.stats.intervals import MIN_PROMPTS, SEED, Floats, Interval
from driftscope.stats.resampling import at_once, percentile_ends

_NO_TEXT = "the text is not confirmed as the target's, so nothing tells what it accepts"
_RATES = np.linspace(0.0, 1.0, 2001)


def depth_collapse(measured: Measured) -> Finding | NotMeasured | None:
    """Text-fed agreement that falls below the threshold and stays there to the last step."""
    code = "DS105"
    rows = measured.text_fed
    if rows.empty or rows["step"].max() < 2:
        return NotMeasured(code, "no text-fed chains of two steps or more")
    if rows["match"].isna().any():
        return NotMeasured(code, _NO_TEXT)
    cells = PromptCells(rows)
    matches, anchors = cells.sum(rows["match"]), cells.size()
    if len(matches) < MIN_PROMPTS:
        return NotMeasured(code, f"{counted(len(matches), 'prompt')}, intervals need {MIN_PROMPTS}")
    agreement = stats.ratio_of_sums(matches, anchors, resamples=measured.resamples)
    kept = stats.relative_ratio(matches, anchors, matches[:, :1], anchors[:, :1], resamples=measured.resamples)
    if not np.isfinite(kept.low[1:]).all():
        return NotMeasured(code, "a step has too few text-fed anchors, or nothing agrees at step 1")
    limit = measured.thresholds["depth_kept"]
    below = (kept.mean < limit) & (kept.high < 1)
    stays = np.logical_and.accumulate(below[::-1])[::-1]
    if not stays.any():
        return None
    start = int(stays.argmax()) + 1
    over = f"{counted(len(matches), 'prompt')}, {counted(int(anchors[:, 0].sum()), 'anchor')}"
    first, there, share = agreement.at(0), agreement.at(start - 1), kept.at(start - 1)
    if first is None or there is None or share is None:
        return None
    statement = (
        f"Fed with the right tokens, the drafter agrees with the target at {percent(first.mean)} of anchors at step 1 and"
        f" at {percent(there.mean)} at step {start}, {with_interval(_percent_of(share), '%', 0)} of it, and stays below"
        f" {percent(limit)} of it from there on."
    )
    evidence = (
        Evidence.of("text-fed agreement at step 1", first, unit="share", over=over),
        Evidence.of(f"text-fed agreement at step {start}", there, unit="share", over=over),
        Evidence.of(f"kept at step {start}", share, unit="share", over=over, threshold=limit),
    )
    about = definition(code)
    return Finding(code, about.title, statement, evidence, about.advice, start)


def _percent_of(share: Interval) -> Interval:
    ends = (None if end is None else 100 * end for end in (share.low, share.high))
    return Interval(100 * share.mean, *ends)


def dispersion(measured: Measured) -> Finding | NotMeasured | None:
    """Spread of the accepted tokens per round beyond that of one constant acceptance rate."""
    code = "DS108"
    rows = measured.anchors
    if rows.empty:
        return NotMeasured(code, "no chains were measured")
    if rows["accepted"].isna().any():
        return NotMeasured(code, _NO_TEXT)
    depth = int(rows["step"].max())
    walked = _served_rounds(rows, depth)
    if walked is None:
        return NotMeasured(code, "the anchors of a prompt are not consecutive, so no walk can be served")
    sums = np.array([[len(part), part.sum(), (part**2).sum()] for part in walked if len(part)], dtype=np.float64)
    if len(sums) < MIN_PROMPTS:
        return NotMeasured(
            code, f"{counted(len(sums), 'prompt')} with rounds outside loops, intervals need {MIN_PROMPTS}"
        )
    rounds = np.concatenate(walked)
    ratio = _spread_ratio(sums, depth, measured.resamples)
    if ratio is None or ratio.low is None:
        return NotMeasured(code, "too few rounds accept some drafted tokens and not all")
    limit = measured.thresholds["length_dispersion"]
    if not (ratio.mean > limit and ratio.low > 1):
        return None
    low, middle, high = np.quantile(rounds, (0.1, 0.5, 0.9), method="inverted_cdf")
    over = f"{counted(len(sums), 'prompt')}, {counted(len(rounds), 'round')}"
    per_prompt = sums[:, 1] / sums[:, 0]
    statement = (
        f"The rounds outside loops accept {plain(float(rounds.mean()))} drafted tokens on average, with an SD"
        f" {with_interval(ratio, 'x')} that of a constant acceptance rate: a tenth accepts {int(low)} or fewer, a tenth"
        f" {int(high)} or more, and prompts range from {plain(per_prompt.min())} to {plain(per_prompt.max())}."
    )
    evidence = (
        Evidence.of("SD over that of a constant rate", ratio, unit="x", over=over, threshold=limit),
        Evidence("SD of accepted tokens", float(rounds.std(ddof=1)), unit="tokens", over=over),
        *(
            Evidence(f"{name} of accepted tokens", float(value), unit="tokens", over=over)
            for name, value in (("10% quantile", low), ("median", middle), ("90% quantile", high))
        ),
    )
    about = definition(code)
    return Finding(code, about.title, statement, evidence, about.advice)


def _served_rounds(rows: pd.DataFrame, depth: int) -> list[Floats] | None:
    """Accepted tokens of the served rounds that start outside loops, per prompt."""
    found = chains(rows)
    if not found.consecutive:
        return None
    walks = []
    for part in found.by_prompt():
        walk = stats.served_walk(found.length[part], depth)
        walks.append(walk.accepted[~found.loop[part][walk.visited]].astype(np.float64))
    return walks


def _spread_ratio(sums: Floats, depth: int, resamples: int) -> Interval | None:
    """SD over rounds / SD under a constant rate with the same mean; `sums[prompt]` are rounds, total, total of squares."""

    def ratio(rounds: Floats, total: Floats, squares: Floats) -> Floats:
        mean = total / rounds
        variance = squares / rounds - mean**2
        return np.asarray(np.sqrt(np.maximum(variance, 0) / constant_rate_variance(mean, depth)))

    parts = [column[:, None] for column in sums.T]
    with np.errstate(divide="ignore", invalid="ignore"):
        point = float(at_once(parts, ratio)[0])
        if not np.isfinite(point):
            return None
        low, high = (float(end[0]) for end in percentile_ends(parts, ratio, resamples, SEED))
    return Interval(point, low, high) if np.isfinite(low + high) else Interval(point)


def constant_rate_variance(mean: Floats, depth: int) -> Floats:
    """Variance of the accepted tokens per round where each is accepted with one probability a, at most `depth` of them,
    and their mean is `mean`: P(at least k) = a^k. NaN at means of 0 or `depth`, which leave no spread."""
    k = np.arange(1, depth + 1)
    tails = _RATES[:, None] ** k
    means = tails.sum(1)
    squares = (tails * (2 * k - 1)).sum(1)
    variance = np.interp(mean, means, squares - means**2)
    return np.where((np.asarray(mean) > 0) & (np.asarray(mean) < depth), variance, np.nan)


FINDINGS = (
    Coded(
        Definition(
            "DS105",
            "Depth collapse",
            meaning="The drafter stops agreeing with the target after some steps, even when it is fed the right tokens: the"
            " carried state itself is used up. Drafting past that step is wasted.",
            measured="Share of anchors whose top token is the text's, fed with the text, at each step over that at step 1:"
            " the first step from which it stays below the threshold.",
            limits="A collapse beyond the depth that the drafter was trained for is expected; it bounds the depth to serve,"
            " not the quality.",
            advice=("Draft at most as many steps as hold up.", TTT, EAGLE31),
            thresholds=("depth_kept",),
            probes=("acceptance", "depth"),
            sources=(DRIFT_PAPER, "vllm-project/vllm issue 33330: a drafter whose second token collapses"),
        ),
        depth_collapse,
        (
            Threshold(
                "depth_kept",
                0.5,
                "text-fed agreement at the last step over that at step 1",
                "Conditional acceptance at step 16 over that at step 1 is .55 and .57 in the published drafters that"
                f" hold out and 0 in the one that collapses ({DRIFT_PAPER}).",
                below=1.0,
            ),
        ),
    ),
    Coded(
        Definition(
            "DS108",
            "Accepted length varies more than its mean tells",
            meaning="Rounds accept either much or little. A speed-up computed from the mean holds for the mix of texts that"
            " was measured and for no single one.",
            measured="Standard deviation of the accepted tokens per served round, over that of a drafter with one constant"
            " acceptance rate and the same mean (a geometric distribution cut off at the depth). Rounds that start in a"
            " loop of the target are left out.",
            limits="A ratio of 1 does not mean that rounds are alike: a constant rate has a large spread of its own.",
            advice=(
                "Judge by the quantiles, or by the figures of each category of prompts, instead of the mean.",
                "Let the engine choose the number of draft tokens by confidence, if it can.",
                "driftscope probe CHECKPOINT --prompts FILE with the prompts that you will serve.",
            ),
            thresholds=("length_dispersion",),
            probes=("acceptance",),
            sources=(
                "Leviathan et al., arXiv 2211.17192: the constant rate",
                "arXiv 2604.14682: the task predicts acceptance better than the depth in the tree",
            ),
        ),
        dispersion,
        (
            Threshold(
                "length_dispersion",
                1.25,
                "SD of the accepted length per round over the SD that one constant acceptance rate would give",
                "1 is the model by which a mean predicts a speed-up (Leviathan et al., arXiv 2211.17192, section 3); at 1.25 the"
                " variance is half as large again.",
                above=1.0,
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
