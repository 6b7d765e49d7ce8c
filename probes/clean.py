"""The undisturbed chains, which the questions about norms, attention and acceptance share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driftscope.errors import DriftscopeError
from driftscope.probes.base import Variant
from driftscope.probes.record import Figures, Record

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder


def in_steps(run: RunFolder, depth: int | None) -> Figures:
    """None of its own: they stand in the `steps` of the summary."""
    return {}


@dataclass(frozen=True)
class CleanProbe:
    """Drafted and text-fed chains with full rows, the target's norms by boundary, the aux features, the text in pieces."""

    name: str
    question: str
    record: Record = field(default=Record(figures=in_steps, printed=False), repr=False, compare=False)
    shard: str = "clean"
    temperature: float = 1.0
    """Of target and drafter, for the sampling acceptance; every other figure is greedy."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise DriftscopeError(f"probe {self.name}: temperature {self.temperature}; expected more than 0")

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        return [Variant("clean", "clean", {"temperature": self.temperature})]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.probes.sampling import with_sampling
        from driftscope.runs import rows, token_rows

        anchors, heads, steps = [], [], []
        for feed in ("drafted", "text"):
            if feed == "text":
                # Without final states that confirm the text the target's distribution is not known.
                measure = with_sampling(subject, self.temperature) if subject.capture.greedy else None
                chains = subject.chains("text", measure=measure)
            else:
                chains = subject.clean("drafted")
                tokens = token_rows.token_rows(subject, chains)
                attended = token_rows.attended_rows(subject, "clean", chains)
            anchors.append(rows.anchor_rows(subject, "clean", feed, chains))
            heads.append(rows.head_rows(subject, "clean", feed, chains))
            steps.append(rows.step_rows(subject, "clean", feed, chains))
        tables = {
            "anchors": pd.concat(anchors, ignore_index=True),
            "heads": pd.concat(heads, ignore_index=True),
            "steps": pd.concat(steps, ignore_index=True),
            "layers": rows.layer_rows(subject.capture, subject.settings.sinks),
            "tokens": tokens,
            "attended": attended,
        }
        aux = rows.aux_rows(subject)
        return tables if aux is None else {**tables, "aux": aux}

    def cost(self, depth: int) -> float:
        return 2.0
