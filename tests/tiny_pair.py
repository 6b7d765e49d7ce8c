"""A tiny random pair on disk, which opens and probes as a real one does."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.save import save_checkpoint
from tests import tiny, tiny_target

CONFIG = dataclasses.replace(tiny.CONFIG, hidden_size=32, target_hidden_size=32, vocab_size=tiny_target.VOCAB)
TARGET_NAME = "tiny-llama"


@dataclass(frozen=True)
class TinyPair:
    """Folders and a prompt file; `options` are those of driftscope.probe that keep it short."""

    checkpoint: Path
    target: Path
    prompts: Path
    cache: Path

    @property
    def options(self) -> dict[str, Any]:
        return {
            "target": str(self.target), "prompts": self.prompts, "cache_dir": self.cache,
            "max_new_tokens": 24, "depth": 3, "horizon": 4,
        }  # fmt: skip

    @property
    def arguments(self) -> list[str]:
        """The options as the command line takes them."""
        return [part for name, value in self.options.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def tiny_pair(folder: Path) -> TinyPair:
    """Where `save_pair` writes, or has written."""
    return TinyPair(folder / "drafter", folder / TARGET_NAME, folder / "prompts.jsonl", folder / "cache")


def save_pair(folder: Path, config: DrafterConfig = CONFIG, *, prompts: int = 3) -> TinyPair:
    """Write drafter, target and prompts under `folder`."""
    pair = tiny_pair(folder)
    stored = tiny.weights(config)
    if config.embedding == "target":
        del stored["embed_tokens.weight"]
    save_checkpoint(pair.checkpoint, config, stored, "specforge", {"target_model_name_or_path": TARGET_NAME})
    tiny_target.tiny_model().save_pretrained(pair.target)
    tiny_target.tiny_tokenizer().save_pretrained(pair.target)
    write_prompts(pair.prompts, *(" ".join(f"w{(7 * n + 3 * i) % 60}" for i in range(9 + n)) for n in range(prompts)))
    return pair


def write_prompts(path: Path, *texts: str) -> None:
    """One plain-text prompt a line."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
