"""The drafter's rotary embedding, from every place where a config may hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

_KNOWN = ("linear", "dynamic", "yarn", "llama3", "longrope", "deepseek_yarn", "proportional")


def resolve_rope(
    board: Switchboard, *, default_theta: tuple[float, str] | None = None, default_max: int | None = None
) -> None:
    """Put `rope.*`. Theta: `rope_theta`, else `rope_parameters.rope_theta` (transformers 5), else the stored
    `rotary_emb.inv_freq`, else 10000, which is what the trainers use when the config is silent. Never the target's.

    Args:
        default_theta: (value, whose default) where the layout has a default of its own that needs no warning.
        default_max: position limit of the layout's config class, where it has one.
    """
    parameters = _parameters(board)
    found = board.real("rope_theta")
    inside = parameters.get("rope_theta")
    if found is not None:
        board.put("rope.theta", found[0], "config", found[1])
        if isinstance(inside, (int, float)) and inside != found[0]:
            board.warnings.append(f"rope_theta is {found[0]:g} in the config and {inside:g} in its rope block")
    elif isinstance(inside, (int, float)) and not isinstance(inside, bool) and inside > 0:
        board.put("rope.theta", float(inside), "config", "rope_parameters.rope_theta")
    elif default_theta is not None:
        board.put("rope.theta", default_theta[0], "default", default_theta[1])
    else:
        board.put("rope.theta", 10000.0, "default", "rope_theta is not in the config")
        if board.user("rope.theta") is None:
            board.warnings.append(
                "rope theta is not recorded: 10000 is assumed, as the trainers do (--rope-theta for another)"
            )
    scaling = {name: value for name, value in parameters.items() if name not in ("rope_theta", "partial_rotary_factor")}
    kind = scaling.pop("type", None)
    kind = scaling.get("rope_type", kind) or "default"
    if kind in ("default", "mrope") or "mrope_section" in scaling:
        if kind == "mrope" or "mrope_section" in scaling:
            board.warnings.append("rope has sections for images (mrope); on text they are plain rope, which is used")
        kind = "default"
    kind = {"su": "longrope"}.get(kind, kind)
    if kind == "default":
        board.put("rope.scaling", None, "config" if parameters else "default", "rope_scaling" if parameters else "")
    elif kind in _KNOWN:
        board.put("rope.scaling", {**scaling, "rope_type": kind}, "config", "rope_scaling")
    else:
        raise CheckpointError(f"config: rope type {kind!r} is none of {', '.join(_KNOWN)} (--set rope.scaling=null)")
    partial = board.real("partial_rotary_factor")
    if partial is None and isinstance(parameters.get("partial_rotary_factor"), float):
        partial = parameters["partial_rotary_factor"], "rope_parameters.partial_rotary_factor"
    board.put("rope.partial", *((partial[0], "config", partial[1]) if partial else (1.0, "default")))
    limit = board.number("max_position_embeddings")
    if limit:
        board.put("rope.max_position", limit[0], "config", limit[1])
    elif default_max:
        board.put("rope.max_position", default_max, "default", "of the layout's config class")
    else:
        board.put("rope.max_position", 2048, "default")


def _parameters(board: Switchboard) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        block = board.raw.get(key)
        if block is None:
            continue
        if not isinstance(block, Mapping):
            raise CheckpointError(f"config: {key} is {block!r}, expected an object or null")
        if block and all(isinstance(value, Mapping) for value in block.values()):
            chosen = "full_attention" if "full_attention" in block else sorted(block)[0]
            board.warnings.append(f"{key} differs by layer type; that of {chosen} is used")
            block = block[chosen]
        merged |= {name: value for name, value in block.items() if value is not None}
    return merged
