"""Switches and their values as a person writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig


def switch_value(config: DrafterConfig, switch: str) -> Any:
    """The value of a switch by its (dotted) name."""
    head, _, inner = switch.partition(".")
    value = getattr(config, head)
    return getattr(value, inner) if inner else value


def spelled(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {spelled(item)}" for key, item in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value)
