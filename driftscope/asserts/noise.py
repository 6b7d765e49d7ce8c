"""Noise on the carried state must leave most of the accepted length."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.table import Table

from driftscope.asserts.bounds import Bound, Figure
from driftscope.asserts.outcome import Outcome, conclude
from driftscope.asserts.reading import found
from driftscope.asserts.tables import plain_text
from driftscope.errors import RunError
from driftscope.figures.noise import noise_figures
from driftscope.findings.words import listed, plain
from driftscope.runs.run import Run

_KEPT = {"anchor_mean": "anchor_mean_kept", "served": "served_kept"}


def assert_noise_robust(
    run: Run,
    alpha: float = 0.5,
    keep: float = 0.5,
    *,
    site: str = "state",
    length: str = "anchor_mean",
    allow_unknown: bool = False,
) -> Outcome:
    """Gaussian noise on every row of a site leaves enough of the accepted length.

    Args:
        run: the run.
        alpha: scale of the noise, in units of the RMS of each row.
        keep: least share that is left of the undisturbed length of the same anchors, 0 to 1.
        site: where the noise is added.
        length: `anchor_mean` or `served`.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: less is left, or it cannot be told.
        RunError: the run holds no noise at that site and alpha.
    """
    __tracebackhide__ = True
    if length not in _KEPT:
        raise RunError(f"length {length} is not known; use anchor_mean or served")
    levels = _levels(run, site)
    level = next((part for part in levels if math.isclose(part["alpha"], alpha)), None)
    if level is None:
        measured = listed([f"{part['alpha']:g}" for part in levels])
        raise RunError(f"run {run.folder} holds noise of {measured} at {site}, not {alpha:g}")
    prompts = run.table("steps", probe="noise")["prompt"].nunique()
    label = f"accepted length kept under noise {alpha:g} on the {site} is"
    figure = Figure(found(level, _KEPT[length]))
    bound = Bound(label, keep, (figure,), kind="at least", prompts=prompts)
    details = _table(levels, _KEPT[length], alpha, site)
    return conclude(run, [bound], codes=("DS104",), allow_unknown=allow_unknown, details=details)


def _levels(run: Run, site: str) -> list[dict[str, Any]]:
    if "noise" not in run.probes:
        raise RunError(f"run {run.folder} holds no noise; probe it with noise among --probes")
    sites = noise_figures(run.table("steps", probe="noise"), run.table("variants", probe="noise"))["sites"]
    if site not in sites:
        raise RunError(f"run {run.folder} holds noise at {listed(list(sites))}, not at {site}")
    return list(sites[site]["levels"])


def _table(levels: list[dict[str, Any]], name: str, alpha: float, site: str) -> str:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for header in ("", f"noise on the {site}", "length kept", "95% interval", "KL", "flips"):
        table.add_column(header, justify="right", no_wrap=True)
    for level in levels:
        kept = found(level, name)
        ends = (
            "" if kept is None or kept.low is None or kept.high is None else f"{plain(kept.low)} to {plain(kept.high)}"
        )
        others = (found(level, key) for key in ("kl", "flips"))
        cells = [plain(part.mean) if part is not None else "-" for part in (kept, *others)]
        mark = ">" if math.isclose(level["alpha"], alpha) else ""
        table.add_row(mark, f"{level['alpha']:g}", cells[0], ends, *cells[1:])
    return plain_text(table)
