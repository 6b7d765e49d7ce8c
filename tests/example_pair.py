"""Where the tests on a real pair find it: one list for all of them.

DRIFTSCOPE_TEST_TARGET and DRIFTSCOPE_TEST_CHECKPOINTS (separated as in PATH) name others to test with. What is asserted of
these drafters holds for any sound one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driftscope.target.model import Target, load_target

ROOT = Path(__file__).parents[1]
TARGET = Path(os.environ.get("DRIFTSCOPE_TEST_TARGET", ROOT / "build" / "target"))
EXAMPLES = ROOT / "examples" / "smollm2" / "checkpoints"
CHECKPOINTS = [Path(path) for path in os.environ.get("DRIFTSCOPE_TEST_CHECKPOINTS", "").split(os.pathsep) if path] or [
    EXAMPLES / name for name in ("eagle3", "fc-norm", "post-norm", "eagle3.1")
]
BY_FOLDER = {path.name: path for path in CHECKPOINTS}


def real_target() -> Target:
    """The target, in float32 on a CPU; the test is skipped where it is not there."""
    if not (TARGET / "config.json").is_file():
        pytest.skip(f"no target at {TARGET}: python examples/smollm2/target.py makes it")
    return load_target(TARGET, device="cpu")
