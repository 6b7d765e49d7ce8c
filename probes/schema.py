"""The JSON Schema of `Run.summary()` and `--json`: the shipped one, with a block for every known probe, from its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from driftscope.probes import known
from driftscope.probes.base import Probe
from driftscope.probes.held import record_of

PART = {"$ref": "#/$defs/part"}


def summary_schema() -> dict[str, Any]:
    """The schema with the probes that this process knows, plug-ins among them."""
    text = (files("driftscope") / "schemas" / "summary.schema.json").read_text(encoding="utf-8")
    return with_probes(json.loads(text), known())


def with_probes(schema: dict[str, Any], probes: Mapping[str, Probe]) -> dict[str, Any]:
    """`schema` with a block in `probes` for each of these that has figures there."""
    blocks = {}
    for name, probe in probes.items():
        record = record_of(probe)
        if record.about and not record.at_top:
            entries = {key: {"description": text, **PART} for key, text in record.about.items()}
            blocks[name] = {
                "description": probe.question,
                "type": "object",
                "properties": entries,
                "additionalProperties": False,
            }
    block = {**schema["properties"]["probes"], "properties": blocks}
    return {**schema, "properties": {**schema["properties"], "probes": block}}
