"""Speed-ups, best K, oracle, early stop and calibration against what can be worked out by hand; costs from files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from driftscope.cli import app
from driftscope.errors import DriftscopeError, RunError
from driftscope.planning.adaptive import best_choice, early_stop, oracle, stops
from driftscope.planning.calibration import calibration
from driftscope.planning.choices import choices, served_lengths
from driftscope.planning.costs import BatchCost, CostModel, batch_sizes, ratio_costs, read_costs, write_costs
from driftscope.planning.plan import plan
from driftscope.planning.rounds import Drafts, read_drafts
from driftscope.planning.settings import engine_settings
from driftscope.runs.summary import summarise
from tests.fake_run import Fake, write_fake_run

RUNNER = CliRunner()


def drafts(length: list[list[int]], depth: int, confidence: Any = None) -> Drafts:
    """One list of accepted tokens a prompt."""
    flat = np.array([n for part in length for n in part])
    prompt = np.repeat(np.arange(len(length)), [len(part) for part in length])
    sure = np.full((len(flat), depth), 0.5) if confidence is None else np.asarray(confidence, dtype=np.float64)
    names = [f"p{n}" for n in range(len(length))]
    return Drafts(names, prompt, flat, sure, np.zeros(len(flat), dtype=bool), depth)


def costs(step: float, slope: float = 0.0, longest: int = 4, batch: int = 1) -> CostModel:
    """The target's forward takes 1 over one row and `slope` more for every further one."""
    target = {rows: 1 + slope * (rows - 1) for rows in range(1, longest + 2)}
    return CostModel("given", "made up", (BatchCost(batch, step, target),))


def test_speed_up_is_served_tokens_over_time() -> None:
    held, model = drafts([[2] * 90], 4), costs(0.1, 0.05)
    found = choices(held, model, model.batches[0])
    for entry in found["choices"]:
        k = entry["k"]
        seconds = k * 0.1 + 1 + 0.05 * k
        assert entry["round"] == pytest.approx(seconds)
        assert entry["speed_up"]["mean"] == pytest.approx((min(2, k) + 1) / seconds)
        assert entry["break_even_length"] == pytest.approx(seconds - 1)
    assert found["best"]["k"] == 2
    assert [entry["served"]["mean"] for entry in served_lengths(held)] == [1, 2, 2, 2]


def test_a_drafter_as_slow_as_break_even_gains_nothing() -> None:
    held = drafts([[1, 3, 0, 2] * 20], 4)
    model = costs(0.2, 0.03)
    for entry in choices(held, model, model.batches[0])["choices"]:
        even = costs(entry["break_even_drafter"], 0.03)
        again = choices(held, even, even.batches[0])["choices"][entry["k"] - 1]
        assert again["speed_up"]["mean"] == pytest.approx(1.0)


def test_a_useless_drafter_is_not_to_be_used() -> None:
    held, model = drafts([[0] * 40] * 14, 3), costs(0.1, longest=3)
    best = choices(held, model, model.batches[0])["best"]
    assert (best["k"], best["of_k"]) == (0, 1)
    assert best["speed_up"]["high"] < 1


def test_those_that_the_prompts_cannot_tell_apart_are_named() -> None:
    rng = np.random.default_rng(0)
    lengths = [rng.integers(0, 4, 40).tolist() for _ in range(14)]
    held = drafts(lengths, 3)
    one, two = (float(total.sum() / rounds.sum()) for total, rounds in map(held.served, (1, 2)))
    # The drafter step at which 1 and 2 tokens give the same speed-up; 3 would take twice as long.
    step = (two - one) / (2 * one + 1 - two)
    model = CostModel("given", "", (BatchCost(1, step, {1: 1.0, 2: 1.0, 3: 1.0, 4: 4.0}),))
    best = choices(held, model, model.batches[0])["best"]
    assert {best["of_k"], *best["alike"]} == {1, 2}


def test_the_oracle_is_the_best_of_all_choices() -> None:
    length, depth = [[2, 0, 1, 3, 0, 1, 2]], 3
    held, model = drafts(length, depth), costs(0.45, 0.1, depth)
    seconds = np.array([model.round(model.batches[0], k) for k in range(depth + 1)])

    def rate(choice: tuple[int, ...]) -> float:
        tokens, rounds = held.served_choice(np.array(choice))
        return float((rounds @ seconds).sum() / tokens.sum())

    every = itertools.product(*(range(n + 1) for n in length[0]))
    assert rate(tuple(best_choice(held, seconds))) == pytest.approx(min(rate(choice) for choice in every))


