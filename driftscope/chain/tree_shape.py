"""Shapes of draft trees, as engines name them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driftscope.errors import DriftscopeError

Path = tuple[int, ...]
"""A node as ranks: (0, 2) is the third choice behind the first choice."""


@dataclass(frozen=True)
class TreeShape:
    """A tree of drafted tokens behind the last known one, which is its root and no node.

    Dynamic (EAGLE-2): at every step the `topk` likeliest nodes of the newest level are expanded, each to its `topk` likeliest
    tokens, and of all candidates the `nodes` likeliest are verified; a node is as likely as the product of the drafter's
    probabilities on its path. Source: Li et al., EAGLE-2 (2024), section 4. Static: the nodes are ranks fixed beforehand,
    whatever the drafter says.
    """

    name: str
    steps: int
    """Levels, and passes of the drafter: SGLang's speculative-num-steps; EAGLE's own depth is one less."""
    topk: int
    """SGLang's speculative-eagle-topk, EAGLE's top_k."""
    nodes: int
    """Tokens to verify without the root: SGLang's speculative-num-draft-tokens - 1, EAGLE's total_token - 1."""
    paths: tuple[Path, ...] | None = None
    """Of a static tree its nodes, in the order in which a smaller budget keeps them; parents come before children."""

    @property
    def candidates(self) -> int:
        """How many nodes there are to choose from."""
        return len(self.paths) if self.paths is not None else self.topk + (self.steps - 1) * self.topk**2

    def check(self, vocabulary: int) -> TreeShape:
        """Itself. DriftscopeError for a tree that no drafter with such a draft vocabulary can make."""
        if min(self.steps, self.topk, self.nodes) < 1:
            raise DriftscopeError(
                f"tree {self.name}: {self.steps} steps, top-k {self.topk}, {self.nodes} nodes; each must be at least 1"
            )
        if self.topk > vocabulary:
            raise DriftscopeError(
                f"tree {self.name}: top-k {self.topk} is more than the {vocabulary} tokens that the drafter can draft"
            )
        if self.nodes > self.candidates:
            raise DriftscopeError(
                f"tree {self.name}: {self.nodes} nodes, but {self.steps} steps of top-k {self.topk} make only {self.candidates}"
            )
        return self


def chain_shape(steps: int, name: str = "chain") -> TreeShape:
    """The chain: top-k 1."""
    return TreeShape(name, steps, 1, steps)


def static_shape(branches: Sequence[int], name: str) -> TreeShape:
    """Every node of level d has `branches[d]` children, its likeliest; smaller budgets keep whole levels first."""
    level: list[Path] = [()]
    paths: list[Path] = []
    for count in branches:
        level = [(*path, rank) for path in level for rank in range(count)]
        paths += level
    return TreeShape(name, len(branches), max(branches, default=0), len(paths), tuple(paths))


PRESETS = {
    # EaModel's defaults total_token 60, depth 7, top_k 10: a first level and 7 more, the root among the 60.
    "eagle": TreeShape("eagle", 8, 10, 59),
    # What SGLang chooses for most targets: num-steps 5, eagle-topk 4, num-draft-tokens 8.
    "sglang": TreeShape("sglang", 5, 4, 7),
    # And for DeepSeek's: a chain.
    "sglang-deepseek": TreeShape("sglang-deepseek", 3, 1, 3),
    # vLLM drafts chains; 3 tokens in its examples.
    "vllm": chain_shape(3, "vllm"),
}
_MOST = 4096
_HOW = f"{', '.join(PRESETS)}, STEPSxTOPKxNODES such as 5x4x7, or static such as 4-2-1"


def tree_shape(text: str) -> TreeShape:
    """A preset by its name, `STEPSxTOPKxNODES`, or `4-2-1`, the children a node has on each level of a static tree."""
    if text in PRESETS:
        return PRESETS[text]
    dashed = "-" in text
    try:
        numbers = [int(part) for part in text.split("-" if dashed else "x")]
    except ValueError:
        numbers = []
    if dashed and len(numbers) >= 2 and min(numbers) >= 1:
        size = level = 0
        for count in numbers:
            level = (level or 1) * count
            size += level
            if size > _MOST:
                raise DriftscopeError(f"tree {text}: more than {_MOST} nodes")
        return static_shape(numbers, text)
    if not dashed and len(numbers) == 3 and min(numbers) >= 1:
        depth, topk, total = numbers
        shape = TreeShape(text, depth, topk, total)
        if shape.candidates > 64 * _MOST:
            raise DriftscopeError(f"tree {text}: {shape.candidates} candidates; at most {64 * _MOST}")
        return shape
    raise DriftscopeError(f"tree {text} is not known; give {_HOW}")
