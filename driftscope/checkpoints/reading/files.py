"""Reading checkpoint files without trusting them: names, shapes and single tensors on demand, nothing executed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from driftscope.checkpoints.reading import archives
from driftscope.checkpoints.reading.heads import head_inside
from driftscope.errors import CheckpointError
from driftscope.files.json import check_regular, json_object

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_USUAL = ("model.safetensors", "pytorch_model.bin", "model.pt", "model.pth", "model.bin")
_NOT_WEIGHTS = re.compile(
    r"(optim|sched|scaler|rng|train(er|ing)|hidden|vocab|^adapter_|^consolidated\.00|scheduler|_state\.)", re.IGNORECASE
)
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<total>\d{5})(?P<suffix>\.[a-z]+)$")
_MAX_JSON = 8 * 2**20
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a stored tensor before it is loaded."""

    dtype: str
    """As torch spells it (`bfloat16`), or the file's own word for a dtype torch lacks."""
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """0 for a dtype that torch lacks."""
        dtype = getattr(torch, self.dtype, None)
        return self.numel * dtype.itemsize if isinstance(dtype, torch.dtype) else 0


@dataclass
class Source:
    """A checkpoint on disk, or a state dict in memory: infos of all tensors, and each tensor when asked for."""

    path: str
    files: tuple[Path, ...]
    infos: dict[str, TensorInfo]
    load: Callable[[str], torch.Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    config_path: str = ""
    folder_files: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    inside: bool = False
    """Whether the tensors are the MTP head inside a whole model, whose others are not read."""

    @property
    def nbytes(self) -> int:
        """Bytes of the weight files; of a head inside a model, of its tensors."""
        if self.inside:
            return sum(info.nbytes for info in self.infos.values())
        return sum(file.stat().st_size for file in self.files)

    def sha256(self) -> str:
        """SHA-256 over the bytes of the weight files, in the order of their names; of a state dict in memory and of a
        head inside a model, over the tensors in the order of theirs."""
        digest = hashlib.sha256()
        files = [] if self.inside else sorted(self.files)
        for file in files:
            with file.open("rb") as stream:
                while block := stream.read(2**20):
                    digest.update(block)
        if not files:
            for name in sorted(self.infos):
                digest.update(name.encode())
                digest.update(self.load(name).contiguous().flatten().view(torch.uint8).cpu().numpy().tobytes())
        return digest.hexdigest()


def open_source(path: str | Path, revision: str | None = None) -> Source:
    """The checkpoint at a file, a folder or a Hub id (`owner/name`, with a revision).

    Raises:
        CheckpointError: nothing there, unreadable, truncated, lying about its contents, or holding code.
    """
    local = Path(path).expanduser()
    try:
        exists = local.exists()
        if exists and revision is not None:
            raise CheckpointError(f"{path}: --revision belongs to a Hub id, and this is a local path")
        if not exists:
            local = _from_hub(str(path), revision)
        source = _head_only(_open_folder(local) if local.is_dir() else _open_file(local))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
    source.path = str(path)
    return source


def from_state_dict(state: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None = None) -> Source:
    """A state dict in memory (of a live module, for instance), read as if it had been a file."""
    tensors = {name: value.detach() for name, value in state.items() if isinstance(value, torch.Tensor)}
    infos = {name: TensorInfo(archives.dtype_name(value.dtype), tuple(value.shape)) for name, value in tensors.items()}
    return Source("state dict", (), infos, tensors.__getitem__, dict(config or {}), "config" if config else "")


def _head_only(source: Source) -> Source:
    """The MTP head alone, where the tensors are those of a whole model."""
    head = head_inside(source.infos)
    if head is not None:
        source.inside = True
        source.infos = {name: info for name, info in source.infos.items() if name in head}
    return source


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of at most 8 MiB.

    Raises:
        CheckpointError: too large, not JSON, or not an object.
    """
    return json_object(path, CheckpointError, limit=_MAX_JSON)


def _open_file(path: Path) -> Source:
    infos, load, own_config, notes = _open_weights(path)
    source = Source(str(path), (path,), infos, load, warnings=notes)
    beside = next((p for p in (path.with_suffix(".json"), path.parent / "config.json") if p.is_file()), None)
    if own_config:
        source.config, source.config_path = own_config, f"{path.name}[config]"
        if beside:
            source.warnings.append(f"the config inside {path.name} is used; {beside.name} beside it is not read")
    elif beside:
        source.config, source.config_path = read_json(beside), str(beside)
    if path.parent.is_dir():
        source.folder_files = tuple(sorted(entry.name for entry in path.parent.iterdir()))
    return source


def _open_weights(
    path: Path,
) -> tuple[dict[str, TensorInfo], Callable[[str], torch.Tensor], dict[str, Any], list[str]]:
    check_regular(path, CheckpointError)
    kind, notes = archives.kind_of(path)
    if kind == "safetensors":
        header = archives.safetensors_header(path)
        infos = {name: TensorInfo(dtype, shape) for name, (dtype, shape) in header.items()}
        return infos, lambda name: archives.safetensors_tensor(path, name), {}, notes
    tensors, config, told = archives.torch_archive(path)
    infos = {name: TensorInfo(archives.dtype_name(t.dtype), tuple(t.shape)) for name, t in tensors.items()}
    return infos, tensors.__getitem__, config, notes + told


def _open_folder(folder: Path) -> Source:
    entries = sorted(entry.name for entry in folder.iterdir())
    weights = [n for n in entries if n.endswith(WEIGHT_SUFFIXES) and not _NOT_WEIGHTS.search(n)]
    index = next((name for name in _INDEXES if name in entries), None)
    index = index or next((name for name in entries if name.endswith(".index.json")), None)
    notes: list[str] = []
    wanted: dict[str, list[str]] = {}
    if index:
        wanted = _shards_of_index(folder, index, entries, notes)
        named = list(wanted)
        wanted |= _unlisted(folder, index, wanted, entries, notes)
    else:
        wanted = {name: [] for name in _choose(folder, weights, entries, notes)}
        named = list(wanted)
    inside = False
    if head := head_inside(key for keys in wanted.values() for key in keys):
        inside = True
        wanted = {name: kept for name, keys in wanted.items() if (kept := [key for key in keys if key in head])}
    absent_shard = next((name for name in wanted if name not in entries), None)
    if absent_shard:
        raise CheckpointError(f"{folder}: {index} names {absent_shard}, which is not there; fetch it and open again")
    added = wanted.keys() - set(named)
    infos: dict[str, TensorInfo] = {}
    loaders: dict[str, Callable[[str], torch.Tensor]] = {}
    own_config: dict[str, Any] = {}
    for name, keys in wanted.items():
        shard_infos, load, shard_config, told = _open_weights(folder / name)
        notes += told
        own_config = own_config or shard_config
        absent = [key for key in keys if key not in shard_infos]
        if absent:
            raise CheckpointError(f"{folder / name}: {index} places {some(absent)} in it, but it is not there")
        unlisted = sorted(set(shard_infos) - set(keys)) if keys else []
        if inside or name in added:
            shard_infos = {key: shard_infos[key] for key in keys}
        elif unlisted:
            notes.append(f"{name} holds {len(unlisted)} tensors that {index} does not list (first: {unlisted[0]})")
        double = sorted(set(shard_infos) & set(infos))
        if double:
            raise CheckpointError(f"{folder / name}: {double[0]} is also in another shard")
        infos |= shard_infos
        loaders |= dict.fromkeys(shard_infos, load)
    files = tuple(folder / name for name in wanted)
    source = Source(str(folder), files, infos, lambda key: loaders[key](key), warnings=notes, inside=inside)
    if (folder / "config.json").is_file():
        source.config, source.config_path = read_json(folder / "config.json"), str(folder / "config.json")
    elif own_config:
        source.config, source.config_path = own_config, f"{files[0].name}[config]"
    source.folder_files = tuple(entries)
    if adapters := [name for name in entries if name.startswith("adapter_") and name != "adapter_config.json"]:
        notes.append(
            f"{', '.join(adapters)} beside it: an adapter, which is not applied; merge it if it was trained with it"
        )
    return source


def some(names: Sequence[str], most: int = 8) -> str:
    """The names in words, at most so many of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _shards_of_index(folder: Path, index: str, entries: list[str], notes: list[str]) -> dict[str, list[str]]:
    weight_map = read_json(folder / index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / index}: no weight_map")
    wanted: dict[str, list[str]] = {}
    for key, shard in weight_map.items():
        if not isinstance(shard, str) or shard in ("", ".", "..") or "/" in shard or "\\" in shard:
            raise CheckpointError(f"{folder / index}: {shard!r} is not the name of a file in this folder")
        wanted.setdefault(shard, []).append(key)
    return wanted


def _unlisted(
    folder: Path, index: str, wanted: dict[str, list[str]], entries: list[str], notes: list[str]
) -> dict[str, list[str]]:
    """Files that the index does not name -> those of their tensors that it does not list either: a head that was added to a
    model later. What both hold is read where the index says."""
    listed = {key for keys in wanted.values() for key in keys}
    suffix = Path(next(iter(wanted))).suffix
    found: dict[str, list[str]] = {}
    for name in entries:
        if not name.endswith(suffix) or name in wanted or _NOT_WEIGHTS.search(name) or not (folder / name).is_file():
            continue
        try:
            new = [key for key in _open_weights(folder / name)[0] if key not in listed]
        except CheckpointError as error:
            notes.append(f"{name} is not in {index} and was not read ({str(error).removeprefix(f'{folder / name}: ')})")
            continue
        if not new:
            notes.append(f"{name} is not in {index} and was not read: all its tensors are in other files")
            continue
        listed |= set(new)
        found[name] = new
        notes.append(f"{name} is not in {index}: its {len(new)} tensors (first: {new[0]}) are read beside the others")
    return found


def _choose(folder: Path, weights: list[str], entries: list[str], notes: list[str]) -> list[str]:
    usual = [name for name in _USUAL if name in weights]
    if usual:
        others = [name for name in weights if name != usual[0]]
        if others:
            notes.append(f"{usual[0]} was read; {', '.join(others)} beside it not")
        return usual[:1]
    shards = [match for name in weights if (match := _SHARD.match(name))]
    if shards and len(shards) == len(weights) and len({match["stem"] + match["suffix"] for match in shards}) == 1:
        total = int(shards[0]["total"])
        if {int(match["part"]) for match in shards} == set(range(1, total + 1)):
            notes.append(f"no index beside the {total} shards; all were read")
            return weights
        raise CheckpointError(f"{folder}: {len(shards)} of {total} shards are there; fetch the rest and open again")
    if len(weights) == 1:
        return weights
    if weights:
        raise CheckpointError(f"{folder}: several weight files ({', '.join(weights[:4])}); name one of them")
    if "adapter_config.json" in entries or any(name.startswith("adapter_model") for name in entries):
        raise CheckpointError(f"{folder}: a LoRA adapter, not a drafter; merge it into its drafter and open that")
    inner = [name for name in entries if (folder / name).is_dir() and any(map(_is_weights, (folder / name).iterdir()))]
    hint = f"; weights lie in its folder {inner[-1]}" if inner else ""
    raise CheckpointError(f"{folder}: no weight file ({', '.join('*' + s for s in WEIGHT_SUFFIXES)}){hint}")


def _is_weights(path: Path) -> bool:
    return path.name.endswith(WEIGHT_SUFFIXES) and not _NOT_WEIGHTS.search(path.name)


def _from_hub(repo: str, revision: str | None) -> Path:
    if not _HUB_ID.match(repo):
        raise CheckpointError(f"{repo}: no such file or folder")
    weights = ["*" + suffix for suffix in WEIGHT_SUFFIXES]
    folder = _snapshot(repo, revision, ["*.json"])
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is not None:
        # The head inside a large model lies in few of its shards.
        weight_map = read_json(index).get("weight_map")
        weight_map = weight_map if isinstance(weight_map, dict) else {}
        if head := head_inside(weight_map):
            weights = sorted({str(weight_map[name]) for name in head})
    return _snapshot(repo, revision, ["*.json", *weights])


def _snapshot(repo: str, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        at = f" at revision {revision}" if revision else ""
        raise CheckpointError(f"{repo}: not a path here, and the Hub did not give it{at} ({first})") from error
