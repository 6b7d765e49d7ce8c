"""Padded vocabularies: accepted where the padding cannot matter, refused where it could."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from driftscope.api import probe
from driftscope.captures.capture import capture
from driftscope.chain.drafter_inputs import drafter_text
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints import open_checkpoint, open_state_dict
from driftscope.checkpoints.reading.padding import is_padding
from driftscope.errors import CheckpointError, TargetError
from tests import tiny_target
from tests.checkpoints.layouts import EAGLE1, PLAIN, stored
from tests.closeness import assert_same
from tests.tiny_pair import CONFIG, TinyPair, save_pair
from tests.tiny_target import ROUNDED, VOCAB

PADDED = 64


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (32000, 32064, True), (151665, 151936, True), (151936, 152064, True), (50257, 50304, True), (128256, 128256, False),
        (32000, 32003, False), (32000, 128256, False), (61, 72, False), (61, 64, True), (150000, 151552, False),
    ],
)  # fmt: skip
def test_what_counts_as_padding(one: int, other: int, same: bool):
    assert is_padding(one, other) is is_padding(other, one) is same


def test_rows_beyond_the_vocabulary_of_the_config_are_cut_off(tmp_path: Path):
    config = dataclasses.replace(PLAIN, vocab_size=58, draft_vocab_size=29, embedding="own")
    tensors, raw = stored(config)
    plain = open_state_dict(tensors, raw)
    spoilt = dict(tensors)
    for name, rows in (("embed_tokens.weight", 64), ("lm_head.weight", 32)):
        spoilt[name] = torch.cat([tensors[name], torch.full((rows - len(tensors[name]), 16), 9.0)])
    opened = open_state_dict(spoilt, raw)
    assert opened.config == plain.config
    assert all(opened.weights[name].equal(weight) for name, weight in plain.weights.items())
    assert sum("are padding and cut off" in warning for warning in opened.warnings) == 2


@pytest.mark.parametrize(
    ("name", "rows"), [("embed_tokens.weight", 63), ("lm_head.weight", 31), ("embed_tokens.weight", 80)]
)
def test_rows_that_are_no_padding_are_refused(name: str, rows: int):
    tensors, raw = stored(dataclasses.replace(PLAIN, vocab_size=58, draft_vocab_size=29, embedding="own"))
    tensors[name] = torch.ones(rows, 16)
    with pytest.raises(CheckpointError, match=rf"{name}.* (has|have) .*{rows}"):
        open_state_dict(tensors, raw)


def test_a_whole_vocabulary_without_a_map_is_cut_to_the_config():
    config = dataclasses.replace(EAGLE1, head="own", vocab_size=58, draft_vocab_size=58)
    tensors, raw = stored(config, "eagle1")
    tensors["lm_head.weight"] = torch.cat([tensors["lm_head.weight"], torch.ones(6, 16)])
    opened = open_state_dict(tensors, raw)
    assert opened.config.draft_vocab_size == 58
    assert len(opened.weights["lm_head.weight"]) == 58


OWN = dataclasses.replace(CONFIG, embedding="own")
WHOLE = dataclasses.replace(OWN, vocab_map="none", draft_vocab_size=VOCAB)


def chains(pair: Pair, folder: TinyPair) -> list[dict[str, torch.Tensor]]:
    prompts = tiny_target.tiny_prompts(9)
    record = capture(pair.target, prompts, max_new_tokens=16, boundaries=pair.config.aux_boundaries or ())[0]
    return Subject(pair, record, Settings(depth=3, horizon=4, sinks=(0,))).chains("drafted")


@pytest.fixture(scope="module", params=[OWN, WHOLE], ids=["d2t", "whole"])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyPair, Any]:
    folder = save_pair(tmp_path_factory.mktemp("plain"), request.param)
    return folder, chains(load_pair(folder.checkpoint, folder.target), folder)


def padded_target(folder: Path) -> Path:
    """The same target with rows that nothing reaches: its head makes their logits -30."""
    model = tiny_target.tiny_model()
    model.resize_token_embeddings(PADDED, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[VOCAB:] = 7.0
        model.get_output_embeddings().weight[VOCAB:] = 0.0
    model.save_pretrained(folder)
    tiny_target.tiny_tokenizer().save_pretrained(folder)
    return folder


def same(ours: list[dict[str, torch.Tensor]], theirs: list[dict[str, torch.Tensor]]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for name in ("drafted", "rms/carry", "mass", "head_entropy"):
            assert_same(one[name], other[name], name, **ROUNDED)


def test_a_drafter_padded_beyond_its_target(plain: tuple[TinyPair, Any], tmp_path: Path):
    """Rows that would win every draft are not there: the chains are those of the unpadded drafter."""
    folder, expected = plain
    tensors = load_file(folder.checkpoint / "model.safetensors")
    raw = json.loads((folder.checkpoint / "config.json").read_text())
    for name in ("embed_tokens.weight", "lm_head.weight"):
        if len(tensors[name]) == VOCAB:
            tensors[name] = torch.cat([tensors[name], torch.full((PADDED - VOCAB, 32), 50.0)])
    if "t2d" in tensors:
        tensors["t2d"] = torch.cat([tensors["t2d"], torch.zeros(PADDED - VOCAB, dtype=torch.bool)])
    raw["vocab_size"] = PADDED
    if raw.get("draft_vocab_size") == VOCAB:
        raw["draft_vocab_size"] = PADDED
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert open_checkpoint(tmp_path).config.vocab_size == PADDED
    pair = load_pair(tmp_path, folder.target)
    assert pair.config.vocab_size == VOCAB
    assert pair.config.known_tokens is None
    assert any(f"a vocabulary of {VOCAB} in the target, {PADDED} in the drafter" in w for w in pair.warnings)
    same(chains(pair, folder), expected)


def test_a_target_padded_beyond_its_drafter(plain: tuple[TinyPair, Any], tmp_path: Path):
    folder, expected = plain
    pair = load_pair(folder.checkpoint, padded_target(tmp_path / "target"))
    assert pair.config.vocab_size == PADDED
    assert pair.config.known_tokens == VOCAB
    assert pair.drafter.embed_tokens.weight.shape[0] == PADDED
    same(chains(pair, folder), expected)
    # A checkpoint that was opened without its target is fitted as well.
    same(chains(load_pair(open_checkpoint(folder.checkpoint), pair.target), folder), expected)


def test_a_text_beyond_what_the_drafter_embeds_is_refused(plain: tuple[TinyPair, Any], tmp_path: Path):
    folder, _ = plain
    pair = load_pair(folder.checkpoint, padded_target(tmp_path / "target"))
    prompts = [tiny_target.TinyPrompt("odd", (3, 4, 62, 5))]
    record = capture(pair.target, prompts, max_new_tokens=4, boundaries=pair.config.aux_boundaries or ())[0]
    with pytest.raises(TargetError, match=r"prompt odd: its text has token 62, but the drafter embeds 61"):
        drafter_text(pair.config, record, device="cpu", dtype=torch.float32)


def test_a_drafter_that_shares_the_padded_target(tmp_path: Path):
    """Embedding and head are the target's, so that nothing has to be cut."""
    folder = save_pair(tmp_path / "pair", dataclasses.replace(CONFIG, head="own"))
    run = probe(
        folder.checkpoint,
        out=tmp_path / "run",
        probes="norms",
        **{**folder.options, "target": padded_target(tmp_path / "t")},
    )
    assert run.info.checkpoint.switches["vocab_size"] == PADDED
    assert run.info.checkpoint.switches["known_tokens"] is None
    assert len(run.table("anchors"))


def test_another_vocabulary_is_no_padding(tmp_path: Path):
    folder = save_pair(tmp_path / "pair")
    other = tiny_target.tiny_config(vocab_size=VOCAB + 11)
    with pytest.raises(TargetError, match=r"a vocabulary of 61 .* the target has 72: not its target"):
        open_checkpoint(folder.checkpoint, target_config=other)
