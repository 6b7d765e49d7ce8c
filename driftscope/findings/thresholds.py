"""The thresholds in force. Each is declared beside the rule that it limits (`driftscope.findings.rules`), with the reason for its
default.

Overridden in `[tool.driftscope.thresholds]` of the nearest pyproject.toml, or in a TOML file that holds the same table
or the bare names.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftscope.errors import DriftscopeError
from driftscope.findings.model import Threshold
from driftscope.findings.registry import thresholds

_TABLE = "[tool.driftscope.thresholds]"


class ThresholdError(DriftscopeError):
    """A file of thresholds that cannot be read."""


@dataclass(frozen=True)
class Thresholds(Mapping[str, float]):
    """The values in force, and the file of those that are not defaults."""

    overrides: Mapping[str, float]
    origin: str = ""

    def __getitem__(self, name: str) -> float:
        return self.overrides.get(name, thresholds()[name].default)

    def __iter__(self) -> Iterator[str]:
        return iter(thresholds())

    def __len__(self) -> int:
        return len(thresholds())

    def changed(self, name: str) -> bool:
        """Whether the value is not the default."""
        return self[name] != thresholds()[name].default


DEFAULTS = Thresholds({})


def definition(name: str) -> Threshold:
    """The threshold of that name. KeyError if there is none."""
    return thresholds()[name]


def checked(values: Mapping[str, Any], where: str) -> Thresholds:
    """`values` as thresholds. Raises ThresholdError for an unknown name or a value out of range."""
    known = thresholds()
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ThresholdError(f"{where}: no threshold {name}; {hint}")
        limit = known[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not limit.above < value < limit.below:
            upper = f" and below {limit.below:g}" if limit.below < math.inf else ""
            raise ThresholdError(f"{where}: {name} = {value!r}; expected a number above {limit.above:g}{upper}")
    return Thresholds({name: float(value) for name, value in values.items()}, where if values else "")


def load(file: Path | None = None, folder: Path | None = None) -> Thresholds:
    """Thresholds of `file`; without one, of the nearest pyproject.toml at or above `folder` (the working directory).

    Raises ThresholdError for a file that cannot be read, an unknown name or a value out of range.
    """
    if file is not None:
        content = _read(file)
        return checked(_table(content, file) if "tool" in content else content, str(file))
    start = (folder or Path.cwd()).resolve()
    found = next(
        (path for path in (parent / "pyproject.toml" for parent in (start, *start.parents)) if path.is_file()), None
    )
    return DEFAULTS if found is None else checked(_table(_read(found), found), f"{found} {_TABLE}")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ThresholdError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ThresholdError(f"{file} is not TOML: {(str(error).splitlines() or ['?'])[0]}") from error


def _table(content: Any, file: Path) -> dict[str, Any]:
    for key in ("tool", "driftscope", "thresholds"):
        content = content.get(key, {})
        if not isinstance(content, dict):
            raise ThresholdError(f"{file}: {_TABLE} is not a table")
    return content
