"""Realistic rows of a run without a model: planted growth, sink loss and self-generated excess."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from driftscope.runs.run import Run
from driftscope.runs.schema import DISJOINT_BUCKETS

SINK, PROMPT, COMMITTED, DRAFTED, CURRENT, VIRTUAL = range(6)


@dataclass(frozen=True)
class Fake:
    """What is planted. Per-step effects start at step 2."""

    prompts: int = 16
    anchors: int = 24
    depth: int = 8
    layers: int = 1
    heads: int = 3
    growth: float = 1.2
    """Factor of the carry RMS per step."""
    sink_shift: float = -0.4
    """Change of the sink's attention logit per step, over the baseline's."""
    self_shift: float = 0.3
    """The same for the drafted and the current row."""
    acceptance: float = 0.7
    """Conditional acceptance at step 1; it falls by 0.03 a step."""
    loops: int = 2
    """Anchors at the end of each prompt that lie in a loop; their carry is 100 times too large."""
    virtual: bool = False
    feeds: tuple[str, ...] = ("drafted", "text")
    variant: str = "clean"
    seed: int = 0

    def changed(self, **changes: Any) -> Fake:
        return replace(self, **changes)


NO_DRIFT = Fake(growth=1.0, sink_shift=0.0, self_shift=0.0)


def prompt_ids(fake: Fake) -> list[str]:
    return [f"chat-{number:02d}" for number in range(fake.prompts)]


def tables(fake: Fake, number: int) -> dict[str, pd.DataFrame]:
    """The tables of one prompt, as a probe hands them to `Run.write_shard`."""
    prompt = prompt_ids(fake)[number]
    rng = np.random.default_rng([fake.seed, number])
    shape = (fake.anchors, fake.depth)
    loop = np.arange(fake.anchors) >= fake.anchors - fake.loops
    steps = np.arange(1, fake.depth + 1)
    chance = np.clip(fake.acceptance + rng.normal(0, 0.05) - 0.03 * (steps - 1), 0, 1)
    match = rng.random(shape) < chance
    parts: dict[str, list[pd.DataFrame]] = {"anchors": [], "heads": []}
    for feed in fake.feeds:
        mass, excess = _attention(fake, rng)
        parts["anchors"].append(_anchor_rows(fake, rng, prompt, feed, loop, match, mass, excess))
        parts["heads"].append(_head_rows(fake, prompt, feed, loop, mass, excess))
    result = {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}
    result["variants"] = pd.DataFrame(
        {"variant": [fake.variant], "probe": [fake.variant], "kind": ["clean"], "parameters": ["{}"]}
    )
    boundaries = np.repeat(np.arange(4), 3)
    result["layers"] = pd.DataFrame(
        {
            "prompt": prompt,
            "boundary": boundaries,
            "region": ["sink", "prompt", "continuation"] * 4,
            "positions": [1, 9, 20] * 4,
            "sum_rms": (1.0 + boundaries) * ([50, 9, 20] * 4),
            "sum_log_rms": np.log(1.0 + boundaries) * ([1, 9, 20] * 4),
        }
    )
    result["aux"] = pd.DataFrame(
        {
            "prompt": prompt,
            "index": [0, 1, 2],
            "boundary": [1, 2, 3],
            "region": "continuation",
            "positions": 20,
            "sum_rms": [40.0, 60.0, 80.0],
            "sum_share": [4.0, 6.0, 10.0],
        }
    )
    return result


def meta(fake: Fake) -> dict[str, Any]:
    """The fields of `run.json`."""
    return {
        "provenance": {"driftscope": "0.0.0"},
        "checkpoint": {
            "path": "drafters/fake",
            "sha256": "ab" * 32,
            "layout": "eagle3",
            "switches": {"norm_output": False},
            "origins": {"norm_output": {"source": "default"}},
        },
        "target": {"name": "fake/target", "fingerprint": "f1", "layers": 3, "hidden_size": 64, "sinks": [0]},
        "settings": {"depth": fake.depth, "horizon": 16},
        "prompts": [
            {"id": name, "category": "chat", "prompt_length": 10, "text_length": 60, "stopped": False}
            for name in prompt_ids(fake)
        ],
    }


def write_fake_run(folder: Path, fake: Fake | None = None) -> Run:
    """A run with a clean shard for every prompt."""
    fake = fake or Fake()
    run = Run.create(folder, **meta(fake))
    for number, name in enumerate(prompt_ids(fake)):
        run.write_shard("clean", name, tables(fake, number))
    return run


def _attention(fake: Fake, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Masses and excess masses [anchor, step, layer, head, disjoint bucket]."""
    head = rng.normal(0, 0.3, (1, 1, fake.layers, fake.heads, len(DISJOINT_BUCKETS)))
    logits = np.array([1.0, 1.0, 0.5, 0.0, 0.3, 0.0]) + head
    logits = logits + rng.normal(0, 0.2, (fake.anchors, fake.depth, fake.layers, fake.heads, len(DISJOINT_BUCKETS)))
    logits[:, :2, ..., DRAFTED] = -np.inf
    if not fake.virtual:
        logits[..., VIRTUAL] = -np.inf
    drifted = logits.copy()
    moved = np.arange(fake.depth)[:, None, None]
    drifted[..., SINK] += fake.sink_shift * moved
    drifted[..., DRAFTED] += fake.self_shift * moved
    drifted[..., CURRENT] += fake.self_shift * moved
    mass, baseline = (np.exp(part) / np.exp(part).sum(-1, keepdims=True) for part in (drifted, logits))
    return mass, mass - baseline


