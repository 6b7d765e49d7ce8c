"""Prompts: the shipped ones or a user's file, and their tokens for one target."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from driftscope.errors import PromptError
from driftscope.files.json import check_parts, check_regular
from driftscope.target.parquet_prompts import parquet_rows

_KEYS = ("messages", "conversations", "prompt", "text", "turns")
_BESIDE = ("id", "question_id", "category", "language")
SETS = ("languages",)
"""Shipped beside the 48: prompts in languages other than English."""
_SHAREGPT_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "model": "assistant",
}


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """One prompt: a chat that the target answers, or a plain text that it continues. Exactly one of the two is set."""

    id: str
    """Usable as a file name."""
    category: str
    messages: tuple[Message, ...] | None = None
    text: str | None = None
    language: str | None = None
    """As the file says it."""
    further_turns: int = 0
    """User turns of a benchmark that need an answer to the first one, and are not asked."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to answer or continue: no turn but system and assistant ones has any text."""
        if self.messages is None:
            return not (self.text or "").strip()
        return not any(m.content.strip() for m in self.messages if m.role not in ("system", "assistant"))


@dataclass(frozen=True)
class TokenizedPrompt:
    """A prompt as the target reads it."""

    id: str
    category: str
    token_ids: tuple[int, ...]
    text: str
    """What was tokenized: for a chat, after the chat template."""


@dataclass(frozen=True)
class SkippedPrompts:
    """How many prompts were left out, by reason."""

    empty: int = 0
    too_short: int = 0
    too_long: int = 0

    @property
    def total(self) -> int:
        return self.empty + self.too_short + self.too_long

    def __str__(self) -> str:
        counts = ((self.empty, "empty"), (self.too_short, "too short"), (self.too_long, "too long"))
        return ", ".join(f"{count} {reason}" for count, reason in counts if count) or "none"


def load_prompts(path: Path | None) -> list[Prompt]:
    """The prompts in `path`, or the shipped ones where it is None, in file order and with ids that differ.

    `.jsonl` holds one object a line (keys `messages`, `conversations`, `prompt`, `text` or `turns`; `id`, `category` and `language`
    are optional), `.json` one chat or a list of them, `.txt` plain texts between blank lines, `.parquet` a row a prompt with those
    columns. So MT-Bench's `question.jsonl`, SPEED-Bench's Parquet and speculators' benchmark files are read as they are published;
    of `turns` the first is asked, for the others need the answers between. `languages` is a shipped set (`SETS`). Assistant turns
    at the end of a chat are dropped. Raises PromptError, naming file and line, where something does not fit.
    """
    if path is None or (str(path) in SETS and not path.exists()):
        folder = files("driftscope.probes").joinpath("prompts")
        folder = folder if path is None else folder.joinpath(str(path))
        shipped = sorted((f for f in folder.iterdir() if f.name.endswith(".jsonl")), key=lambda f: f.name)
        return _unique([prompt for f in shipped for prompt in _from_jsonl(f.read_text("utf-8"), f.name)])
    if path.suffix.lower() == ".parquet":
        return _asked_once(_unique(list(_from_parquet(path))), path)
    readers = {".jsonl": _from_jsonl, ".json": _from_json, ".txt": _from_text}
    if path.suffix.lower() not in readers:
        raise PromptError(
            f"{path}: prompts come as .jsonl, .json, .txt or .parquet, not {path.suffix or 'without an extension'!r}"
        )
    try:
        check_regular(path, PromptError)
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: not UTF-8 text (byte {error.start}): save the file as UTF-8") from None
    except OSError as error:
        raise PromptError(f"{path}: cannot read the prompts: {error.strerror}") from None
    return _asked_once(_unique(list(readers[path.suffix.lower()](content, str(path)))), path)


def _asked_once(prompts: list[Prompt], path: Path) -> list[Prompt]:
    """The prompts, with a warning where a benchmark would ask more of them."""
    if not prompts:
        raise PromptError(f"{path}: no prompt in this file")
    if several := sum(prompt.further_turns > 0 for prompt in prompts):
        warnings.warn(
            f"{several} prompts of {path} have further turns, which need the answers between: only the first is asked",
            stacklevel=3,
        )
    return prompts


