"""Probes: one file per question. Third parties add theirs through the entry-point group `driftscope.probes`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

from driftscope.errors import DriftscopeError
from driftscope.probes.base import Probe, Variant

__all__ = ["DEFAULT", "Probe", "Variant", "available", "chosen"]

SHIPPED = ("norms", "attention", "acceptance")
DEFAULT = ("norms", "attention", "acceptance")


def available() -> dict[str, Probe]:
    """All probes by name: the shipped ones, then those of installed plug-ins."""
    probes: dict[str, Probe] = {name: import_module(f"driftscope.probes.{name}").PROBE for name in SHIPPED}
    for entry in entry_points(group="driftscope.probes"):
        if entry.name in probes:
            raise DriftscopeError(f"plug-in {entry.value} names its probe {entry.name}, which exists; rename it")
        probes[entry.name] = entry.load()
    return probes


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
