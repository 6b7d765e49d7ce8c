"""The chain, its observation and the baseline against a plain sequential loop with full matrices."""

from __future__ import annotations

import dataclasses

import nnsight
import pytest
import torch

from driftscope.chain.chain import Chain, chain_inputs
from driftscope.chain.interventions import Noise
from driftscope.chain.measure import BUCKETS, StepMeasure
from driftscope.chain.observe import HookError, observe
from driftscope.chain.prefix import prefix_pass
from driftscope.drafter.attention import Window
from tests import reference, tiny
from tests.closeness import assert_same

pytestmark = pytest.mark.numeric("double")
DEPTH = 5
HORIZON = 6
SINKS = (0, 3)

VARIANTS = {
    "pre-norm": {},
    "fc-norm": {"fc_norm": True},
    "post-norm": {"carry": "post"},
    "eagle3.1": {"fc_norm": True, "carry": "post"},
    "residual-normed": {"residual": "normed"},
}


def prepared(variant: str, budget: int = 1 << 28):
    config = dataclasses.replace(tiny.CONFIG, **VARIANTS[variant])
    tensors = tiny.weights(config)
    drafter = tiny.drafter(config, tensors)
    text = tiny.text(config)
    windows = [Window()] * config.num_layers
    passed = prefix_pass(drafter, text, windows, sinks=SINKS, horizon=HORIZON, budget=budget)
    return config, tensors, drafter, text, windows, passed


def run(drafter, text, windows, passed, feed, *, budget=1 << 28, keep=None, interventions=()):
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=DEPTH, feed=feed)
    measure = StepMeasure(drafter, text, passed.baseline, SINKS, anchors)

    def both(step, rows, values):
        kept = {f"site/{name}": values[name].clone() for name in keep or ()}
        return {**measure(step, rows, values), **kept}

    return observe(
        nnsight.NNsight(Chain(drafter)),
        inputs,
        both,
        sites=drafter.step_sites,
        first_sites=drafter.first_sites,
        interventions=interventions,
        budget=budget,
    )


