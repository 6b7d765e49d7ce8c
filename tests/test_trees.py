"""Draft trees against chains and against a plain recursion that runs every path on its own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from driftscope.chain.chain import Chain, Text, chain_inputs
from driftscope.chain.prefix import prefix_pass
from driftscope.chain.tree import Trees, grow
from driftscope.chain.tree_shape import PRESETS, TreeShape, chain_shape, static_shape, tree_shape
from driftscope.checkpoints import open_checkpoint
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import Drafter, build_drafter
from driftscope.errors import DriftscopeError
from tests import tiny
from tests.double import doubled
from tests.plain_chain import Plain, Step, grown_text
from tests.test_parity import Golden

KINDS = {
    "eagle3": {},
    "eagle3.1": {"carry": "post", "fc_norm": True},
    "two layers": {"num_layers": 2},
    "window": {"sliding_window": (6,)},
    "learned sinks": {"learned_sinks": True},
    "eagle1": {"layer_form": "eagle1", "feature_source": "final", "aux_boundaries": None},
    "fresh kv": {"draft_kv": "round"},
    "increment 0": {"position_increment": 0},
}


def made(kind: str) -> tuple[Drafter, Any, list[Any]]:
    config: DrafterConfig = dataclasses.replace(tiny.CONFIG, **KINDS[kind])
    drafter = tiny.drafter(config, tiny.weights(config))
    text = grown_text(drafter)
    return drafter, text, prefix_pass(drafter, text, drafter.windows, sinks=(), horizon=4).prefix


def trees_of(kind: str, shape: TreeShape) -> tuple[Drafter, Any, torch.Tensor, Trees]:
    drafter, text, prefix = made(kind)
    anchors = text.anchors(4)
    inputs = chain_inputs(text, prefix, drafter.windows, anchors=anchors, depth=1, feed="drafted")
    return drafter, text, anchors, grow(drafter, inputs, shape)


@pytest.mark.parametrize("kind", KINDS)
def test_top_k_1_is_the_chain_token_by_token(kind: str) -> None:
    drafter, text, anchors, trees = trees_of(kind, chain_shape(4))
    _, _, prefix = made(kind)
    chains = Chain(drafter)(chain_inputs(text, prefix, drafter.windows, anchors=anchors, depth=4, feed="drafted"))
    assert torch.equal(trees.tokens, chains)
    assert trees.parent.tolist() == [[-1, 0, 1, 2]] * len(anchors)
    right = (chains == text.token_ids[anchors[:, None] + 2 + torch.arange(4)]).cumprod(1)
    assert right.any()
    assert not right.all()
    accepted = trees.accepted_at(text.token_ids[anchors[:, None] + 2 + torch.arange(4)])
    assert torch.equal(accepted, right * torch.arange(1, 5))


class Recursion:
    """EAGLE-2 as its paper puts it, one anchor: every node's path is run from the root with rows of its own."""

    def __init__(self, drafter: Drafter, text: Any, anchor: int, topk: int) -> None:
        self.plain = Plain(drafter, text, drafter.windows)
        self.plain.real()
        self.drafter, self.anchor, self.topk = drafter, anchor, topk

    def children(self, tokens: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        """The likeliest tokens behind a path, with their log probabilities."""
        steps: list[Step] = []
        for depth in range(len(tokens) + 1):
            row = self.anchor + depth
            state = self.plain.rows[row].state if depth == 0 else steps[-1].carry
            token = None if depth == 0 else tokens[depth - 1]
            position = self.anchor + depth * self.drafter.config.position_increment
            steps.append(
                self.plain._row(row, [*self.plain.rows[: self.anchor], *steps], token, state, position, self.anchor)
            )
        logs = steps[-1].logits.float().log_softmax(-1)
        best = sorted(range(len(logs)), key=lambda token: -float(logs[token]))[: self.topk]
        return [((*tokens, int(self.drafter.target_ids[token])), float(logs[token])) for token in best]

    def select(self, steps: int, nodes: int) -> list[tuple[int, ...]]:
        """The paths that are verified, likeliest first."""
        scores: dict[tuple[int, ...], float] = {}
        frontier: list[tuple[int, ...]] = [()]
        for _ in range(steps):
            level = {path: scores.get(parent, 0.0) + log for parent in frontier for path, log in self.children(parent)}
            scores |= level
            frontier = sorted(level, key=lambda path: -level[path])[: self.topk]
        return sorted(scores, key=lambda path: -scores[path])[:nodes]


def paths_of(trees: Trees, place: int, nodes: int) -> list[tuple[int, ...]]:
    def path(candidate: int) -> tuple[int, ...]:
        if candidate < 0:
            return ()
        return (*path(int(trees.parent[place, candidate])), int(trees.tokens[place, candidate]))

    return [path(candidate) for candidate in trees.order[place, :nodes].tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_selected_nodes_are_those_of_a_plain_recursion(kind: str) -> None:
    shape = TreeShape("tree", 4, 3, 12)
    drafter, text, anchors, trees = trees_of(kind, shape)
    for place, anchor in list(enumerate(anchors.tolist()))[::3]:
        wanted = Recursion(drafter, text, anchor, 3).select(4, 12)
        assert paths_of(trees, place, 12) == wanted


def test_every_budget_keeps_whole_paths() -> None:
    _, _, _, trees = trees_of("eagle3", TreeShape("tree", 4, 3, 12))
    taken, parent = trees.taken(), trees.parent
    held = parent >= 0
    assert held.any()
    assert (taken.gather(1, parent.clamp(min=0))[held] < taken[held]).all()


def test_a_full_tree_of_depth_1_gives_top_k_accuracy() -> None:
    drafter, text, anchors, trees = trees_of("eagle3", TreeShape("tree", 1, 5, 5))
    wanted = text.token_ids[anchors + 2]
    plain = Plain(drafter, text, drafter.windows)
    logits = torch.stack([plain.real()[anchor].logits for anchor in anchors.tolist()])
    best = drafter.target_ids[logits.topk(5, -1).indices]
    at = trees.accepted_at(wanted[:, None])[:, 0]
    assert torch.equal(at > 0, (best == wanted[:, None]).any(1))
    ranks = (best == wanted[:, None]).long().argmax(1) + 1
    assert torch.equal(at[at > 0], ranks[at > 0])


def test_accepted_tokens_are_those_of_the_path_that_is_the_text() -> None:
    _, text, anchors, trees = trees_of("eagle3", TreeShape("tree", 4, 3, 12))
    ahead = text.token_ids[anchors[:, None] + 2 + torch.arange(4)]
    at = trees.accepted_at(ahead)
    for nodes in (1, 3, 12, 30):
        for place in range(len(anchors)):
            paths = set(paths_of(trees, place, nodes))
            longest = max(k for k in range(5) if k == 0 or tuple(ahead[place, :k].tolist()) in paths)
            assert int(((at[place] > 0) & (at[place] <= nodes)).sum()) == longest


def test_a_static_tree_takes_fixed_ranks() -> None:
    shape = static_shape((3, 2, 1), "3-2-1")
    assert shape.nodes == 3 + 6 + 6
    drafter, text, anchors, trees = trees_of("eagle3", shape)
    recursion = Recursion(drafter, text, int(anchors[2]), 3)

    def tokens(path: tuple[int, ...]) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        for rank in path:
            found = recursion.children(found)[rank][0]
        return found

    assert shape.paths is not None
    assert paths_of(trees, 2, shape.nodes) == [tokens(path) for path in shape.paths]


def test_presets_are_those_of_the_engines() -> None:
    named = {name: (shape.steps, shape.topk, shape.nodes) for name, shape in PRESETS.items()}
    assert named == {"eagle": (8, 10, 59), "sglang": (5, 4, 7), "sglang-deepseek": (3, 1, 3), "vllm": (3, 1, 3)}
    assert tree_shape("5x4x7") == dataclasses.replace(PRESETS["sglang"], name="5x4x7")
    assert tree_shape("2-2").paths == ((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("5x21x7", "top-k 21 is more than the 20 tokens"),
        ("2x3x40", "40 nodes, but 2 steps of top-k 3 make only 12"),
        ("5x4", "is not known"),
        ("wide", "is not known"),
        ("100-100-100", "more than 4096 nodes"),
        ("0x4x7", "is not known"),
    ],
)
def test_bad_trees_are_told_in_a_line(text: str, told: str) -> None:
    with pytest.raises(DriftscopeError, match=told):
        tree_shape(text).check(20)


def test_likelihoods_are_products_of_probabilities() -> None:
    _, _, _, trees = trees_of("eagle3", TreeShape("tree", 3, 3, 8))
    assert (trees.score <= 0).all()
    child = trees.parent[0] >= 0
    assert (trees.score[0][child] <= trees.score[0][trees.parent[0][child]]).all()


PEERS = sorted((Path(__file__).parent / "golden" / "trees").glob("*.safetensors"))


@pytest.mark.numeric("plain")
@pytest.mark.parametrize("path", PEERS, ids=lambda path: path.stem)
def test_nodes_are_those_that_the_peer_verifies(path: Path, tmp_path: Path) -> None:
    """EAGLE-2's own code on the same weights; made by tests/golden/make_trees.py."""
    with safe_open(path, "pt") as file:
        about, tokens, parents = file.metadata(), file.get_tensor("tokens"), file.get_tensor("parents")
    golden = Golden.load(path.parents[1] / f"{about['checkpoint']}.safetensors")
    shape = TreeShape("tree", int(about["steps"]), int(about["topk"]), int(about["nodes"]))
    save_file(golden.stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(golden.config))
    opened = open_checkpoint(tmp_path, overrides=golden.overrides)
    with doubled():
        drafter = build_drafter(
            opened.config,
            opened.weights,
            target_embedding=golden.tensors.get("embedding", torch.zeros(opened.config.vocab_size, 16)).float(),
            target_head=golden.tensors["head"].float(),
        )
        # All of it is continuation, so that the first anchor, which has no prefix, is among those compared.
        text = Text(golden.tensors["token_ids"].long(), 1, golden.tensors["features"].float())
        anchors = torch.arange(len(tokens))
        prefix = prefix_pass(drafter, text, drafter.windows, sinks=(), horizon=4).prefix
        trees = grow(
            drafter, chain_inputs(text, prefix, drafter.windows, anchors=anchors, depth=1, feed="drafted"), shape
        )

    def wanted(place: int, node: int) -> tuple[int, ...]:
        return () if node < 0 else (*wanted(place, int(parents[place, node])), int(tokens[place, node]))

    for place in range(len(tokens)):
        paths = {wanted(place, node) for node in range(shape.nodes)}
        assert len(paths) == shape.nodes
        assert set(paths_of(trees, place, shape.nodes)) == paths
    # They are trees: some branch and some are deep.
    assert len({tuple(row) for row in parents.tolist()}) > 1


def test_a_peer_s_trees_are_there() -> None:
    assert PEERS
