"""The index of the largest score."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

_BLOCK = 128


def largest(scores: Float[Tensor, "*row token"]) -> Int[Tensor, "*row"]:
    """Of every row, the first index where several are equal. On a CPU several times faster than argmax over wide rows,
    since it looks for the block first: only the search for a value runs in vector instructions there."""
    if scores.device.type != "cpu" or scores.shape[-1] % _BLOCK or scores.shape[-1] == 0:
        return scores.argmax(-1)
    blocks = scores.unflatten(-1, (-1, _BLOCK))
    block = blocks.amax(-1).argmax(-1, keepdim=True)
    within = blocks.gather(-2, block[..., None].expand(*block.shape, _BLOCK))
    return block[..., 0] * _BLOCK + within[..., 0, :].argmax(-1)
