"""What each page draws of one or more runs: plain functions, so that their results can be kept. Charts, captions and tables are
those of the gallery, as in the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from driftscope.app.drawing import Drawn
from driftscope.probes import known
from driftscope.probes.held import record_of
from driftscope.probes.record import heading_of
from driftscope.runs.summary import counts
from driftscope.show import frames
from driftscope.show.charts.linked import linked
from driftscope.show.charts.theme import BUCKET_NAMES
from driftscope.show.frames import Runs
from driftscope.show.frames.measured import held_probes
from driftscope.show.gallery import FIRST, Picture, View, figures_table, pictures_of
from driftscope.show.report.content import RunPart, comparison_of, comparison_pictures, run_parts
from driftscope.show.tables import NOT_MEASURED

_ONE_HOT = 0.2
"""Nats below which attention has in effect one key."""
Onsets = tuple[tuple[tuple[str, Any, Any, Any], ...], ...]
"""Per run its onsets: key, onset, and the ends of its spread."""


def parts(runs: Runs) -> list[RunPart]:
    """Verdict, findings, lengths and facts of each run."""
    return run_parts(runs, None, None)


def view(runs: Runs, found: Onsets = (), feed: str = "drafted", unit: Any = "rms") -> View:
    """All steps, with the onsets at the thresholds in force."""
    if not found:
        return View(runs, None, _no_onsets(), feed, unit)
    starts = [{key: start for key, start, _, _ in part} for part in found]
    spreads = [{key: {"low": low, "high": high} for key, _, low, high in part} for part in found]
    return View(runs, None, frames.onsets(runs, None, starts, spreads), feed, unit)


def overview(runs: Runs, found: Onsets) -> list[Drawn]:
    """The one picture."""
    return _drawn(pictures_of(view(runs, found), FIRST))


def probe(runs: Runs, name: str, found: Onsets = ()) -> list[Drawn]:
    """The pictures of one probe, where it was measured."""
    return _drawn(pictures_of(view(runs, found), name))


def of_probe(runs: Runs, name: str) -> list[Drawn]:
    """The pictures of one probe as a section of its page."""
    for run in runs:
        # A damaged run is told on every page, also on one that needs no clean chains.
        counts(run)
    return _drawn(pictures_of(view(runs), name)) if any(item.name == name for item in held_probes(runs)) else []


def heading(name: str) -> str:
    """Of the section of a probe."""
    item = known()[name]
    return heading_of(name, item.question, record_of(item))


def of_page(runs: Runs, page: str) -> list[tuple[str, str, list[Drawn]]]:
    """(probe, heading, pictures) of every probe of these runs that stands on a page of the app."""
    shown = view(runs)
    for run in runs:
        # A damaged run is told on every page, also on one that needs no clean chains.
        counts(run)
    held = [item for item in held_probes(runs) if item.record.page == page]
    return [(item.name, item.heading, _drawn(pictures_of(shown, item.name))) for item in held]


def norms(runs: Runs, unit: Any, mode: Any, feed: str) -> list[Drawn]:
    """Sizes: of the carry, of every site, of the target's stream, of the aux features; directions and updates."""
    sites = "sites" if mode == "size" else f"sites-{mode}"
    names = ("carry", "jumps", sites, "boundaries", "aux", "cosines", "updates")
    return [*_drawn(pictures_of(view(runs, (), feed, unit), "norms", names)), *probe(runs, "layers")]


def attention(runs: Runs, feed: str, split: bool, found: Onsets) -> list[Drawn]:
    """Where attention is, per step: masses, excess, per key, entropy, displacement."""
    shown = view(runs, found, feed)
    first = pictures_of(shown, "attention", ("attention",))
    excess = pictures_of(shown, "attention", ("excess",), {"split": split})
    drawn = _drawn([*first, *excess, *pictures_of(shown, "attention", ("displacement", "per-key", "entropy"))])
    told = _spread_words(frames.step_figures(runs, feed))
    return [
        replace(item, sentences=(*item.sentences, told)) if item.name == "entropy" and told else item for item in drawn
    ]


