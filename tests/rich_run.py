"""Runs without a model that fill every column which a chart draws: `tests.fake_run` with sites, key counts and regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from driftscope.run import Run
from tests.fake_run import Fake, meta, prompt_ids, tables

AUX = (2, 5, 8)
LAYERS = 10
WIDTH, HEAD_WIDTH = 64, 16
SITES = {"state": 1.0, "embed": 0.1, "layers.0.q": 0.7, "layers.0.mlp_update": 0.3, "final_norm": 0.9}
"""Size at step 1; all but `embed` and `final_norm` grow as the carry does."""


def write_rich_run(folder: Path, fake: Fake | None = None, name: str = "pre", carry: str = "pre") -> Run:
    """A run of the drafter `drafters/{name}` with a clean shard for every prompt."""
    fake = fake or Fake(heads=6)
    fields = meta(fake)
    fields["checkpoint"]["path"] = f"drafters/{name}"
    fields["checkpoint"]["switches"] = {
        "carry": carry,
        "fc_norm": False,
        "hidden_size": WIDTH,
        "head_dim": HEAD_WIDTH,
        "aux_boundaries": list(AUX),
    }
    run = Run.create(folder, **fields)
    for number, prompt in enumerate(prompt_ids(fake)):
        shard = tables(fake, number)
        shard["anchors"] = _with_sites(shard["anchors"], fake, number)
        shard["layers"] = _layers(prompt, number)
        shard["aux"] = _aux(prompt, number)
        run.write_shard("clean", prompt, shard)
    return run


def _with_sites(rows: pd.DataFrame, fake: Fake, number: int) -> pd.DataFrame:
    rng = np.random.default_rng([fake.seed, number, 1])
    step, anchor = rows["step"].to_numpy(), rows["anchor"].to_numpy()
    columns = {
        f"rms/{site}": size
        * (1.0 if site in ("embed", "final_norm") else fake.growth ** (step - 1.0))
        * rng.lognormal(0, 0.1, len(rows))
        for site, size in SITES.items()
    }
    columns["rms/fused"] = np.where(step == 1, 1.0, np.nan)
    columns["rms/aux.0"] = np.where(step == 1, 2.0, np.nan)
    keys = {
        "sink": np.ones_like(step),
        "prompt": np.full_like(step, 8),
        "committed": anchor - 9 + (step > 1),
        "drafted": np.maximum(step - 2, 0),
        "current": np.ones_like(step),
    }
    keys["self_generated"] = np.where(step > 1, keys["drafted"] + keys["current"], 0)
    columns |= {f"keys/{name}": count for name, count in keys.items()}
    columns["update_ratio/layers.0.mlp"] = 0.6 / step
    return rows.drop(columns=[name for name in columns if name in rows]).assign(**columns)


def _layers(prompt: str, number: int) -> pd.DataFrame:
    boundary = np.repeat(np.arange(LAYERS + 1), 3)
    region = np.tile(["sink", "prompt", "continuation"], LAYERS + 1)
    positions = np.tile([1, 9, 20], LAYERS + 1)
    size = 0.2 * 1.4**boundary * np.where((region == "sink") & (boundary > 2), 60.0, 1.0) * (1 + 0.01 * number)
    return pd.DataFrame(
        {
            "prompt": prompt,
            "boundary": boundary,
            "region": region,
            "positions": positions,
            "sum_rms": size * positions,
            "sum_log_rms": np.log(size) * positions,
        }
    )


def _aux(prompt: str, number: int) -> pd.DataFrame:
    rows = []
    for index, boundary in enumerate(AUX):
        for region, positions in (("sink", 1), ("prompt", 9), ("continuation", 20)):
            size = (1.0 + 3 * index) * (1 + 0.02 * number) * (40.0 if region == "sink" else 1.0)
            rows.append(
                {
                    "prompt": prompt,
                    "index": index,
                    "boundary": boundary,
                    "region": region,
                    "positions": positions,
                    "sum_rms": size * positions,
                    "sum_rms_normed": 1.0 * positions,
                    "sum_share": (0.2, 0.3, 0.5)[index] * positions,
                }
            )
    return pd.DataFrame(rows)