@pytest.mark.supports("run", lambda variant: {"pre-norm": "EAGLE-3", "eagle3.1": "EAGLE 3.1"}.get(variant))
@pytest.mark.parametrize("feed", ["drafted", "text"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_chain_equals_the_sequential_loop_site_by_site(variant, feed):
    config, tensors, drafter, text, windows, passed = prepared(variant)
    names = (
        "state",
        "q",
        "k",
        "v",
        "attn_update",
        "after_attn",
        "mlp_update",
        "residual",
        "final_norm",
        "carry",
        "logits",
    )
    own = {name: name if name in drafter.step_sites else f"layers.0.{name}" for name in names}
    steps = run(drafter, text, windows, passed, feed, keep=own.values())
    for index, anchor in enumerate(text.anchors(HORIZON).tolist()):
        plain = reference.speculate(
            config, tensors, tensors["embed_tokens.weight"], text.token_ids, text.features, anchor, DEPTH, feed
        )
        for step, wanted in enumerate(plain):
            for name, site in own.items():
                seen = steps[step][f"site/{site}"][index]
                assert_same(seen, wanted[name], name)
            assert int(steps[step]["drafted"][index]) == int(wanted["drafted"])


def buckets_of(row: int, anchor: int, prompt_length: int) -> dict[str, list[int]]:
    """The definition, position by position."""
    out: dict[str, list[int]] = {name: [] for name in BUCKETS}
    for key in range(row + 1):
        if key in SINKS:
            out["sink"].append(key)
        elif key == row:
            out["current"].append(key)
        elif key > anchor:
            out["drafted"].append(key)
        elif key >= prompt_length - 1:
            out["committed"].append(key)
        else:
            out["prompt"].append(key)
    return out


def test_masses_are_those_of_a_full_matrix_and_excess_is_against_the_matched_row():
    config, tensors, drafter, text, windows, passed = prepared("pre-norm")
    steps = run(drafter, text, windows, passed, "drafted")
    rows = len(text.token_ids) - 1
    states = reference.fuse(config, tensors, text.features[:rows])
    embeds = tensors["embed_tokens.weight"][text.token_ids[1:]]
    teacher = reference.forward(config, tensors, states, embeds, torch.arange(rows))["attention"]
    for index, anchor in enumerate(text.anchors(HORIZON).tolist()):
        plain = reference.speculate(
            config, tensors, tensors["embed_tokens.weight"], text.token_ids, text.features, anchor, DEPTH, "drafted"
        )
        for step, wanted in enumerate(plain, start=1):
            row = anchor + step - 1
            for b, (name, keys) in enumerate(buckets_of(row, anchor, text.prompt_length).items()):
                mass = wanted["attention"][:, keys].sum(-1)
                assert_same(steps[step - 1]["mass"][index, 0, :, b], mass, name, size=1)
                base = teacher[:, row, keys].sum(-1)
                assert_same(steps[step - 1]["excess"][index, 0, :, b], mass - base, name, size=1)
                assert int(steps[step - 1]["keys"][index, b]) == len(keys), name


@pytest.mark.parametrize("budget", [1 << 28, 40 * 4 * 4 * 3 * 5])
def test_fewer_rows_change_nothing_before_them_and_the_text_before_the_anchors_ends_at_its_keys(budget):
    _, _, drafter, text, windows, whole = prepared("eagle3.1")
    ran: list[int] = []
    hook = drafter.layers[0].mlp.register_forward_hook(lambda module, args, output: ran.append(len(output)))
    rows = text.prompt_length + 9
    part = prefix_pass(drafter, text, windows, sinks=SINKS, horizon=HORIZON, rows=rows, budget=budget)
    hook.remove()
    assert sum(ran) == rows - (text.prompt_length - 1)
    made = rows - (text.prompt_length - 1)
    for name in ("carry", "carry_rms", "sink", "prompt", "total", "recent"):
        seen, wanted = getattr(part.baseline, name), getattr(whole.baseline, name)
        assert len(seen) == made
        assert_same(seen, wanted[:made], name)
    assert part.prefix[0].keys.shape[1] == rows
    assert_same(part.prefix[0].keys, whole.prefix[0].keys[:, :rows])
    assert_same(part.prefix[0].values, whole.prefix[0].values[:, :rows])


def test_a_sink_among_the_chains_own_rows_is_a_sink():
    config, _, drafter, text, windows, _ = prepared("pre-norm")
    ahead = text.prompt_length + 2
    sinks = (0, ahead)
    passed = prefix_pass(drafter, text, windows, sinks=sinks, horizon=HORIZON)
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=DEPTH, feed="text")
    both = {}
    for name, seen in (("with", sinks), ("without", (0,))):
        measure = StepMeasure(drafter, text, passed.baseline, seen, anchors)
        keep = {}

        def kept(step, rows, values, measure=measure, keep=keep):
            keep[step] = values["layers.0.attention"].clone()
            return measure(step, rows, values)

        both[name] = observe(nnsight.NNsight(Chain(drafter)), inputs, kept, sites=drafter.step_sites)
    weights = keep
    for step in range(1, DEPTH + 1):
        own = anchors.numel() and weights[step].shape[-1] - step
        for index, anchor in enumerate(anchors.tolist()):
            column = ahead if ahead < anchor else own + ahead - anchor
            there = ahead <= anchor + step - 1
            extra = weights[step][index, :, column] if there else torch.zeros(config.num_heads)
            plain, more = both["without"][step - 1], both["with"][step - 1]
            assert_same(more["mass"][index, 0, :, 0], plain["mass"][index, 0, :, 0] + extra, size=1)
            assert_same(more["mass"][index].sum(-1), plain["mass"][index].sum(-1))
            assert int(more["keys"][index, 0]) == int(plain["keys"][index, 0]) + there
            assert int(more["keys"][index].sum()) == int(plain["keys"][index].sum()) == anchor + step


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_one_is_the_baseline_row_and_masses_sum_to_one(variant):
    _, _, drafter, text, windows, passed = prepared(variant)
    steps = run(drafter, text, windows, passed, "drafted")
    assert_same(steps[0]["matched_growth"], torch.ones_like(steps[0]["matched_growth"]))
    assert_same(steps[0]["excess"], torch.zeros_like(steps[0]["excess"]), size=1)
    assert_same(steps[0]["cos_baseline"], torch.ones_like(steps[0]["cos_baseline"]))
    for step in steps:
        assert_same(step["mass"].sum(-1), torch.ones(step["mass"].shape[:-1]))
    if variant in ("post-norm", "eagle3.1"):
        assert all("rms/carry" in step for step in steps)


@pytest.mark.parametrize("feed", ["drafted", "text"])
def test_chunks_of_anchors_and_of_prefix_rows_change_nothing(feed):
    _, _, drafter, text, windows, passed = prepared("eagle3.1")
    *_, small = prepared("eagle3.1", budget=4000)
    noise = Noise("state", 0.5, torch.randn(DEPTH, len(text.anchors(HORIZON)), 24))
    whole = run(drafter, text, windows, passed, feed, interventions=[noise])
    parts = run(drafter, text, windows, small, feed, budget=4000, interventions=[noise])
    for one, other in zip(whole, parts, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name], name)


