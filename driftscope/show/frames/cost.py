"""What drift costs as small frames: where every drafted token goes, and the cost by path."""

from __future__ import annotations

from typing import Any

import pandas as pd

from driftscope.chain.patches import FACTORS, REASONS
from driftscope.show.frames.base import Runs, labelled, recorded

ACCEPTED = "accepted"
WHOLE = ("cost", *FACTORS)


def budget(runs: Runs) -> pd.DataFrame:
    """Tokens per anchor of `depth` drafted, by `part`: those accepted, and those lost to each reason; they sum to `depth`."""
    records: list[dict[str, Any]] = []
    for label, run in labelled(runs).items():
        told = run.summary()
        cost, ends = told.get("drift_cost", {}), told.get("rejections", {})
        if "actual" not in cost or "lost" not in ends:
            continue
        axes = {"run": label, "depth": cost["depth"], "count": cost["anchors"], "counted": "anchors"}
        records.append({**axes, "part": ACCEPTED, **cost["actual"]})
        records += [{**axes, "part": name, **ends["lost"][name]} for name in REASONS if name in ends["lost"]]
    return recorded(records, ("run", "depth", "count", "counted", "part"), runs)


def paths(runs: Runs) -> pd.DataFrame:
    """Tokens that drift costs: in all (`cost`) and through `state`, `pattern`, `values` (Shapley values, which sum to it)."""
    records: list[dict[str, Any]] = []
    for label, run in labelled(runs).items():
        cost = run.summary().get("drift_cost", {})
        for name in WHOLE:
            figure = cost.get(name, {})
            figure = figure.get("shapley") if name in FACTORS else figure
            if figure:
                records.append({"run": label, "path": name, **figure, "count": cost["anchors"], "counted": "anchors"})
    return recorded(records, ("run", "path"), runs)


def ends(runs: Runs) -> pd.DataFrame:
    """Per step, of the chains that are alive there (`count`): the share rejected for each reason, and `accepted` the rest; they
    sum to 1."""
    records: list[dict[str, Any]] = []
    for label, run in labelled(runs).items():
        for entry in run.summary().get("rejections", {}).get("steps", ()):
            shares = {name: entry[name] for name in REASONS if name in entry}
            if not shares:
                continue
            axes = {"run": label, "step": entry["step"], "count": entry["alive"], "counted": "chains"}
            rest = 1.0 - sum(share["mean"] for share in shares.values())
            records.append({**axes, "part": ACCEPTED, "mean": max(0.0, rest)})
            records += [{**axes, "part": name, **share} for name, share in shares.items()]
    return recorded(records, ("run", "step", "count", "counted", "part"), runs)
