"""Runs without a model, for tests of a probe: what `Record.fake` makes of each prompt, in a run folder like any other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftscope.errors import DriftscopeError

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.probes.base import Probe
    from driftscope.runs.run import Run

PROMPTS = 14
"""Enough for intervals."""


def fake_run(
    folder: str | Path, *probes: Probe, prompts: int = PROMPTS, switches: Mapping[str, Any] | None = None
) -> Run:
    """A run folder that holds what the fakes of these probes make; registers them. DriftscopeError for a probe without one."""
    from driftscope.probes import register
    from driftscope.probes.held import record_of
    from driftscope.runs.run import Run

    register(*probes)
    names = [f"prompt-{number}" for number in range(prompts)]
    run = Run.create(
        folder,
        checkpoint={
            "path": "drafters/fake",
            "sha256": "0" * 64,
            "layout": "specforge",
            "switches": dict(switches or {}),
        },
        target={"name": "fake-target", "fingerprint": "fake", "layers": 4, "hidden_size": 64, "sinks": [0]},
        prompts=[{"id": name, "prompt_length": 8, "text_length": 64, "stopped": False} for name in names],
    )
    for probe in probes:
        fake = record_of(probe).fake
        if fake is None:
            raise DriftscopeError(
                f"probe {probe.name} declares no fake: Record(fake=...) makes its tables of one prompt"
            )
        for number, name in enumerate(names):
            run.write_shard(probe.shard, name, fake(name, number))
    return run


def fake_steps(
    prompt: str,
    number: int,
    variant: str,
    *,
    feed: str = "drafted",
    depth: int = 5,
    anchors: int = 24,
    acceptance: float = 0.7,
    **means: float,
) -> pd.DataFrame:
    """`steps` rows of one variant: the share that is right falls as `acceptance ** step`, with some spread over prompts; `means`
    are quantities (`top_prob=0.6`), which fall by a tenth a step."""
    import pandas as pd

    rng = np.random.default_rng([number, len(variant)])
    step = np.arange(1, depth + 1)
    chance = np.clip(acceptance + rng.normal(0, 0.04), 0.01, 0.99)
    accepted = (anchors * chance**step).round().astype(int)
    columns: dict[str, Any] = {
        "variant": variant,
        "feed": feed,
        "prompt": prompt,
        "step": step,
        "anchors": anchors,
        "matches": accepted,
        "reached": np.concatenate([[anchors], accepted[:-1]]),
        "accepted": accepted,
        "served_rounds": anchors // 2,
        "served_accepted": np.cumsum(accepted) // 2,
        "served_accepted_sq": np.cumsum(accepted),
    }
    spread = rng.lognormal(0, 0.05, (len(means), depth))
    for row, (name, mean) in zip(spread, means.items(), strict=True):
        columns[f"sum/{name}"] = anchors * mean * 0.9 ** (step - 1.0) * row
    return pd.DataFrame(columns)
