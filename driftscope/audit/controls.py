"""Negative controls: what a drafter scores that knows nothing of the text. Without a margin to them nothing can be told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from driftscope.audit.decide import Limits, sign_flip_p
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
        Setting(setting.config, scrambled(setting), setting.lens),
    )
    measured = [runner.run(other, depth=1)[0] for other in settings]
    margins = np.stack([other.mean_loss[:, 0] - scores.mean_loss[:, 0] for other in measured], 1)
    p, _ = sign_flip_p(margins, flips=limits.flips)
    controls = []
    for index, other in enumerate(measured):
        loss, agreement = float(other.mean_loss[:, 0].mean()), float(other.agreement[:, 0].mean())
        gain, more = float(margins[:, index].mean()), float(scores.agreement[:, 0].mean()) - agreement
        beaten = bool(p[index] < limits.alpha and gain >= limits.loss and more >= limits.agreement)
        controls.append(Control(NAMES[index], loss, agreement, gain, more, float(p[index]), beaten))
    return controls


def scrambled(setting: Setting) -> dict[str, Tensor]:
    """The setting's weights with the entries of every matrix in random order; head, embedding and map stay."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: tensor
        if tensor.ndim < 2 or name.startswith(_KEPT)
        else tensor.flatten()[torch.randperm(tensor.numel(), generator=generator).to(tensor.device)].view_as(tensor)
        for name, tensor in setting.weights.items()
    }
