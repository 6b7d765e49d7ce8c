"""Every finding by its code: those of `driftscope.findings.rules`, of the audit and of engines, and those that others register."""

from __future__ import annotations

import difflib
import re
import warnings
from importlib.metadata import entry_points

from driftscope.errors import DriftscopeError
from driftscope.findings.model import Coded, Definition, Rule, Threshold

GROUP = "driftscope.findings"
_coded: dict[str, Coded] = {}


class UnknownCodeError(DriftscopeError):
    """A code that does not exist."""


def register(*findings: Coded) -> None:
    """Make findings known to this process: their rules are asked of every run, their thresholds can be set, and
    `driftscope explain` tells them. DriftscopeError for a code or a threshold that is taken."""
    for coded in findings:
        code = coded.definition.code
        held = thresholds()
        taken = [limit.name for limit in coded.thresholds if limit.name in held]
        if code in _coded or taken:
            what = f"threshold {taken[0]}" if taken else f"code {code}"
            raise DriftscopeError(f"there is a {what} already; rename yours")
        if not re.fullmatch(r"DS[1-4]\d\d", code):
            raise DriftscopeError(
                f"code {code}: expected DS1xx (drift), DS2xx (checkpoint), DS3xx (note) or DS4xx (engine)"
            )
        _coded[code] = coded


def register_installed() -> None:
    """Register what installed packages name in the entry-point group `driftscope.findings`: a `Coded`, or several. One that does
    not work is left out with a warning."""
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found = entry.load()
            register(*((found,) if isinstance(found, Coded) else found))
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            warnings.warn(f"findings of {entry.name} ({entry.value}) are left out: {reason}", stacklevel=2)


def definitions() -> dict[str, Definition]:
    """Code -> definition, in the order of the codes."""
    return {code: _coded[code].definition for code in sorted(_coded)}


def rules() -> dict[str, Rule]:
    """Code -> rule, in the order of the codes."""
    return {code: rule for code in sorted(_coded) if (rule := _coded[code].rule) is not None}


def thresholds() -> dict[str, Threshold]:
    """Name -> threshold, in the order of the codes that bring them."""
    return {limit.name: limit for code in sorted(_coded) for limit in _coded[code].thresholds}


def definition(code: str) -> Definition:
    """The definition of a code in any case. Raises UnknownCodeError naming the nearest ones."""
    known = definitions()
    wanted = code.strip().upper()
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, 3, 0.5)
        raise UnknownCodeError(
            f"there is no code {code}; {'near it: ' if near else 'there are '}{', '.join(near or known)}"
        )
    return known[wanted]
