"""The form of `captures.json`, checked where it is read: anyone may have written it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from driftscope.errors import DriftscopeError
from driftscope.files.fields import Count, Size
from driftscope.files.json import json_object

SCHEMA = 1
_LARGEST = 32 * 2**20
_KEY = re.compile("[0-9a-f]{1,64}")
"""The name of a folder in this one, and of nothing else."""


class Text(BaseModel):
    """As `driftscope.captures.folder.TextEntry`."""

    model_config = ConfigDict(extra="forbid")
    id: str
    category: str
    prompt_length: Size
    length: Size
    stopped: bool
    boundaries: tuple[Count, ...]
    final: bool
    confirmed: Annotated[float, Field(ge=0, le=1)] | None
    greedy: bool
    target_key: str
    key: str

    @model_validator(mode="after")
    def _fits(self) -> Text:
        if self.prompt_length >= self.length:
            raise ValueError(f"text {self.id:.60} has {self.prompt_length} tokens of prompt in {self.length}")
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"the boundaries of text {self.id:.60} are not in order")
        if not (_KEY.fullmatch(self.target_key) and _KEY.fullmatch(self.key)):
            raise ValueError(f"text {self.id:.60} lies outside of the folder; not opened")
        return self


class AboutTarget(BaseModel):
    """What is known of the target."""

    model_config = ConfigDict(extra="allow")
    name: str
    layers: Size
    hidden_size: Size
    vocab_size: Size
    dtype: str
    ends: str
    fingerprint: str | None = None


class AboutSource(BaseModel):
    """Who made the captures."""

    model_config = ConfigDict(extra="allow")
    format: str
    writer: str
    checks: tuple[str, ...] = ()


class Index(BaseModel):
    """`captures.json`."""

    model_config = ConfigDict(extra="forbid")
    version: Literal[1] = Field(alias="schema")
    target: AboutTarget
    source: AboutSource
    max_new_tokens: Size
    sinks: tuple[Count, ...] | None
    texts: tuple[Text, ...]
    skipped: dict[str, Count] = {}

    @model_validator(mode="after")
    def _fits(self) -> Index:
        for text in self.texts:
            if text.boundaries and text.boundaries[-1] > self.target.layers:
                raise ValueError(
                    f"text {text.id:.60} has boundary {text.boundaries[-1]}, the target {self.target.layers}"
                )
        return self


def read_index(file: Path) -> Index:
    """Raises DriftscopeError where it is none, or of another version; FileNotFoundError where nothing is there."""
    held: Any = json_object(file, DriftscopeError, limit=_LARGEST)
    if held.get("schema", SCHEMA) != SCHEMA:
        raise DriftscopeError(f"{file} is of another version of driftscope; capture it again")
    try:
        return Index.model_validate(held)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        told = f"{place:.200}: {first['msg']:.200}"
        raise DriftscopeError(f"{file} is not the index of a capture folder ({told})") from error
