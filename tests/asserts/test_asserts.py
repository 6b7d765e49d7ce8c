"""Assertions decide on intervals, and say what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from driftscope.asserts import (
    UndecidedWarning,
    assert_acceptance,
    assert_no_attention_drift,
    assert_no_findings,
    assert_noise_robust,
    assert_norm_growth,
    assert_not_worse,
)
from driftscope.asserts.bounds import Bound, Figure
from driftscope.compare import CompareError
from driftscope.errors import RunError
from driftscope.findings.registry import UnknownCodeError
from driftscope.runs.run import Run
from driftscope.stats.intervals import Interval
from tests.fake_run import NO_DRIFT, Fake, prompt_ids, write_fake_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    fakes = {"drift": Fake(depth=5), "calm": NO_DRIFT.changed(depth=5), "few": Fake(depth=5, prompts=4)}
    made = {name: write_fake_run(folder / name, fake) for name, fake in fakes.items()}
    for name, kept in (("drift", 0.3), ("calm", 0.9)):
        write_noise(made[name], fakes[name], kept)
    return made


def write_noise(run: Run, fake: Fake, kept: float) -> None:
    """State noise 0.5 that leaves a share `kept` of 4 accepted tokens an anchor, a little more or less by prompt."""
    for number, prompt in enumerate(prompt_ids(fake)):
        rows = []
        for variant, share in (("noise/clean", 1.0), ("noise/state/0.5/seed0", kept + 0.02 * (-1) ** number)):
            for step in range(1, 5):
                accepted = round(100 * share)
                rows.append([variant, "drafted", prompt, step, 100, accepted, accepted, accepted, 30, step * 20])
        columns = ["variant", "feed", "prompt", "step", "anchors", "matches", "reached", "accepted"]
        steps = pd.DataFrame(rows, columns=[*columns, "served_rounds", "served_accepted"])
        about = {"site": "state", "alpha": 0.5, "seed": 0, "steps": "every"}
        variants = pd.DataFrame(
            {
                "variant": ["noise/clean", "noise/state/0.5/seed0"],
                "probe": "noise",
                "kind": ["clean", "intervention"],
                "parameters": ["{}", json.dumps(about)],
            }
        )
        run.write_shard("noise", prompt, {"steps": steps, "variants": variants})


ALL: dict[str, Callable[[Run], Any]] = {
    "growth": lambda run: assert_norm_growth(run, step=5),
    "matched growth": lambda run: assert_norm_growth(run, step=5, matched=True),
    "attention": assert_no_attention_drift,
    "noise": assert_noise_robust,
    "acceptance": lambda run: assert_acceptance(run, min_served=1.0),
    "findings": lambda run: assert_no_findings(run, ignore=["DS105", "DS108"]),
}


@pytest.mark.parametrize("name", ALL)
def test_a_calm_run_passes(runs: dict[str, Run], name: str) -> None:
    outcome = ALL[name](runs["calm"])
    assert outcome.verdict == "passed"
    assert outcome.message == ""


@pytest.mark.parametrize(
    ("name", "marked", "codes", "words"),
    [
        ("growth", 4, ["DS101"], "norm growth 1.73x"),
        ("matched growth", 4, ["DS101"], "matched growth 1.73x"),
        ("attention", 2, ["DS102"], "displacement 0.09"),
        ("noise", None, ["DS104"], "under noise 0.5 on the state is 0.30"),
        ("findings", 2, ["DS101", "DS102"], "Attention moves from step 2 on"),
    ],
)
def test_a_drifting_run_fails_with_its_table(
    runs: dict[str, Run], name: str, marked: int | None, codes: list[str], words: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        ALL[name](runs["drift"])
    message = str(caught.value)
    assert words in message
    assert "too few" not in message
    lines = message.splitlines()
    rows = [
        line for line in lines if line.removeprefix(">").split()[:1] and line.removeprefix(">").split()[0].isdigit()
    ]
    assert [line.removeprefix(">").split()[0] for line in rows] == ["1", "2", "3", "4", "5"]
    assert [int(line.removeprefix(">").split()[0]) for line in rows if line.startswith(">")] == [marked] * bool(marked)
    assert all(f"driftscope explain {code}" in lines[-1] for code in codes)
    assert str(runs["drift"].folder) in message
    assert "\x1b" not in message


@pytest.mark.parametrize("name", [name for name in ALL if name != "noise"])
def test_too_few_prompts_fail_with_that_reason(runs: dict[str, Run], name: str) -> None:
    with pytest.raises(AssertionError, match=r"^too (few prompts|little was measured) to tell") as caught:
        ALL[name](runs["few"])
    assert "4 prompts, intervals need 12" in str(caught.value)
    assert "allow_unknown=True" in str(caught.value)


def test_unknown_may_be_allowed_and_failing_may_not(runs: dict[str, Run]) -> None:
    with pytest.warns(UndecidedWarning, match="too few prompts") as caught:
        outcome = assert_norm_growth(runs["few"], step=5, allow_unknown=True)
    assert outcome.verdict == "unknown"
    assert caught[0].filename == __file__
    with pytest.warns(UndecidedWarning) as caught:
        assert_no_findings(runs["few"], allow_unknown=True)
    assert caught[0].filename == __file__
    with pytest.raises(AssertionError):
        assert_norm_growth(runs["drift"], step=5, allow_unknown=True)


def interval(low: float | None, high: float | None) -> Figure:
    ends = [end for end in (low, high) if end is not None]
    return Figure(Interval(float(np.mean(ends)) if ends else 1.0, low, high), step=3)


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("at most", 1.0, 1.4, "passed"),
        ("at most", 1.4, 1.5, "passed"),
        ("at most", 1.49, 1.51, "unknown"),
        ("at most", 1.5, 1.6, "unknown"),
        ("at most", 1.51, 1.6, "failed"),
        ("at most", None, None, "unknown"),
        ("at least", 1.51, 1.6, "passed"),
        ("at least", 1.5, 1.6, "passed"),
        ("at least", 1.4, 1.5, "unknown"),
        ("at least", 1.3, 1.49, "failed"),
    ],
)
def test_the_interval_decides(kind: Any, low: float | None, high: float | None, expected: str) -> None:
    assert Bound("growth", 1.5, (interval(low, high),), kind).verdict == expected


def test_one_failing_figure_outweighs_open_and_passing_ones() -> None:
    figures = (interval(1.0, 1.1), interval(1.4, 1.6), interval(1.6, 1.7))
    assert Bound("growth", 1.5, figures).verdict == "failed"
    assert Bound("growth", 1.5, figures[:2]).verdict == "unknown"
    assert Bound("growth", 1.5, ()).verdict == "unknown"


def test_limits_of_attention_are_judged_one_by_one(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"max_displacement": 0.9, "max_sink_loss": 0.9, "max_self_excess": 0.9}
    assert assert_no_attention_drift(runs["drift"], **wide).verdict == "passed"
    for name, words in (
        ("max_displacement", "displacement"),
        ("max_sink_loss", "sink's loss"),
        ("max_self_excess", "own tokens"),
    ):
        with pytest.raises(AssertionError) as caught:
            assert_no_attention_drift(runs["drift"], **{**wide, name: 0.05})
        first = str(caught.value).splitlines()[0]
        assert words in first
        outcome = assert_no_attention_drift(runs["drift"], **{**wide, name: np.inf})
        assert len(outcome.bounds) == 2
    with pytest.raises(RunError, match="no limit is finite"):
        assert_no_attention_drift(runs["drift"], **dict.fromkeys(wide, np.inf))


def test_limits_of_attention_default_to_the_thresholds_in_force(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "[tool.driftscope.thresholds]\ndisplacement = 0.9\nself_excess = 0.9\nsink_loss = 0.9\n"
    (tmp_path / "pyproject.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    assert assert_no_attention_drift(runs["drift"]).verdict == "passed"


def test_a_target_without_a_sink_has_none_to_lose(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", NO_DRIFT.changed(depth=3))
    run.update(target={**run.info.target.model_dump(), "sinks": []})
    assert [bound.label for bound in assert_no_attention_drift(run).bounds] == [
        "displacement",
        "attention on the drafter's own tokens beyond no drafting is",
    ]


def test_acceptance_marks_the_first_step_below_the_rate_that_it_takes(runs: dict[str, Run]) -> None:
    summary = runs["calm"].summary()
    served = summary["acceptance_length"]["served"]
    assert_acceptance(runs["calm"], served["low"])
    with pytest.raises(AssertionError, match="too few prompts to tell: served length"):
        assert_acceptance(runs["calm"], served["mean"])
    with pytest.raises(AssertionError, match=r"expected at least 3\.00 tokens") as caught:
        assert_acceptance(runs["calm"], 3.0)
    # a + a^2 + .. + a^5 = 3 at a = 0.845, which step 1 does not reach.
    assert "> step 1: the first below 0.8" in str(caught.value)
    with pytest.raises(AssertionError, match="anchor mean"):
        assert_acceptance(runs["calm"], min_anchor_mean=4.0)
    with pytest.raises(RunError, match="min_served or min_anchor_mean"):
        assert_acceptance(runs["calm"])
    shallow = assert_acceptance(runs["calm"], 0.1, depth=1)
    assert shallow.bounds[0].figures[0].interval.mean < served["mean"]  # type: ignore[union-attr]


def test_findings_that_are_known_may_be_ignored(runs: dict[str, Run]) -> None:
    known = ["ds101", "DS102", "DS105", "DS108"]
    assert assert_no_findings(runs["drift"], ignore=known).verdict == "passed"
    with pytest.raises(AssertionError, match=r"^DS101 Norm growth"):
        assert_no_findings(runs["drift"], ignore=known[1:])
    with pytest.raises(UnknownCodeError, match="DS999"):
        assert_no_findings(runs["drift"], ignore=["DS999"])


def test_notes_on_the_data_are_judged_if_asked(runs: dict[str, Run]) -> None:
    with pytest.raises(AssertionError, match="DS3"):
        assert_no_findings(runs["calm"], ignore=["DS105", "DS108"], notes=True)


def test_findings_that_an_audit_left_in_the_run_count(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", NO_DRIFT.changed(depth=3))
    stored = {"code": "DS201", "title": "Carry read otherwise", "statement": "Another carry accepts more."}
    run.update(findings=[stored])
    with pytest.raises(AssertionError, match="DS201 Carry read otherwise: Another carry accepts more"):
        assert_no_findings(run, ignore=["DS105", "DS108"])


def test_not_worse_than_itself_and_worse_than_a_calm_one(runs: dict[str, Run]) -> None:
    for run in runs.values():
        if run is not runs["few"]:
            assert assert_not_worse(run, run.folder).verdict == "passed"
    assert assert_not_worse(runs["calm"], runs["drift"]).verdict == "passed"
    with pytest.raises(AssertionError) as caught:
        assert_not_worse(runs["drift"], runs["calm"])
    message = str(caught.value)
    assert "norm growth at step 5 against calm: 2.07x" in message
    assert "displacement at step 5 against calm" in message
    assert "state noise" not in message
    assert "> step 2: the first beyond the margin against calm" in message
    assert message.endswith("driftscope explain DS101; driftscope explain DS102")
    assert assert_not_worse(runs["drift"], runs["calm"], margins={"growth": 3.0}).verdict == "passed"


def test_fewer_accepted_tokens_are_worse(tmp_path: Path, runs: dict[str, Run]) -> None:
    worse = write_fake_run(tmp_path / "worse", NO_DRIFT.changed(depth=5, acceptance=0.4))
    with pytest.raises(AssertionError, match=r"served length .* change -0\.\d\d .*expected at least -0\.05"):
        assert_not_worse(worse, runs["calm"], margins={"served": 0.05})
    assert assert_not_worse(runs["calm"], worse, margins={"served": 0.05}).verdict == "passed"


def test_runs_of_other_texts_are_not_compared(tmp_path: Path, runs: dict[str, Run]) -> None:
    other = write_fake_run(tmp_path / "other", NO_DRIFT.changed(depth=5, prompts=13))
    with pytest.raises(CompareError):
        assert_not_worse(other, runs["calm"])
    with pytest.raises(RunError, match="no quantity nonsense"):
        assert_not_worse(runs["calm"], runs["calm"], margins={"nonsense": 1.0})


def test_what_the_run_does_not_hold_is_no_failure_of_the_drafter(runs: dict[str, Run]) -> None:
    with pytest.raises(RunError, match="holds 5 steps, 8 asked"):
        assert_norm_growth(runs["calm"])
    with pytest.raises(RunError, match=r"noise of 0\.5 at state, not 0\.7"):
        assert_noise_robust(runs["calm"], alpha=0.7)
    with pytest.raises(RunError, match="noise at state, not at embed"):
        assert_noise_robust(runs["calm"], site="embed")
    with pytest.raises(RunError, match="holds no noise"):
        assert_noise_robust(runs["few"])


def test_they_need_neither_pytest_nor_torch() -> None:
    code = "import sys, driftscope.asserts; print(sorted({'torch', 'pytest', '_pytest'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
