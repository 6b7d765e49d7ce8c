"""Runs without a model that fill every column which a chart draws: `tests.fake_run` with sites, key counts and regions."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from driftscope.runs.run import Run
from driftscope.show.gallery import Picture, pictures
from tests.fake_cost import FakeCost, cost_shard
from tests.fake_run import Fake, meta, prompt_ids, tables

AUX = (2, 5, 8)
LAYERS = 10
WIDTH, HEAD_WIDTH = 64, 16
SITES = {"state": 1.0, "embed": 0.1, "layers.0.q": 0.7, "layers.0.mlp_update": 0.3, "final_norm": 0.9}
"""Size at step 1; all but `embed` and `final_norm` grow as the carry does."""


def write_rich_run(
    folder: Path, fake: Fake | None = None, name: str = "pre", carry: str = "pre", *, read_along: bool = False
) -> Run:
    """A run of the drafter `drafters/{name}` with a clean shard for every prompt; `read_along` adds the text and heavy keys."""
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
        if read_along:
            shard |= _read_along(shard["anchors"])
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


def _read_along(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every token is the same word; each step looks at four keys, the first of them most."""
    rows = rows[(rows["feed"] == "drafted") & ~rows["loop"]]
    prompt, last = rows["prompt"].iloc[0], int(rows["anchor"].max()) + 24
    ids = sorted({*rows["drafted"].tolist(), *rows["text"].tolist()})
    text = pd.array([*range(last), *([pd.NA] * len(ids))], dtype="Int32")
    tokens = {"prompt": prompt, "position": text, "id": [*([ids[0]] * last), *ids], "piece": " word"}
    keys = rows.loc[rows.index.repeat(4), ["variant", "prompt", "anchor", "step"]].reset_index(drop=True)
    place = np.tile(np.arange(4), len(rows))
    fixed = {
        "position": place,
        "own": False,
        "bucket": np.where(place == 0, "sink", "prompt"),
        "mass": 0.4 / (1 + place),
    }
    return {"tokens": pd.DataFrame(tokens), "attended": keys.assign(**fixed)}


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


def add_probes(run: Run, fake: Fake) -> None:
    """Shards of the probes beyond the clean chains: noise hurts with alpha, pins remove half of the excess."""
    for number, prompt in enumerate(prompt_ids(fake)):
        rng = np.random.default_rng([fake.seed, number, 2])
        run.write_shard("cost", prompt, cost_shard(FakeCost(), prompt, number))
        run.write_shard("noise", prompt, _noise(fake, prompt, rng))
        run.write_shard("pin", prompt, _pin(fake, prompt, rng))
        deep = tables(fake.changed(depth=16, variant="depth", heads=2, anchors=12), number)
        run.write_shard("depth", prompt, {name: deep[name] for name in ("anchors", "heads", "variants")})
        run.write_shard("layers", prompt, {"similarity": _similarity(fake, prompt, rng)})
        run.write_shard("template", prompt, _template(fake, prompt, rng))
        run.write_shard("length", prompt, _length(fake, prompt, rng))


def _steps(
    fake: Fake, variant: str, prompt: str, rng: np.random.Generator, kept: float, feed: str = "drafted", **sums: Any
) -> pd.DataFrame:
    """The `steps` rows of one variant: a share `kept` of the acceptance is left; `sums` are means by step."""
    anchors = fake.anchors
    steps = np.arange(1, fake.depth + 1)
    chance = np.clip(fake.acceptance * kept + rng.normal(0, 0.04), 0.01, 0.99)
    accepted = (anchors * chance**steps).round().astype(int)
    columns = {
        "variant": variant,
        "feed": feed,
        "prompt": prompt,
        "step": steps,
        "anchors": anchors,
        "matches": accepted,
        "reached": np.concatenate([[anchors], accepted[:-1]]),
        "accepted": accepted,
        "served_rounds": anchors // 2,
        "served_accepted": np.cumsum(accepted) // 2,
        "served_accepted_sq": np.cumsum(accepted),
    }
    columns |= {f"sum/{name}": anchors * values * rng.lognormal(0, 0.05, fake.depth) for name, values in sums.items()}
    return pd.DataFrame(columns)


def _heads(fake: Fake, variant: str, prompt: str, rng: np.random.Generator, slope: float) -> pd.DataFrame:
    step = np.arange(1, fake.depth + 1)
    excess = np.where(step > 1, slope * (step - 1) + rng.normal(0, 0.02, fake.depth), 0.0)
    fixed = {"variant": variant, "feed": "drafted", "prompt": prompt, "step": step, "layer": 0, "head": 0}
    return pd.DataFrame({**fixed, "anchors": fake.anchors, "excess/self_generated": excess * fake.anchors})


