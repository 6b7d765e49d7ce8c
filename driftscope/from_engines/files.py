"""The files of a dump, opened without trusting them: safetensors, torch.save archives, gzip around one."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from pathlib import Path
from typing import Any

import torch

from driftscope.checkpoints.reading import archives
from driftscope.errors import CheckpointError, DriftscopeError
from driftscope.files.json import check_regular

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
    """What a file holds by name, at the top: tensors, or containers of them; on disk until they are read.

    Raises DriftscopeError in one line for a file that is truncated, holds code, or is none of these.
    """
    try:
        check_regular(path, CheckpointError)
        if path.name.endswith(".gz"):
            return _unpacked(path)
        kind, _ = archives.kind_of(path)
        if kind == "safetensors":
            archives.safetensors_header(path)
            return dict(archives.safetensors_tensors(path))
        return _mapping(path, archives.torch_object(path))
    except CheckpointError as error:
        raise DriftscopeError(str(error)) from error
    except OSError as error:
        raise DriftscopeError(f"{path}: cannot be read ({error.strerror or error})") from error


def _unpacked(path: Path) -> dict[str, Any]:
    left = _GROWTH * path.stat().st_size + _BLOCK
    # Where an open file can be deleted, its tensors stay readable; elsewhere it stays behind.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        whole = Path(folder) / "whole"
        try:
            with gzip.open(path, "rb") as packed, whole.open("wb") as out:
                while block := packed.read(_BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise CheckpointError(f"{path}: unpacks to more than {_GROWTH} times its size; not opened")
                    out.write(block)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CheckpointError(f"{path}: truncated or damaged gzip file ({error})") from error
        try:
            return _mapping(whole, archives.torch_object(whole))
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(whole), str(path))) from error


def _mapping(path: Path, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, expected tensors by name")
    size = path.stat().st_size
    if sum(_bytes(item) for item in value.values()) > 2 * size + _BLOCK:
        raise CheckpointError(f"{path}: its tensors claim more than twice the {size:,} bytes of the file")
    return {str(name): item for name, item in value.items()}


def _bytes(value: Any) -> int:
    """Of a tensor, or of those in a container; what lies deeper is read by nobody."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return sum(part.numel() * part.element_size() for part in parts if isinstance(part, torch.Tensor))


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
