"""Twins of a sound drafter, each broken in one way: other switches, or other tensors under the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from driftscope.audit.canonical import canonical
from driftscope.audit.setting import Lens, Setting
from driftscope.checkpoints.config import DrafterConfig

Break = Callable[[DrafterConfig, dict[str, Tensor], Tensor], tuple[Mapping[str, Any], Mapping[str, Tensor]]]
"""(config, weights, target head) -> switches and tensors that change."""


@dataclass(frozen=True)
class Twin:
    """One fault. `switch` and `alternative` are what an audit must name first; `needs` are switches the drafter must have."""

    name: str
    code: str
    switch: str
    alternative: str
    break_: Break
    needs: Mapping[str, Any] = field(default_factory=dict)
    lens: Mapping[str, Any] = field(default_factory=dict)
    """How the text is shown otherwise than in training, where no switch and no tensor says so."""


def _scale(rope_theta: float) -> float:
    return rope_theta / 100 if rope_theta > 5000 else rope_theta * 1000


def _other_ids(config: DrafterConfig, head: Tensor) -> Tensor:
    """Draft ids as another run would have chosen them, ascending."""
    generator = torch.Generator().manual_seed(5)
    return torch.randperm(len(head), generator=generator)[: config.draft_vocab_size].sort().values


def _qkv(weights: Mapping[str, Tensor], change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    names = [f"layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    return {name: change(weights[name]) for name in names}


def _swap_columns(tensor: Tensor) -> Tensor:
    first, second = tensor.chunk(2, 1)
    return torch.cat([second, first], 1)


def _aux_order(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    """Trained on the same boundaries, highest first."""
    count = config.num_aux
    blocks = weights["fc.weight"].chunk(count, 1)
    changed = {"fc.weight": torch.cat(blocks[::-1], 1)}
    if config.fc_norm:
        changed |= {f"fc_norm.{i}.weight": weights[f"fc_norm.{count - 1 - i}.weight"] for i in range(count)}
    return {}, changed


def _carry(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    return {"carry": "pre" if config.carry == "post" else "post"}, {}


def _shift(by: int) -> Break:
    return lambda config, weights, head: ({"aux_boundaries": tuple(b + by for b in config.aux_boundaries or ())}, {})


def _one_boundary(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    boundaries = list(config.aux_boundaries or ())
    boundaries[-1] += 2
    return {"aux_boundaries": tuple(boundaries)}, {}


def _d2t(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    return {}, {"d2t": _other_ids(config, head) - torch.arange(config.draft_vocab_size)}


def _placeholder(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    return {}, {"d2t": torch.zeros(config.draft_vocab_size, dtype=torch.long)}


def _random_embedding(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    rows = torch.randn(config.vocab_size, config.hidden_size, generator=torch.Generator().manual_seed(6))
    return {"embedding": "own"}, {"embed_tokens.weight": rows}


def _random_head(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    own = weights["lm_head.weight"]
    rows = torch.randn(own.shape, generator=torch.Generator().manual_seed(6)) * own.float().std()
    return {}, {"lm_head.weight": rows.to(own.dtype)}


def _offset(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    return {}, {name: weight - 1 for name, weight in weights.items() if "norm" in name}


def _interleaved(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    """Trained with interleaved pairs: rows of q and k in the other order."""
    order = torch.arange(config.head_dim).view(2, -1).T.flatten()
    changed = _qkv(weights, lambda w: w.unflatten(0, (-1, config.head_dim))[:, order].flatten(0, 1))
    changed.pop("layers.0.self_attn.v_proj.weight")
    return {}, changed


def _one_norm(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    """One norm over all aux features, with the weights of the norms of each where it has them."""
    wide = config.num_aux * config.target_hidden_size
    norms = [weights[f"fc_norm.{i}.weight"] for i in range(config.num_aux)] if config.fc_norm else []
    return {"fc_norm": False, "input_norm": True}, {
        "input_norm.weight": torch.cat(norms) if norms else torch.ones(wide)
    }


def _scaled(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    return {"rope.scaling": {"rope_type": "linear", "factor": 4.0}}, {}


def _nothing(config: DrafterConfig, weights: dict[str, Tensor], head: Tensor) -> Any:
    return {}, {}


TWINS = (
    Twin("carry", "DS201", "carry", "", _carry),
    Twin("aux +1", "DS202", "aux_boundaries", "", _shift(1)),
    Twin("aux -1", "DS202", "aux_boundaries", "", _shift(-1)),
    Twin("aux order", "DS202", "aux_boundaries", "", _aux_order),
    Twin("one boundary", "DS202", "aux_boundaries", "", _one_boundary),
    Twin("d2t of another run", "DS203", "vocab_map", "rows of the target's head", _d2t),
    Twin("d2t all zero", "DS203", "vocab_map", "rows of the target's head", _placeholder),
    Twin("rope theta", "DS204", "rope.theta", "", lambda c, w, h: ({"rope.theta": _scale(c.rope.theta)}, {})),
    Twin("rope layout", "DS204", "rope.layout", "interleaved", _interleaved),
    Twin("residual", "DS205", "residual", "raw", lambda c, w, h: ({"residual": "normed"}, {}), {"residual": "raw"}),
    Twin(
        "fc_norm left out", "DS205", "norms before fc", "one per aux feature",
        lambda c, w, h: ({"fc_norm": False}, {}), {"fc_norm": True},
    ),
    Twin("1 + w", "DS205", "norm_offset", "1 + w", _offset),
    Twin("random embedding", "DS207", "embedding", "target", _random_embedding, {"embedding": "target"}),
    Twin("random head", "DS207", "head", "the target's rows", _random_head),
    Twin("position", "DS208", "position_increment", "1", lambda c, w, h: ({"position_increment": 2}, {})),
    Twin("draft rows", "DS210", "draft_kv", "kept", lambda c, w, h: ({"draft_kv": "round"}, {})),
    Twin("state first", "DS209", "embed_first", "state first", lambda c, w, h: ({}, _qkv(w, _swap_columns))),
    Twin("final norm", "DS205", "final_norm", "on", lambda c, w, h: ({"final_norm": False}, {}), {"final_norm": True}),
    Twin(
        "double norm", "DS205", "double_norm", "off", lambda c, w, h: ({"double_norm": True}, {}), {"double_norm": False}
    ),
    Twin("single norm", "DS205", "norms before fc", "", _one_norm, {"input_norm": False}),
    Twin("rope scaling", "DS204", "rope.scaling", "off", _scaled),
    Twin("token lag", "DS208", "token_shift", "row i embeds token i+1", _nothing, lens={"token_shift": -1}),
    Twin("feature lag", "DS208", "feature_shift", "row i reads position i", _nothing, lens={"feature_shift": -1}),
    Twin("prediction lag", "DS208", "prediction_lag", "row i predicts token i+2", _nothing, lens={"lag": 1}),
    *(
        Twin(f"chain {by:+d}", "DS208", "chain_position", "step 1 of anchor t stands at t", _nothing, lens={"chain_shift": by})
        for by in (-2, -1, 1, 2)
    ),
)  # fmt: skip
BY_NAME = {twin.name: twin for twin in TWINS}
PAIRS = (("aux +1", "carry"), ("d2t of another run", "aux order"))


def fits(twin: Twin, config: DrafterConfig) -> bool:
    return all(getattr(config, switch) == value for switch, value in twin.needs.items())


def broken(
    names: tuple[str, ...], config: DrafterConfig, weights: Mapping[str, Tensor], head: Tensor
) -> tuple[DrafterConfig, dict[str, Tensor]]:
    """The config and tensors with all these faults. head: the target's, [vocab, hidden]."""
    tensors = dict(weights)
    for name in names:
        switches, changed = BY_NAME[name].break_(config, tensors, head)
        config = config.replace("user", name, **switches) if switches else config
        tensors |= changed
    return config, tensors