def test_no_fixed_number_beats_the_oracle() -> None:
    rng = np.random.default_rng(1)
    held = drafts([rng.integers(0, 5, 60).tolist() for _ in range(3)], 4)
    model = costs(0.3, 0.05)
    bound = oracle(held, model, model.batches[0])["speed_up"]["mean"]
    fixed = [entry["speed_up"]["mean"] for entry in choices(held, model, model.batches[0])["choices"]]
    assert bound > max(fixed)


def test_an_early_stop_keeps_the_token_that_made_it_stop() -> None:
    assert stops(np.array([[0.9, 0.4, 0.9], [0.9, 0.9, 0.9], [0.1, 0.9, 0.9]]), 0.5).tolist() == [2, 3, 1]


def test_a_threshold_of_0_drafts_all() -> None:
    rng = np.random.default_rng(2)
    held = drafts([rng.integers(0, 5, 200).tolist()], 4, rng.random((200, 4)))
    model = costs(0.1)
    first = early_stop(held, model, model.batches[0])[0]
    assert first["drafted"]["mean"] == 4
    fixed = choices(held, model, model.batches[0])["choices"][-1]["speed_up"]["mean"]
    assert first["speed_up"]["mean"] == pytest.approx(fixed)


def test_a_drafter_that_knows_when_it_is_wrong_gains_by_stopping() -> None:
    rng = np.random.default_rng(3)
    length = rng.integers(0, 5, 200)
    sure = np.where(np.arange(4) < length[:, None], 0.9, 0.1)
    held, model = drafts([length.tolist()], 4, sure), costs(0.5)
    curve = {entry["threshold"]: entry["speed_up"]["mean"] for entry in early_stop(held, model, model.batches[0])}
    assert curve[0.5] > curve[0.0]


def test_calibration_is_the_weighted_gap_of_the_bins() -> None:
    length = [1] * 30 + [0] * 10 + [1] * 10 + [0] * 30
    sure = [[0.95]] * 40 + [[0.15]] * 40
    entry = calibration(drafts([length], 1, sure))[0]
    assert entry["ece"]["mean"] == pytest.approx((40 * abs(0.75 - 0.95) + 40 * abs(0.25 - 0.15)) / 80)
    assert entry["confidence"]["mean"] == pytest.approx(0.55)
    assert entry["accepted"]["mean"] == pytest.approx(0.5)
    assert [(part["from"], part["chains"]) for part in entry["bins"]] == [(0.1, 40), (0.9, 40)]


def test_calibration_of_a_step_is_over_living_chains() -> None:
    length = [2] * 30 + [0] * 30 + [1] * 20
    found = calibration(drafts([length], 2, np.full((80, 2), 0.6)))
    assert [entry["chains"] for entry in found] == [80, 50]
    assert found[1]["accepted"]["mean"] == pytest.approx(0.6)


def test_served_lengths_are_those_of_the_summary(tmp_path: Path) -> None:
    run = write_fake_run(tmp_path / "run", Fake(prompts=13, anchors=20, depth=4))
    wanted = summarise(run)["acceptance_length"]["served"]
    found = plan(run, ratio_costs(0.1, 4))
    assert found["lengths"][-1]["served"] == pytest.approx(wanted)

    json.dumps(found, allow_nan=False)


def test_the_textbook_ratio() -> None:
    """Leviathan et al., theorem 3.8, with an acceptance that does not depend on the step."""
    rng = np.random.default_rng(4)
    alpha, depth, count = 0.7, 4, 20000
    length = np.minimum(rng.geometric(1 - alpha, count) - 1, depth)
    model = ratio_costs(0.1, depth)
    found = choices(drafts([length.tolist()], depth), model, model.batches[0], resamples=10)
    for entry in found["choices"]:
        k = entry["k"]
        wanted = (1 - alpha ** (k + 1)) / ((1 - alpha) * (k * 0.1 + 1))
        assert entry["speed_up"]["mean"] == pytest.approx(wanted, rel=0.03)


def test_a_drafter_of_one_pass_pays_once() -> None:
    model = ratio_costs(0.3, 4, one_pass=True)
    assert [model.round(model.batches[0], k) for k in (0, 1, 4)] == pytest.approx([1.0, 1.3, 1.3])


def test_a_tree_pays_for_steps_and_nodes() -> None:
    target = {rows: float(rows) for rows in range(1, 12)}
    model = CostModel("given", "", (BatchCost(1, 1.0, target), BatchCost(3, 2.0, target), BatchCost(5, 4.0, target)))
    assert model.tree_round(model.batches[0], 7, 3, 1) == pytest.approx(3 * 1.0 + 8)
    # A step of 4 rows lies between batches of 3 and 5.
    assert model.tree_round(model.batches[0], 7, 3, 4) == pytest.approx(1 + 2 * 3.0 + 8)
    with pytest.raises(DriftscopeError, match="no drafter step of 6 rows"):
        model.tree_round(model.batches[0], 7, 3, 6)


