"""Acceptance by traffic: groups partition the tokens, figures are those of the parts, and what lies in which group."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from driftscope import stats
from driftscope.figures.token_groups import PLACES, TYPES, TextTypes, places, token_types
from driftscope.figures.traffic import traffic_figures
from driftscope.figures.traffic_tokens import token_rows
from driftscope.runs.run import Run
from tests.fake_cost import FakeCost, cost_shard
from tests.fake_run import Fake, meta, tables


def test_kinds_of_tokens() -> None:
    pieces = [
        "<|im_start|>",
        "user",
        "\n",
        "Hi",
        " there",
        ",",
        " 12",
        "\n\n",
        "```",
        "python",
        "\n",
        "x",
        " =",
        "1",
        "```",
        " so",
        "<|im_end|>",
    ]
    kinds = token_types(pieces, 4)
    assert kinds == [
        *("special", "word", "whitespace", "word"),
        *("word", "first", "digit", "whitespace"),
        *("code",) * 7,
        *("word", "special"),
    ]


def test_a_fence_in_pieces_is_code_from_its_end_on() -> None:
    assert token_types(["``", "`", "a", "``", "`", "b"], 0) == ["punctuation", "first", "code", "code", "code", "word"]


def test_places_count_from_the_first_token_that_is_drafted() -> None:
    found = places(np.array([0, 1, 7, 8, 31, 32, 127, 128, 900]))
    assert [PLACES[place] for place in found] == [
        "1",
        "2-8",
        "2-8",
        "9-32",
        "9-32",
        "33-64",
        "65-128",
        "129 on",
        "129 on",
    ]


def test_texts_without_whole_positions_have_no_kinds() -> None:
    rows = pd.DataFrame({"prompt": ["a", "a", "b"], "position": pd.array([0, 2, 0], "Int32"), "piece": ["x", "y", "1"]})
    types = TextTypes(rows, {"a": 1, "b": 0})
    assert types.at(["a", "b"], np.array([0, 1]), np.array([0, 0])).tolist() == [-1, TYPES.index("digit")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two categories, one of them in another language, with the cost of drift."""
    fake, cost = Fake(prompts=14, anchors=20, depth=4), FakeCost()
    about = meta(fake)
    for number, prompt in enumerate(about["prompts"]):
        prompt["category"] = "code" if number % 2 else "chat"
        prompt["language"] = "German" if number % 2 else None
    made = Run.create(tmp_path_factory.mktemp("traffic") / "run", **about)
    for number, prompt in enumerate(about["prompts"]):
        held = tables(fake, number)
        length = prompt["text_length"]
        held["tokens"] = pd.DataFrame(
            {
                "prompt": prompt["id"],
                "position": pd.array(np.arange(length), "Int32"),
                "id": np.arange(length) % 7,
                "piece": ["w", "1", ".", " b", "22", "c", "?"] * (length // 7) + ["d"] * (length % 7),
            }
        )
        made.write_shard("clean", prompt["id"], held)
        made.write_shard("cost", prompt["id"], cost_shard(cost, prompt["id"], number))
    return made


def test_categories_and_languages_have_lengths_and_costs(run: Run) -> None:
    found = {(row["by"], row["group"]): row for row in traffic_figures(run, resamples=50)}
    assert {key for key in found if key[0] in ("category", "language")} == {
        ("category", "chat"), ("category", "code"), ("language", "German"),
    }  # fmt: skip
    code, german = found["category", "code"], found["language", "German"]
    assert {name: value for name, value in code.items() if name not in ("by", "group")} == {
        name: value for name, value in german.items() if name not in ("by", "group")
    }
    assert code["prompts"] == 7
    assert {"anchor_mean", "served", "cost", "share", "reasons", "rejected"} <= set(code)
    assert sum(share["mean"] for share in code["reasons"].values()) == pytest.approx(1)


def test_a_category_is_the_mean_over_its_own_anchors(run: Run) -> None:
    rows = run.table("anchors", "clean")
    chat = {prompt.id for prompt in run.info.prompts if prompt.category == "chat"}
    kept = rows[(rows["feed"] == "drafted") & ~rows["loop"] & rows["prompt"].astype(str).isin(chat)]
    wanted = kept["accepted"].sum() / (kept["step"] == 1).sum()
    found = next(row for row in traffic_figures(run, resamples=50) if row["group"] == "chat")
    assert found["anchor_mean"]["mean"] == pytest.approx(wanted)


@pytest.mark.parametrize("by", ["token", "place"])
def test_groups_of_tokens_share_out_all_living_chains(run: Run, by: str) -> None:
    rows = run.table("anchors", "clean")
    rows = rows[(rows["feed"] == "drafted") & ~rows["loop"]]
    own = [row for row in traffic_figures(run, resamples=50) if row["by"] == by]
    before = rows.groupby(["prompt", "anchor"], observed=True)["accepted"].shift(fill_value=True)
    alive = rows[before.astype(bool)]
    assert sum(row["tokens"] for row in own) == len(alive)
    right = sum(row["tokens"] * row["accepted"]["mean"] for row in own if "accepted" in row)
    # Of groups with too few tokens nothing is told.
    untold = [row["tokens"] for row in own if "accepted" not in row]
    assert all(tokens < stats.MIN_DENOMINATOR for tokens in untold)
    assert -1e-6 <= alive["match"].sum() - right <= sum(untold) + 1e-6
    for row in own:
        if row.get("reasons"):
            assert sum(share["mean"] for share in row["reasons"].values()) == pytest.approx(1)


def test_without_tokens_only_places_are_told(run: Run) -> None:
    rows = run.table("anchors", "clean")
    rows = rows[rows["feed"] == "drafted"]

    class Bare:
        info, probes = run.info, ("clean",)

        @staticmethod
        def table(name: str, probe: str, columns: object = None) -> pd.DataFrame:
            assert name == "tokens"
            return pd.DataFrame({"prompt": [], "position": [], "piece": []})

    found = token_rows(Bare(), rows, 4, 50)  # type: ignore[arg-type]
    assert {row["by"] for row in found} == {"place"}
