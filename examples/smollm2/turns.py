"""What the training conversations are about: user turns of many kinds, filled in at random.

A kind is a function from a random generator to the user turns of one conversation. None shares eight words in a row with
a prompt that is held out (`held_out`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

from topics import (
    CODE_TASKS,
    FOLLOW_UPS,
    FOREIGN,
    JOBS,
    LANGUAGES,
    NAMES,
    PASSAGES,
    PLACES,
    REQUESTS,
    SENTENCES,
    SNIPPETS,
    SUBJECTS,
    SYSTEM_PROMPTS,
    THINGS,
)  # fmt: skip

Kind = Callable[[random.Random], list[str]]
ROOT = Path(__file__).parents[2]
HELD_OUT = (*sorted((ROOT / "probes" / "prompts").glob("*.jsonl")), Path(__file__).parent / "held-out.jsonl")


def chat(rng: random.Random) -> list[str]:
    return [rng.choice(REQUESTS).format(rng.choice(SUBJECTS))]


def several(rng: random.Random) -> list[str]:
    first = rng.choice((chat, code, advice, arithmetic, reasoning))(rng)
    return [first[0], rng.choice(FOLLOW_UPS)]


def code(rng: random.Random) -> list[str]:
    language = rng.choice(("Python", "Python", "Python", *LANGUAGES))
    task = rng.choice(CODE_TASKS)
    ask = rng.choice(
        (
            "Write a {0} function that {1}.",
            "How do I write {0} code that {1}? Show me an example.",
            "I need a short {0} program that {1}. Add comments.",
            "Implement this in {0}: a function that {1}. Then explain how it works.",
            "Write unit tests in {0} for a function that {1}.",
            "Give me {0} code that {1} and describe its running time.",
        )
    )
    return [ask.format(language, task)]


def snippet(rng: random.Random) -> list[str]:
    ask = rng.choice(
        (
            "What does this code do?\n\n{}",
            "Explain this program line by line:\n\n{}",
            "Find the bug in this code and fix it:\n\n{}",
            "Rewrite this so that it is easier to read:\n\n{}",
            "{}\n\nAdd a docstring and type hints.",
            "{}\n\nHow can I make this faster?",
        )
    )
    return [ask.format(rng.choice(SNIPPETS))]


def arithmetic(rng: random.Random) -> list[str]:
    a, b, c = rng.randint(12, 980), rng.randint(3, 95), rng.randint(2, 12)
    ask = rng.choice(
        (
            f"What is {a} + {b * c}?",
            f"Calculate {a} - {b}. Show the steps.",
            f"What is {b} times {c}?",
            f"Divide {b * c} by {c}.",
            f"Solve for x: {c}x + {b} = {c * rng.randint(2, 20) + b}",
            f"What is {c * 5}% of {a}?",
            f"Simplify the fraction {b * c}/{c * (b + 1)}.",
            f"Find the area of a rectangle that is {b} cm by {c} cm.",
            f"What is the average of {a}, {b} and {c}?",
            f"Write {a} as a product of prime factors.",
            f"A circle has a radius of {c} cm. What are its area and circumference?",
            f"What comes next: {c}, {c + b}, {c + 2 * b}, {c + 3 * b}?",
            f"Convert {a} minutes to hours and minutes.",
            f"Expand (x + {c})(x - {b}).",
            f"How many ways are there to choose 2 out of {c + 2} people?",
        )
    )
    return [ask]


def word_problem(rng: random.Random) -> list[str]:
    name, other = rng.sample(NAMES, 2)
    thing, place = rng.choice(THINGS), rng.choice(PLACES)
    a, b, c = rng.randint(8, 60), rng.randint(2, 9), rng.randint(2, 7)
    ask = rng.choice(
        (
            f"{name} has {a} {thing} and gives {b} of them to {other}. How many {thing} are left?",
            f"{name} buys {b} boxes with {c} {thing} each. {other} takes {c} of them. How many remain?",
            f"A bus to {place} leaves at {c}:15 and drives for {a + 40} minutes. When does it arrive?",
            f"{name} earns {a} dollars a day and spends {b} dollars on lunch. How much does {name} save in {c} days?",
            f"{thing.capitalize()} cost {b} dollars each, or {c * b - 3} dollars for {c}. {name} needs "
            f"{c + 2}. What is the cheapest way to buy them?",
            f"{name} walks to {place} at {b} km per hour and needs {c} hours. How far is it? How long "
            f"would it take by bicycle at {b * 3} km per hour?",
            f"There are {a} children at {place}. A third of them play, {b} read, and the rest sleep. How many sleep?",
            f"{name} is {b} years older than {other}. Together they are {a + b} years old. How old is each of them?",
            f"A recipe for {b} people needs {a * 10} g of flour. How much flour is needed for {b + c} people?",
        )
    )
    return [ask + rng.choice(("", " Explain your answer.", " Show all steps.", " Think step by step."))]


def extraction(rng: random.Random) -> list[str]:
    ask = rng.choice(
        (
            "{}\n\nWho is mentioned in this text?",
            "List all numbers in this text and what they mean:\n\n{}",
            "Read the text and answer: when and where does it happen?\n\n{}",
            "Extract the names, places and dates as JSON:\n\n{}",
            "Make a table of the facts in this passage.\n\n{}",
            "{}\n\nSummarize this in one sentence.",
            "Give a title to this text: {}",
            'What are the three most important points here? "{}"',
            "Write two questions that this text answers.\n\n{}",
        )
    )
    return [ask.format(passage(rng))]


def passage(rng: random.Random) -> str:
    name, other = rng.sample(NAMES, 2)
    slots = {
        "name": name, "other": other, "place": rng.choice(PLACES), "job": rng.choice(JOBS), "thing": rng.choice(THINGS),
        "subject": rng.choice(SUBJECTS), "a": rng.randint(10, 90), "b": rng.randint(2, 12), "year": rng.randint(1850, 2020),
        "day": rng.choice(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")),
    }  # fmt: skip
    return rng.choice(PASSAGES).format(**slots)


def rewriting(rng: random.Random) -> list[str]:
    text = rng.choice((passage(rng), rng.choice(SENTENCES), rng.choice(SENTENCES)))
    ask = rng.choice(
        (
            "Rewrite this more politely: {}",
            "Correct the grammar: {}",
            "Make this sentence shorter: {}",
            "Say this in other words: {}",
            "Rewrite the following in the past tense.\n\n{}",
            "Turn this into a formal email:\n\n{}",
            'Rewrite this for a small child: "{}"',
            "Make this text more exciting.\n\n{}",
            "Turn this into a list of bullet points:\n\n{}",
            "Translate into {language}: {{}}",
        )
    )
    language = rng.choice(("French", "Spanish", "German", "Italian"))
    return [ask.replace("{language}", language).replace("{{}}", "{}").replace("{}", text)]


def reasoning(rng: random.Random) -> list[str]:
    one, two, three = rng.sample(NAMES, 3)
    thing, other = rng.sample(THINGS, 2)
    subject, second = rng.sample(SUBJECTS, 2)
    ask = rng.choice(
        (
            f"{one} is taller than {two}. {two} is taller than {three}. Who is the shortest, and why?",
            f"All {thing} here are blue. {one} has something blue. Does {one} have {thing}? Explain.",
            f"{one}, {two} and {three} own {thing}, {other} and a dog. {one} owns no {thing}. {two} "
            f"owns the dog. Who owns what?",
            f"If it rains, {one} stays at home. {one} is not at home. What can we say about the weather?",
            f"Which is more useful for a small town: {subject} or {second}? Give reasons for both sides and decide.",
            f"What is the connection between {subject} and {second}?",
            f"How could {subject} and {second} be combined in one project?",
            f"{one} says that {subject} will disappear in ten years. What speaks for that and what against it?",
            f"Why do people like {subject} more than {second}? Think about causes and effects.",
            f"{one} finished before {two} but after {three}. {three} was not the first. Was there a "
            f"fourth runner? Explain.",
            f"Find the odd one out and give the reason: {thing}, {other}, {subject}.",
            f"Every shelf holds {thing} or {other}, never both. The top shelf has no {thing}. What is on it?",
        )
    )
    return [ask]


def advice(rng: random.Random) -> list[str]:
    name, place, job, thing = rng.choice(NAMES), rng.choice(PLACES), rng.choice(JOBS), rng.choice(THINGS)
    subject, days = rng.choice(SUBJECTS), rng.randint(2, 14)
    ask = rng.choice(
        (
            f"I want to become a {job}. Where do I start?",
            f"Plan a {days}-day trip to {place} for a family that likes {subject}.",
            f"My friend {name} is nervous about a talk on {subject}. What should I say?",
            f"What should I pack for {days} days in {place}?",
            f"I have lost my {thing}. How do I find them again?",
            f"Write a thank-you note to a {job} named {name}.",
            f"Write a product description for {thing} made in {place}.",
            f"Invent a character: a {job} from {place} who loves {subject}.",
            f"How do I explain {subject} to my grandmother?",
            f"Write the beginning of a novel about a {job} in {place}.",
            f"I have to choose between working as a {job} and studying {subject}. Help me decide.",
            f"Make a weekly schedule for a {job} who wants to learn about {subject}.",
            f"Write a review of a museum of {subject} in {place}.",
            f"Write a letter of complaint about {thing} that arrived broken.",
            f"Suggest {days} names for a shop that sells {thing}.",
            f"What does a {job} do all day?",
            f"Write a speech about {subject} for the mayor of {place}.",
            f"Give {days} tips for someone who has just moved to {place}.",
        )
    )
    return [ask]


def foreign(rng: random.Random) -> list[str]:
    return [rng.choice(FOREIGN)]


KINDS: tuple[tuple[Kind, int], ...] = (
    (chat, 14), (several, 12), (code, 14), (snippet, 6), (arithmetic, 9), (word_problem, 9), (extraction, 11), (rewriting, 8),
    (reasoning, 11), (advice, 14), (foreign, 6),
)  # fmt: skip


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def eights(text: str) -> set[tuple[str, ...]]:
    """Every eight words in a row."""
    all_words = words(text)
    return {tuple(all_words[i : i + 8]) for i in range(len(all_words) - 7)}


def held_out(files: tuple[Path, ...] = HELD_OUT) -> set[tuple[str, ...]]:
    rows = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return {eight for row in rows for message in row["messages"] for eight in eights(message["content"])}


def conversation(rng: random.Random) -> tuple[str, str | None, list[str]]:
    """A kind's name, a system prompt or None, and the user turns; no turns where the target is to write its own."""
    system = rng.choice(SYSTEM_PROMPTS)
    if rng.random() < 0.2:
        return "own", system, []
    kinds, weights = zip(*KINDS, strict=True)
    kind = rng.choices(kinds, weights)[0]
    return kind.__name__, system, kind(rng)
