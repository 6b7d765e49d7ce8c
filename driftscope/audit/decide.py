"""The test: per prompt, is an alternative better than the declared setting, by more than chance and by enough to matter?

Paired sign flips over prompts with the maximum over hypotheses (Westfall and Young, Resampling-Based Multiple Testing, 1993;
the sign-flip null of `scipy.stats.permutation_test` for one sample): under the null a prompt's difference is as likely
negative as positive, and the largest of all t statistics is compared with its own distribution, which holds the chance of
any false alarm in a round to `alpha`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from driftscope.audit.batches import DEPTH
from driftscope.audit.score import Scores

Status = Literal["ruled out", "worse", "indistinguishable", "better"]
Signature = Literal["step 1", "steps 2 on", "both", "none"]
Floats = NDArray[np.float64]


_SURE = 1.96
"""Standard errors of a rise that must lie between it and 0."""


@dataclass(frozen=True)
class Limits:
    """When a difference counts."""

    alpha: float = 0.01
    """Chance of a false alarm in a round, over all hypotheses together."""
    prompts: int = 16
    """Below this many prompts nothing is decided."""
    loss: float = 0.05
    """Nats by which the loss must fall."""
    agreement: float = 0.01
    """By how much top-1 agreement must rise (0 to 1), its interval excluding 0."""
    share: float = 0.02
    """Part of what the drafter knows, that is of its distance to the negative controls, that the change must be worth."""
    restored: float = 0.5
    """Part of the gap between step 1 and the later steps that a change of the later steps must close."""
    flips: int = 9999
    rounds: int = 3


@dataclass(frozen=True)
class Difference:
    """One hypothesis against the declared setting, per prompt; positive is better. NaN where a prompt took no part."""

    loss_first: Floats
    """Fall in nats at step 1."""
    loss_later: Floats
    """Fall in nats, mean over steps 2 on."""
    agree_first: Floats
    agree_later: Floats
    length: Floats
    """Rise in accepted tokens per anchor."""

    @classmethod
    def of(cls, alternative: Scores, declared: Scores, left_out: NDArray[np.bool_] | None = None) -> Difference:
        loss = declared.mean_loss - alternative.mean_loss
        agree = alternative.agreement - declared.agreement
        parts = [loss[:, 0], loss[:, 1:].mean(1), agree[:, 0], agree[:, 1:].mean(1)]
        parts.append(alternative.length - declared.length)
        if left_out is not None:
            parts = [np.where(left_out, np.nan, part) for part in parts]
        return cls(*parts)

    @property
    def loss(self) -> Floats:
        """Fall in nats, mean over all steps."""
        return (self.loss_first + self.loss_later * (DEPTH - 1)) / DEPTH

    @property
    def agree(self) -> Floats:
        """Rise of top-1 agreement, mean over all steps."""
        return (self.agree_first + self.agree_later * (DEPTH - 1)) / DEPTH


def sign_flip_p(differences: Floats, *, flips: int = 9999, seed: int = 0) -> tuple[Floats, Floats]:
    """p of `differences[prompt, hypothesis]` being better, and of being worse, each against the maximum over hypotheses.

    A hypothesis that changes nothing has p = 1. Prompts that are NaN are left out of their column.
    """
    present = np.isfinite(differences)
    data = np.where(present, differences, 0.0)
    count = present.sum(0)
    squares = (data**2).sum(0)
    moving = (squares > 1e-18 * np.maximum(count, 1)) & (count > 1)
    better, worse = np.ones(data.shape[1]), np.ones(data.shape[1])
    if not moving.any():
        return better, worse
    data, count, squares = data[:, moving], count[moving], squares[moving]

    def t(sums: Floats) -> Floats:
        mean = sums / count
        # Flips leave the sum of squares as it is.
        variance = np.maximum(squares / count - mean**2, 1e-12 * squares / count) / (count - 1)
        return mean / np.sqrt(variance)

    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (flips, len(data)))
    null = t(signs @ data)
    seen = t(data.sum(0))
    for result, values, against in ((better, null, seen), (worse, -null, -seen)):
        extreme = np.sort(values.max(1))
        above = flips - np.searchsorted(extreme, against * (1 - 1e-9) - 1e-12, side="left")
        result[moving] = (1 + above) / (1 + flips)
    return better, worse


def signature(difference: Difference, limits: Limits) -> Signature:
    """Which steps a change moves by a practical size, whichever way."""
    first = abs(np.nanmean(difference.loss_first)) >= limits.loss
    later = abs(np.nanmean(difference.loss_later)) >= limits.loss
    return "both" if first and later else "step 1" if first else "steps 2 on" if later else "none"


def too_small(
    difference: Difference, alternative: Scores, declared: Scores, control_loss: float, *, later: bool, limits: Limits
) -> str:
    """Why a better alternative is not better by enough to be the setting that was trained; empty where it is.

    control_loss: nats of the best negative control at step 1. A change that only enters at step 2 must bring the later
    steps back towards step 1: a drafter that drifts gets a little better by many changes, and whole by none.
    """
    first, before = float(declared.agreement[:, 0].mean()), float(declared.agreement[:, 1:].mean())
    restored = np.nanmean(difference.agree_later) >= limits.restored * (first - before)
    if later:
        small = _below(difference.loss_later, difference.agree_later, limits)
        return small or ("" if restored else "better, but the later steps stay far behind step 1: it drifts either way")
    knows = control_loss - float(alternative.mean_loss[:, 0].mean())
    gain = float(np.nanmean(difference.loss_first))
    small = _below(difference.loss_first, difference.agree_first, limits)
    if not small and np.nanmean(difference.loss) > 0:
        return "" if gain >= limits.share * knows else f"worth less than {limits.share:.0%} of what the drafter knows"
    # A little at every step can add up; a drafter that drifts must not be mended by chance at the later ones alone.
    both = gain > 0 and np.nanmean(difference.agree_first) >= 0 and (restored or gain >= limits.loss)
    if both and not _below(difference.loss, difference.agree, limits):
        return ""
    return small or "better at step 1 at the cost of the later steps"


def _below(loss: Floats, agree: Floats, limits: Limits) -> str:
    """Which practical size is not reached, or nothing."""
    if np.nanmean(loss) < limits.loss:
        return f"better by less than {limits.loss:g} nats"
    rise, error = float(np.nanmean(agree)), float(np.nanstd(agree) / np.isfinite(agree).sum() ** 0.5)
    if rise < max(limits.agreement, _SURE * error):
        return "lower loss, but top-1 agreement does not rise with it: confidence, not content"
    return ""
