"""Padded vocabularies: rows beyond the last token, which fast kernels want and nobody means.

An embedding row that no text reaches and a head row that cannot be drafted change nothing, so they are cut off. Sizes that
differ by anything but padding belong to different vocabularies.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.reading.board import Switchboard

_STEP, _MOST = 8, 1024
PADDED = "in the drafter: one of them is padded"
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"


def is_padding(one: int, other: int) -> bool:
    """Whether two sizes can be one vocabulary, padded differently: the larger is a multiple of 8, as every padded size
    is, and they are fewer than 1024 and at most a tenth apart."""
    small, large = sorted((one, other))
    return small < large and large % _STEP == 0 and large - small < _MOST and 10 * (large - small) <= large


def cut(board: Switchboard, name: str, rows: int) -> bool:
    """Cut the padding of a stored matrix down to `rows`; False where its other rows are no padding."""
    stored, width = board.shape(name)
    if stored <= rows or not is_padding(stored, rows):
        return False
    board.trim(name, (rows, width))
    board.warnings.append(f"{name} has {stored} rows: the {stored - rows} beyond {rows} tokens are padding and cut off")
    return True


def fit_vocabulary(config: DrafterConfig, size: int) -> DrafterConfig | None:
    """The config for a target of `size` tokens, where only the padding of the two differs; else None.

    Without d2t what can be drafted is what both have; a drafter's own embedding keeps the number of tokens it knows.
    """
    mine = config.vocab_size
    if not is_padding(mine, size):
        return None
    values: dict[str, int | None] = {"vocab_size": size}
    own = config.embedding == "own"
    if config.vocab_map == "none":
        values["draft_vocab_size"] = min(mine, size) if own or config.head == "own" else size
    if own and mine < size:
        values["known_tokens"] = mine
    return config.replace("target", f"{mine} {PADDED}", **values)


def fit_rows(config: DrafterConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with as many rows as a config from `fit_vocabulary` says: padding cut off, or zeros that no text
    reaches. Weights that fit are handed on as they are."""
    wanted = {EMBEDDING: config.vocab_size, "t2d": config.vocab_size, HEAD: config.draft_vocab_size}
    fitted = dict(weights)
    for name, rows in wanted.items():
        tensor = weights.get(name)
        if tensor is None or len(tensor) == rows or not is_padding(len(tensor), rows):
            continue
        if len(tensor) > rows:
            fitted[name] = tensor[:rows]
        elif name != HEAD:
            fitted[name] = torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])
    return fitted
