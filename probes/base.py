"""What a probe is: a question, the shards it needs, and the rows that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.captures.conditions import Condition, PlannedText, Source
    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Settings, Subject


@runtime_checkable
class Probe(Protocol):
    """One question about a drafter.

    Probes with the same `shard` share their measurement: it runs once, by whichever comes first.
    """

    @property
    def name(self) -> str:
        """By which it is asked for."""

    @property
    def question(self) -> str:
        """What it answers, in a sentence."""

    @property
    def shard(self) -> str:
        """Name under which the rows of a prompt are stored; what was stored is not measured again."""

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        """Target boundaries that must be captured beside those that the drafter reads."""

    def variants(self, pair: Pair) -> list[Variant]:
        """The conditions under which chains run."""

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        """Table name -> rows of one prompt (`driftscope.runs.schema`)."""

    def cost(self, depth: int) -> float:
        """Chain passes per prompt, in units of one clean chain of `depth` steps."""


@runtime_checkable
class ConditionProbe(Probe, Protocol):
    """A probe with texts of its own: the run's prompts under other conditions.

    `measure` is called for each of them, with the condition in `subject.condition`; the rows of all conditions of a
    prompt are one shard. The run adds the `conditions` table.
    """

    def conditions(self, pair: Pair, sources: Sequence[Source], settings: Settings, new_tokens: int) -> list[Condition]:
        """What the target is to continue. Prompts of the run that are not among them are not measured; `new_tokens` is
        the length of the run's continuations."""

    def planned(self, prompts: int, settings: Settings) -> list[PlannedText]:
        """The texts, for a run of so many prompts."""


def applicable(probes: Sequence[Probe], pair: Pair) -> tuple[list[Probe], list[str]]:
    """The probes that say something of this drafter, and a note for each that does not.

    A probe whose `needs_carry` is true is about the state that a step hands to the next; some drafters hand on none.
    """
    left = [] if pair.config.carries else [item for item in probes if getattr(item, "needs_carry", False)]
    notes = [
        f"probe {item.name} is left out: this drafter drafts all steps at once and carries no state" for item in left
    ]
    return [item for item in probes if item not in left], notes


@dataclass(frozen=True)
class Variant:
    """One condition: `config` variants recompute prefix and baseline, an `intervention` touches chain rows only."""

    name: str
    kind: str
    parameters: dict[str, object]
