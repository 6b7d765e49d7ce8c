"""The two containers that weights come in, opened without running or inflating anything: safetensors and torch.save."""

from __future__ import annotations

import io
import pickle
import pickletools
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open

from driftscope.errors import CheckpointError

_MAX_HEADER = 8 * 2**20
_MAX_PICKLE = 32 * 2**20
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_FOREIGN = {
    b"GGUF": "a GGUF model of llama.cpp; convert it to safetensors first",
    b"version https://git-lfs": "a git-lfs pointer, not the weights; run `git lfs pull`",
    b"<!DOCTYPE": "a web page, not weights; the download failed",
    b"<html": "a web page, not weights; the download failed",
    b"\x89HDF": "an HDF5 file; export the weights as safetensors",
    b"\x93NUMPY": "a numpy array; export the weights as safetensors",
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"\x80\x02\x8a\x0al\xfc\x9cF": "in torch's format from before 1.6, which does not open safely; load it"
    " where it was trained and save it as safetensors",
}
# What a plain state dict needs when it is unpickled. Anything else is somebody's object, or code.
_PLAIN_GLOBALS = {
    "collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter", "torch._tensor _rebuild_from_type_v2", "torch.nn.parameter Parameter",
    "torch Tensor", "torch Size", "torch device", "torch.storage UntypedStorage", "torch.serialization _get_layout",
}  # fmt: skip
_STATE_KEYS = (
    "state_dict", "model_state_dict", "draft_model_state_dict", "draft_model", "drafter", "model", "module",
    "eagle_module", "ea_layer", "weights", "net",
)  # fmt: skip
_CONFIG_KEYS = ("config", "draft_config", "model_config", "draft_model_config")


def dtype_name(dtype: torch.dtype) -> str:
    """`bfloat16` for torch.bfloat16."""
    return str(dtype).removeprefix("torch.")


def kind_of(path: Path) -> tuple[Literal["safetensors", "torch"], list[str]]:
    """Which container a file is, by its first bytes, with a note when its name says otherwise.

    Raises:
        CheckpointError: neither of the two; says what it looks like.
    """
    with path.open("rb") as stream:
        head = stream.read(32)
    if not head:
        raise CheckpointError(f"{path}: empty file")
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise CheckpointError(f"{path}: {what}")
    named_safe = path.suffix == ".safetensors"
    if head.startswith(b"PK\x03\x04"):
        if named_safe:
            raise CheckpointError(f"{path}: a zip archive as torch.save writes it, not safetensors; rename it to .pt")
        return "torch", []
    if len(head) > 8 and head[8:9] == b"{":
        return "safetensors", [] if named_safe else [f"{path.name} is a safetensors file, whatever its name says"]
    if named_safe:
        raise CheckpointError(f"{path}: not a safetensors file (no JSON header at byte 8); damaged or foreign")
    if head[:1] == b"\x80":
        raise CheckpointError(
            f"{path}: a bare pickle, which would have to run code to open; save the state dict as safetensors"
        )
    raise CheckpointError(f"{path}: not a checkpoint (starts with {head[:8]!r}, neither safetensors nor torch.save)")


def safetensors_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> (dtype, shape), from the header alone.

    Raises:
        CheckpointError: truncated, or a header that does not describe the file.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
    if length > size - 8:
        raise CheckpointError(f"{path}: header of {length:,} bytes in a file of {size:,}; truncated or damaged")
    if length > _MAX_HEADER:
        raise CheckpointError(f"{path}: header of {length:,} bytes, more than the {_MAX_HEADER:,} any drafter needs")
    try:
        with safe_open(path, framework="pt") as handle:
            found = {}
            for name in handle.keys():  # noqa: SIM118 - the handle is no mapping
                part = handle.get_slice(name)
                found[name] = (_DTYPES.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape()))
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, MemoryError, RuntimeError) as error:
        raise CheckpointError(f"{path}: safetensors header does not fit the file ({_first_line(error)})") from error
    if not found:
        raise CheckpointError(f"{path}: holds no tensor")
    return found


