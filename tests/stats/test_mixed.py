"""Intervals over seeds and prompts, on made-up experiments with known effects."""

from __future__ import annotations

import numpy as np
import pytest

from driftscope.stats.contrasts import contrasts, ratio
from driftscope.stats.mixed import mixed_contrasts

FACTORIAL = np.array([[-0.5, -0.5, 0.5, 0.5], [1.0, -1.0, -1.0, 1.0]])
"""Main effect of the second factor, and the interaction."""
EFFECTS = (0.3, 0.0)


def experiment(
    rng: np.random.Generator, seeds: int, spread: float, prompts: int = 24
) -> tuple[list[list[np.ndarray]], list[int]]:
    """Four cells of so many seeds each: a common value per prompt, the effect, a value per seed, and noise."""
    common = rng.normal(0, 1.0, prompts)
    samples, cells = [], []
    for cell, mean in enumerate((1.0, 1.0, 1.3, 1.3)):
        for _ in range(seeds):
            samples.append([mean + common + rng.normal(0, spread) + rng.normal(0, 0.2, prompts), np.ones(prompts)])
            cells.append(cell)
    return samples, cells


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_covers_the_effect_over_trainings(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    covered = np.zeros((2, 2))
    repeats = 200
    for _ in range(repeats):
        samples, cells = experiment(rng, seeds, spread=0.2)
        found = mixed_contrasts(samples, cells, FACTORIAL, ratio, resamples=400)
        # As if the prompts were all that varies.
        share = FACTORIAL[:, cells] / seeds
        plain = contrasts(samples, share, ratio, resamples=400)
        for place, part in enumerate((found, plain)):
            covered[place] += (part.low <= EFFECTS) & (np.array(EFFECTS) <= part.high)
    assert (covered[0] / repeats >= 0.92).all()
    assert (covered[1] / repeats < 0.8).all()


def test_the_point_is_the_contrast_of_the_means_over_seeds() -> None:
    samples, cells = experiment(np.random.default_rng(0), 3, 0.5)
    means = np.array(
        [np.mean([samples[run][0].mean() for run in range(12) if cells[run] == cell]) for cell in range(4)]
    )
    found = mixed_contrasts(samples, cells, [*FACTORIAL, [0, 0, 1, 0]], ratio, resamples=50)
    assert found.mean == pytest.approx([*(FACTORIAL @ means), means[2]])


def test_seeds_that_agree_add_nothing() -> None:
    """The interval is that of the prompts alone where trainings are equal, but for the ends' kind."""
    rng = np.random.default_rng(1)
    one, two = rng.normal(0, 1, 48), rng.normal(0.3, 1, 48)
    ones = np.ones(48)
    same = mixed_contrasts([[one, ones]] * 3 + [[two, ones]] * 3, [0, 0, 0, 1, 1, 1], [[-1, 1]], ratio)
    prompts = contrasts([[one, ones], [two, ones]], [[-1, 1]], ratio)
    assert same.low[0] == pytest.approx(prompts.low[0], abs=0.05)
    assert same.high[0] == pytest.approx(prompts.high[0], abs=0.05)


def test_few_prompts_have_no_interval_and_gaps_leave_a_prompt_out() -> None:
    samples, cells = experiment(np.random.default_rng(0), 2, 0.1, prompts=11)
    found = mixed_contrasts(samples, cells, FACTORIAL, ratio, resamples=50)
    assert np.isfinite(found.mean).all()
    assert np.isnan(found.low).all()
    samples, cells = experiment(np.random.default_rng(0), 2, 0.1, prompts=13)
    samples[0][0][5] = np.nan
    kept = [[part[np.arange(13) != 5] for part in sample] for sample in samples]
    one, two = (mixed_contrasts(part, cells, FACTORIAL, ratio, resamples=50) for part in (samples, kept))
    assert one.mean == pytest.approx(two.mean)
    assert np.isfinite(one.low).all()
