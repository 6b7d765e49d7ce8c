"""What a step takes in, recorded as a chain had it and as the real rows have it, and put in each other's place.

Three parts of a step can be exchanged: the `state` that enters it, the attention `pattern` of every layer and head, and the
`values` of the row that the step adds. As the chain had them they are `own`; as step 1 of the chain at anchor r = t + k - 1
has them, made from the target's features alone, they are `real`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from driftscope.chain.chain import Text
from driftscope.chain.patches import FACTORS
from driftscope.drafter.argmax import largest
from driftscope.drafter.model import Drafter
from driftscope.drafter.norms import rms

STATE = "state"


def factor_sites(factor: str, layers: int) -> tuple[str, ...]:
    """The sites at which a part of a step is put."""
    if factor == STATE:
        return (STATE,)
    return tuple(f"layers.{j}.{'attention' if factor == 'pattern' else 'v'}" for j in range(layers))


def patched_sites(layers: int) -> tuple[str, ...]:
    """The sites that are recorded: those of all factors."""
    return tuple(site for factor in FACTORS for site in factor_sites(factor, layers))


def recorded(step: int, rows: int, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The patched sites of a step, for observe(): states and values as they are, attention rows cut in two.

    `{site}.far` [anchor, head, row] is the mass on prefix rows, padded to `rows`, so that chunks fit together; `{site}.near`
    [anchor, head, own] that on the chain's own rows t .. r.
    """
    kept: dict[str, Tensor] = {}
    for name, value in values.items():
        if name.endswith(".attention"):
            far, near = value.split([value.shape[-1] - step, step], -1)
            kept[f"{name}.far"] = torch.nn.functional.pad(far, (0, rows - far.shape[-1])).contiguous()
            kept[f"{name}.near"] = near.clone()
        elif name == STATE or name.endswith(".v"):
            kept[name] = value.clone()
    return kept


@dataclass
class Record:
    """Callable for observe(): the patched sites among those that it reads (`recorded`), `top`, the draft id, and of the text's
    token `rank`, 0 outside the draft vocabulary, and `prob`, NaN there."""

    drafter: Drafter
    text: Text
    anchors: Int[Tensor, " anchor"]

    def __post_init__(self) -> None:
        self.rows = int(self.anchors[-1])
        ids = self.drafter.target_ids
        self.draft_ids = torch.full((self.drafter.config.vocab_size,), -1, device=ids.device)
        self.draft_ids[ids] = torch.arange(len(ids), device=ids.device)

    def __call__(self, step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = values["logits"].float()
        draft = self.draft_ids[self.text.token_ids[self.anchors[rows] + 1 + step]]
        score, known = logits.gather(-1, draft.clamp(min=0)[:, None]), draft >= 0
        return {
            **recorded(step, self.rows, values),
            "top": largest(logits),
            "rank": (1 + (logits > score).sum(-1)).where(known, 0),
            "prob": (score[:, 0] - logits.logsumexp(-1)).exp().where(known, torch.nan),
        }


@runtime_checkable
class Recorded(Protocol):
    """Where the values of a site come from."""

    def at(self, site: str, step: int, index: Int[Tensor, " row"], keys: int) -> Tensor:
        """The site at a step, for the anchors at these places; attention rows over `keys` keys: the first prefix rows, then the
        chain's own `step` rows."""


@dataclass(frozen=True)
class OwnRows:
    """Every step of undisturbed chains, as observe() returned it (`recorded`)."""

    steps: Sequence[dict[str, Tensor]]

    def at(self, site: str, step: int, index: Int[Tensor, " row"], keys: int) -> Tensor:
        held = self.steps[step - 1]
        if not site.endswith(".attention"):
            return held[site][index]
        return torch.cat([held[f"{site}.far"][index, :, : keys - step], held[f"{site}.near"][index]], -1)


@dataclass(frozen=True)
class RealRows:
    """Step 1 of the chains at the later anchors."""

    rows: dict[str, Tensor]
    anchors: Int[Tensor, " anchor"]
    """Of the chains that are patched."""
    ahead: Int[Tensor, "anchor step"]
    """Which of the rows stands where an anchor's chain is at a step."""

    def at(self, site: str, step: int, index: Int[Tensor, " row"], keys: int) -> Tensor:
        row = self.ahead[index, step - 1]
        if not site.endswith(".attention"):
            return self.rows[site][row]
        weights = self.rows[f"{site}.far"][row]
        anchors = self.anchors[index]
        # What is a prefix row to the real row is one of the chain's own from row t on.
        behind = anchors[:, None] + torch.arange(step - 1, device=index.device)
        near = weights.gather(-1, behind[:, None].expand(-1, weights.shape[1], -1))
        before = torch.arange(keys - step, device=index.device) < anchors[:, None]
        far = weights[..., : keys - step] * before[:, None]
        return torch.cat([far, near, self.rows[f"{site}.near"][row]], -1)


@dataclass(frozen=True)
class Exchange:
    """Intervention on stacked chains: from step 2 on every copy of a chain gets its own rows or the real ones.

    Row i of the stack belongs to anchor i // copies and copy i % copies. A copy in `resized` keeps the direction of its own
    rows at the RMS of the real ones.
    """

    site: str
    own: Recorded
    real: Recorded
    exchanged: Bool[Tensor, " copy"]
    resized: Bool[Tensor, " copy"] | None = None

    def acts(self, step: int) -> bool:
        return step >= 2

    def __call__(self, value: Tensor, step: int, rows: slice) -> Tensor:
        copies = len(self.exchanged)
        row = torch.arange(rows.start, rows.stop, device=value.device)
        index, copy = row // copies, row % copies
        shape = (-1, *[1] * (value.ndim - 1))
        own, real = (part.at(self.site, step, index, value.shape[-1]) for part in (self.own, self.real))
        put = torch.where(self.exchanged[copy].view(shape), real, own)
        if self.resized is not None:
            scale = rms(real) / rms(own).clamp_min(torch.finfo(torch.float32).tiny)
            put = torch.where(self.resized[copy].view(shape), (own.float() * scale[:, None]).to(own.dtype), put)
        return put.to(value.dtype)
