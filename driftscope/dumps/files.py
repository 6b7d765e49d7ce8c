"""The files of a dump, opened without trusting them: safetensors, torch.save archives, gzip around one."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from pathlib import Path
from typing import Any

import torch

from driftscope.checkpoints import archives
from driftscope.errors import CheckpointError, DriftscopeError

SUFFIXES = (".safetensors", ".ckpt", ".ckpt.gz", ".pt")
_BLOCK = 1 << 20
_GROWTH = 64
"""Hidden states do not shrink more under gzip; what claims to is not unpacked further."""


def dump_files(folder: Path) -> list[Path]:
    """Every file of a folder, and of those in it, that can hold states; in the order of their names, numbers as numbers."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise DriftscopeError(f"--from {folder}: no such folder")
    found = [path for path in folder.rglob("*") if path.is_file() and path.name.endswith(SUFFIXES)]
    found = [path for path in found if not path.name.startswith(".") and path.parent.name != "vocab_mapping"]
    if not found:
        raise DriftscopeError(f"--from {folder}: no file with states in it ({', '.join('*' + s for s in SUFFIXES)})")
    return sorted(found, key=lambda path: _natural(path.relative_to(folder)))


def held(path: Path) -> dict[str, Any]:
    """What a file holds by name, at the top: tensors, or containers of them.

    Raises DriftscopeError in one line for a file that is truncated, holds code, or is none of these.
    """
    try:
        if path.name.endswith(".gz"):
            return _unpacked(path)
        kind, _ = archives.kind_of(path)
        if kind == "safetensors":
            return {name: archives.safetensors_tensor(path, name) for name in archives.safetensors_header(path)}
        return _mapping(path, archives.torch_object(path))
    except CheckpointError as error:
        raise DriftscopeError(str(error)) from error
    except OSError as error:
        raise DriftscopeError(f"{path}: cannot be read ({error.strerror or error})") from error


def _unpacked(path: Path) -> dict[str, Any]:
    left = _GROWTH * path.stat().st_size + _BLOCK
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / path.name.removesuffix(".gz")
        try:
            with gzip.open(path, "rb") as packed, whole.open("wb") as out:
                while block := packed.read(_BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise CheckpointError(f"{path}: unpacks to more than {_GROWTH} times its size; not opened")
                    out.write(block)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CheckpointError(f"{path}: truncated or damaged gzip file ({error})") from error
        # The folder goes away, and a tensor would still lie in it.
        return {name: _copied(value) for name, value in _mapping(whole, archives.torch_object(whole)).items()}


def _mapping(path: Path, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, expected tensors by name")
    size = path.stat().st_size
    if sum(_bytes(item) for item in value.values()) > 2 * size + _BLOCK:
        raise CheckpointError(f"{path}: its tensors claim more than twice the {size:,} bytes of the file")
    return {str(name): item for name, item in value.items()}


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def _natural(path: Path) -> list[tuple[int, int, str]]:
    parts: list[tuple[int, int, str]] = []
    for part in path.parts:
        digits = ""
        for char in [*part, ""]:
            if char.isdigit() and char.isascii():
                digits += char
                continue
            if digits:
                parts.append((0, int(digits), ""))
                digits = ""
            parts.append((1, 0, char))
    return parts
