"""Where the answer of a stored text begins and ends: dumps know tokens, and not always which of them are the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from driftscope.dumps.formats import Dump
from driftscope.errors import DriftscopeError
from driftscope.prompts import TokenizedPrompt


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
        self.masks = _Masks(folder)
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
        mask = dump.loss_mask if dump.loss_mask is not None else self.masks.of(place, dump.token_ids)
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


class _Masks:
    """Loss masks of the Arrow data set that speculators keeps beside `hidden_states/hs_{row}.safetensors`."""

    def __init__(self, folder: Path) -> None:
        base = folder if folder.is_dir() else folder.parent
        places = (base, base.parent)
        self.files = next((found for place in places if (found := sorted(place.glob("*.arrow")))), [])
        self._rows: list[tuple[pa.ChunkedArray, pa.ChunkedArray]] | None = None

    def of(self, file: Path, token_ids: Int[Tensor, " T"]) -> Tensor | None:
        number = file.stem.removeprefix("hs_")
        if not self.files or not number.isdigit():
            return None
        row = int(number)
        for ids, masks in self._loaded():
            if row < len(ids):
                known = torch.tensor(ids[row].as_py(), dtype=torch.long)
                if not torch.equal(known, token_ids):
                    raise DriftscopeError(
                        f"{file}: other tokens than row {number} of the data set in {self.files[0].parent}"
                    )
                return torch.tensor(masks[row].as_py()) > 0
            row -= len(ids)
        raise DriftscopeError(f"{file}: the data set in {self.files[0].parent} has no row {number}")

    def _loaded(self) -> list[tuple[pa.ChunkedArray, pa.ChunkedArray]]:
        if self._rows is None:
            self._rows = []
            for file in self.files:
                try:
                    with pa.memory_map(str(file)) as source:
                        table = pa.ipc.open_stream(source).read_all()
                    columns = (table.column("input_ids"), table.column("loss_mask"))
                except (pa.ArrowException, OSError, KeyError) as error:
                    reason = (str(error).splitlines() or [type(error).__name__])[0]
                    raise DriftscopeError(f"{file}: not a data set with input_ids and loss_mask ({reason})") from error
                self._rows.append(columns)
        return self._rows