def shown(names: tuple[str, ...]) -> Lens:
    """How the text is shown with all these faults."""
    lens = Lens()
    for name in names:
        lens = replace(lens, **BY_NAME[name].lens)
    return lens


def mended(found: Setting, sound: Setting) -> bool:
    """Whether a setting is the sound one: the same switches, lens and tensors once both are in the published form.

    Tensors within the rounding of bfloat16, ids exactly. Tensors that the sound one does not have do not count: they are
    switched off, or the switches differ.
    """
    ours, theirs = canonical(found), canonical(sound)
    if ours.config.switches() != theirs.config.switches() or found.lens != sound.lens:
        return False
    return all(_same(ours.weights.get(name), tensor) for name, tensor in theirs.weights.items())


def _same(ours: Tensor | None, theirs: Tensor) -> bool:
    if ours is None or ours.shape != theirs.shape:
        return False
    if not theirs.is_floating_point():
        return torch.equal(ours.cpu(), theirs.cpu())
    return torch.allclose(
        ours.float().cpu(), theirs.float().cpu(), rtol=2**-7, atol=2**-7 * float(theirs.float().abs().max())
    )


def weak(weights: Mapping[str, Tensor], share: float, seed: int = 0) -> dict[str, Tensor]:
    """The same drafter, worse everywhere: noise of `share` of each matrix' own size added to it; head and map stay."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor
        if tensor.ndim < 2 or name.startswith(("lm_head", "embed_tokens"))
        else tensor + share * tensor.float().std() * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        for name, tensor in weights.items()
    }
