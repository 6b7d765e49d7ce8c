"""A drafter that is being trained, read as a checkpoint would be; nothing of it is copied where dtype and device agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftscope.checkpoints import fit_to_target
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.opening import read_source
from driftscope.checkpoints.reading.files import from_state_dict
from driftscope.errors import CheckpointError

Live = nn.Module | Mapping[str, Tensor]
_INNER = ("_orig_mod", "module", "_fsdp_wrapped_module", "draft_model", "drafter", "eagle_module", "ea_layer")
"""Where wrappers and training modules keep the drafter."""


def read_live(
    drafter: Live, config: Any, overrides: Mapping[str, Any] | None, target_config: Any
) -> tuple[DrafterConfig, dict[str, Tensor]]:
    """Switches, fitted to the target, and weights by canonical name, detached and sharing memory.

    config: a dict or a transformers config; None takes the module's own. Weights are not checked for NaN: a training that
    has diverged is no reason to stop it. Raises CheckpointError or TargetError in one line.
    """
    state = drafter.state_dict() if isinstance(drafter, nn.Module) else drafter
    source = from_state_dict(state, config_dict(drafter, config))
    reading = read_source(source, overrides, target_config)
    if reading.problems:
        raise CheckpointError(f"the drafter in training: {reading.problems[0]}")
    assert reading.config is not None  # without problems there are switches
    weights = {name: reading.load(name) for name in reading.names}
    maps = {"d2t": torch.int64, "t2d": torch.bool}
    weights |= {name: weights[name].to(dtype) for name, dtype in maps.items() if name in weights}
    return fit_to_target(reading.config, target_config), weights


def config_dict(drafter: Live, config: Any = None) -> dict[str, Any]:
    """The config as config.json would hold it; {} where there is none."""
    module: Any = drafter
    while config is None and isinstance(module, nn.Module):
        config = getattr(module, "config", None)
        module = next((found for name in _INNER if isinstance(found := getattr(module, name, None), nn.Module)), None)
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    if hasattr(config, "to_dict"):
        # As JSON: a config may hold enums, dtypes and configs of its own.
        return dict(json.loads(json.dumps(config.to_dict(), default=str)))
    raise CheckpointError(f"config is a {type(config).__name__}, expected a dict or a transformers config")
