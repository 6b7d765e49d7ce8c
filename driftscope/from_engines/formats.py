"""What each engine and trainer stores: names, shapes and the convention of its layer ids.

Facts as of vLLM 0.32 (the connector that goes with `extract_hidden_states`), speculators 0.3 to 0.9 (offline data
generation), SpecForge 0.2 (`prepare_hidden_states.py`) and TorchSpec of 2026 (offline features, debug dumps). A boundary is
the stream before a layer; a layer output has the id of the layer, so boundary minus one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.errors import DriftscopeError

Ids = Literal["boundary", "layer-output"]
Last = Literal["pre", "post", "either"]
"""The last state before the final norm, after it, or one of the two."""


@dataclass(frozen=True, eq=False)
class Dump:
    """One text as it was stored."""

    name: str
    """Of the file, with the row where it holds several."""
    token_ids: Int[Tensor, " T"]
    states: Float[Tensor, "T state H"]
    """In the order of the layer ids."""
    last: Float[Tensor, "T H"] | None = None
    """Where it is stored beside the others and not among them."""
    loss_mask: Bool[Tensor, " T"] | None = None
    """The tokens of the answers, where the file says which."""


@dataclass(frozen=True)
class Format:
    """How a peer writes."""

    name: str
    writer: str
    ids: Ids
    last: Last
    default: Callable[[int], tuple[int, ...]] | None
    """Layer ids for n layers where the user of the peer chose none; None where the peer has no such default."""
    fits: Callable[[Path, Mapping[str, Any]], bool]
    read: Callable[[Path, Mapping[str, Any], int], list[Dump]]
    """(file, what it holds, width of the target) to texts, checked for sizes that fit together."""
    stacked: bool = False
    """Whether the last state is one of the stack, by the id n."""


_registered: list[Format] = []


def register(item: Format) -> None:
    """Make a layout of dumps known to this process; it is tried before the shipped ones."""
    _registered.insert(0, item)


def formats() -> tuple[Format, ...]:
    """Every layout in the order in which they are tried."""
    return (*_registered, *FORMATS)


def recognised(path: Path, held: Mapping[str, Any], wanted: str = "auto") -> Format:
    """The format of a file. DriftscopeError where it is none, or not the wanted one."""
    for item in formats():
        if wanted in ("auto", item.name) and item.fits(path, held):
            return item
    names = ", ".join(name[:40] for name in list(held)[:6]) or "nothing"
    known = ", ".join(dict.fromkeys(item.name for item in formats()))
    kind = f"not what {wanted} writes" if wanted != "auto" else f"not a dump of {known}"
    raise DriftscopeError(f"{path}: {kind} (it holds {names}); --format chooses one of {known}")


def _dump(name: str, token_ids: Tensor, states: Tensor, last: Tensor | None, loss_mask: Tensor | None) -> Dump:
    length = len(token_ids)
    for what, value in (("states", states), ("last states", last), ("entries of a loss mask", loss_mask)):
        if value is not None and len(value) != length:
            raise DriftscopeError(f"{name}: {length} tokens, but {len(value)} {what}; it is cut off, or of two texts")
    if length < 2:
        raise DriftscopeError(f"{name}: {length} tokens; a text needs at least 2")
    return Dump(name, token_ids, states, last, loss_mask)


def check_length(path: Path, held: Mapping[str, Any], longest: int) -> None:
    """Raises DriftscopeError for a text that no target could read, before anything of it is."""
    batch = held.get("batch")
    for name in ("token_ids", "input_ids"):
        for part in (held, batch if isinstance(batch, Mapping) else {}):
            ids = part.get(name)
            length = max(ids.shape, default=0) if isinstance(ids, Tensor) else 0
            if length > longest:
                raise DriftscopeError(
                    f"{path}: {length:,} tokens, but the target reads no text of more than {longest:,}"
                )


def _tensor(path: Path, held: Mapping[str, Any], name: str, dims: tuple[int, ...]) -> Tensor:
    value = held.get(name)
    if not isinstance(value, Tensor) or value.ndim not in dims or not _is_plain(value):
        found = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise DriftscopeError(
            f"{path}: {name} has {found}, expected a plain tensor of {' or '.join(map(str, dims))} dimensions"
        )
    return value.detach()


def _is_plain(value: Tensor) -> bool:
    return value.layout is torch.strided and value.device.type == "cpu" and not value.is_complex()


def _row(path: Path, held: Mapping[str, Any], name: str) -> Tensor:
    """One value a token, with or without a batch of one in front."""
    value = _tensor(path, held, name, (1, 2))
    if value.ndim == 2 and len(value) != 1:
        raise DriftscopeError(f"{path}: {name} has shape {list(value.shape)}, expected one text a file")
    return value.reshape(-1)


def _ids(path: Path, held: Mapping[str, Any], name: str) -> Tensor:
    ids = _row(path, held, name)
    if ids.is_floating_point() or ids.dtype is torch.bool:
        raise DriftscopeError(f"{path}: {name} is {_dtype(ids)}, expected whole numbers")
    return ids.long()


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _states(path: Path, held: Mapping[str, Any], name: str, dims: tuple[int, ...]) -> Tensor:
    value = _tensor(path, held, name, dims)
    if not value.is_floating_point() or value.dtype.itemsize < 2:
        raise DriftscopeError(f"{path}: {name} is {_dtype(value)}, expected states of 16 bits or more")
    return value


def _wide(path: Path, held: Mapping[str, Any], name: str, width: int) -> Tensor:
    """States side by side, [T, state * H] with or without a batch of one in front, as [T, state, H]."""
    value = _states(path, held, name, (2, 3))
    if value.ndim == 3:
        if len(value) != 1:
            raise DriftscopeError(f"{path}: {name} has shape {list(value.shape)}, expected one text a file")
        value = value[0]
    if not value.shape[1] or value.shape[1] % width:
        raise DriftscopeError(
            f"{path}: {name} is {value.shape[1]} wide, not a multiple of the target's {width}; another target?"
        )
    return value.unflatten(1, (-1, width))


def _narrow(path: Path, held: Mapping[str, Any], name: str, width: int) -> Tensor | None:
    if held.get(name) is None:
        return None
    value = _wide(path, held, name, width)
    if value.shape[1] != 1:
        raise DriftscopeError(f"{path}: {name} is {value.shape[1]} states wide, expected one of {width}")
    return value[:, 0]


def _mask(path: Path, held: Mapping[str, Any]) -> Tensor | None:
    # Some types have no comparison of their own.
    return None if held.get("loss_mask") is None else _row(path, held, "loss_mask").to(torch.float32) > 0


def _stack(path: Path, held: Mapping[str, Any], width: int) -> list[Dump]:
    """vLLM's connector: [T, state, H] and the tokens."""
    states = _states(path, held, "hidden_states", (3,))
    if states.shape[2] != width:
        raise DriftscopeError(f"{path}: its states are {states.shape[2]} wide, the target's {width}; another target?")
    return [_dump(str(path), _ids(path, held, "token_ids"), states, None, _mask(path, held))]


