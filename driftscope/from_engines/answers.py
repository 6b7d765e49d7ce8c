"""Where the answer of a stored text begins and ends: dumps know tokens, and not always which of them are the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor

from driftscope.errors import DriftscopeError
from driftscope.from_engines.data_set import DataSet
from driftscope.from_engines.formats import Dump
from driftscope.target.prompts import TokenizedPrompt


@dataclass(frozen=True)
class Answer:
    """Tokens `start` .. `stop` - 1 are the answer that is measured; the prompt, if it is known by name."""

    start: int
    stop: int
    prompt: TokenizedPrompt | None = None


class Answers:
    """Finds the answer of a dump: by its loss mask, else by that of the data set beside it, by prompts given as tokens, or
    by a number of prompt tokens."""

    def __init__(self, folder: Path, prompts: Sequence[TokenizedPrompt] = (), prompt_tokens: int | None = None) -> None:
        self.masks = DataSet(folder)
        self.prompts = sorted(prompts, key=lambda prompt: -len(prompt.token_ids))
        self.prompt_tokens = prompt_tokens

    def find(self, dump: Dump, place: Path) -> Answer:
        """Raises DriftscopeError where nothing says where the prompt ends."""
        length = len(dump.token_ids)
        if self.prompt_tokens is not None:
            if not 0 < self.prompt_tokens < length:
                raise DriftscopeError(f"{dump.name}: --prompt-tokens {self.prompt_tokens}, but it has {length} tokens")
            return Answer(self.prompt_tokens, length)
        if self.prompts:
            ids = dump.token_ids.tolist()
            for prompt in self.prompts:
                size = len(prompt.token_ids)
                if size < length and tuple(ids[:size]) == prompt.token_ids:
                    return Answer(size, length, prompt)
            raise DriftscopeError(
                f"{dump.name}: none of the {len(self.prompts)} prompts begins this text; other --prompts, or leave it out"
            )
        mask = dump.loss_mask if dump.loss_mask is not None else self.masks.mask(place, dump.token_ids)
        if mask is None:
            raise DriftscopeError(
                f"{dump.name}: nothing says where its prompt ends; give the --prompts that were asked, or --prompt-tokens"
            )
        return longest_run(mask, dump.name)


def longest_run(mask: Bool[Tensor, " T"], name: str) -> Answer:
    """The longest stretch of answer tokens, the last of equal ones. DriftscopeError without one that has a prompt."""
    edges = torch.diff(torch.nn.functional.pad(mask.int(), (1, 1)))
    starts, stops = torch.nonzero(edges > 0)[:, 0].tolist(), torch.nonzero(edges < 0)[:, 0].tolist()
    runs = [(stop - start, start, stop) for start, stop in zip(starts, stops, strict=True) if start > 0]
    if not runs:
        raise DriftscopeError(
            f"{name}: its loss mask marks no answer behind a prompt; --prompt-tokens says where it ends"
        )
    _, start, stop = max(runs)
    return Answer(start, stop)
