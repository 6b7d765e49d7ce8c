"""A drafter against its target: what the target settles, and whether the sizes fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.reading.aux_ids import AuxIds, default_boundaries, depth, to_boundaries
from driftscope.checkpoints.reading.padding import PADDED, fit_vocabulary
from driftscope.errors import TargetError

if TYPE_CHECKING:
    from driftscope.checkpoints.checkpoint import Checkpoint


def text_config(target_config: Any | None) -> Any | None:
    """The language model's part of a transformers config."""
    get = getattr(target_config, "get_text_config", None)
    return get() if callable(get) else target_config


def fit_to_target(config: DrafterConfig, target_config: Any) -> DrafterConfig:
    """The config with its boundaries settled by the target's depth, once the sizes are known to fit.

    Boundaries that the config leaves open become (2, n//2, n-3); a nested list is read as its own rule says, given n.

    Raises:
        TargetError: another width, vocabulary or depth than the drafter was made for, or a target too shallow for the
            default boundaries.
    """
    target = text_config(target_config)
    config = _check_sizes(config, target)
    if config.feature_source != "aux":
        return config
    n = depth(target)
    if n is None:
        raise TargetError("the target's config does not say how many layers it has (num_hidden_layers)")
    origin = config.origins.get("aux_boundaries")
    if config.aux_ids is not None and not (origin and origin.source == "user"):
        key = config.origins["aux_ids"].detail if "aux_ids" in config.origins else "eagle_config"
        boundaries, reading = to_boundaries(AuxIds(config.aux_ids, key, "nested"), n)
        config = config.replace("config", f"{key} = {list(config.aux_ids)}: {reading}", aux_boundaries=boundaries)
    elif config.aux_boundaries is None:
        boundaries = default_boundaries(n)
        if len(set(boundaries)) < 3 or boundaries != tuple(sorted(boundaries)) or config.num_aux != 3:
            raise TargetError(
                f"the default boundaries 2, n//2, n-3 are {', '.join(map(str, boundaries))} for {n} layers, but the"
                f" drafter reads {config.num_aux} ascending ones: give --aux"
            )
        config = config.replace("default", f"2, n//2, n-3 with n = {n}", aux_boundaries=boundaries)
    _check_boundaries(config, n)
    return config


def target_warnings(checkpoint: Checkpoint, target_name: str | None) -> tuple[str, ...]:
    """A warning where the checkpoint records another target than the one given; sizes are `fit_to_target`'s matter."""
    found = []
    recorded = checkpoint.target_name
    if recorded and target_name and _plain(recorded) != _plain(target_name):
        found.append(f"the checkpoint records the target {recorded}, and {target_name} was given")
    origin = checkpoint.config.origins.get("vocab_size")
    if origin is not None and origin.source == "target" and origin.detail.endswith(PADDED):
        found.append(f"a vocabulary of {checkpoint.config.vocab_size} in the target, {origin.detail}")
    return tuple(found)


def _plain(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()


def _check_sizes(config: DrafterConfig, target: Any) -> DrafterConfig:
    """The config, with the vocabulary of the target where the two differ in padding only."""
    for switch, attribute, what in (
        ("target_hidden_size", "hidden_size", "features of width"),
        ("vocab_size", "vocab_size", "a vocabulary of"),
    ):
        mine, theirs = getattr(config, switch), getattr(target, attribute, None)
        if theirs is not None and theirs != mine:
            if switch == "vocab_size" and (fitted := fit_vocabulary(config, theirs)) is not None:
                return fitted
            origin = config.origins.get(switch)
            where = f" ({origin.source}: {origin.detail})" if origin and origin.detail else ""
            raise TargetError(f"the drafter expects {what} {mine}{where}, the target has {theirs}: not its target")
    return config


def _check_boundaries(config: DrafterConfig, layers: int) -> None:
    boundaries = config.aux_boundaries or ()
    outside = [b for b in boundaries if not 0 <= b <= layers]
    if outside:
        raise TargetError(
            f"boundary {outside[0]} is not in 0..{layers}: the target has {layers} layers, the drafter reads"
            f" {', '.join(map(str, boundaries))}; another target, or give --aux"
        )
    if len(set(boundaries)) != len(boundaries) or list(boundaries) != sorted(boundaries):
        raise TargetError(f"boundaries {', '.join(map(str, boundaries))} are not ascending and distinct: give --aux")
    if len(boundaries) != config.num_aux:
        raise TargetError(f"{len(boundaries)} boundaries for a drafter that reads {config.num_aux}: give --aux")
