"""Runs of drafters that draft all steps at once: the same tables as a chain's, without what nothing is carried for."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import driftscope
from driftscope.audit import audit
from driftscope.checkpoints.save import save_checkpoint
from driftscope.cli import app
from driftscope.commands.content import run_content
from driftscope.compare import compare
from driftscope.errors import CheckpointError, DriftscopeError
from driftscope.findings import assess
from driftscope.findings.verdict import verdict
from driftscope.integrations import drift_metrics, training_capture
from driftscope.progress import NullProgress
from driftscope.runs.run import Run
from driftscope.show import frames
from tests import tiny, tiny_pair
from tests.closeness import assert_same
from tests.test_summary_schema import errors
from tests.tiny_pair import TinyPair
from tests.tiny_target import ROUNDED

BLOCK = dataclasses.replace(
    tiny_pair.CONFIG, layer_form="dflash", carry="none", mask_token_id=5, block_size=4, num_layers=2, qk_norm=True
)
MASKED = dataclasses.replace(tiny_pair.CONFIG, carry="none", mask_token_id=5)
PROBES = "norms,attention,acceptance,noise,pin,depth,layers"


class Told(NullProgress):
    """Keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@dataclasses.dataclass
class Made:
    pair: TinyPair
    runs: dict[str, Run]
    messages: dict[str, list[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("blocks")
    pair = tiny_pair.save_pair(folder)
    for name, config, layout in (("block", BLOCK, "speculators-dflash"), ("masked", MASKED, "speculators")):
        weights = tiny.weights(config)
        del weights["embed_tokens.weight"]
        save_checkpoint(folder / name, config, weights, layout)
    runs, messages = {}, {}
    for name, probes in (("block", PROBES), ("masked", "norms,layers"), ("drafter", "norms,noise")):
        told = Told()
        options = {**pair.options, "depth": 5, "horizon": 5}
        if "noise" in probes:
            options["options"] = {"noise.seeds": 1, "noise.anchors": 4}
        runs[name] = driftscope.probe(
            folder / name, out=folder / f"run-{name}", probes=probes, progress=told, **options
        )
        messages[name] = told.messages
    return Made(pair, runs, messages)


@pytest.mark.numeric("plain")
@pytest.mark.supports("run", ("DFlash", "P-EAGLE"))
def test_a_block_run_holds_what_there_is_and_nothing_in_the_place_of_what_there_is_not(made: Made):
    run, chain = made.runs["block"], made.runs["drafter"]
    anchors, other = run.table("anchors", probe="clean"), chain.table("anchors", probe="clean")
    absent = ["cos_prev", "cos_baseline", "matched_growth"]
    assert anchors[absent].isna().all(axis=None)
    assert "rms/carry" not in anchors
    assert other.loc[other["step"] > 1, [*absent, "rms/carry"]].notna().all(axis=None)
    assert sorted(anchors["step"].unique()) == [1, 2, 3]
    # The newest feature enters once a block.
    assert (anchors["rms/state"].notna() == (anchors["step"] == 1)).all()
    shared = ["prompt", "anchor", "step", "feed"]
    both = anchors[[*shared, "text"]].merge(other[[*shared, "text"]], on=shared, suffixes=("", "_chain"))
    assert len(both) == len(anchors)
    assert (both["text"] == both["text_chain"]).all()
    masses = anchors[[f"mass/{name}" for name in ("sink", "prompt", "committed", "drafted", "current")]].sum(axis=1)
    assert_same(masses, np.ones(len(masses)), **ROUNDED, dtype=torch.float32)
    own = anchors["mass/drafted"] + anchors["mass/current"]
    assert_same(anchors["mass/self_generated"], own, size=1, dtype=torch.float32)
    first = anchors[anchors["step"] == 1]
    assert (first["mass/self_generated"] > 0).all()
    excess = first[[name for name in first if name.startswith("excess/")]].to_numpy(np.float64)
    assert_same(excess, np.zeros_like(excess), **ROUNDED, size=1, dtype=torch.float32)
    assert (anchors["keys/drafted"] == BLOCK.block_size - 2).all()
    attended = run.table("attended", probe="clean")
    assert set(attended["bucket"]) <= {"sink", "prompt", "committed", "drafted", "current"}
    told = attended.merge(first.drop_duplicates(["prompt", "anchor"])[["prompt", "anchor"]], on=["prompt", "anchor"])
    stands = told["position"] - told["anchor"]
    current, drafted = told["bucket"] == "current", told["bucket"] == "drafted"
    assert (stands[current] == told["step"][current] + 1).all()
    assert ((stands[drafted] > 1) & told["own"][drafted]).all()


@pytest.mark.numeric("plain")
def test_both_feeds_of_a_drafter_that_embeds_masks_are_the_same(made: Made):
    for name in ("block", "masked"):
        anchors = made.runs[name].table("anchors", probe="clean").drop(columns="sampling")
        fed = {
            feed: anchors[anchors["feed"] == feed].drop(columns="feed").reset_index(drop=True)
            for feed in ("drafted", "text")
        }
        assert fed["drafted"]["drafted"].equals(fed["text"]["drafted"])
        assert_same(fed["drafted"]["rms/residual"], fed["text"]["rms/residual"], **ROUNDED, dtype=torch.float32)
    assert made.runs["block"].table("anchors", probe="clean")["sampling"].notna().any()


def test_p_eagle_has_the_buckets_of_a_chain(made: Made):
    anchors = made.runs["masked"].table("anchors", probe="clean")
    assert "rms/carry" not in anchors
    assert sorted(anchors["step"].unique()) == [1, 2, 3, 4, 5]
    assert (anchors.loc[anchors["step"] == 1, "mass/self_generated"] == 0).all()
    later = anchors[anchors["step"] > 1]
    # The state of the masks is one and the same.
    assert later["rms/state"].std() < 1e-5


def test_noise_is_measured_and_the_carry_is_not(made: Made):
    steps = made.runs["block"].table("steps", probe="noise")
    assert set(steps["step"]) == {1, 2, 3}
    assert "sum/cos_clean" not in steps
    noisy = steps[(steps["feed"] == "text") & steps["variant"].str.startswith("noise/embed/1")]
    assert (noisy["sum/kl"] > 0).all()
    assert "sum/cos_clean" in made.runs["drafter"].table("steps", probe="noise")
    with pytest.raises(DriftscopeError, match=r"noise\.sites=carry: this drafter drafts all steps at once"):
        driftscope.probe(
            made.pair.checkpoint.parent / "block", out=made.pair.checkpoint.parent / "carry", probes="noise",
            options={"noise.sites": ("carry",)}, **made.pair.options,
        )  # fmt: skip


def test_what_does_not_apply_is_left_out_with_a_note(made: Made):
    told = made.messages["block"]
    assert "a block of 4 rows drafts 3 tokens: depth is 3, not 5" in told
    for probe in ("pin", "layers"):
        assert f"probe {probe} is left out: this drafter drafts all steps at once and carries no state" in told
    assert set(made.runs["block"].probes) == {"clean", "noise", "depth"}
    assert set(made.runs["masked"].probes) == {"clean"}
    folder = made.pair.checkpoint.parent
    with pytest.raises(DriftscopeError, match="probe pin is left out"):
        driftscope.probe(folder / "block", out=folder / "none", probes="pin", **made.pair.options)
    with pytest.raises(CheckpointError, match="the audit flips the switches of a chain of steps"):
        audit(folder / "block", target=made.pair.target, prompts=made.pair.prompts, cache_dir=made.pair.cache)
    with pytest.raises(DriftscopeError, match="probe depth asks for 4 steps, a block of this drafter has 3"):
        driftscope.probe(
            folder / "block", out=folder / "deep", probes="depth", options={"depth.steps": 4}, **made.pair.options
        )


def test_there_is_no_verdict_on_drift_where_nothing_is_carried(made: Made):
    for name in ("block", "masked"):
        summary = made.runs[name].summary()
        assert not {"growth", "matched_growth", "carry_rms"} & summary["steps"][-1].keys()
        assert "norm_up" not in summary["onset"]
        assert verdict(summary).headline.startswith("Nothing is carried from step to step")
        why = {part.code: part.reason for part in assess(made.runs[name]).unmeasured}
        for code in ("DS101", "DS102", "DS104"):
            assert why[code] == "all steps are drafted at once, nothing is carried from one to the next"


def test_what_is_printed_conforms_to_the_schema(made: Made):
    for run in made.runs.values():
        assert errors(run_content(run, assess(run), None)) == []


def test_a_chain_and_a_block_stand_side_by_side(made: Made):
    found = compare([made.runs["drafter"], made.runs["block"]], resamples=50)
    assert found.design.kind == "different kinds"
    assert "One of these two checkpoints drafts step by step, the other all steps at once" in found.headline
    assert [run["carry"] for run in found.to_dict()["runs"]] == ["pre", "none"]
    by_name = {part.quantity.name: part for part in found.compared}
    assert list(by_name["growth"].values) == ["drafter"]
    assert set(by_name["served"].values) == {"drafter", "block"}
    assert found.depth == 3
    assert "displacement" not in found.headline
    assert any("compare them between blocks" in note for note in found.notes)
    three = compare(list(made.runs.values()), resamples=50)
    assert "some draft step by step, others all steps at once" in three.headline


@pytest.mark.parametrize("command", ["show", "inspect"])
def test_commands_take_a_block_drafter(command: str, made: Made):
    checkpoint = made.pair.checkpoint.parent / "block"
    arguments = {"show": [str(made.runs["block"].folder)], "inspect": [str(checkpoint), "--json"]}[command]
    result = CliRunner().invoke(app, [command, *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if command == "show":
        assert "Nothing is carried from step to step" in result.output
        assert "growth" not in result.output
    else:
        assert json.loads(result.stdout)["switches"]["block_size"]["value"] == 4


def test_figures_while_a_block_drafter_trains(made: Made):
    weights = tiny.weights(BLOCK)
    del weights["embed_tokens.weight"]
    config = json.loads((made.pair.checkpoint.parent / "block" / "config.json").read_text())
    capture = training_capture(
        made.pair.target,
        weights,
        config=config,
        prompts=made.pair.prompts,
        cache_dir=made.pair.cache,
        max_new_tokens=24,
    )
    found = {name.partition("/")[2] for name in drift_metrics(weights, capture, config=config)}
    assert {"served_length", "displacement", "self_excess_slope"} <= found
    assert not {"norm_growth", "matched_growth"} & found


def test_charts_are_drawn_of_a_chain_and_a_block_together(made: Made):
    runs = [made.runs["drafter"], made.runs["block"]]
    figures = frames.step_figures(runs)
    told = figures[figures["quantity"] == "conditional"]
    assert set(told["run"]) == {"drafter", "block"}
    assert set(figures[figures["quantity"] == "growth"]["run"]) == {"drafter"}
    sites = frames.site_norms(runs)
    assert set(sites[sites["site"] == "carry"]["run"]) == {"drafter"}
    assert {"residual", "final_norm", "embed"} < set(sites[sites["run"] == "block"]["site"])
    drawn = runs[1].charts
    for chart in (drawn.overview(), drawn.norms(), drawn.attention(), drawn.acceptance()):
        assert chart.to_dict()
