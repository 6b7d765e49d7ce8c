"""A setting: one way of running the same weights. Hypotheses turn one setting into another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.chain.drafter_inputs import drafter_features, needed_boundaries
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import Drafter, build_drafter
from driftscope.errors import TargetError

Reach = Literal["all", "chain", "later", "logits", "labels"]
"""Where a change enters: everything is run anew; the chains, not the keys and values that a single layer makes of the text;
the steps from 2 on; the head only; only what is compared with."""
_FUSED = (
    "feature_source", "final_feature_normed", "aux_boundaries", "num_aux", "fc", "fc_bias", "fc_norm", "input_norm",
    "layer_form", "norm_offset", "rms_norm_eps",
)  # fmt: skip


@dataclass(frozen=True)
class Lens:
    """How a text is shown to the drafter, where no switch of DrafterConfig says it."""

    feature_shift: int = 0
    """Row i reads the features of position i + shift; negative only, the others are not known when a token is drafted."""
    token_shift: int = 0
    """Row i embeds token i + 1 + shift; negative only."""
    lag: int = 0
    """Row i is taken to predict token i + 2 + lag."""
    chain_shift: int = 0
    """A chain's rows stand so many positions from where they follow the rows of the text."""
    own_rows: bool = True
    """Whether a step sees the rows of the steps 2 .. k-1 before it."""
    last_after_norm: bool = False
    """Whether the last aux feature is the target's state after the final norm."""
    shuffle: Literal["features", "tokens"] | None = None
    """Negative controls: features of another prompt, tokens in another order."""


@dataclass(frozen=True)
class Setting:
    """Switches, weights by canonical name, and the lens."""

    config: DrafterConfig
    weights: Mapping[str, Tensor]
    lens: Lens = field(default_factory=Lens)

    def changed(self, changes: Mapping[str, Any], weights: Mapping[str, Tensor], lens: Mapping[str, Any]) -> Setting:
        """A copy with these switches, tensors and parts of the lens."""
        config = self.config.replace("user", "audit", **changes) if changes else self.config
        return Setting(config, {**self.weights, **weights} if weights else self.weights, replace(self.lens, **lens))

    def fused_by(self) -> tuple[Any, ...]:
        """What the states that features are fused to depend on; tensors by identity."""
        tensors = [(name, id(t)) for name, t in self.weights.items() if name.startswith(("fc", "input_norm"))]
        lens = self.lens.feature_shift, self.lens.last_after_norm, self.lens.shuffle == "features"
        return (*(getattr(self.config, switch) for switch in _FUSED), *tensors, *lens)

    def build(
        self, embedding: Tensor, head: Tensor, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> Drafter:
        """The drafter of this setting; embedding and head are the target's. CheckpointError where the shapes do not fit."""
        return build_drafter(
            self.config, self.weights, target_embedding=embedding, target_head=head, device=device, dtype=dtype
        )

    def boundaries(self, num_layers: int) -> tuple[int, ...]:
        """Boundaries of the target that this setting reads."""
        wanted = set(needed_boundaries(self.config, num_layers))
        return tuple(sorted(wanted - {num_layers} if self.lens.last_after_norm else wanted))

    def features(self, capture: Capture) -> Tensor:
        """What the drafter reads, [token, width], before any shift."""
        if not self.lens.last_after_norm:
            return drafter_features(self.config, capture)
        first = (self.config.aux_boundaries or ())[:-1]
        missing = [b for b in first if b not in capture.boundaries]
        if missing:
            raise TargetError(
                f"capture of prompt {capture.prompt_id} holds no boundary {missing}; capture it with them"
            )
        return torch.cat([*(capture.boundaries[b] for b in first), capture.final], -1)
