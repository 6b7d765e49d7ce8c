"""The pytest plugin: fixtures that probe a drafter once and keep the run for later sessions.

`drift_run` is the run of the drafter that the options, the ini file or `@pytest.mark.drafter(...)` name;
`driftscope.asserts` has what to assert of it. torch is not imported before a run has to be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from driftscope.asserts.run_fixture import Measurement, RunStore
    from driftscope.chain.pair import Pair
    from driftscope.runs.run import Run

pytest.register_assert_rewrite("driftscope.asserts")

MARKER = "drafter"
_SUBJECT = "_driftscope_measurement"
_NUMBERS = ("depth", "horizon", "anchors", "max_new_tokens", "seed")
_HELP = {
    "checkpoint": "drafter: a folder, a weight file or a Hub id",
    "target": "target: a Hugging Face folder or name (default: what the drafter's config names)",
    "prompts": "prompts: JSONL, JSON or text (default: the 48 that are shipped)",
    "depth": "steps of a chain (default 8)",
    "horizon": "text that every anchor has ahead (default 16)",
    "anchors": "at most so many anchors of each prompt (default: all)",
    "max_new_tokens": "length of a continuation (default 128)",
    "seed": "of everything that is drawn (default 0)",
    "device": "auto, cpu, cuda, ... (default auto)",
    "dtype": "auto, float32, bfloat16 or float16 (default auto)",
    "sink": "auto, none or positions such as 0,1 (default auto)",
    "probes": "what to measure, with commas (default: the cheap ones)",
    "cache": "where captures of targets are kept (default: $DRIFTSCOPE_CACHE, else the user's cache folder)",
    "runs": "where runs are kept between sessions (default: pytest's cache folder)",
}
_PLACES = ("cache", "runs")
_SETTINGS = (*(name for name in _HELP if name not in _PLACES), "overrides", "revision")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("driftscope", "driftscope: what is measured")
    for name, text in _HELP.items():
        number = name in _NUMBERS
        kind: Literal["int", "string"] = "int" if number else "string"
        flag = f"--driftscope-{name.replace('_', '-')}"
        group.addoption(
            flag,
            dest=f"driftscope_{name}",
            metavar=name.upper().replace("_", "-"),
            default=None,
            help=text,
            type=int if number else str,
        )
        parser.addini(f"driftscope_{name}", f"{text}; as {flag}", type=kind, default=None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(checkpoint=..., target=..., ...): the drafter that drift_run and drafter_pair are of, with the "
        "settings of the --driftscope-* options as keywords; several markers run the test once for each",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    checkpoint = _setting(config, "checkpoint")
    return f"driftscope: {checkpoint}" if checkpoint else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if _SUBJECT not in metafunc.fixturenames:
        return
    marks = _closest_marks(metafunc.definition)
    if marks:
        given = [_keywords(mark) for mark in marks]
        names = [Path(str(part["checkpoint"])).name if "checkpoint" in part else MARKER for part in given]
        metafunc.parametrize(_SUBJECT, given, indirect=True, scope="session", ids=names)


@pytest.fixture(scope="session")
def drift_run_factory(pytestconfig: pytest.Config, _driftscope_runs: RunStore) -> Callable[..., Run]:
    """Function of `checkpoint` and any of the settings, by name, that returns the Run: measured, or kept from before.

    What is not given is taken from the options and the ini file.
    """

    def factory(checkpoint: str | Path | None = None, **settings: Any) -> Run:
        __tracebackhide__ = True
        given = _known(settings if checkpoint is None else {"checkpoint": checkpoint, **settings}, "drift_run_factory")
        return _told(lambda: _driftscope_runs.run(_measurement(pytestconfig, given)))

    return factory


@pytest.fixture(scope="session")
def drift_run(_driftscope_measurement: Measurement, _driftscope_runs: RunStore) -> Run:
    """The run of the configured drafter, or of the one that the test's marker names."""
    __tracebackhide__ = True
    return _told(lambda: _driftscope_runs.run(_driftscope_measurement))


