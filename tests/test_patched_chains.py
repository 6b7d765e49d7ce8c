"""Patched chains against chains one at a time with patches put in by hand, for every kind of drafter that carries a state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from driftscope.captures.capture import Capture
from driftscope.chain.block import chain_of
from driftscope.chain.chain import Text, chain_inputs
from driftscope.chain.ends import EndsError
from driftscope.chain.pair import Pair
from driftscope.chain.patched_chains import PatchedChains, patched_chains
from driftscope.chain.patches import FACTORS, Patch, patch_name, patches
from driftscope.chain.prefix import prefix_pass
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints.config import Rope
from driftscope.drafter import Drafter
from driftscope.drafter.attention import Window
from driftscope.figures.cost_sums import cost_sums
from driftscope.probes.cost import PROBE
from driftscope.runs.schema import ANCHORS
from tests import heads, tiny
from tests.closeness import assert_same
from tests.double import SINGLE
from tests.heads import HEADS
from tests.plain_chain import Plain, grown_text
from tests.test_blocks import CONFIG as BLOCK

pytestmark = pytest.mark.numeric("double")
DEPTH, HORIZON = 4, 6


def eagle3(**switches: Any) -> Drafter:
    config = dataclasses.replace(tiny.CONFIG, **switches)
    tensors = tiny.weights(config)
    if config.learned_sinks:
        for name in tensors:
            if name.endswith("sinks"):
                tensors[name] = 2 + tensors[name]
    return tiny.drafter(config, tensors)


def mtp(name: str, **switches: Any) -> Drafter:
    config = HEADS[name].config(**switches)
    return heads.drafter(config, heads.weights(config))


LATENT = {
    "num_kv_heads": 4,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "rope": Rope(layout="interleaved"),
}
EAGLE1 = {"layer_form": "eagle1", "feature_source": "final", "aux_boundaries": None, "num_aux": 0, "vocab_map": "none",
          "draft_vocab_size": 60}  # fmt: skip
CASES: dict[str, Callable[[], Drafter]] = {
    "EAGLE-3": eagle3,
    "EAGLE 3.1": lambda: eagle3(fc_norm=True, carry="post"),
    "residual normed": lambda: eagle3(residual="normed"),
    "2 layers": lambda: eagle3(num_layers=2),
    "learned sinks": lambda: eagle3(learned_sinks=True),
    "window": lambda: eagle3(sliding_window=(5,)),
    "window per layer": lambda: eagle3(num_layers=3, sliding_window=(3, None, 5)),
    "latent attention": lambda: eagle3(**LATENT),
    "gated": lambda: eagle3(gated_attention=True, qk_norm=True),
    "KV of a round": lambda: eagle3(draft_kv="round"),
    "KV of a step": lambda: eagle3(draft_kv="step"),
    "positions stand still": lambda: eagle3(position_increment=0),
    "positions by two": lambda: eagle3(position_increment=2),
    "EAGLE-1": lambda: eagle3(**EAGLE1),
    "MTP head": lambda: mtp("speculators Qwen3"),
    "MTP head, experts and gates": lambda: mtp("Qwen3-Next"),
    "MTP head, latent attention": lambda: mtp("DeepSeek-V3"),
}


def made_subject(
    drafter: Drafter, windows: Window | None = None, *, text: Text | None = None, prompt_id: str = "p", **settings: Any
) -> Subject:
    text = grown_text(drafter, rng=np.random.default_rng(1)) if text is None else text
    length = len(text.token_ids)
    capture = Capture(
        prompt_id=prompt_id, category="test", token_ids=text.token_ids, prompt_length=text.prompt_length,
        final=torch.zeros(length, drafter.config.target_hidden_size), boundaries={}, rms=torch.ones(4, length, dtype=SINGLE),
        near_tie=torch.zeros(length, dtype=torch.bool), loop=torch.zeros(length, dtype=torch.bool), stopped=False,
    )  # fmt: skip
    head = drafter.embed_tokens.weight
    target = SimpleNamespace(num_layers=3, head=lambda hidden: hidden @ head.T)
    pair = Pair(None, drafter.config, target, drafter)  # type: ignore[arg-type]
    settings = {"depth": DEPTH, "horizon": HORIZON, **settings}
    subject = Subject(pair, capture, Settings(**settings), windows or Window())
    subject.text = text
    return subject


def by_hand(plain: Plain, anchors: list[int], wanted: tuple[Patch, ...], feed: str = "text") -> torch.Tensor:
    """[patch, anchor, step] drafted tokens."""
    drafted = []
    for anchor in anchors:
        own = plain.chain(anchor, DEPTH, feed=feed)
        under = [plain.chain(anchor, DEPTH, patch, own, feed) for patch in wanted]
        drafted.append([[step.drafted for step in steps] for steps in under])
    return torch.tensor(drafted).transpose(0, 1)


def plain_of(subject: Subject) -> tuple[Plain, list[int]]:
    return Plain(subject.pair.drafter, subject.text, subject.windows), subject.anchors.tolist()


def lengths(chains: PatchedChains, patch: str) -> torch.Tensor:
    return chains.right(patch).long().cumprod(1).sum(1)


@pytest.mark.parametrize("name", CASES)
def test_every_patch_drafts_what_a_plain_loop_drafts(name: str) -> None:
    subject = made_subject(CASES[name]())
    wanted = patches(split_state=True)
    found = patched_chains(subject, DEPTH, split_state=True)
    assert found.patches == tuple(patch.name for patch in wanted)
    plain, anchors = plain_of(subject)
    torch.testing.assert_close(found.drafted, by_hand(plain, anchors, wanted), rtol=0, atol=0)
    assert not found.tie.any()
    # The undrifted length is the run of step-1 successes.
    ids = subject.text.token_ids
    first = [row.drafted == int(ids[place + 2]) for place, row in enumerate(plain.real()[:-1])]
    runs = [int(np.logical_and.accumulate(first[t : t + DEPTH]).sum()) for t in anchors]
    assert lengths(found, "real").tolist() == runs
    # The case tells something: chains get somewhere, and the state at least matters.
    assert 0 < sum(runs) < DEPTH * len(runs)
    assert not torch.equal(found.drafted[0], found.drafted[found.patches.index("real")])


@pytest.mark.parametrize("name", ["EAGLE-3", "2 layers", "EAGLE-1", "MTP head"])
def test_rows_of_the_chain_s_own_tokens_can_be_recorded_instead(name: str) -> None:
    subject = made_subject(CASES[name]())
    found = patched_chains(subject, DEPTH, feed="drafted")
    torch.testing.assert_close(found.drafted, by_hand(*plain_of(subject), patches(), "drafted"), rtol=0, atol=0)
    fed = patched_chains(subject, DEPTH)
    for end in ("own", "real"):
        assert torch.equal(lengths(found, end), lengths(fed, end))


@pytest.mark.parametrize("window", [Window(4), Window(3, keep=2)])
def test_a_window_of_the_run_holds_for_real_rows_too(window: Window) -> None:
    subject = made_subject(eagle3(), window)
    found = patched_chains(subject, DEPTH)
    torch.testing.assert_close(found.drafted, by_hand(*plain_of(subject), patches()), rtol=0, atol=0)


def test_rank_and_probability_are_those_of_the_real_row() -> None:
    subject = made_subject(eagle3(draft_vocab_size=12))
    found = patched_chains(subject, DEPTH)
    drafter, rows = subject.pair.drafter, Plain(subject.pair.drafter, subject.text, subject.windows).real()
    places = {int(token): place for place, token in enumerate(drafter.target_ids)}
    known = 0
    for index, anchor in enumerate(subject.anchors.tolist()):
        for step in range(DEPTH):
            logits, token = rows[anchor + step].logits, int(found.text[index, step])
            if token not in places:
                assert int(found.rank[index, step]) == 0
                assert found.prob[index, step].isnan()
                continue
            known += 1
            assert int(found.rank[index, step]) == 1 + int((logits > logits[places[token]]).sum())
            assert_same(found.prob[index, step], logits.softmax(-1)[places[token]], size=1)
    assert 0 < known < found.rank.numel()


@pytest.mark.parametrize("name", ["EAGLE-3", "window per layer", "MTP head, experts and gates"])
def test_chunks_change_nothing(name: str) -> None:
    drafter = CASES[name]()
    whole = patched_chains(made_subject(drafter), DEPTH, split_state=True)
    for budget in (1, 60_000):
        parts = patched_chains(made_subject(drafter, budget=budget), DEPTH, split_state=True)
        assert torch.equal(parts.drafted, whole.drafted)
        assert_same(parts.prob, whole.prob, size=1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget", [None, 1])
def test_anchors_that_stand_apart_draft_what_they_do_among_all(name: str, budget: int | None) -> None:
    drafter = CASES[name]()
    every, few = made_subject(drafter), made_subject(drafter, anchors=3, spread=True, budget=budget)
    assert not few.consecutive
    whole, part = (patched_chains(subject, DEPTH, split_state=True) for subject in (every, few))
    place = torch.searchsorted(every.anchors, few.anchors)
    assert torch.equal(part.drafted, whole.drafted[:, place])
    assert torch.equal(part.text, whole.text[place])
    assert torch.equal(part.rank, whole.rank[place])
    assert_same(part.prob, whole.prob[place], size=1)


BLOCKS = {
    "DFlash": lambda: tiny.drafter(BLOCK, tiny.weights(BLOCK)),
    "P-EAGLE": lambda: eagle3(carry="none", mask_token_id=5),
}


def at_once(drafter: Drafter, text: Text, anchor: int, depth: int) -> list[int]:
    """What a round that begins at one anchor drafts."""
    passed = prefix_pass(drafter, text, drafter.windows, sinks=(), horizon=HORIZON, rows=len(text.token_ids) - 1)
    inputs = chain_inputs(
        text, passed.prefix, drafter.windows, anchors=torch.tensor([anchor]), depth=depth, feed="drafted"
    )
    return chain_of(drafter)(inputs.part(slice(0, 1)))[0].tolist()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_compared_with_rounds_that_begin_later(name: str) -> None:
    drafter = BLOCKS[name]()
    made = tiny.text(drafter.config, length=22, prompt_length=8)
    for row in range(7, 20):
        if row % 4:
            made.token_ids[row + 2] = at_once(drafter, made, row, 1)[0]
    subject = made_subject(drafter, text=made)
    found = patched_chains(subject, DEPTH)
    assert found.patches == ("own", "real")
    for index, anchor in enumerate(subject.anchors.tolist()):
        assert found.drafted[0, index].tolist() == at_once(drafter, made, anchor, DEPTH)
        assert found.drafted[1, index].tolist() == [at_once(drafter, made, anchor + k, 1)[0] for k in range(DEPTH)]
    assert lengths(found, "real").float().mean() > lengths(found, "own").float().mean()
    tables = PROBE.measure(subject)
    sums = cost_sums(ANCHORS.frame(ANCHORS.conform(tables["anchors"])))
    assert sums is not None
    assert sums.lengths[0, :, -1].tolist() == [int(lengths(found, end).sum()) for end in ("own", "real")]
    assert set(tables["rejections"]["reason"].dropna()) <= {"vocabulary", "target_undecided", "drafter", "block"}
    assert "block" in set(tables["rejections"]["reason"])
    assert [variant.name for variant in PROBE.variants(subject.pair)] == ["cost/own", "cost/real"]


def test_an_end_that_is_not_what_it_stands_for_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch that does not reach the chain must not become a figure."""
    from driftscope.chain.patching import Exchange

    monkeypatch.setattr(Exchange, "__call__", lambda self, value, step, rows: value.roll(1, 0))
    with pytest.raises(EndsError, match=r"drafts another token at step [2-4] .* rounding explains"):
        patched_chains(made_subject(eagle3()), DEPTH)


def test_names_of_patches() -> None:
    names = [patch.name for patch in patches(split_state=True)]
    assert names[:8] == ["own", "state", "pattern", "state+pattern", "values", "state+values", "pattern+values", "real"]
    assert names[8:] == ["rms", "rms+pattern", "rms+values", "rms+pattern+values"]
    assert patch_name(FACTORS) == "real"
