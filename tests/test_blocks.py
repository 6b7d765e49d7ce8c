"""Block drafters and P-EAGLE: against their peers, a plain loop over one anchor, and drafters that are made to do a thing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import nnsight
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from driftscope.chain.baseline import PrefixPass
from driftscope.chain.block import chain_of
from driftscope.chain.block_measure import BlockMeasure
from driftscope.chain.chain import Text, chain_inputs
from driftscope.chain.interventions import Noise
from driftscope.chain.measure import BUCKETS
from driftscope.chain.observe import Measure, observe
from driftscope.chain.prefix import prefix_pass
from driftscope.chain.self_test import check_hooks
from driftscope.checkpoints import open_checkpoint
from driftscope.checkpoints.config import DrafterConfig, Rope
from driftscope.drafter import Drafter, build_drafter
from driftscope.drafter.attention import Window
from driftscope.errors import DriftscopeError
from tests import tiny
from tests.closeness import assert_same
from tests.double import doubled
from tests.support import of_golden
from tests.test_parity import Golden

FILES = sorted((Path(__file__).parent / "golden" / "blocks").glob("*.safetensors"))
pytestmark = pytest.mark.numeric("double")
BLOCK = 6
CONFIG = dataclasses.replace(
    tiny.CONFIG, layer_form="dflash", carry="none", mask_token_id=5, block_size=BLOCK, num_layers=2, qk_norm=True,
    rope=Rope(theta=1e3),
)  # fmt: skip
FREE = Window()
LENGTH, PROMPT, HORIZON = 24, 6, 8


def observed(
    drafter: Drafter, text: Text, windows: list[Window], depth: int, measure: Measure | None = None, **more: Any
) -> tuple[PrefixPass, list[dict[str, Tensor]]]:
    """The prefix pass and what `measure` makes of every step; copies of all sites without one."""
    passed = prefix_pass(drafter, text, windows, sinks=(0,), horizon=HORIZON)
    anchors = text.anchors(HORIZON)
    inputs = chain_inputs(text, passed.prefix, windows, anchors=anchors, depth=depth, feed="drafted")

    def copies(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in values.items()}

    model = nnsight.NNsight(chain_of(drafter))
    more = {"sites": drafter.step_sites, **more}
    return passed, observe(model, inputs, measure or copies, **more)


def measured(
    drafter: Drafter, text: Text, windows: list[Window] | None = None, heaviest: int = 0
) -> list[dict[str, Any]]:
    """What BlockMeasure makes of the blocks of all anchors."""
    windows = windows or drafter.windows
    passed = prefix_pass(drafter, text, windows, sinks=(0,), horizon=HORIZON)
    measure = BlockMeasure(drafter, text, passed.baseline, (0,), text.anchors(HORIZON), heaviest)  # type: ignore[arg-type]
    assert drafter.max_steps is not None
    return observed(drafter, text, windows, drafter.max_steps, measure)[1]


@pytest.mark.numeric("plain")
@pytest.mark.supports("equal to", of_golden)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_site_equals_the_peers_at_every_anchor_and_step(path: Path, tmp_path: Path):
    golden = Golden.load(path)
    save_file(golden.stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(golden.config))
    opened = open_checkpoint(tmp_path)
    assert not opened.unused
    # Read in the dtypes of the files, run in float64.
    with doubled():
        none = torch.zeros(opened.config.vocab_size, opened.config.target_hidden_size)
        drafter = build_drafter(
            opened.config,
            opened.weights,
            target_embedding=golden.tensors.get("embedding", none).float(),
            target_head=golden.tensors.get("head", none).float(),
        )
        wanted = {n: t for n, t in golden.tensors.items() if n not in ("token_ids", "features", "head", "embedding")}
        anchors, depth = wanted["logits"].shape[:2]
        assert {"residual", "layers.0.attn_update", "layers.0.after_attn", "layers.0.mlp_update"} < wanted.keys()
        text = Text(golden.tensors["token_ids"].long(), 1, golden.tensors["features"].float())
        windows = drafter.windows
        passed = prefix_pass(drafter, text, windows, sinks=(0,), horizon=depth)
        inputs = chain_inputs(text, passed.prefix, windows, anchors=torch.arange(anchors), depth=depth, feed="text")
        seen = observe(
            nnsight.NNsight(chain_of(drafter)),
            inputs,
            lambda step, rows, values: {name: values[name].clone() for name in wanted},
            sites=list(wanted),
        )
        for step in range(depth):
            for name, tensor in wanted.items():
                golden.assert_peers(seen[step][name], tensor[:, step], name, step + 1)


def test_golden_files_are_there_for_both_peers():
    assert {path.stem.partition("-")[0] for path in FILES} == {"dflash", "peagle"}


def rotated(x: Tensor, places: Tensor, theta: float) -> Tensor:
    """x [row, head, dim] turned to positions [row]."""
    half = x.shape[-1] // 2
    angles = places[:, None].float() * theta ** (-torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    low, high = x.split(half, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def plain_block(
    c: DrafterConfig, w: dict[str, Tensor], text: Text, anchor: int, size: int | None = None, keep: int = 0
) -> dict[str, Tensor]:
    """The block of one anchor written plainly: whole matrices over context and block, every site [row of the block, ...]."""

    def norm(x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], w[f"{name}.weight"], c.rms_norm_eps)

    context = norm(text.features[: anchor + 1] @ w["fc.weight"].T, "hidden_norm")
    assert c.block_size is not None
    tokens = torch.full((c.block_size,), c.mask_token_id or 0)
    tokens[0] = text.token_ids[anchor + 1]
    x = w["embed_tokens.weight"][tokens]
    seen = {"embed": x}
    places, rows = torch.arange(anchor + 1 + len(tokens)), torch.arange(anchor + 1, anchor + 1 + len(tokens))
    for j in range(c.num_layers):
        at = f"layers.{j}."
        inner = norm(x, f"{at}input_layernorm")

        def heads(part: str, values: Tensor, at: str = at) -> Tensor:
            return (values @ w[f"{at}self_attn.{part}_proj.weight"].T).unflatten(-1, (-1, c.head_dim))

        query = rotated(norm(heads("q", inner), f"{at}self_attn.q_norm"), rows, c.rope.theta)
        both = torch.cat([context, inner])
        key = rotated(norm(heads("k", both), f"{at}self_attn.k_norm"), places, c.rope.theta)
        value = heads("v", both)
        key, value = (part.repeat_interleave(c.num_heads // c.num_kv_heads, 1) for part in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) * c.head_dim**-0.5
        windowed = size if size is not None else (c.sliding_window or (None,) * c.num_layers)[j]
        if windowed is not None:
            hidden = (places <= rows[:, None] - windowed) & (places >= keep)
            scores = scores.masked_fill(hidden, float("-inf"))
        backward = {"none": False, "all": True, "sliding": bool(c.sliding_window and c.sliding_window[j])}[
            c.block_causal
        ]
        if backward:
            scores = scores.masked_fill(places > rows[:, None], float("-inf"))
        weights = scores.softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, value).flatten(1)
        update = mixed @ w[f"{at}self_attn.o_proj.weight"].T
        after = x + update
        inner = norm(after, f"{at}post_attention_layernorm")
        gate, up = (inner @ w[f"{at}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        more = (F.silu(gate) * up) @ w[f"{at}mlp.down_proj.weight"].T
        x = after + more
        seen |= {f"{at}q": query, f"{at}k": key[anchor + 1 :, :: c.num_heads // c.num_kv_heads]}
        seen |= {f"{at}attention": weights.transpose(0, 1), f"{at}attn_update": update, f"{at}mlp_update": more}
    normed = norm(x, "norm")
    return seen | {"residual": x, "final_norm": normed, "logits": normed @ w["lm_head.weight"].T}


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({}, FREE),
        ({"sample_from_anchor": True, "num_layers": 1}, FREE),
        ({"sliding_window": (5, None)}, FREE),
        ({"sliding_window": (5, 3), "block_causal": "none"}, FREE),
        ({"block_causal": "all"}, FREE),
        ({}, Window(7, 2)),
    ],
    ids=["plain", "from anchor", "window", "window both ways", "causal", "window asked for"],
)
def test_blocks_of_all_anchors_equal_a_loop_over_one(changes: dict[str, Any], window: Window):
    config = dataclasses.replace(CONFIG, **changes)
    weights = tiny.weights(config)
    drafter = tiny.drafter(config, weights)
    text = tiny.text(config, LENGTH, PROMPT)
    windows = [window] * config.num_layers if window != FREE else drafter.windows
    assert drafter.max_steps is not None
    _, steps = observed(drafter, text, windows, drafter.max_steps)
    first = 0 if config.sample_from_anchor else 1
    for index, anchor in enumerate(text.anchors(HORIZON).tolist()):
        wanted = plain_block(config, weights, text, anchor, window.size, window.keep)
        for step, seen in enumerate(steps, start=first):
            for name, value in wanted.items():
                there = seen[name][index]
                if name.endswith(".attention"):
                    assert not there[:, anchor : -BLOCK - 1].any()
                    there = torch.cat([there[:, :anchor], there[:, -BLOCK - 1 :]], -1)
                assert_same(there, value[step], name)


@pytest.mark.parametrize("changes", [{}, {"sample_from_anchor": True}, {"learned_sinks": True}], ids=str)
def test_buckets_are_those_of_the_loop_and_the_baseline_that_of_its_shifted_block(changes: dict[str, Any]):
    config = dataclasses.replace(CONFIG, num_layers=1, **changes)
    weights = tiny.weights(config)
    drafter = tiny.drafter(config, weights)
    text = tiny.text(config, LENGTH, PROMPT)
    steps = measured(drafter, text)
    for seen in steps:
        assert_same(seen["mass"].sum(-1), torch.ones_like(seen["mass"][..., 0]))
        assert_same(seen["excess"].sum(-1), torch.zeros_like(seen["mass"][..., 0]), size=1)
        assert not {"cos_prev", "cos_baseline", "matched_growth", "rms/carry"} & seen.keys()
    assert_same(steps[0]["excess"], torch.zeros_like(steps[0]["excess"]), size=1)
    assert {"rms/state", "rms/state_norm"} < steps[0].keys()
    assert "rms/state" not in steps[1]
    if config.learned_sinks:
        return
    first = 0 if config.sample_from_anchor else 1
    for index, anchor in enumerate(text.anchors(HORIZON).tolist()):
        own = plain_block(config, weights, text, anchor)["layers.0.attention"]
        for step, seen in enumerate(steps, start=1):
            row = step - 1 + first
            told = by_hand(own[row], anchor, anchor, row)
            assert dict(zip(BUCKETS, seen["keys"][index].tolist(), strict=True)) == {
                name: len(places) for name, places in parts(anchor, row).items()
            }
            # What the block of anchor t+k-1 does at step 1, on the positions that both see.
            later = plain_block(config, weights, text, anchor + step - 1)["layers.0.attention"][first]
            later = later[:, : anchor + 1 + BLOCK]
            base = by_hand(later / later.sum(-1, keepdim=True), anchor, anchor + step - 1, row)
            for place, name in enumerate(BUCKETS):
                assert_same(seen["mass"][index, 0, :, place], told[name], name, size=1)
                assert_same(seen["excess"][index, 0, :, place], told[name] - base[name], name, size=1)


def parts(anchor: int, row: int) -> dict[str, list[int]]:
    """Positions of each bucket of a block's row; row 0 stands at anchor + 1."""
    block = {anchor + 1 + place for place in range(BLOCK)}
    current = anchor + 1 + row
    known = {anchor + 1} - {current}
    found = {
        "sink": {0},
        "prompt": set(range(1, PROMPT - 1)),
        "committed": set(range(PROMPT - 1, anchor + 1)) | known,
        "drafted": block - {current} - known,
        "current": {current},
        "virtual": set(),
    }
    return {name: sorted(places) for name, places in found.items()}


