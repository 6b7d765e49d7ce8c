"""Every code by name: those of drift and data, of the checkpoint from the audit, and of an engine from its counters."""

from __future__ import annotations

import difflib
from functools import cache

from driftscope.errors import DriftscopeError
from driftscope.findings.checkpoint_codes import CODES as CHECKPOINT_CODES
from driftscope.findings.codes import CODES
from driftscope.findings.engine_codes import CODES as ENGINE_CODES
from driftscope.findings.model import Definition


class UnknownCodeError(DriftscopeError):
    """A code that does not exist."""


@cache
def definitions() -> dict[str, Definition]:
    """Code -> definition, in the order of the codes."""
    return {code.code: code for code in sorted((*CODES, *CHECKPOINT_CODES, *ENGINE_CODES), key=lambda code: code.code)}


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
