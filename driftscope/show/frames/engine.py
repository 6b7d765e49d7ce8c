"""The comparison with an engine that `driftscope engine` left in a run folder, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from driftscope.errors import RunError
from driftscope.files.json import json_object
from driftscope.serving.report import FILE

_LARGEST = 8 * 2**20
_ROWS = 6


def engine_found(folder: Path) -> dict[str, Any] | None:
    """What the last `driftscope engine` found; None where there is nothing, or nothing that can be read."""
    try:
        found = json_object(folder / FILE, RunError, limit=_LARGEST)
        engine_frame(found), readings_frame(found)
    except (OSError, RunError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return found


def engine_frame(found: Mapping[str, Any]) -> pd.DataFrame:
    """One row a line and position: `run` (engine, walk, reading), `step`, `mean`, `low`, `high`; empty without positions."""
    shares = found["engine"]["shares"]
    if shares is None:
        return pd.DataFrame(columns=["run", "step", "mean", "low", "high"])
    walk = found["walk"]
    rows = _line("engine", shares)
    rows += _line("walk", walk["shares"], walk["low"], walk["high"])
    best = found["tied"][0] if found["tied"] else None
    if best is not None and best["switch"]:
        rows += _line(str(best["name"]), best["shares"])
    return pd.DataFrame(rows)


def readings_frame(found: Mapping[str, Any]) -> pd.DataFrame:
    """The likeliest readings and the declared one, to read."""
    rows = []
    for place, part in enumerate(found["readings"]):
        if place >= _ROWS and part["switch"]:
            continue
        rows.append(
            {
                "reading": part["name"] if part["switch"] else "as the run reads it",
                "predicts": " ".join(f"{share:.3f}" for share in part["shares"] or ()),
                "tokens a round": part["length"],
                "p": part["p"],
                "log likelihood": part["log_likelihood"],
                "excluded": "yes" if part["excluded"] else "no",
            }
        )
    return pd.DataFrame(rows)


def _line(
    name: str, values: list[float], low: list[float] | None = None, high: list[float] | None = None
) -> list[dict[str, Any]]:
    ends = [dict.fromkeys(range(len(values))) | dict(enumerate(part or ())) for part in (low, high)]
    return [
        {"run": name, "step": place + 1, "mean": float(value), "low": ends[0][place], "high": ends[1][place]}
        for place, value in enumerate(values)
    ]
