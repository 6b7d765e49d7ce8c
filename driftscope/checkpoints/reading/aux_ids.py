"""Which boundaries of the target feed the drafter: one resolver for every convention in use.

Engines and trainers write layer ids in two ways: as boundaries (the stream after b layers) or as the layer whose output
is read (boundary minus one). Which one a list uses follows from where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from driftscope.checkpoints.reading.board import Switchboard
from driftscope.errors import CheckpointError

Convention = Literal["boundary", "layer output", "nested"]
# In order of precedence. `nested` lists mean layer outputs unless they show otherwise, which takes the target's depth.
_KEYS: tuple[tuple[str, Convention], ...] = (
    ("eagle_aux_hidden_state_layer_ids", "boundary"),
    ("eagle_config.eagle_aux_hidden_state_layer_ids", "nested"),
    ("eagle_config.layer_ids", "nested"),
    ("aux_hidden_states_layer_ids", "layer output"),
    ("aux_hidden_state_layer_ids", "layer output"),
    ("eagle3_layers_to_capture", "layer output"),
    ("target_layer_ids", "layer output"),
    ("dflash_config.target_layer_ids", "layer output"),
)


@dataclass(frozen=True)
class AuxIds:
    """A list of aux layer ids as the config states it."""

    ids: tuple[int, ...]
    key: str
    convention: Convention


def find_aux_ids(board: Switchboard) -> AuxIds | None:
    """The list that the config holds, by precedence of its key.

    Raises:
        CheckpointError: not a list of distinct whole numbers.
    """
    for key, convention in (*board.stated.aux_ids, *_KEYS):
        found = board.raw_value(key)
        if found is None:
            continue
        ids = found[0]
        whole = isinstance(ids, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in ids)
        if not whole or not ids or len(set(ids)) != len(ids) or min(ids) < 0:
            raise CheckpointError(f"config: {key} is {ids!r}, expected distinct layer ids; --aux gives boundaries")
        # The speculators format writes boundaries, under whichever key.
        spelled_out = board.raw.get("speculators_model_type") is not None
        return AuxIds(tuple(ids), key, "boundary" if spelled_out else cast(Convention, convention))
    return None


def default_boundaries(num_layers: int) -> tuple[int, int, int]:
    """(2, n//2, n-3): the published default, entering layer 2, the middle, and the third from the end.

    Source: the target models of SafeAILab/EAGLE; the same as layer outputs (1, n//2-1, n-4)."""
    return (2, num_layers // 2, num_layers - 3)


def to_boundaries(aux: AuxIds, num_layers: int | None) -> tuple[tuple[int, ...], str]:
    """(boundaries ascending, how they were read). Nested lists are layer outputs, unless the last one is the number of
    layers (a layer output cannot be) or they equal the default boundaries."""
    ids = tuple(sorted(aux.ids))
    if aux.convention == "boundary":
        return ids, "boundaries as they stand"
    if aux.convention == "nested" and num_layers is not None:
        if ids[-1] == num_layers:
            return ids, "boundaries as they stand: the last is the number of layers"
        if ids == default_boundaries(num_layers):
            return ids, "boundaries as they stand: they are the published default"
    provisional = aux.convention == "nested" and num_layers is None
    note = ", unless the target's depth shows otherwise" if provisional else ""
    return tuple(i + 1 for i in ids), f"layer outputs, so +1{note}"


def resolve_aux(board: Switchboard) -> None:
    """Put `aux_boundaries` (None where the config is silent) and `aux_ids`, once `num_aux` is known."""
    aux = find_aux_ids(board)
    count = board.get("num_aux")
    stated = board.number(*(f"{part}num_target_layers" for part in ("", "dflash_config.", "eagle_config.")))
    layers = depth(board.target)
    if stated and layers is not None and stated[0] != layers:
        board.warnings.append(f"the config says {stated[1]} = {stated[0]}, and the target has {layers} layers")
    layers = layers if layers is not None or stated is None else stated[0]
    if aux is None:
        board.put("aux_boundaries", None, "default", "2, n//2, n-3 of the target's n layers")
        board.put("aux_ids", None, "default")
        if count == 3 and board.user("aux_boundaries") is None:
            board.warnings.append(
                "the aux layers are not recorded: boundaries 2, n//2, n-3 of the target's n layers assumed, the published"
                " default (--aux for others)"
            )
    else:
        boundaries, reading = to_boundaries(aux, layers)
        board.put("aux_boundaries", boundaries, "config", f"{aux.key} = {list(aux.ids)}: {reading}")
        board.put("aux_ids", aux.ids if aux.convention == "nested" else None, "config", aux.key)
        if list(aux.ids) != sorted(aux.ids):
            board.warnings.append(f"{aux.key} is not ascending; engines sort it, and so is it read")
    given = board.get("aux_boundaries")
    if given is not None and layers is not None and max(given) > layers and board.target is None:
        held = board.origins["aux_boundaries"].detail
        board.problems.append(
            f"boundary {max(given)} ({held}) is not in a target of {layers} layers (num_target_layers); another target,"
            " or give --aux"
        )
    if given is not None and len(given) != count:
        held = board.origins["aux_boundaries"].detail
        raise CheckpointError(f"fc reads {count} aux features, but {len(given)} are listed ({held}); see --aux")
    if given is None and count != 3:
        board.problems.append(f"fc reads {count} aux features and the config does not say which: give --aux")


def depth(target: Any | None) -> int | None:
    """The number of layers of a target's text config."""
    value = getattr(target, "num_hidden_layers", None)
    return value if isinstance(value, int) else None


def spelled(boundaries: Sequence[int] | None) -> str:
    return "2, n//2, n-3" if boundaries is None else ", ".join(map(str, boundaries))
