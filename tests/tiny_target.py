"""Tiny targets with random weights, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

from driftscope.target.model import Target, wrap_target

VOCAB = 61
EOS = 60
ROUNDED = {"terms": 61, "sums": 40}
"""Terms of the longest sum, and sums in a row through four layers and the head, as tests/closeness.py counts them."""


@dataclass(frozen=True)
class TinyPrompt:
    id: str
    token_ids: tuple[int, ...]
    category: str = "test"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Words w0 .. w59 and an end-of-text token."""
    vocab = {f"w{index}": index for index in range(EOS)} | {"</s>": EOS}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="w0"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", unk_token="w0")


def tiny_config(family: str = "llama", **changes: Any) -> Any:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": EOS,
        "pad_token_id": None,
        # Large enough that greedy text does not hang on rounding.
        "initializer_range": 0.3,
    }
    return CONFIG_MAPPING[family](**{**sizes, **changes})


def tiny_model(family: str = "llama", *, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(tiny_config(family, **changes), dtype=torch.float32)


def tiny_target(family: str = "llama", *, seed: int = 0, **changes: Any) -> Target:
    return wrap_target(tiny_model(family, seed=seed, **changes), tiny_tokenizer(), name=f"tiny-{family}")


def tiny_prompts(*lengths: int, seed: int = 0) -> list[TinyPrompt]:
    generator = torch.Generator().manual_seed(seed)
    return [
        TinyPrompt(f"p{index}", tuple(torch.randint(0, EOS, (length,), generator=generator).tolist()))
        for index, length in enumerate(lengths)
    ]
