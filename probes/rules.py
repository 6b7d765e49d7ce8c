"""Rules: how many drafted tokens survive under each rule of verification, temperature, top-k, top-p and penalty?

- Rules (`driftscope.chain.verification`): greedy, exact match, one-hot draft, lossless sampling, block verification. vLLM drafts
greedily
  unless told otherwise, which is `one_hot`; with `draft_sample_method` probabilistic it is `lossless`, and `block` with
  `rejection_sample_method` block.
- `samplings`: TARGET/DRAFT, such as `t0.7,p0.9/t1`: temperature, top-k, top-p and repetition penalty of each; without a slash both
  sample alike. A draft temperature changes no greedy figure: an acceptance that it mends was lost to the scale of the drafter's
  logits, not to drift.
- Per step the chance is exact, given the text so far: the run's greedy text (`text` greedy), or one that the target sampled
  (`sampled`). Joint chances, and so lengths, are measured on sampled texts only, where their mean over texts is the chance itself:
  a greedy text is one path, and not a likely one.
- A drafter of all steps at once has one distribution a row that no sampled token enters: the same figures hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from driftscope.chain.verification_rules import SamplingPair, sampling_pair
from driftscope.errors import DriftscopeError
from driftscope.probes.base import Variant

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject


@dataclass(frozen=True)
class RulesProbe:
    """Table `rules`: sums of chances per pair of samplings, rule and step."""

    name: str = "rules"
    question: str = "How many drafted tokens survive under each rule of verification and sampling?"
    shard: str = "rules"
    samplings: tuple[str, ...] = ("t1", "t1/t0.5", "t1/t0.7", "t1/t1.4", "t1/t2", "t0.7", "t0.7;p0.9", "t1;k50")
    """A semicolon stands for the comma of `driftscope.chain.verification_rules.sampling`, for options are split at commas."""
    anchors: int | Literal["all"] = 16
    """The first so many of each prompt."""
    sampled_tokens: int = 40
    """New tokens of every text that the target samples, one for each sampling of the target; 0 for none."""

    def __post_init__(self) -> None:
        if (self.anchors != "all" and self.anchors < 1) or self.sampled_tokens < 0:
            raise DriftscopeError(
                f"rules needs at least 1 anchor; got anchors {self.anchors}, sampled_tokens {self.sampled_tokens}"
            )
        if not self.pairs():
            raise DriftscopeError("rules needs at least one sampling")

    def pairs(self) -> list[SamplingPair]:
        """The samplings, read."""
        return list(dict.fromkeys(sampling_pair(text.replace(";", ",")) for text in self.samplings))

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        common: dict[str, Any] = {"anchors": self.anchors, "sampled_tokens": self.sampled_tokens}
        return [
            Variant(f"rules/{one.name}", "clean", {"target": one.target.name, "draft": one.draft.name, **common})
            for one in self.pairs()
        ]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.chain.sampled_text import sampled_capture
        from driftscope.probes.stacked import first_anchors
        from driftscope.target.ends import TargetEnds

        frames = []
        narrow = first_anchors(subject, None if self.anchors == "all" else self.anchors)
        if subject.capture.greedy:
            # Without final states that confirm the text the target's distribution is not known.
            frames.append(self._rows(narrow, self.pairs(), sampled=False))
        target, settings = subject.pair.target, subject.settings
        if self.sampled_tokens and not isinstance(target, TargetEnds):
            for how in dict.fromkeys(one.target for one in self.pairs()):
                capture = sampled_capture(target, subject.capture, how, self.sampled_tokens, settings.seed)
                own = replace(subject, capture=capture)
                own = first_anchors(own, None if self.anchors == "all" else self.anchors)
                if len(own.anchors):
                    frames.append(self._rows(own, [one for one in self.pairs() if one.target == how], sampled=True))
        return {"rules": pd.concat(frames, ignore_index=True)} if frames else {}

    def _rows(self, subject: Subject, pairs: list[SamplingPair], sampled: bool) -> pd.DataFrame:
        from driftscope.chain.rule_measure import RuleMeasure
        from driftscope.runs.rule_rows import rule_rows

        measure = RuleMeasure(subject, pairs, subject.settings.depth)
        steps = subject.chains("text", measure=measure, sites=("logits",))
        return rule_rows(subject, steps, pairs, sampled)

    def cost(self, depth: int) -> float:
        share = 1.0 if self.anchors == "all" else self.anchors / 100
        texts = 1 + (len({one.target for one in self.pairs()}) if self.sampled_tokens else 0)
        return round(max(0.1, texts * (0.2 + share) + 0.05 * len(self.pairs())), 1)


PROBE = RulesProbe()
