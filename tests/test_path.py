"""From `driftscope probe` to the loop over steps there are eight hops, and no function on the way takes many arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from typer.testing import CliRunner

from driftscope import api
from driftscope.chain import observe, prompt_chains
from driftscope.chain.chain import Chain
from driftscope.cli import app
from driftscope.drafter.model import Drafter
from driftscope.measuring import measure, ray, start
from driftscope.measuring.request import ProbeRequest
from tests.tiny_pair import save_pair

ROOT = Path(__file__).resolve().parents[1]
HOPS = (
    "commands.probe.probe",
    "api.measure_request",
    "api.measure_pair",
    "measuring.measure.run_probes",
    "probes.clean.CleanProbe.measure",
    "chain.prompt_chains.Subject.chains",
    "chain.observe.observe",
    "chain.chain.Chain.forward",
)
"""Docs name these. Functions between two of them hand on within the folder of one of the two."""
MOST_ARGUMENTS = 8


def our_frames() -> list[str]:
    """module.function below driftscope of every frame above the caller, outermost first."""
    found = []
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("driftscope."):
            found.append(f"{module.removeprefix('driftscope.')}.{frame.f_code.co_qualname.replace('.<locals>', '')}")
        frame = frame.f_back
    return found[::-1]


def test_a_traceback_inside_the_step_loop_shows_the_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, seen = save_pair(tmp_path / "pair"), []
    real = Drafter.step

    def step(drafter: Drafter, *given: Any) -> Any:
        frames = our_frames()
        # The hooks test themselves on a chain of their own when the pair is loaded.
        if {HOPS[-1], "measuring.measure.run_probes"} <= set(frames) and not seen:
            seen.extend(frames)
        return real(drafter, *given)

    monkeypatch.setattr(Drafter, "step", step)
    command = ["probe", str(pair.checkpoint), "--target", str(pair.target), "--prompts", str(pair.prompts)]
    command += ["--cache-dir", str(pair.cache), "-o", str(tmp_path / "run"), "--no-audit", "--probes", "norms"]
    command += ["--max-new-tokens", "24", "--depth", "3", "--horizon", "4"]
    CliRunner().invoke(app, command, catch_exceptions=False)
    assert seen, "no chain ran below the command"
    assert [frame for frame in seen if frame in HOPS] == list(HOPS)
    rooms = {hop.partition(".")[0] for hop in HOPS}
    between = [frame for frame in seen[seen.index(HOPS[0]) :] if frame.partition(".")[0] not in rooms]
    assert between == [], "a room that the docs do not name"


def test_the_page_on_the_architecture_names_the_hops() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    places = [page.find(f"`{hop}`") for hop in HOPS]
    assert -1 not in places
    assert places == sorted(places)
    assert len(HOPS) <= 8


@pytest.mark.parametrize(
    "function",
    [
        api.measure_request,
        api.measure_pair,
        api.prompted_texts,
        api.captured_texts,
        *(each for each in vars(measure).values() if inspect.isfunction(each) and each.__module__ == measure.__name__),
        start.start_run,
        ray.run_on_ray,
        ray.job_of,
        prompt_chains.Subject.chains,
        observe.observe,
        Chain.forward,
    ],
    ids=lambda function: function.__qualname__,
)
def test_no_function_below_the_front_takes_many_arguments(function: Any) -> None:
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert len(parameters) <= MOST_ARGUMENTS, parameters


def test_the_front_says_all_that_a_request_holds() -> None:
    """`driftscope.probe` keeps its keyword arguments: none is lost on the way into the request."""
    flat = set()
    for name, kind in ProbeRequest.__dataclass_fields__.items():
        part = kind.default_factory if name in ("texts", "chains", "places") else None
        flat |= set(part.__dataclass_fields__) if isinstance(part, type) else {name}
    assert set(inspect.signature(api.probe).parameters) == flat | {"options", "progress"}