def by_hand(weights: Tensor, anchor: int, at: int, row: int) -> dict[str, Tensor]:
    """Mass of weights [head, position] per bucket of row `row` of the block of `anchor`."""
    return {name: weights[:, places].sum(-1) for name, places in parts(anchor, row).items()}


def test_attention_without_preference_has_no_excess():
    weights = tiny.weights(CONFIG)
    for j in range(CONFIG.num_layers):
        weights[f"layers.{j}.self_attn.q_proj.weight"].zero_()
    steps = measured(tiny.drafter(CONFIG, weights), tiny.text(CONFIG, LENGTH, PROMPT))
    for seen in steps:
        assert_same(seen["excess"], torch.zeros_like(seen["excess"]), size=1)
        share = seen["keys"] / seen["keys"].sum(-1, keepdim=True)
        assert_same(seen["mass"][:, 0, 0], share)


def copier() -> Drafter:
    """A block drafter that puts the known token everywhere: the mask's embedding and the features are 0."""
    size = 16
    config = dataclasses.replace(
        CONFIG, hidden_size=size, target_hidden_size=size, vocab_size=size, draft_vocab_size=size, num_heads=1, num_layers=1,
        num_kv_heads=1, head_dim=size, vocab_map="none", embedding="own", head="own", qk_norm=False, mask_token_id=size - 1,
    )  # fmt: skip
    weights = {name: torch.zeros_like(value) for name, value in tiny.weights(config).items()}
    one = torch.eye(size)
    for name in ("layers.0.self_attn.v_proj", "layers.0.self_attn.o_proj", "lm_head"):
        weights[f"{name}.weight"] = one
    weights["embed_tokens.weight"] = one * (torch.arange(size) != config.mask_token_id)
    for name in ("norm", "hidden_norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"):
        weights[f"{name}.weight"] = torch.ones(size)
    return tiny.drafter(config, weights)