def tokenize_prompts(
    prompts: Sequence[Prompt], tokenizer: Any, *, max_tokens: int, min_tokens: int = 1
) -> tuple[list[TokenizedPrompt], SkippedPrompts]:
    """Tokenize `prompts` with a Hugging Face tokenizer: chats through its chat template up to where the answer begins,
    plain texts with the tokenizer's own special tokens.

    Empty prompts and those outside `min_tokens` .. `max_tokens` are skipped and counted. Where the template refuses or
    drops the system role, the system prompt is put before the first user turn, with one warning. Raises PromptError
    where the tokenizer has no chat template for a chat, the template fails, or no prompt is left.
    """
    kept: list[TokenizedPrompt] = []
    empty = too_short = too_long = merged = 0
    bos = _Bos(tokenizer)
    for prompt in prompts:
        if prompt.empty:
            empty += 1
            continue
        if prompt.messages is None:
            text, ids = str(prompt.text), tokenizer(prompt.text)["input_ids"]
        else:
            text, was_merged = _render(prompt, tokenizer)
            merged += was_merged
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        bos.count(ids, chat=prompt.messages is not None)
        if not ids:
            empty += 1
        elif len(ids) < min_tokens:
            too_short += 1
        elif len(ids) > max_tokens:
            too_long += 1
        else:
            kept.append(TokenizedPrompt(prompt.id, prompt.category, tuple(int(i) for i in ids), text))
    skipped = SkippedPrompts(empty, too_short, too_long)
    if not kept:
        raise PromptError(
            f"no prompt left of {len(prompts)}: {skipped} (allowed: {min_tokens} to {max_tokens} tokens): "
            "pass other prompts with --prompts, or lower --max-new-tokens to leave them more room"
        )
    for line in bos.lines():
        warnings.warn(line, stacklevel=2)
    if merged:
        warnings.warn(
            f"the chat template takes no system role: in {merged} prompts the system prompt stands before the user's "
            "first turn instead",
            stacklevel=2,
        )
    return kept, skipped


class _Bos:
    """Counts prompts that begin with two beginning-of-text tokens, or with none where the tokenizer would put one."""

    def __init__(self, tokenizer: Any) -> None:
        self.bos = getattr(tokenizer, "bos_token_id", None)
        plain = tokenizer("a")["input_ids"] if self.bos is not None else []
        self.added = list(plain[:1]) == [self.bos]
        self.double = self.none = 0

    def count(self, ids: Sequence[int], *, chat: bool) -> None:
        if self.bos is not None:
            self.double += list(ids[:2]) == [self.bos, self.bos]
            self.none += chat and self.added and list(ids[:1]) != [self.bos]

    def lines(self) -> list[str]:
        """What was seen, a line each."""
        found = []
        if self.double:
            found.append(
                f"{self.double} prompts begin with two beginning-of-text tokens: the text, or the template, holds one already and"
                " the tokenizer adds another; take it out of --prompts or --chat-template"
            )
        if self.none:
            found.append(
                f"{self.none} prompts begin without the beginning-of-text token that the tokenizer puts before plain text: the"
                " chat template prints none; engines that add it serve other texts (--chat-template)"
            )
        return found


def _render(prompt: Prompt, tokenizer: Any) -> tuple[str, bool]:
    """The chat as text, and whether its system prompt had to be merged into the first user turn."""
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"prompt {prompt.id!r} is a chat, but the target's tokenizer has no chat template: "
            "pass one with --chat-template, or plain text prompts (.txt, or the key `text`) with --prompts"
        )
    messages = prompt.messages or ()
    system = "\n\n".join(m.content.strip() for m in messages if m.role == "system").strip()
    failure: Exception | None = None
    try:
        text = _apply_template(messages, tokenizer)
        # Some templates leave the system prompt out without a word.
        if not system or all(m.content.strip() in text for m in messages if m.role == "system"):
            return text, False
    except TemplateError as error:
        failure = error
    if system:
        rest = [m for m in messages if m.role != "system"]
        first = next(i for i, m in enumerate(rest) if m.role not in ("system", "assistant"))
        rest[first] = replace(rest[first], content=f"{system}\n\n{rest[first].content}")
        try:
            return _apply_template(rest, tokenizer), True
        except TemplateError as error:
            failure = error
    raise PromptError(
        f"prompt {prompt.id!r}: the chat template fails on the roles {', '.join(m.role for m in messages)} "
        f"({failure}): change the prompt, or pass another template with --chat-template"
    )


def _apply_template(messages: Sequence[Message], tokenizer: Any) -> str:
    chat = [{"role": m.role, "content": m.content} for m in messages]
    # Text and not ids: what the call returns with tokenize=True differs between versions of transformers.
    return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def _from_jsonl(content: str, name: str) -> Iterator[Prompt]:
    # Not splitlines(): JSON strings may hold other line separators as they are.
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            place = f"{name}:{number}"
            check_parts(place, line, PromptError)
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise PromptError(f"{place}: not JSON ({error.msg} at column {error.colno})") from None
            except (ValueError, RecursionError) as error:
                raise PromptError(f"{place}: not a prompt ({error})") from None
            if not isinstance(row, Mapping):
                raise PromptError(f"{place}: expected an object with one of {', '.join(_KEYS)}, found {_kind(row)}")
            yield _from_row(row, name, number, place)


