"""Negative controls: what a drafter scores that knows nothing of the text. Without a margin to them nothing can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from driftscope.audit.decide import Floats, Limits, sign_flip_p
from driftscope.audit.score import Runner, Scores
from driftscope.audit.setting import Setting

NAMES = ("shuffled features", "shuffled tokens", "random drafter")
_KEPT = ("lm_head.", "embed_tokens.", "d2t", "t2d")


@dataclass(frozen=True)
class Control:
    """One control beside the setting that it is a control of. Means over prompts, at step 1."""

    name: str
    loss: float
    """Nats."""
    agreement: float
    margin_loss: float
    """Nats by which the setting is better."""
    margin_agreement: float
    p: float
    beaten: bool


def run_controls(setting: Setting, scores: Scores, runner: Runner, limits: Limits) -> list[Control]:
    """The three controls of a setting whose own scores are given."""
    settings = (
        setting.changed({}, {}, {"shuffle": "features"}),
        setting.changed({}, {}, {"shuffle": "tokens"}),
        Setting(setting.config, scrambled(setting.weights), setting.lens),
    )
    measured = [runner.run(other, depth=1)[0] for other in settings]
    return judged(
        scores.mean_loss[:, 0],
        scores.agreement[:, 0],
        [(other.mean_loss[:, 0], other.agreement[:, 0]) for other in measured],
        limits,
    )


def judged(loss: Floats, agreement: Floats, others: Sequence[tuple[Floats, Floats]], limits: Limits) -> list[Control]:
    """Compare a drafter with its controls at step 1.

    Args:
        loss: [prompt] nats of the drafter as it is.
        agreement: [prompt] share of anchors.
        others: the same two of each control, in the order of NAMES.

    Returns:
        One Control each; beaten where loss and agreement are better by the practical sizes of `limits` and the loss is so
        beyond chance (paired sign flips over prompts).
    """
    margins = np.stack([other - loss for other, _ in others], 1)
    p, _ = sign_flip_p(margins, flips=limits.flips)
    controls = []
    for index, (worse, less) in enumerate(others):
        gain, more = float(margins[:, index].mean()), float(agreement.mean() - less.mean())
        beaten = bool(p[index] < limits.alpha and gain >= limits.loss and more >= limits.agreement)
        figures = float(worse.mean()), float(less.mean()), gain, more, float(p[index])
        controls.append(Control(NAMES[index], *figures, beaten))
    return controls


def scrambled(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by canonical name, with the entries of every matrix in random order; head, embedding and map stay."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: tensor
        if tensor.ndim < 2 or name.startswith(_KEPT)
        else tensor.flatten()[torch.randperm(tensor.numel(), generator=generator).to(tensor.device)].view_as(tensor)
        for name, tensor in weights.items()
    }