def _list(path: Path, held: Mapping[str, Any], width: int) -> list[Dump]:
    """speculators before 0.5: a list with one tensor [T, H] a layer."""
    parts = {f"hidden_states[{place}]": part for place, part in enumerate(held["hidden_states"])}
    layers = [_wide(path, parts, name, width) for name in parts]
    lengths = sorted({len(layer) for layer in layers})
    if len(lengths) != 1:
        raise DriftscopeError(f"{path}: hidden_states holds {len(layers)} layers, of {_list_of(lengths)} tokens")
    ids = _ids(path, held, "input_ids")
    return [_dump(str(path), ids, torch.cat(layers, 1), None, _mask(path, held))]


def _list_of(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:6])) or "no"


def _pair(states: str, last: str) -> Callable[[Path, Mapping[str, Any], int], list[Dump]]:
    """Aux states side by side under one name, the last state under another."""

    def read(path: Path, held: Mapping[str, Any], width: int) -> list[Dump]:
        return [
            _dump(
                str(path),
                _ids(path, held, "input_ids"),
                _wide(path, held, states, width),
                _narrow(path, held, last, width),
                _mask(path, held),
            )
        ]

    return read


_BATCH = {"input_ids": 2, "hidden_states": 3, "last_hidden_states": 3, "loss_mask": 2, "attention_mask": 2}
"""Parts of a batch that are read, and their dimensions."""


