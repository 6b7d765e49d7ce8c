"""The plugin as a user's test suite meets it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# Imported here, it is not imported anew by every session inside a test.
import driftscope.api  # noqa: F401
from driftscope.api import probe_pair
from driftscope.asserts import run_fixture as kept_runs
from driftscope.asserts.run_fixture import Measurement, RunStore, digest
from tests.tiny_pair import TinyPair, save_pair

USES_RUN = "def test_run(drift_run):\n    assert drift_run.summary()['steps'][2]['step'] == 3\n"
LOOK = """
    import sys
    def pytest_sessionfinish(session):
        print('\\ntorch loaded:', 'torch' in sys.modules)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Read only."""
    return save_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are measured in this process."""
    real, seen = RunStore._measure, []

    def counting(store: RunStore, wanted: Measurement, partial: Path, folder: Path) -> None:
        seen.append(folder.name)
        real(store, wanted, partial, folder)

    monkeypatch.setattr(RunStore, "_measure", counting)
    return seen


def session(pytester: pytest.Pytester, *flags: str) -> pytest.RunResult:
    """pytest in this process with no plugin but this one, which saves importing the others anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_inprocess("-p", "driftscope", "-p", "no:unraisableexception", *flags)


def ini(pair: TinyPair, **changes: object) -> str:
    settings = {
        "checkpoint": pair.checkpoint,
        "target": pair.target,
        "prompts": pair.prompts,
        "cache": pair.cache,
        "max_new_tokens": 24,
        "depth": 3,
        "horizon": 4,
        "probes": "norms,attention,acceptance",
        **changes,
    }
    return "[pytest]\n" + "".join(f"driftscope_{name} = {value}\n" for name, value in settings.items() if value)


def test_a_run_is_measured_once_and_kept_for_the_next_session(
    pytester: pytest.Pytester, pair: TinyPair, measured: list[str]
) -> None:
    pytester.makeini(ini(pair))
    pytester.makepyfile(f"{USES_RUN}\ndef test_again(drift_run):\n    pass\n")
    result = session(pytester, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"driftscope: {pair.checkpoint}"])
    assert len(measured) == 1
    session(pytester).assert_outcomes(passed=2)
    assert len(measured) == 1
    session(pytester, "--cache-clear", "--driftscope-depth", "4").assert_outcomes(passed=2)
    assert len(measured) == 2
    session(pytester).assert_outcomes(passed=2)
    assert len(measured) == 3


def test_a_failing_assertion_prints_the_table_and_points_at_the_test(pytester: pytest.Pytester, pair: TinyPair) -> None:
    pytester.makeini(ini(pair))
    pytester.makepyfile("""
        from driftscope.asserts import assert_acceptance

        def test_run(drift_run):
            assert_acceptance(drift_run, min_served=2.5, allow_unknown=False)
    """)
    result = session(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*assert_acceptance(drift_run, min_served=2.5, allow_unknown=False)",
            "E*too few prompts to tell: served length is * expected at least 2.50 tokens (3 prompts, intervals need 12)",
            "E*step*growth*",
            "E*>     1 *",
            "E*what it means and what to try: driftscope explain DS*",
            "test_*:4: AssertionError",
        ],
    )
    assert "outcome.py" not in result.stdout.str()


def test_markers_name_drafters_and_the_closest_wins(
    pytester: pytest.Pytester, pair: TinyPair, measured: list[str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        shutil.copytree(pair.checkpoint, pytester.path / name)
    pytester.makeini(ini(pair, checkpoint=None))
    pytester.makepyfile("""
        import pytest
        from pathlib import Path

        pytestmark = pytest.mark.drafter(checkpoint="one")

        def test_module(drift_run):
            assert Path(drift_run.info.checkpoint.path).name == "one"

        @pytest.mark.drafter("one", depth=2)
        @pytest.mark.drafter("two", depth=2)
        def test_both(drift_run):
            assert drift_run.info.settings["depth"] == 2

        class TestClass:
            pytestmark = pytest.mark.drafter("two", overrides={"carry": "post"})

            def test_class(self, drift_run, drafter_pair):
                assert drift_run.info.checkpoint.switches["carry"] == "post"
                assert drafter_pair.config.carry == "post"
    """)
    result = session(pytester, "-v", "--strict-markers")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines_random(["*test_module?one?*", "*test_both?one?*", "*test_both?two?*"])
    # The two copies are the same drafter.
    assert len(measured) == 3


def test_the_factory_measures_what_it_is_asked(pytester: pytest.Pytester, pair: TinyPair, measured: list[str]) -> None:
    pytester.makeini(ini(pair))
    pytester.makepyfile("""
        import pytest

        def test_factory(drift_run, drift_run_factory):
            assert drift_run_factory() is drift_run
            assert drift_run_factory(depth=2).info.settings["depth"] == 2
            with pytest.raises(pytest.UsageError, match="drift_run_factory has no dept; it takes checkpoint"):
                drift_run_factory(dept=2)
    """)
    session(pytester).assert_outcomes(passed=1)
    assert len(measured) == 2


def test_what_a_user_gets_wrong_is_told_in_a_line(pytester: pytest.Pytester, pair: TinyPair, tmp_path: Path) -> None:
    pytester.makepyfile(USES_RUN)
    result = session(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["no drafter is named: give --driftscope-checkpoint, *"])
    for flags, line in (
        (["--driftscope-checkpoint", "/nowhere"], "driftscope: /nowhere: no such file or folder"),
        (
            ["--driftscope-checkpoint", str(pair.checkpoint), "--driftscope-target", "/nowhere"],
            "driftscope: target /nowhere: no such folder",
        ),
    ):
        result = session(pytester, *flags)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([line])
    pytester.makepyfile("import pytest\n\n@pytest.mark.drafter(chekpoint='x')\ndef test_run(drift_run): pass\n")
    result = session(pytester)
    result.stdout.fnmatch_lines(["*@pytest.mark.drafter has no chekpoint; it takes checkpoint, *"])


def test_loading_and_collecting_import_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOOK)
    pytester.makepyfile(f"{USES_RUN}\ndef test_pair(drafter_pair):\n    pass\n")
    result = pytester.runpytest_subprocess("--collect-only", "-q", "--driftscope-checkpoint", "nowhere")
    result.stdout.fnmatch_lines(["*::test_run", "*::test_pair", "torch loaded: False"])
    assert result.ret == 0


def test_a_kept_run_is_judged_without_torch(pytester: pytest.Pytester, pair: TinyPair) -> None:
    pytester.makeini(ini(pair))
    pytester.makeconftest(LOOK)
    pytester.makepyfile(USES_RUN)
    session(pytester).assert_outcomes(passed=1)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["torch loaded: False"])


def test_without_the_plugin_and_without_pytests_cache(pytester: pytest.Pytester, pair: TinyPair) -> None:
    pytester.makepyfile("def test_plain(): pass\n")
    pytester.runpytest_inprocess("-p", "no:driftscope", "-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.makeini(ini(pair))
    pytester.makepyfile(USES_RUN)
    session(pytester, "-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert not (pytester.path / ".pytest_cache").exists()


@pytest.mark.slow
def test_workers_of_xdist_share_one_measurement(pytester: pytest.Pytester, pair: TinyPair) -> None:
    pytest.importorskip("xdist")
    pytester.makeini(ini(pair))
    pytester.makepyfile(f"{USES_RUN}\ndef test_other(drift_run):\n    pass\n")
    runs = pytester.path / "runs"
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "each", "--driftscope-runs", str(runs))
    result.assert_outcomes(passed=4)
    assert sorted(path.suffix for path in runs.iterdir()) in (["", ".lock"], [""])


def test_the_file_to_copy_collects_and_runs(pytester: pytest.Pytester, pair: TinyPair) -> None:
    source = Path(__file__).resolve().parents[1] / "examples" / "test_my_drafter.py"
    shutil.copy(source, pytester.path / source.name)
    pytester.makeini(ini(pair, depth=8, horizon=8, probes="norms,attention,acceptance,noise"))
    result = session(pytester, "-q")
    outcomes = result.parseoutcomes()
    # Three prompts are too few to tell anything; no test stops at an error.
    assert outcomes["skipped"] == 2
    assert outcomes.get("errors", 0) == 0
    assert outcomes["failed"] == 5
    result.stdout.fnmatch_lines(["E*too few prompts to tell: norm growth*"])
    assert "RunError" not in result.stdout.str()


def test_the_key_is_of_content(pair: TinyPair, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(pair.checkpoint, tmp_path / "moved"))
    settings = {
        "checkpoint": str(pair.checkpoint),
        "target": str(pair.target),
        "prompts": str(pair.prompts),
        "depth": 3,
    }
    key = Measurement(settings).key()
    assert Measurement({**settings, "checkpoint": moved}).key() == key
    assert Measurement({**settings, "depth": 4}).key() != key
    other = tmp_path / "prompts.jsonl"
    shutil.copy(pair.prompts, other)
    assert Measurement({**settings, "prompts": other}).key() == key
    other.write_text(pair.prompts.read_text() + '{"text": "w1 w2 w3"}\n')
    assert Measurement({**settings, "prompts": other}).key() != key
    assert Measurement({name: value for name, value in settings.items() if name != "prompts"}).key() != key
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert Measurement({**settings, "checkpoint": moved}).key() != key


def test_a_digest_of_large_weights_samples_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_runs, "_SAMPLE", 4)
    monkeypatch.setattr(kept_runs, "_SAMPLES", 8)
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(range(200)))
    (tmp_path / "config.json").write_text("{}")
    sampled, whole = digest(tmp_path, whole=False), digest(tmp_path, whole=True)
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    assert digest(tmp_path, whole=False) == sampled
    assert digest(tmp_path, whole=True) != whole
    content[25] ^= 1
    file.write_bytes(content)
    assert digest(tmp_path, whole=False) != sampled
    (tmp_path / "config.json").write_text("{ }")
    assert digest(tmp_path, whole=False) != digest(file, whole=False)


def test_what_a_killed_session_left_is_gone_on_with(pair: TinyPair, tmp_path: Path) -> None:
    options = {**pair.options, "checkpoint": str(pair.checkpoint), "probes": "norms"}
    cache = str(options.pop("cache_dir"))
    store, wanted = RunStore(tmp_path, probe_pair), Measurement(options, cache)
    run = store.run(wanted)
    folder = run.folder
    partial = folder.with_name(f"{folder.name}.partial")
    os.replace(folder, partial)
    kept, gone = sorted((partial / "shards" / "clean").iterdir())[:2]
    stamp = kept.stat().st_mtime_ns
    shutil.rmtree(gone)
    again = RunStore(tmp_path, probe_pair).run(wanted)
    assert again.folder == folder
    assert (folder / "shards" / "clean" / kept.name).stat().st_mtime_ns == stamp
    assert (folder / "shards" / "clean" / gone.name).is_dir()
    assert not partial.exists()
