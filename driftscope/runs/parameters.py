"""The parameters of variants: JSON in the table `variants`, which anyone may have written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from driftscope.errors import RunError

NOISE: dict[str, tuple[type, ...]] = {"site": (str,), "steps": (str,), "alpha": (int, float)}
LENGTH: dict[str, tuple[type, ...]] = {"length": (int,), "policy": (str,), "window": (int, type(None))}
TREE: dict[str, tuple[type, ...]] = {"steps": (int,), "topk": (int,), "nodes": (int,), "static": (bool,)}
RULES: dict[str, tuple[type, ...]] = {"target": (str,), "draft": (str,)}
"""Keys that are read, and their types."""


def parameters_of(
    variants: pd.DataFrame, form: Mapping[str, tuple[type, ...]] | None = None, kind: str | None = None
) -> dict[str, dict[str, Any]]:
    """Variant -> its parameters, of all or of one kind. Raises RunError for what is no JSON object with the keys of `form`."""
    found = {}
    rows = variants if kind is None else variants[variants["kind"] == kind]
    for name, text in zip(rows["variant"], rows["parameters"], strict=True):
        found[str(name)] = _parsed(str(name), text, form or {})
    return found


def _parsed(name: str, text: Any, form: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise RunError(f"variant {name:.80}: its parameters are no JSON object; measure its probe again")
    for key, types in form.items():
        value = told.get(key)
        if type(value) not in types or (isinstance(value, float) and not math.isfinite(value)) or key not in told:
            raise RunError(
                f"variant {name:.80} has no {key} in its parameters, or a strange one; measure its probe again"
            )
    return told
