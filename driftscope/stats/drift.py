"""Drift over the steps of a chain: jump, slope, onset and displacement.

Every quantity keeps these apart. A head that moves once, at the boundary between prefill and draft, has a jump and no
slope; a state that grows at every step has a slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftscope.stats.intervals import CONFIDENCE, RESAMPLES, SEED, Floats, Intervals, bca
from driftscope.stats.resampling import drawn_figures, ratio

Onset = int | Literal["none", "not measurable"]

PRACTICAL_LOG_RMS = float(np.log(1.1))
"""10% of RMS, on the log scale."""
PRACTICAL_MASS = 0.05


def growth(log_ratios: ArrayLike, *, resamples: int = RESAMPLES) -> Intervals:
    """exp of the mean over prompts of `log_ratios[prompt, step]`, each a prompt's mean over anchors of
    log(RMS_k / RMS_1)."""
    return bca(log_ratios, resamples=resamples).map(np.exp)


def jump(values: ArrayLike) -> Floats:
    """Step 2 minus step 1 of `values[prompt, step]`, per prompt; NaN where there is no step 2."""
    data = np.asarray(values, dtype=np.float64)
    return data[:, 1] - data[:, 0] if data.shape[1] > 1 else np.full(len(data), np.nan)


def slope(values: ArrayLike) -> Floats:
    """Least-squares slope per step over the steps 2..D of `values[prompt, step]`, per prompt; NaN with D < 3."""
    data = np.asarray(values, dtype=np.float64)[:, 1:]
    if data.shape[1] < 2:
        return np.full(len(data), np.nan)
    steps = np.arange(data.shape[1]) - (data.shape[1] - 1) / 2
    return np.asarray(data @ (steps / (steps**2).sum()))


def late_slope(values: ArrayLike) -> Floats:
    """Least-squares slope per step over the later half of the steps, D // 2 + 1 to D, of `values[prompt, step]`, per prompt: what
    still goes on once the crossing from prefill to draft is past. NaN with D < 4."""
    data = np.asarray(values, dtype=np.float64)
    return slope(data[:, data.shape[1] // 2 - 1 :]) if data.shape[1] > 3 else np.full(len(data), np.nan)


@dataclass(frozen=True)
class Spread:
    """Where an onset may lie: the steps that 95% of the resamples of prompts give."""

    low: int | None
    """None where there is none in any of these resamples."""
    high: int | None
    """None where there is none in some of them."""


def onset(
    differences: ArrayLike,
    practical: float,
    direction: Literal["up", "down"] = "up",
    *,
    available: float | None = None,
    resamples: int = RESAMPLES,
) -> Onset:
    """First step that lies beyond a practical size with its whole interval, and stays so to the last step.

    Args:
        differences: [prompt, step], to step 1, in the unit of the quantity.
        practical: the size that counts, in the same unit.
        direction: whether a rise or a fall is looked for.
        available: how far the quantity could move at all.
        resamples: of prompts.

    Returns:
        A step; "none"; or "not measurable", where `available` is smaller than `practical` or a step has too few prompts for an
        interval.
    """
    return onset_of(bca(differences, resamples=resamples), practical, direction, available=available)


def onset_of(
    differences: Intervals,
    practical: float,
    direction: Literal["up", "down"] = "up",
    *,
    available: float | None = None,
) -> Onset:
    """`onset` from the intervals [step] of the differences to step 1."""
    later = differences[1:]
    if not later.mean.size or not np.isfinite(later.low + later.high).all():
        return "not measurable"
    if available is not None and not available >= practical:
        return "not measurable"
    beyond = later.low > practical if direction == "up" else later.high < -practical
    start = int(_first_lasting(beyond[None])[0])
    return start if start <= later.mean.size + 1 else "none"


def onset_spread(
    differences: ArrayLike,
    practical: float,
    direction: Literal["up", "down"] = "up",
    *,
    found: Onset = "none",
    most: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Spread | None:
    """How far the onset of `differences[prompt, step]` is known: prompts are resampled, and each resample has the first step from
    which its own mean lies beyond `practical` to the end (percentiles, after the steps themselves: no step is interpolated).

    The ends reach at least to the onset `found`. `most`: the differences by an estimator that errs to the other side, where
    `differences` err towards none; the early end is taken from them. With few prompts or anchors the onset itself comes late,
    because its whole interval must be beyond; the spread then begins early, so that a first look and a full run agree. None
    where the onset is not measurable.
    """
    data = np.asarray(differences, dtype=np.float64)[:, 1:]
    if found == "not measurable" or not data.size:
        return None

    def end(values: Floats, share: float) -> int:
        measured = np.isfinite(values)
        means = drawn_figures((np.where(measured, values, 0.0), measured.astype(np.float64)), ratio, resamples, seed)
        starts = _first_lasting((means > practical if direction == "up" else means < -practical).T)
        return int(np.quantile(starts, share, method="inverted_cdf"))

    tail = (1 - CONFIDENCE) / 2
    early = data if most is None else np.asarray(most, dtype=np.float64)[:, 1:]
    low, high = end(early, tail), end(data, 1 - tail)
    low, last = min(low, high), data.shape[1] + 1
    if isinstance(found, int):
        low, high = min(low, found), max(high, found)
    return Spread(low if low <= last else None, high if high <= last else None)


def _first_lasting(beyond: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Of `beyond[..., step - 2]`: the first step from which it holds to the last; one more than the last where it does not."""
    stays = np.logical_and.accumulate(beyond[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(beyond.shape[-1] + 2 - stays.sum(axis=-1), dtype=np.int64)


def shared_displacement(excess: ArrayLike) -> Floats:
    """The part of the displacement that prompts share.

    A prompt's excess is summed with the signs that the mean of the *other* prompts has, half of that sum per head, then
    the mean over heads. Where attention moves alike in all prompts this is `displacement` of their mean excess; where it
    only scatters, the expectation is 0, while the sum of absolute values grows with the scatter of a prompt's anchors
    and would find drift in any drafter. A sign that scatter turns takes something off: the fewer prompts and anchors, the
    lower it reads.

    Args:
        excess: [prompt, ..., head, bucket], shares of attention.

    Returns:
        [prompt, ...], 0 to 1 in the mean; NaN with a single prompt.
    """
    return _signed(excess, leave_out=True)


def most_displacement(excess: ArrayLike) -> Floats:
    """The same with the signs of the mean of *all* prompts, so that its mean is `displacement` of the mean excess: it errs to the
    other side, as scatter adds to it. The truth lies between the two."""
    return _signed(excess, leave_out=False)


def _signed(excess: ArrayLike, *, leave_out: bool) -> Floats:
    data = np.asarray(excess, dtype=np.float64)
    measured = np.isfinite(data)
    values = np.where(measured, data, 0.0)
    sums = values.sum(axis=0) - (values if leave_out else 0.0)
    told = measured & (measured.sum(axis=0) > 1)
    heads = 0.5 * np.where(told, np.sign(sums) * values, 0.0).sum(axis=-1)
    present = told.any(axis=-1)
    count = present.sum(axis=-1)
    total = np.where(present, heads, 0.0).sum(axis=-1)
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))


def displacement(excess: ArrayLike) -> Floats:
    """Total variation between a head's attention in the chain and without drafting.

    A head with a NaN in every bucket is left out.

    Args:
        excess: [..., head, bucket], masses averaged over a prompt's anchors; the disjoint buckets (without `self_generated`).

    Returns:
        [...], 0 to 1: the mean over heads of half the sum of absolute values.
    """
    data = np.asarray(excess, dtype=np.float64)
    measured = np.isfinite(data).any(axis=-1)
    heads = 0.5 * np.nansum(np.abs(data), axis=-1)
    count = measured.sum(axis=-1)
    total = np.where(measured, heads, 0.0).sum(axis=-1)
    return np.asarray(np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0))
