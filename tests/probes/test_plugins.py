"""Probes of third parties, found through the entry-point group."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from driftscope import probes
from driftscope.app.figures import of_page
from driftscope.cli import app
from driftscope.errors import DriftscopeError
from driftscope.probes import Probe, Record, available, chosen, register
from driftscope.probes.fakes import fake_run, fake_steps
from driftscope.probes.record import GENERIC_PAGE
from driftscope.probes.schema import summary_schema
from driftscope.runs.columns import INT32, PROMPT, Column, Table
from driftscope.runs.run import Run
from driftscope.runs.schema import STEPS
from driftscope.show.gallery import pictures
from driftscope.show.report import render_report
from tests.probes import planted

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(probes, "_registered", {})


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


@pytest.mark.usefixtures("installed")
def test_the_record_of_a_plug_in_reaches_every_screen(tmp_path: Path) -> None:
    """Terminal, JSON with its schema, report, notebook and app, from its one file."""
    (probe,) = chosen("confidence")
    fake_run(tmp_path / "run", probe)
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run")])
    assert "Confidence: is the drafter surer of its tokens" in shown.stdout
    assert "nothing was measured" not in shown.stdout
    assert "surer than it is right" in shown.stdout
    printed = json.loads(CliRunner().invoke(app, ["show", str(tmp_path / "run"), "--json"]).stdout)
    run = Run.open(tmp_path / "run")
    assert printed["probes"] == json.loads(json.dumps(run.summary()["probes"]))
    last = printed["probes"]["confidence"]["steps"][-1]
    # The sums of what was stored, over all prompts.
    rows = run.table("steps", "confidence").query(f"step == {last['step']}")
    assert last["confidence"]["mean"] == pytest.approx(rows["sum/top_prob"].sum() / rows["anchors"].sum())
    schema = summary_schema()
    assert list(Draft202012Validator(schema).iter_errors(printed)) == []
    printed["probes"]["confidence"]["other"] = 1.0
    assert len(list(Draft202012Validator(schema).iter_errors(printed))) == 1
    (picture,) = pictures([run])
    assert list(picture.table) == ["step", "confidence", "right", "excess", "anchors"]
    assert "surer than it is right" in picture.sentences[0]
    assert max(len(rows) for rows in run.charts.confidence_steps().to_dict()["datasets"].values()) == 5
    assert "Confidence and acceptance" in render_report([run])
    ((name, heading, drawn),) = of_page([run], GENERIC_PAGE)
    assert (name, drawn[0].title) == ("confidence", "Confidence and acceptance")
    assert heading.startswith("Confidence: is the drafter")


def test_a_probe_without_a_record_and_shards_of_no_known_probe_are_told_all_the_same(tmp_path: Path) -> None:
    """Rows of `steps` are figures by themselves."""
    run = fake_run(tmp_path / "run")
    for number, prompt in enumerate(prompt.id for prompt in run.info.prompts):
        run.write_shard("unheard", prompt, {"steps": fake_steps(prompt, number, "unheard", spin=0.4)})
    entries = run.summary()["probes"]["unheard"]["variants"]["unheard"]["drafted"]
    rows = run.table("steps", "unheard").query("step == 2")
    assert entries[1]["spin"]["mean"] == pytest.approx(rows["sum/spin"].sum() / rows["anchors"].sum())
    assert entries[1]["match"]["mean"] == pytest.approx(rows["matches"].sum() / rows["anchors"].sum())
    text = CliRunner().invoke(app, ["show", str(tmp_path / "run")]).stdout
    assert "Unheard" in text
    assert "measured was unheard" in text
    assert [picture.section for picture in pictures([run])] == ["unheard"]


def test_a_table_of_a_probe_is_stored_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in declares what the shared tables have no place for; names that are taken are refused."""
    spins = Table("spins", (PROMPT, Column("spin", INT32, "turns", least=0)))

    def make(prompt: str, number: int) -> dict[str, pd.DataFrame]:
        return {"spins": pd.DataFrame({"prompt": prompt, "spin": [number, number + 1]})}

    spinning = plug_in("spinning")
    spinning.record = Record(tables=(spins,), fake=make)
    with_entries(monkeypatch, spinning=spinning)
    run = fake_run(tmp_path / "run", spinning, prompts=3)
    assert Run.open(run.folder).table("spins")["spin"].tolist() == [0, 1, 1, 2, 2, 3]
    assert run.summary()["probes"]["spinning"] == {"prompts": 3}
    taken = plug_in("taking")
    taken.record = Record(tables=(Table("similarity", (PROMPT,)),))
    with pytest.raises(DriftscopeError, match="declares a table similarity, which is there already"):
        register(taken)


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
