"""Byte-level tokenizers with chat templates, and made-up prompts of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from driftscope.captures.conditions import Source
from driftscope.target.prompts import Message, Prompt
from tests.probes import planted

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
BOS = 256
IM_FORMAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DEFAULT_SYSTEM = "<|im_start|>system\nBe brief.<|im_end|>\n"
WITH_DEFAULT = "{% if messages[0]['role'] != 'system' %}" + DEFAULT_SYSTEM + "{% endif %}" + IM_FORMAT
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + IM_FORMAT


def tokenizer(template: str | None = IM_FORMAT, *, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """One token a byte, so that equal tokens are equal texts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(list(SPECIAL))
    if adds_bos:
        raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    made = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
    made.chat_template = template
    return made


def chat(name: str, *contents: str, system: str | None = None) -> Prompt:
    """User and assistant turns in alternation, a user turn last."""
    head = () if system is None else (Message("system", system),)
    turns = tuple(Message("assistant" if i % 2 else "user", text) for i, text in enumerate(contents))
    return Prompt(name, "test", messages=(*head, *turns))


def source(prompt: Prompt, made: Any, answer: str = "", loop_from: int | None = None) -> Source:
    """The prompt with a capture that holds nothing but its tokens and those of the answer."""
    if prompt.messages is None:
        ids = list(made(prompt.text)["input_ids"])
    else:
        turns = [{"role": m.role, "content": m.content} for m in prompt.messages]
        text = made.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = list(made(text, add_special_tokens=False)["input_ids"])
    said = list(made(answer, add_special_tokens=False)["input_ids"])
    whole = torch.tensor([*ids, *said])
    loop = range(len(ids) + loop_from, len(whole)) if loop_from is not None else ()
    record = planted.capture(
        length=len(whole), prompt_length=len(ids), tokens=whole, loop=loop, final=whole[:, None].float()
    )
    return Source(prompt, record)


def pair(made: Any, max_positions: int | None = None) -> Any:
    """What `conditions` reads of a pair."""
    return SimpleNamespace(target=SimpleNamespace(tokenizer=made, max_positions=max_positions))


def decoded(made: Any, token_ids: Any) -> str:
    return made.decode(list(token_ids), skip_special_tokens=False)
