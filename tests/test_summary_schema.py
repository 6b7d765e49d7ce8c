"""Summaries and what `--json` prints against the JSON Schema that is shipped."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from driftscope.commands.content import run_content
from driftscope.findings import assess
from driftscope.runs.run import Run
from tests.fake_cost import FakeCost, cost_shard
from tests.fake_run import Fake, meta, prompt_ids, tables
from tests.rich_run import drifting, unmeasured
from tests.summary_schema import FILE, made_anew

SCHEMA = json.loads((files("driftscope") / "schemas" / "summary.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def errors(content: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(json.loads(json.dumps(content)))]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_its_probes_are_those_of_the_records() -> None:
    """`make generated` writes it anew."""
    assert FILE.read_text(encoding="utf-8") == made_anew()
    assert {"noise", "pin", "depth", "layers", "template", "length"} <= set(
        SCHEMA["properties"]["probes"]["properties"]
    )


def test_summary_and_printed_content_conform() -> None:
    for run in (drifting(), unmeasured()):
        assert errors(run.summary()) == []
        assert errors(run_content(run, assess(run), None)) == []


@pytest.mark.parametrize("cost", [FakeCost(split=True), FakeCost(block=True)])
def test_a_run_with_a_cost_conforms(tmp_path: Path, cost: FakeCost) -> None:
    fake = Fake(depth=cost.depth)
    run = Run.create(tmp_path / "cost", **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        run.write_shard("clean", name, tables(fake, number))
        run.write_shard("cost", name, cost_shard(cost, name, number))
    summary = run.summary()
    assert {"drift_cost", "rejections"} <= set(summary)
    assert errors(summary) == []
    summary["drift_cost"]["by_depth"][0]["state"] = {"shapely": summary["drift_cost"]["cost"]}
    assert len(errors(summary)) == 1


def test_a_run_with_few_prompts_and_gaps_conforms(tmp_path: Path) -> None:
    """Null ends of intervals, conditional acceptance that is not measurable, virtual sinks, absent quantities."""
    fake = Fake(prompts=2, anchors=6, depth=4, loops=0, acceptance=0.1, virtual=True)
    run = Run.create(tmp_path / "few", **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        shard = {key: frame.drop(columns="entropy", errors="ignore") for key, frame in tables(fake, number).items()}
        run.write_shard("clean", name, shard)
    summary = run.summary()
    assert summary["steps"][0]["growth"]["low"] is None
    assert "conditional" not in summary["steps"][3]["acceptance"]
    assert errors(summary) == []


def _no_mean(content: dict[str, Any]) -> None:
    del content["steps"][1]["growth"]["mean"]


def _mass_of_two(content: dict[str, Any]) -> None:
    content["steps"][0]["mass"]["sink"]["mean"] = 2.0


def _step_0(content: dict[str, Any]) -> None:
    content["steps"][0]["step"] = 0


def _onset_in_words(content: dict[str, Any]) -> None:
    content["onset"]["norm_up"] = "later"


def _other_version(content: dict[str, Any]) -> None:
    content["schema_version"] = 2


def _unknown(content: dict[str, Any]) -> None:
    content["steps"][0]["carry_l2"] = {"mean": 1.0, "low": None, "high": None}


def _probe_interval_without_ends(content: dict[str, Any]) -> None:
    del content["probes"]["noise"]["clean"]["anchor_mean"]["low"]


def _figure_that_no_record_declares(content: dict[str, Any]) -> None:
    content["probes"]["pin"]["pinned"] = 1.0


@pytest.mark.parametrize(
    "spoil",
    [
        _no_mean,
        _mass_of_two,
        _step_0,
        _onset_in_words,
        _other_version,
        _unknown,
        _probe_interval_without_ends,
        _figure_that_no_record_declares,
    ],
)
def test_what_does_not_conform_is_found(spoil: Callable[[dict[str, Any]], None]) -> None:
    content = copy.deepcopy(drifting().summary())
    spoil(content)
    assert len(errors(content)) == 1
