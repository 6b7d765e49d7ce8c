"""Quantised drafters, read as the weights that they stand for.

FP8 with a scale per tensor, row or block (DeepSeek, ModelOpt, compressed-tensors) and the integer formats of
compressed-tensors are dequantised here, each tensor when it is loaded; `refuse` names every other format. A weight is
its stored value times its scale, whatever the scale is called: `weight_scale_inv` is the inverse of what the weight was
multiplied by when it was quantised (DeepSeek-V3, inference/kernel.py). Packing of integers: compressed-tensors,
`pack_to_int32`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from driftscope.checkpoints.reading.files import Source, TensorInfo
from driftscope.errors import CheckpointError

FP8 = ("float8_e4m3fn", "float8_e5m2")
_SCALES = ("weight_scale_inv", "weight_scale")
# For activations and the KV cache of an engine: no part of the weights.
_ACTIVATIONS = ("input_scale", "input_zero_point", "output_scale", "k_scale", "v_scale", "q_scale", "kv_scale")
_FLOATS = ("float16", "bfloat16", "float32", "float8_e8m0fnu")
_BLOCK = (128, 128)
"""Where no config says it: what DeepSeek publishes."""
_ROWS = 1024
"""Dequantised at once, so that a large matrix needs no second copy of itself."""


@dataclass(frozen=True)
class _Plan:
    """How one weight is stored."""

    weight: str
    scale: str
    format: str
    """In words, for people."""
    shape: tuple[int, int]
    spread: Callable[[Tensor, slice], Tensor]
    """(scale, rows) -> factors that fit those rows of the weight."""
    bits: int | None = None
    """Of integers packed into int32; None where each value is stored by itself."""
    zero: str | None = None
    groups: str | None = None
    """Tensor that gives each column its group, where groups are not neighbours."""

    @property
    def stored(self) -> tuple[str, ...]:
        return tuple(name for name in (self.weight, self.scale, self.zero, self.groups) if name)


def dequantised(source: Source) -> Source:
    """The source with quantised weights in place of their parts, in the dtype that the config names, else float32.

    A source without any is returned as it is. Parts that belong to no known format stay, for `refuse` to name.

    Raises:
        CheckpointError: a scale that is missing or does not fit its weight.
    """
    settings = _settings(source.config)
    plans = dict(_plans(source, settings))
    if not plans:
        return source
    parts = {name for plan in plans.values() for name in plan.stored}
    parts |= {name for name in source.infos if name.endswith(tuple(f".{part}" for part in _ACTIVATIONS))}
    parts |= {f"{name.removesuffix('weight')}weight_shape" for name in plans}
    dtype = _dtype(source.config)
    infos = {name: info for name, info in source.infos.items() if name not in parts}
    infos |= {name: TensorInfo(dtype, plan.shape) for name, plan in plans.items()}

    def load(name: str) -> Tensor:
        if name not in plans:
            return source.load(name)
        return _dequantise(plans[name], source.load, getattr(torch, dtype))

    kinds = sorted({plan.format for plan in plans.values()})
    told = f"{len(plans)} weights are stored as {' and '.join(kinds)}; dequantised to {dtype}"
    return dataclasses.replace(source, infos=infos, load=load, warnings=[*source.warnings, told])


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The quantisation part of a config, of the model or of its language model."""
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, Mapping) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(found := holder.get(key), Mapping):
                return found
    return {}


