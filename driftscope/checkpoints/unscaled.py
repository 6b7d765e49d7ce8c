"""Weights that are float8 numbers without their scale: a cast of the stored values, where value times scale was meant.

A quantiser divides a matrix (a row, a block) by its scale so that its largest entry becomes the largest number of the
format, 448 for e4m3 and 57,344 for e5m2. Cast to bfloat16 as they are, the entries stay multiples on the coarse grid of
float8 and as large as that: neither happens to trained weights, which have 8 bits of mantissa and entries far below 10.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

FORMATS = {torch.float8_e4m3fn: "e4m3", torch.float8_e4m3fnuz: "e4m3 (fnuz)", torch.float8_e5m2: "e5m2"}
_SAMPLES = 4096
_CHUNK = 2**22
_NEAR = 0.5
"""Share of the format's largest number that the largest entry must reach; other rows or blocks may hold smaller ones."""
_LISTED = 3


def unscaled_float8(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> list[str]:
    """One line where matrices look like float8 without their scale; nothing otherwise.

    weights: by canonical name. names: canonical -> as stored. A few values are looked at first, so that a large file is not
    read for it.
    """
    found = {name: kind for name, tensor in weights.items() if (kind := format_of(tensor))}
    if not found:
        return []
    stored = [names.get(name, name) for name in found]
    listed = ", ".join(stored[:_LISTED]) + (f" and {len(stored) - _LISTED} more" if len(stored) > _LISTED else "")
    kinds = " and ".join(dict.fromkeys(found.values()))
    return [
        f"{listed}: looks like unscaled float8 ({kinds}): every entry is a float8 number and the largest are the format's own;"
        " export it again as value times scale, or keep float8 with its weight_scale tensors"
    ]


def format_of(tensor: Tensor) -> str:
    """The float8 format whose unscaled numbers a matrix holds; empty for any other tensor."""
    if tensor.ndim < 2 or not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return ""
    flat = tensor.reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLES)]
    for kind, word in FORMATS.items():
        if _on_grid(sample, kind) and all(_on_grid(part, kind) for part in flat.split(_CHUNK)):
            largest = max(float(part.abs().max()) for part in flat.split(_CHUNK))
            return word if largest >= _NEAR * torch.finfo(kind).max else ""
    return ""


def _on_grid(values: Tensor, kind: torch.dtype) -> bool:
    return bool((values.to(kind).to(values.dtype) == values).all())
