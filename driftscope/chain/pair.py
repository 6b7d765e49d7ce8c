"""A drafter with its target, checked and ready to be probed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from driftscope.chain.block import chain_of
from driftscope.chain.self_test import PassesNothingError, check_hooks
from driftscope.checkpoints import Checkpoint, fit_to_target, open_checkpoint, target_warnings
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.dead import dead_tensors
from driftscope.checkpoints.opening import recorded_target
from driftscope.checkpoints.reading.files import open_source
from driftscope.drafter import Drafter, build_drafter
from driftscope.errors import CheckpointError, TargetError
from driftscope.target.model import Target, load_target, target_config
from driftscope.target.placement import DeviceMap, resolve_device


@dataclass(eq=False)
class Pair:
    """A drafter and its target. `config` has every switch resolved for this target."""

    checkpoint: Checkpoint
    config: DrafterConfig
    target: Target
    drafter: Drafter
    warnings: tuple[str, ...] = ()

    @cached_property
    def chain(self) -> Any:
        """A Chain, or a BlockChain for a block drafter."""
        return chain_of(self.drafter)

    @cached_property
    def drafter_nn(self) -> Any:
        """nnsight envelope of the chain; sites are at `.drafter.<site name>` and fire once a step."""
        from nnsight import NNsight

        return NNsight(self.chain)

    @property
    def target_nn(self) -> Any:
        """nnsight envelope of the target's Hugging Face model."""
        return self.target.nn


def load_pair(
    checkpoint: str | Path | Checkpoint,
    target: str | Path | Target | None = None,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    overrides: Mapping[str, Any] | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device_map: DeviceMap | None = None,
    drafter_device: str | torch.device | None = None,
) -> Pair:
    """Load a drafter checkpoint and its target, and check that the hooks see what they should.

    Args:
        checkpoint: a path, a Hub id, or a checkpoint that is open already.
        target: a Hugging Face folder or Hub name, or a Target that is loaded already; None takes the name in the checkpoint's
            config.
        device: of the target; `auto` is CUDA where there is one.
        dtype: of target and drafter; `auto` is float32 on a CPU and the target's own on CUDA.
        overrides: switches of DrafterConfig by name.
        revision: of a Hub id.
        trust_remote_code: run code that comes with the target.
        device_map: spreads the target over devices, memory and disk, as transformers does.
        drafter_device: where the drafter runs, beside its target's first layers by default.

    Returns:
        The pair, every switch resolved.

    Raises:
        CheckpointError: no drafter, or one that does not fit.
        TargetError: a target that cannot be loaded.
    """

    if target is None:
        target = _recorded(checkpoint, revision)
    # Before the target, which can take minutes to load; a bare checkpoint is opened by the sizes in its config.
    told = target.text_config if isinstance(target, Target) else target_config(target, trust_remote_code)
    opened = None if told is None else _open(checkpoint, overrides, revision, told)
    loaded = (
        target
        if isinstance(target, Target)
        else load_target(
            target, device=device, dtype=as_dtype(dtype), trust_remote_code=trust_remote_code, device_map=device_map
        )
    )
    opened = opened or _open(checkpoint, overrides, revision, loaded.text_config)
    config = fit_to_target(opened.config, loaded.text_config)
    drafter = build_drafter(
        config,
        opened.weights,
        target_embedding=loaded.embedding_weight,
        target_head=loaded.head_weight,
        device=loaded.device if drafter_device is None else resolve_device(drafter_device, "--drafter-device"),
        dtype=loaded.dtype,
    )
    pair = Pair(opened, config, loaded, drafter, (*opened.warnings, *target_warnings(opened, loaded.name)))
    try:
        check_hooks(pair.drafter_nn)
    except PassesNothingError as error:
        raise CheckpointError(f"{opened.path}: {error}; a tensor behind it is damaged or was never trained") from error
    return pair


def _open(
    checkpoint: str | Path | Checkpoint, overrides: Mapping[str, Any] | None, revision: str | None, target_config: Any
) -> Checkpoint:
    """The checkpoint, for this target. CheckpointError for one with a tensor that passes nothing on."""
    opened = checkpoint
    if not isinstance(opened, Checkpoint):
        opened = open_checkpoint(opened, overrides=overrides, revision=revision, target_config=target_config)
    used = {name: tensor for name, tensor in opened.weights.items() if name not in opened.never_applied}
    if dead := dead_tensors(opened.config, used):
        more = f"; {len(dead) - 1} more: driftscope inspect names them" if len(dead) > 1 else ""
        raise CheckpointError(f"{opened.path}: {dead[0].line(opened.names.get(dead[0].name, dead[0].name))}{more}")
    return opened


def _recorded(checkpoint: str | Path | Checkpoint, revision: str | None) -> str:
    """The target that a checkpoint names. TargetError where it names none."""
    if isinstance(checkpoint, Checkpoint):
        path, name = checkpoint.path, checkpoint.target_name
    else:
        source = open_source(checkpoint, revision)
        path, name = source.path, recorded_target(source.config) or (source.path if source.inside else None)
    if name is None:
        raise TargetError(f"{path} does not name its target; name it with --target")
    return name


def as_dtype(name: str | torch.dtype) -> Any:
    """`float32`, `bf16`, ... as a torch dtype; `auto` stays."""
    if not isinstance(name, str) or name == "auto":
        return name
    known = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "float": "float32"}
    dtype = getattr(torch, known.get(name, name), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TargetError(f"--dtype {name} is not known; use auto, float32, bfloat16 or float16")
    return dtype
