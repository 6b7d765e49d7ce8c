"""The causes that a single run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftscope.findings import DEFAULTS
from driftscope.findings.causes import causes
from driftscope.findings.verdict import verdict
from tests.drafters import HEALTHY, write_drafter
from tests.fake_run import Fake
from tests.findings.test_rules import aux

GROWS = HEALTHY.changed(growth=1.2)
DRIFTS = HEALTHY.changed(self_shift=0.4)
UNEVEN = aux((1.0, 2.0, 30.0), (0.1, 0.2, 0.7))


@pytest.mark.parametrize(
    ("fake", "how", "seen", "words", "remedy"),
    [
        (
            GROWS.changed(self_shift=0.4),
            {},
            ("DS101",),
            "One known cause is seen: norm growth (3.5",
            "a post-norm carry",
        ),
        (
            GROWS.changed(self_shift=0.4),
            {"edit": UNEVEN},
            ("DS101", "DS103"),
            "Both known causes are seen: norm growth (",
            "a post-norm carry and FC-norm",
        ),
        (GROWS, {}, ("DS101",), "though attention stays where it is", "a post-norm carry"),
        (HEALTHY, {"edit": UNEVEN}, ("DS103",), "fused-input imbalance (4.67x, largest block of the fused", "FC-norm"),
        (DRIFTS, {}, (), "Attention moves without a known cause in sight: neither norm growth nor fused", ""),
        (DRIFTS, {"carry": "post"}, (), "which a post-norm carry excludes by construction", ""),
        (HEALTHY, {}, (), "Attention does not move; neither", ""),
        (Fake(prompts=3), {}, (), "Whether attention moves could not be measured", ""),
    ],
)
def test_causes(
    tmp_path: Path, fake: Fake, how: dict[str, Any], seen: tuple[str, ...], words: str, remedy: str
) -> None:
    found = causes(write_drafter(tmp_path / "a", fake, **how), DEFAULTS)
    assert found.seen == seen
    assert words in found.text
    assert ("not measured." in found.sentence) == bool(seen)
    assert ("untested here" in found.text) == bool(remedy)
    assert remedy in found.remedy
    assert "  " not in found.text


def test_the_verdict_carries_the_cause(tmp_path: Path) -> None:
    run = write_drafter(tmp_path / "a", GROWS)
    found = causes(run, DEFAULTS)
    assert verdict(run.summary(), found).cause == found.text
    assert verdict(run.summary()).cause == ""
    few = write_drafter(tmp_path / "b", GROWS.changed(prompts=2))
    assert verdict(few.summary(), causes(few, DEFAULTS)).cause == ""
