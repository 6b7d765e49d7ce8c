"""The jump at the boundary of prefill and draft, and the slope behind it, as planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from driftscope.runs.run import Run
from driftscope.show import frames
from driftscope.show.frames.jumps import jump_sentences
from tests.fake_run import Fake, meta, prompt_ids, tables

FAKE = Fake(prompts=14, anchors=12, depth=5, feeds=("drafted",))


def planted(folder: Path, jump: float, slope: float, depth: int = 5) -> Run:
    """A run whose carry is `jump` times larger at step 2 and `slope` times at every step after it; q only fires at step 1."""
    fake = FAKE.changed(depth=depth)
    run = Run.create(folder, **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        rows = tables(fake, number)["anchors"]
        step = rows["step"].to_numpy()
        size = (2.0 + rows["anchor"].to_numpy() % 5) * np.where(step > 1, jump * slope ** (step - 2.0), 1.0)
        rows["rms/carry"] = np.where(rows["loop"], 1e6 * step, size).astype(np.float32)
        rows["rms/fused"] = np.where(step == 1, 3.0, np.nan).astype(np.float32)
        run.write_shard("clean", name, {"anchors": rows})
    return run


def figure(frame: pd.DataFrame, quantity: str) -> pd.Series:
    found = frame[(frame["site"] == "carry") & (frame["quantity"] == quantity)]
    assert len(found) == 1
    return found.iloc[0]


def test_jump_and_slope_are_kept_apart(tmp_path: Path) -> None:
    frame = frames.site_jumps([planted(tmp_path / "run", 3.0, 1.1)])
    for quantity, expected in (("jump", 3.0), ("slope", 1.1)):
        row = figure(frame, quantity)
        np.testing.assert_allclose([row["mean"], row["low"], row["high"]], expected, rtol=1e-5)
        # Anchors in loops are left out.
        assert row["count"] == FAKE.prompts * (FAKE.anchors - FAKE.loops)
        assert row["prompts"] == FAKE.prompts


def test_a_head_that_jumps_once_has_no_slope(tmp_path: Path) -> None:
    frame = frames.site_jumps([planted(tmp_path / "run", 5.0, 1.0)])
    np.testing.assert_allclose(figure(frame, "slope")["mean"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(figure(frame, "jump")["mean"], 5.0, rtol=1e-6)


def test_the_site_that_changes_most_is_named() -> None:
    figures = [("state", "jump", 0.5), ("carry", "jump", 3.0), ("state", "slope", 1.2), ("carry", "slope", 1.1)]
    frame = pd.DataFrame(figures, columns=["site", "quantity", "mean"]).assign(run="one")
    frame = frame.assign(low=frame["mean"] - 0.05, high=frame["mean"] + 0.05)
    ((run, text),) = jump_sentences(frame)
    assert run == "one"
    assert text == (
        "carry changes most at step 2, x3.00 (95% 2.95 to 3.05); state changes most per step behind it, x1.20 (95% 1.15 to 1.25)"
    )
    steady = frame.assign(mean=1.002, low=np.nan, high=np.nan)
    assert jump_sentences(steady) == [("one", "none changes by 1% at step 2; none changes by 1% per step behind it")]


def test_what_cannot_be_measured_is_absent(tmp_path: Path) -> None:
    frame = frames.site_jumps([planted(tmp_path / "two", 3.0, 1.1, depth=2)])
    assert set(frame.loc[frame["site"] == "carry", "quantity"]) == {"jump"}
    assert "fused" not in set(frame["site"])
    empty = Run.create(tmp_path / "none", **meta(FAKE))
    assert frames.site_jumps([empty]).empty


def test_the_last_prefill_rows_are_step_1_of_the_anchors_before(tmp_path: Path) -> None:
    """So no table has to hold them: row t-1 stands at step 0."""
    run = planted(tmp_path / "run", 3.0, 1.0)
    frame = frames.carry_norms([run], before=2).set_index("step")["mean"]
    rows = run.table("anchors")
    rows = rows[~rows["loop"] & (rows["step"] == 1)]
    ahead = rows.groupby("prompt", observed=True)["rms/carry"].apply(lambda sizes: sizes.to_numpy()[:-1].mean())
    np.testing.assert_allclose(frame[0], ahead.mean(), rtol=1e-5)
    assert frame[2] / frame[1] > 2.9
