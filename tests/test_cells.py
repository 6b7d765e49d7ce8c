"""Sums per prompt and step, and chains, against pandas on rows in any order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from driftscope.errors import RunError
from driftscope.runs.prompt_sums import PromptCells, chains, prompt_codes

ROWS = pd.DataFrame(
    [
        (prompt, anchor, step, anchor == 7, step <= length)
        for prompt, anchor, length in (("b", 5, 2), ("b", 6, 0), ("b", 7, 3), ("a", 9, 1), ("a", 10, 3))
        for step in (1, 2, 3)
    ],
    columns=["prompt", "anchor", "step", "loop", "accepted"],
)


def shuffled(*, categorical: bool) -> pd.DataFrame:
    rows = ROWS.sample(frac=1, random_state=1, ignore_index=True)
    kind = pd.CategoricalDtype(["b", "unused", "a"]) if categorical else object
    return rows.astype({"prompt": kind})


@pytest.mark.parametrize("categorical", [True, False])
def test_prompts_are_those_that_occur_in_order(categorical: bool) -> None:
    codes, names = prompt_codes(shuffled(categorical=categorical)["prompt"])
    assert names == ["a", "b"]
    assert [names[code] for code in codes] == shuffled(categorical=categorical)["prompt"].tolist()


@pytest.mark.parametrize("categorical", [True, False])
def test_sums_and_means_are_those_of_a_group(categorical: bool) -> None:
    rows = shuffled(categorical=categorical)
    values = np.where(rows["anchor"] == 6, np.nan, rows["anchor"] * 10.0 + rows["step"])
    cells = PromptCells(rows)
    grouped = pd.Series(values).groupby([rows["prompt"].astype(str), rows["step"]])
    np.testing.assert_array_equal(cells.sum(values), grouped.sum().unstack())
    np.testing.assert_array_equal(cells.count(values), grouped.count().unstack())
    np.testing.assert_allclose(cells.mean(values), grouped.mean().unstack())
    np.testing.assert_array_equal(cells.size(), grouped.size().unstack())


def test_a_mean_of_nothing_is_not_measured() -> None:
    assert np.isnan(PromptCells(ROWS).mean(np.full(len(ROWS), np.nan))).all()


@pytest.mark.parametrize("categorical", [True, False])
def test_chains_stand_by_prompt_and_anchor_with_what_they_accept(categorical: bool) -> None:
    found = chains(shuffled(categorical=categorical))
    assert found.anchor.tolist() == [9, 10, 5, 6, 7]
    assert found.length.tolist() == [1, 3, 2, 0, 3]
    assert found.loop.tolist() == [False, False, False, False, True]
    assert [found.anchor[part].tolist() for part in found.by_prompt()] == [[9, 10], [5, 6, 7]]
    assert found.consecutive
    assert not chains(ROWS[ROWS["anchor"] != 6]).consecutive


def test_no_rows_are_no_chains() -> None:
    found = chains(ROWS.iloc[:0])
    assert len(found.length) == 0
    assert found.consecutive
    assert list(found.by_prompt()) == []


def test_steps_far_beyond_the_rows_are_refused() -> None:
    rows = pd.DataFrame({"prompt": [f"p{n}" for n in range(40)], "step": [1] * 39 + [32_767]})
    with pytest.raises(RunError, match="40 rows for 1,310,680 prompts and steps"):
        PromptCells(rows)
    assert PromptCells(rows[:39]).size().sum() == 39
