"""Every Python block of the documentation and the notebooks runs; every command in it exists."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

from driftscope.cli import app
from driftscope.compare import compare
from tests.docs.blocks import as_module, commands, python_of
from tests.drafters import HEALTHY, noise_shards, write_drafter
from tests.fake_run import Fake
from tests.rich_run import add_probes, write_rich_run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*.ipynb"))]
WITH_PYTHON = [page for page in PAGES if python_of(page)]
SHORT = {"max_new_tokens": 24, "depth": 3, "horizon": 4, "count": 3, "anchors": 4, "resamples": 200}
"""Defaults of the functions that measure, so that a page need not say how to be quick."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def pair_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`path/to/...` and `mine.jsonl`, as the pages name them."""
    from tests import tiny_pair

    folder = tmp_path_factory.mktemp("pair")
    saved = tiny_pair.save_pair(folder / "saved")
    for place in ("path/to/drafter", "path/to/target", "path/or/name/of/the/target"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(saved.checkpoint if place.endswith("drafter") else saved.target)
    (folder / "mine.jsonl").symlink_to(saved.prompts)
    return folder


@pytest.fixture(scope="session")
def runs_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that the pages open."""
    folder = tmp_path_factory.mktemp("runs")
    for name, fc_norm, carry in (
        ("eagle3", False, "pre"),
        ("fc-norm", True, "pre"),
        ("post-norm", False, "post"),
        ("eagle3.1", True, "post"),
    ):
        write_drafter(folder / name, HEALTHY, shards=noise_shards(0.6), fc_norm=fc_norm, carry=carry)
    fake = Fake(prompts=12, anchors=8, heads=2)
    add_probes(write_rich_run(folder / "mine", fake), fake)
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], None]:
    """Makes the functions that measure quick, with `prompts` in place of the shipped ones."""

    def shorten(prompts: Path) -> None:
        import driftscope.api
        import driftscope.audit.run
        import driftscope.compare.comparing
        import driftscope.integrations.training

        monkeypatch.setenv("DRIFTSCOPE_CACHE", str(tmp_path / "cache"))
        for function in (
            driftscope.api.probe,
            driftscope.api.probe_pair,
            driftscope.api.capture_prompts,
            driftscope.audit.run.audit,
            driftscope.compare.comparing.compare,
            driftscope.integrations.training.training_capture,
        ):
            defaults: dict[str, Any] = function.__kwdefaults__  # type: ignore[attr-defined]
            for name, value in {**SHORT, "prompts": prompts}.items():
                if name in defaults:
                    monkeypatch.setitem(defaults, name, value)

    return shorten


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    short: Callable[[Path], None],
) -> None:
    code = as_module(python_of(page))
    work = tmp_path / "work"
    (work / "runs").mkdir(parents=True)
    if "path/" in code or ".jsonl" in code:
        files: Path = request.getfixturevalue("pair_on_disk")
        for place in ("path", "mine.jsonl"):
            (work / place).symlink_to(files / place)
    short(work / "mine.jsonl")
    if "runs/" in code:
        held: Path = request.getfixturevalue("runs_on_disk")
        for run in held.iterdir():
            (work / "runs" / run.name).symlink_to(run)
    monkeypatch.chdir(work)
    file = tmp_path / f"{page.stem}.py"
    file.write_text(code, encoding="utf-8")
    runpy.run_path(str(file), run_name=f"page_{page.stem.replace('.', '_')}")


def parsed(words: list[str]) -> Any:
    """The context of a `driftscope` command line; raises an error of usage."""
    command: Any = typer.main.get_command(app)
    # Where the version is asked, its callback would end the process.
    context = command.make_context("driftscope", words[1:], resilient_parsing="--version" in words)
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            break
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("page", [page for page in PAGES if page.suffix == ".md"], ids=name_of)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    from driftscope import pytest_plugin

    makefile = (ROOT / "Makefile").read_text()
    flags = {f"--driftscope-{name.replace('_', '-')}" for name in pytest_plugin._HELP}
    for line, words in commands(page.read_text(encoding="utf-8")):
        if words[0] == "driftscope":
            try:
                parsed(words)
            except Exception as error:
                pytest.fail(f"{name_of(page)}:{line}: {' '.join(words)}: {error}")
        if words[0] == "make":
            assert f"\n{words[1]}:" in makefile, f"{name_of(page)}:{line}: no target {words[1]}"
        if words[0] == "pytest":
            unknown = {word for word in words if word.startswith("--driftscope")} - flags
            assert not unknown, f"{name_of(page)}:{line}: no option {unknown}"


@pytest.mark.parametrize("words", ["prope x", "probe x --targt y", "cache lss", "audit x --count many"])
def test_a_command_that_does_not_exist_is_noticed(words: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|valid integer"):
        parsed(["driftscope", *words.split()])


def test_the_documented_exports_are_all() -> None:
    import driftscope

    page = (ROOT / "docs" / "api.md").read_text()
    for name in driftscope.__all__:
        if not name.startswith("__"):
            assert f"`driftscope.{name}`" in page


def test_no_export_has_the_name_of_a_module() -> None:
    import driftscope

    folder = Path(driftscope.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()} | {"app", "probes"}
    assert not modules & set(driftscope.__all__)
    for name in driftscope.__all__:
        assert not isinstance(getattr(driftscope, name), ModuleType)
    assert driftscope.compare_runs is compare
