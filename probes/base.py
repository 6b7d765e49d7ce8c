"""What a probe is: a question, the shards it needs, and the rows that answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.pair import Pair
    from driftscope.subject import Subject


@runtime_checkable
class Probe(Protocol):
    """One question about a drafter.

    Probes with the same `shard` share their measurement: it runs once, by whichever comes first.
    """

    name: str
    question: str
    shard: str
    """Name under which the rows of a prompt are stored; what was stored is not measured again."""

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        """Target boundaries that must be captured beside those that the drafter reads."""

    def variants(self, pair: Pair) -> list[Variant]:
        """The conditions under which chains run."""

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        """Table name -> rows of one prompt (`driftscope.schema`)."""

    def cost(self, depth: int) -> float:
        """Chain passes per prompt, in units of one clean chain of `depth` steps."""


@dataclass(frozen=True)
class Variant:
    """One condition: `config` variants recompute prefix and baseline, an `intervention` touches chain rows only."""

    name: str
    kind: str
    parameters: dict[str, object]
