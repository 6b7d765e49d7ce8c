"""MTP heads that lie inside their target's checkpoint: which tensors they are, from names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What only a head holds; the group is the prefix of all its tensors.
_MARKS = (
    re.compile(r"^((?:.*\.)?layers\.\d+\.)eh_proj\.weight(?:_packed)?$"),
    re.compile(r"^((?:.*\.)?mtp\.)"),
    re.compile(r"^((?:.*\.)?mtp_layers\.)"),
    re.compile(r"^((?:.*\.)?mtp_block\.)"),
)
_LAYER = re.compile(r"(?:^|\.)layers\.\d+\.")


def head_inside(names: Iterable[str]) -> frozenset[str] | None:
    """The tensors of the MTP head of a whole model; None where the names are no model, or one without a head."""
    every = list(names)
    prefixes = {match[1] for name in every for mark in _MARKS if (match := mark.match(name))}
    head = frozenset(name for name in every if name.startswith(tuple(prefixes))) if prefixes else frozenset()
    model = any(_LAYER.search(name) for name in every if name not in head)
    return head if head and model else None
