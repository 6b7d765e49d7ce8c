"""Sums per prompt and step, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope.figures.grids import Grids

RNG = np.random.default_rng(2)
ROWS = pd.DataFrame(
    {
        "variant": pd.Categorical(RNG.choice(["a", "b"], 200)),
        "feed": RNG.choice(["drafted", "text"], 200),
        "prompt": pd.Categorical(RNG.choice(["p", "q", "r", "gone"], 200)),
        "step": RNG.integers(1, 5, 200).astype(np.int16),
        "anchors": pd.array(RNG.integers(1, 9, 200), dtype="Int32"),
        "value": np.where(RNG.random(200) < 0.2, np.nan, RNG.normal(size=200)),
    }
)
PROMPTS, DEPTH = ["r", "p", "q", "absent"], 3


def by_pandas(rows: pd.DataFrame, column: str) -> np.ndarray:
    sums = rows.dropna(subset=[column]).groupby([rows["prompt"].astype(str), "step"])[column].sum().unstack()
    return sums.reindex(index=PROMPTS, columns=range(1, DEPTH + 1)).astype(float).to_numpy()


def test_sums_of_one_key_and_of_several() -> None:
    grids = Grids(ROWS, PROMPTS, DEPTH)
    text = ROWS[ROWS["feed"] == "text"]
    np.testing.assert_allclose(grids.sum("value", ("a", "text")), by_pandas(text[text["variant"] == "a"], "value"))
    np.testing.assert_allclose(grids.sum("anchors", ("a", "text"), ("b", "text")), by_pandas(text, "anchors"))
    assert np.isnan(grids.sum("value", ("a", "text"))[3]).all()


def test_what_is_not_there_is_not_measured() -> None:
    for rows in (ROWS, ROWS.iloc[:0]):
        grids = Grids(rows, PROMPTS, DEPTH)
        for found in (grids.sum("nothing", ("a", "text")), grids.sum("value", ("c", "text")), grids.sum("value")):
            assert found.shape == (4, DEPTH)
            assert np.isnan(found).all()


def test_means_are_sums_over_anchors_and_keys_may_be_numbers() -> None:
    grids = Grids(ROWS, PROMPTS, DEPTH, by=("step", "feed"))
    rows = ROWS[(ROWS["step"] == 2) & (ROWS["feed"] == "text")]
    wanted = by_pandas(rows, "value") / by_pandas(rows, "anchors")
    np.testing.assert_allclose(grids.mean("value", (2, "text")), wanted)
    assert np.isnan(grids.mean("value", (2, "text"))[:, [0, 2]]).all()