def _noise(fake: Fake, prompt: str, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    parts, plan = [_steps(fake, "noise/clean", prompt, rng, 1.0)], [("noise/clean", "clean", "{}")]
    step = np.arange(1, fake.depth + 1)
    for site, harm in (("state", 0.7), ("embed", 0.2)):
        for alpha in (0.1, 0.5, 1.0):
            name = f"noise/{site}/{alpha:g}/seed0"
            parts.append(_steps(fake, name, prompt, rng, 1.0 - harm * alpha))
            moved = harm * alpha * (1 + 0.1 * step)
            sums = {"kl": moved, "flip": np.minimum(moved, 1.0), "cos_clean": 1 - moved / 2}
            parts.append(_steps(fake, name, prompt, rng, 1.0, "text", **sums))
            told = {"site": site, "alpha": alpha, "seed": 0, "steps": "every", "anchors": fake.anchors}
            plan.append((name, "intervention", json.dumps(told)))
    return {"steps": pd.concat(parts, ignore_index=True), "variants": _variants("noise", plan)}


def _pin(fake: Fake, prompt: str, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    step = np.arange(1, fake.depth + 1)
    grown = fake.growth ** (step - 1.0)
    conditions = {"free": (1.0, grown, 0.06), "fused": (0.6, 1.0 + 0 * grown, 0.03), "keys": (0.9, grown, 0.05)}
    steps = [
        _steps(fake, f"pin/{name}", prompt, rng, kept, **{"rms/state": size})
        for name, (kept, size, _) in conditions.items()
    ]
    heads = [_heads(fake, f"pin/{name}", prompt, rng, slope) for name, (_, _, slope) in conditions.items()]
    return {"steps": pd.concat(steps, ignore_index=True), "heads": pd.concat(heads, ignore_index=True)}


def _similarity(fake: Fake, prompt: str, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for step in range(1, fake.depth + 1):
        for place, row in enumerate(("next", "same", "anchor")):
            for boundary in range(0, LAYERS + 1, 2):
                cka = float(
                    np.clip(0.9 - 0.3 * place - 0.03 * step - 0.04 * abs(boundary - 8) + rng.normal(0, 0.02), 0, 1)
                )
                fixed = {"variant": "layers", "feed": "text", "prompt": prompt, "step": step, "boundary": boundary}
                rows.append({**fixed, "row": row, "anchors": 20, "cka": cka, "sum_cos": 20 * (cka - 0.2)})
    return pd.DataFrame(rows)


def _template(fake: Fake, prompt: str, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    step = np.arange(1, fake.depth + 1)
    steps, heads, told = [], [], []
    for name, kept, slope in (("regular", 1.0, 0.03), ("no_bos", 0.8, 0.05), ("no_template", 0.5, 0.06)):
        variant = f"template/{name}"
        steps.append(_steps(fake, variant, prompt, rng, kept, log_growth=0.1 * (step - 1) / kept))
        heads.append(_heads(fake, variant, prompt, rng, slope))
        told.append({"variant": variant, "prompt": prompt, "prompt_tokens": 10, "text_tokens": 60, "double_bos": False})
    names = ("steps", "heads", "conditions")
    frames = (pd.concat(steps, ignore_index=True), pd.concat(heads, ignore_index=True), pd.DataFrame(told))
    return dict(zip(names, frames, strict=True))


def _length(fake: Fake, prompt: str, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Full attention breaks with the length; a window that keeps the sink does not."""
    step = np.arange(1, fake.depth + 1)
    steps, heads, told, plan = [], [], [], []
    for place, size in enumerate((512, 1024, 2048)):
        for policy, loss in (("full", 0.35), ("window", 0.2), ("window+sink", 0.05)):
            variant, kept = f"length/{size}/{policy}", 1.0 - loss * place
            parameters = {"length": size, "policy": policy, "window": None if policy == "full" else 512}
            plan.append((variant, "config", json.dumps(parameters)))
            if policy != "full" and place == 0:
                fixed = {"variant": variant, "prompt": prompt, "double_bos": None}
                told.append({**fixed, "left_out": "nothing of the text lies behind a window of 512"})
                continue
            steps.append(_steps(fake, variant, prompt, rng, kept, log_growth=0.1 * (step - 1)))
            heads.append(_heads(fake, variant, prompt, rng, 0.02 * (1 + place)))
        fixed = {"variant": f"length/{size}", "prompt": prompt, "double_bos": False}
        told.append({**fixed, "prompt_tokens": size - 48, "text_tokens": size})
    frames = {name: pd.concat(parts, ignore_index=True) for name, parts in (("steps", steps), ("heads", heads))}
    return {**frames, "conditions": pd.DataFrame(told), "variants": _variants("length", plan)}


def _variants(probe: str, plan: list[tuple[str, str, str]]) -> pd.DataFrame:
    frame = pd.DataFrame(plan, columns=["variant", "kind", "parameters"])
    return frame.assign(probe=probe)


SMALL = Fake(prompts=12, anchors=14, depth=5, heads=3)
DRIFT, CALM = SMALL, SMALL.changed(growth=1.005, sink_shift=-0.05, self_shift=0.03)
_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def drifting() -> Run:
    """A small run that drifts, with every probe; made once."""
    run = write_rich_run(Path(_FOLDER.name) / "pre", DRIFT, "eagle3", "pre")
    add_probes(run, DRIFT)
    return run


@functools.cache
def calm() -> Run:
    """The same texts under a drafter that drifts less."""
    run = write_rich_run(Path(_FOLDER.name) / "post", CALM, "eagle3.1", "post")
    add_probes(run, CALM)
    return run


@functools.cache
def unmeasured() -> Run:
    """A run without a shard."""
    return Run.create(Path(_FOLDER.name) / "empty", **meta(SMALL))


@functools.cache
def drawn() -> list[Picture]:
    """Every picture of the run that drifts."""
    return pictures([drifting()])
