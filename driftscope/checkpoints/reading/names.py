"""Tensor names: wrappers taken off, and the published spellings turned into the canonical ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from driftscope.errors import CheckpointError

# Put in the middle of a name by torch.compile, FSDP and activation checkpointing.
_INNER = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
# Names of the drafter inside a larger module: where one is present, only its tensors belong to the drafter.
_DRAFTER = ("draft_model.", "drafter.", "eagle_module.", "ea_layer.", "eagle_layer.", "spec_layer.")
_OUTER = ("module.", "model.", "base_model.", "student.", "net.")

_PROJECTION = r"(?:self_attn\.(?:[qkvo]_proj|q_[ab]_proj|kv_a_proj_with_mqa|kv_b_proj)|mlp\.(?:gate|up|down)_proj)\.(?:weight|bias)"
_NORM = (
    r"(?:(?:input_layernorm|hidden_norm|post_attention_layernorm|self_attn\.(?:[qk]_norm|q_a_layernorm|kv_a_layernorm))"
    r"\.weight|self_attn\.sinks)"
)
CANONICAL = re.compile(
    rf"^(?:fc\.(?:weight|bias)|input_norm\.weight|fc_norm\.\d+\.weight|embed_tokens\.weight|lm_head\.weight|norm\.weight"
    rf"|mask_hidden|d2t|t2d|layers\.\d+\.(?:{_PROJECTION}|{_NORM}))$"
)
_AUX_NORMS = {"aux_norm_low": 0, "aux_norm_mid": 1, "aux_norm_high": 2}


def unwrap(stored: Iterable[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """(bare name -> stored name, stored names outside the drafter, notes on what was taken off).

    Raises:
        CheckpointError: two stored names become one.
    """
    names = list(stored)
    bare: dict[str, str] = {}
    seen: set[str] = set()
    inner_names = {name: _without_inner(name, seen) for name in names}
    holder = next((d for d in _DRAFTER if any(_inside(n, d) for n in inner_names.values())), None)
    outside = [] if holder is None else [name for name, inner in inner_names.items() if not _inside(inner, holder)]
    for name in names:
        if name in outside:
            continue
        short = inner_names[name]
        if holder is not None:
            seen.add(holder)
            short = short[short.index(holder) + len(holder) :]
        while prefix := next((p for p in (*_DRAFTER, *_OUTER) if short.startswith(p)), None):
            short = short[len(prefix) :]
            seen.add(prefix)
        if short in bare:
            raise CheckpointError(f"{bare[short]} and {name} are both {short} once their wrappers are off; keep one")
        bare[short] = name
    notes = [f"wrapper prefix {', '.join(repr(p) for p in sorted(seen))} taken off the tensor names"] if seen else []
    if outside:
        notes.append(f"{len(outside)} tensors outside {holder!r} are not the drafter's and were not read")
    return bare, outside, notes


def canonical(bare: str) -> str | None:
    """The canonical name of a bare one, or None where it has none. Covers every EAGLE spelling: `midlayer.` (with or
    without a number), `layers.0.`, `transformer.`, `fusion_fc.`, `aux_norm_{low,mid,high}`, `draft_id_to_target_id`."""
    name = re.sub(r"^midlayer\.(\d+)\.", r"layers.\1.", bare)
    name = re.sub(r"^(?:midlayer|transformer)\.", "layers.0.", name)
    name = re.sub(r"^fusion_fc\.", "fc.", name)
    name = re.sub(r"^(aux_norm_(?:low|mid|high))\.", lambda m: f"fc_norm.{_AUX_NORMS[m[1]]}.", name)
    name = {"draft_id_to_target_id": "d2t", "target_id_in_draft": "t2d"}.get(name, name)
    return name if CANONICAL.match(name) else None


def _without_inner(name: str, seen: set[str]) -> str:
    for part in _INNER:
        if part in name:
            seen.add(part)
            name = name.replace(part, "")
    return name


def _inside(name: str, holder: str) -> bool:
    return name.startswith(holder) or f".{holder}" in name
