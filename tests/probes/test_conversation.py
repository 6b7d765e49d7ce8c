"""Long conversations: their length, their order, and what they are made of."""

from __future__ import annotations

from typing import Any

import pytest

from driftscope.captures.conditions import Source
from driftscope.probes.conversation import Turn, encoder, fill, largest, material, question_of, shared, turns_of
from driftscope.probes.wording import CHAT_SYSTEM
from driftscope.target.prompts import Prompt
from tests.probes import texts

MADE = texts.tokenizer()
QUESTIONS = [f"Question number {number}?" for number in range(8)]


def sources(made: Any = MADE) -> list[Source]:
    return [
        texts.source(texts.chat(f"p{n}", question), made, f"answer {n} " + "word " * (10 + n))
        for n, question in enumerate(QUESTIONS)
    ]


def filled(room: int, place: int = 0) -> Any:
    known = sources()
    return fill(encoder(known[place], MADE), material(known, place, MADE), question_of(known[place]), room)


@pytest.mark.parametrize("room", [420, 700, 1000])
def test_a_conversation_fills_its_room_and_ends_with_the_question(room: int) -> None:
    found = filled(room)
    assert found.complete
    # A further turn would not fit, not even with one word of its answer.
    encode = encoder(sources()[0], MADE)
    turn = len(encode([Turn(QUESTIONS[0], "answer")], "?")) - len(encode([], "?"))
    assert room - turn < len(found.token_ids) <= room
    text = texts.decoded(MADE, found.token_ids)
    assert text.endswith("<|im_start|>user\nQuestion number 0?<|im_end|>\n<|im_start|>assistant\n")
    assert text.count("Question number 0?") == 1
    system = texts.decoded(MADE, found.token_ids[: found.system_rows])
    assert system == f"<|im_start|>system\n{CHAT_SYSTEM}<|im_end|>\n<|im_start|>user\n"


def test_longer_conversations_end_as_shorter_ones_do() -> None:
    short, long = (texts.decoded(MADE, filled(room).token_ids) for room in (700, 1000))
    turns = short.partition("<|im_start|>user\n")[2].partition("<|im_start|>user\n")[2]
    assert len(turns) > 150
    assert long.endswith(turns)


def test_different_questions_have_different_turns_before_them() -> None:
    known = sources()
    first, second = material(known, 0, MADE), material(known, 1, MADE)
    assert first == material(known, 0, MADE)
    assert len(first) == len(second) == len(known) - 1
    assert [turn.question for turn in first if turn.question in QUESTIONS[2:]] != [
        turn.question for turn in second if turn.question in QUESTIONS[2:]
    ]


def test_too_few_turns_and_too_long_questions_are_told() -> None:
    assert not filled(5000).complete
    assert filled(50) is None


def test_answers_end_where_they_begin_to_loop_and_short_ones_are_left_out() -> None:
    prompt = texts.chat("a", "First?", "One.", "Second?")
    assert turns_of(texts.source(prompt, MADE, "this and this and this and", loop_from=16), MADE) == [
        Turn("First?", "One."),
        Turn("Second?", "this and this an"),
    ]
    assert turns_of(texts.source(prompt, MADE, "no"), MADE) == [Turn("First?", "One.")]
    assert question_of(texts.source(prompt, MADE)) == "Second?"


def test_plain_texts_follow_one_another() -> None:
    known = [texts.source(Prompt(f"p{n}", "test", text=f"Text {n}"), MADE, f" goes on and on {n}") for n in range(3)]
    turns = material(known, 0, MADE)
    found = fill(encoder(known[0], MADE), turns, question_of(known[0]), 80)
    assert found is not None
    said = [block for turn in turns[::-1] for block in (turn.question, turn.answer)]
    assert texts.decoded(MADE, found.token_ids) == "\n\n".join([*said, "Text 0"])


def test_helpers() -> None:
    assert [largest(10, lambda n, most=most: n <= most) for most in (0, 4, 10, 99)] == [0, 4, 10, 10]
    assert shared((1, 2, 3), (1, 2, 4)) == shared((1, 2), (1, 2, 4)) == 2
