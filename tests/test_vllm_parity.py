"""The served walk against rounds that vLLM served, recorded with the tiny pairs that it served them on."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from driftscope.chain.pair import Pair, load_pair
from driftscope.target.model import wrap_target

# They are programs: they import each other from their own folder.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "vllm_parity"))
rounds = importlib.import_module("rounds")
compare = importlib.import_module("compare")

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "engines" / "vllm-rounds.safetensors"
DRAFTERS = ("eagle3", "eagle3.1", "switched", "eagle1", "mimo-mtp")


@cache
def recorded() -> dict[str, Any]:
    """Prompts, sizes, and what serve.py wrote for each drafter."""
    with safe_open(GOLDEN, "pt") as file:
        return {
            name: value if name.endswith("config.json") else json.loads(value)
            for name, value in file.metadata().items()
        }


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that were served."""
    root = tmp_path_factory.mktemp("served")
    with safe_open(GOLDEN, "pt") as file:
        for name in ("target", *DRAFTERS):
            (root / name).mkdir()
            (root / name / "config.json").write_text(recorded()[f"{name}/config.json"])
            tensors = {key: file.get_tensor(key) for key in file.keys() if key.startswith(f"{name}/")}  # noqa: SIM118
            tensors = {key.removeprefix(f"{name}/"): tensor for key, tensor in tensors.items()}
            save_file(tensors, root / name / "model.safetensors", metadata={"format": "pt"})
    return root


def opened(folders: Path, name: str, **overrides: Any) -> Pair:
    target = folders / ("mimo-mtp" if name == "mimo-mtp" else "target")
    model = AutoModelForCausalLM.from_pretrained(target, dtype="float32")
    return load_pair(folders / name, wrap_target(model, None, name=str(target)), overrides=overrides)


def agreement(pair: Pair, name: str) -> Any:
    held = recorded()
    row = compare.compare(pair, held[f"{name}/served.json"], held["prompts"], compare.Texts(), held["tokens"])
    assert row["speculative_tokens"] == held["depth"]
    return row


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_walk_makes_the_rounds_that_vllm_served(folders: Path, name: str) -> None:
    row = agreement(opened(folders, name), name)
    assert row["exact"], row["differences"]
    assert row["target_near_ties"] == 0
    assert row["rounds_equal"] == row["rounds_engine"] > 20
    assert row["drafted_equal"] == row["drafted"] == row["rounds_equal"] * row["speculative_tokens"]
    assert row["accepted_engine"] == row["accepted_driftscope"]


def test_some_drafts_were_accepted() -> None:
    accepted = [recorded()[f"{name}/served.json"]["counters"]["num_accepted_tokens_per_pos"] for name in DRAFTERS]
    assert sum(positions[0] for positions in accepted) > 10
    assert sum(positions[1] for positions in accepted) > 0


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("eagle3.1", {"carry": "pre"}),
        ("switched", {"residual": "raw"}),
        ("mimo-mtp", {"mask_first_embed": False}),
    ],
    ids=["carry", "residual", "mask"],
)
def test_a_wrong_switch_is_a_difference_and_no_near_tie(folders: Path, name: str, switches: dict[str, Any]) -> None:
    row = agreement(opened(folders, name, **switches), name)
    assert not row["exact"]
    assert not row["explained"]
    assert row["drafted_equal"] < row["drafted"]


def served() -> dict[str, Any]:
    return copy.deepcopy(recorded()["eagle3.1/served.json"])


def first_engine_rounds(changed: dict[str, Any]) -> list[Any]:
    return rounds.engine_rounds(changed["served"][0], len(recorded()["prompts"][0]["token_ids"]), recorded()["tokens"])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda made: made["accepted_per_round"].__setitem__(0, 9), "the engine reports 9"),
        (lambda made: made["accepted_per_round"].pop(), "rounds watched"),
        (
            lambda made: made["rounds"][2].update(emitted=made["rounds"][2]["drafted"][:1]),
            "not its verification|reports",
        ),
        (lambda made: made["text"].__setitem__(5, made["text"][5] + 1), "the text has"),
        (lambda made: (made["rounds"].pop(), made["accepted_per_round"].pop()), "rounds end at"),
    ],
    ids=["count", "rounds", "emitted", "text", "short"],
)
def test_a_record_that_contradicts_itself_is_refused(spoil: Any, message: str) -> None:
    changed = served()
    assert first_engine_rounds(changed)[0].anchor == len(recorded()["prompts"][0]["token_ids"]) - 1
    spoil(changed["served"][0])
    with pytest.raises(ValueError, match=message):
        first_engine_rounds(changed)


def test_counters_that_are_not_those_of_the_rounds_are_refused() -> None:
    changed = served()
    rounds.check_counters(changed, recorded()["depth"])
    changed["counters"]["num_accepted_tokens_per_pos"][1] += 1
    with pytest.raises(ValueError, match="counters"):
        rounds.check_counters(changed, recorded()["depth"])


def test_a_near_tie_is_told_from_a_difference(folders: Path) -> None:
    pair, prompt = opened(folders, "eagle3.1"), recorded()["prompts"][0]
    text = compare.Texts().get(pair, prompt, served()["served"][0]["text"])
    chains = compare.chains_over(pair, text, recorded()["depth"], recorded()["tokens"])
    engine = first_engine_rounds(served())
    place = engine[1].anchor - chains.prompt_length + 1
    # The last step, which the first round's draft does not need to be right.
    drafted, second = chains.drafted.copy(), chains.runner_up.copy()
    drafted[place, -1], second[place, -1] = chains.runner_up[place, -1], chains.drafted[place, -1]
    gap = chains.gap.copy()
    for size, tied in ((rounds.NEAR_TIE / 2, True), (rounds.NEAR_TIE * 2, False)):
        gap[place, -1] = size
        swapped = dataclasses.replace(chains, drafted=drafted, runner_up=second, gap=gap)
        total = rounds.Agreement()
        rounds.compare_prompt(total, prompt["id"], engine, swapped)
        assert [d.near_tie for d in total.differences] == [tied]
        assert (total.exact, total.explained) == (False, tied)
        assert total.drafted_equal == total.drafted - 1
        assert total.differences[0].step == recorded()["depth"]


def test_the_docs_show_every_row_of_the_results_and_all_are_exact() -> None:
    spec = importlib.util.spec_from_file_location("docs_parity", ROOT / "docs" / "parity.py")
    assert spec is not None
    assert spec.loader is not None
    parity = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parity)
    rows = json.loads(parity.RESULTS.read_text(encoding="utf-8"))["rows"]
    page = parity.on_page_markdown((ROOT / "docs" / "engines.md").read_text(encoding="utf-8"))
    for row in rows:
        assert row["exact"], f"docs/engines.md says that all rounds are equal: {row['differences']}"
        assert f"| {row['drafter']} | {row['speculative_tokens']} | {row['rounds_engine']}, " in page
    assert parity.MARK not in page
