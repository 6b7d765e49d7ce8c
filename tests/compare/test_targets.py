"""One drafter under several targets: keep, adapt or retrain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from driftscope.cli import app
from driftscope.compare import CompareError, compare_targets
from driftscope.runs.run import Run
from tests.fake_run import NO_DRIFT, Fake, meta, prompt_ids, tables


def write(folder: Path, name: str, fake: Fake, *, rms: float = 1.0, **trust: Any) -> Run:
    """A run of the one drafter under a target of that name, whose states on the prompts are `rms` times as large."""
    about = meta(fake)
    about["target"] |= {"name": f"fake/{name}", "fingerprint": name}
    run = Run.create(folder / name, **about, **trust)
    for number, prompt in enumerate(prompt_ids(fake)):
        parts = tables(fake, number)
        layers = parts["layers"]
        layers["sum_log_rms"] += layers["positions"] * np.log(rms) * (layers["boundary"] == 2)
        run.write_shard("clean", prompt, parts)
    return run


def test_each_target_is_told_against_the_first(tmp_path: Path) -> None:
    fake = NO_DRIFT.changed(anchors=60, acceptance=0.8)
    base = write(tmp_path, "base", fake)
    same = write(tmp_path, "same", fake.changed(seed=1))
    tuned = write(tmp_path, "tuned", fake.changed(acceptance=0.65, seed=2), rms=1.5)
    far = write(tmp_path, "far", fake.changed(acceptance=0.3, seed=3), rms=0.5)
    first, *others = compare_targets([base, same, tuned, far])
    assert (first.kept, first.advice) == (None, "keep")
    assert [part.advice for part in others] == ["keep", "adapt", "retrain"]
    assert [round(part.rms[2].mean, 6) for part in others] == [1.0, 1.5, 0.5]
    assert all(part.rms[1].mean == pytest.approx(1.0) for part in others)
    assert others[2].kept.high < 0.6 < others[1].kept.mean
    assert others[1].sentence.startswith(
        "tuned is not the target that it was trained for: at step 1, where nothing can have"
    )
    assert "its features moved most at boundary 2 (RMS x1.5" in others[1].sentence
    assert others[2].sentence.endswith("retrain it for far")


def test_the_command_takes_them_and_prints_json(tmp_path: Path) -> None:
    write(tmp_path, "base", NO_DRIFT.changed(acceptance=0.7))
    write(tmp_path, "far", NO_DRIFT.changed(acceptance=0.3, seed=3))
    folders = [str(tmp_path / name) for name in ("base", "far")]
    shown = CliRunner().invoke(app, ["compare", *folders])
    assert shown.exit_code == 0, shown.output
    assert "retrain it for far" in " ".join(shown.output.split())
    told = json.loads(CliRunner().invoke(app, ["compare", *folders, "--json"]).stdout)
    assert [part["advice"] for part in told["targets"]] == ["keep", "retrain"]


def test_too_few_prompts_garbage_texts_and_other_drafters(tmp_path: Path) -> None:
    base, far = (
        write(tmp_path, name, NO_DRIFT.changed(prompts=5, acceptance=a)) for name, a in (("base", 0.7), ("far", 0.1))
    )
    _, few = compare_targets([base, far])
    assert (few.advice, few.sentence) == ("cannot tell", "far: cannot tell: 5 prompts have no interval, 12 are needed")
    garbage = write(
        tmp_path, "garbage", NO_DRIFT.changed(prompts=5), trust={"texts": {"reason": "it writes gibberish"}}
    )
    assert compare_targets([base, garbage])[1].sentence == "garbage: cannot tell: it writes gibberish"
    with pytest.raises(CompareError, match="not of one checkpoint under several targets"):
        compare_targets([base, base])


def test_a_table_without_probabilities_has_no_loss(tmp_path: Path) -> None:
    fake = NO_DRIFT.changed(prompts=12)
    one, other = write(tmp_path, "one", fake), write(tmp_path, "other", fake.changed(seed=4))
    first, second = compare_targets([one, other])
    held = "prob" in one.table("anchors", "clean")
    assert (first.loss is not None) == held == (second.loss_rise is not None)
