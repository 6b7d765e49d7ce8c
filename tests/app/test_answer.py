"""The answer on the first screen: marks of runs, the 2 x 2, severity, and the cards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from driftscope.app.answer_html import budget, run_card, square_card
from driftscope.app.library import Entry, find_runs
from driftscope.app.run_table import in_sight
from driftscope.app.severity import Severity, severity
from driftscope.app.square import CORNERS, corners, square
from driftscope.compare import compare
from driftscope.runs.run import Run
from driftscope.runs.schema import RunInfo
from driftscope.show.run_marks import Mark, remarked, run_marks
from tests.app.conftest import SMALL, messages, words
from tests.fake_run import meta
from tests.rich_run import write_rich_run

Start = Callable[..., AppTest]


def info(carry: str = "pre", fc_norm: bool = False, started: str = "2026-01-01", sha: str = "a") -> RunInfo:
    fields = meta(SMALL)
    fields["checkpoint"] |= {"sha256": sha, "switches": {"carry": carry, "fc_norm": fc_norm}}
    fields["provenance"]["started"] = started
    return RunInfo(**fields)


def test_the_corners_of_a_2_x_2_look_unlike() -> None:
    found = run_marks({f"{carry}{fc}": info(carry, fc, sha=f"{carry}{fc}") for carry, fc in CORNERS})
    assert len({mark.colour for mark in found.values()}) == len({mark.shape for mark in found.values()}) == 4


def test_a_run_keeps_its_mark_when_others_come_and_in_any_order() -> None:
    runs = {f"run{day}": info(started=f"2026-01-{day:02}", sha=str(day)) for day in range(10, 30)}
    first = dict(list(runs.items())[:5])
    before, after = run_marks(first), run_marks(dict(reversed(runs.items())))
    assert {name: after[name] for name in first} == before
    assert len(set(after.values())) == 20
    assert len({mark.colour for mark in before.values()}) == len({mark.shape for mark in before.values()}) == 5


def test_charts_take_the_marks_of_their_runs_only() -> None:
    scale = {"domain": ["a", "b"], "range": ["#111111", "#222222"]}
    plain = {
        "datasets": {"d": [{"run": "a", "color": "x"}]},
        "layer": [
            {"encoding": {"color": {"field": "run", "scale": scale}, "shape": {"field": "run", "scale": dict(scale)}}}
        ],
        "encoding": {"color": {"field": "bucket", "scale": dict(scale)}},
    }
    marks = {"a": Mark("#4477AA", "circle"), "b": Mark("#EE6677", "square")}
    found = remarked(plain, marks)
    encoding = found["layer"][0]["encoding"]
    assert encoding["color"]["scale"]["range"] == ["#4477AA", "#EE6677"]
    assert encoding["shape"]["scale"]["range"] == ["circle", "square"]
    assert found["encoding"] == plain["encoding"]
    assert found["datasets"] == plain["datasets"]
    assert remarked(plain, {"a": marks["a"]}) == plain, "a run without a mark"


def cost(mean: float, low: float | None, high: float | None, undrifted: float = 1.0) -> dict[str, Any]:
    return {
        "actual": {"mean": undrifted - mean, "low": None, "high": None},
        "undrifted": {"mean": undrifted, "low": None, "high": None},
        "cost": {"mean": mean, "low": low, "high": high},
        "share": {"mean": mean / undrifted, "low": None, "high": None},
        "depth": 4,
        "paths": {
            "state": {"mean": mean, "low": low, "high": high},
            "values": {"mean": -0.0001, "low": None, "high": None},
        },
        "reasons": {
            "drafter": {"mean": 0.75, "low": 0.7, "high": 0.8},
            "state": {"mean": 0.25, "low": None, "high": None},
        },
        "rejected": 120,
    }


@pytest.mark.parametrize(
    ("found", "level"),
    [
        ({"kind": "drift", "cost": cost(0.3, 0.2, 0.4)}, "grave"),
        ({"kind": "drift", "cost": cost(0.1, 0.05, 0.2)}, "clear"),
        ({"kind": "drift", "cost": cost(0.02, 0.01, 0.03)}, "slight"),
        ({"kind": "drift", "cost": cost(0.0, -0.01, 0.01)}, "none"),
        ({"kind": "drift", "cost": cost(0.1, -0.1, 0.3)}, "unknown"),
        ({"kind": "drift", "cost": cost(0.1, None, None)}, "unknown"),
        ({"kind": "drift", "cost": None, "growth": {"mean": 2.33}}, "clear"),
        ({"kind": "drift", "cost": None, "growth": {"mean": 1.12}}, "slight"),
        ({"kind": "none", "cost": None}, "none"),
        ({"kind": "unknown", "cost": None}, "unknown"),
        ({"problem": "torn"}, "unknown"),
    ],
)
def test_severity_is_what_drift_costs(found: dict[str, Any], level: str) -> None:
    assert severity(found).level == level


def test_the_budget_names_every_part_with_its_figure() -> None:
    shown = re.sub(r"<[^>]+>", " ", budget(cost(0.1, 0.05, 0.2)))
    for text in ("accepted 0.90", "undrifted 1.00", "cost of drift +0.10 (+0.05 to +0.20)", "120 rejected chains"):
        assert text in shown
    assert "25% through drift, 75% for other reasons" in shown
    assert "-0.000" not in shown
    assert "+0.000" in shown


def test_texts_of_the_cards_are_escaped() -> None:
    shown = run_card("<b>bold</b>", "<i>cause</i>", None, Severity("none", ""))
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert "<i>" not in shown
    found = {"names": ["<x>"] * 4, "headline": "<y>", "prompts": 3, "of": 3, "depth": 2, "quantities": []}
    shown = square_card(found, [Mark("#4477AA", "circle")] * 4, None)
    assert "<x>" not in shown
    assert "<y>" not in shown


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 2 x 2 of which post-norm alone holds the growth down, and a run of another target."""
    folder = tmp_path_factory.mktemp("four")
    for (carry, fc_norm), name in zip(CORNERS, ("neither", "fc", "post", "both"), strict=True):
        fake = SMALL.changed(growth=1.0) if carry == "post" else SMALL
        run = write_rich_run(folder / name, fake, name, carry)
        record = json.loads((run.folder / "run.json").read_text())
        record["checkpoint"]["switches"]["fc_norm"] = fc_norm
        record["checkpoint"]["sha256"] = name
        (run.folder / "run.json").write_text(json.dumps(record))
    return folder


