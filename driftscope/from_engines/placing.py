"""From the layer ids of a dump to boundaries of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftscope.errors import DriftscopeError
from driftscope.from_engines.formats import Dump, Format, Ids, Last


@dataclass(frozen=True)
class Placed:
    """What each state of a dump is taken to be."""

    boundaries: tuple[int | None, ...]
    """Of the states of the stack; None for one that is a final state after the norm."""
    last: Last | None
    """What the final state is; None where the dump has none."""
    column: int | None
    """Where the final state is in the stack; None where it is stored beside it, or not at all."""
    how: str
    """In words, how the ids were read."""
    layers: int
    """n of the target."""

    def with_last(self, last: Last) -> Placed:
        """The same with the final state before (`pre`) or after (`post`) the norm."""
        if self.column is None:
            return replace(self, last=last)
        boundaries = list(self.boundaries)
        boundaries[self.column] = None if last == "post" else self.layers
        return replace(self, boundaries=tuple(boundaries), last=last)


def place(
    item: Format,
    dump: Dump,
    num_layers: int,
    *,
    layers: Sequence[int] | None = None,
    ids: Ids | None = None,
    last: Last | None = None,
) -> Placed:
    """The boundaries of a dump's states by the convention of its writer, or as the user says.

    Raises DriftscopeError where the number of ids does not fit, or an id is no layer of the target.
    """
    count = dump.states.shape[1]
    named = tuple(layers) if layers is not None else item.default(num_layers) if item.default else None
    if named is None:
        raise DriftscopeError(
            f"{dump.name}: {count} states a token, and {item.writer} has no default; name their --layers"
        )
    # speculators adds n to the ids of whoever chooses some.
    convention = ids or item.ids
    top = num_layers - (convention == "layer-output")
    if item.stacked and len(named) == count - 1 and top not in named:
        named = (*named, top)
    if len(named) != count:
        raise DriftscopeError(
            f"{dump.name}: {count} states a token, but {len(named)} ids ({_list(named)}); name all with --layers, in order"
        )
    boundaries = tuple(layer + (convention == "layer-output") for layer in named)
    outside = [b for b in boundaries if not 0 <= b <= num_layers]
    if outside:
        other = "boundary" if convention == "layer-output" else "layer-output"
        raise DriftscopeError(
            f"{dump.name}: ids {_list(named)} read as {convention} ids give boundary {outside[0]}, the target has 0 to"
            f" {num_layers}; --ids {other}?"
        )
    if len(set(boundaries)) != len(boundaries):
        raise DriftscopeError(f"{dump.name}: ids {_list(named)} name a layer twice")
    how = f"ids {_list(named)} of {item.writer}, read as {_KINDS[convention]}: boundaries {_list(boundaries)}"
    if dump.last is not None:
        return Placed(boundaries, last or item.last, None, how, num_layers)
    column = boundaries.index(num_layers) if num_layers in boundaries else None
    placed = Placed(boundaries, None if column is None else last or "pre", column, how, num_layers)
    return placed.with_last("post") if placed.last == "post" else placed


_KINDS = {"boundary": "boundaries", "layer-output": "layer outputs"}


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