def test_noise_reaches_only_what_it_should():
    _, _, drafter, text, windows, passed = prepared("pre-norm")
    clean = run(drafter, text, windows, passed, "text", keep=["carry", "state"])
    count = len(text.anchors(HORIZON))
    none = run(
        drafter,
        text,
        windows,
        passed,
        "text",
        keep=["carry"],
        interventions=[Noise("state", 0.0, torch.randn(DEPTH, count, 24))],
    )
    for one, other in zip(clean, none, strict=True):
        assert torch.equal(one["site/carry"], other["site/carry"])
    late = Noise("state", 1.0, torch.randn(DEPTH, count, 24), first_step=3)
    noisy = run(drafter, text, windows, passed, "text", keep=["carry", "state"], interventions=[late])
    assert torch.equal(clean[1]["site/carry"], noisy[1]["site/carry"])
    assert not torch.allclose(clean[2]["site/carry"], noisy[2]["site/carry"])
    added = (noisy[2]["site/state"] - clean[2]["site/state"]).square().mean().sqrt()
    assert 0.8 < float(added / clean[2]["site/state"].square().mean().sqrt()) < 1.2


def test_an_identity_drafter_with_a_scaled_carry_grows_by_that_factor():
    config, tensors, *_ = prepared("pre-norm")
    tensors["layers.0.self_attn.o_proj.weight"] = torch.zeros_like(tensors["layers.0.self_attn.o_proj.weight"])
    tensors["layers.0.mlp.down_proj.weight"] = torch.zeros_like(tensors["layers.0.mlp.down_proj.weight"])
    drafter = tiny.drafter(config, tensors)
    text = tiny.text(config)
    windows = [Window()]
    passed = prefix_pass(drafter, text, windows, sinks=SINKS, horizon=HORIZON)

    class Scale:
        site = "state"

        def acts(self, step):
            return step > 1

        def __call__(self, value, step, rows):
            return value * 1.2

    steps = run(drafter, text, windows, passed, "drafted", interventions=[Scale()])
    for k, step in enumerate(steps, start=1):
        growth = step["rms/carry"] / steps[0]["rms/carry"]
        assert_same(growth, torch.full_like(growth, 1.2 ** (k - 1)))


def test_unknown_sites_are_refused_by_name():
    _, _, drafter, text, windows, passed = prepared("pre-norm")
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=2, feed="text")
    with pytest.raises(HookError, match=r"no such site: layers\.1\.q"):
        observe(nnsight.NNsight(Chain(drafter)), inputs, lambda *a: {}, sites=["layers.1.q"])


def test_a_site_that_stops_firing_is_an_error():
    _, _, drafter, text, windows, passed = prepared("pre-norm")
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=4, feed="text")

    class Lazy(torch.nn.Module):
        calls = 0

        def forward(self, value):
            return value

    class Broken(type(drafter)):
        pass

    original = drafter.finish

    def finish(residual):
        Lazy.calls += 1
        if Lazy.calls > 2:
            carry, top = drafter.leave(residual)
            return carry, drafter.logits(drafter.lm_head(top))
        return original(residual)

    drafter.finish = finish
    with pytest.raises(HookError):
        observe(
            nnsight.NNsight(Chain(drafter)), inputs, lambda k, rows, values: {"rms": values["carry"]}, sites=["carry"]
        )


def test_learned_windows_hide_far_keys():
    config, _, drafter, text, _, _ = prepared("pre-norm")
    windows = [Window(size=4, keep=1)]
    passed = prefix_pass(drafter, text, windows, sinks=(0,), horizon=HORIZON)
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=3, feed="text")
    seen = observe(
        nnsight.NNsight(Chain(drafter)),
        inputs,
        lambda k, rows, values: {"attention": torch.nn.functional.pad(values["layers.0.attention"], (0, 3 - k))},
        sites=["layers.0.attention"],
    )
    index = 5
    anchor = int(anchors[index])
    for k, step in enumerate(seen, start=1):
        weights = step["attention"][index]
        rows = weights.shape[-1] - 3
        row = anchor + k - 1
        visible = [r for r in range(anchor) if r > row - 4 or r < 1]
        hidden = [r for r in range(rows) if r not in visible]
        assert float(weights[:, hidden].sum()) == 0
        assert (weights[:, visible] > 0).all()
        assert_same(weights.sum(-1), torch.ones(config.num_heads))
