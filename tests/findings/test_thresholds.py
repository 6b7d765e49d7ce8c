"""Where thresholds come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftscope.findings.registry import thresholds
from driftscope.findings.thresholds import DEFAULTS, ThresholdError, load
from driftscope.stats import PRACTICAL_LOG_RMS, PRACTICAL_MASS
from tests.drafters import HEALTHY, write_drafter

TABLE = "[tool.driftscope.thresholds]\n"


def test_every_threshold_has_a_reason_and_a_default_in_its_range() -> None:
    for threshold in thresholds().values():
        assert threshold.above < threshold.default < threshold.below
        assert threshold.meaning
        assert threshold.reason.endswith(".")


def test_onsets_and_findings_share_their_sizes() -> None:
    import math

    assert math.log(DEFAULTS["norm_growth"]) == pytest.approx(PRACTICAL_LOG_RMS)
    assert {DEFAULTS[name] for name in ("displacement", "self_excess", "sink_loss")} == {PRACTICAL_MASS}


def test_the_nearest_pyproject_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{TABLE}norm_growth = 1.5\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load(folder=below)["norm_growth"] == 1.5
    assert load(folder=below)["displacement"] == DEFAULTS["displacement"]
    assert "pyproject.toml" in load(folder=below).origin
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert load(folder=below)["norm_growth"] == 1.1


@pytest.mark.parametrize("head", ["", TABLE])
def test_a_file_of_its_own(tmp_path: Path, head: str) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(f"{head}loop_share = 0.5\n")
    limits = load(file, folder=tmp_path)
    assert limits["loop_share"] == 0.5
    assert limits.changed("loop_share")
    assert not limits.changed("norm_growth")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("norm_growht = 2", "no threshold norm_growht; did you mean norm_growth?"),
        ("qqq = 2", "no threshold qqq; there are norm_growth"),
        ("norm_growth = 1.0", "norm_growth = 1.0; expected a number above 1"),
        ("displacement = 1", "expected a number above 0 and below 1"),
        ("displacement = '5%'", "displacement = '5%'; expected a number"),
        ("displacement = true", "displacement = True; expected a number"),
        ("displacement", "is not TOML"),
        ("[tool]\ndriftscope = 3", "[tool.driftscope.thresholds] is not a table"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(text)
    with pytest.raises(ThresholdError) as error:
        load(file)
    assert words in str(error.value)
    assert "limits.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ThresholdError, match=r"cannot read .*none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_assess_takes_a_file(tmp_path: Path) -> None:
    from driftscope.findings import assess

    file = tmp_path / "limits.toml"
    file.write_text("norm_growth = 2.0")
    run = write_drafter(tmp_path / "a", HEALTHY.changed(growth=1.05))
    assert "DS101" in assess(run, file, resamples=200).clear
    file.write_text("norm_growth = 1.3")
    (finding,) = assess(run, file, resamples=200).findings
    assert finding.step == 7
    assert finding.evidence[0].threshold == 1.3
