"""Predicted walks of faulty engines against an engine that is written plainly: one round after another, one row at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import naive
from driftscope.audit import prefix_faults as faults
from driftscope.audit.prefix_faults import PrefixFault
from driftscope.audit.walked import predict, seen_of
from driftscope.chain.chain import Text
from driftscope.chain.drafter_inputs import drafter_text
from driftscope.drafter import build_drafter
from tests.audit import pair as planted

DEPTH = 3
EVERY, MISSING = 5, 3
Cache = tuple[Tensor, Tensor]
Tamper = Callable[[Cache, int, Cache], Cache]
"""(keys and values of the rows before the anchor, the anchor, those of another text) -> what is read."""


@cache
def setup(variant: str, count: int = 3):
    config, weights = planted.planted_config(variant), planted.planted_weights(variant)
    target = planted.planted_target()
    drafter = build_drafter(config, weights, target_embedding=target.embedding_weight, target_head=target.head_weight)
    records = planted.captures()[:count]
    texts = [drafter_text(config, record, device="cpu", dtype=torch.float32) for record in records]
    return config, weights, target.embedding_weight.detach(), drafter, texts


def by_hand(config, weights, embedding, text: Text, other: Text, tamper: Tamper, shifts=(0, 0), own=lambda part: part):
    """(anchors, accepted) of an engine that runs a row at a time. tamper sees only what stands before the anchor."""
    fused = naive.fuse(config, weights, text.features)
    rows = len(text.token_ids) - 1
    left = naive.prefill(
        config,
        weights,
        embedding,
        other.token_ids,
        naive.fuse(config, weights, other.features),
        len(other.token_ids) - 1,
    )
    written = naive.prefill(config, weights, embedding, text.token_ids, fused, rows)
    place, visited, accepted, full = text.prompt_length - 1, [], [], []
    while place <= rows - 1 - DEPTH:
        past = tamper(written, place, left, full)
        token, state, count = text.token_ids[place + 1], fused[place], 0
        for step in range(DEPTH):
            position = place + step + (shifts[0] if step == 0 else shifts[1])
            out = row_by_row(config, weights, state, embedding[token], position, past, own)
            seen = naive.last_row(config, weights, out)
            past = torch.cat([past[0], own(out["k"])]), torch.cat([past[1], own(out["v"])])
            token, state = seen["drafted"], seen["carry"]
            if int(token) != int(text.token_ids[place + step + 2]):
                break
            count += 1
        visited.append(place)
        accepted.append(count)
        if count == DEPTH:
            full.append(place + DEPTH)
        place += count + 1
    return visited, accepted


def row_by_row(config, weights, state, embed, position, past, own):
    """`naive.forward` of one row whose own key and value may be changed before it is read."""
    out = naive.forward(config, weights, state[None], embed[None], torch.tensor([position]), past)
    kept = own(out["k"]), own(out["v"])
    if torch.equal(kept[0], out["k"]) and torch.equal(kept[1], out["v"]):
        return out
    # Attention again, with what the cache holds for the row itself; the layer's other parts as they are.
    heads, groups = config.num_heads, config.num_heads // config.num_kv_heads
    keys, values = (torch.cat([p, k]).repeat_interleave(groups, 1) for p, k in zip(past, kept, strict=True))
    weight = torch.stack([(keys[:, h] @ out["q"][0, h]) / config.head_dim**0.5 for h in range(heads)]).softmax(-1)
    mixed = torch.stack([weight[h] @ values[:, h] for h in range(heads)]).flatten()
    p, eps = "layers.0.", config.rms_norm_eps
    after = out["after_attn"][0] - out["attn_update"][0] + weights[p + "self_attn.o_proj.weight"] @ mixed
    inner = naive.norm(after, weights[p + "post_attention_layernorm.weight"], eps)
    gate, up = weights[p + "mlp.gate_proj.weight"] @ inner, weights[p + "mlp.up_proj.weight"] @ inner
    y = after + weights[p + "mlp.down_proj.weight"] @ (torch.nn.functional.silu(gate) * up)
    top = naive.norm(y, weights["norm.weight"], eps)
    carry = top if config.carry == "post" else y
    return {**out, "final_norm": top[None], "carry": carry[None]}


def before(past, place, left, full):
    return past[0][:place], past[1][:place]


def cut(past, place, left, full):
    return past[0][MISSING:place], past[1][MISSING:place]


def empty(past, place, left, full):
    return past[0][:0], past[1][:0]


def zero(past, place, left, full):
    return past[0][:place] * 0, past[1][:place] * 0


def stale(past, place, left, full):
    return tuple(torch.stack([part[row % len(part)] for row in range(place)]) for part in left)


def wrong(past, place, left, full):
    def moved(part):
        rows = [(row + EVERY) % len(part) if (row + 1) % EVERY == 0 else row for row in range(place)]
        return part[rows]

    return moved(past[0]), moved(past[1])


def holes(past, place, left, full):
    keys, values = past[0].clone(), past[1].clone()
    keys[full], values[full] = 0, 0
    return keys[:place], values[:place]


def float8(part):
    return part.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def rounded(past, place, left, full):
    return float8(past[0][:place]), float8(past[1][:place])


CASES: list[tuple[PrefixFault, dict]] = [
    *((faults.positions_off(by), {"tamper": before, "shifts": (by, by)}) for by in faults.OFFSETS),
    *((faults.positions_off(by, first=False), {"tamper": before, "shifts": (0, by)}) for by in faults.OFFSETS),
    (faults.rows_missing(MISSING), {"tamper": cut}),
    (faults.PREFIX_EMPTY, {"tamper": empty}),
    (faults.PREFIX_ZERO, {"tamper": zero}),
    (faults.PREFIX_STALE, {"tamper": stale}),
    (faults.rows_wrong(EVERY), {"tamper": wrong}),
    (faults.HOLES, {"tamper": holes}),
    (faults.FLOAT8, {"tamper": rounded, "own": float8}),
]


@pytest.mark.parametrize("variant", ["eagle3", "eagle3.1"])
@pytest.mark.parametrize(("fault", "plain"), CASES, ids=[fault.name for fault, _ in CASES])
def test_a_predicted_walk_is_that_of_a_plain_engine_with_the_fault(fault, plain, variant):
    config, weights, embedding, drafter, texts = setup(variant)
    found = predict(drafter, texts, fault, depth=DEPTH)
    for index, (text, walk) in enumerate(zip(texts, found.walks, strict=True)):
        anchors, accepted = by_hand(config, weights, embedding, text, texts[index - 1], **plain)
        assert walk.anchors.tolist() == anchors
        assert walk.accepted.tolist() == accepted
    assert found.drafts == sum(len(walk.anchors) for walk in found.walks)
    assert found.fault == fault.name


def test_every_named_fault_has_a_plain_engine_here():
    named = {fault.name for fault in faults.prefix_faults(missing=MISSING, every=EVERY)}
    assert named == {fault.name for fault, _ in CASES}


def test_a_fault_of_no_size_changes_nothing():
    _, _, _, drafter, texts = setup("eagle3", 2)
    sound = predict(drafter, texts, None, depth=DEPTH)
    seen = [seen_of(drafter, text) for text in texts]
    longest = max(len(text.token_ids) for text in texts)
    own_rows = replace(faults.PREFIX_STALE, change=lambda view, other: faults.PREFIX_STALE.change(view, view))
    for fault in (
        faults.positions_off(0),
        faults.rows_missing(0),
        faults.rows_wrong(longest),
        own_rows,
    ):
        found = predict(drafter, texts, fault, depth=DEPTH, seen=seen)
        for ours, theirs in zip(found.walks, sound.walks, strict=True):
            np.testing.assert_array_equal(ours.anchors, theirs.anchors)
            np.testing.assert_array_equal(ours.accepted, theirs.accepted)


def test_holes_need_a_full_round():
    """With more drafts than are ever accepted nothing stays unwritten."""
    _, _, _, drafter, texts = setup("one-step", 3)
    sound = predict(drafter, texts, None, depth=8)
    assert sound.per_position[-1] == 0
    assert predict(drafter, texts, faults.HOLES, depth=8).per_position == sound.per_position


def test_the_drafter_is_as_before_after_a_walk_in_float8():
    _, _, _, drafter, texts = setup("eagle3", 1)
    sites = [drafter.layers[0].k, drafter.layers[0].v]
    sound = predict(drafter, texts, None, depth=DEPTH)
    predict(drafter, texts, faults.FLOAT8, depth=DEPTH)
    assert [drafter.layers[0].k, drafter.layers[0].v] == sites
    assert predict(drafter, texts, None, depth=DEPTH).per_position == sound.per_position


def test_counters_are_those_of_the_walks():
    _, _, _, drafter, texts = setup("eagle3")
    found = predict(drafter, texts, None, depth=DEPTH)
    lengths = np.concatenate([walk.accepted for walk in found.walks])
    assert sum(found.per_position) == lengths.sum()
    assert list(found.per_position) == sorted(found.per_position, reverse=True)
    assert found.rates[0] == pytest.approx((lengths > 0).mean())
    assert max(lengths) == DEPTH


@pytest.mark.parametrize("fault", [faults.PREFIX_EMPTY, faults.PREFIX_ZERO, faults.PREFIX_STALE], ids=lambda f: f.name)
def test_a_lost_prefix_costs_the_first_position(fault):
    _, _, _, drafter, texts = setup("eagle3", 8)
    sound, found = (predict(drafter, texts, which, depth=DEPTH).rates for which in (None, fault))
    assert found[0] < 0.9 * sound[0]


def test_positions_that_are_off_from_step_2_leave_step_1_of_every_anchor():
    _, _, _, drafter, texts = setup("eagle3", 6)
    first = [predict(drafter, texts, fault, depth=1) for fault in (None, faults.positions_off(2, first=False))]
    assert first[0].per_position == first[1].per_position


def test_a_text_that_is_too_short_has_no_round():
    _, _, _, drafter, texts = setup("eagle3", 1)
    short = replace(texts[0], token_ids=texts[0].token_ids[:10], features=texts[0].features[:10])
    found = predict(drafter, [short], faults.HOLES, depth=8)
    assert found.drafts == 0
    with pytest.raises(ValueError, match="no text"):
        _ = found.rates
