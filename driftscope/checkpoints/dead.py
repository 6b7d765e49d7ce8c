"""Dead tensors: weights through which nothing passes, and what follows from each for whoever runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from driftscope.checkpoints.config import DrafterConfig

_SAMPLES = 4096
_CHUNK = 2**22
_ATTENTION = "every position is attended to alike, whatever stands there"
_UPDATE = {"attn": "attention adds nothing to the state", "mlp": "the MLP adds nothing to the state"}
# (pattern of a canonical name, what follows where the whole tensor is 0). The first that matches decides.
_FOLLOWS: tuple[tuple[str, str], ...] = (
    (r"self_attn\.(q|k)_(proj|b_proj)|self_attn\.(q|k)_norm", _ATTENTION),
    (r"self_attn\.(v|o)_proj|self_attn\.kv_", _UPDATE["attn"]),
    (r"mlp\.(gate|up|down)_proj|mlp\.(.*experts\.)?(gate|up|down)_|post_attention_layernorm", _UPDATE["mlp"]),
    (r"^fc_norm\.(\d+)", "the drafter reads nothing of aux feature {0}: its share of the fused input is 0"),
    (r"^(fc|input_norm|eh_proj)\.", "the drafter reads nothing of the target's features"),
    (r"^lm_head\.", "every token gets the same logit: the output ignores its input"),
    (r"^norm\.|shared_head\.norm", "every token gets the same logit: the output ignores its input"),
    (r"^embed_tokens\.|(^|\.)(embed_norm|enorm)|layers\.0\.input_layernorm", "the drafter ignores the tokens"),
    (r"hidden_norm|(^|\.)(state_norm|hnorm)", "attention ignores the state that is carried"),
)
_OPTIONAL = re.compile(r"^(d2t|t2d|mask_hidden)|\.bias$|sinks?$|\.mlp\.gate\.weight$")


@dataclass(frozen=True)
class Dead:
    """One tensor through which nothing passes."""

    name: str
    """Canonical."""
    what: str
    """As the end of a sentence that begins with the tensor's name: `is all zero`."""
    follows: str

    def line(self, stored: str) -> str:
        """In one line, under the name that the file gives the tensor."""
        return f"{stored} {self.what}: {self.follows}; train it, or export it again"


def dead_tensors(config: DrafterConfig, weights: Mapping[str, Tensor]) -> list[Dead]:
    """The tensors of a drafter that pass nothing on, of `weights` by canonical name.

    A tensor counts as dead where all its entries are the same (norms: where all are 0 once `norm_offset` is added; vectors
    else: never), where all rows of the head are equal, and where fc has only zeros for a whole aux feature. A few values are
    looked at first, so that a large file is not read for it.
    """
    return [found for name, tensor in weights.items() for found in _dead(config, name, tensor)]


def _dead(config: DrafterConfig, name: str, tensor: Tensor) -> Iterator[Dead]:
    if _OPTIONAL.search(name) or not tensor.is_floating_point() or tensor.numel() < 2:
        return
    follows = _follows(name)
    if tensor.ndim == 1:
        if "norm" in name and _all(tensor, -config.norm_offset):
            yield Dead(name, f"is all {-config.norm_offset:g}" if config.norm_offset else "is all zero", follows)
        return
    first = tensor.flatten()[:1].item()
    if _all(tensor, first):
        yield Dead(name, "is all zero" if first == 0 else f"holds {first:.4g} everywhere", follows)
    elif name == "lm_head.weight" and _rows_equal(tensor):
        yield Dead(name, f"has {len(tensor):,} equal rows", follows)
    elif name == "fc.weight" and config.feature_source == "aux" and tensor.shape[1] % config.num_aux == 0:
        for index, block in enumerate(tensor.chunk(config.num_aux, 1)):
            if _all(block, 0.0):
                at = f" (boundary {config.aux_boundaries[index]})" if config.aux_boundaries else ""
                what = f"is zero in the {block.shape[1]:,} columns of aux feature {index}{at}"
                yield Dead(name, what, "its share of the fused input is 0")
    elif name == "fc.weight" and not config.fuses and tensor.shape[1] == config.hidden_size + config.target_hidden_size:
        embed, state = (
            ("the drafter ignores the tokens", "embedding"),
            ("the drafter ignores the target's features", "state"),
        )
        sizes = config.hidden_size, config.target_hidden_size
        order, widths = ((embed, state), sizes) if config.embed_first else ((state, embed), sizes[::-1])
        for (follows, half), block in zip(order, tensor.split(widths, 1), strict=True):
            if _all(block, 0.0):
                yield Dead(name, f"is zero in the {block.shape[1]:,} columns of the {half}", follows)


def _follows(name: str) -> str:
    for pattern, text in _FOLLOWS:
        if match := re.search(pattern, name):
            return text.format(*(group or "" for group in match.groups()))
    return "what comes after it ignores what comes before"


def _all(tensor: Tensor, value: float) -> bool:
    """Whether every entry is `value`."""
    rows = tensor.flatten(1) if tensor.ndim > 1 else tensor[None]
    stride = max(1, rows.numel() // _SAMPLES)
    # One row and one column: a block of columns of a larger matrix has no flat view.
    if bool((rows[0, :_SAMPLES] != value).any()) or bool(
        (rows[:: max(1, stride // rows.shape[1] | 1), 0] != value).any()
    ):
        return False
    size = max(1, _CHUNK // max(1, rows.shape[1]))
    return not any(bool((part != value).any()) for part in rows.split(size))


def _rows_equal(tensor: Tensor) -> bool:
    first = tensor[0]
    if not torch.equal(tensor[len(tensor) // 2], first):
        return False
    size = max(1, _CHUNK // max(1, tensor.shape[1]))
    return all(bool((part == first).all()) for part in tensor.split(size))
