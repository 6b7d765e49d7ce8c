"""Figures of the cost against sums by hand."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from driftscope import stats
from driftscope.chain.patches import FACTORS, OWN, REAL, REASONS, patch_name, patches
from driftscope.errors import RunError
from driftscope.figures import cost_figures, rejection_figures, run_cost
from driftscope.figures.cost_sums import cost_sums
from driftscope.figures.effects import WAYS, contexts, effects
from driftscope.probes.held import probe_figures
from driftscope.runs.run import Run
from tests.fake_cost import FakeCost, cost_shard, told
from tests.fake_run import Fake, meta, prompt_ids, tables

PROMPTS = 14
CATEGORIES = {f"p{number:02d}": ("code" if number % 2 else "chat") for number in range(PROMPTS)}


def lengths(rows: pd.DataFrame, depth: int, prompts: list[str] | None = None) -> dict[str, tuple[float, int]]:
    """Patch -> accepted tokens and anchors outside loops, chain by chain."""
    found: dict[str, tuple[float, int]] = {}
    for (variant, prompt, _), chain in rows.groupby(["variant", "prompt", "anchor"], observed=True):
        if chain["loop"].iloc[0] or (prompts is not None and prompt not in prompts):
            continue
        accepted = 0
        for match in chain.sort_values("step")["match"].head(depth):
            if not match:
                break
            accepted += 1
        name = str(variant).removeprefix("cost/")
        total, count = found.get(name, (0, 0))
        found[name] = total + accepted, count + 1
    return found


def by_orders(mean: dict[str, float]) -> dict[str, float]:
    """Shapley values from the six orders in which factors can be made real."""
    found = dict.fromkeys(FACTORS, 0.0)
    for order in itertools.permutations(FACTORS):
        for place, factor in enumerate(order):
            found[factor] += (mean[patch_name(order[: place + 1])] - mean[patch_name(order[:place])]) / 6
    return found


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_lengths_and_effects_are_those_of_single_chains(depth: int) -> None:
    rows = told(FakeCost(split=True))["anchors"]
    cost = cost_figures(rows, depth=depth, resamples=50)
    mean = {name: total / count for name, (total, count) in lengths(rows, depth).items()}
    assert cost["actual"]["mean"] == pytest.approx(mean[OWN])
    assert cost["undrifted"]["mean"] == pytest.approx(mean[REAL])
    assert cost["cost"]["mean"] == pytest.approx(mean[REAL] - mean[OWN])
    assert cost["share"]["mean"] == pytest.approx(1 - mean[OWN] / mean[REAL])
    for factor, value in by_orders(mean).items():
        assert cost[factor]["shapley"]["mean"] == pytest.approx(value, abs=1e-12)
        assert cost[factor]["alone"]["mean"] == pytest.approx(mean[factor] - mean[OWN])
        rest = patch_name([name for name in FACTORS if name != factor])
        assert cost[factor]["last"]["mean"] == pytest.approx(mean[REAL] - mean[rest])
    assert sum(cost[factor]["shapley"]["mean"] for factor in FACTORS) == pytest.approx(cost["cost"]["mean"], abs=1e-12)
    for way in WAYS:
        parts = cost["state_rms"][way]["mean"] + cost["state_direction"][way]["mean"]
        assert parts == pytest.approx(cost["state"][way]["mean"], abs=1e-12)
    assert cost["state_rms"]["alone"]["mean"] == pytest.approx(mean["rms"] - mean[OWN])
    assert cost["anchors"] == 14 * PROMPTS
    assert (cost["depth"], cost["prompts"]) == (depth, PROMPTS)


def test_every_depth_is_that_of_a_shorter_draft() -> None:
    rows = told(FakeCost())["anchors"]
    deep = cost_figures(rows, resamples=50)["by_depth"]
    for k in (1, 2, 3, 4):
        alone = cost_figures(rows, depth=k, resamples=50)
        assert {name: deep[k - 1][name] for name in ("actual", "undrifted", "cost", "share", *FACTORS)} == {
            name: alone[name] for name in ("actual", "undrifted", "cost", "share", *FACTORS)
        }
    assert deep[0]["cost"] == {"mean": 0.0, "low": 0.0, "high": 0.0}


def test_intervals_resample_prompts_for_both_lengths_at_once() -> None:
    rows = told(FakeCost())["anchors"]
    by_prompt = [lengths(rows, 4, [prompt]) for prompt in CATEGORIES]
    difference = [found[REAL][0] - found[OWN][0] for found in by_prompt]
    wanted = stats.ratio_of_sums(difference, [found[OWN][1] for found in by_prompt]).at()
    assert wanted is not None
    assert cost_figures(rows)["cost"] == pytest.approx(wanted.to_dict())


def test_a_step_is_asked_of_the_chains_that_are_alive() -> None:
    rows = told(FakeCost())["anchors"]
    steps = cost_figures(rows, resamples=50)["steps"]
    kept = rows[~rows["loop"]]
    own = kept[kept["variant"] == "cost/own"].sort_values(["prompt", "anchor", "step"])
    alive = own.groupby(["prompt", "anchor"], observed=True)["match"].transform(
        lambda match: match.astype(bool).cumprod().shift(fill_value=1)
    )
    living = own.assign(alive=alive.to_numpy(bool))
    for step in (1, 2, 3):
        chains = living[living["alive"] & (living["step"] == step)][["prompt", "anchor"]]
        assert steps[step - 1]["alive"] == len(chains)
        for patch in (OWN, "state", REAL):
            there = kept[(kept["variant"] == f"cost/{patch}") & (kept["step"] == step)].merge(chains)
            name = {OWN: "actual", REAL: "undrifted"}.get(patch)
            right = there["match"].mean()
            if name is not None:
                assert steps[step - 1][name]["mean"] == pytest.approx(right)
            else:
                alone = steps[step - 1]["state"]["alone"]["mean"]
                assert alone == pytest.approx(right - steps[step - 1]["actual"]["mean"])


def test_categories_are_their_prompts() -> None:
    found = told(FakeCost())
    cost = cost_figures(found["anchors"], CATEGORIES, resamples=50)
    ends = rejection_figures(found["rejections"], 4, CATEGORIES, resamples=50)
    for name in ("chat", "code"):
        prompts = [prompt for prompt, category in CATEGORIES.items() if category == name]
        part = found["anchors"][found["anchors"]["prompt"].isin(prompts)]
        alone = cost_figures(part, resamples=50)
        assert cost["by_category"][name] == {key: alone[key] for key in cost["by_category"][name]}
        assert "by_depth" not in cost["by_category"][name]
        rest = found["rejections"][found["rejections"]["prompt"].isin(prompts)]
        own = rejection_figures(rest, 4, resamples=50)
        assert ends["by_category"][name] == {key: own[key] for key in ends["by_category"][name]}
    # Fewer than 12 prompts have no interval.
    assert cost["by_category"]["chat"]["cost"]["low"] is None


def test_the_served_walk_keeps_loops_and_needs_every_anchor() -> None:
    rows = told(FakeCost())["anchors"]
    cost = cost_figures(rows, resamples=50)["served"]
    for name, patch in (("actual", OWN), ("undrifted", REAL)):
        accepted = rounds = 0
        for _, chain in rows[rows["variant"] == f"cost/{patch}"].groupby("prompt", observed=True):
            counts = chain.groupby("anchor")["accepted"].sum().to_numpy(int)
            walk = stats.served_walk(counts, 4)
            accepted, rounds = accepted + walk.total, rounds + walk.rounds
        assert cost[name]["mean"] == pytest.approx(accepted / rounds)
    assert cost["cost"]["mean"] == pytest.approx(cost["undrifted"]["mean"] - cost["actual"]["mean"])
    assert "served" not in cost_figures(rows[rows["anchor"] != 12], resamples=50)


def test_shares_of_reasons_sum_to_1_and_their_tokens_to_the_depth() -> None:
    found = told(FakeCost())
    for depth in (1, 2, 4):
        ends = rejection_figures(found["rejections"], depth, resamples=50)
        cost = cost_figures(found["anchors"], depth=depth, resamples=50)
        shares = [ends[name]["mean"] for name in REASONS if name != "block"]
        assert sum(shares) == pytest.approx(1, abs=1e-12)
        lost = sum(figure["mean"] for figure in ends["lost"].values())
        assert lost + cost["actual"]["mean"] == pytest.approx(depth, abs=1e-12)
        assert "block" not in ends
    rows = found["rejections"]
    kept = rows[~rows["loop"]]
    assert ends["rejected"] == int(kept["step"].notna().sum())
    assert ends["state"]["mean"] == pytest.approx((kept["reason"] == "state").sum() / ends["rejected"])
    assert ends["gained"]["mean"] == kept["gained"].mean()
    assert ends["probs"]["drafter"]["target"]["mean"] == pytest.approx(0.5)
    assert set(ends["probs"].get("vocabulary", {})) <= {"target"}


def test_a_block_has_a_price_and_no_path() -> None:
    found = told(FakeCost(block=True))
    cost = cost_figures(found["anchors"], resamples=50)
    assert cost["cost"]["mean"] > 0
    assert not set(cost) & {*FACTORS, "state_rms"}
    ends = rejection_figures(found["rejections"], 4, resamples=50)
    assert not set(ends) & {*FACTORS, "several"}
    assert ends["block"]["mean"] > 0


def test_effects_are_whole_numbers_of_orders() -> None:
    names = [patch.name for patch in patches(split_state=True)]
    found = effects(names)
    assert all((weights == np.round(weights)).all() for weights in found.values())
    total = sum(found[factor, "shapley"] for factor in FACTORS)
    np.testing.assert_array_equal(total, found[("cost",)])
    assert [orders for _, orders in contexts("state")] == [2, 1, 1, 2]


@pytest.mark.parametrize("spoil", ["missing", "twice", "other step"])
def test_rows_that_are_not_whole_are_refused(spoil: str) -> None:
    rows = told(FakeCost())["anchors"]
    if spoil == "missing":
        rows = rows.drop(index=5)
    elif spoil == "twice":
        rows = pd.concat([rows.drop(index=5), rows.iloc[[6]]])
    else:
        rows = rows.assign(step=rows["step"].where(rows.index != 5, 3))
    with pytest.raises(RunError, match="not one for every patch, anchor and step"):
        cost_sums(rows)


def written(folder: Path, **changes: Any) -> Run:
    fake, cost = Fake(prompts=PROMPTS, depth=4), FakeCost(**changes)
    run = Run.create(folder, **meta(fake))
    for number, prompt in enumerate(prompt_ids(fake)):
        run.write_shard("clean", prompt, tables(fake, number))
        run.write_shard("cost", prompt, cost_shard(cost, prompt, number))
    return run


def test_a_run_tells_them_in_its_summary(tmp_path: Path) -> None:
    run = written(tmp_path / "a")
    summary = run.summary()
    rows, ends = run.table("anchors", "cost"), run.table("rejections", "cost")
    assert summary["drift_cost"] == cost_figures(rows, dict.fromkeys(prompt_ids(Fake(prompts=PROMPTS)), "chat"))
    assert summary["rejections"]["rejected"] == rejection_figures(ends, 4)["rejected"]
    assert run.summary(2)["drift_cost"]["depth"] == 2
    assert run_cost(run)["drift_cost"] == summary["drift_cost"] == probe_figures(run)["cost"]["drift_cost"]
    assert json.loads(json.dumps(summary["drift_cost"], allow_nan=False)) == summary["drift_cost"]


def test_a_run_without_the_probe_says_nothing_and_a_shard_more_is_seen(tmp_path: Path) -> None:
    fake = Fake(prompts=PROMPTS, depth=4)
    run = Run.create(tmp_path / "b", **meta(fake))
    run.write_shard("clean", prompt_ids(fake)[0], tables(fake, 0))
    assert not {"drift_cost", "rejections"} & set(run.summary())
    for number, prompt in enumerate(prompt_ids(fake)):
        run.write_shard("cost", prompt, cost_shard(FakeCost(), prompt, number))
    assert run.summary()["drift_cost"]["prompts"] == PROMPTS
