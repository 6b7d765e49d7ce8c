"""Probes: one file per question. Third parties add theirs through the entry-point group `driftscope.probes`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from driftscope.errors import DriftscopeError
from driftscope.probes.base import ConditionProbe, Probe, Variant

__all__ = ["DEFAULT", "ConditionProbe", "Probe", "Variant", "available", "chosen"]

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
)
DEFAULT = ("norms", "attention", "acceptance", "cost", "noise")


def available() -> dict[str, Probe]:
    """All probes by name: the shipped ones, then those of installed plug-ins. A plug-in that does not work is left out with a
    warning."""
    probes: dict[str, Probe] = {name: import_module(f"driftscope.probes.{name}").PROBE for name in SHIPPED}
    shards = {probe.shard: type(probe) for probe in probes.values()}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            probes[entry.name] = _loaded(entry, probes, shards)
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            warnings.warn(f"probe plug-in {entry.name} ({entry.value}) is left out: {reason}", stacklevel=2)
    return probes


def _loaded(entry: EntryPoint, probes: Mapping[str, Probe], shards: Mapping[str, type]) -> Probe:
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
    # Rows under a shipped shard must be what the shipped probe measures.
    if not isinstance(probe, shards.get(probe.shard, object)):
        raise DriftscopeError(f"it stores its rows as {probe.shard}, as a shipped probe does; choose another shard")
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
