"""The heaviest keys of a step by name, and the text in pieces."""

from __future__ import annotations

from pathlib import Path

import nnsight
import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from driftscope import probe
from driftscope.chain.chain import Chain, chain_inputs
from driftscope.chain.masses import heavy_keys
from driftscope.chain.measure import BUCKETS, StepMeasure
from driftscope.chain.observe import observe
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter.attention import Window
from driftscope.runs.run import Run
from driftscope.runs.token_rows import key_buckets, pieces
from tests import tiny
from tests.closeness import assert_same
from tests.tiny_pair import save_pair

DEPTH, HORIZON, SINKS = 4, 5, (0, 3)


def heaviest(count: int, budget: int = 1 << 28) -> tuple[list[dict[str, torch.Tensor]], np.ndarray, int]:
    drafter, text = tiny.drafter(tiny.CONFIG, tiny.weights(tiny.CONFIG)), tiny.text(tiny.CONFIG)
    windows = [Window()] * tiny.CONFIG.num_layers
    passed = prefix_pass(drafter, text, windows, sinks=SINKS, horizon=HORIZON)
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=DEPTH, feed="drafted")
    measure = StepMeasure(drafter, text, passed.baseline, SINKS, anchors, count)
    chain = nnsight.NNsight(Chain(drafter))
    return (
        observe(chain, inputs, measure, sites=drafter.step_sites, budget=budget),
        anchors.numpy(),
        text.prompt_length,
    )


@pytest.mark.numeric("double")
def test_all_keys_by_bucket_are_the_bucket_masses() -> None:
    steps, anchors, prompt_length = heaviest(1000)
    for k, step in enumerate(steps, start=1):
        mass, position, own = (step[name].numpy() for name in ("heavy_mass", "heavy_position", "heavy_own"))
        anchor = np.broadcast_to(anchors[:, None], mass.shape)
        bucket = key_buckets(position, own, anchor, k, SINKS, prompt_length)
        for place, name in enumerate(BUCKETS[:-1]):
            total = np.where(bucket == name, mass, 0).sum(1)
            assert_same(total, step["mass"][..., place].mean((1, 2)), name, size=1)


@pytest.mark.numeric("double")
def test_keys_come_heaviest_first_and_do_not_depend_on_chunks() -> None:
    whole, anchors, _ = heaviest(8)
    parts, _, _ = heaviest(8, budget=1)
    for k, (one, other) in enumerate(zip(whole, parts, strict=True), start=1):
        assert one["heavy_mass"].shape == (len(anchors), 8)
        assert (one["heavy_mass"].diff(dim=1) <= 0).all()
        assert_same(one["heavy_mass"], other["heavy_mass"])
        own = one["heavy_own"].numpy()
        position = one["heavy_position"].numpy()
        assert ((position >= anchors[:, None]) == own)[one["heavy_mass"].numpy() > 0].all()
        assert (position[own] < (anchors[:, None] + k + 0 * position)[own]).all()


def test_fewer_keys_than_asked_are_filled_with_nothing() -> None:
    weights = torch.tensor([[[0.1, 0.2, 0.7]], [[0.5, 0.3, 0.2]]])
    found = heavy_keys([weights], 1, torch.tensor([2, 5]), 5)
    assert found["heavy_mass"].shape == (2, 5)
    assert found["heavy_position"][:, 0].tolist() == [2, 0]
    assert found["heavy_own"][:, 0].tolist() == [True, False]
    assert (found["heavy_mass"][:, 3:] == 0).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("tokens")
    pair = save_pair(folder)
    return probe(pair.checkpoint, out=folder / "run", **pair.options)


def test_a_run_holds_its_text_and_what_was_drafted_in_pieces(run: Run) -> None:
    tokens, anchors = run.table("tokens"), run.table("anchors")
    prompt = run.info.prompts[0]
    mine = tokens[tokens["prompt"] == prompt.id]
    text = mine.dropna(subset=["position"])
    assert text["position"].tolist() == list(range(prompt.text_length))
    # Word n of the tokenizer is called wn; 60 ends the text.
    assert all(
        piece.strip() == ("</s>" if token == 60 else f"w{token}")
        for token, piece in zip(text["id"], text["piece"], strict=True)
    )
    chains = anchors[(anchors["prompt"] == prompt.id) & (anchors["feed"] == "drafted")]
    assert set(chains["drafted"]) <= set(mine["id"])
    after = chains.merge(text, left_on=chains["anchor"] + 1 + chains["step"], right_on="position")
    assert len(after) == len(chains)
    assert (after["text"] == after["id"]).all()


def test_attended_keys_stand_for_anchors_outside_loops(run: Run) -> None:
    attended, anchors = run.table("attended"), run.table("anchors")
    kept = anchors[(anchors["feed"] == "drafted") & ~anchors["loop"]]
    wanted = set(map(tuple, kept[["prompt", "anchor", "step"]].astype({"prompt": str}).to_numpy()))
    assert set(map(tuple, attended[["prompt", "anchor", "step"]].astype({"prompt": str}).to_numpy())) == wanted
    by_chain = attended.groupby([attended["prompt"].astype(str), "anchor", "step"])
    assert by_chain.size().between(1, 8).all()
    assert by_chain["mass"].sum().between(0.3, 1.0 + 1e-5).all()
    sink = attended[attended["position"].isin(run.info.target.sinks)]
    assert (sink["bucket"] == "sink").all()


def test_a_space_before_a_word_is_kept_where_decoding_drops_it() -> None:
    vocab = {"<unk>": 0, "▁to": 1, "day": 2}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    inner.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    assert tokenizer.decode([1]) == "to"
    assert pieces(tokenizer, [1, 2, 1]) == [" to", "day", " to"]


def test_without_a_tokenizer_there_are_no_pieces(run: Run) -> None:
    from types import SimpleNamespace

    from driftscope.runs.token_rows import token_rows

    capture = SimpleNamespace(prompt_id="p", token_ids=torch.tensor([1, 2]))
    subject = SimpleNamespace(pair=SimpleNamespace(target=SimpleNamespace(tokenizer=None)), capture=capture)
    frame = token_rows(subject, [{"drafted": torch.tensor([3])}])  # type: ignore[arg-type]
    assert isinstance(frame, pd.DataFrame)
    assert frame.empty
