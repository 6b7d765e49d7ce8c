"""Probes of third parties, found through the entry-point group."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftscope import probes
from driftscope.errors import DriftscopeError
from driftscope.probes import Probe, available, chosen
from driftscope.runs.schema import STEPS
from tests.probes import planted

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example, with the metadata that its own pyproject makes, as pip would lay it down."""
    source = tmp_path / "source"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    site = tmp_path / "site"
    site.mkdir()
    code = f"import setuptools.build_meta as b; b.prepare_metadata_for_build_wheel({str(site)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    shutil.copy(source / "confidence.py", site)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "confidence", raising=False)


@pytest.mark.usefixtures("installed")
def test_the_example_plug_in_is_found_and_measures() -> None:
    (probe,) = chosen("confidence")
    assert list(available())[-1] == "confidence"
    assert isinstance(probe, Probe)
    tables = probe.measure(planted.subject(planted.from_state()))
    rows = STEPS.frame(STEPS.conform(tables["steps"]))
    assert rows["variant"].unique().tolist() == [item.name for item in probe.variants(None)]  # type: ignore[arg-type]
    share = rows["sum/top_prob"] / rows["anchors"]
    assert share.between(1 / planted.TOKENS, 1).all()
    # It accepts everything, at probabilities well below 1.
    assert (rows["matches"] == rows["anchors"]).all()
    assert share.max() < 0.5


def with_entries(monkeypatch: pytest.MonkeyPatch, **objects: Any) -> None:
    """Pretend that these are installed: entry-point name -> what it loads, or an error to raise."""

    class Fake(EntryPoint):
        def load(self) -> Any:
            found = objects[self.name]
            if isinstance(found, Exception):
                raise found
            return found

    made = [Fake(name, f"package:{name}", probes.GROUP) for name in objects]
    monkeypatch.setattr(probes, "entry_points", lambda group: made if group == probes.GROUP else [])


def plug_in(name: str, shard: str | None = None) -> Any:
    made = SimpleNamespace(name=name, question="Why?", shard=shard or name)
    for method in ("boundaries", "variants", "measure", "cost"):
        setattr(made, method, lambda *given: None)
    return made


def test_a_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with_entries(monkeypatch, mine=type("Mine", (), vars(plug_in("mine"))))
    assert chosen("mine")[0].name == "mine"


@pytest.mark.parametrize(
    ("name", "thing", "reason"),
    [
        ("broken", ImportError("no module named torchx\nmore"), "no module named torchx$"),
        ("norms", plug_in("norms"), "a probe of that name exists"),
        ("half", SimpleNamespace(name="half", question="", shard="half"), "lacks boundaries, variants, measure, cost"),
        ("other", plug_in("mine"), "it calls itself mine"),
        ("thief", plug_in("thief", "clean"), "it stores its rows as clean"),
    ],
)
def test_a_plug_in_that_does_not_work_is_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str, thing: Any, reason: str
) -> None:
    shipped = probes.available()["norms"]
    with_entries(monkeypatch, **{name: thing})
    with pytest.warns(UserWarning, match=f"probe plug-in {name} .package:{name}. is left out: .*{reason}"):
        found = available()
    assert list(found) == list(probes.SHIPPED)
    assert found["norms"] is shipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name != "norms":
            with pytest.raises(DriftscopeError, match=f"no probe {name}; choose from norms"):
                chosen(name)


def test_shipped_probes_keep_the_protocol() -> None:
    found = available()
    assert list(found)[: len(probes.SHIPPED)] == list(probes.SHIPPED)
    for probe in found.values():
        assert isinstance(probe, Probe)
        assert probe.question.endswith("?")
        assert probe.cost(8) > 0
    assert {name for name, probe in found.items() if isinstance(probe, probes.ConditionProbe)} >= {"template", "length"}
