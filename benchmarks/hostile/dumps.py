"""Dumps of engines and trainers whose files hold something else than states."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from hostile.pickles import odd_tensor
from hostile.registry import Random, maker
from hostile.spoil import value
from hostile.stock import DUMPS, Stock

GIVEN = "given.json"
"""Beside the dump: the options under which it is read."""
_WRITTEN = (".safetensors", ".pt", ".ckpt", ".gz")


def copied(folder: Path, draw: Random, stock: Stock, names: tuple[str, ...] = tuple(DUMPS)) -> tuple[str, Path]:
    """A sound dump of one of these writers, and the options that it is read under, mostly the right ones."""
    name = draw.choice(names)
    given = dict(DUMPS[name][2])
    if draw.random() < 0.1:
        given[draw.choice(("layers", "prompt_tokens", "ids", "last", "format"))] = draw.choice(
            (
                [-1, 0, 9],
                [1, 1, 1],
                [10**9],
                [],
                [0] * 1000,
                0,
                10**9,
                "boundary",
                "layer-output",
                "pre",
                "post",
                "vllm",
            )
        )
    given = {key: item for key, item in given.items() if _fits(key, item)}
    return name, with_given(Path(shutil.copytree(stock.dump(name), folder / "dump")), given)


def _fits(key: str, item: Any) -> bool:
    """Whether the command line would let it pass."""
    return {
        "layers": isinstance(item, list | tuple),
        "prompt_tokens": isinstance(item, int) and item > 0,
        "ids": item in ("boundary", "layer-output"),
        "last": item in ("pre", "post"),
        "format": item in ("vllm", "speculators", "specforge", "torchspec"),
    }[key]


def with_given(dump: Path, given: Mapping[str, Any]) -> Path:
    """`dump`, with its options beside it."""
    (dump.parent / GIVEN).write_text(json.dumps(given))
    return dump


def files_of(dump: Path) -> list[Path]:
    """What holds states or says where an answer starts."""
    return sorted(path for path in dump.rglob("*") if path.is_file() and path.name.endswith((*_WRITTEN, ".arrow")))


def states_of(dump: Path) -> list[Path]:
    """What holds states."""
    return [path for path in files_of(dump) if path.suffix != ".arrow"]


def loaded(file: Path) -> dict[str, Any]:
    """What our own writers put into a file."""
    if file.suffix == ".safetensors":
        return dict(load_file(file))
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return dict(torch.load(io.BytesIO(content)))


def stored(file: Path, held: Any) -> None:
    """Write what a file holds in its own container; what safetensors cannot hold as torch.save does."""
    if file.suffix == ".safetensors":
        try:
            file.write_bytes(save({name: item.contiguous() for name, item in held.items()}))
            return
        except (ValueError, TypeError, AttributeError, RuntimeError, KeyError, NotImplementedError):
            pass
    buffer = io.BytesIO()
    torch.save(held, buffer, pickle_module=pickle)
    file.write_bytes(gzip.compress(buffer.getvalue(), 1) if file.suffix == ".gz" else buffer.getvalue())


@maker("dump", 6)
def tensors_wrong(folder: Path, draw: Random, stock: Stock) -> Path:
    """Sound files with tensors of other shapes, types and values than the peer writes."""
    _, dump = copied(folder, draw, stock)
    for file in draw.sample(states := states_of(dump), draw.choice((1, min(2, len(states))))):
        held = loaded(file)
        inner = held.get("batch", held)
        name = draw.choice([key for key, item in inner.items() if item is not None and key not in ("step", "rank")])
        item = inner[name]
        if isinstance(item, list):
            item[0] = changed(item[0], draw)
        else:
            inner[name] = changed(item, draw)
        stored(file, held)
    return dump


def changed(item: Any, draw: Random) -> Any:
    """A tensor of another shape, another type, or with values that do not belong in it."""
    if not isinstance(item, Tensor) or draw.random() < 0.1:
        return draw.choice((None, "text", 7, [], {}, [item] * 3, {"a": item}, value(draw)))
    return draw.choice((_reshaped, _retyped, _revalued))(item, draw)


def _reshaped(item: Tensor, draw: Random) -> Tensor:
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: item[None], lambda: item[None, None], lambda: item[:-1], lambda: item[:1], lambda: item[:0], lambda: item[..., :0],
        lambda: item[..., :-1], lambda: item.flatten(), lambda: torch.cat([item, item]), lambda: torch.cat([item, item], -1),
        lambda: item.transpose(0, -1), lambda: item.flatten()[:1][0], lambda: item[None].expand(3, *item.shape),
        lambda: torch.zeros(10**6, dtype=item.dtype), lambda: torch.zeros(1, 1, 1, 1, 1, 1), lambda: odd_tensor(draw),
    )  # fmt: skip
    return draw.choice(ways)()


def _retyped(item: Tensor, draw: Random) -> Tensor:
    kinds = (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
    )
    return item.to(draw.choice((*kinds, torch.float8_e4m3fn, torch.uint32)))


def _revalued(item: Tensor, draw: Random) -> Tensor:
    item = item.clone()
    values: tuple[float, ...] = (0, -1, 1, 60, 61, 2**31, 2**62, -(2**63))
    if item.is_floating_point():
        values = (float("nan"), float("inf"), 3e38, -3e38, 1e-44, 0.0)
    flat = item.view(-1)
    first = draw.randrange(max(1, len(flat)))
    flat[first : draw.choice((first + 1, len(flat)))] = draw.choice(values)
    return item


@maker("dump", 3)
def containers_wrong(folder: Path, draw: Random, stock: Stock) -> Path:
    """Something else than tensors by name, or names that are none."""
    _, dump = copied(
        folder, draw, stock, ("speculators before", "specforge", "specforge packed", "torchspec", "torchspec step")
    )
    file = draw.choice(states_of(dump))
    held = loaded(file)
    tensors = [item for item in held.values() if isinstance(item, Tensor)] or [torch.ones(3, 4)]
    deep: Any = {}
    for _ in range(draw.choice((3, 400))):
        deep = {"batch": deep}
    one, batch = tensors[0], held.get("batch", {})
    other: Any = draw.choice(
        (
            tensors, one, {}, [], None, 7, "text", {1: one, None: 2}, {"input_ids": one}, deep, {"a\nb\x1b[31m": one},
            {**held, "hidden_states": []}, {**held, "hidden_states": [[]] * 10_000}, {**held, "hidden_states": [3, "a", None]},
            {**held, "hidden_states": [torch.ones(0)] * 10_000}, {**held, "batch": list(held)}, {"x" * 10_000: one},
            {**held, "batch": {"input_ids": 3, "hidden_states": 4}}, {**held, "loss_mask": [1] * 100_000},
            {**held, "loss_mask": "yes"},
            {"batch": {**held, "input_ids": torch.ones(0, 0).long(), "hidden_states": torch.ones(0)}},
            {"batch": {**batch, "attention_mask": torch.full((2,), 10**12)}}, torch.nn.Parameter(torch.ones(3)),
            {"batch": {**batch, "attention_mask": torch.full((2, 3), -4)}}, {**held, "more": torch.nn.Parameter(torch.ones(3))},
            {"batch": {**batch, "attention_mask": None, "input_ids": None}}, {"batch": {**batch, "attention_mask": None}},
        )
    )  # fmt: skip
    stored(file, other)
    return dump