def _from_json(content: str, name: str) -> Iterator[Prompt]:
    check_parts(name, content, PromptError)
    try:
        data = json.loads(content)
    except json.JSONDecodeError as error:
        raise PromptError(f"{name}:{error.lineno}: not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{name}: not prompts ({error})") from None
    if isinstance(data, Mapping) or (isinstance(data, list) and data and _is_message(data[0])):
        data = [data]
    if not isinstance(data, list):
        raise PromptError(f"{name}: expected a chat or a list of chats, found {_kind(data)}")
    for number, item in enumerate(data, 1):
        place = f"{name}, chat {number}"
        if isinstance(item, list):
            item = {"messages": item}
        if not isinstance(item, Mapping):
            raise PromptError(f"{place}: expected a list of messages or an object, found {_kind(item)}")
        yield _from_row(item, name, number, place)


def _from_text(content: str, name: str) -> Iterator[Prompt]:
    stem = Path(name).stem
    blocks = [block.strip("\n") for block in re.split(r"\n(?:[ \t]*\n)+", content) if block.strip()]
    for number, block in enumerate(blocks, 1):
        yield Prompt(f"{stem}-{number:02d}", stem, text=block)


def _from_parquet(path: Path) -> Iterator[Prompt]:
    for number, row in enumerate(parquet_rows(path, (*_KEYS, *_BESIDE)), 1):
        yield _from_row(row, str(path), number, f"{path}, row {number}")


def _from_row(row: Mapping[str, Any], name: str, number: int, place: str) -> Prompt:
    key = next((k for k in _KEYS if row.get(k) is not None), None)
    if key is None:
        raise PromptError(f"{place}: expected one of the keys {', '.join(_KEYS)}, found {', '.join(row) or 'none'}")
    stem = Path(name).stem
    own_id, category = row.get("id", row.get("question_id")), row.get("category")
    category = _text(str(category or stem), place, "category")
    language = row.get("language")
    prompt = Prompt(
        f"{stem}-{number:02d}" if own_id is None else str(own_id),
        category,
        language=None if language is None else _text(language, place, "language"),
    )
    value = row[key]
    if key == "turns":
        if not isinstance(value, list) or not value:
            raise PromptError(f"{place}: `turns` must be a list of texts, found {_kind(value)}")
        asked = [_text(turn, place, "turns") for turn in value]
        return replace(prompt, messages=(Message("user", asked[0]),), further_turns=len(asked) - 1)
    if key == "text":
        return replace(prompt, text=_text(value, place, "text"))
    if key == "prompt" and isinstance(value, str):
        return replace(prompt, messages=(Message("user", _text(value, place, "prompt")),))
    if not isinstance(value, list):
        raise PromptError(f"{place}: `{key}` must be a list of messages, found {_kind(value)}")
    messages = [_message(item, f"{place}, message {i}") for i, item in enumerate(value, 1)]
    while messages and messages[-1].role == "assistant":
        messages.pop()
    return replace(prompt, messages=tuple(messages))


def _is_message(item: Any) -> bool:
    return isinstance(item, Mapping) and ("role" in item or "from" in item)


def _message(item: Any, place: str) -> Message:
    if not _is_message(item):
        raise PromptError(f"{place}: expected {{role, content}} or {{from, value}}, found {_kind(item)}")
    role = item.get("role", item.get("from"))
    if not isinstance(role, str) or not role:
        raise PromptError(f"{place}: the role must be a string, found {_kind(role)}")
    content = item.get("content", item.get("value"))
    role = _text(role, place, "role")
    return Message(_SHAREGPT_ROLES.get(role, role), _text(content, place, "content"))


def _text(value: Any, place: str, what: str) -> str:
    """A string, or the text parts of a list of parts joined."""
    if isinstance(value, list) and all(isinstance(p, Mapping) and isinstance(p.get("text"), str) for p in value):
        value = "".join(p["text"] for p in value)
    if not isinstance(value, str):
        raise PromptError(f"{place}: `{what}` must be text, found {_kind(value)}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise PromptError(f"{place}: `{what}` holds half a character, which has no token: save the file as UTF-8")
    return value


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        str: "a string",
        type(None): "null",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return (
        "an object with " + (", ".join(map(str, value)) or "no keys")
        if isinstance(value, Mapping)
        else names[type(value)]
    )


def _unique(prompts: list[Prompt]) -> list[Prompt]:
    """The prompts with ids that are file names and differ even where upper and lower case do not count."""
    taken: set[str] = set()
    result = []
    for prompt in prompts:
        base = re.sub(r"[^\w.-]+", "-", prompt.id, flags=re.ASCII).strip(".-")[:80] or "prompt"
        name, count = base, 1
        while name.casefold() in taken:
            count += 1
            name = f"{base}-{count}"
        taken.add(name.casefold())
        result.append(replace(prompt, id=name))
    return result
