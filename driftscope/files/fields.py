"""The mappings of `run.json` without fixed keys: what is read of them has its type, whatever else is in them.

They stay plain dicts. Anyone may have written the file, and a number that is a text would be noticed far from here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=2**31)]
Size = Annotated[int, Field(gt=0, lt=2**31)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Switches(_Form):
    carry: str | None = None
    fc_norm: bool | None = None
    input_norm: bool | None = None
    wide_output: bool | None = None
    hidden_size: Size | None = None
    head_dim: Size | None = None
    v_head_dim: Size | None = None
    draft_vocab_size: Size | None = None
    aux_boundaries: list[Count] | None = None
    max_position: Size | None = Field(None, alias="rope.max_position")


class _Origin(_Form):
    source: str = ""
    detail: str = ""


class _Captured(_Form):
    format: str | None = None
    greedy: bool = True
    sinks: str = ""
    checks: list[str] = []


class _Settings(_Form):
    depth: Size | None = None
    horizon: Size | None = None
    anchors: Size | None = None
    spread: bool | None = None
    max_new_tokens: Size | None = None
    sinks: list[Count] | None = None
    seed: int | None = None
    dtype: str | None = None
    capture: _Captured | None = None


class _Provenance(_Form):
    driftscope: str | None = None
    started: str | None = None
    device: str | None = None
    skipped_prompts: dict[str, Count] | None = None


class _Evidence(_Form):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    over: str = ""
    threshold: float | None = None


class _Finding(_Form):
    code: Annotated[str, Field(pattern="^DS[1234][0-9]{2}$")]
    title: str
    statement: str
    step: int | None = None
    evidence: list[_Evidence] = []
    advice: list[str] = Field([], alias="try")


class _Tried(_Form):
    status: str


class _Audit(_Form):
    decided: bool
    reason: str = ""
    warnings: list[str] = []
    prompts: Count = 0
    hypotheses: list[_Tried] = []


class _Reasoned(_Form):
    reason: str = ""


class _Trust(_Form):
    texts: _Reasoned | None = None
    control: _Reasoned | None = None


def _checked(form: type[BaseModel]) -> AfterValidator:
    def check(value: dict[str, Any]) -> dict[str, Any]:
        form.model_validate(value)
        return value

    return AfterValidator(check)


Switches = Annotated[dict[str, Any], _checked(_Switches)]
Origin = Annotated[dict[str, Any], _checked(_Origin)]
Settings = Annotated[dict[str, Any], _checked(_Settings)]
Provenance = Annotated[dict[str, Any], _checked(_Provenance)]
Finding = Annotated[dict[str, Any], _checked(_Finding)]
Audit = Annotated[dict[str, Any], _checked(_Audit)]
Trust = Annotated[dict[str, Any], _checked(_Trust)]
