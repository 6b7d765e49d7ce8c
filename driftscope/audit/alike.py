"""Which alternatives the texts cannot tell from the best one: a value is named alone only where it stands alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.stats import t as student

from driftscope.audit.decide import Difference, Limits

LEVEL = 0.95
"""Of the interval of a paired difference, as of every other interval."""


def alike(best: int, differences: Mapping[int, Difference], limits: Limits) -> list[int]:
    """Keys of `differences` whose loss lies within the noise of that of `best`, `best` included, ascending.

    Paired over the prompts that both took part in: the 95% Student interval of the mean difference reaches 0. What has fewer
    than half of `limits.prompts` prompts in common with the best one was not measured against it, and is left out.
    """
    found = []
    for index, difference in differences.items():
        ahead = differences[best].loss - difference.loss
        ahead = ahead[np.isfinite(ahead)]
        if index == best:
            found.append(index)
        elif len(ahead) >= max(2, limits.prompts // 2):
            error = float(ahead.std(ddof=1)) / len(ahead) ** 0.5
            if float(ahead.mean()) <= student.ppf((1 + LEVEL) / 2, len(ahead) - 1) * error:
                found.append(index)
    return sorted(found)
