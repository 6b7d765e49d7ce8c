"""Probes: one file per question. Third parties add theirs through the entry-point group `driftscope.probes`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from driftscope.errors import DriftscopeError
from driftscope.probes.base import ConditionProbe, Probe, Variant
from driftscope.probes.record import Caption, Layout, Record

if TYPE_CHECKING:
    from driftscope.runs.columns import Table

__all__ = [
    "DEFAULT",
    "Caption",
    "ConditionProbe",
    "Layout",
    "Probe",
    "Record",
    "Variant",
    "available",
    "chosen",
    "declared_tables",
    "known",
    "register",
]

GROUP = "driftscope.probes"
SHIPPED = (
    "norms",
    "attention",
    "acceptance",
    "cost",
    "noise",
    "pin",
    "depth",
    "layers",
    "template",
    "length",
    "trees",
    "rules",
    "traffic",
)
DEFAULT = ("norms", "attention", "acceptance", "cost", "noise")
_registered: dict[str, Probe] = {}


def available() -> dict[str, Probe]:
    """All probes by name: the shipped ones, then those of installed plug-ins. A plug-in that does not work is left out with a
    warning."""
    shipped = _shipped()
    probes = dict(shipped)
    for entry in _entries(entry_points, tuple(sys.path)):
        try:
            probes[entry.name] = _loaded(entry, probes, shipped)
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            warnings.warn(f"probe plug-in {entry.name} ({entry.value}) is left out: {reason}", stacklevel=2)
    return probes


@lru_cache(maxsize=1)
def _entries(find: Callable[..., Iterable[EntryPoint]], path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The plug-ins on the path, looked for once: that opens a file of every installed package."""
    return tuple(sorted(find(group=GROUP), key=lambda entry: entry.name))


def known() -> dict[str, Probe]:
    """The available probes, and those that this process registered or measured with."""
    return {**_registered, **available()} if _registered else available()


def register(*probes: Probe) -> None:
    """Make probes known to this process, as an entry point does for every process: their runs are then told by their records.
    Measuring with a probe registers it. DriftscopeError for one whose name or tables are taken."""
    shipped = _shipped()
    for probe in probes:
        if shipped.get(probe.name) is None:
            _check(probe, shipped)
            _registered[probe.name] = probe
        elif not isinstance(probe, type(shipped[probe.name])):
            raise DriftscopeError(f"a shipped probe is called {probe.name}; rename yours")


def declared_tables() -> dict[str, Table]:
    """The tables that the known probes declare (`Record.tables`), by name."""
    records = (getattr(probe, "record", None) for probe in known().values())
    return {table.name: table for record in records if isinstance(record, Record) for table in record.tables}


def _shipped() -> dict[str, Probe]:
    return {name: import_module(f"driftscope.probes.{name}").PROBE for name in SHIPPED}


def _check(probe: Probe, shipped: Mapping[str, Probe]) -> None:
    """Rows under a shipped shard, or in a table with a shipped name, must be what is meant by it."""
    from driftscope.runs.schema import SHARED

    shards = {item.shard: type(item) for item in shipped.values()}
    if not isinstance(probe, shards.get(probe.shard, object)):
        raise DriftscopeError(f"it stores its rows as {probe.shard}, as a shipped probe does; choose another shard")
    record = getattr(probe, "record", None)
    if record is not None and not isinstance(record, Record):
        raise DriftscopeError(f"its record is a {type(record).__name__}; see driftscope.probes.Record")
    own = () if record is None else record.tables
    taken = {*SHARED, *(table.name for item in shipped.values() for table in _record(item).tables)}
    clash = [table.name for table in own if table.name in taken and probe.name not in shipped]
    if clash:
        raise DriftscopeError(f"it declares a table {clash[0]}, which is there already; choose another name")


def _record(probe: Probe) -> Record:
    return getattr(probe, "record", None) or Record()


def _loaded(entry: EntryPoint, probes: Mapping[str, Probe], shipped: Mapping[str, Probe]) -> Probe:
    """The probe behind an entry point, which may also name a class to call without arguments."""
    if entry.name in probes:
        raise DriftscopeError("a probe of that name exists; rename it")
    probe = entry.load()
    if isinstance(probe, type):
        probe = probe()
    if not isinstance(probe, Probe):
        wanted = ("name", "question", "shard", "boundaries", "variants", "measure", "cost")
        missing = ", ".join(name for name in wanted if not hasattr(probe, name))
        raise DriftscopeError(f"{type(probe).__name__} lacks {missing}; see driftscope.probes.Probe")
    if probe.name != entry.name:
        raise DriftscopeError(f"it calls itself {probe.name}; the entry point must have the same name")
    _check(probe, shipped)
    return probe


def chosen(names: Sequence[str] | str = DEFAULT) -> list[Probe]:
    """Probes by name, `all` for every one, in the order in which they are listed. DriftscopeError for an unknown name."""
    wanted = names.split(",") if isinstance(names, str) else list(names)
    known = available()
    if wanted == ["all"]:
        return list(known.values())
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise DriftscopeError(f"no probe {', '.join(unknown) or 'named'}; choose from {', '.join(known)} or all")
    return [probe for name, probe in known.items() if name in wanted]
