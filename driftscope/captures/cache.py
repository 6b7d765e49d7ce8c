"""The on-disk cache of captures: one folder a prompt, keyed by content, complete or absent."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import uuid
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from driftscope.errors import DriftscopeError
from driftscope.files.json import check_regular, json_object

if TYPE_CHECKING:
    from torch import Tensor

CACHE_SCHEMA = 1
"""Goes into every key: raise it when a capture means something else than before."""
_RECORD = "record.safetensors"
_TARGET = "target.json"
_TEMPORARY = ".tmp-"
_KEY = re.compile("[0-9a-f]{16}")
_ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True)
class CacheKey:
    """Names one capture by what decides it: the target's content and dtype, the prompt's tokens, and the length asked
    for."""

    target: str
    """16 hex digits: fingerprint, dtype, end-of-text tokens, schema."""
    capture: str
    """32 hex digits: target, prompt tokens, max_new_tokens, greedy."""

    @classmethod
    def of(
        cls, fingerprint: str, dtype: str, eos_ids: Iterable[int], token_ids: Sequence[int], max_new_tokens: int
    ) -> CacheKey:
        target = _digest([CACHE_SCHEMA, fingerprint, dtype, sorted(eos_ids)])[:16]
        return cls(target, _digest([target, [int(token) for token in token_ids], max_new_tokens, "greedy"])[:32])


@dataclass(frozen=True)
class CacheEntry:
    """All captures of one target."""

    key: str
    target: str
    """Name by which the target was first loaded."""
    dtype: str
    prompts: int
    bytes: int
    created: datetime.datetime


@dataclass(frozen=True)
class StoredCapture:
    """What the cache holds of one capture."""

    tensors: dict[str, Tensor]
    boundaries: dict[int, Tensor]
    """Those of the requested boundaries that are stored and sound."""


class CaptureCache:
    """A folder of captures. Its own errors are DriftscopeErrors of one line; unsound files are dropped with a warning.

    Layout: `{target key}/target.json` and `{target key}/{capture key}/` with `record.safetensors`,
    `boundary_{b}.safetensors` and `meta.json` (for people: prompt id, lengths, time).
    """

    def __init__(self, root: Path | None = None) -> None:
        """`root` None is $DRIFTSCOPE_CACHE, else the user's cache folder."""
        chosen = root or os.environ.get("DRIFTSCOPE_CACHE") or platformdirs.user_cache_path("driftscope") / "captures"
        self.root = Path(chosen).expanduser()

    def check_writable(self) -> None:
        """Fail before costly work, not after it."""
        with self._one_line("write"):
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        self._sweep()

    def read(self, key: CacheKey, boundaries: Sequence[int] = ()) -> StoredCapture | None:
        """The stored capture with those of `boundaries` that are there, or None."""
        folder = self._folder(key)
        if not (folder / _RECORD).is_file():
            return None
        tensors = self._load(folder / _RECORD)
        if tensors is None:
            self._drop(folder)
            return None
        found = {b: self._load(folder / f"boundary_{b}.safetensors") for b in boundaries}
        return StoredCapture(
            tensors, {b: loaded["state"] for b, loaded in found.items() if loaded and "state" in loaded}
        )

    def discard(self, key: CacheKey, reason: str) -> None:
        """Drop a stored capture that is not what its key says, with a warning."""
        warnings.warn(f"capture cache: {self._folder(key)} is damaged ({reason}); making it anew", stacklevel=4)
        self._drop(self._folder(key))

    def write(
        self,
        key: CacheKey,
        tensors: Mapping[str, Tensor],
        boundaries: Mapping[int, Tensor],
        *,
        target: Mapping[str, Any],
        meta: Mapping[str, Any],
    ) -> None:
        """Store a capture; it appears only when complete. `target` (name, dtype) is noted once per target."""
        folder = self._folder(key)
        with self._one_line("write"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            if not (folder.parent / _TARGET).is_file():
                self._write_json(folder.parent / _TARGET, {**target, "created": _now()})
            partial = folder.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
            partial.mkdir()
            try:
                self._save(partial / _RECORD, tensors)
                for b, state in boundaries.items():
                    self._save(partial / f"boundary_{b}.safetensors", {"state": state})
                self._write_json(partial / "meta.json", {**asdict(key), **meta, "created": _now()})
                try:
                    os.replace(partial, folder)
                except OSError:
                    # Another process was faster; what it wrote is the same.
                    if not (folder / _RECORD).is_file():
                        raise
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def add_boundaries(self, key: CacheKey, boundaries: Mapping[int, Tensor]) -> None:
        """Add boundaries to a stored capture, each file in one move."""
        folder = self._folder(key)
        with self._one_line("write"):
            for b, state in boundaries.items():
                partial = folder / f"{_TEMPORARY}{os.getpid()}-{b}"
                self._save(partial, {"state": state})
                os.replace(partial, folder / f"boundary_{b}.safetensors")

    def entries(self) -> list[CacheEntry]:
        """One entry per target, the oldest first."""
        with self._one_line("read"):
            found = [self._entry(folder) for folder in self._target_folders()]
        return sorted(found, key=lambda entry: entry.created)

    def remove(self, which: str | None = None) -> list[CacheEntry]:
        """Remove the entries of a target, by name or by the start of its key (four digits or more); None removes all.

        Returns what was removed; raises DriftscopeError when nothing matches `which`.
        """
        chosen = [
            entry
            for entry in self.entries()
            if which is None or entry.target == which or (len(which) >= 4 and entry.key.startswith(which))
        ]
        if which is not None and not chosen:
            raise DriftscopeError(f"no cached target {which} in {self.root}; `driftscope cache ls` names those there")
        with self._one_line("remove from"):
            for entry in chosen:
                shutil.rmtree(self.root / entry.key)
        return chosen

    def _folder(self, key: CacheKey) -> Path:
        return self.root / key.target / key.capture

    def _target_folders(self) -> list[Path]:
        if not self.root.is_dir():
            return []
        return [
            folder for folder in self.root.iterdir() if _KEY.fullmatch(folder.name) and (folder / _TARGET).is_file()
        ]

    def _entry(self, folder: Path) -> CacheEntry:
        try:
            known = json_object(folder / _TARGET, DriftscopeError)
            name, dtype = str(known["name"]), str(known["dtype"])
            created = datetime.datetime.fromisoformat(known["created"])
        except (DriftscopeError, ValueError, KeyError, TypeError):
            name, dtype = "unknown", "unknown"
            created = datetime.datetime.fromtimestamp(folder.stat().st_mtime, datetime.UTC)
        files = [path for path in folder.rglob("*") if path.is_file()]
        return CacheEntry(
            key=folder.name,
            target=name,
            dtype=dtype,
            prompts=sum(path.name == _RECORD and not path.parent.name.startswith(_TEMPORARY) for path in files),
            bytes=sum(path.stat().st_size for path in files),
            created=created,
        )

    @staticmethod
    def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save_file

        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, path, metadata={"crc32": _checksum(whole), "layout": _layout(whole)})

    @staticmethod
    def tensors(path: Path) -> dict[str, Tensor]:
        """The tensors of a file. Raises DriftscopeError, with the reason alone, when it is absent or unsound."""
        from safetensors import SafetensorError, safe_open

        try:
            check_regular(path, DriftscopeError)
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                noted = file.metadata() or {}
                # Early files have no layout noted.
                if noted.get("crc32") == _checksum(tensors) and noted.get("layout") in (None, _layout(tensors)):
                    return tensors
                reason = "its checksum does not fit"
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
            reason = str(error)
        raise DriftscopeError(reason)

    def _load(self, path: Path) -> dict[str, Tensor] | None:
        """The tensors of a file, or None when it is absent or unsound."""
        if not path.is_file():
            return None
        try:
            return self.tensors(path)
        except DriftscopeError as error:
            warnings.warn(f"capture cache: {path} is damaged ({error}); making it anew", stacklevel=4)
            return None

    def _sweep(self) -> None:
        """Remove what killed writers left, but nothing that another process may still be writing."""
        for folder in self._target_folders():
            for path in (*folder.glob(f"{_TEMPORARY}*"), *folder.glob(f"*/{_TEMPORARY}*")):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _drop(self, folder: Path) -> None:
        with self._one_line("write"):
            shutil.rmtree(folder)

    @staticmethod
    def _write_json(path: Path, content: Mapping[str, Any]) -> None:
        partial = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")
        partial.write_text(json.dumps(content, indent=1))
        os.replace(partial, path)

    @contextlib.contextmanager
    def _one_line(self, doing: str) -> Iterator[None]:
        # safetensors reports a full disk as an error of its own, which is no OSError.
        from safetensors import SafetensorError

        try:
            yield
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise DriftscopeError(
                f"cannot {doing} the capture cache {self.root}: {reason}; set --cache-dir or DRIFTSCOPE_CACHE"
            ) from error


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    import torch

    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(tensors[name].view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def _layout(tensors: Mapping[str, Tensor]) -> str:
    """Checksum of what the header says: names, types and shapes."""
    told = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    return f"{zlib.crc32(json.dumps(told).encode()):08x}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
