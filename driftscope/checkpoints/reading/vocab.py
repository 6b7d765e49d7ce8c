"""The draft vocabulary: how d2t is read, whether it agrees with t2d, and how much of the target's it covers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True)
class VocabMap:
    """What d2t and t2d say when they are looked at."""

    draft_size: int
    target_size: int | None
    reading: Literal["offset", "index", "placeholder", "unusable"]
    """`offset`: target id = draft id + d2t; `index`: target id = d2t; `placeholder`: all zero or counted up from 0, which
    nobody chose by use; `unusable`: leaves the target's vocabulary, whichever way it is read."""
    reason: str
    increasing: bool
    """Whether the target ids rise strictly, as every trainer writes them."""
    repeated: int
    """Draft ids that share a target id with another."""
    largest: int
    """The largest target id."""
    t2d_agrees: bool | None
    """Whether t2d marks exactly the ids that d2t reaches; None without t2d."""
    t2d_count: int | None
    shared: int | None = None
    """Draft ids whose target id t2d marks; None without t2d."""

    @property
    def coverage(self) -> float | None:
        """Share of the target's ids that can be drafted at all, before any weighting by use."""
        return None if not self.target_size else (self.draft_size - self.repeated) / self.target_size

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "coverage": self.coverage}


def read_vocab_map(
    d2t: torch.Tensor,
    t2d: torch.Tensor | None,
    target_size: int | None,
    stated: Literal["offset", "index"] | None = None,
) -> VocabMap:
    """How d2t [draft] is to be read: as the layout has `stated`, else by t2d (bool [target]) where that decides, else by which
    reading stays inside the target's vocabulary with strictly rising ids; an offset where both do, because every trainer writes
    offsets."""
    d2t = d2t.to(torch.int64)
    size = target_size if target_size is not None else (t2d.numel() if t2d is not None else None)
    arange = torch.arange(d2t.numel())
    candidates = {"offset": arange + d2t, "index": d2t}
    marked = t2d.bool().nonzero().flatten() if t2d is not None else None
    reading: Literal["offset", "index", "placeholder", "unusable"]
    agreeing = [n for n, ids in candidates.items() if marked is not None and torch.equal(ids.sort().values, marked)]
    sound = [name for name, ids in candidates.items() if _sound(ids, size)]
    counted = d2t.numel() > 1 and torch.equal(d2t, arange)
    if counted and not agreeing and (size is None or size > d2t.numel()):
        # As offsets it would name every second id, as ids the first ones: neither was chosen by use.
        reading, reason = "placeholder", "d2t is 0, 1, 2, ...: looks like an unset default"
    elif not bool(d2t.any()):
        rest = size is None or size > d2t.numel()
        reading = "placeholder" if rest and agreeing != ["offset"] and d2t.numel() > 1 else "offset"
        reason = "d2t is all zero"
    elif stated is not None:
        inside = _inside(candidates[stated], size)
        reading = stated if inside else "unusable"
        told = "target ids" if stated == "index" else "offsets"
        reason = f"the layout stores {told}" if inside else f"{told}, as the layout stores, leave the vocabulary"
    elif agreeing:
        reading, reason = ("offset" if "offset" in agreeing else "index"), "t2d marks exactly these ids"
    elif "offset" in sound:
        reading, reason = "offset", "target ids rise and stay inside the vocabulary"
    elif "index" in sound:
        reading, reason = "index", "as offsets the ids would leave the vocabulary or fall; as ids they rise"
    elif _inside(candidates["offset"], size):
        reading, reason = "offset", "inside the vocabulary, though the ids do not rise"
    else:
        reading, reason = "unusable", "target ids leave the vocabulary, read as offsets or as ids"
    as_ids = (
        reading == "index" or (reading == "placeholder" and counted) or (reading == "unusable" and stated == "index")
    )
    ids = candidates["index" if as_ids else "offset"]
    return VocabMap(
        draft_size=d2t.numel(),
        target_size=size,
        reading=reading,
        reason=reason,
        increasing=bool((ids.diff() > 0).all()),
        repeated=ids.numel() - ids.unique().numel(),
        largest=int(ids.max()) if ids.numel() else -1,
        t2d_agrees=None if marked is None else torch.equal(ids.sort().values, marked),
        t2d_count=None if marked is None else marked.numel(),
        shared=None if marked is None else int(torch.isin(ids, marked).sum()),
    )


def _inside(ids: torch.Tensor, size: int | None) -> bool:
    return ids.numel() > 0 and bool(ids.min() >= 0) and (size is None or bool(ids.max() < size))


def _sound(ids: torch.Tensor, size: int | None) -> bool:
    return _inside(ids, size) and bool((ids.diff() > 0).all())
