"""What charts of single probes mark beside their tidy rows. Runs without a probe have no rows."""

from __future__ import annotations

import pandas as pd

from driftscope.show.frames.base import Runs
from driftscope.show.frames.measured import measured


def half_points(runs: Runs) -> pd.DataFrame:
    """The alpha `at` which half of a length is lost, by `site` and `quantity` (as in the rows of `noise`); NaN and `said` in
    words where it lies outside of what was tried."""
    records = []
    for label, figures in measured(runs, "noise"):
        for site, told in figures.get("sites", {}).items():
            for name, point in told.get("half_at", {}).items():
                number = isinstance(point, float | int)
                records.append(
                    {
                        "run": label,
                        "site": site,
                        "quantity": f"{name}_kept",
                        "at": float(point) if number else float("nan"),
                        "said": f"{point:.2g}" if number else str(point),
                    }
                )
    return pd.DataFrame(records, columns=["run", "site", "quantity", "at", "said"])


def collapses(runs: Runs) -> pd.DataFrame:
    """The step at which text-fed agreement falls under half of step 1's, where it does: `run`, `key`, `name`, `step`."""
    records = [
        {"run": label, "key": "collapse", "name": "under half of step 1", "step": figures["collapse"]}
        for label, figures in measured(runs, "depth")
        if isinstance(figures.get("collapse"), int)
    ]
    return pd.DataFrame(records, columns=["run", "key", "name", "step"])
