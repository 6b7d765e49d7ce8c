"""The EAGLE-3 layout of SafeAILab/EAGLE: `midlayer.`, a plain Llama config with draft_vocab_size, or no config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import eagle3
from driftscope.checkpoints.reading import names
from driftscope.checkpoints.reading.board import Switchboard

NAME = "safeailab"


def recognise(bare: Collection[str], raw: Mapping[str, Any]) -> str | None:
    if any(name.startswith("midlayer.") for name in bare):
        return "tensors under midlayer." + ("" if raw else ", no config")
    return None


def flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    return dict(raw)


def rename(bare: str) -> str | None:
    return names.canonical(bare)


def resolve(board: Switchboard) -> None:
    eagle3.resolve(board)


def stored_name(canonical: str) -> str:
    return canonical.replace("layers.0.", "midlayer.", 1) if canonical.startswith("layers.0.") else canonical


def config_json(config: DrafterConfig) -> dict[str, Any]:
    eagle3.require(config, NAME, num_layers=1)
    written = eagle3.llama_json(config) | {"architectures": ["LlamaForCausalLM"]}
    if config.aux_boundaries is not None:
        # The original has no key for them; this one is read as boundaries by vLLM and here.
        written["eagle_aux_hidden_state_layer_ids"] = list(config.aux_boundaries)
    return written
