"""Advice that fits the drafter: nobody is told to train with a norm that is there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from driftscope.findings.advice import EAGLE31
from driftscope.findings.model import Finding

_COMPARED = "Whether it helps on your pair is what `driftscope compare` answers, given a checkpoint of each."
ONE_MISSING = {
    "fc_norm": f"Train with a norm on each target feature before fc too (`fc_norm`), as EAGLE 3.1 does. {_COMPARED}",
    "norm_output": f"Train with the post-norm carry too (`norm_output`), as EAGLE 3.1 does. {_COMPARED}",
}


def fitting(finding: Finding, switches: Mapping[str, Any]) -> Finding:
    """The finding with the advice that `switches` (of DrafterConfig) leave to be followed."""
    has_fc_norm = bool(switches.get("fc_norm") or switches.get("input_norm"))
    has_post = switches.get("carry") == "post"
    # A drafter without a carry has no use for either norm.
    if switches.get("carry") == "none" or (has_fc_norm and has_post):
        remedy: tuple[str, ...] = ()
    elif has_fc_norm or has_post:
        remedy = (ONE_MISSING["norm_output" if has_fc_norm else "fc_norm"],)
    else:
        remedy = (EAGLE31,)
    advice = tuple(line for part in finding.advice for line in (remedy if part == EAGLE31 else (part,)))
    return replace(finding, advice=advice)
