"""Advice fits the drafter."""

from __future__ import annotations

import pytest

from driftscope.findings.advice import EAGLE31
from driftscope.findings.fitting import ONE_MISSING, fitting
from driftscope.findings.model import Finding


@pytest.mark.parametrize(
    ("switches", "remedy"),
    [
        ({"carry": "pre", "fc_norm": False}, (EAGLE31,)),
        ({"carry": "pre", "fc_norm": True}, (ONE_MISSING["norm_output"],)),
        ({"carry": "pre", "fc_norm": False, "input_norm": True}, (ONE_MISSING["norm_output"],)),
        ({"carry": "post", "fc_norm": False}, (ONE_MISSING["fc_norm"],)),
        ({"carry": "post", "fc_norm": True}, ()),
        ({"carry": "none"}, ()),
    ],
)
def test_only_missing_norms_are_advised(switches: dict[str, object], remedy: tuple[str, ...]) -> None:
    finding = Finding("DS102", "Attention drift", "It drifts.", advice=("First.", EAGLE31, "Last."))
    assert fitting(finding, switches).advice == ("First.", *remedy, "Last.")
