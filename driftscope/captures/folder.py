"""A folder of captures that was made on purpose: by our own target or from an engine's hidden states, and then probed with
`--capture`. The files are those of the capture cache; `captures.json` says what they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from driftscope.captures.cache import CacheKey, CaptureCache
from driftscope.captures.capture import Capture, check_stored
from driftscope.captures.conditions import Source
from driftscope.captures.index import SCHEMA, read_index
from driftscope.errors import DriftscopeError
from driftscope.target.ends import ends_digest
from driftscope.target.loops import loop_mask
from driftscope.target.model import Target
from driftscope.target.prompts import Prompt

INDEX = "captures.json"
_HEADER, _WIDEST = 2**20, 8
"""Bytes: of a header at most, of a number at most."""
_STRETCHED, _LONGEST = 64, 2**24
"""Engines stretch positions to a multiple of what the config says; tokens where it says nothing."""


@dataclass(frozen=True)
class TextEntry:
    """One text of a folder. Lengths in tokens; `length` is prompt and answer."""

    id: str
    category: str
    prompt_length: int
    length: int
    stopped: bool
    boundaries: tuple[int, ...]
    final: bool
    """Whether its final states are there."""
    confirmed: float | None
    """Share of the answer that the final states predict, near ties included; None without them."""
    greedy: bool
    target_key: str
    key: str


@dataclass(frozen=True)
class CaptureFolder:
    """What `captures.json` holds."""

    folder: Path
    target: dict[str, Any]
    """name, layers, hidden_size, vocab_size, dtype, ends (`ends_digest`) and, where our own target made it, fingerprint."""
    source: dict[str, Any]
    """Who made it, from what, how the layer ids were read and what was checked."""
    max_new_tokens: int
    sinks: tuple[int, ...] | None
    """Found in the target's attention; None where there was none to look at."""
    texts: tuple[TextEntry, ...]
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Boundaries that every text has."""
        held = [set(text.boundaries) for text in self.texts]
        return tuple(sorted(set.intersection(*held))) if held else ()

    @property
    def greedy(self) -> bool:
        """Whether acceptance can be measured on most of the texts."""
        return 2 * sum(text.greedy for text in self.texts) > len(self.texts)

    def write(self) -> None:
        """Raises DriftscopeError where the folder cannot be written."""
        content = {"schema": SCHEMA, **asdict(self)}
        del content["folder"]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = self.folder / f".{INDEX}.new"
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            partial.replace(self.folder / INDEX)
        except OSError as error:
            raise DriftscopeError(f"cannot write {self.folder}: {error.strerror}; choose another --out") from error

    def check_target(self, target: Target) -> None:
        """Raises DriftscopeError where the captures are of another target."""
        found = {"layers": target.num_layers, "hidden_size": target.hidden_size, "vocab_size": target.vocab_size}
        for name, value in found.items():
            if self.target.get(name) != value:
                raise DriftscopeError(
                    f"--capture {self.folder} is of a target with {name} {self.target.get(name)}, {target.name} has {value}"
                )
        longest = max((text.length for text in self.texts), default=0)
        if longest > longest_text(target):
            raise DriftscopeError(
                f"--capture {self.folder} lists a text of {longest:,} tokens; {target.name} reads none so long"
            )
        if self.target.get("ends") != ends_digest(target):
            raise DriftscopeError(
                f"--capture {self.folder} was made with {self.target.get('name')}, whose embedding, final norm or head are"
                f" not those of {target.name}; name that target with --target"
            )

    def captures(self, boundaries: Sequence[int] | None = None) -> list[Capture]:
        """The captures with these boundaries (None: all that they have), in order. Raises DriftscopeError for a file that is
        missing or damaged."""
        return [self._capture(text, boundaries) for text in self.texts]

    def sources(self, boundaries: Sequence[int]) -> list[Source]:
        """The captures as probes take them."""
        found = []
        for text, record in zip(self.texts, self.captures(boundaries), strict=True):
            found.append(Source(Prompt(text.id, text.category, text=""), record))
        return found

    def _capture(self, text: TextEntry, boundaries: Sequence[int] | None) -> Capture:
        folder = self.folder / text.target_key / text.key
        wanted = text.boundaries if boundaries is None else tuple(boundaries)
        missing = [b for b in wanted if b not in text.boundaries]
        if missing:
            raise DriftscopeError(
                f"--capture {self.folder} holds boundaries {_list(text.boundaries)} of text {text.id}, not"
                f" {_list(missing)}{_hint(wanted, missing, text.boundaries)}; capture with --layers that name them"
            )
        length, width = text.length, int(self.target["hidden_size"])
        shapes = {"token_ids": (length,), "rms": (int(self.target["layers"]) + 1, length)}
        if text.final:
            shapes |= {"final": (length, width), "near_tie": (length,)}
        held = self._tensors(folder / "record.safetensors", shapes)
        states = {b: self._tensors(folder / f"boundary_{b}.safetensors", {"state": (length, width)}) for b in wanted}
        token_ids = held["token_ids"]
        if not 0 <= int(token_ids.min()) <= int(token_ids.max()) < self.target["vocab_size"]:
            raise DriftscopeError(f"{folder}: token ids that the target does not have; capture it again")
        return Capture(
            prompt_id=text.id,
            category=text.category,
            token_ids=token_ids,
            prompt_length=text.prompt_length,
            final=held["final"] if text.final else torch.full((1, 1), torch.nan).expand(length, width),
            boundaries={b: state["state"] for b, state in states.items()},
            rms=held["rms"],
            near_tie=held["near_tie"] if text.final else torch.zeros(length, dtype=torch.bool),
            loop=torch.from_numpy(loop_mask(token_ids.numpy(), text.prompt_length)),
            stopped=text.stopped,
            greedy=text.greedy,
        )

    def _tensors(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Tensors of these names and shapes, the states among them finite."""
        try:
            # A file of holes can claim any size, and would be read for its checksum.
            if path.stat().st_size > _HEADER + sum(_WIDEST * math.prod(shape) for shape in shapes.values()):
                raise DriftscopeError(f"larger than {INDEX} says")
            held = CaptureCache.tensors(path)
            for name, shape in shapes.items():
                check_stored(name, held.get(name), shape)
        except (DriftscopeError, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DriftscopeError(f"{path} is missing or damaged ({reason}); capture it again") from error
        return held


def open_captures(folder: str | Path) -> CaptureFolder:
    """Raises DriftscopeError where there is no such folder, or it was not made by `driftscope capture`."""
    place = Path(folder)
    try:
        index = read_index(place / INDEX)
    except FileNotFoundError as error:
        raise DriftscopeError(f"--capture {folder}: no {INDEX} in it; make one with `driftscope capture`") from error
    except OSError as error:
        raise DriftscopeError(f"--capture {folder}: cannot read {INDEX} ({error.strerror or error})") from error
    if not index.texts:
        raise DriftscopeError(f"--capture {folder}: it lists no text")
    return CaptureFolder(
        folder=place,
        target=index.target.model_dump(),
        source=index.source.model_dump(mode="json"),
        max_new_tokens=index.max_new_tokens,
        sinks=index.sinks,
        texts=tuple(TextEntry(**dict(text)) for text in index.texts),
        skipped=index.skipped,
    )


def longest_text(target: Target) -> int:
    """Tokens beyond which a text was never read by this target, however it was served."""
    return _STRETCHED * target.max_positions if target.max_positions else _LONGEST


def entry(record: Capture, key: CacheKey, *, final: bool, confirmed: float | None, greedy: bool) -> TextEntry:
    """The line of a capture in the index."""
    return TextEntry(
        id=record.prompt_id,
        category=record.category,
        prompt_length=record.prompt_length,
        length=record.length,
        stopped=record.stopped,
        boundaries=tuple(sorted(record.boundaries)),
        final=final,
        confirmed=confirmed,
        greedy=greedy,
        target_key=key.target,
        key=key.capture,
    )


def about_target(target: Target, *, fingerprint: str | None) -> dict[str, Any]:
    """What the index says of a target."""
    return {
        "name": target.name,
        "layers": target.num_layers,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "dtype": str(target.dtype).removeprefix("torch."),
        "ends": ends_digest(target),
        "fingerprint": fingerprint,
    }


def check_out(folder: Path) -> None:
    """Raises DriftscopeError where captures would be mixed with something else."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DriftscopeError(f"{folder} exists and is not empty; choose another --out")


def confirmed_share(record: Capture) -> float:
    """Share of the answer's tokens that the recording's own final states predict."""
    rows = slice(record.prompt_length - 1, record.length - 1)
    return 1.0 - float(record.near_tie[rows].float().mean())


def _hint(wanted: Sequence[int], missing: Sequence[int], held: Sequence[int]) -> str:
    """Where all that is wanted is there under a neighbour's name."""
    if len(missing) < len(wanted):
        return ""
    for shift, fix in ((1, "one more each"), (-1, "one less each")):
        if all(b + shift in held for b in missing):
            return f" ({fix}: were the ids read by the right convention, --ids?)"
    return ""


def _list(numbers: Sequence[int] | Mapping[int, Any]) -> str:
    return ", ".join(map(str, numbers)) or "none"
