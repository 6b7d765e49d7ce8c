"""Length: a drafter that far rows disturb breaks on long texts, and windows that hide them rescue it."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
import torch

from driftscope.captures.conditions import Condition, condition_row, condition_table
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Subject
from driftscope.drafter.attention import Window
from driftscope.errors import DriftscopeError
from driftscope.figures import length_figures
from driftscope.probes.length import POLICIES, LengthProbe
from driftscope.runs.schema import CONDITIONS, HEADS, STEPS
from tests.probes import planted, texts

SHORT, LONG, WINDOW = 40, 150, 40
TEXTS = 12
SMALL = LengthProbe(lengths=(SHORT, LONG), texts=TEXTS, anchors=4, window=WINDOW)
MARK = 22
"""The dimension that marks a disturbing row."""


def uniform_pair(strength: float) -> Pair:
    """Attends to all rows alike and drafts the successor of its state, unless marked rows make up more than 1 / `strength` of
    what it sees: then token 7."""
    heads, dim = planted.CONFIG.num_heads, planted.CONFIG.head_dim
    zero = torch.zeros(planted.CONFIG.num_kv_heads * dim, planted.WIDTH)
    values = zero.clone()
    values[::dim, MARK] = 1.0
    output = torch.zeros(planted.WIDTH, heads * dim)
    output[7, ::dim] = strength / heads
    passes = planted.SUCCESSOR.clone()
    passes[MARK, MARK] = 1.0
    attention = {
        "layers__0__self_attn__q_proj__weight": torch.zeros(heads * dim, planted.WIDTH),
        "layers__0__self_attn__k_proj__weight": zero,
        "layers__0__self_attn__v_proj__weight": values,
        "layers__0__self_attn__o_proj__weight": output,
    }
    return planted.planted_pair(planted.ZERO, passes, **attention)


def figures(strength: float, system_rows: int, position_limit: int | None = None) -> dict[str, Any]:
    """The rows 5 .. 99 of long texts are marked, the short ones have none. Every text counts three times."""
    pair = uniform_pair(strength)
    parts: dict[str, list[pd.DataFrame]] = {"steps": [], "heads": [], "conditions": []}
    for number in range(TEXTS // 3):
        for length in SMALL.lengths:
            record = planted.capture(number, length=length, prompt_length=length - 12)
            if length == LONG:
                record.final[5:100] = planted.UNITS[MARK]
            condition = Condition(f"length/{length}", record.prompt_id, "test", (1, 2), system_rows=system_rows)
            tables = SMALL.measure(Subject(pair, record, planted.SETTINGS, condition=condition))
            row = condition_row(condition.name, record.prompt_id, text_tokens=length)
            parts["conditions"].append(condition_table([row]))
            for name, table in tables.items():
                parts[name].append(table)
    stored = []
    for kind in (STEPS, HEADS, CONDITIONS):
        table = pd.concat(parts[kind.name])
        copies = [table.assign(prompt=table["prompt"] + letter) for letter in "abc"]
        stored.append(kind.frame(kind.conform(pd.concat(copies, ignore_index=True))))
    variants = pd.DataFrame(
        {"variant": item.name, "parameters": json.dumps(item.parameters)} for item in SMALL.variants(pair)
    )
    return length_figures(*stored, variants, position_limit=position_limit, resamples=50)


def test_the_break_is_found_and_which_window_rescues_it() -> None:
    # With so long a system prompt, the rows that disturb stay visible.
    found = figures(strength=2.0, system_rows=90, position_limit=100)
    full = found["policies"]["full"]
    assert full[0]["length_kept"]["anchor_mean"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert full[1]["length_kept"]["anchor_mean"]["high"] < 0.5
    assert [row["text_length"] for row in full] == [row["tokens"] for row in full] == [SHORT, LONG]
    assert [row["beyond_limit"] for row in full] == [False, True]
    assert found["breaks"]["full"] == found["breaks"]["window+system"] == {"at": LONG, "certain": True}
    assert found["breaks"]["window"] == found["breaks"]["window+sink"] == {"at": "none", "certain": True}
    assert found["rescues"] == {
        "window": {"rescues": True, "certain": True},
        "window+sink": {"rescues": True, "certain": True},
        "window+system": {"rescues": False, "certain": True},
    }
    assert all(rows[0]["same_as_full"] for name, rows in found["policies"].items() if name != "full")
    assert found["sentence"].startswith("acceptance breaks at 150 tokens: ")
    assert "a window of 40 rescues it; a window of 40 with the sink rescues it; the drafter's" in found["sentence"]
    assert found["sentence"].endswith("the drafter's config names 100 positions")


def test_nothing_breaks_where_nothing_disturbs() -> None:
    found = figures(strength=0.0, system_rows=5)
    for rows in found["policies"].values():
        for row in rows:
            assert row["length_kept"]["anchor_mean"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert found["breaks"] == {name: {"at": "none", "certain": True} for name in POLICIES}
    assert found["rescues"] == {}
    assert found["sentence"] == "acceptance does not break up to 150 tokens"


def test_windows_of_the_policies() -> None:
    pair = uniform_pair(0.0)
    record = planted.capture(length=LONG, prompt_length=100)
    condition = Condition("length/150", "p0", "test", (1, 2), system_rows=9)
    settings = planted.SETTINGS
    subject = Subject(pair, record, settings, condition=condition)
    assert SMALL.policy("full", subject) == Window()
    assert SMALL.policy("window", subject) == Window(WINDOW)
    assert SMALL.policy("window+sink", subject) == Window(WINDOW, 1)
    assert SMALL.policy("window+system", subject) == Window(WINDOW, 9)
    without = Subject(pair, record, type(settings)(sinks=()), condition=condition)
    assert SMALL.policy("window+sink", without) == "the target has no sink"
    short = Subject(pair, planted.capture(length=WINDOW), settings, condition=condition)
    assert SMALL.policy("window", short) == f"nothing of the text lies behind a window of {WINDOW}"


def test_conditions_have_the_lengths_asked_for() -> None:
    made = texts.tokenizer()
    known = [texts.source(texts.chat(f"p{n}", f"Why {n}?"), made, "because " * 12) for n in range(6)]
    probe = LengthProbe(lengths=(300, 500, 900, 2000), texts=2, anchors=8)
    found = probe.conditions(texts.pair(made, max_positions=1000), known, planted.SETTINGS, 128)
    assert [(c.name, c.id) for c in found] == [
        (f"length/{n}", name) for name in ("p0", "p5") for n in (300, 500, 900, 2000)
    ]
    new = 8 + planted.SETTINGS.horizon
    assert {c.new_tokens for c in found} == {new}
    for condition in found:
        length = int(condition.name.removeprefix("length/"))
        if length == 2000:
            assert condition.left_out == "the target holds 1000 tokens"
        elif condition.left_out is None:
            assert 0.9 * length <= len(condition.token_ids) + new <= length
            assert 0 < condition.system_rows < len(condition.token_ids)
    few = probe.conditions(texts.pair(made), known[:3], planted.SETTINGS, 128)
    assert few[0].left_out is None
    assert few[2].left_out == (
        f"the prompts of the run make only {len(few[2].token_ids) + new} tokens: give more of them"
    )


@pytest.mark.parametrize("options", [{"lengths": ()}, {"lengths": (200, 100)}, {"texts": 0}, {"window": 0}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DriftscopeError, match="the length probe needs"):
        LengthProbe(**options)


def test_texts_that_could_not_be_made_leave_nothing_to_measure() -> None:
    variants = pd.DataFrame(
        {"variant": item.name, "parameters": json.dumps(item.parameters)} for item in SMALL.variants(uniform_pair(0.0))
    )
    row = condition_row("length/40", "p0", left_out="the question alone is longer")
    conditions = CONDITIONS.frame(CONDITIONS.conform(condition_table([row])))
    nothing = [kind.frame(kind.empty()) for kind in (STEPS, HEADS)]
    found = length_figures(*nothing, conditions, variants)
    assert found["breaks"]["full"] == {"at": "not measurable"}
    assert found["policies"]["full"][0]["left_out"] == {"the question alone is longer": 1}
