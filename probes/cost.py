"""Cost: how many accepted tokens does drift cost, and by which path?

Step k >= 2 of anchor t stands at row r = t + k - 1. Step 1 of the chain at anchor r stands at the same row, with everything real:
the state made from the target's features, the attention row of every layer and head, the values of rows t + 1 .. r. Chains run with
every combination of three factors, each the chain's own or real, put at the sites `state`, `layers.{j}.attention` and
`layers.{j}.v` from step 2 on; step 1 is real already and stays as it is.

- All own is the undisturbed chain, all real is step 1 at the later anchors, token by token: both are checked in every run.
- actual = accepted tokens with all own; undrifted = with all real: the run of step-1 successes at t, t + 1, ...; cost =
  undrifted - actual. A factor alone: its effect where the others are own; last: where they are real; Shapley: the mean over the
  six orders in which they can be made real.
- A factor that is own is put as well, with what the undisturbed chain had, so that the three are independent: in a drafter of
  several layers a real state would otherwise change attention and values behind it.
- Chains are fed with the text, which changes no accepted length: only steps whose earlier tokens are right count. An own row is
  thus what the undisturbed chain has where it has drafted right so far. With `feed=drafted` it is what the chain had after its
  own token, right or wrong: a patch that outlives the undisturbed chain then meets attention and values of a wrong token, and
  the factors share the price of that token.
- A state that is split (`split_state`): `state_rms` is what the real RMS changes at the chain's own direction,
  `state_direction` what the real direction changes at the real RMS. They sum to the state.
- With learned sink logits an attention row sums to less than 1 and is put as it is. A gate in the attention, experts and the
  like follow the state that is put. Where positions do not advance by 1 a step, the real row still is step 1 of anchor r, which
  stands at position r: the other position then belongs to the pattern.
- A drafter of all steps at once (DFlash, P-EAGLE) carries nothing that could be put: undrifted minus actual is what drafting in
  one block costs, in the same unit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from driftscope.chain.patches import OWN, REAL, REASONS, patches
from driftscope.errors import DriftscopeError
from driftscope.figures.cost import run_cost
from driftscope.probes.base import Variant
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record
from driftscope.runs.columns import BOOL, FLOAT, INT16, INT32, PROMPT, STRING, Column, Table, optional

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder


_THERE = "the row of the rejected step without drafting"
REJECTIONS = Table(
    "rejections",
    (
        PROMPT,
        Column("anchor", INT32, "position t at which the chain starts", least=0),
        Column("loop", BOOL, "as in the table anchors: not in default figures"),
        optional("step", INT16, "first step whose token differs from the text; null where all were accepted"),
        optional("reason", STRING, "why, the first that holds; null where all were accepted", values=REASONS),
        optional("mends_state", BOOL, "the real state alone drafts the text's token there; null in a block"),
        optional("mends_pattern", BOOL, "so does the real attention alone; null in a block"),
        optional("mends_values", BOOL, "so do the real values alone; null in a block"),
        optional("rank", INT32, f"of the text's token at {_THERE}; null outside the draft vocabulary"),
        optional("prob", FLOAT, f"the drafter's probability of it at {_THERE}; null as rank is"),
        optional("target_prob", FLOAT, "the target's probability of it"),
        Column("gained", INT16, "accepted steps at which the row without drafting is wrong", least=0),
        Column("tie", BOOL, "a known end of the patched chains differs by a tie within rounding"),
    ),
)


def figures(run: RunFolder, depth: int | None) -> Figures:
    return run_cost(run, depth)


def _layout(axis: str, form: str) -> Layout:
    return Layout((axis,), "unit", form=form, counts=False)


RECORD = Record(
    tables=(REJECTIONS,),
    figures=figures,
    at_top=True,
    heading="Cost: how many accepted tokens does drift cost, and by which path?",
    printed=False,
    pictures=(
        Caption(
            "cost-budget",
            "Where the drafted tokens go",
            "Of the tokens that a chain drafts: those accepted, and those lost behind the first rejection, by its reason. Drift is "
            "the reason only where a row from real target features would have been right.",
            "cost",
            table=_layout("part", ".2f"),
        ),
        Caption(
            "cost-paths",
            "What drift costs, by path",
            "Accepted tokens that drift costs, in all and through the carried state, the attention rows and the values of the "
            f"chain's own rows (Shapley values, which sum to it); {INTERVALS}.",
            "cost_paths",
            table=_layout("path", "+.3f"),
        ),
        Caption(
            "cost-steps",
            "Where chains end, step by step",
            "Of the chains that are alive at a step, which part is accepted, and for which reason the others end there. Drift can "
            "only be the reason from step 2 on: step 1 is made from real features. Few chains are alive at deep steps.",
            "cost_steps",
            table=Layout(("step", "part"), "unit", form=".1%"),
        ),
    ),
    page="overview",
)


@dataclass(frozen=True)
class CostProbe:
    """Eight patched chains an anchor, twelve with the state split, all in one pass; tables `anchors` (tokens of every patch) and
    `rejections`."""

    name: str = "cost"
    question: str = "How many accepted tokens does drift cost, and by which path?"
    shard: str = "cost"
    record = RECORD
    anchors: int | Literal["all"] = 16
    """So many of each prompt, evenly over its continuation: a sample of all. A served walk needs all, or `spread=False`."""
    depth: int | None = None
    """Steps; None is the depth of the run."""
    split_state: bool = False
    """Direction and RMS of the state apart."""
    spread: bool = True
    """False: the first anchors of each prompt, which are consecutive and near the prompt."""
    feed: Literal["text", "drafted"] = "text"
    """What the recorded and the patched chains embed."""

    def __post_init__(self) -> None:
        if (self.anchors != "all" and self.anchors < 1) or (self.depth is not None and self.depth < 1):
            raise DriftscopeError(
                f"cost needs at least 1 anchor and 1 step; got anchors {self.anchors}, depth {self.depth}"
            )

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        common: dict[str, Any] = {"anchors": self.anchors, "spread": self.spread, "depth": self.depth}
        if not pair.config.carries:
            return [Variant(variant_of(name), "clean", common) for name in (OWN, REAL)]
        common["feed"] = self.feed
        return [
            Variant(
                variant_of(patch.name), "clean" if patch.name == OWN else "intervention", {**asdict(patch), **common}
            )
            for patch in patches(self.split_state)
        ]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        from driftscope.chain.patched_chains import patched_chains
        from driftscope.probes.stacked import first_anchors, spread_anchors
        from driftscope.runs.patched_rows import patched_rows, rejection_rows

        depth, settings = self.depth or subject.settings.depth, subject.settings
        if depth > settings.horizon:
            raise DriftscopeError(
                f"probe cost asks for {depth} steps, anchors have {settings.horizon} ahead: raise --horizon"
            )
        chosen = spread_anchors if self.spread else first_anchors
        narrow = chosen(subject, None if self.anchors == "all" else self.anchors)
        chains = patched_chains(narrow, depth, split_state=self.split_state, feed=self.feed)
        tables = {"anchors": patched_rows(narrow, chains, self.feed)}
        # Without final states that confirm the text nothing tells what is rejected.
        return {**tables, "rejections": rejection_rows(narrow, chains)} if subject.capture.greedy else tables

    def cost(self, depth: int) -> float:
        # Measured (benchmarks/drift_cost.py): passes over few rows cost one clean chain, and every ten rows an anchor 0.06.
        stacked = 0.06 * (1.4 if self.split_state else 1.0) * (100 if self.anchors == "all" else self.anchors)
        return round((1 + stacked) * (self.depth or depth) / depth, 1)


def variant_of(patch: str) -> str:
    """Name under which the rows of a patch are stored: `cost/state+values`."""
    return f"cost/{patch}"


PROBE = CostProbe()