def _bucket_columns(prefix: str, values: np.ndarray, steps: np.ndarray, fake: Fake) -> dict[str, np.ndarray]:
    buckets = DISJOINT_BUCKETS if fake.virtual else DISJOINT_BUCKETS[:-1]
    columns = {f"{prefix}/{name}": values[..., place].ravel() for place, name in enumerate(buckets)}
    own = np.where(steps.ravel() > 1, columns[f"{prefix}/drafted"] + columns[f"{prefix}/current"], 0.0)
    return columns | {f"{prefix}/self_generated": own}


def _anchor_rows(
    fake: Fake,
    rng: np.random.Generator,
    prompt: str,
    feed: str,
    loop: np.ndarray,
    match: np.ndarray,
    mass: np.ndarray,
    excess: np.ndarray,
) -> pd.DataFrame:
    anchor, place = np.indices(match.shape)
    step = np.asarray(place + 1)
    anchor_rms = rng.lognormal(1.3, 0.2, (fake.anchors, 1)) * np.where(loop, 100.0, 1.0)[:, None]
    noise = rng.lognormal(0, 0.03, match.shape)
    noise[:, 0] = 1.0
    grown = fake.growth ** (step - 1.0) * noise
    text = rng.integers(0, 900, match.shape)
    known = rng.random(match.shape) < 0.95
    columns = {
        "variant": fake.variant,
        "feed": feed,
        "prompt": prompt,
        "anchor": (anchor + 9).ravel(),
        "step": step.ravel(),
        "loop": np.broadcast_to(loop[:, None], match.shape).ravel(),
        "near_tie": (anchor == 3).ravel(),
        "drafted": np.where(match, text, text + 1).ravel(),
        "text": text.ravel(),
        "match": match.ravel(),
        "accepted": np.logical_and.accumulate(match, axis=1).ravel(),
        "rank": pd.array(np.where(known | match, np.where(match, 1, 5), 0).ravel(), dtype="Int32"),
        "prob": np.where(match, 0.6, 0.1).ravel(),
        "top_prob": 0.6,
        "logit_entropy": 1.5,
        "entropy": 2.0 + 0.05 * step.ravel(),
        "rms/carry": (anchor_rms * grown).ravel(),
        "rms/state": (anchor_rms * grown).ravel(),
        "cos_prev": np.where(step > 1, 0.8, np.nan).ravel(),
        "cos_baseline": np.where(step > 1, 0.9, 1.0).ravel(),
        "matched_growth": grown.ravel(),
        "update_ratio/attn": 0.5 / step.ravel(),
        "keys/sink": 1,
        "keys/current": 1,
    }
    frame = pd.DataFrame(columns)
    frame["rank"] = frame["rank"].mask(frame["rank"] == 0)
    mass, excess = mass.mean((2, 3)), excess.mean((2, 3))
    return frame.assign(**_bucket_columns("mass", mass, step, fake), **_bucket_columns("excess", excess, step, fake))


def _head_rows(
    fake: Fake, prompt: str, feed: str, loop: np.ndarray, mass: np.ndarray, excess: np.ndarray
) -> pd.DataFrame:
    mass, excess = mass[~loop].sum(0), excess[~loop].sum(0)
    place, layer, head = np.indices(mass.shape[:3])
    step = np.asarray(place + 1)
    frame = pd.DataFrame(
        {
            "variant": fake.variant,
            "feed": feed,
            "prompt": prompt,
            "step": step.ravel(),
            "layer": layer.ravel(),
            "head": head.ravel(),
            "anchors": int((~loop).sum()),
            "entropy": 2.0 * (~loop).sum(),
        }
    )
    return frame.assign(**_bucket_columns("mass", mass, step, fake), **_bucket_columns("excess", excess, step, fake))
