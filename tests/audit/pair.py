"""The planted pair of `make_pair`, and twins of its drafters that are broken in one way each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from driftscope.captures.capture import Capture, capture
from driftscope.checkpoints.config import DrafterConfig, Rope
from driftscope.target.model import Target, wrap_target
from tests.tiny_target import TinyPrompt, tiny_config

FILE = Path(__file__).with_name("pair.safetensors")
VOCAB = 64
LAYERS = 8
BOUNDARIES = (2, 4, 5)
DRAFTERS: dict[str, dict[str, Any]] = {
    "eagle3": {"fc_norm": False, "norm_output": False},
    "eagle3.1": {"fc_norm": True, "norm_output": True},
    # Never saw a state of its own in training, and drifts for it.
    "one-step": {"fc_norm": False, "norm_output": False},
    # Trained on what transformers calls hidden_states[n], which is the state after the final norm.
    "hidden-states": {"fc_norm": False, "norm_output": True, "boundaries": (2, 4, LAYERS)},
}


def language() -> tuple[Tensor, Tensor]:
    """The most probable and the second continuation, Long[last token, remainder of the one three before it]."""
    generator = torch.Generator().manual_seed(7)
    first = torch.stack([torch.randperm(VOCAB, generator=generator) for _ in range(3)], 1)
    return first, first.roll(1, 0)


def tokenizer() -> PreTrainedTokenizerFast:
    """Words w0 .. w63; no token ends a text."""
    raw = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCAB)}, unk_token="w0"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="w0")


def target_model() -> Any:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": LAYERS, "intermediate_size": 64, "vocab_size": VOCAB, "initializer_range": 0.1}
    return AutoModelForCausalLM.from_config(tiny_config(**sizes, eos_token_id=None), dtype=torch.float32)


def draft_vocabulary() -> Tensor:
    """Seven of eight tokens, ascending."""
    ids = torch.arange(VOCAB)
    return ids[ids % 8 != 3]


def drafter_config(variant: str) -> dict[str, Any]:
    """As the example's trainer takes it."""
    return {
        "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "rms_norm_eps": 1e-6, "rope_theta": 1000.0, "boundaries": BOUNDARIES, **DRAFTERS[variant],
    }  # fmt: skip


@cache
def tensors() -> dict[str, Tensor]:
    return {name: value.float() for name, value in load_file(FILE).items()}


def _part(name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in tensors().items() if key.startswith(f"{name}.")}


@cache
def planted_target() -> Target:
    model = target_model()
    model.load_state_dict(_part("target"))
    return wrap_target(model, tokenizer(), name="planted")


def stretched_target() -> tuple[Target, Tensor]:
    """The same target with features of the final norm scaled, each by its own factor, and the head by the inverse."""
    generator = torch.Generator().manual_seed(11)
    scale = torch.exp(torch.randn(32, generator=generator)) * torch.randn(32, generator=generator).sign()
    model, held = target_model(), _part("target")
    held["model.norm.weight"] = held["model.norm.weight"] * scale
    held["lm_head.weight"] = held["lm_head.weight"] / scale
    model.load_state_dict(held)
    return wrap_target(model, tokenizer(), name="stretched"), scale


def planted_config(variant: str) -> DrafterConfig:
    switches = DRAFTERS[variant]
    return DrafterConfig(
        hidden_size=32, target_hidden_size=32, intermediate_size=64, num_heads=4, num_kv_heads=2, head_dim=8,
        vocab_size=VOCAB, draft_vocab_size=len(draft_vocabulary()), aux_boundaries=switches.get("boundaries", BOUNDARIES),
        vocab_map="offset",
        fc_norm=switches["fc_norm"], carry="post" if switches["norm_output"] else "pre", rope=Rope(theta=1000.0),
    )  # fmt: skip


def planted_weights(variant: str) -> dict[str, Tensor]:
    """By canonical name."""
    weights = {name.replace("midlayer.", "layers.0."): value for name, value in _part(variant).items()}
    vocabulary = draft_vocabulary()
    weights["lm_head.weight"] = tensors()["target.lm_head.weight"][vocabulary]
    weights["d2t"] = vocabulary - torch.arange(len(vocabulary))
    return weights


@cache
def prompts(count: int = 20) -> tuple[TinyPrompt, ...]:
    """Beginnings of texts: four random tokens, then the language."""
    generator = torch.Generator().manual_seed(3)
    first, _ = language()
    made = []
    for index in range(count):
        ids = torch.randint(0, VOCAB, (4,), generator=generator).tolist()
        while len(ids) < 8 + index % 3:
            ids.append(int(first[ids[-1], ids[-4] % 3]))
        made.append(TinyPrompt(f"p{index}", tuple(ids)))
    return tuple(made)


@cache
def _captures(boundaries: frozenset[int]) -> tuple[Capture, ...]:
    return tuple(capture(planted_target(), prompts(), max_new_tokens=36, boundaries=sorted(boundaries)))


def captures(ids: Any = None, boundaries: Any = range(LAYERS + 1)) -> list[Capture]:
    """As `driftscope.audit.run.Recapture`; every boundary is captured once."""
    held = _captures(frozenset(range(LAYERS + 1)))
    return [record for record in held if ids is None or record.prompt_id in set(ids)]
