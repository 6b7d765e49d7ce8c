"""A prompt to read along, as data and as HTML."""

from __future__ import annotations

import html
import re

import pandas as pd
import pytest

from driftscope.app import ribbon, token_html
from driftscope.app.reading import Key, Reading, accepted_lengths
from driftscope.show.charts.theme import BUCKET_COLOURS


@pytest.fixture
def reading() -> Reading:
    """`a b c | d e f g h`: the chain at anchor 3 drafts e' after d ... and is right once."""
    text = ("<a>", " b", " c\n", " d", " e", " f", " g", " h", " i")
    pieces = {number: piece for number, piece in enumerate(text)} | {90: "<script>", 91: ""}
    chains = pd.DataFrame(
        {
            "anchor": 3,
            "step": [1, 2, 3],
            "loop": False,
            "drafted": [5, 90, 91],
            "text": [5, 6, 7],
            "match": [True, False, False],
            "accepted": [True, False, False],
            "rank": pd.array([1, 4, None], "Int32"),
            "prob": [0.5, 0.1, float("nan")],
            "top_prob": [0.5, 0.3, 0.2],
        }
    )
    other = chains.assign(anchor=4, accepted=False)
    attended = pd.DataFrame(
        {
            "anchor": 3,
            "step": [2, 2, 2, 1],
            "position": [0, 4, 3, 1],
            "own": [False, True, True, False],
            "bucket": ["sink", "current", "committed", "prompt"],
            "mass": [0.25, 0.5, 0.1, 0.9],
        }
    )
    ends = pd.DataFrame({"anchor": [3], "step": [2], "reason": ["state"], "prob": [0.1], "target_prob": [0.875]})
    return Reading("p", 3, text, pieces, pd.concat([chains, other]), attended, ends)


def test_keys_come_heaviest_first_with_the_step_of_own_rows(reading: Reading) -> None:
    keys = reading.keys(3, 2)
    assert keys[0] == Key(4, True, "current", 0.5)
    assert [key.mass for key in keys] == [0.5, 0.25, 0.1]
    assert (keys[0].step(3), keys[2].step(3)) == (2, 1)
    assert accepted_lengths(reading.chains) == {3: 1, 4: 0}
    assert reading.piece(12345) == "[12345]"


def test_states_are_accepted_then_rejected_then_later(reading: Reading) -> None:
    assert token_html.states_of(reading.chain(3)) == ["accepted", "rejected", "later"]
    assert token_html.states_of(reading.chain(4)) == ["rejected", "later", "later"]


def test_the_text_holds_every_token_once_and_the_chain_in_its_place(reading: Reading) -> None:
    shown = token_html.text(reading, 3, 2, "light")
    plain = html.unescape(re.sub(r"<[^>]+>", "", shown))
    # Position 5 to 7 are drafted there; what an engine would have read follows.
    assert (
        plain.replace("⏎", "")
        == "<a>25% b c\n▸ d e✓ ␣f 10%␣f · rank 1✗ <script> 50%␣g · rank 4· ∅␣h · no rank, off the path i"
    )
    assert "<script>" not in shown


def test_keys_are_marked_in_the_colour_of_their_part(reading: Reading) -> None:
    shown = token_html.text(reading, 3, 2, "dark")
    red, green, blue = (int(BUCKET_COLOURS["sink"][place : place + 2], 16) for place in (1, 3, 5))
    marked = re.search(r'title="position 0, sink: 25.0%[^"]*" style="background:rgba\((\d+),(\d+),(\d+)', shown)
    assert marked is not None
    assert tuple(map(int, marked.groups())) == (red, green, blue)
    assert "position 1, prompt" in token_html.text(reading, 3, 1, "dark")


def test_the_ribbon_tells_how_far_a_chain_gets_and_why_it_ends(reading: Reading) -> None:
    found = ribbon.tokens(reading, 3)
    assert [entry["text"].replace("\u23ce", "") for entry in found] == list(reading.text), (
        "texts are data, never markup"
    )
    assert [entry["anchor"] for entry in found] == [None, None, None, None, 3, 4, None, None, None]
    chain = found[4]
    assert chain["kind"].split() == ["start", "drift", "picked"]
    assert chain["title"].startswith(
        "position 4: 1 of 3 accepted; step 2 drafts '<script>' (the drafter gives it 30.0%)"
    )
    assert "the target writes ' g' (the drafter gives it 10.0%; the target gives it 87.5%)" in chain["title"]
    assert chain["title"].endswith("drift, mended by the state")
    assert chain["tone"] > found[5]["tone"] == 0.0
    assert "0 of 3 accepted" in found[5]["title"]
    assert "why was not measured" in found[5]["title"], "the anchor was left out by the probe"
    assert "drift" not in found[5]["kind"]


def test_ranks_behind_a_rejection_are_off_the_path() -> None:
    assert token_html.rank_text(7, "later") == "rank 7, off the path"
    assert token_html.rank_text(None, "rejected") == "no rank"


def test_the_legend_names_states_and_parts() -> None:
    for word in ("accepted", "rejected", "sink", "committed", "drafted", "current"):
        assert word in token_html.legend("light")
