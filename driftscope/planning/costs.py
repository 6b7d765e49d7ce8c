"""What the passes of a round cost: measured, given in a file, or predicted. Nothing here imports torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driftscope.errors import DriftscopeError
from driftscope.files.json import json_object

Kind = Literal["measured", "given", "predicted"]
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_FORMAT = '{"unit": "ms", "batches": [{"batch": 1, "drafter_step": 1.2, "target": {"1": 20.0, "2": 20.4, ...}}]}'
_LARGEST = 16 << 20


@dataclass(frozen=True)
class BatchCost:
    """Seconds of the passes over a batch of so many requests."""

    batch: int
    drafter_step: float
    """One step of the drafter, a row a request; of a drafter of all steps at once, its one pass."""
    target: Mapping[int, float]
    """Rows a request -> one forward of the target over them: 1 is plain decoding, K + 1 verifies K drafted tokens."""
    overhead: float = 0.0
    """Further time of a round that drafts: sampling, bookkeeping, launches."""

    @property
    def plain(self) -> float:
        """A token without a drafter."""
        return self.target[1]


@dataclass(frozen=True)
class CostModel:
    """Costs by batch size."""

    kind: Kind
    told: str
    """Where they are from, in a line."""
    batches: tuple[BatchCost, ...]
    one_pass: bool = False
    """The drafter makes all steps in one pass."""
    about: Mapping[str, Any] = field(default_factory=dict)

    def round(self, cost: BatchCost, drafted: int) -> float:
        """Seconds of a round that drafts so many tokens in a chain; 0 is a round of plain decoding."""
        return self.tree_round(cost, drafted, drafted, 1)

    def tree_round(self, cost: BatchCost, nodes: int, steps: int, topk: int) -> float:
        """Seconds of a round over a tree: `steps` steps of the drafter over at most `topk` rows a request, then `nodes` + 1 rows.

        Raises DriftscopeError where the target's time for so many rows, or the drafter's for so many, is not known.
        """
        if nodes == 0:
            return cost.plain
        passes = 1 if self.one_pass else steps
        # Step 1 starts from one row a request, the later ones from topk.
        first, later = cost.drafter_step, self.drafter_rows(cost, topk)
        return first + (passes - 1) * later + self.target_rows(cost, nodes + 1) + cost.overhead

    def drafter_rows(self, cost: BatchCost, rows: int) -> float:
        """A step over `rows` rows a request: as over a batch that has so many rows, interpolated between those that are known."""
        if rows == 1:
            return cost.drafter_step
        wanted = cost.batch * rows
        known = sorted((part.batch, part.drafter_step) for part in self.batches)
        above = [place for place, (batch, _) in enumerate(known) if batch >= wanted]
        if not above:
            raise DriftscopeError(
                f"costs: no drafter step of {wanted} rows (batch {cost.batch}, {rows} rows a request); the largest batch has"
                f" {known[-1][0]}; add a batch of {wanted}"
            )
        (low, start), (high, end) = known[max(0, above[0] - 1)], known[above[0]]
        return end if high == low else start + (end - start) * (wanted - low) / (high - low)

    def target_rows(self, cost: BatchCost, rows: int) -> float:
        """One forward over `rows` rows a request. DriftscopeError where it is not known."""
        if rows not in cost.target:
            known = ", ".join(map(str, sorted(cost.target)))
            raise DriftscopeError(
                f"costs: batch {cost.batch} has no target time for {rows} rows (K = {rows - 1}); it has {known}; add it, or plan"
                f" fewer tokens with --max-k"
            )
        return cost.target[rows]

    def for_lengths(self, longest: int) -> CostModel:
        """Itself, when every batch has what chains of up to `longest` tokens need. DriftscopeError where one has not."""
        for cost in self.batches:
            for rows in range(1, longest + 2):
                self.target_rows(cost, rows)
        return self

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it and `read_costs` reads it, in seconds."""
        batches = [
            {
                "batch": cost.batch,
                "drafter_step": cost.drafter_step,
                "overhead": cost.overhead,
                "target": {str(rows): seconds for rows, seconds in sorted(cost.target.items())},
            }
            for cost in self.batches
        ]
        return {"kind": self.kind, "note": self.told, "unit": "s", "batches": batches, **dict(self.about)}


def ratio_costs(ratio: float, longest: int, one_pass: bool = False) -> CostModel:
    """The textbook model: a drafter step costs `ratio` target forwards and verifying costs no more than one token.

    Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding (2023), theorem 3.8.
    """
    if not ratio > 0:
        raise DriftscopeError(f"--ratio {ratio:g}: expected more than 0, the drafter step over the target's forward")
    flat = {rows: 1.0 for rows in range(1, longest + 2)}
    told = f"a drafter step costs {ratio:g} target forwards, and verifying costs no more than one token"
    return CostModel("given", told, (BatchCost(1, ratio, flat),), one_pass, {"ratio": ratio})


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Batch(BaseModel):
    model_config = ConfigDict(extra="forbid")
    batch: Annotated[int, Field(ge=1, le=1 << 20)]
    drafter_step: Seconds
    target: dict[Annotated[int, Field(ge=1, le=1 << 20)], Seconds]
    overhead: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _File(BaseModel):
    model_config = ConfigDict(extra="allow")
    unit: Literal["s", "ms", "us"]
    batches: Annotated[list[_Batch], Field(min_length=1)]
    note: str = ""
    kind: Kind = "given"


def read_costs(path: Path, one_pass: bool = False) -> CostModel:
    """Costs from a JSON file. DriftscopeError, in a line, for one that is none."""
    try:
        content = json_object(path, DriftscopeError, limit=_LARGEST)
    except OSError as error:
        raise DriftscopeError(f"--costs {path} cannot be read: {error.strerror or error}") from None
    try:
        stored = _File.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DriftscopeError(f"--costs {path}: {place}: {first['msg']}; expected {_FORMAT}") from None
    unit = _UNITS[stored.unit]
    seen: set[int] = set()
    costs = []
    for part in stored.batches:
        if part.batch in seen:
            raise DriftscopeError(f"--costs {path}: batch {part.batch} is there twice")
        seen.add(part.batch)
        if 1 not in part.target:
            raise DriftscopeError(
                f"--costs {path}: batch {part.batch} has no target time for 1 row, which is plain decoding"
            )
        target = {rows: seconds * unit for rows, seconds in part.target.items()}
        costs.append(BatchCost(part.batch, part.drafter_step * unit, target, part.overhead * unit))
    told = stored.note or f"{stored.kind} in {path.name}"
    return CostModel(stored.kind, told, tuple(sorted(costs, key=lambda cost: cost.batch)), one_pass)


def write_costs(path: Path, costs: CostModel) -> None:
    """Keep costs in a file that `read_costs` reads."""
    try:
        path.write_text(json.dumps(costs.to_dict(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise DriftscopeError(f"--save-costs {path} cannot be written: {error.strerror or error}") from None


def batch_sizes(text: str | Sequence[int]) -> tuple[int, ...]:
    """`1,4,16` as numbers, ascending. DriftscopeError for what is none."""
    try:
        found = sorted({int(part) for part in (text.split(",") if isinstance(text, str) else text)})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise DriftscopeError(f"--batches {text} is not known: give sizes such as 1,4,16")
    return tuple(found)