def _spread_words(steps: pd.DataFrame) -> str:
    """How many keys share the attention, by the entropy of the last step."""
    rows = steps[(steps["quantity"] == "entropy") & steps["mean"].notna()]
    if rows.empty:
        return ""
    value = float(rows.sort_values("step")["mean"].iloc[-1])
    keys = f"as over {math.exp(value):.1f} equally strong keys at the last step"
    return f"Attention is {keys}: nearly all on one key" if value < _ONE_HOT else f"Attention is spread {keys}"


def ranking(runs: Runs, bucket: str, feed: str) -> pd.DataFrame:
    """Heads by how much of their attention moved to (or from) a part, strongest first."""
    return frames.head_ranking(runs, bucket, feed)


def head_grid(runs: Runs, bucket: str, feed: str) -> list[Drawn]:
    """Head x step, the heads that drift most first."""
    return _drawn(pictures_of(view(runs, (), feed), "attention", ("heads",), {"bucket": bucket}))


def one_head(runs: Runs, layer: int, head: int, feed: str) -> list[Drawn]:
    """Masses and excess of one head."""
    return _drawn(pictures_of(view(runs, (), feed), "attention", ("head",), {"layer": layer, "head": head}))


def _drawn(pictures: Any) -> list[Drawn]:
    held: Sequence[Picture] = list(pictures)
    return [Drawn.of(picture) for picture in held]


def _no_onsets() -> pd.DataFrame:
    return pd.DataFrame(columns=["run", "key", "name", "step", "low", "high"])


@dataclass(frozen=True)
class Compared:
    """What a comparison says, or `why_not`."""

    folders: tuple[str, ...] = ()
    """Of the runs, in the order of the comparison."""
    headline: str = ""
    about: str = ""
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    why_not: str = ""


def compared(runs: Runs) -> Compared:
    """The 2 x 2 answer and the paired differences of runs on the same texts."""
    found, why_not = comparison_of(runs, None, None)
    if found is None:
        return Compared(why_not=why_not)
    about = f"{found.prompts} prompts, {found.depth} steps, drafting for {found.target}; intervals are over prompts"
    sentences = tuple(part.sentence for part in found.compared if part.sentence and part.quantity.key)
    return Compared(
        found.folders, found.headline, about, sentences, found.notes, tuple(_drawn(comparison_pictures(found)))
    )


def side_by_side(runs: Runs) -> list[Drawn]:
    """Growth, excess, displacement and acceptance of several runs, linked."""
    steps = frames.step_figures(runs)
    held = steps[steps["quantity"].isin(["growth", "displacement", "conditional"])]
    return [
        Drawn.chart(
            "linked",
            "Step by step",
            "Click a panel to mark a step in all of them and see its figures below; click a run in the legend to dim the others."
            " Bands are 95% intervals over prompts.",
            linked(steps),
            figures_table(held, ["step"], "quantity", counts=False),
        )
    ]


_FIGURES = {
    "carry_rms": "RMS of the carry",
    "growth": "growth (x step 1)",
    "matched_growth": "matched growth (x)",
    "displacement": "displaced",
    "mass": "attention",
    "excess": "excess",
    "joint": "joint acceptance",
    "conditional": "conditional acceptance",
}
_FORMS = {
    ("carry_rms",): ".3g",
    ("growth", "matched_growth"): ".2f",
    ("displacement",): ".3f",
    ("excess",): "+.3f",
    ("conditional", "joint"): ".3f",
    ("mass",): ".3f",
}
"""Number formats, in the order of the table."""


def at_step(runs: Runs, step: int) -> pd.DataFrame:
    """One line per figure, one column per run, with intervals and denominators."""
    steps = frames.step_figures(runs)
    rows = steps[(steps["step"] == step) & ~steps["quantity"].isin(["entropy"])]
    parts = []
    for quantities, form in _FORMS.items():
        held = rows[rows["quantity"].isin(quantities)]
        name = held["quantity"].map(_FIGURES) + held["bucket"].map(
            lambda part: f", {BUCKET_NAMES[part]}" if part else ""
        )
        shown = held.assign(figure=name, quantity=held["run"], run="all")
        parts.append(figures_table(shown, ["figure"], "quantity", form=form, counts=False))
    counts = rows.drop_duplicates(["run", "counted"])
    counted = counts.pivot(index="counted", columns="run", values="count").map("{:,.0f}".format)
    parts.append(counted.rename_axis("figure").reset_index())
    return pd.concat([part for part in parts if len(part)], ignore_index=True).fillna(NOT_MEASURED)