@pytest.mark.parametrize(
    ("tokens", "wanted"), [((3,), [1, 1, 1, 1, 1]), ((3, 8), [0, 1, 0, 1, 0])], ids=["same", "two"]
)
def test_a_drafter_that_copies_is_right_where_the_text_repeats_the_known_token(
    tokens: tuple[int, ...], wanted: list[int]
):
    drafter = copier()
    ids = torch.tensor(tokens).repeat(LENGTH)[:LENGTH]
    text = Text(ids, PROMPT, torch.randn(LENGTH, 3 * 16, generator=torch.Generator().manual_seed(0)))
    steps = measured(drafter, text)
    match = torch.stack([seen["drafted"] == seen["text"] for seen in steps], 1)
    assert (match == torch.tensor(wanted, dtype=torch.bool)).all()
    assert all((seen["rank"] == 1).all() for seen, right in zip(steps, wanted, strict=True) if right)


def test_chunks_of_anchors_change_nothing_and_noise_reaches_what_it_names():
    drafter = tiny.drafter(CONFIG, tiny.weights(CONFIG))
    text = tiny.text(CONFIG, LENGTH, PROMPT)
    clean = observed(drafter, text, drafter.windows, 4)[1]
    small = observed(drafter, text, drafter.windows, 4, sites=("logits",), budget=1)[1]
    for one, other in zip(clean, small, strict=True):
        assert_same(one["logits"], other["logits"])
    noise = torch.randn(4, len(text.anchors(HORIZON)), CONFIG.hidden_size, generator=torch.Generator().manual_seed(3))

    def noisy(site: str, alpha: float, first: int = 1, last: int | None = None) -> list[dict[str, Tensor]]:
        added = [Noise(site, alpha, noise, first, last)]
        return observed(drafter, text, drafter.windows, 4, interventions=added)[1]

    for site in ("state", "embed"):
        for one, other in zip(clean, noisy(site, 0.0), strict=True):
            assert torch.equal(one["logits"], other["logits"])
        for one, other in zip(clean, noisy(site, 0.5), strict=True):
            assert not torch.allclose(one["logits"], other["logits"], atol=1e-3)
    # Rows see each other, so noise on a later mask reaches earlier steps; the known token's row gets that of step 1.
    third = noisy("embed", 0.5, 3, 3)
    assert torch.equal(third[0]["embed"], clean[0]["embed"])
    assert not torch.equal(third[2]["embed"], clean[2]["embed"])
    assert not torch.allclose(third[0]["logits"], clean[0]["logits"], atol=1e-4)


