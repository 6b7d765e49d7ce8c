"""Prompt files in, tokens of a real fast tokenizer out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from driftscope.errors import PromptError
from driftscope.target.prompts import Message, Prompt, SkippedPrompts, load_prompts, tokenize_prompts

PLAIN = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
REFUSING = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + PLAIN
DROPPING = PLAIN.replace(
    "[{{ m.role }}] {{ m.content }} ", "{% if m.role != 'system' %}[{{ m.role }}] {{ m.content }} {% endif %}"
)
BROKEN = "{{ raise_exception('conversation roles must alternate') }}"


def make_tokenizer(template: str | None = PLAIN) -> PreTrainedTokenizerFast:
    """One token a word or bracket, with a BOS token in front unless special tokens are off."""
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "hello": 2, "there": 3}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>")
    tokenizer.chat_template = template
    return tokenizer


def chat(*turns: tuple[str, str], name: str = "p") -> Prompt:
    return Prompt(name, "test", messages=tuple(Message(*turn) for turn in turns))


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_shipped_prompts_are_48_in_six_categories() -> None:
    prompts = load_prompts(None)
    assert Counter(p.category for p in prompts) == dict.fromkeys(
        ("chat", "reasoning", "mathematics", "code", "extraction", "multi-turn"), 8
    )
    assert len({p.id for p in prompts}) == len({p.messages for p in prompts}) == 48
    for prompt in prompts:
        assert prompt.messages is not None
        roles = [m.role for m in prompt.messages]
        assert roles == (["system", "user", "assistant", "user"] if prompt.category == "multi-turn" else ["user"])
        assert 15 <= sum(len(m.content.split()) for m in prompt.messages) <= 110


def test_reads_every_key_of_a_jsonl_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.jsonl",
        {
            "id": "a",
            "category": "c",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        },
        {"prompt": "one turn"},
        {"prompt": [{"role": "user", "content": "list"}], "text": "not this"},
        {"text": "plain"},
        {
            "conversations": [
                {"from": "human", "value": "h"},
                {"from": "gpt", "value": "g"},
                {"from": "human", "value": "i"},
            ]
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}
            ]
        },
    )
    assert load_prompts(path) == [
        Prompt("a", "c", (Message("system", "s"), Message("user", "u"))),
        Prompt("mine-02", "mine", (Message("user", "one turn"),)),
        Prompt("mine-03", "mine", (Message("user", "list"),)),
        Prompt("mine-04", "mine", None, "plain"),
        Prompt("mine-05", "mine", (Message("user", "h"), Message("assistant", "g"), Message("user", "i"))),
        Prompt("mine-06", "mine", (Message("user", "in parts"),)),
    ]


def test_assistant_turns_at_the_end_are_dropped(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}]
    (prompt,) = load_prompts(write(tmp_path / "x.jsonl", {"conversations": turns}))
    assert prompt.messages == (Message("user", "q"),)


def test_text_file_has_a_prompt_per_block(tmp_path: Path) -> None:
    path = tmp_path / "tales.txt"
    path.write_bytes("\ufeff\nOnce upon\na time\n\n \t\n\n  def f():\n      return 1\n".encode())
    assert [(p.id, p.text) for p in load_prompts(path)] == [
        ("tales-01", "Once upon\na time"),
        ("tales-02", "  def f():\n      return 1"),
    ]


USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ([USER, BOT, USER], 1),
        ([[USER], [USER, BOT]], 2),
        ([{"text": "t"}, {"messages": [USER]}], 2),
        ({"prompt": "p"}, 1),
    ],
)
def test_json_files_hold_a_chat_or_a_list_of_chats(tmp_path: Path, data: Any, count: int) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(data, indent=1))
    assert len(load_prompts(path)) == count


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '{"text": "x"}\n\n{"text": \n', "a.jsonl:3: not JSON"),
        ("a.jsonl", '["x"]\n', "a.jsonl:1: expected an object with one of messages"),
        ("a.jsonl", '{"question": "x"}\n', "a.jsonl:1: expected one of the keys messages, .* found question"),
        ("a.jsonl", '{"messages": "x"}\n', "a.jsonl:1: `messages` must be a list of messages, found a string"),
        ("a.jsonl", '{"messages": [{"role": "user"}]}\n', "a.jsonl:1, message 1: `content` must be text, found null"),
        (
            "a.jsonl",
            '{"messages": [{"role": 3, "content": ""}]}\n',
            "message 1: the role must be a string, found a number",
        ),
        (
            "a.jsonl",
            '{"conversations": ["hi"]}\n',
            "message 1: expected {role, content} or {from, value}, found a string",
        ),
        ("a.jsonl", '{"text": [{"type": "image"}]}\n', "a.jsonl:1: `text` must be text, found a list"),
        ("a.jsonl", "[" * 20_000 + "]" * 20_000, "a.jsonl:1: not a prompt .*recursion"),
        ("a.jsonl", '{"text": ' + "9" * 5000 + "}", "a.jsonl:1: not a prompt .*digits"),
        ("a.jsonl", '{"text": "\\ud83d"}', "a.jsonl:1: `text` holds half a character"),
        ("a.jsonl", '{"text": "x", "category": "\\udc00"}', "a.jsonl:1: `category` holds half a character"),
        ("a.json", '{"a": [' + "[]," * 1_500_000 + "[]]}", "a.json: 3,000,003 parts in .* no program here writes"),
        ("a.json", '[\n{"text": "x"},\n]', "a.json:3: not JSON"),
        ("a.json", '"x"', "a.json: expected a chat or a list of chats, found a string"),
        ("a.json", '[{"text": "x"}, 1]', "a.json, chat 2: expected a list of messages or an object, found a number"),
        ("a.csv", "x", "prompts come as .jsonl, .json, .txt or .parquet, not '.csv'"),
        ("a.txt", " \n\n ", "a.txt: no prompt in this file"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(PromptError, match=said) as error:
        load_prompts(tmp_path / name)
    assert "\n" not in str(error.value)


def test_unreadable_files_are_prompt_errors(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(PromptError, match="not UTF-8 text"):
        load_prompts(tmp_path / "latin.txt")
    with pytest.raises(PromptError, match="cannot read the prompts: No such file"):
        load_prompts(tmp_path / "absent.jsonl")
    (tmp_path / "folder.json").mkdir()
    # A pipe would be waited for, and a device read forever.
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zeros.txt").symlink_to("/dev/zero")
    for name in ("folder.json", "pipe.json", "zeros.txt"):
        with pytest.raises(PromptError, match=f"{name}: not a regular file"):
            load_prompts(tmp_path / name)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=5), st.sampled_from(["A", "a", "a-2", "../a", ".."])), min_size=1, max_size=8)
)
def test_ids_are_different_file_names(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("ids") / "x.jsonl", *({"id": name, "text": "t"} for name in ids))
    names = [p.id for p in load_prompts(path)]
    assert len({name.casefold() for name in names}) == len(ids)
    assert all(re.fullmatch(r"\w[\w.-]*", name, re.ASCII) for name in names)


def test_chats_get_the_template_and_texts_the_special_tokens() -> None:
    prompts = [chat(("user", "hello there")), Prompt("t", "test", text="hello there")]
    (first, second), skipped = tokenize_prompts(prompts, make_tokenizer(), max_tokens=20)
    assert first.text == "[user] hello there [assistant]"
    assert first.token_ids == (0, 0, 0, 2, 3, 0, 0, 0)  # no BOS: a template writes its own
    assert (second.text, second.token_ids) == ("hello there", (1, 2, 3))
    assert skipped.total == 0


def test_prompts_outside_the_limits_are_counted() -> None:
    texts = ["hello", "hello there", "hello there hello there", " ", ""]
    prompts = [Prompt(str(i), "test", text=text) for i, text in enumerate(texts)]
    prompts += [chat(("system", "only this")), chat(("user", "\n"))]
    kept, skipped = tokenize_prompts(prompts, make_tokenizer(), min_tokens=3, max_tokens=4)
    assert [p.id for p in kept] == ["1"]
    assert skipped == SkippedPrompts(empty=4, too_short=1, too_long=1)
    assert (skipped.total, str(skipped)) == (6, "4 empty, 1 too short, 1 too long")


def test_nothing_left_is_an_error_that_says_why() -> None:
    prompts = [Prompt("1", "test", text="hello there"), Prompt("2", "test", text="")]
    with pytest.raises(PromptError, match=r"no prompt left of 2: 1 empty, 1 too long \(allowed: 1 to 2 tokens\)"):
        tokenize_prompts(prompts, make_tokenizer(), max_tokens=2)


@pytest.mark.parametrize("template", [REFUSING, DROPPING])
def test_a_system_prompt_moves_to_the_user_where_the_template_has_no_system_role(template: str) -> None:
    prompt = chat(("system", "be brief"), ("user", "hello"), ("assistant", "hi"), ("user", "there"))
    with pytest.warns(UserWarning, match="takes no system role: in 1 prompts"):
        (tokenized,), _ = tokenize_prompts([prompt], make_tokenizer(template), max_tokens=50)
    assert tokenized.text == "[user] be brief\n\nhello [assistant] hi [user] there [assistant]"


def test_a_system_prompt_stays_where_the_template_takes_it(recwarn: pytest.WarningsRecorder) -> None:
    (tokenized,), _ = tokenize_prompts(
        [chat(("system", "be brief"), ("user", "hello"))], make_tokenizer("<s>" + PLAIN), max_tokens=50
    )
    assert tokenized.text == "<s>[system] be brief [user] hello [assistant]"
    assert not recwarn.list


def test_a_template_that_fails_names_the_prompt() -> None:
    for turns in ([("user", "hello")], [("system", "s"), ("user", "hello")]):
        with pytest.raises(PromptError, match=r"prompt 'p'.* roles .*user \(conversation roles must alternate\)"):
            tokenize_prompts([chat(*turns)], make_tokenizer(BROKEN), max_tokens=50)


def test_no_chat_template() -> None:
    tokenizer = make_tokenizer(None)
    with pytest.raises(PromptError, match="no chat template: pass one with --chat-template, or plain text prompts"):
        tokenize_prompts([chat(("user", "hello"))], tokenizer, max_tokens=50)
    kept, _ = tokenize_prompts([Prompt("t", "test", text="hello")], tokenizer, max_tokens=50)
    assert kept[0].token_ids == (1, 2)


def test_reading_prompts_does_not_import_torch() -> None:
    code = "import sys; from driftscope.target.prompts import load_prompts; load_prompts(None); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_beginnings_of_text_or_none_are_told() -> None:
    tokenizer = make_tokenizer()
    twice = [Prompt("a", "c", text="<s>hello there"), Prompt("b", "c", text="hello there")]
    with pytest.warns(UserWarning, match="^1 prompts begin with two beginning-of-text tokens") as caught:
        kept, _ = tokenize_prompts(twice, tokenizer, max_tokens=20)
    assert [prompt.token_ids[:2] for prompt in kept] == [(1, 1), (1, 2)]
    assert len(caught) == 1
    chat = [Prompt("a", "c", messages=(Message("user", "hello"),))]
    with pytest.warns(UserWarning, match="^1 prompts begin without the beginning-of-text token"):
        tokenize_prompts(chat, tokenizer, max_tokens=20)
    tokenizer.chat_template = "<s>" + PLAIN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenize_prompts([*chat, twice[1]], tokenizer, max_tokens=20)


def test_reads_a_benchmark_with_turns(tmp_path: Path) -> None:
    """MT-Bench's question.jsonl."""
    path = write(
        tmp_path / "question.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["Compose a post.", "Now a shorter one."]},
        {"question_id": 101, "category": "reasoning", "turns": ["Overtake."], "reference": ["second"]},
    )
    with pytest.warns(UserWarning, match=r"1 prompts of .* have further turns"):
        found = load_prompts(path)
    assert found == [
        Prompt("81", "writing", (Message("user", "Compose a post."),), further_turns=1),
        Prompt("101", "reasoning", (Message("user", "Overtake."),)),
    ]


