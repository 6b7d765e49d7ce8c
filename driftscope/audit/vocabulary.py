"""What else the draft vocabulary could be: t2d, ascending ids, and the rows of the target's head that the drafter's equals."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from driftscope.audit.setting import Setting

_SAMPLE = 256
_CLOSE = 0.95
"""Cosine at which a row of the head counts as a copy of a target row."""
_SKETCH = 64
"""Random directions that stand for whole rows when the nearest one is looked for."""
_CHUNK = 1 << 28
"""Entries of a similarity matrix held at once."""


def other_maps(setting: Setting, target_head: Tensor, ids: Tensor) -> Iterator[tuple[str, Tensor | str]]:
    """(what it rests on, target ids [draft] or the reason why there are none), those equal to `ids` as a reason."""
    count = len(ids)
    found: dict[str, Tensor | str] = {}
    t2d = setting.weights.get("t2d")
    if t2d is None:
        found["what t2d marks"] = "no t2d is stored"
    else:
        marked = t2d.bool().nonzero().flatten().cpu()
        found["what t2d marks"] = marked if len(marked) == count else f"t2d marks {len(marked)} tokens, not {count}"
    if "d2t" in setting.weights and bool((ids.diff() <= 0).any()):
        found["the same ids, ascending"] = ids.sort().values
    found["rows of the target's head"] = head_rows(setting, target_head, ids)
    seen = [ids]
    for word, other in found.items():
        if isinstance(other, Tensor):
            if any(torch.equal(other, known) for known in seen):
                yield word, "the same ids"
                continue
            seen.append(other)
        yield word, other


def head_rows(setting: Setting, target_head: Tensor, ids: Tensor) -> Tensor | str:
    """For every row of the drafter's head the target row that it is a copy of, or why that cannot be told."""
    own = setting.weights.get("lm_head.weight")
    if setting.config.head != "own" or own is None:
        return "the drafter has no head of its own"
    if own.shape[1] != target_head.shape[1]:
        return f"the target's head is {target_head.shape[1]} wide, the drafter's {own.shape[1]}"
    sample = torch.linspace(0, len(own) - 1, min(_SAMPLE, len(own))).round().long()
    whole = _normed(target_head)
    nearest, closeness = _nearest(_normed(own[sample]), whole)
    copies = closeness >= _CLOSE
    if copies.double().mean() < 0.9:
        return "its rows are no copies of the target's"
    agree = _same_row(whole, nearest, ids[sample])
    if bool(agree[copies].all()):
        return "its rows are those that the map says"
    every = _normed(own)
    directions = torch.randn(whole.shape[1], _SKETCH, generator=torch.Generator().manual_seed(0))
    sketched, _ = _nearest(every @ directions, _normed(whole @ directions))
    # A copy is nearest in any directions; what turns out to be none is compared in all of them.
    unsure = (every * whole[sketched]).sum(-1) < _CLOSE
    nearest = sketched.index_put((unsure,), _nearest(every[unsure], whole)[0])
    # Rows that the target itself holds twice stay where the map put them.
    return torch.where(_same_row(whole, nearest, ids), ids, nearest)


def _normed(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.detach().float().cpu(), dim=-1)


def _nearest(rows: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the row of `whole` with the largest product, and that product."""
    size = max(1, _CHUNK // len(whole))
    best = [(part @ whole.T).max(-1) for part in rows.split(size)]
    return torch.cat([part.indices for part in best]), torch.cat([part.values for part in best])


def _same_row(whole: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return (whole[left] * whole[right]).sum(-1) > 1 - 1e-4
