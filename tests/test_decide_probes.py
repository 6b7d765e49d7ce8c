"""The probes trees and rules on a tiny pair, end to end: rows, figures, and what the command prints of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import driftscope
from driftscope.cli import app
from driftscope.errors import DriftscopeError
from driftscope.figures.rules import rule_figures
from driftscope.figures.trees import tree_figures
from driftscope.probes import available
from driftscope.probes.rules import RulesProbe
from driftscope.probes.trees import TreesProbe
from driftscope.runs.run import Run
from tests.tiny_pair import save_pair


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pair = save_pair(tmp_path_factory.mktemp("pair"))
    options = {**pair.options, "max_new_tokens": 40, "horizon": 6}
    probes = ("acceptance", "trees", "rules")
    asked = {
        "trees.trees": ("3x3x8", "2-2"),
        "rules.samplings": ("t1", "t1/t0.5", "t0.7;k20"),
        "rules.sampled_tokens": 24,
    }
    return driftscope.probe(
        pair.checkpoint, out=pair.cache / "run", probes=probes, options=asked, audit=False, **options
    )


def test_the_chain_is_that_of_the_clean_probe(run: Run) -> None:
    rows = run.table("trees", "trees")
    chain = rows[rows["variant"] == "tree/chain"]
    clean = run.table("anchors", "clean")
    clean = clean[clean["feed"] == "drafted"]
    both = chain.merge(clean, on=["prompt", "anchor", "step"])
    assert len(both)
    assert (both["nodes"].notna() == both["accepted"].astype(bool)).all()
    assert (both["nodes"].dropna() == both["step"][both["nodes"].notna()]).all()


def test_tree_figures_at_every_budget(run: Run) -> None:
    rows, variants = run.table("trees", "trees"), run.table("variants", "trees")
    found = tree_figures(rows, variants, resamples=20)
    assert [tree["name"] for tree in found["trees"]] == ["3x3x8", "2-2"]
    for tree in found["trees"]:
        own = rows[(rows["variant"] == f"tree/{tree['name']}") & ~rows["loop"]]
        anchors = (own["step"] == 1).sum()
        for entry in [*tree["budgets"], tree]:
            wanted = (own["nodes"] <= entry["nodes"]).fillna(False).sum() / anchors
            assert entry["anchor_mean"]["mean"] == pytest.approx(wanted)
        means = [entry["anchor_mean"]["mean"] for entry in [*tree["budgets"], tree]]
        assert means == sorted(means)


def test_rules_hold_their_bounds(run: Run) -> None:
    rows = run.table("rules", "rules")
    wide = rows.pivot_table(
        index=["variant", "text", "prompt", "step"], columns="rule", values=["acceptance", "joint"], observed=True
    )
    acceptance = wide["acceptance"]
    assert (acceptance["lossless"] >= acceptance["exact_match"] - 1e-5).all()
    assert np.allclose(acceptance["lossless"], acceptance["block"])
    joint = wide["joint"].xs("sampled", level="text")
    assert (joint["block"] >= joint["lossless"] - 1e-9).all()
    assert rows[(rows["text"] == "greedy") & (rows["rule"] != "greedy")]["joint"].isna().all()


def test_greedy_figures_do_not_depend_on_the_sampling(run: Run) -> None:
    rows = run.table("rules", "rules")
    own = rows[(rows["rule"] == "greedy") & (rows["text"] == "greedy")]
    by_variant = [part["acceptance"].to_numpy() for _, part in own.groupby("variant", observed=True)]
    assert len(by_variant) == 3
    assert all((part == by_variant[0]).all() for part in by_variant)


def test_rule_figures_name_lengths_and_the_draft_temperature(run: Run) -> None:
    found = rule_figures(run.table("rules", "rules"), run.table("variants", "rules"), resamples=20)
    by_name = {(entry["target"], entry["draft"]): entry["rules"] for entry in found["samplings"]}
    assert set(by_name) == {("t1", "t1"), ("t1", "t0.5"), ("t0.7,k20", "t0.7,k20")}
    plain = by_name["t1", "t1"]
    assert "length" in plain["lossless"]
    assert "length" in plain["greedy"]
    assert plain["block"]["length"]["mean"] >= plain["lossless"]["length"]["mean"]
    assert [entry["temperature"] for entry in found["draft_temperature"]["tried"]] == [0.5, 1.0]


def test_sampled_texts_repeat(run: Run) -> None:
    rows = run.table("rules", "rules")
    assert (rows["text"] == "sampled").any()
    held = rows[(rows["text"] == "sampled") & (rows["rule"] == "one_hot")]
    assert held["joint"].notna().all()


def test_the_command_prints_all_of_it(run: Run) -> None:
    result = CliRunner().invoke(app, ["plan", str(run.folder), "--ratio", "0.1"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for told in (
        "chain of as many",
        "3x3x8",
        "lossless",
        "kind of token",
        "place in the answer",
        "drafter's probability",
    ):
        assert told in result.stdout
    content = json.loads(CliRunner().invoke(app, ["plan", str(run.folder), "--json"]).stdout)
    assert content["batches"] == []
    assert [tree["name"] for tree in content["trees"]] == ["3x3x8", "2-2"]
    assert content["rules"]["samplings"]
    assert content["traffic"]


def test_costs_are_measured_and_the_loop_serves_the_same_text(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "costs.json"
    arguments = [
        "plan",
        str(run.folder),
        "--measure",
        "--batches",
        "1,2",
        "--serve",
        "1",
        "--save-costs",
        str(kept),
        "--json",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [batch["batch"] for batch in found["batches"]] == [1, 2]
    assert set(found["costs"]["batches"][0]["target"]) == {"1", "2", "3", "4", "7", "9"}
    for entry in found["proof"]:
        assert entry["measured"] > 0
        assert entry["predicted"] > 0
        assert entry["identical"] == entry["texts"] == 1
        # The last round may go beyond the last anchor.
        assert entry["accepted"] == pytest.approx(entry["served"], abs=0.2)
    again = CliRunner().invoke(app, ["plan", str(run.folder), "--costs", str(kept)])
    assert again.exit_code == 0, again.output


def test_a_roofline_is_predicted_from_configs(run: Run) -> None:
    result = CliRunner().invoke(app, ["plan", str(run.folder), "--roofline", "h100", "--json"])
    assert result.exit_code == 0, result.output
    costs = json.loads(result.stdout)["costs"]
    assert costs["kind"] == "predicted"
    assert "roofline" in costs["note"]
    bad = CliRunner().invoke(app, ["plan", str(run.folder), "--roofline", "abacus"])
    assert bad.exit_code == 2
    assert "choose from A100, H100" in bad.stderr


def test_they_are_not_asked_unless_named() -> None:
    from driftscope.probes import DEFAULT

    assert not {"trees", "rules"} & set(DEFAULT)
    assert {"trees", "rules"} <= set(available())


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: TreesProbe(trees=("huge",)), "tree huge is not known"),
        (lambda: TreesProbe(anchors=0), "at least 1 anchor"),
        (lambda: RulesProbe(samplings=("warm",)), "sampling warm is not known"),
        (lambda: RulesProbe(samplings=()), "at least one sampling"),
        (lambda: RulesProbe(sampled_tokens=-1), "sampled_tokens -1"),
    ],
)
def test_bad_options_are_told_in_a_line(make: object, told: str) -> None:
    with pytest.raises(DriftscopeError, match=told):
        make()  # type: ignore[operator]


def test_no_rows_no_figures() -> None:
    assert tree_figures(pd.DataFrame(), pd.DataFrame()) == {}
    assert rule_figures(pd.DataFrame(), pd.DataFrame()) == {}
