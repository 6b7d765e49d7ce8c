"""Runs that are kept from one session of a test suite to the next, named by the content of all that decides them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from driftscope._version import __version__
from driftscope.errors import CheckpointError, PromptError, TargetError
from driftscope.runs.run import Run
from driftscope.runs.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from driftscope.chain.pair import Pair

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack"}
_SAMPLE = 1 << 16
_SAMPLES = 64
_PAIR = ("checkpoint", "target", "device", "dtype", "overrides", "revision")


@dataclass(frozen=True)
class Measurement:
    """Arguments of `driftscope.probe`, and where captures are kept."""

    settings: Mapping[str, Any]
    cache: str | None = None
    _loaded: list[Pair] = field(default_factory=list, repr=False, compare=False)

    def load(self) -> Pair:
        """The drafter and its target, loaded once."""
        if not self._loaded:
            from driftscope.chain.pair import load_pair

            options = {name: self.settings[name] for name in _PAIR if name in self.settings}
            checkpoint, target = options.pop("checkpoint"), options.pop("target", None)
            self._loaded.append(load_pair(checkpoint, target, **options))
        return self._loaded[0]

    def key(self) -> str:
        """32 hex digits: the content of checkpoint, target and prompts, the settings, and driftscope's version."""
        settings = {
            name: value for name, value in self.settings.items() if name not in ("checkpoint", "target", "prompts")
        }
        parts = {
            "driftscope": [__version__, SCHEMA_VERSION],
            "checkpoint": self._checkpoint(),
            "target": self._target(),
            "prompts": _prompts(self.settings.get("prompts")),
            "settings": settings,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]

    def _checkpoint(self) -> str:
        path = Path(str(self.settings["checkpoint"])).expanduser()
        if path.exists():
            return digest(path, whole=True)
        if _names_a_folder(str(self.settings["checkpoint"])):
            raise CheckpointError(f"{path}: no such file or folder")
        return str(self.load().checkpoint.sha256)

    def _target(self) -> str:
        """Of a folder a digest of its files, which takes no torch; else the fingerprint of the loaded model."""
        named = self.settings.get("target")
        if named is None or not Path(str(named)).expanduser().exists():
            if named is not None and _names_a_folder(str(named)):
                raise TargetError(f"target {named}: no such folder")
            return str(self.load().target.fingerprint())
        return digest(Path(str(named)).expanduser(), whole=False)


class RunStore:
    """A folder of finished runs. Processes that want the same run wait for the one that measures it."""

    def __init__(self, root: Path, probe_pair: Callable[..., Run]) -> None:
        """probe_pair: what measures, `driftscope.probe_pair`."""
        self.root = root
        self._probe_pair = probe_pair
        self._held: dict[str, Run] = {}

    def run(self, wanted: Measurement) -> Run:
        """The kept run, or a new one. What a killed session measured is gone on with."""
        key = wanted.key()
        if key not in self._held:
            self.root.mkdir(parents=True, exist_ok=True)
            folder = self.root / key
            with FileLock(self.root / f"{key}.lock"):
                if not folder.is_dir():
                    self._measure(wanted, self.root / f"{key}.partial", folder)
            self._held[key] = Run.open(folder)
        return self._held[key]

    def _measure(self, wanted: Measurement, partial: Path, folder: Path) -> None:
        from driftscope.probes import DEFAULT, chosen

        settings = {name: value for name, value in wanted.settings.items() if name not in _PAIR}
        probes = chosen(settings.pop("probes", DEFAULT))
        self._probe_pair(wanted.load(), out=partial, probes=probes, resume=True, cache_dir=wanted.cache, **settings)
        os.replace(partial, folder)


def digest(path: Path, *, whole: bool) -> str:
    """SHA-256 (hex) over the names and contents of a file, or of the files in a folder.

    Not `whole`: of weight files the size and 64 blocks of 64 KiB, so that a large target takes no time; an edit of a few
    values of it can go unseen.
    """
    found = hashlib.sha256()
    for file in _files(path):
        name = file.name if path.is_file() else file.relative_to(path).as_posix()
        found.update(f"{name}\0{file.stat().st_size}\0".encode())
        blocks = _blocks(file) if not whole and file.suffix in _WEIGHTS else None
        if blocks is None:
            with file.open("rb") as stream:
                found.update(hashlib.file_digest(stream, "sha256").digest())
        else:
            for block in blocks:
                found.update(block)
    return found.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))


def _blocks(file: Path) -> Iterator[bytes]:
    step = max(_SAMPLE, file.stat().st_size // _SAMPLES)
    with file.open("rb") as stream:
        for start in range(0, file.stat().st_size, step):
            stream.seek(start)
            yield stream.read(_SAMPLE)


def _prompts(path: str | Path | None) -> str:
    if path is not None:
        if not Path(path).is_file():
            raise PromptError(f"{path}: no such file of prompts")
        return digest(Path(path), whole=True)
    found = hashlib.sha256()
    for file in sorted(files("driftscope.probes").joinpath("prompts").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".jsonl"):
            found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()


def _names_a_folder(name: str) -> bool:
    """Whether a name that does not exist was meant as a path and not as a Hub id."""
    return Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") != 1
