"""Template conditions: what is asked, what is not applicable, and that a planted loss is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from driftscope.captures.conditions import Condition, condition_row, condition_table
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Subject
from driftscope.errors import DriftscopeError
from driftscope.figures import template_figures
from driftscope.probes.template import PROBE, REGULAR, SYSTEMS, TemplateProbe
from driftscope.probes.wording import FORMATS, LONG_SYSTEM
from driftscope.runs.schema import CONDITIONS, HEADS, STEPS
from tests.probes import planted, texts

PROMPTS = 12
BOS_FORMAT = "{{ bos_token }}" + texts.IM_FORMAT


def asked(tokenizer: Any, *prompts: Any, probe: TemplateProbe = PROBE) -> dict[str, Condition]:
    sources = [texts.source(prompt, tokenizer) for prompt in prompts]
    found = probe.conditions(texts.pair(tokenizer), sources, planted.SETTINGS, 32)
    return {condition.name.removeprefix("template/"): condition for condition in found}


def test_conditions_of_a_chat_with_a_beginning_of_text_token() -> None:
    tokenizer = texts.tokenizer(BOS_FORMAT, adds_bos=True)
    found = asked(tokenizer, texts.chat("a", "Why?"))
    said = {name: texts.decoded(tokenizer, c.token_ids) for name, c in found.items() if c.left_out is None}
    regular = "<s><|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    assert said["regular"] == regular
    assert said["no_bos"] == regular.removeprefix("<s>")
    assert said["no_template"] == "<s>Why?\n\n"
    assert said["no_bos_no_template"] == "Why?\n\n"
    assert said["double_bos"] == "<s>" + regular
    assert said["plain_format"] == "<s>User: Why?\nAssistant:"
    assert said["llama3_format"].startswith("<s><|start_header_id|>user<|end_header_id|>\n\nWhy?")
    assert LONG_SYSTEM in said["system_long"]
    # This template puts in no system prompt of its own.
    assert found["system_default"].left_out == found["system_none"].left_out == "same tokens as template/regular"
    assert {f"template/{name}" for name in found} == {variant.name for variant in PROBE.variants(texts.pair(tokenizer))}


def test_what_a_tokenizer_makes_equal_is_not_applicable() -> None:
    tokenizer = texts.tokenizer(texts.WITH_DEFAULT)
    found = asked(tokenizer, texts.chat("a", "Why?"))
    assert found["no_bos"].left_out == "the regular prompt starts with no BOS token"
    assert found["no_bos_no_template"].left_out == "same tokens as template/no_template"
    assert found["double_bos"].left_out == "tokenizing the rendered chat adds no second BOS token"
    assert found["system_default"].left_out == "same tokens as template/regular"
    none = texts.decoded(tokenizer, found["system_none"].token_ids)
    assert found["system_none"].left_out is None
    assert "Be brief." not in none
    own = asked(tokenizer, texts.chat("a", "Why?", system="Be long."))
    assert own["system_default"].left_out is None
    assert "Be brief." in texts.decoded(tokenizer, own["system_default"].token_ids)


def test_a_template_without_system_role_still_gets_the_system_prompt() -> None:
    tokenizer = texts.tokenizer(texts.NO_SYSTEM)
    found = asked(tokenizer, texts.chat("a", "Why?"))
    assert "night porter" in texts.decoded(tokenizer, found["system_other"].token_ids)
    assert found["system_none"].left_out == "same tokens as template/regular"


def test_plain_texts_have_no_template_to_change() -> None:
    from driftscope.target.prompts import Prompt

    found = asked(texts.tokenizer(adds_bos=True), Prompt("a", "test", text="Once upon a time"))
    measured = {name for name, condition in found.items() if condition.left_out is None}
    assert measured == {"regular", "no_bos"}
    assert {found[name].left_out for name in (*FORMATS, *SYSTEMS)} == {"not a chat"}


def test_only_some_prompts_are_asked_evenly_spaced() -> None:
    tokenizer = texts.tokenizer()
    prompts = [texts.chat(f"p{number}", "Why?" * (number + 1)) for number in range(9)]
    sources = [texts.source(prompt, tokenizer) for prompt in prompts]
    found = TemplateProbe(prompts=3).conditions(texts.pair(tokenizer), sources, planted.SETTINGS, 32)
    assert list(dict.fromkeys(condition.id for condition in found)) == ["p0", "p4", "p8"]


def test_own_chat_formats_come_from_files(tmp_path: Path) -> None:
    form = tmp_path / "mine.jinja"
    form.write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
    tokenizer = texts.tokenizer()
    probe = TemplateProbe(formats=(str(form),))
    found = asked(tokenizer, texts.chat("a", "Why?"), probe=probe)
    assert texts.decoded(tokenizer, found["mine"].token_ids) == "[Why?]"
    form.write_text("{% for m in messages %}")
    with pytest.raises(DriftscopeError, match="chat format"):
        asked(tokenizer, texts.chat("a", "Why?"), probe=probe)
    with pytest.raises(DriftscopeError, match=r"no\.jinja: No such file"):
        TemplateProbe(formats=("no.jinja",)).variants(texts.pair(tokenizer))
    with pytest.raises(DriftscopeError, match="at least 1 prompt"):
        TemplateProbe(prompts=0)


def spoil(final: torch.Tensor, number: int) -> None:
    """Most rows stand for no token."""
    final[torch.rand(len(final), generator=torch.Generator().manual_seed(number)) < 0.6] = planted.UNITS[22]


def figures(pair: Pair, change: Callable[[torch.Tensor, int], None] | None) -> dict[str, Any]:
    """Figures where `change` was done to the features under no_bos."""
    steps, heads, rows = [], [], []
    for number in range(PROMPTS):
        for name in ("regular", "no_bos"):
            record = planted.capture(number, length=32)
            if name == "no_bos" and change is not None:
                change(record.final, number)
            condition = Condition(f"template/{name}", record.prompt_id, "test", (1, 2))
            tables = PROBE.measure(Subject(pair, record, planted.SETTINGS, condition=condition))
            steps.append(tables["steps"])
            heads.append(tables["heads"])
            rows.append(condition_row(condition.name, record.prompt_id, double_bos=name == "regular"))
        rows.append(condition_row("template/double_bos", f"p{number}", left_out="nothing to double"))
    tables = [pd.concat(steps), pd.concat(heads), condition_table(rows)]
    kinds = (STEPS, HEADS, CONDITIONS)
    stored = [kind.frame(kind.conform(table)) for kind, table in zip(kinds, tables, strict=True)]
    return template_figures(*stored, resamples=50)


def test_a_planted_loss_is_found() -> None:
    lost = figures(planted.from_state(), spoil)
    assert lost["regular"]["length"]["anchor_mean"]["mean"] == planted.SETTINGS.depth
    found = lost["conditions"]["no_bos"]
    assert found["length_kept"]["anchor_mean"]["high"] < 0.6
    assert found["length_kept"]["served"]["high"] < 0.8
    assert found["paired"] == found["prompts"] == PROMPTS
    assert re.match(r"no_bos: keeps [345]\d% of the accepted length \(95% ", found["sentence"])


def test_no_loss_is_found_where_there_is_none() -> None:
    same = figures(planted.from_state(), None)
    found = same["conditions"]["no_bos"]
    one = {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert found["length_kept"] == {"served": one, "anchor_mean": one}
    assert found["growth_kept"] == one
    assert found["excess_change"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert same["double_bos"] == ["regular"]
    assert same["conditions"]["double_bos"] == {
        "left_out": {"nothing to double": PROMPTS},
        "applicable": False,
        "sentence": "double_bos: not applicable (nothing to double)",
    }
    assert REGULAR not in same["conditions"]


def test_planted_growth_is_found_where_acceptance_is_untouched() -> None:
    def add(final: torch.Tensor, number: int) -> None:
        final += 100 * planted.UNITS[22]

    grows = planted.SUCCESSOR.clone()
    grows[22, 22] = 3.0
    found = figures(planted.planted_pair(planted.ZERO, grows), add)
    assert found["regular"]["growth"]["mean"] == pytest.approx(1.0)
    kept = found["conditions"]["no_bos"]
    assert kept["growth_kept"]["mean"] == pytest.approx(3.0 ** (planted.SETTINGS.depth - 1), rel=1e-3)
    assert kept["length_kept"]["anchor_mean"]["mean"] == 1.0
