"""From the rules of verification over a prompt's chains to rows of the run's table `rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from driftscope.chain.prompt_chains import Subject
from driftscope.chain.verification import joint_acceptance
from driftscope.chain.verification_rules import RULES, SamplingPair
from driftscope.runs.rows import to_numpy

Steps = Sequence[dict[str, Tensor]]


def rule_rows(subject: Subject, steps: Steps, pairs: Sequence[SamplingPair], sampled: bool) -> pd.DataFrame:
    """A row per pair, rule and step: sums over the anchors outside loops. Joint chances need a text that the target sampled as the
    pair says; the greedy rule has its own on the greedy text, where it is certain."""
    kept = ~subject.looping
    plain = to_numpy(steps)
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        joint = _joint(plain, pair) if sampled else _greedy(plain, pair)
        for rule in RULES:
            if sampled and rule == "greedy":
                continue
            for index, step in enumerate(plain):
                row = {
                    "variant": f"rules/{pair.name}",
                    "text": "sampled" if sampled else "greedy",
                    "prompt": subject.capture.prompt_id,
                    "step": index + 1,
                    "rule": rule,
                    "anchors": int(kept.sum()),
                    "acceptance": float(step[f"{pair.name}/acceptance/{rule}"][kept].sum(dtype=np.float64)),
                    "joint": float(joint[rule][kept, index].sum(dtype=np.float64)) if rule in joint else None,
                }
                rows.append(row)
    return pd.DataFrame(rows)


def _joint(plain: Sequence[dict[str, np.ndarray]], pair: SamplingPair) -> dict[str, np.ndarray]:
    parts = [
        torch.from_numpy(np.stack([step[f"{pair.name}/{name}"] for step in plain], 1))
        for name in ("p", "q", "likeliest")
    ]
    found = joint_acceptance(parts[0].double(), parts[1].double(), parts[2])
    return {rule: values.numpy() for rule, values in found.items()}


def _greedy(plain: Sequence[dict[str, np.ndarray]], pair: SamplingPair) -> dict[str, np.ndarray]:
    right = np.stack([step[f"{pair.name}/acceptance/greedy"] for step in plain], 1)
    return {"greedy": right.cumprod(1)}
