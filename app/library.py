"""The runs that the app was pointed at: what is there, and what is wrong with the rest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from driftscope.errors import RunError
from driftscope.runs.naming import short_name
from driftscope.runs.run import Run
from driftscope.runs.schema import RunInfo

PATHS = "DRIFTSCOPE_APP_PATHS"
"""Environment variable by which `driftscope app` hands over its arguments, as JSON."""
DEFAULT = Path("runs")
_DEEPEST = 3
_RECORD = "run.json"


@dataclass(frozen=True)
class Entry:
    """A run folder. `info` is None where it cannot be read, and `problem` then says why."""

    id: str
    """Short and unique in the library: what the address of a page names."""
    folder: Path
    info: RunInfo | None
    problem: str = ""

    @property
    def checkpoint(self) -> str:
        """Short name of what was probed."""
        return short_name(self.info.checkpoint.path) if self.info else "–"  # noqa: RUF001


def given_paths() -> list[Path]:
    """What the app was started with; `runs` in the working directory without anything."""
    names = json.loads(os.environ.get(PATHS, "[]"))
    return [Path(name).expanduser() for name in names] or [DEFAULT]


def find_runs(paths: Iterable[Path]) -> list[Entry]:
    """Every run at or under `paths`, newest first; a path that is there but holds none is an entry with a problem."""
    folders: dict[Path, None] = {}
    empty: list[tuple[Path, str]] = []
    for path in paths:
        found = list(_run_folders(path, 0)) if path.is_dir() else []
        folders.update(dict.fromkeys(found))
        if not found and path != DEFAULT:
            what = "holds no run: no folder in it has a run.json" if path.is_dir() else "no such folder"
            empty.append((path, f"{path}: {what}"))
    ordered = sorted(folders, key=lambda folder: (-_written(folder), str(folder)))
    ids = _ids([*ordered, *(path for path, _ in empty)])
    entries = [_entry(name, folder) for name, folder in zip(ids, ordered, strict=False)]
    return entries + [Entry(ids[len(ordered) + place], path, None, why) for place, (path, why) in enumerate(empty)]


def signature(folder: Path) -> str:
    """Changes with what a run holds: its run.json and the names and times of its shards."""
    parts = [(folder / _RECORD).read_bytes() if (folder / _RECORD).is_file() else b""]
    for probe in _scan(folder / "shards"):
        parts += [f"{probe.name}/{shard.name}:{shard.stat().st_mtime_ns}".encode() for shard in _scan(Path(probe))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / _RECORD).is_file():
        yield folder
    elif depth < _DEEPEST:
        for child in _scan(folder):
            yield from _run_folders(Path(child), depth + 1)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    """Folders in `folder` that are not hidden, by name."""
    try:
        with os.scandir(folder) as found:
            kept = [entry for entry in found if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:
        return []
    return sorted(kept, key=lambda entry: entry.name)


def _written(folder: Path) -> int:
    return (folder / _RECORD).stat().st_mtime_ns


def _ids(folders: Sequence[Path]) -> list[str]:
    """The folder's name, with as many parents as tell it from others."""
    resolved = [folder.resolve().parts for folder in folders]
    names = []
    for parts in resolved:
        depth = 1
        while depth < len(parts) and sum(other[-depth:] == parts[-depth:] for other in resolved) > 1:
            depth += 1
        names.append("/".join(parts[-depth:]).lstrip("/") or "/")
    return names


def _entry(name: str, folder: Path) -> Entry:
    record = folder / _RECORD
    stat = record.stat()
    info, problem = _read(folder, stat.st_mtime_ns, stat.st_size)
    return Entry(name, folder, info, problem)


@lru_cache(maxsize=4096)
def _read(folder: Path, modified: int, size: int) -> tuple[RunInfo | None, str]:
    """A record is read again when its file has changed."""
    try:
        return Run.open(folder).info, ""
    except RunError as error:
        return None, str(error)
