"""Long conversations of a wanted length, from the prompts of a run and what the target answered to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from driftscope.captures.conditions import Source
from driftscope.probes.wording import CHAT_SYSTEM

MIN_ANSWER = 8
"""Tokens: shorter answers are left out."""
FILLED = 0.9
"""Share of the wanted length that a conversation must reach."""


@dataclass(frozen=True)
class Turn:
    """A question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class Filled:
    """A conversation up to where the last answer begins."""

    token_ids: tuple[int, ...]
    system_rows: int
    """Rows that hold the system prompt with what frames it, up to the first question."""
    complete: bool
    """False where the turns did not suffice."""


def turns_of(source: Source, tokenizer: Any) -> list[Turn]:
    """The earlier turns of a prompt, and its last question with the target's answer up to where it repeats itself."""
    capture, prompt = source.capture, source.prompt
    answer = capture.token_ids[capture.prompt_length :]
    loops = capture.loop[capture.prompt_length :].nonzero()
    if len(loops):
        answer = answer[: int(loops[0])]
    said = tokenizer.decode(answer.tolist(), skip_special_tokens=True).strip() if len(answer) >= MIN_ANSWER else ""
    if prompt.messages is None:
        return [Turn(str(prompt.text), said)] if said else []
    turns = []
    question = ""
    for message in prompt.messages:
        if message.role == "user":
            question = message.content
        elif message.role == "assistant" and question:
            turns.append(Turn(question, message.content))
            question = ""
    return [*turns, Turn(question, said)] if question and said else turns


def question_of(source: Source) -> str:
    """The last question of a prompt, or its text."""
    messages = source.prompt.messages
    if messages is None:
        return str(source.prompt.text)
    return next((m.content for m in reversed(messages) if m.role == "user"), "")


def material(sources: Sequence[Source], place: int, tokenizer: Any) -> list[Turn]:
    """The turns that may come before the question of `sources[place]`, the nearest first; the same at every length."""
    others = [source for index, source in enumerate(sources) if index != place]
    random.Random(place).shuffle(others)
    return [turn for source in others for turn in reversed(turns_of(source, tokenizer))]


def fill(
    encode: Callable[[Sequence[Turn], str], tuple[int, ...]], turns: Sequence[Turn], question: str, room: int
) -> Filled | None:
    """The longest conversation of at most `room` tokens that ends with `question`: as many `turns` (nearest first) as
    fit, then one more with its answer cut short. None where the question alone is longer.

    `encode` makes tokens of turns in the order in which they are said and the last question.
    """

    def made(count: int, cut: int = 0) -> tuple[int, ...]:
        said = list(turns[:count])
        if cut:
            said.append(Turn(turns[count].question, " ".join(turns[count].answer.split(" ")[:cut])))
        return encode(said[::-1], question)

    alone = made(0)
    if len(alone) > room:
        return None
    count = largest(len(turns), lambda n: len(made(n)) <= room)
    cut = 0
    if count < len(turns):
        words = len(turns[count].answer.split(" "))
        cut = largest(words, lambda n: len(made(count, n)) <= room if n else True)
    ids = made(count, cut)
    # Only the first question differs, so that what both have in common comes before it.
    other = encode([Turn("0", "0")], question)
    same = encode([Turn("?", "?")], question)
    return Filled(ids, shared(other, same), len(ids) >= FILLED * room)


def largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0 .. limit that fits, where every smaller one does too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def encoder(source: Source, tokenizer: Any) -> Callable[[Sequence[Turn], str], tuple[int, ...]]:
    """How turns before this prompt become tokens: by the chat template, or for plain texts one after the other."""
    from driftscope.probes.template import render
    from driftscope.target.prompts import Message, Prompt

    prompt = source.prompt

    def chat(turns: Sequence[Turn], question: str) -> tuple[int, ...]:
        messages = [Message("system", CHAT_SYSTEM)]
        for turn in turns:
            messages += [Message("user", turn.question), Message("assistant", turn.answer)]
        asked = Prompt(prompt.id, prompt.category, messages=(*messages, Message("user", question)))
        return tuple(tokenizer(render(asked, tokenizer), add_special_tokens=False)["input_ids"])

    def plain(turns: Sequence[Turn], question: str) -> tuple[int, ...]:
        blocks = [block for turn in turns for block in (turn.question, turn.answer)]
        return tuple(tokenizer("\n\n".join([*blocks, question]))["input_ids"])

    return plain if prompt.messages is None else chat
