"""Every page on runs of a chain and of a block drafter: what nothing is carried for is missing without a fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from driftscope import probe
from driftscope.checkpoints.save import save_checkpoint
from tests import tiny, tiny_pair
from tests.app.conftest import PAGES, go, messages, words


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    pair = tiny_pair.save_pair(folder, prompts=3)
    config = dataclasses.replace(
        tiny_pair.CONFIG, layer_form="dflash", carry="none", mask_token_id=5, block_size=4, qk_norm=True
    )
    weights = tiny.weights(config)
    del weights["embed_tokens.weight"]
    save_checkpoint(folder / "block", config, weights, "speculators-dflash")
    for name in ("drafter", "block"):
        options = {**pair.options, "options": {"noise.seeds": 1, "noise.anchors": 4}}
        probe(folder / name, out=folder / "runs" / name, probes="norms,attention,acceptance,noise", **options)
    return folder / "runs"


def test_every_page_shows_a_block_drafter_beside_a_chain(app: Callable[..., AppTest], library: Path) -> None:
    test = app(library, run="block")
    assert "Nothing is carried from step to step" in words(test)
    for page in PAGES:
        go(test, page)
        assert not messages(test), page
        assert not test.exception, page
