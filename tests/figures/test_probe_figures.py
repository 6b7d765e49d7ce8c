"""A run with shards of every probe gives every figure, as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd

from driftscope.probes.clean import CleanProbe
from driftscope.probes.depth import PROBE as DEPTH
from driftscope.probes.held import probe_figures
from driftscope.probes.layers import LayersProbe
from driftscope.probes.noise import NoiseProbe
from driftscope.probes.pin import PROBE as PIN
from driftscope.runs.run import Run
from tests.fake_run import Fake, meta, prompt_ids
from tests.probes import planted

FAKE = Fake(prompts=2)


def test_figures_of_every_probe_are_json(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a", **meta(FAKE))
    assert probe_figures(run) == {}
    pair = planted.from_state()
    noise = NoiseProbe(alphas=(1.0,), seeds=1)
    settings = dataclasses.replace(planted.SETTINGS, depth=3, horizon=4)
    for number, prompt in enumerate(prompt_ids(FAKE)):
        subject = planted.subject(pair, number, settings, boundaries={b: planted.random_rows(b) for b in (1, 2, 3)})
        subject.capture = dataclasses.replace(subject.capture, prompt_id=prompt)
        for probe in (CleanProbe("norms", "?"), noise, PIN, DEPTH, LayersProbe()):
            variants = [
                {"variant": v.name, "probe": probe.shard, "kind": v.kind, "parameters": json.dumps(v.parameters)}
                for v in probe.variants(pair)
            ]
            tables = probe.measure(subject)
            run.write_shard(probe.shard, prompt, {**tables, "variants": pd.DataFrame(variants)})
    found = probe_figures(run)
    assert list(found) == ["acceptance", "noise", "pin", "depth", "layers"]
    assert all(found.values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
