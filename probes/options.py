"""Options of probes: `noise.alphas=0.1,0.5` sets a field of the probe named noise."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from driftscope.errors import DriftscopeError, RunError

if TYPE_CHECKING:
    from driftscope.chain.pair import Pair
    from driftscope.probes.base import Probe
    from driftscope.runs.run import Run

_FIXED = ("name", "question", "shard", "record")


def option_fields(probe: Probe) -> dict[str, Any]:
    """The options of a probe with their values: fields of its dataclass; none for a probe that is no dataclass."""
    fields: Mapping[str, Any] = getattr(probe, "__dataclass_fields__", {})
    return {name: getattr(probe, name) for name in fields if name not in _FIXED}


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """`["noise.alphas=0.1,0.5"]` as a mapping. DriftscopeError for what is not `probe.option=value`."""
    found = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not equals or "." not in name:
            raise DriftscopeError(f"--probe-option {text} is not PROBE.OPTION=VALUE, such as noise.alphas=0.1,0.5")
        found[name.strip()] = value.strip()
    return found


def configured(probes: Sequence[Probe], options: Mapping[str, Any]) -> list[Probe]:
    """The probes with options set: `{"noise.alphas": "0.1,0.5"}`, or values of the right type instead of text.

    Probes that share a shard share their options. Raises DriftscopeError for a probe that was not chosen, an option that it
    does not have, or a value that does not fit.
    """
    changed = list(probes)
    by_name = {probe.name: probe for probe in probes}
    for key, text in options.items():
        name, _, option = key.partition(".")
        if name not in by_name:
            raise DriftscopeError(
                f"--probe-option {key}: probe {name} is not among {', '.join(by_name) or 'none'} (--probes)"
            )
        known = option_fields(by_name[name])
        if option not in known:
            raise DriftscopeError(f"--probe-option {key}: {name} has {', '.join(known) or 'no options'}")
        for place, probe in enumerate(changed):
            if probe.shard == by_name[name].shard and option in option_fields(probe):
                changed[place] = dataclasses.replace(probe, **{option: _value(probe, option, text)})  # type: ignore[type-var]
    return changed


def check_stored(run: Run, probe: Probe, pair: Pair) -> None:
    """Raise RunError if the run holds rows of this probe that were measured with other options."""
    stored = run.table("variants", probe=probe.shard)
    if stored.empty:
        return
    from driftscope.runs.parameters import parameters_of

    held = parameters_of(stored)
    wanted = {item.name: json.loads(json.dumps(item.parameters)) for item in probe.variants(pair)}
    other = [name for name in {**wanted, **held} if held.get(name) != wanted.get(name)]
    if other:
        raise RunError(
            f"{run.folder} holds {probe.shard} with other options: {other[0]} has {held.get(other[0], 'no rows')}, now "
            f"{wanted.get(other[0], 'not asked')}; use the same --probe-option or another -o"
        )


def _value(probe: Probe, option: str, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    hint = get_type_hints(type(probe))[option]
    if isinstance(value, str):
        if get_origin(hint) is tuple:
            value = [part.strip() for part in value.split(",")]
        elif value == "none":
            value = None
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise DriftscopeError(f"--probe-option {probe.name}.{option}={value}: {first['msg']}") from error
