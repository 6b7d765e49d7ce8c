"""A tiny pair on disk, and the ends of its target."""

from __future__ import annotations

import pytest

from driftscope.target.ends import TargetEnds, load_target_ends
from tests.tiny_pair import TinyPair, save_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return save_pair(tmp_path_factory.mktemp("pair"), prompts=2)


@pytest.fixture(scope="module")
def ends(pair: TinyPair) -> TargetEnds:
    return load_target_ends(pair.target)