@pytest.fixture(scope="session")
def drafter_pair(_driftscope_measurement: Measurement) -> Pair:
    """The drafter with its target, loaded: `driftscope.load_pair`."""
    __tracebackhide__ = True
    return _told(_driftscope_measurement.load)


@pytest.fixture(scope="session")
def _driftscope_measurement(request: pytest.FixtureRequest) -> Measurement:
    __tracebackhide__ = True
    return _told(lambda: _measurement(request.config, getattr(request, "param", {})))


@pytest.fixture(scope="session")
def _driftscope_runs(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    from driftscope.asserts.run_fixture import RunStore

    chosen = _setting(pytestconfig, "runs")
    if chosen is not None:
        return RunStore(Path(chosen), _probe_pair)
    cache = getattr(pytestconfig, "cache", None)
    # Without pytest's cache (-p no:cacheprovider) runs last as long as the session.
    root = Path(cache.mkdir("driftscope")) if cache is not None else tmp_path_factory.mktemp("driftscope")
    return RunStore(root, _probe_pair)


def _closest_marks(item: pytest.Item | Any) -> list[pytest.Mark]:
    """The markers of the function; without any those of its class, of its module, ..."""
    for node in reversed(item.listchain()):
        marks = [mark for mark in node.own_markers if mark.name == MARKER]
        if marks:
            return marks
    return []


def _keywords(mark: pytest.Mark) -> dict[str, Any]:
    if len(mark.args) > 1:
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes the checkpoint and keywords, got {mark.args}")
    given = dict(mark.kwargs)
    if mark.args:
        given["checkpoint"] = mark.args[0]
    return _known(given, f"@pytest.mark.{MARKER}")


def _known(given: dict[str, Any], where: str) -> dict[str, Any]:
    unknown = sorted(set(given) - set(_SETTINGS))
    if unknown:
        raise pytest.UsageError(f"{where} has no {unknown[0]}; it takes {', '.join(_SETTINGS)}")
    return given


def _probe_pair(*arguments: Any, **settings: Any) -> Run:
    # Imported here: a run that is kept takes no torch.
    from driftscope.api import probe_pair

    return probe_pair(*arguments, **settings)


def _measurement(config: pytest.Config, given: dict[str, Any]) -> Measurement:
    """What is to be measured: keywords first, then options, then the ini file."""
    from driftscope.asserts.run_fixture import Measurement

    settings = {name: _setting(config, name) for name in _HELP if name not in _PLACES}
    settings |= {name: _located(config, name, value) for name, value in given.items() if value is not None}
    settings = {name: value for name, value in settings.items() if value is not None}
    if "checkpoint" not in settings:
        pytest.fail(
            "no drafter is named: give --driftscope-checkpoint, driftscope_checkpoint in the ini file, or "
            f"@pytest.mark.{MARKER}(checkpoint=...)",
            pytrace=False,
        )
    return Measurement(settings, _setting(config, "cache"))


def _setting(config: pytest.Config, name: str) -> Any:
    value = config.getoption(f"driftscope_{name}")
    if value is not None:
        return value
    value = config.getini(f"driftscope_{name}")
    return _located(config, name, value) if value not in (None, "") else None


def _located(config: pytest.Config, name: str, value: Any) -> Any:
    """A relative path counts from the ini file, or from where pytest runs; what is neither is a Hub id."""
    if name not in (*_PLACES, "checkpoint", "target", "prompts"):
        return value
    path = Path(str(value)).expanduser()
    beside = (config.inipath.parent if config.inipath else config.rootpath) / path
    return str(beside) if beside.exists() or (name in _PLACES and not path.exists()) else str(value)


def _told(action: Callable[[], Any]) -> Any:
    """What `action` returns; a DriftscopeError becomes one line without a traceback."""
    __tracebackhide__ = True
    from driftscope.errors import DriftscopeError

    try:
        return action()
    except DriftscopeError as error:
        pytest.fail(f"driftscope: {error}", pytrace=False)
