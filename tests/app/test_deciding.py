"""The slider of the acceptance page: what a drafter step costs decides how many tokens to draft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

from tests.app.conftest import go, messages, words

Start = Callable[..., AppTest]


def test_a_dearer_drafter_drafts_fewer_tokens(app: Start, library: Path) -> None:
    test = go(app(library, run="drifting"), "acceptance")
    assert not test.exception
    assert messages(test) == []
    (slider,) = (part for part in test.select_slider if "drafter step" in part.label)
    assert "tokens a round at batch 1" in words(test)
    slider.set_value(1.0).run()
    assert not test.exception
    assert "Do not speculate" in words(test) or "1 token a round" in words(test)