def test_the_2_x_2_is_found_and_judged(four: Path) -> None:
    entries = find_runs([four])
    chosen = next(entry for entry in entries if entry.id == "both")
    held = corners(entries, {}, chosen)
    assert [entry.id for entry in held] == ["neither", "fc", "post", "both"]
    assert corners(entries, {"fc": False}, chosen) == []
    assert corners([entry for entry in entries if entry.id != "post"], {}, chosen) == []
    found = square([Run.open(entry.folder) for entry in held])
    growth = next(part for part in found["quantities"] if part["name"] == "growth")
    assert growth["judged"][2:] == ["better", "better"]
    assert growth["judged"][0] == ""
    told = compare([entry.folder for entry in held])
    assert found["headline"] == told.headline
    wanted = next(part for part in told.compared if part.quantity.name == "growth")
    assert [value["mean"] for value in growth["values"]] == [wanted.values[name].mean for name in told.runs]
    assert json.loads(json.dumps(found)) == found


def test_the_first_screen_holds_answer_and_2_x_2_and_opens_on_the_run_without_either(app: Start, four: Path) -> None:
    test = app(four)
    assert test.query_params["run"] == "neither"
    shown = words(test)
    assert 'class="square"' in shown
    assert "▲ better" in shown
    assert "untested here" not in shown
    for _ in range(len(CORNERS)):
        # A pass works on the lines of other runs for a moment only.
        test.run()
    table = test.dataframe[0].value
    assert set(table["run"]) == {"neither", "fc", "post", "both"}
    assert len(set(table[" "])) == 4, "swatches"
    grown = table.set_index("run")["growth"]
    assert grown["neither"] > 1.5 > grown["post"]
    test.button(key="corner-both").click().run()
    assert test.query_params["run"] == "both"
    assert not messages(test)


def test_a_twin_of_a_corner_neither_opens_first_nor_takes_its_place(app: Start, four: Path, tmp_path: Path) -> None:
    shutil.copytree(four, tmp_path / "runs")
    twin = Path(shutil.copytree(four / "neither", tmp_path / "runs" / "neither-cold")) / "run.json"
    record = json.loads(twin.read_text())
    record["checkpoint"]["sha256"] = "another start"
    twin.write_text(json.dumps(record))
    entries = find_runs([tmp_path / "runs"])
    assert entries[0].id == "neither-cold", "the newest"
    assert [entry.id for entry in corners(entries, {}, entries[0])] == ["neither", "fc", "post", "both"]
    test = app(tmp_path / "runs")
    assert test.query_params["run"] == "neither"
    assert 'class="square"' in words(test)
    alone = [entry for entry in entries if entry.id != "neither"]
    assert [entry.id for entry in corners(alone, {}, alone[0])] == ["neither-cold", "fc", "post", "both"]


def test_what_is_not_measured_can_be_measured_from_the_answer(app: Start, four: Path) -> None:
    test = app(four, run="fc")
    assert "What drift costs was not measured" in words(test)
    assert test.button(key="measure-cost").label == "Measure now"


def test_the_shown_run_is_never_out_of_sight() -> None:
    entries = [Entry(str(place), Path(str(place)), None) for place in range(40)]
    assert [entry.id for entry in in_sight(entries, "3")][:4] == ["0", "1", "2", "3"]
    ordered = [entry.id for entry in in_sight(entries, "33")]
    assert ordered[0] == "33"
    assert sorted(ordered) == sorted(entry.id for entry in entries)
