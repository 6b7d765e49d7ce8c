"""A folder of captures that was made on purpose: by our own target or from an engine's hidden states, and then probed with
`--capture`. The files are those of the capture cache; `captures.json` says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from driftscope.cache import CacheKey, CaptureCache
from driftscope.captures import Capture
from driftscope.conditions import Source
from driftscope.errors import DriftscopeError
from driftscope.loops import loop_mask
from driftscope.prompts import Prompt
from driftscope.target import Target
from driftscope.target_ends import ends_digest

INDEX = "captures.json"
SCHEMA = 1


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
        held = self._tensors(folder / "record.safetensors")
        states = {b: self._tensors(folder / f"boundary_{b}.safetensors")["state"] for b in wanted}
        token_ids, length, width = held["token_ids"], text.length, int(self.target["hidden_size"])
        if len(token_ids) != length or any(state.shape != (length, width) for state in states.values()):
            raise DriftscopeError(f"{folder}: not the capture of {length} tokens that {INDEX} lists; capture it again")
        return Capture(
            prompt_id=text.id,
            category=text.category,
            token_ids=token_ids,
            prompt_length=text.prompt_length,
            final=held["final"] if text.final else torch.full((1, 1), torch.nan).expand(length, width),
            boundaries=states,
            rms=held["rms"],
            near_tie=held.get("near_tie", torch.zeros(length, dtype=torch.bool)),
            loop=torch.from_numpy(loop_mask(token_ids.numpy(), text.prompt_length)),
            stopped=text.stopped,
            greedy=text.greedy,
        )

    def _tensors(self, path: Path) -> dict[str, Tensor]:
        try:
            return CaptureCache.tensors(path)
        except DriftscopeError as error:
            raise DriftscopeError(f"{path} is missing or damaged ({error}); capture it again") from error


def open_captures(folder: str | Path) -> CaptureFolder:
    """Raises DriftscopeError where there is no such folder, or it was not made by `driftscope capture`."""
    place = Path(folder)
    file = place / INDEX
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if held.pop("schema") != SCHEMA:
            raise DriftscopeError(f"{file} is of another version of driftscope; capture it again")
        texts = tuple(TextEntry(**{**text, "boundaries": tuple(text["boundaries"])}) for text in held.pop("texts"))
        sinks = held.pop("sinks")
        found = CaptureFolder(folder=place, texts=texts, sinks=None if sinks is None else tuple(sinks), **held)
    except FileNotFoundError as error:
        raise DriftscopeError(f"--capture {folder}: no {INDEX} in it; make one with `driftscope capture`") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DriftscopeError(
            f"{file} is not the index of a capture folder ({type(error).__name__}: {error})"
        ) from error
    if not found.texts:
        raise DriftscopeError(f"--capture {folder}: it lists no text")
    for text in found.texts:
        if not all(part == Path(part).name and part not in ("", "..") for part in (text.target_key, text.key)):
            raise DriftscopeError(f"{file}: text {text.id} lies outside of the folder; not opened")
    return found


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
