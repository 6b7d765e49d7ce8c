"""Fake runs of drafters with given switches, for what reads several of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from driftscope.runs.run import Run
from tests.fake_run import NO_DRIFT, Fake, meta, prompt_ids, tables

HEALTHY = NO_DRIFT.changed(loops=0)
Shard = dict[str, pd.DataFrame]
Edit = Callable[[Shard, int], None]
"""Changes the tables of a prompt in place, given its number."""


def write_drafter(
    folder: Path,
    fake: Fake = HEALTHY,
    *,
    edit: Edit | None = None,
    shards: Callable[[str, int], dict[str, Shard]] | None = None,
    provenance: dict[str, Any] | None = None,
    sinks: tuple[int, ...] = (0,),
    settings: dict[str, Any] | None = None,
    **switches: Any,
) -> Run:
    """A run whose checkpoint is named like the folder: pre-norm carry and no norm before fc unless `switches` say so.
    Every text token is in the draft vocabulary. `shards`: those of other probes, by name, from prompt id and number."""
    fields = meta(fake)
    fields["checkpoint"] |= {
        "path": f"drafters/{folder.name}",
        "sha256": f"{folder.name:0<64}",
        "switches": {"carry": "pre", "fc_norm": False, **switches},
    }
    fields["target"]["sinks"] = list(sinks)
    fields["settings"] |= {"dtype": "float32", "max_new_tokens": 48, "sinks": list(sinks), **(settings or {})}
    fields["provenance"] |= {"skipped_prompts": {"too_long": 0}} | (provenance or {})
    run = Run.create(folder, **fields)
    for number, prompt in enumerate(prompt_ids(fake)):
        shard = tables(fake, number)
        shard["anchors"]["rank"] = shard["anchors"]["rank"].fillna(5)
        shard["anchors"]["near_tie"] = False
        if edit is not None:
            edit(shard, number)
        run.write_shard("clean", prompt, shard)
        for probe, content in (shards(prompt, number) if shards else {}).items():
            run.write_shard(probe, prompt, content)
    return run


def noise_shards(half: float, length: float = 2.0, alphas: tuple[float, ...] = (0.1, 0.5, 1.0)) -> Any:
    """`shards` for a drafter that keeps 1 / (1 + alpha / half) of its length under noise on the state."""

    def made(prompt: str, number: int) -> dict[str, Shard]:
        rng = np.random.default_rng(number)
        rows, variants = [], [{"variant": "noise/clean", "probe": "noise", "kind": "clean", "parameters": "{}"}]
        base = length * rng.uniform(0.8, 1.2)
        for alpha in (0.0, *alphas):
            name = f"noise/state/{alpha}" if alpha else "noise/clean"
            accepted = round(1000 * base / (1 + alpha / half))
            common = {"variant": name, "feed": "drafted", "prompt": prompt, "step": 1, "anchors": 1000, "reached": 1000}
            served = {"served_rounds": 1000, "served_accepted": accepted, "served_accepted_sq": accepted}
            rows.append({**common, "matches": accepted, "accepted": accepted, **served})
            if alpha:
                told = f'{{"site": "state", "steps": "every", "alpha": {alpha}, "seed": 0}}'
                variants.append({"variant": name, "probe": "noise", "kind": "intervention", "parameters": told})
        return {"noise": {"steps": pd.DataFrame(rows), "variants": pd.DataFrame(variants)}}

    return made
