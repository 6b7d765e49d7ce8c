"""How far an engine's counters lie from what a walk over some texts predicts, in units of what both can vary.

Figures are logits of conditional acceptance by position (accepted at j of those accepted at j - 1), or of the share of all drafted
tokens where only that is known; counts have 1/2 added (Haldane, Annals of Human Genetics 20, 1956). Their covariance adds up

- the spread between prompts, in the walk and in the engine: sums of a prompt's residuals over the denominator, the
linearisation of a
  ratio of sums (Cochran, Sampling Techniques, 3rd edition, 1977, section 6.3), and at the least the binomial variance;
- unless the engine's traffic is a sample of the same kinds of prompts, the spread between kinds: an engine may serve
one kind alone;
- a practical size, below which two implementations of the same thing may differ.

Where the engine serves the very same prompts, prompts cancel: what is left is the share of rounds that another order of summation
can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]
PRACTICAL = 0.03
"""Standard deviation in logits that two sound implementations may differ by."""
CHANGED = 0.02
"""Least share of the rounds over the very same texts that rounding may change."""
_SMALLEST_KIND = 2
"""Prompts of a kind below which it tells nothing about kinds."""


@dataclass(frozen=True)
class Figures:
    """What is compared: accepted of reached, per figure."""

    accepted: Floats
    """[..., figure]"""
    reached: Floats
    by_position: bool

    @classmethod
    def of(cls, counts: Floats, by_position: bool) -> Figures:
        """From `counts[..., k + 1]`: rounds, then those that accepted at least 1, 2, ... k tokens."""
        if by_position:
            return cls(counts[..., 1:], counts[..., :-1], True)
        k = counts.shape[-1] - 1
        return cls(counts[..., 1:].sum(-1, keepdims=True), counts[..., :1] * k, False)

    def first(self, count: int) -> Figures:
        """The first figures."""
        return Figures(self.accepted[..., :count], self.reached[..., :count], self.by_position)

    @property
    def total(self) -> Figures:
        """Over prompts."""
        return Figures(self.accepted.sum(0), self.reached.sum(0), self.by_position)

    @property
    def share(self) -> Floats:
        return (self.accepted + 0.5) / (self.reached + 1.0)

    @property
    def logit(self) -> Floats:
        return np.log((self.accepted + 0.5) / (self.reached - self.accepted + 0.5))

    @property
    def binomial(self) -> Floats:
        """Variance of the logits if every token were independent."""
        return 1 / (self.accepted + 0.5) + 1 / (self.reached - self.accepted + 0.5)


@dataclass(frozen=True)
class Distance:
    """An engine against one prediction."""

    difference: Floats
    """[figure] logit of the engine minus that of the prediction."""
    covariance: Floats

    @property
    def z(self) -> Floats:
        """[figure] in standard deviations."""
        return self.difference / np.sqrt(np.diag(self.covariance))

    @property
    def squared(self) -> float:
        """Mahalanobis' distance, squared."""
        return float(self.difference @ np.linalg.solve(self.covariance, self.difference))

    @property
    def p(self) -> float:
        """Chance of a distance at least as large if the prediction holds."""
        return float(chi2.sf(self.squared, len(self.difference)))

    @property
    def log_likelihood(self) -> float:
        """Of the engine's figures under the prediction, up to a constant that all predictions share."""
        _, determinant = np.linalg.slogdet(self.covariance)
        return -0.5 * (self.squared + float(determinant))


def distance_over_traffic(
    engine: Figures, walk: Figures, kinds: Sequence[str], *, requests: int | None = None, alike: bool = False
) -> Distance:
    """An engine that answers other prompts than those of the walk.

    Args:
        engine: figures [figure] of the counters.
        walk: figures [prompt, figure] of the prediction.
        kinds: category of each prompt.
        requests: that the engine answered, where it is known: their number bounds what they can average out.
        alike: the engine's prompts are of the same kinds in the same shares.
    """
    covariance = traffic_covariance(engine, walk, kinds, requests=requests, alike=alike)
    return Distance(engine.logit - walk.total.logit, covariance)


