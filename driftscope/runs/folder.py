"""The run folder: everything measured on one checkpoint.

    run.json                                   what was probed and how (`driftscope.runs.schema.RunInfo`)
    shards/{probe}/{prompt}/{table}.parquet    one folder per probe and prompt, renamed into place whole

A killed run therefore resumes at the first missing shard, and several processes can fill one run. Aggregates are
built on reading.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import html
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
from filelock import FileLock
from pydantic import ValidationError

from driftscope.errors import RunError
from driftscope.files.json import json_object
from driftscope.runs.parquet import read_columns, write_table
from driftscope.runs.schema import SCHEMA_VERSION, RunInfo, table_named
from driftscope.runs.table_cache import HeldTable

_PLAIN_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}")
_OURS = re.compile(r"\.new-[0-9a-f]{32}")
_ABANDONED_SECONDS = 3600.0
_KEEPS = "what was measured is kept; fix this and go on with --resume"


class RunFolder:
    """What lies in a run folder: `run.json` and the shards. Use `create`, `open` or `resume`."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        self.folder = folder
        self.info = info
        self._tables: dict[tuple[str, str | None], HeldTable] = {}
        self.left_out: dict[Path, str] = {}
        """Shards that are read past, and why: `leave_out_damaged`."""

    @classmethod
    def create(cls, folder: str | Path, **meta: Any) -> Self:
        """Start a run; `meta` are the fields of `RunInfo` without `schema_version`.

        Raises RunError, touching nothing, if `folder` exists and is not empty, and if it cannot be written.
        """
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{path} exists: use --resume to go on with it or another -o")
        info = _info(meta, "new run")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _temporary(path.parent) as temporary:
                (temporary / "shards").mkdir()
                _write_json(temporary / "run.json", info)
                os.rename(temporary, path)
        except OSError as error:
            if path.is_dir() and any(path.iterdir()):
                raise RunError(f"{path} exists: use --resume to go on with it or another -o") from error
            raise RunError(f"cannot write {path}: {_reason(error)}; choose another folder with -o") from error
        return cls(path, info)

    @staticmethod
    def check_place(folder: str | Path) -> None:
        """Raise RunError where no run can be made in `folder`, before anything costly is done."""
        path = Path(folder).absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{folder} exists: use --resume to go on with it or another -o")
        ground = next(place for place in (path, *path.parents) if place.exists())
        if not ground.is_dir():
            raise RunError(f"cannot write {folder}: {ground} is a file, not a folder; choose another folder with -o")
        if not os.access(ground, os.W_OK | os.X_OK):
            raise RunError(f"cannot write {folder}: no permission in {ground}; choose another folder with -o")

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open a run for reading or for further shards. Raises RunError if it is none, or one of another schema."""
        path = Path(folder)
        return cls(path, _read_info(path))

    @classmethod
    def resume(cls, folder: str | Path, **expected: Any) -> Self:
        """Open a run to go on with it, if it was started with the same checkpoint, target and settings.

        `expected` takes fields of `RunInfo`. Of `checkpoint` its `sha256` and `switches` are compared and of `target`
        all but the name (what was moved is still the same), of `prompts` only the ids; of other fields every key that
        is given. Raises RunError naming the first difference.
        """
        run = cls.open(folder)
        recorded = run.info.model_dump(mode="json")
        for name, value in _plain(expected).items():
            if name == "checkpoint":
                value = {key: value[key] for key in ("sha256", "switches") if key in value}
            if name == "target" and "fingerprint" in value:
                value.pop("name", None)
            if name == "prompts":
                recorded[name] = [prompt["id"] for prompt in recorded[name]]
                value = [prompt["id"] for prompt in value]
            difference = _difference(name, recorded.get(name), value)
            if difference is not None:
                raise RunError(f"cannot resume {run.folder}: {difference}; use the same flags or another -o")
        run._sweep()
        return run

    def update(self, **fields: Any) -> None:
        """Replace top-level fields of `run.json`; other processes' changes to other fields are kept."""
        try:
            with FileLock(self.folder / ".run.lock"):
                merged = _read_info(self.folder).model_dump(mode="json") | _plain(fields)
                info = _info(merged, str(self.folder / "run.json"))
                _write_json(self.folder / "run.json", info)
        except OSError as error:
            raise RunError(f"cannot write {self.folder / 'run.json'}: {_reason(error)}; {_KEEPS}") from error
        self.info = info

    def write_shard(self, probe: str, prompt_id: str, tables: Mapping[str, pd.DataFrame]) -> None:
        """Store what a probe measured on a prompt, all tables or none; an existing shard is kept.

        Raises RunError if a table does not conform to its schema or cannot be written.
        """
        shard = self._shard(probe, prompt_id)
        conformed = {name: table_named(name).conform(frame) for name, frame in tables.items()}
        try:
            shard.parent.mkdir(parents=True, exist_ok=True)
            if shard.exists():
                return
            with _temporary(shard.parent) as temporary:
                for name, table in conformed.items():
                    write_table(temporary / f"{name}.parquet", table)
                _rename(temporary, shard)
        except (OSError, pa.ArrowException) as error:
            if not shard.exists():
                raise RunError(f"cannot write {shard}: {_reason(error)}; {_KEEPS}") from error

    def leave_out_damaged(self) -> None:
        """Read past shards of which a file cannot be opened, as if they had not been measured; `left_out` names them.

        Only ends of files are looked at: damage amid the data is told when that is read.
        """
        for shard in self._shards(None):
            for file in sorted(shard.glob("*.parquet")):
                try:
                    read_columns(file, table_named(file.stem), ())
                except RunError as error:
                    self.left_out[shard] = str(error)
                    break
        self._tables.clear()

    def done(self, probe: str, prompt_id: str) -> bool:
        """Whether this probe has its shard of this prompt."""
        return self._shard(probe, prompt_id).is_dir()

    @property
    def probes(self) -> list[str]:
        """Names under which shards are stored."""
        found = _folders(self.folder / "shards")
        return [folder.name for folder in found if any(shard not in self.left_out for shard in _folders(folder))]

    def prompts_done(self, probe: str) -> int:
        """How many prompts have a shard of this probe."""
        return len(self._shards(probe))

    def stamp(self, probe: str | None = None) -> tuple[str, ...]:
        """The shards that there are (of one probe): what was worked out of them holds as long as this stays the same."""
        return tuple(str(shard) for shard in self._shards(probe))

    def table(self, name: str, probe: str | None = None, *, columns: Collection[str] | None = None) -> pd.DataFrame:
        """The rows of every shard (of one probe): declared columns; families such as `rms/{site}` are NaN where a
        shard lacks them. Strings are categoricals.

        `columns`: read only these, in the order of the whole table; `rms/` stands for its family, and a name that no
        shard holds is left out. Columns are read once. Raises RunError for an unknown table or an unreadable shard.
        """
        files = self._files(name, self._shards(probe))
        held = self._tables.setdefault((name, probe), HeldTable(table_named(name)))
        return held.frame(files, columns)

    def prompt_table(self, name: str, probe: str, prompt_id: str) -> pd.DataFrame:
        """The rows of one prompt, from its own shard. Raises RunError as `table` does."""
        return HeldTable(table_named(name)).frame(self._files(name, [self._shard(probe, prompt_id)]))

    def _shard(self, probe: str, prompt_id: str) -> Path:
        return self.folder / "shards" / _file_name(probe) / _file_name(prompt_id)

    def _shards(self, probe: str | None) -> list[Path]:
        shards = self.folder / "shards"
        probes = _folders(shards) if probe is None else [shards / _file_name(probe)]
        return [shard for folder in probes for shard in _folders(folder) if shard not in self.left_out]

    def _files(self, name: str, shards: Sequence[Path]) -> list[Path]:
        files = (shard / f"{name}.parquet" for shard in shards)
        return [file for file in files if file.exists()]

    def _sweep(self) -> None:
        """Remove what killed writers left, but nothing that another process may still be writing."""
        left = (*self.folder.glob(".new-*"), *self.folder.glob("shards/*/.new-*"))
        # Runs that were killed while their folder was made.
        left += tuple(path for path in self.folder.absolute().parent.glob(".new-*") if _OURS.fullmatch(path.name))
        for path in left:
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _facts(self) -> dict[str, Any]:
        info = self.info
        return {
            "folder": str(self.folder),
            "checkpoint": info.checkpoint.path,
            "layout": info.checkpoint.layout,
            "target": info.target.name,
            "prompts": len(info.prompts),
            "probes": ", ".join(f"{p} ({len(self._shards(p))})" for p in self.probes) or "none",
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._facts().items())})"

    def __rich_repr__(self) -> Iterator[tuple[str, Any]]:
        yield from self._facts().items()

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in self._facts().items())
        return f"<table>{''.join(rows)}</table>"


