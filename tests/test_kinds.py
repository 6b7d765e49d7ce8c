"""The plugin of this suite: what is left out, what fails under CI, the last line, and the record."""

from __future__ import annotations

import json

import pytest

from tests import cpus, kinds

SUITE = """
import pytest

@pytest.mark.nightly
def test_long(): pass

@pytest.mark.nightly
def test_long_and_red(): assert False

@pytest.mark.browser
def test_drawn(): pytest.skip("no Chromium on PATH: apt-get install chromium")

def test_no_case(): pytest.skip("no case: nothing to break")

@pytest.mark.cuda
def test_device(): assert False
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers =\n    nightly\n    browser\n    cuda\n")
    pytester.makepyfile(SUITE)
    monkeypatch.setattr(kinds.torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CI", raising=False)
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", "tests.kinds", *arguments)


def test_nightly_tests_are_left_out_and_the_last_line_says_what_is_wanting(suite: pytest.Pytester) -> None:
    found = run(suite)
    found.assert_outcomes(skipped=3, deselected=2)
    last = [line for line in found.outlines if line][-1]
    assert last == "Not run: 1 for want of Chromium: apt-get install chromium; 1 for want of a CUDA device."


def test_a_browser_test_that_is_skipped_fails_under_ci(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    found = run(suite)
    found.assert_outcomes(failed=1, skipped=2, deselected=2)
    found.stdout.fnmatch_lines(["*skipped, and CI is set: no Chromium on PATH*"])


def test_nightly_tests_run_when_asked_for_and_are_recorded(suite: pytest.Pytester) -> None:
    found = run(suite, "-m", "nightly", "--record", "out.json")
    found.assert_outcomes(passed=1, failed=1, deselected=3)
    written = json.loads((suite.path / "out.json").read_text())
    assert {name.partition("::")[2]: seen["outcome"] for name, seen in written["tests"].items()} == {
        "test_long": "passed",
        "test_long_and_red": "failed",
    }
    assert {"date", "commit", "machine", "versions", "seeds"} < written.keys()


def test_each_capability_is_chosen_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for seen, amx, wanted in (
        ("DEFAULT", False, ["default"]),
        ("AVX2", False, ["default", "avx2"]),
        ("AVX512", False, ["default", "avx2", "avx512"]),
        ("AVX512", True, ["default", "avx2", "avx512, AMX off", "avx512, AMX on"]),
    ):
        monkeypatch.setattr(cpus.torch.backends.cpu, "get_cpu_capability", lambda seen=seen: seen)
        monkeypatch.setattr(cpus.torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        found = cpus.capabilities()
        assert list(found) == wanted
        assert all(chosen.keys() <= cpus.CHOSEN for chosen in found.values())
