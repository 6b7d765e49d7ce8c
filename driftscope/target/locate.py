"""The parts of a transformers model that driftscope reads, found by what they do and not by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from driftscope.errors import TargetError
from driftscope.target.placement import execution_device


def first_line(error: Exception) -> str:
    """An error of another library, fit for a message of one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def forward(model: Any, token_ids: Tensor, **kwargs: Any) -> Any:
    """The model's output for token ids [B, T], without KV cache or gradients."""
    with torch.no_grad():
        device = execution_device(model.get_input_embeddings())
        return model(input_ids=token_ids.to(device), use_cache=False, return_dict=True, **kwargs)


def find_layers(model: Module, count: int, name: str) -> tuple[Module, ModuleList]:
    """The list of `count` decoder layers and the module that owns it; raises TargetError when there is none."""
    found = [
        (owner, child)
        for owner in model.modules()
        for child in owner.children()
        if isinstance(child, ModuleList) and len(child) == count
    ]
    if not found:
        raise TargetError(f"target {name}: {type(model).__name__} has no list of {count} decoder layers")
    # Other lists of that length (norms, gates, an image encoder's layers) are smaller.
    return max(found, key=lambda pair: sum(parameter.numel() for parameter in pair[1].parameters()))


def check_head(model: Any, owner: Module, layers: ModuleList, name: str) -> tuple[Module, float, float | None]:
    """The final norm, logit scale and softcap of a model, found and checked by a forward over two texts of six tokens.

    The final norm is the last child of the layers' owner to run after them, whatever its name. Raises TargetError when
    the LM head on its output does not give the model's logits, or a later token changes them.
    """
    head: Any = model.get_output_embeddings()
    outputs: list[tuple[Module, Any]] = []
    # Without layers every child runs after them.
    after: list[int] = [] if len(layers) else [0]
    hooks = [
        module.register_forward_hook(lambda module, _, output: outputs.append((module, output)))
        for module in owner.children()
        if module is not layers
    ]
    if len(layers):
        hooks.append(layers[-1].register_forward_hook(lambda *_: after.append(len(outputs))))
    size = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(6).remainder(size).repeat(2, 1)
    ids[1, -1] = (ids[1, -1] + 1) % size
    try:
        logits = forward(model, ids).logits
    except Exception as error:
        raise TargetError(f"target {name}: a forward of 6 tokens failed: {first_line(error)}") from error
    finally:
        for hook in hooks:
            hook.remove()
    last = outputs[after[-1] :] if after else []
    width = model.get_input_embeddings().weight.shape[1]
    if not last or not isinstance(last[-1][1], Tensor) or last[-1][1].shape[-1] != width:
        raise TargetError(f"target {name}: {type(owner).__name__} has no norm after its last layer")
    if not torch.isfinite(logits).all():
        raise TargetError(f"target {name}: its logits are not finite in {model.dtype}; try --dtype float32")
    norm, hidden = last[-1]
    # Batched bfloat16 products differ by a few steps of 2^-8.
    tolerance = 1e-4 if model.dtype == torch.float32 else 2.0**-6
    if not _close(logits[0, :-1], logits[1, :-1], tolerance):
        raise TargetError(f"target {name}: a later token changes earlier logits; expected a causal language model")
    raw = head(hidden)
    for scale, softcap in _logit_scales(model.config.get_text_config(decoder=True)):
        if _close(scale_logits(raw, scale, softcap), logits, tolerance):
            return norm, scale, softcap
    raise TargetError(f"target {name}: its logits are not its LM head on the output of its final norm")


def _logit_scales(config: Any) -> list[tuple[float, float | None]]:
    """The (scale, softcap) pairs that the config can mean; engines differ on whether `logits_scaling` divides."""
    scales = [1.0]
    for key in ("logit_scale", "lm_head_multiplier", "logits_scaling"):
        value = getattr(config, key, None)
        if value:
            scales += [float(value), 1.0 / float(value)]
    if getattr(config, "dim_model_base", None):
        scales.append(config.dim_model_base / config.hidden_size)
    cap = getattr(config, "final_logit_softcapping", None)
    return [(scale, float(cap)) for scale in scales if cap] + [(scale, None) for scale in scales]


def scale_logits(logits: Tensor, scale: float, softcap: float | None) -> Tensor:
    """softcap tanh(scale logits / softcap), or scale logits without a cap."""
    if scale != 1.0:
        logits = logits * scale
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def _close(left: Tensor, right: Tensor, tolerance: float) -> bool:
    left, right = left.float(), right.float().to(left.device)
    return bool((left - right).abs().max() <= tolerance * right.abs().max())
