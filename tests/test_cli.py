from __future__ import annotations

import json
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from driftscope.cli import app
from driftscope.commands import options
from driftscope.commands.guard import print_json
from driftscope.errors import CheckpointError, DriftscopeError
from driftscope.measuring.request import ProbeRequest
from driftscope.probes import DEFAULT
from driftscope.runs.run import Run
from tests.fake_run import Fake, write_fake_run

RUNNER = CliRunner()
SMALL = Fake(prompts=2, anchors=8, depth=4, heads=2)
ENOUGH = SMALL.changed(prompts=13)
"""Prompts for intervals, and with them onsets."""


class FakeApi:
    """Stands for driftscope.api: records what it is asked, and does what a test wants."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.progress: Any = None
        self.fake = SMALL
        self.act: Callable[..., Run] = self.measure

    def measure_request(self, request: ProbeRequest, progress: Any) -> Run:
        parts = {name: getattr(request, name) for name in ("texts", "chains", "places")}
        self.asked = {each.name: getattr(request, each.name) for each in fields(request) if each.name not in parts}
        for part in parts.values():
            self.asked |= {each.name: getattr(part, each.name) for each in fields(part)}
        self.asked["probes"] = [probe.name for probe in request.probes]
        self.progress = progress
        return self.act(out=request.out, progress=progress)

    def measure(self, out: Path, progress: Any, **_: Any) -> Run:
        print("a library talks on stdout")
        progress.stage("probing", 1)
        progress.advance(1, "chat-01")
        return write_fake_run(out, self.fake)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApi:
    fake = FakeApi()
    module = types.ModuleType("driftscope.api")
    module.measure_request = fake.measure_request  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "driftscope.api", module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRIFTSCOPE_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    return fake


def run(*arguments: str, **how: Any) -> Any:
    return RUNNER.invoke(app, list(arguments), **how)


def test_a_probe_prints_the_report_and_where_the_run_is(api: FakeApi) -> None:
    api.fake = ENOUGH
    result = run("probe", "drafters/eagle3.1", "--depth", "4")
    assert result.exit_code == 1
    assert "Drift starts at step 2" in result.stdout.splitlines()[1]
    assert "driftscope show runs/eagle3.1" in result.stdout.splitlines()[-1]
    assert "library talks" not in result.stdout
    assert "library talks" in result.stderr
    assert "probing: 1/1" in result.stderr


def test_json_is_all_that_stdout_gets(api: FakeApi) -> None:
    api.fake = ENOUGH
    result = run("probe", "drafters/eagle3", "--json", "-o", "runs/a", "--depth", "4")
    assert result.exit_code == 1
    printed = json.loads(result.stdout)
    measured = Run.open("runs/a")
    assert printed.items() >= json.loads(json.dumps(measured.summary(4))).items()
    assert len(printed["steps"]) == 4
    assert printed["findings"] == measured.info.findings
    assert {"DS101", "DS102"} <= {finding["code"] for finding in printed["findings"]}
    assert printed["verdict"]["headline"].startswith("Drift starts at step 2")
    assert printed["exit_code"] == 1


@pytest.mark.parametrize(
    ("fake", "code"),
    [
        (ENOUGH, 1),
        (ENOUGH.changed(growth=1.0, sink_shift=0.0, self_shift=0.0), 0),
        (SMALL, 2),
    ],
    ids=["drift", "healthy", "too few prompts"],
)
def test_the_exit_code_is_the_answer(api: FakeApi, fake: Fake, code: int) -> None:
    api.fake = fake
    result = run("probe", "x", "--depth", "4", "-o", "runs/a")
    assert result.exit_code == code
    last = result.stderr.splitlines()[-1]
    assert last.startswith("no verdict: too little could be measured") == (code == 2)
    assert "Traceback" not in result.stderr


def test_thresholds_are_read_before_anything_is_loaded(api: FakeApi) -> None:
    Path("limits.toml").write_text("norm_growht = 2.0\n")
    result = run("probe", "x", "--thresholds", "limits.toml")
    assert result.exit_code == 2
    assert "no threshold norm_growht; did you mean norm_growth?" in result.stderr
    assert api.asked == {}


def test_what_is_not_finite_never_reaches_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"steps": [{"growth": {"mean": float("nan"), "low": -float("inf"), "high": 1.0}}], "é": (1, 2)})
    expected = {"steps": [{"growth": {"mean": None, "low": None, "high": 1.0}}], "é": [1, 2]}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == expected


def test_options_reach_the_library(api: FakeApi) -> None:
    arguments = (
        "probe d --target t --prompts p.jsonl --max-new-tokens 64 --depth 4 --horizon 12 --anchors 32 --device cpu"
        " --dtype float32 --sink 0,1 --probes acceptance,norms,cost -o runs/b --aux 2,15,27 --carry post --rope-theta 5e5"
        " --set residual=normed --set fc_norm=false --revision main --trust-remote-code --cache-dir c --seed 3"
        " --until 0.05"
    )
    run(*arguments.split())
    assert callable(api.progress.stage)
    assert api.asked == {
        "checkpoint": "d",
        "target": "t",
        "prompts": Path("p.jsonl"),
        "out": Path("runs/b"),
        "max_new_tokens": 64,
        "depth": 4,
        "horizon": 12,
        "anchors": 32,
        "device": "cpu",
        "dtype": "float32",
        "sink": (0, 1),
        "probes": ["norms", "acceptance", "cost"],
        "resume": False,
        "overrides": {
            "aux_boundaries": (2, 15, 27),
            "carry": "post",
            "rope.theta": 5e5,
            "residual": "normed",
            "fc_norm": False,
        },
        "revision": "main",
        "trust_remote_code": True,
        "cache_dir": Path("c"),
        "seed": 3,
        "audit": True,
        "until": 0.05,
        "shards": "local",
        "chat_template": None,
        "capture": None,
        "device_map": None,
        "drafter_device": None,
        "deterministic": False,
    }


def test_defaults_leave_the_choice_to_the_library(api: FakeApi) -> None:
    run("probe", "d", "--depth", "4")
    assert api.asked["probes"] == list(DEFAULT)
    assert api.asked["sink"] == "auto"
    assert api.asked["overrides"] == {}
    assert api.asked["target"] is api.asked["anchors"] is api.asked["cache_dir"] is None


def test_a_run_gets_a_new_folder_unless_one_is_named(api: FakeApi) -> None:
    for name in ("eagle3", "eagle3-2", "eagle3-3"):
        run("probe", "drafters/eagle3/model.pt", "--depth", "4")
        assert api.asked["out"] == Path("runs") / name


def test_an_existing_run_is_not_touched_without_resume(api: FakeApi) -> None:
    write_fake_run(Path("runs/a"), SMALL)
    before = {path: path.stat().st_mtime_ns for path in Path("runs/a").rglob("*")}
    result = run("probe", "x", "-o", "runs/a")
    assert result.exit_code == 2
    assert api.asked == {}
    assert "runs/a exists: use --resume" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in Path("runs/a").rglob("*")} == before


def test_resume_goes_on_with_a_named_run(api: FakeApi) -> None:
    write_fake_run(Path("runs/a"), SMALL)
    api.act = lambda out, **_: Run.open(out)
    run("probe", "x", "-o", "runs/a", "--resume", "--depth", "4")
    assert api.asked["resume"] is True
    result = run("probe", "d/eagle3", "--resume")
    assert result.exit_code == 2
    assert "-o runs/eagle3" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sink", "first"], "--sink first is not known: give auto, none or positions such as 0,1"),
        (["--aux", "2,x"], "--aux 2,x is not known: give boundaries such as 2,15,27"),
        (["--set", "carry"], "--set carry is not NAME=VALUE"),
        (["--probes", "norms,dreams"], "no probe dreams; choose from norms, attention, acceptance"),
    ],
)
def test_a_wrong_value_is_one_line_before_anything_is_loaded(api: FakeApi, arguments: list[str], words: str) -> None:
    result = run("probe", "x", *arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {words}")
    assert result.stdout == ""
    assert api.asked == {}


@pytest.mark.parametrize("arguments", [["probe"], ["probe", "x", "--carry", "both"], ["probe", "x", "--depth", "0"]])
def test_wrong_usage_is_exit_2(api: FakeApi, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert api.asked == {}


def failing(error: BaseException) -> Callable[..., Run]:
    def act(out: Path, **_: Any) -> Run:
        write_fake_run(out, Fake(prompts=1, anchors=4, depth=2))
        raise error

    return act


def test_an_error_of_the_user_is_one_line(api: FakeApi) -> None:
    api.act = failing(CheckpointError("x.pt: fc.weight is missing:\n this layout needs it"))
    result = run("probe", "x.pt", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == "error: x.pt: fc.weight is missing: this layout needs it"
    assert "Traceback" not in result.stderr


def test_an_internal_error_is_one_line_and_a_file(api: FakeApi) -> None:
    api.act = failing(ZeroDivisionError("by zero\nsecond line"))
    result = run("probe", "x", "-o", "runs/a")
    assert result.exit_code == 2
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: internal error: ZeroDivisionError: by zero; the traceback is in runs/a/")
    assert "Traceback" not in result.stderr
    (saved,) = Path("runs/a").glob("driftscope-error-*.txt")
    assert str(saved) in line
    assert "second line" in saved.read_text()
    assert "Traceback" in saved.read_text()


@pytest.mark.parametrize(
    ("before", "after", "env"),
    [(["--debug"], [], {}), ([], ["--debug"], {}), ([], [], {"DRIFTSCOPE_DEBUG": "1"})],
)
@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), DriftscopeError("bad file")])
def test_debug_shows_the_traceback(
    api: FakeApi, before: list[str], after: list[str], env: dict[str, str], error: Exception
) -> None:
    api.act = failing(error)
    result = run(*before, "probe", "x", "-o", "runs/a", *after, env=env)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert str(error) in result.stderr.splitlines()[-1]
    assert not list(Path("runs/a").glob("driftscope-error-*"))


def test_ctrl_c_says_how_to_go_on(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.act = failing(KeyboardInterrupt())
    arguments = ["probe", "my drafter", "--depth", "4"]
    monkeypatch.setattr(sys, "argv", ["driftscope", *arguments])
    result = run(*arguments)
    assert result.exit_code == 130
    line = result.stderr.splitlines()[-1]
    assert line.startswith("interrupted: what was measured is kept; go on with: ")
    assert line.endswith("driftscope probe 'my drafter' --depth 4 -o 'runs/my drafter' --resume")


def test_going_on_is_not_said_behind_the_end_of_the_options(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.act = failing(KeyboardInterrupt())
    arguments = ["probe", "--depth", "4", "--", "-odd"]
    monkeypatch.setattr(sys, "argv", ["driftscope", *arguments])
    line = run(*arguments).stderr.splitlines()[-1]
    assert line.endswith("driftscope probe --depth 4 -o runs/-odd --resume -- -odd")


def test_ctrl_c_before_there_is_a_run(api: FakeApi) -> None:
    def act(**_: Any) -> Run:
        raise KeyboardInterrupt

    api.act = act
    result = run("probe", "x", "-o", "runs/a")
    assert result.exit_code == 130
    assert "before the run was created" in result.stderr
    assert "--resume" not in result.stderr


def test_warnings_become_lines(api: FakeApi) -> None:
    def act(out: Path, **_: Any) -> Run:
        warnings.warn("a file of the cache\nis damaged", stacklevel=2)
        warnings.warn("old call", FutureWarning, stacklevel=2)
        return write_fake_run(out, SMALL)

    api.act = act
    result = run("probe", "x", "--depth", "4")
    assert "warning: a file of the cache is damaged" in result.stderr.splitlines()
    assert "old call" not in result.stderr


def test_show_prints_a_run_again(api: FakeApi) -> None:
    write_fake_run(Path("runs/a"), ENOUGH)
    result = run("show", "runs/a", "--depth", "3")
    assert result.exit_code == 0
    assert "Drift starts at step 2" in result.stdout
    assert "at 3 drafted tokens" in result.stdout
    assert "each step embeds the text" in run("show", "runs/a", "--feed", "text").stdout
    assert len(json.loads(run("show", "runs/a", "--json").stdout)["steps"]) == 4
    missing = run("show", "runs/none")
    assert missing.exit_code == 2
    assert "no run at runs/none" in missing.stderr


def test_probes_are_listed_with_their_questions(api: FakeApi) -> None:
    result = run("probes")
    assert result.exit_code == 0
    for word in ("norms", "attention", "acceptance", "?", "by default"):
        assert word in result.stdout


def test_the_cache_is_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from driftscope.captures.cache import CacheKey, CaptureCache

    monkeypatch.setenv("COLUMNS", "120")
    place = ["--cache-dir", str(tmp_path / "c")]
    assert "nothing in" in run("cache", "ls", *place).stdout
    cache = CaptureCache(tmp_path / "c")
    for name in ("org/a", "org/b"):
        key = CacheKey.of(name, "float32", [0], [1, 2], 8)
        cache.write(key, {"x": torch.zeros(4)}, {}, target={"name": name, "dtype": "float32"}, meta={})
    listed = run("cache", "ls", *place).stdout
    assert "org/a" in listed
    assert "org/b" in listed
    for arguments in ([], ["org/a", "--all"], ["org/c"]):
        result = run("cache", "rm", *arguments, *place)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
    assert "removed org/a (1 prompts" in run("cache", "rm", "org/a", *place).stdout
    assert [entry.target for entry in cache.entries()] == ["org/b"]
    assert run("cache", "rm", "--all", *place).exit_code == 0
    assert cache.entries() == []


@pytest.mark.parametrize("command", ["probe", "inspect"])
def test_help_has_examples(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = run(command, "--help").stdout
    assert "Examples" in text
    assert text.count(f"driftscope {command} drafters/eagle3") >= 2
    assert "[bold]" not in text


def test_torch_is_not_imported_before_it_is_needed(tmp_path: Path) -> None:
    commands = [
        "--help",
        "--version",
        "probe --help",
        "probes",
        "probe x --sink no",
        "probe x --probes no",
        "probe x --resume",
        "show no-such-run",
    ]
    code = f"""
import sys
from driftscope.cli import main
for command in {commands}:
    sys.argv = ["driftscope", *command.split()]
    try:
        main()
    except SystemExit:
        pass
    assert not {{"torch", "transformers"}} & set(sys.modules), command
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error: ") == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("No", False),
        ("none", None),
        ("3", 3),
        ("1e4", 1e4),
        ("normed", "normed"),
        ("2,15,27", (2, 15, 27)),
        ("[1, 2]", (1, 2)),
        ('{"rope_type": "linear", "factor": 2.0}', {"rope_type": "linear", "factor": 2.0}),
    ],
)
def test_values_of_switches(text: str, value: object) -> None:
    found = options.switch_value(text)
    assert found == value
    assert type(found) is type(value)
