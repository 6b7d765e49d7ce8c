"""Length: up to which length of a conversation does the drafter keep its acceptance, and does a window rescue it?

Questions of the run are asked at the end of long chats, whose earlier turns are other prompts of the run with the target's
answers. A text of length L has L tokens with its continuation; the turns nearest to the question are the same at every
length. The drafter's attention is full, a sliding window, or a window behind which the sink or the system prompt stay
visible. Windows are a change at inference: a drafter trained with one may take it better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from driftscope.captures.conditions import Condition, PlannedText, Source, condition_row, condition_table
from driftscope.errors import DriftscopeError
from driftscope.figures.length import length_figures, length_rows, position_limit_of
from driftscope.probes.base import Variant
from driftscope.probes.condition_rows import condition_rows
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Settings, Subject
    from driftscope.drafter.attention import Window
    from driftscope.runs.folder import RunFolder

FULL = "full"
POLICIES = {
    FULL: "the drafter's own attention",
    "window": "a sliding window",
    "window+sink": "a window, and the rows up to the target's last sink",
    "window+system": "a window, and the rows of the system prompt",
}


def figures(run: RunFolder, depth: int | None) -> Figures:
    tables = (run.table(name, "length") for name in ("steps", "heads", "conditions", "variants"))
    return length_figures(*tables, position_limit=position_limit_of(run))


def sentences(figures: Figures) -> list[tuple[str, str]]:
    """Where acceptance breaks and what rescues it."""
    return [("", figures["sentence"])] if "sentence" in figures else []


def _layout(quantity: str, form: str) -> Layout:
    where, renamed = {"quantity": quantity}, {"length": "tokens"}
    return Layout(("tokens",), "policy", form=form, where=where, renamed=renamed, counts=False)


RECORD = Record(
    figures=figures,
    about={
        "depth": "steps of the chains",
        "texts": "conversations at each length",
        "policies": "by attention policy: acceptance, growth and excess at each length",
        "position_limit": "the positions that the drafter's config names",
        "window": "rows that a window holds",
        "breaks": "by policy: the length from which on less than half of the acceptance is kept",
        "rescues": "by window: whether it keeps half where full attention does not",
        "sentence": "the same in words",
    },
    rows=length_rows,
    axes=("policy", "length", "quantity"),
    sentences=sentences,
    heading="Length: where does acceptance break, and does a window rescue it?",
    pictures=(
        Caption(
            "length",
            "Acceptance by length of the text",
            f"Accepted tokens a chain, without the bonus token, under full attention and under windows; {INTERVALS}.",
            "length",
            table=_layout("anchor_mean", ".2f"),
        ),
        Caption(
            "length-excess",
            "Excess by length of the text",
            f"Attention on self-generated tokens beyond no drafting, at the last step; {INTERVALS}.",
            "length",
            {"quantity": "excess"},
            _layout("excess", "+.3f"),
        ),
    ),
    page="robustness",
)


@dataclass(frozen=True)
class LengthProbe:
    """Drafted chains over `texts` conversations at each length, under each policy."""

    lengths: tuple[int, ...] = (512, 1024, 2048)
    """In tokens, continuation included, ascending."""
    texts: int = 12
    anchors: int = 16
    """The first so many of each text."""
    window: int | None = None
    """Rows that a window holds; None is the shortest length, so that no query sees more rows than there."""
    name: str = "length"
    question: str = "At which length of the text does acceptance break, and does an attention window rescue it?"
    shard: str = "length"
    record = RECORD

    def __post_init__(self) -> None:
        if not self.lengths or sorted(set(self.lengths)) != list(self.lengths):
            raise DriftscopeError(f"the length probe needs ascending lengths, got {self.lengths}")
        if min(self.texts, self.anchors, self.lengths[0], self.size) < 1:
            raise DriftscopeError(
                f"the length probe needs positive numbers, got lengths {self.lengths}, texts {self.texts}, anchors "
                f"{self.anchors}, window {self.window}"
            )

    @property
    def size(self) -> int:
        return self.lengths[0] if self.window is None else self.window

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        common: dict[str, object] = {"texts": self.texts, "anchors": self.anchors}
        made = []
        for length in self.lengths:
            for policy in POLICIES:
                window = None if policy == FULL else self.size
                parameters = {"length": length, "policy": policy, "window": window, **common}
                made.append(Variant(f"length/{length}/{policy}", "config", parameters))
        return made

    def conditions(self, pair: Pair, sources: Sequence[Source], settings: Settings, new_tokens: int) -> list[Condition]:
        from driftscope.probes.conversation import encoder, fill, material, question_of

        tokenizer = pair.target.tokenizer
        new = settings.horizon + self.anchors
        made = []
        places = np.unique(np.linspace(0, len(sources) - 1, self.texts).round().astype(int))
        for place in places.tolist():
            source = sources[place]
            turns, encode = material(sources, place, tokenizer), encoder(source, tokenizer)
            for length in self.lengths:
                condition = Condition(f"length/{length}", source.prompt.id, source.prompt.category, new_tokens=new)
                room = pair.target.max_positions
                if room is not None and length > room:
                    made.append(condition.without(f"the target holds {room} tokens"))
                    continue
                filled = fill(encode, turns, question_of(source), length - new)
                if filled is None:
                    made.append(condition.without("the question alone is longer"))
                    continue
                condition = replace(condition, token_ids=filled.token_ids, system_rows=filled.system_rows)
                if not filled.complete:
                    tokens = len(filled.token_ids) + new
                    condition = condition.without(
                        f"the prompts of the run make only {tokens} tokens: give more of them"
                    )
                made.append(condition)
        return made

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.chain.prompt_chains import Subject

        assert subject.condition is not None
        settings = replace(subject.settings, anchors=self.anchors, spread=False)
        parts: list[dict[str, pd.DataFrame]] = []
        rows = []
        for policy in POLICIES:
            variant = f"{subject.condition.name}/{policy}"
            window = self.policy(policy, subject)
            if isinstance(window, str):
                rows.append(condition_row(variant, subject.capture.prompt_id, left_out=window))
                continue
            seen = Subject(subject.pair, subject.capture, settings, window)
            seen.text = subject.text
            parts.append(condition_rows(seen, variant))
        tables = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
        return {**tables, "conditions": condition_table(rows)} if rows else tables

    def policy(self, name: str, subject: Subject) -> Window | str:
        """The window of a policy on one text, or why it has none."""
        from driftscope.drafter.attention import Window

        assert subject.condition is not None
        if name == FULL:
            return Window()
        if subject.capture.length <= self.size:
            return f"nothing of the text lies behind a window of {self.size}"
        if name == "window":
            return Window(self.size)
        if name == "window+system":
            return Window(self.size, subject.condition.system_rows)
        sinks = subject.settings.sinks
        return Window(self.size, max(sinks) + 1) if sinks else "the target has no sink"

    def cost(self, depth: int) -> float:
        # Per length and policy; `planned` knows the lengths.
        return float(len(self.lengths) * len(POLICIES))

    def planned(self, prompts: int, settings: Settings) -> list[PlannedText]:
        new = settings.horizon + self.anchors
        count = min(prompts, self.texts)
        return [PlannedText(count, len(POLICIES), length - new, new, self.anchors) for length in self.lengths]


PROBE = LengthProbe()
