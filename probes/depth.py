"""Depth: where does the drafter collapse when it drafts further than it was trained to?

Undisturbed chains to the run's horizon, fed with their own tokens and with the text, every row kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscope.errors import DriftscopeError
from driftscope.probes.base import Variant

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject

VARIANT = "depth"


@dataclass(frozen=True)
class DepthProbe:
    """Chains of `steps` steps."""

    name: str = "depth"
    question: str = "At which step does it collapse when it drafts to the horizon?"
    shard: str = "depth"
    steps: int | None = None
    """At most the run's horizon, which it is when None."""

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        return [Variant(VARIANT, "clean", {"steps": self.steps})]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.runs import rows

        horizon = subject.settings.horizon
        longest = subject.pair.drafter.max_steps
        steps = self.steps or min(horizon, longest or horizon)
        if longest is not None and steps > longest:
            raise DriftscopeError(f"probe depth asks for {steps} steps, a block of this drafter has {longest}")
        if not 1 <= steps <= horizon:
            raise DriftscopeError(f"probe depth asks for {steps} steps, anchors have {horizon} ahead: raise --horizon")
        tables: dict[str, list[pd.DataFrame]] = {"anchors": [], "heads": [], "steps": []}
        for feed in ("drafted", "text"):
            chains = subject.clean(feed, steps)
            tables["anchors"].append(rows.anchor_rows(subject, VARIANT, feed, chains))
            tables["heads"].append(rows.head_rows(subject, VARIANT, feed, chains))
            tables["steps"].append(rows.step_rows(subject, VARIANT, feed, chains))
        return {name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()}

    def cost(self, depth: int) -> float:
        return round(2 * (self.steps or 16) / depth, 1)


PROBE = DepthProbe()