def _weight_settings(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What compressed-tensors says of the weights, group by group."""
    groups = settings.get("config_groups")
    found = (
        [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        if isinstance(groups, Mapping)
        else []
    )
    return [weights for weights in found if isinstance(weights, Mapping)]


def _dtype(config: Mapping[str, Any]) -> str:
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, Mapping) else {}):
        for key in ("dtype", "torch_dtype"):
            if holder.get(key) in ("bfloat16", "float16", "float32"):
                return str(holder[key])
    return "float32"


def _plans(source: Source, settings: Mapping[str, Any]) -> Iterator[tuple[str, _Plan]]:
    for name, info in source.infos.items():
        base, _, part = name.rpartition(".")
        if part == "weight_packed" and info.dtype == "int32" and f"{base}.weight_shape" in source.infos:
            yield f"{base}.weight", _packed(source, name, base, settings)
        elif part == "weight" and info.dtype in (*FP8, "int8"):
            if f"{base}.weight_scale_2" in source.infos or f"{base}.SCB" in source.infos:
                continue
            yield name, _plain(source, name, base, settings)


def _plain(source: Source, name: str, base: str, settings: Mapping[str, Any]) -> _Plan:
    shape = _matrix(name, source.infos[name].shape)
    scale = _scale(source, name, base)
    kind = "FP8" if source.infos[name].dtype in FP8 else "8-bit integers"
    how, spread = _spread(scale, source.infos[scale].shape, name, shape, settings)
    zero = f"{base}.weight_zero_point"
    zero_there = kind != "FP8" and zero in source.infos
    if zero_there and source.infos[zero].shape != source.infos[scale].shape:
        raise CheckpointError(f"{zero} has shape {list(source.infos[zero].shape)}, unlike {scale}")
    return _Plan(name, scale, f"{kind} with a scale per {how}", shape, spread, zero=zero if zero_there else None)


def _packed(source: Source, name: str, base: str, settings: Mapping[str, Any]) -> _Plan:
    told = source.load(f"{base}.weight_shape").flatten().tolist()
    if len(told) != 2 or not all(float(size).is_integer() and size > 0 for size in told):
        raise CheckpointError(f"{base}.weight_shape is {told}, expected the two sizes of a matrix")
    shape = int(told[0]), int(told[1])
    rows, words = _matrix(name, source.infos[name].shape)
    stated = {bits for group in _weight_settings(settings) if isinstance(bits := group.get("num_bits"), int)} or {4, 8}
    # Other widths are packed in one way by early versions and in another by later ones.
    fitting = [bits for bits in sorted(stated & {1, 2, 4, 8}) if (rows, words) == (shape[0], -(-shape[1] * bits // 32))]
    if len(fitting) != 1:
        told_bits = " or ".join(map(str, sorted(stated)))
        raise CheckpointError(
            f"{name} has shape {[rows, words]}: not {list(shape)} values of {told_bits} bits, as far as they are read here"
            " (1, 2, 4 or 8)"
        )
    scale = _scale(source, name, base)
    how, spread = _spread(scale, source.infos[scale].shape, name, shape, settings)
    groups, zero = (f"{base}.weight_{part}" for part in ("g_idx", "zero_point"))
    if groups in source.infos and source.infos[groups].shape != (shape[1],):
        raise CheckpointError(f"{groups} has shape {list(source.infos[groups].shape)}, expected [{shape[1]}]")
    return _Plan(
        name, scale, f"{fitting[0]}-bit integers with a scale per {how}", shape, spread, fitting[0],
        zero if zero in source.infos else None, groups if groups in source.infos else None,
    )  # fmt: skip


def _matrix(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise CheckpointError(f"{name} is quantised and has shape {list(shape)}, expected a matrix")
    return shape[0], shape[1]


def _scale(source: Source, name: str, base: str) -> str:
    found = next((f"{base}.{part}" for part in _SCALES if f"{base}.{part}" in source.infos), None)
    if found is None:
        raise CheckpointError(
            f"{name} is stored as {source.infos[name].dtype} without a scale ({base}.{' or '.join(_SCALES)}); export it again"
        )
    if source.infos[found].dtype not in _FLOATS:
        raise CheckpointError(f"{found} is stored as {source.infos[found].dtype}, expected a float")
    return found


def _spread(
    scale: str, seen: tuple[int, ...], name: str, shape: tuple[int, int], settings: Mapping[str, Any]
) -> tuple[str, Callable[[Tensor, slice], Tensor]]:
    """What the scale stands for, in words, and how it is laid over rows of the weight."""
    rows, columns = shape
    numel = 1
    for size in seen:
        numel *= size
    if numel == 1:
        return "tensor", lambda s, part: s.reshape(1, 1)
    if seen in ((rows,), (rows, 1)):
        return "row", lambda s, part: s.reshape(rows, 1)[part]
    high, wide = _block(settings)
    if seen == (-(-rows // high), -(-columns // wide)):

        def blocks(s: Tensor, part: slice) -> Tensor:
            places = torch.arange(part.start, part.stop) // high
            return s[places].repeat_interleave(wide, 1)[:, :columns]

        return f"block of {high} x {wide}", blocks
    if len(seen) == 2 and seen[0] == rows and seen[1] and columns % seen[1] == 0:
        size = columns // seen[1]
        return f"group of {size}", lambda s, part: s[part].repeat_interleave(size, 1)
    raise CheckpointError(
        f"{scale} has shape {list(seen)}, which fits {name} of {list(shape)} neither as a scale per row nor per group nor"
        f" per block of {high} x {wide}"
    )


def _block(settings: Mapping[str, Any]) -> tuple[int, int]:
    stated = settings.get("weight_block_size")
    stated = stated or next(
        (g["block_structure"] for g in _weight_settings(settings) if g.get("block_structure")), None
    )
    if stated is None:
        return _BLOCK
    if not (isinstance(stated, list) and len(stated) == 2 and all(type(n) is int and n > 0 for n in stated)):
        raise CheckpointError(f"config: the block of a scale is {stated!r}, expected two whole numbers")
    return stated[0], stated[1]


def _dequantise(plan: _Plan, load: Callable[[str], Tensor], dtype: torch.dtype) -> Tensor:
    stored, scale = load(plan.weight), load(plan.scale).float()
    zero = load(plan.zero) if plan.zero else None
    if zero is not None and plan.bits and zero.dtype == torch.int32:
        zero = unpack(zero.T, plan.bits, plan.shape[0]).T
        if zero.shape != scale.shape:
            raise CheckpointError(f"{plan.zero} holds {list(zero.shape)} values, unlike {plan.scale}")
    order = None
    if plan.groups and bool((groups := load(plan.groups).long()).ge(0).all()):
        if int(groups.max()) >= scale.shape[-1]:
            raise CheckpointError(f"{plan.groups} names group {int(groups.max())} of {scale.shape[-1]}")
        order = groups
    result = torch.empty(plan.shape, dtype=dtype)
    for start in range(0, plan.shape[0], _ROWS):
        part = slice(start, min(start + _ROWS, plan.shape[0]))
        values = (unpack(stored[part], plan.bits, plan.shape[1]) if plan.bits else stored[part]).float()
        if order is not None:
            factor = scale[part][:, order]
            values = values if zero is None else values - zero.float()[part][:, order]
        else:
            factor = plan.spread(scale, part)
            values = values if zero is None else values - plan.spread(zero.float(), part)
        result[part] = (values * factor).to(dtype)
    return result


def unpack(words: Tensor, bits: int, columns: int) -> Tensor:
    """Int8 [row, columns] of the signed values that int32 [row, word] holds, 32 // bits a word, the lowest bits first."""
    each = 32 // bits
    shifts = torch.arange(each, dtype=torch.int32) * bits
    values = (words.unsqueeze(-1) >> shifts) & (2**bits - 1)
    return (values.flatten(1)[:, :columns] - 2 ** (bits - 1)).to(torch.int8)
