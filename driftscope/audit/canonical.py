"""A setting in the form that published layouts can hold: what no config key says goes into the tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from driftscope.audit.setting import Lens, Setting
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter.build import target_token_ids


@dataclass(frozen=True)
class Canonical:
    """The same function of text and target, with ascending boundaries, embedding first, d2t as offsets, plain norms."""

    config: DrafterConfig
    weights: dict[str, Tensor]
    left: tuple[str, ...]
    """What neither config nor tensors can hold, in words."""


def canonical(setting: Setting) -> Canonical:
    """Fold what tensors can express into the tensors."""
    config, weights = setting.config, dict(setting.weights)
    for fold in (_order, _embed_first, _vocab, _offset, _rope_layout):
        config = fold(config, weights)
    if config.embedding == "target":
        weights.pop("embed_tokens.weight", None)
    if not config.final_norm and config.carry != "post":
        weights.pop("norm.weight", None)
    return Canonical(config, weights, _left(setting.lens))


def _order(config: DrafterConfig, weights: dict[str, Tensor]) -> DrafterConfig:
    boundaries = config.aux_boundaries
    if boundaries is None or list(boundaries) == sorted(boundaries):
        return config
    order = sorted(range(len(boundaries)), key=boundaries.__getitem__)
    for name, dim in (("fc.weight", 1), ("input_norm.weight", 0)):
        if name in weights:
            blocks = weights[name].chunk(len(boundaries), dim)
            weights[name] = torch.cat([blocks[i] for i in order], dim)
    norms = [weights.get(f"fc_norm.{i}.weight") for i in range(len(boundaries))]
    for place, source in enumerate(order):
        norm = norms[source]
        if norm is not None:
            weights[f"fc_norm.{place}.weight"] = norm
    return config.replace("user", "audit", aux_boundaries=tuple(sorted(boundaries)))


def _embed_first(config: DrafterConfig, weights: dict[str, Tensor]) -> DrafterConfig:
    if config.embed_first:
        return config
    parts = ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa")
    eagle3 = [f"layers.0.self_attn.{part}.weight" for part in parts]
    for name in [n for n in eagle3 if n in weights] if config.layer_form == "eagle3" else ["fc.weight"]:
        first, second = weights[name].chunk(2, 1)
        weights[name] = torch.cat([second, first], 1)
    return config.replace("user", "audit", embed_first=True)


def _vocab(config: DrafterConfig, weights: dict[str, Tensor]) -> DrafterConfig:
    if not config.reduced_vocab:
        return config
    ids = target_token_ids(config, weights.get("d2t")).cpu()
    weights["d2t"] = ids - torch.arange(len(ids))
    if "t2d" in weights:
        weights["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill_(0, ids, True)
    return config if config.vocab_map == "offset" else config.replace("user", "audit", vocab_map="offset")


def _offset(config: DrafterConfig, weights: dict[str, Tensor]) -> DrafterConfig:
    # The target's own layer brings its form of norm along.
    if not config.norm_offset or config.layer_config is not None:
        return config
    for name in [name for name in weights if "norm" in name]:
        weights[name] = weights[name] + config.norm_offset
    return config.replace("user", "audit", norm_offset=0.0)


def _rope_layout(config: DrafterConfig, weights: dict[str, Tensor]) -> DrafterConfig:
    """Interleaved pairs (2i, 2i + 1) become (i, i + d/2): the rows of q and k in another order."""
    if config.rope.layout == "neox" or config.rope.partial != 1.0 or config.kv_lora_rank or config.layer_config:
        return config
    order = torch.cat([torch.arange(0, config.head_dim, 2), torch.arange(1, config.head_dim, 2)])
    rows = [
        name for name in weights if name.startswith("layers.") and (".self_attn.q" in name or ".self_attn.k" in name)
    ]
    for name in rows:
        tensor = weights[name]
        if "_norm." in name:
            weights[name] = tensor[order]
        else:
            weights[name] = tensor.unflatten(0, (-1, config.head_dim))[:, order].flatten(0, 1)
    return config.replace("user", "audit", **{"rope.layout": "neox"})


def _left(lens: Lens) -> tuple[str, ...]:
    words = (
        (lens.feature_shift, f"features of {-lens.feature_shift} positions before"),
        (lens.token_shift, f"tokens of {-lens.token_shift} positions before"),
        (lens.chain_shift, f"chains {lens.chain_shift:+d} positions off the rows of the text"),
        (lens.lag, f"predictions {lens.lag:+d} positions off"),
        (not lens.own_rows, "rows of earlier steps dropped"),
        (lens.last_after_norm, "the last boundary after the final norm"),
    )
    return tuple(word for present, word in words if present)
