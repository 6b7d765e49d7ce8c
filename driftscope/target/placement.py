"""Where weights lie: a device for each part of a pair, and weights that accelerate has put elsewhere."""

from __future__ import annotations

import os
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from driftscope.errors import TargetError


def resolve_device(device: str | torch.device, flag: str = "--device") -> torch.device:
    """`auto` is CUDA where there is one, else the CPU. TargetError for a device that torch does not see."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise TargetError(f"no such device: {device}; expected auto, cpu, cuda or cuda:N ({flag})") from error
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        raise TargetError(f"device {device} asked for, but torch sees {seen} CUDA devices ({flag})")
    return place


def execution_device(module: Module) -> torch.device:
    """Where a module computes; with accelerate's offloading its weights may lie elsewhere."""
    hook: Any = getattr(module, "_hf_hook", None)
    place = getattr(hook, "execution_device", None)
    if place is None:
        return next(module.parameters()).device
    return torch.device(place if isinstance(place, str | torch.device) else f"cuda:{place}")


def weight_of(module: Module) -> Tensor:
    """A module's weight, a copy on the CPU where accelerate has moved it to memory or disk."""
    weight = module.get_parameter("weight")
    if not weight.is_meta:
        return weight
    from accelerate.utils import align_module_device

    with align_module_device(module, execution_device="cpu"):
        return module.get_parameter("weight").detach().clone()


def be_deterministic() -> None:
    """Have torch choose deterministic kernels for the rest of the process; those that have none are an error."""
    # cuBLAS reads this when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"] | dict[str, Any]
"""As transformers takes it."""