def _training_step(path: Path, held: Mapping[str, Any], width: int) -> list[Dump]:
    """TorchSpec's debug dump of a step: a batch, padded on the right."""
    batch = held["batch"]
    parts = {
        name: _tensor(path, batch, name, (dims,))
        for name, dims in _BATCH.items()
        if batch.get(name) is not None or name in ("input_ids", "hidden_states")
    }
    sizes = {name: list(part.shape[:2]) for name, part in parts.items()}
    if len({tuple(size) for size in sizes.values()}) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise DriftscopeError(f"{path}: the parts of its batch are of different sizes: {told}")
    single, found = _pair("hidden_states", "last_hidden_states"), []
    for row, length in enumerate(_lengths(parts)):
        cut = {name: value[row, :length] for name, value in parts.items()}
        found += single(Path(f"{path} row {row}"), cut, width)
    return found


def _lengths(parts: Mapping[str, Tensor]) -> list[int]:
    """Tokens of each text of a batch."""
    if "attention_mask" not in parts:
        return [parts["input_ids"].shape[1]] * len(parts["input_ids"])
    return [int(count) for count in (parts["attention_mask"].to(torch.float32) > 0).sum(1)]


def _has(*names: str) -> Callable[[Path, Mapping[str, Any]], bool]:
    return lambda path, held: all(held.get(name) is not None for name in names)


def _is_list(path: Path, held: Mapping[str, Any]) -> bool:
    return isinstance(held.get("hidden_states"), list | tuple) and "input_ids" in held


def _is_step(path: Path, held: Mapping[str, Any]) -> bool:
    batch = held.get("batch")
    return isinstance(batch, Mapping) and {"input_ids", "hidden_states"} <= {str(name) for name in batch}


def _is_data(path: Path, held: Mapping[str, Any]) -> bool:
    return path.name.startswith("hs_") and _has("token_ids", "hidden_states")(path, held)


def _outputs(n: int) -> tuple[int, ...]:
    return (1, n // 2 - 1, n - 4)


FORMATS = (
    Format(
        "speculators",
        "speculators' offline data (hs_*.safetensors)",
        "boundary",
        "pre",
        lambda n: (2, n // 2, n - 3, n),
        _is_data,
        _stack,
        stacked=True,
    ),
    Format(
        "speculators",
        "speculators' offline data before 0.5 (data_*.pt)",
        "layer-output",
        "pre",
        lambda n: (2, n // 2, n - 3, n - 1),
        _is_list,
        _list,
        stacked=True,
    ),
    Format(
        "vllm",
        "vLLM's extract_hidden_states",
        "boundary",
        "pre",
        None,
        _has("token_ids", "hidden_states"),
        _stack,
        stacked=True,
    ),
    Format(
        "specforge",
        "SpecForge's prepare_hidden_states",
        "layer-output",
        "post",
        _outputs,
        _has("input_ids", "aux_hidden_state"),
        _pair("aux_hidden_state", "hidden_state"),
    ),
    Format(
        "torchspec",
        "TorchSpec's offline features",
        "layer-output",
        "either",
        _outputs,
        _has("input_ids", "aux_hidden_states"),
        _pair("aux_hidden_states", "hidden_states"),
    ),
    Format("torchspec", "TorchSpec's dump of a step", "layer-output", "either", _outputs, _is_step, _training_step),
    Format(
        "torchspec",
        "TorchSpec's engine store",
        "layer-output",
        "either",
        _outputs,
        lambda path, held: _has("input_ids", "hidden_states")(path, held) and not _is_list(path, held),
        _pair("hidden_states", "last_hidden_states"),
    ),
)
"""In the order in which they are tried."""