def test_reads_a_parquet_file_of_prompts(tmp_path: Path) -> None:
    """SPEED-Bench's columns."""
    path = tmp_path / "test.parquet"
    row = {"question_id": "a1", "category": "coding", "sub_category": "sql", "turns": ["Write."], "multiturn": False}
    pd.DataFrame([row, {**row, "question_id": "a2"}]).to_parquet(path)
    assert load_prompts(path) == [
        Prompt("a1", "coding", (Message("user", "Write."),)),
        Prompt("a2", "coding", (Message("user", "Write."),)),
    ]


def test_a_parquet_file_without_prompts_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame({"question": ["x"]}).to_parquet(path)
    with pytest.raises(PromptError, match=r"expected one of the columns messages, .* found question"):
        load_prompts(path)
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(PromptError, match="cannot read the prompts"):
        load_prompts(path)


def test_reads_speculators_benchmark_files(tmp_path: Path) -> None:
    path = write(tmp_path / "math_reasoning.jsonl", {"prompt": "Add."})
    assert load_prompts(path) == [Prompt("math_reasoning-01", "math_reasoning", (Message("user", "Add."),))]


def test_the_optional_set_says_its_languages() -> None:
    prompts = load_prompts(Path("languages"))
    assert sorted({str(prompt.language) for prompt in prompts}) == ["French", "German", "Spanish"]
    assert len(prompts) == 12
    assert not {prompt.id for prompt in prompts} & {prompt.id for prompt in load_prompts(None)}


@pytest.mark.parametrize("turns", ["x", [], [1], None])
def test_bad_turns_are_told_in_a_line(tmp_path: Path, turns: object) -> None:
    with pytest.raises(PromptError, match=r"x.jsonl:1: (`turns`|expected one of the keys)"):
        load_prompts(write(tmp_path / "x.jsonl", {"turns": turns}))