def file_of(tmp_path: Path, **changes: Any) -> Path:
    batch = {"batch": 1, "drafter_step": 2, "target": {"1": 10, "2": 11, "3": 12}}
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"unit": "ms", "batches": [{**batch, **changes.pop("batch", {})}], **changes}))
    return path


def test_costs_come_from_a_file_and_go_into_one(tmp_path: Path) -> None:
    read = read_costs(file_of(tmp_path))
    assert read.batches[0].target == pytest.approx({1: 0.010, 2: 0.011, 3: 0.012})
    assert read.batches[0].drafter_step == pytest.approx(0.002)
    write_costs(tmp_path / "again.json", read)
    assert read_costs(tmp_path / "again.json").batches == read.batches


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch": {"target": {"2": 11}}}, "no target time for 1 row"),
        ({"batch": {"drafter_step": 0}}, "drafter_step"),
        ({"batch": {"target": {"1": -1}}}, "greater than 0"),
        ({"batch": {"speed": 3}}, "speed"),
        ({"unit": "hours"}, "unit"),
        ({"batches": []}, "batches"),
    ],
)
def test_a_bad_cost_file_is_told_in_a_line(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(DriftscopeError, match=told) as caught:
        read_costs(file_of(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def run(*arguments: str) -> Any:
    return RUNNER.invoke(app, ["plan", *arguments], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "run"
    write_fake_run(path, Fake(prompts=13, anchors=20, depth=4))
    return str(path)


def test_the_command_prints_the_plan_and_the_flags(folder: str) -> None:
    result = run(folder, "--ratio", "0.05")
    assert result.exit_code == 0, result.output
    best = json.loads(run(folder, "--ratio", "0.05", "--json").stdout)["batches"][0]["best"]["k"]
    assert best > 0
    assert f"Draft {best} tokens a round" in result.stdout
    assert f'"num_speculative_tokens": {best}' in result.stdout
    assert f"--speculative-num-steps {best} --speculative-eagle-topk 1" in result.stdout


def test_a_missing_k_is_told_in_a_line(folder: str, tmp_path: Path) -> None:
    result = run(folder, "--costs", str(file_of(tmp_path)))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "batch 1 has no target time for 4 rows (K = 3); it has 1, 2, 3" in result.stderr
    assert run(folder, "--costs", str(file_of(tmp_path)), "--max-k", "2").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--serve", "1"), "need costs"),
        (("--ratio", "1", "--measure"), "say where costs come from once"),
        (("--ratio", "-1"), "expected more than 0"),
        (("--ratio", "0.1", "--max-k", "9"), "holds 4 steps"),
        (("--costs", "nowhere.json"), "cannot be read"),
    ],
)
def test_what_cannot_be_planned_is_told_in_a_line(folder: str, arguments: tuple[str, ...], told: str) -> None:
    result = run(folder, *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert told in result.stderr


def test_some_anchors_of_a_prompt_cannot_be_walked_over(tmp_path: Path) -> None:
    made = write_fake_run(tmp_path / "run", Fake(prompts=2, anchors=6, depth=2))
    rows = made.table("anchors", "clean")
    sparse = made.create(tmp_path / "sparse", **{**made.info.model_dump(exclude={"schema_version"})})
    for name, part in rows.groupby("prompt", observed=True):
        sparse.write_shard("clean", str(name), {"anchors": part[part["anchor"] != part["anchor"].min() + 2]})
    with pytest.raises(RunError, match="no rounds can be walked"):
        read_drafts(sparse)


def test_settings_name_what_each_engine_reads() -> None:
    found = engine_settings({"layer_form": "eagle3", "carry": "pre"}, "drafters/one", 3)
    assert json.loads(found["vllm"].split("'")[1]) == {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "model": "drafters/one",
    }
    assert found["sglang"].endswith(
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )
    tree = engine_settings({"layer_form": "eagle3"}, "d", 0, {"steps": 5, "topk": 4, "nodes": 7})
    assert set(tree) == {"sglang"}
    assert tree["sglang"].endswith(
        "--speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
    )
    assert engine_settings({}, "d", 0) == {}


def test_batch_sizes_are_numbers() -> None:
    assert batch_sizes("16,1,4") == (1, 4, 16)
    for text in ("", "0", "a,b"):
        with pytest.raises(DriftscopeError, match="--batches"):
            batch_sizes(text)
