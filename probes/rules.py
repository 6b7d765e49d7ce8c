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

from driftscope.chain.verification_rules import RULES as RULE_NAMES
from driftscope.chain.verification_rules import SamplingPair, sampling_pair
from driftscope.errors import DriftscopeError
from driftscope.figures.rules import rule_figure_rows, rule_sentences, run_rules
from driftscope.probes.base import Variant
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record
from driftscope.runs.columns import INT32, PROMPT, STEP, STRING, SUM, Column, Table, optional

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder


RULES = Table(
    "rules",
    (
        Column("variant", STRING, "rules/ and the sampling of target and draft, which are in its parameters"),
        Column(
            "text",
            STRING,
            "what the chains are fed: the target's greedy text, or a sampled one",
            values=("greedy", "sampled"),
        ),
        PROMPT,
        STEP,
        Column("rule", STRING, values=RULE_NAMES),
        Column("anchors", INT32, "outside loops: the denominator of the sums", least=0),
        optional("acceptance", SUM, "sum of the chance that this step's token is accepted after the text so far"),
        optional(
            "joint", SUM, "sum of estimates of the chance that this and all earlier ones are; null where none follows"
        ),
    ),
)


def figures(run: RunFolder, depth: int | None) -> Figures:
    return run_rules(run)


RECORD = Record(
    tables=(RULES,),
    figures=figures,
    about={
        "samplings": "by sampling of target and draft and by rule: acceptance per step on greedy and sampled texts, length",
        "draft_temperature": "lossless acceptance by temperature of the draft alone, the best and its gain",
    },
    rows=rule_figure_rows,
    axes=("sampling", "rule", "step", "quantity"),
    table=Layout(("sampling",), "rule", form=".3f", where={"quantity": "length"}, counts=False),
    sentences=rule_sentences,
    heading="Rules: how many drafted tokens survive under each rule of verification?",
    pictures=(
        Caption(
            "rules",
            "Acceptance by rule of verification",
            "Chance that a drafted token is accepted after the text so far, on greedy texts, and expected accepted tokens on texts"
            f" that the target sampled so (greedy: on greedy ones); {INTERVALS}.",
            "rules",
            table=Layout(("sampling", "rule", "step"), "quantity", form=".3f", counts=False),
        ),
    ),
)


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

    record = RECORD

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

        from driftscope.captures.capture import long_enough
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
                if not long_enough(capture, settings.horizon):
                    continue
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