def traffic_covariance(
    engine: Figures, walk: Figures, kinds: Sequence[str], *, requests: int | None = None, alike: bool = False
) -> Floats:
    """Covariance of the difference that `distance_over_traffic` tests."""
    total, prompts = walk.total, len(walk.reached)
    spread = _between_prompts(walk)
    # As many rounds as the engine made average more out, but not more than its requests do.
    scale = total.reached / np.maximum(engine.reached, 1.0)
    if requests:
        scale = np.maximum(scale, prompts / requests)
    root = np.sqrt(scale)
    served = _at_least(spread * np.outer(root, root), engine.binomial)
    covariance = _at_least(spread, total.binomial) + served + PRACTICAL**2 * np.eye(len(root))
    return covariance if alike else covariance + between_kinds(walk, kinds)


def distance_over_same_prompts(
    engine: Floats, low: Floats, high: Floats, by_position: bool, size: int, changed: float, rounding: float = 0.0
) -> Distance:
    """An engine that answered the very prompts of the walk, once each.

    engine: counts [k + 1] of drafts and of those that accepted at least 1, 2, ... tokens; of a mean, k times the mean share.
    low, high: the least and the most that it can have counted (`Walks.bounds`); within them nothing differs.
    size: figures to compare, the first ones.
    changed: share of the rounds that another order of summation may change, e.g. through near ties; at least CHANGED.
    rounding: by how much a count of the engine may be off.
    """
    # An engine that makes other rounds has another number of them.
    factor = engine[0] / max(low[0], 1.0)
    nearest = np.clip(engine, low * factor - rounding, high * factor + rounding)
    here, there = (Figures.of(part, by_position).first(size) for part in (engine, nearest))
    # Independent both in the engine and in the walk.
    variance = 2 * max(changed, CHANGED) * np.maximum(here.binomial, there.binomial)
    # A single round more or less is no difference.
    step = 1 / np.maximum(here.reached * here.share * (1 - here.share), 0.5)
    return Distance(here.logit - there.logit, np.diag(variance + step**2))


def between_kinds(walk: Figures, kinds: Sequence[str]) -> Floats:
    """Covariance of the logits between kinds of prompts, beyond what their own few prompts explain; zeros with fewer
    than 3 kinds."""
    names = np.array(kinds)
    groups = [np.flatnonzero(names == name) for name in dict.fromkeys(kinds)]
    groups = [group for group in groups if len(group) >= _SMALLEST_KIND]
    size = walk.reached.shape[1]
    if len(groups) < 3:
        return np.zeros((size, size))
    parts = [Figures(walk.accepted[group], walk.reached[group], walk.by_position) for group in groups]
    within = np.mean([_at_least(_between_prompts(part), part.total.binomial) for part in parts], 0)
    means = np.stack([part.total.logit for part in parts])
    values, vectors = np.linalg.eigh(np.cov(means, rowvar=False).reshape(size, size) - within)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def drafts_needed(covariance_at: Sequence[Floats], direction: Floats, size: float) -> float | None:
    """By what factor the engine's drafts would have to grow for a change of `size` along `direction` to be seen.

    covariance_at: of the difference as it is, and with infinitely many drafts. None where no number is enough.
    """
    wanted = (size / (2.58 + 0.84)) ** 2
    now, limit = (1 / float(direction @ np.linalg.solve(part, direction)) for part in covariance_at)
    if now <= wanted:
        return 1.0
    return None if limit >= wanted else (now - limit) / (wanted - limit)


def _between_prompts(walk: Figures) -> Floats:
    """Covariance of the logits of the sums, from the spread between prompts."""
    total, prompts = walk.total, len(walk.reached)
    share = total.share
    scale = np.maximum(total.reached, 1.0) * share * (1 - share)
    residual = (walk.accepted - share * walk.reached) / scale
    if prompts < 2:
        return np.diag(total.binomial)
    return residual.T @ residual * (prompts / (prompts - 1))


def _at_least(covariance: Floats, variance: Floats) -> Floats:
    """The covariance, its diagonal raised to a variance where it is smaller."""
    own = np.diag(covariance)
    return covariance + np.diag(np.maximum(variance - own, 0.0))