def _file_name(text: str) -> str:
    """A file name for any id: the id itself if it is harmless on every file system, else a slug with its hash."""
    if _PLAIN_NAME.fullmatch(text) and not text.endswith("."):
        return text
    slug = re.sub(r"[^a-z0-9_-]+", "_", text.lower())[:60].lstrip("-") or "_"
    return f"{slug}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:12]}"


def _folders(parent: Path) -> list[Path]:
    """The folders in `parent` that are not hidden, by name; none where it is not there."""
    try:
        with os.scandir(parent) as found:
            names = [entry.name for entry in found if not entry.name.startswith(".") and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [parent / name for name in sorted(names)]


def _info(meta: Mapping[str, Any], where: str) -> RunInfo:
    try:
        return RunInfo.model_validate(_plain(meta))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        told = " ".join(f"{place:.200}: {first['msg']:.200}".split())
        raise RunError(f"{where}: {told}") from error


def _read_info(folder: Path) -> RunInfo:
    path = folder / "run.json"
    try:
        content = json_object(path, RunError)
        version = content["schema_version"]
    except FileNotFoundError as error:
        raise RunError(f"no run at {folder}: it has no run.json; start one with driftscope probe -o") from error
    except OSError as error:
        raise RunError(f"cannot read {path}: {_reason(error)}") from error
    except RunError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise RunError(f"{path} is not the run.json of a run: {reason}") from error
    except KeyError as error:
        raise RunError(f"{path} is not the run.json of a run: no {error}") from error
    if version != SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        fix = "upgrade driftscope" if newer else "probe again into another -o"
        raise RunError(
            f"run {folder} has schema version {version!r:.40}, this driftscope reads {SCHEMA_VERSION}: {fix}"
        )
    return _info(content, str(path))


def _plain(value: Any) -> Any:
    """`value` as JSON reads it back."""
    return json.loads(json.dumps(value, default=_encode))


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _difference(name: str, recorded: Any, expected: Any) -> str | None:
    """The first place where what is expected was recorded otherwise, in words."""
    if isinstance(expected, dict) and isinstance(recorded, dict):
        parts = (_difference(f"{name}.{key}", recorded.get(key), value) for key, value in expected.items())
        return next((part for part in parts if part is not None), None)
    return None if recorded == expected else f"{name} was {_short(recorded)}, now {_short(expected)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _reason(error: BaseException) -> str:
    strerror = getattr(error, "strerror", None)
    return strerror or (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _temporary(parent: Path) -> Iterator[Path]:
    """A new folder in `parent` that is gone afterwards unless it was renamed."""
    path = parent / f".new-{uuid.uuid4().hex}"
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _rename(source: Path, destination: Path) -> None:
    """Rename into place unless another process was first."""
    try:
        os.rename(source, destination)
    except OSError:
        if not destination.is_dir() or not any(destination.iterdir()):
            raise


def _write_json(path: Path, info: RunInfo) -> None:
    temporary = path.parent / f".new-{uuid.uuid4().hex}"
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(info.model_dump_json(indent=2) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
