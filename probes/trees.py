"""Trees: how many drafted tokens survive if the drafter drafts a tree, and does it beat a chain of as many tokens?

Greedy verification is exact: a node is accepted iff its path is the target's text. The nodes are those of the drafter's own
expansions, all anchors at once, and every smaller budget of nodes is measured with them: a tree of N nodes holds the N likeliest.

- `tree/NAME`: a tree, by the name of its preset (`eagle`, `sglang`, `sglang-deepseek`, `vllm`), as `5x4x7` (steps, top-k, nodes
  without the root) or static, as `4-2-1` (children a node has on each level).
- `tree/chain`: the chain to the run's horizon, against which a tree is held at the same number of nodes.
- A drafter of all steps at once has no path of its own to expand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from driftscope.chain.tree_shape import TreeShape, chain_shape, tree_shape
from driftscope.errors import DriftscopeError
from driftscope.figures.trees import run_trees, tree_figure_rows, tree_sentences
from driftscope.probes.base import Variant
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record
from driftscope.runs.columns import BOOL, INT32, PROMPT, STEP, STRING, Column, Table, optional

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder

CHAIN = "chain"
TREES = Table(
    "trees",
    (
        Column("variant", STRING, "tree/ and the name of the tree; its shape is in the variant's parameters"),
        PROMPT,
        Column("anchor", INT32, "position t at which the tree starts", least=0),
        STEP,
        Column("loop", BOOL, "as in the table anchors: not in default figures"),
        optional("nodes", INT32, "fewest nodes with which the text's token is accepted; null where none are enough"),
    ),
)


def figures(run: RunFolder, depth: int | None) -> Figures:
    return run_trees(run)


RECORD = Record(
    tables=(TREES,),
    figures=figures,
    about={
        "anchors": "anchors outside loops",
        "chain": "the chain of as many tokens as `nodes`: accepted tokens without the bonus token",
        "trees": "by tree: its shape, lengths, the chain of as many tokens, the paired gain; `budgets`: with fewer nodes",
    },
    rows=tree_figure_rows,
    axes=("tree", "nodes", "quantity"),
    table=Layout(("tree", "nodes"), "quantity", form=".3f", where={"whole": True}, counts=False),
    sentences=tree_sentences,
    heading="Trees: does a tree of drafted tokens beat a chain of as many?",
    pictures=(
        Caption(
            "tree-budgets",
            "Accepted tokens by number of nodes",
            f"Served length of each tree when it holds only its likeliest nodes, beside the chain of as many tokens; {INTERVALS}.",
            "trees",
            table=Layout(("tree", "nodes"), "quantity", form=".3f", counts=False),
        ),
    ),
)


@dataclass(frozen=True)
class TreesProbe:
    """Table `trees`: with how many nodes the token of every step is accepted, for every tree and anchor."""

    name: str = "trees"
    question: str = "Does a tree of drafted tokens beat a chain of as many?"
    shard: str = "trees"
    trees: tuple[str, ...] = ("eagle", "sglang", "4-2-1")
    anchors: int | Literal["all"] = 16
    """The first so many of each prompt, so that rounds can be walked over them."""
    record = RECORD
    needs_carry = True

    def __post_init__(self) -> None:
        if self.anchors != "all" and self.anchors < 1:
            raise DriftscopeError(f"probe trees needs at least 1 anchor; got {self.anchors}")
        for text in self.trees:
            tree_shape(text)

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        shapes = [tree_shape(text).check(pair.config.draft_vocab_size) for text in self.trees]
        return [
            Variant(f"tree/{CHAIN}", "clean", {"anchors": self.anchors}),
            *(self._variant(shape) for shape in shapes),
        ]

    def _variant(self, shape: TreeShape) -> Variant:
        parameters: dict[str, Any] = {
            "steps": shape.steps,
            "topk": shape.topk,
            "nodes": shape.nodes,
            "static": shape.paths is not None,
            "anchors": self.anchors,
        }
        return Variant(f"tree/{shape.name}", "clean", parameters)

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.chain.tree import subject_trees
        from driftscope.probes.stacked import first_anchors
        from driftscope.runs.tree_rows import tree_rows

        if not subject.capture.greedy:
            # Without final states that confirm the text nothing tells what is accepted.
            return {}
        narrow = first_anchors(subject, None if self.anchors == "all" else self.anchors)
        # A deeper tree grows whole, but the text is known to the horizon only.
        horizon = subject.settings.horizon
        shapes = [chain_shape(horizon, CHAIN), *(tree_shape(text) for text in self.trees)]
        frames = [
            tree_rows(narrow, f"tree/{shape.name}", subject_trees(narrow, shape), min(shape.steps, horizon))
            for shape in shapes
        ]
        return {"trees": pd.concat(frames, ignore_index=True)}

    def cost(self, depth: int) -> float:
        # Of each tree the rows of all levels, of which a clean chain has one an anchor and step at 100 anchors a prompt.
        share = 1.0 if self.anchors == "all" else self.anchors / 100
        rows = sum(_widest(tree_shape(text)) for text in self.trees)
        return round(max(0.1, share * (2 * depth + rows) / depth), 1)


def _widest(shape: TreeShape) -> int:
    """Rows that are expanded for an anchor."""
    if shape.paths is not None:
        return 1 + len({path[:-1] for path in shape.paths if len(path) > 1})
    return 1 + (shape.steps - 1) * shape.topk


PROBE = TreesProbe()
