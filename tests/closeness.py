"""How near two computations of the same numbers must come: one rule, for every dtype and every CPU.

CPUs, libraries and numbers of threads add the terms of a sum in different orders. Rounding errors of a sum of n terms of
size s behave like a random walk: about sqrt(n) * u * s, u the unit roundoff of the dtype; a value that has gone through m
such sums in a row has collected m of them, again at random. So two orders may differ by

    bound = SPREAD * sqrt(n * m) * u * s        and never by less than FLOOR * s

n: the longest sum, in terms; m: the sums in a row; s: the largest magnitude among the values compared, because the rounding
of a sum goes with the size of its terms and not with what is left of them. SPREAD covers the tail of the distribution over
the thousands of values that a test compares: seven times what the golden files show. FLOOR is for float64, where the bound
would be smaller than anything that means something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

SPREAD = 4.0
FLOOR = 1e-10


def bound(size: float, terms: int = 1, sums: int = 1, dtype: torch.dtype = torch.float64) -> float:
    """The largest difference that the order of summation explains.

    size: the largest magnitude of the values. terms: of the longest sum. sums: how many in a row. dtype: the less precise of
    the two computations.
    """
    unit = torch.finfo(dtype).eps / 2
    return max(FLOOR, SPREAD * (terms * sums) ** 0.5 * unit) * size


def assert_same(
    seen: Any,
    wanted: Any,
    what: str = "",
    *,
    terms: int = 1,
    sums: int = 1,
    size: float | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Assert that two arrays or tensors hold the same numbers, NaN where the other has NaN; integers exactly.

    size: taken from `wanted` where None. Name it where the values are differences of others: shares of attention are of
    size 1, so is their excess. dtype: the less precise of the two dtypes where None.
    """
    seen, wanted = (part if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part)) for part in (seen, wanted))
    if not seen.is_floating_point():
        assert torch.equal(seen, wanted), f"{what}: {seen} against {wanted}"
        return
    if dtype is None:
        dtype = min((part.dtype for part in (seen, wanted)), key=lambda each: -torch.finfo(each).eps)
    if size is None:
        known = wanted[torch.isfinite(wanted)]
        size = float(known.abs().max()) if known.numel() else 0.0
    allowed = bound(size, terms, sums, dtype)
    torch.testing.assert_close(
        seen.double(),
        wanted.double(),
        atol=allowed,
        rtol=0,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}" if what else m,
    )
