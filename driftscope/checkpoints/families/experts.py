"""Experts: published one by one, run as the stacked tensors that transformers' layers hold."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from driftscope.checkpoints.reading.files import TensorInfo
from driftscope.errors import CheckpointError

_ONE = re.compile(r"^(?P<place>.*\.experts)\.(?P<index>\d+)\.(?P<part>gate|up|down)_proj\.weight$")
_STACKED = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}
Parts = dict[str, list[tuple[str, ...]]]
"""Stacked name -> for each expert, the tensors that are laid one below the other."""


def stack(infos: Mapping[str, TensorInfo]) -> tuple[dict[str, TensorInfo], Parts]:
    """(infos with stacked names for single experts, what each of them is made of).

    Raises:
        CheckpointError: an expert that lacks a tensor, or has another shape than the others.
    """
    found: dict[str, dict[int, dict[str, str]]] = {}
    rest = dict(infos)
    for name in infos:
        if match := _ONE.match(name):
            found.setdefault(match["place"], {}).setdefault(int(match["index"]), {})[match["part"]] = name
            del rest[name]
    parts: Parts = {}
    for place, experts in found.items():
        for index in range(max(experts) + 1):
            absent = {"gate", "up", "down"} - experts.get(index, {}).keys()
            if absent:
                raise CheckpointError(
                    f"{place}.{index}.{sorted(absent)[0]}_proj.weight is missing, of {len(experts)} experts"
                )
        for stacked, kinds in _STACKED.items():
            names = [tuple(experts[index][kind] for kind in kinds) for index in range(len(experts))]
            first = infos[names[0][0]]
            other = next((n for row in names for n in row if infos[n] != first), None)
            if other or len(first.shape) != 2:
                odd = other or names[0][0]
                raise CheckpointError(
                    f"{odd} is {infos[odd].dtype} {list(infos[odd].shape)}, {names[0][0]} {first.dtype}"
                    f" {list(first.shape)}; experts must agree"
                )
            name = f"{place}.{stacked}"
            if name in rest:
                raise CheckpointError(f"{name} is stored, and so are single experts; keep one")
            rest[name] = TensorInfo(first.dtype, (len(names), len(kinds) * first.shape[0], first.shape[1]))
            parts[name] = names
    return rest, parts


def split(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights with stacked experts taken apart, as they are published."""
    apart: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        place, _, stacked = name.rpartition(".")
        if not place.endswith(".experts") or stacked not in _STACKED:
            apart[name] = tensor
            continue
        kinds = _STACKED[stacked]
        for index, expert in enumerate(tensor):
            for kind, piece in zip(kinds, expert.chunk(len(kinds)), strict=True):
                apart[f"{place}.{index}.{kind}_proj.weight"] = piece
    return apart