def safetensors_tensor(path: Path, name: str) -> torch.Tensor:
    """One tensor of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as handle:
            tensor: torch.Tensor = handle.get_tensor(name)
            return tensor
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {name} cannot be read ({_first_line(error)})") from error


def safetensors_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file whose header was checked, still on disk until they are read."""
    try:
        with safe_open(path, framework="pt") as handle:
            return {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, TypeError, KeyError, MemoryError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({_first_line(error)})") from error


def torch_object(path: Path) -> Any:
    """What a torch.save archive holds, tensors still on disk until they are read; plain containers and tensors only.

    Raises:
        CheckpointError: truncated, compressed, or holding code or objects.
    """
    _check_archive(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError, EOFError,
            AssertionError, OverflowError, MemoryError, UnicodeError, RecursionError, OSError) as error:  # fmt: skip
        raise CheckpointError(f"{path}: damaged torch.save archive ({_first_line(error)})") from error


def torch_archive(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any], list[str]]:
    """(state dict, config, notes) of a torch.save archive; tensors stay on disk until they are read.

    Raises:
        CheckpointError: truncated, compressed, holding code or objects, or holding no state dict.
    """
    held = torch_object(path)
    state, config, notes = _state_of(path, held)
    size = path.stat().st_size
    if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) > 2 * size:
        raise CheckpointError(f"{path}: its tensors claim more than twice the {size:,} bytes of the file")
    if any(tensor.layout is not torch.strided for tensor in state.values()):
        raise CheckpointError(f"{path}: holds sparse tensors, which no drafter layout has")
    return state, config, notes


def _check_archive(path: Path) -> None:
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.filename.endswith("constants.pkl") for entry in entries):
                raise CheckpointError(f"{path}: a TorchScript program, not a state dict; save that as safetensors")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise CheckpointError(f"{path}: compressed entries, which torch.save never writes; not opened")
            if sum(entry.file_size for entry in entries) > size:
                raise CheckpointError(f"{path}: its entries claim more bytes than the {size:,} of the file; not opened")
            pickles = [entry for entry in entries if entry.filename.endswith("data.pkl")]
            if len(pickles) != 1:
                raise CheckpointError(f"{path}: a zip archive, but not one that torch.save writes (no data.pkl)")
            if pickles[0].file_size > _MAX_PICKLE:
                raise CheckpointError(f"{path}: {pickles[0].file_size:,} bytes of pickle; a state dict needs a few kB")
            blob = archive.read(pickles[0])
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, KeyError, OverflowError, RuntimeError,
            UnicodeError) as error:  # fmt: skip
        raise CheckpointError(f"{path}: truncated or damaged torch.save archive ({_first_line(error)})") from error
    for name in _globals(path, blob):
        module, _, attribute = name.partition(" ")
        if name in _PLAIN_GLOBALS or (module == "torch" and _is_storage_or_dtype(attribute)):
            continue
        raise CheckpointError(
            f"{path}: needs {module}.{attribute} to open, which is code and was not run; use the trainer's own export,"
            " or save only the state dict, as safetensors"
        )


def _globals(path: Path, blob: bytes) -> Iterator[str]:
    """Every `module name` that a pickle would import. Reads the opcodes; runs none.

    `torch.serialization.get_unsafe_globals_in_checkpoint` allows more (meta, nested and quantised tensors, and what any package
    has added for the whole process), and cannot name what a pickle of protocol 4 or later wants.
    """
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(blob)):
            if opcode.name in ("GLOBAL", "INST"):
                yield str(argument)
            elif opcode.name == "STACK_GLOBAL":
                yield " ".join(strings[-2:]) if len(strings) > 1 else "an unnamed object"
            elif opcode.name in ("EXT1", "EXT2", "EXT4"):
                yield "copyreg extension"
            elif isinstance(argument, str):
                strings = [*strings[-1:], argument]
    except (ValueError, UnicodeError, IndexError, OverflowError, AttributeError) as error:
        raise CheckpointError(f"{path}: damaged pickle ({_first_line(error)})") from error


def _is_storage_or_dtype(attribute: str) -> bool:
    return attribute.endswith("Storage") or isinstance(getattr(torch, attribute, None), torch.dtype)


def _state_of(path: Path, held: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any], list[str]]:
    config: dict[str, Any] = {}
    trail: list[str] = []
    for _ in range(5):
        if not isinstance(held, Mapping):
            break
        config = config or next((dict(v) for key in _CONFIG_KEYS if isinstance(v := held.get(key), Mapping)), {})
        tensors = {key: v for key, v in held.items() if isinstance(key, str) and isinstance(v, torch.Tensor)}
        if any("." in key for key in tensors):
            notes = [f"the weights lie in {path.name}[{']['.join(trail)}]"] if trail else []
            return tensors, config, notes
        inner = next((key for key in _STATE_KEYS if isinstance(held.get(key), Mapping)), None)
        if inner is None:
            break
        trail.append(inner)
        held = held[inner]
    found = ", ".join(map(str, list(held)[:6])) if isinstance(held, Mapping) else type(held).__name__
    raise CheckpointError(f"{path}: no state dict in it (found: {found[:120] or 'an empty dict'})")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:160] if text else type(error).__name__
