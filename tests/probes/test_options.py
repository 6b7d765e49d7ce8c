"""Options of probes: from text to fields, and what a run that is gone on with refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from driftscope.errors import DriftscopeError, RunError
from driftscope.probes.clean import CleanProbe
from driftscope.probes.depth import DepthProbe
from driftscope.probes.noise import NoiseProbe
from driftscope.probes.options import check_stored, configured, option_fields, parse_options
from driftscope.runs.run import Run
from tests.fake_run import Fake, meta, prompt_ids

NORMS, ACCEPTANCE = CleanProbe("norms", "?"), CleanProbe("acceptance", "?")
ALL = [NORMS, ACCEPTANCE, NoiseProbe(), DepthProbe()]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("noise.alphas=0.1, 0.5", "alphas", (0.1, 0.5)),
        ("noise.sites=carry", "sites", ("carry",)),
        ("noise.seeds=8", "seeds", 8),
        ("noise.anchors=none", "anchors", None),
        ("noise.steps=first", "steps", "first"),
    ],
)
def test_text_becomes_a_field_of_its_type(text: str, field: str, value: object) -> None:
    noise = configured(ALL, parse_options([text]))[2]
    assert getattr(noise, field) == value
    assert configured(ALL, {f"noise.{field}": value})[2] == noise


def test_other_probes_stay_and_a_shared_shard_shares_its_options() -> None:
    changed = configured(ALL, {"acceptance.temperature": "0.5", "depth.steps": "4"})
    assert [probe.name for probe in changed] == ["norms", "acceptance", "noise", "depth"]
    assert [changed[0].temperature, changed[1].temperature] == [0.5, 0.5]  # type: ignore[attr-defined]
    assert changed[2] == NoiseProbe()
    assert changed[3] == DepthProbe(steps=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise.alpha": "1"}, "noise has sites, alphas, seeds, steps, anchors"),
        ({"noise.shard": "x"}, "noise has sites"),
        ({"pin.x": "1"}, "probe pin is not among norms, acceptance, noise, depth"),
        ({"noise.seeds": "many"}, "noise.seeds=many: .*integer"),
        ({"noise.sites": "fused"}, "noise.sites=.*'state', 'carry' or 'embed'"),
        ({"noise.alphas": "-1"}, "alphas of 0 or more"),
    ],
)
def test_what_does_not_fit_is_told_in_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DriftscopeError, match=message) as caught:
        configured(ALL, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["noise.alphas", "alphas=1", ""])
def test_options_name_probe_option_and_value(text: str) -> None:
    with pytest.raises(DriftscopeError, match=r"is not PROBE\.OPTION=VALUE"):
        parse_options([text])


def test_a_probe_that_is_no_dataclass_has_no_options() -> None:
    class Plain:
        name = question = shard = "plain"

    assert option_fields(Plain()) == {}  # type: ignore[arg-type]
    with pytest.raises(DriftscopeError, match="plain has no options"):
        configured([Plain()], {"plain.x": "1"})  # type: ignore[list-item]


def test_a_run_does_not_mix_options(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a", **meta(Fake()))
    stored = NoiseProbe(alphas=(0.1,), seeds=1)
    pair: Any = None
    check_stored(run, stored, pair)
    rows = [
        {"variant": item.name, "probe": "noise", "kind": item.kind, "parameters": json.dumps(item.parameters)}
        for item in stored.variants(pair)
    ]
    run.write_shard("noise", prompt_ids(Fake())[0], {"variants": pd.DataFrame(rows)})
    check_stored(run, stored, pair)
    check_stored(run, DepthProbe(), pair)
    for other in (NoiseProbe(alphas=(0.1,), seeds=1, anchors=8), NoiseProbe(alphas=(0.1, 1.0), seeds=1)):
        with pytest.raises(RunError, match=r"holds noise with other options: .* use the same --probe-option"):
            check_stored(run, other, pair)
