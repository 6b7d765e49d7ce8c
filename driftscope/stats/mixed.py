"""Contrasts between cells of an experiment where each cell holds several trainings: the interval covers seeds and prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from driftscope.stats.intervals import CONFIDENCE, MIN_PROMPTS, RESAMPLES, SEED, Floats, Intervals, _blank
from driftscope.stats.resampling import Figure, resample_weights


def mixed_contrasts(
    samples: Sequence[Sequence[ArrayLike]],
    cells: Sequence[int],
    weights: ArrayLike,
    figure: Figure,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Intervals:
    """[contrast]: sum over cells of `weights[contrast, cell]` * the mean over the cell's runs of figure(sums of parts).

    `samples[run][part]` are arrays [prompt], `cells[run]` is the cell of a run, a training seed of its own. Mixed resampling:
    prompts are drawn once for all runs (they are crossed with seeds), seeds within their cell, one fewer than there are, since n
    draws of n would have a variance too small by (n - 1) / n (Rao and Wu 1988). Both factors at once: Owen, The Pigeonhole
    Bootstrap (2007). Percentile ends, widened by Student's t over the normal quantile at the degrees of freedom that seeds and
    prompts leave (Satterthwaite 1946): a few seeds do not tell their own spread well. A cell of one run adds nothing for its seed.
    """
    weight = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    cell = np.asarray(cells, dtype=np.int64)
    data = np.array([[np.asarray(part, dtype=np.float64) for part in sample] for sample in samples])
    data = data[..., np.isfinite(data).all(axis=(0, 1))]
    result = _blank((len(weight),))
    if not data.shape[2]:
        return result
    share = np.stack([weight[:, group] / np.count_nonzero(cell == group) for group in cell], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        point = np.array([figure(*(part.sum()[None] for part in run))[0] for run in data])
        result.mean[:] = _weighted(share, point)
        if data.shape[2] < MIN_PROMPTS:
            return result
        by_prompts = resample_weights(data.shape[2], resamples, seed)
        drawn = np.stack([figure(*(part[None] @ by_prompts for part in run))[0] for run in data])
    picked = _seeds(cell, resamples, seed)
    values = np.stack([_weighted(row[:, None] * picked, drawn) for row in share])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, (tail, 1 - tail), axis=1)
    wider = _widening(share, cell, point, values.var(axis=1, ddof=1), data.shape[2])
    result.low[:] = result.mean + (low - result.mean) * wider
    result.high[:] = result.mean + (high - result.mean) * wider
    return result


def _weighted(share: Floats, figures: Floats) -> Floats:
    """Sum over runs; a run without a share must not spoil it where its own figure is undefined."""
    if share.shape == figures.shape:
        return np.asarray(np.where(share == 0, 0.0, share * figures).sum(axis=0))
    return np.asarray(np.where(share == 0, 0.0, share * figures).sum(axis=-1))


def _seeds(cell: NDArray[np.int64], resamples: int, seed: int) -> Floats:
    """[run, resample]: by how much more than its equal share a run counts."""
    rng = np.random.default_rng([seed, 1])
    picked = np.ones((len(cell), resamples))
    for group in np.unique(cell):
        runs = np.flatnonzero(cell == group)
        if len(runs) > 1:
            counts = rng.multinomial(len(runs) - 1, np.full(len(runs), 1 / len(runs)), size=resamples)
            picked[runs] = counts.T * len(runs) / (len(runs) - 1)
    return picked


def _widening(share: Floats, cell: NDArray[np.int64], point: Floats, total: Floats, prompts: int) -> Floats:
    """[contrast] t over normal quantile at Satterthwaite's degrees of freedom; 1 where nothing varies."""
    seeds, squares = np.zeros(len(share)), np.zeros(len(share))
    for group in np.unique(cell):
        runs = np.flatnonzero(cell == group)
        if len(runs) > 1:
            part = share[:, runs[0]] ** 2 * len(runs) * point[runs].var(ddof=1)
            part = np.where(share[:, runs[0]] == 0, 0.0, part)
            seeds, squares = seeds + part, squares + part**2 / (len(runs) - 1)
    rest = np.maximum(total - seeds, 0.0)
    below = squares + rest**2 / (prompts - 1)
    known = (below > 0) & np.isfinite(below)
    freedom = np.where(known, (seeds + rest) ** 2 / np.where(known, below, 1.0), np.inf)
    half = (1 + CONFIDENCE) / 2
    return np.asarray(stats.t.ppf(half, freedom) / stats.norm.ppf(half))
