"""YAML from files that anyone may have written: plain data only, no tags, no aliases, of a size that fits into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driftscope.errors import DriftscopeError
from driftscope.files.text import text_of

_LARGEST = 16 * 2**20
_DEEPEST = 32


def yaml_object(path: Path, error: type[DriftscopeError]) -> dict[str, Any]:
    """A YAML mapping.

    Raises:
        error: nothing there, too large, not YAML, an alias (a few of which can stand for any amount of memory), too deep, or no
            mapping.
    """
    import yaml

    text = text_of(path, error, limit=_LARGEST)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
                raise error(f"{path}: YAML with aliases or more than {_DEEPEST} levels, which no program here writes")
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise error(f"{path}: not valid YAML ({' '.join(str(problem).split())})") from problem
    if not isinstance(value, dict):
        raise error(f"{path}: expected a YAML mapping, found {type(value).__name__}")
    return value