def test_more_steps_than_a_block_has_are_refused():
    drafter = tiny.drafter(CONFIG, tiny.weights(CONFIG))
    with pytest.raises(DriftscopeError, match="a block of 6 rows drafts 5 tokens, 6 are asked of it"):
        observed(drafter, tiny.text(CONFIG, LENGTH, PROMPT), drafter.windows, 6)


def test_the_heaviest_keys_are_named_by_position():
    config = dataclasses.replace(CONFIG, num_layers=1)
    weights = tiny.weights(config)
    text = tiny.text(config, LENGTH, PROMPT)
    steps = measured(tiny.drafter(config, weights), text, heaviest=3)
    for index, anchor in enumerate(text.anchors(HORIZON).tolist()):
        attention = plain_block(config, weights, text, anchor)["layers.0.attention"].mean(1)
        for step, seen in enumerate(steps, start=1):
            mass, places = attention[step].topk(3)
            assert_same(seen["heavy_mass"][index], mass)
            assert seen["heavy_position"][index].tolist() == places.tolist()
            assert seen["heavy_own"][index].tolist() == (places > anchor).tolist()


@pytest.mark.parametrize(
    "config",
    [CONFIG, dataclasses.replace(CONFIG, sample_from_anchor=True, sliding_window=(6, None)),
     dataclasses.replace(tiny.CONFIG, carry="none", mask_token_id=5, fc_norm=True)],
    ids=["dflash", "dflash from anchor", "p-eagle"],
)  # fmt: skip
def test_hooks_see_every_site(config: DrafterConfig):
    drafter = tiny.drafter(config, tiny.weights(config))
    assert "carry" not in drafter.step_sites
    check_hooks(nnsight.NNsight(chain_of(drafter)))


def test_later_steps_of_p_eagle_start_from_the_masks_alone():
    config = dataclasses.replace(tiny.CONFIG, carry="none", mask_token_id=5, input_norm=True)
    weights = tiny.weights(config)
    weights["mask_hidden"] = torch.randn(1, 1, 72, generator=torch.Generator().manual_seed(2))
    drafter = tiny.drafter(config, weights)
    _, steps = observed(drafter, tiny.text(config, LENGTH, PROMPT), drafter.windows, 3)
    wanted = F.rms_norm(weights["mask_hidden"][0], (72,), weights["input_norm.weight"], 1e-6) @ weights["fc.weight"].T
    for seen in steps[1:]:
        assert_same(seen["state"], wanted.expand_as(seen["state"]))
        assert_same(seen["embed"], weights["embed_tokens.weight"][5].expand_as(seen["embed"]))
    assert not torch.allclose(steps[0]["state"], wanted.expand_as(steps[0]["state"]), atol=1e-2)
