"""What each page draws of one or more runs: plain functions, so that their results can be kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from driftscope.app.drawing import Drawn
from driftscope.show import frames
from driftscope.show.charts import attention as attention_charts
from driftscope.show.charts import norms as norm_charts
from driftscope.show.charts.linked import linked
from driftscope.show.charts.theme import BUCKET_NAMES
from driftscope.show.frames import Runs
from driftscope.show.gallery import clean, conditions, figures_table
from driftscope.show.gallery.cost import cost_pictures
from driftscope.show.gallery.picture import Picture, View
from driftscope.show.gallery.tables import NOT_MEASURED, bucket_table, ranking_table
from driftscope.show.report.content import RunPart, comparison_of, comparison_pictures, run_parts

_ONE_HOT = 0.2
"""Nats below which attention has in effect one key."""
Onsets = tuple[tuple[tuple[str, Any, Any, Any], ...], ...]
"""Per run its onsets: key, onset, and the ends of its spread."""


def parts(runs: Runs) -> list[RunPart]:
    """Verdict, findings, lengths and facts of each run."""
    return run_parts(runs, None, None)


def view(runs: Runs, found: Onsets = ()) -> View:
    """All steps, with the onsets at the thresholds in force."""
    if not found:
        return View(runs, None, _no_onsets())
    starts = [{key: start for key, start, _, _ in part} for part in found]
    spreads = [{key: {"low": low, "high": high} for key, _, low, high in part} for part in found]
    return View(runs, None, frames.onsets(runs, None, starts, spreads))


def overview(runs: Runs, found: Onsets) -> list[Drawn]:
    """The one picture."""
    return _drawn(clean.overview_pictures(view(runs, found)))


def costs(runs: Runs, found: Onsets) -> list[Drawn]:
    """What drift costs, where that was measured."""
    return _drawn(cost_pictures(view(runs, found)))


def norms(runs: Runs, unit: Any, mode: Any, feed: str) -> list[Drawn]:
    """Sizes: of the carry, of every site, of the target's stream, of the aux features; directions and updates."""
    shown = []
    sizes = frames.site_norms(runs, "size", unit, feed)
    name = norm_charts.UNIT_NAMES[unit]
    carry = frames.carry_norms(runs, unit, feed)
    if len(carry):
        shown.append(
            Drawn.chart(
                "carry",
                "Size of the carried state",
                f"{name} of the state that a step hands to the next, log scale, behind that of the last rows before the chain,"
                " which are made from real target features: a jump at the rule is the crossing from prefill to draft. Bands are"
                " 95% intervals over prompts. A post-norm carry is flat by construction.",
                norm_charts.carry(carry, unit),
                figures_table(carry, ["where"], form=".4g"),
            )
        )
    shown += _drawn(clean.jump_pictures(runs, feed))
    sites = sizes if mode == "size" else frames.site_norms(runs, mode, unit, feed)
    if len(sites):
        about = {
            "size": f"{name} by site, in the order of computation",
            "growth": "RMS over the same chain's own step 1",
            "matched": "RMS over that of the same site at the same position with real target features: 1 is no drift",
        }[mode]
        shown.append(
            Drawn.chart(
                "sites",
                "Every site of the drafter, step by step",
                f"{about}; colours on a log scale. An empty cell was not measured.",
                norm_charts.sites(sites, mode, unit),
                figures_table(sites, ["site"], "step", form=".3g", intervals=False, counts=False),
            )
        )
    layers, aux = frames.layer_norms(runs, unit), frames.aux_norms(runs, unit)
    if len(layers):
        shown.append(
            Drawn.chart(
                "boundaries",
                "The target's residual stream",
                f"{name} by boundary (residual stream after so many layers), log scale, sink positions apart; dashed rules mark"
                " the boundaries that the drafter reads.",
                norm_charts.boundaries(layers, unit),
                figures_table(layers, ["boundary"], "region", form=".3g", counts=False),
            )
        )
    if len(aux):
        shown.append(
            Drawn.chart(
                "aux",
                "Aux features and their share of the fused input",
                f"{name} of each feature that the drafter reads, before and after its own norm, and the share of its block (L2 of"
                " the block over the sum of the blocks' L2).",
                norm_charts.aux(aux, unit),
                figures_table(aux, ["boundary", "region"], "quantity", form=".3g", counts=False),
            )
        )
    for key, title, about, frame, draw in (
        (
            "cosines",
            "Direction of the carried state",
            "Cosine with the step before, and with the carry at the same position without drafting.",
            frames.cosines(runs, feed),
            norm_charts.cosines,
        ),
        (
            "updates",
            "Size of updates",
            "RMS of what attention and MLP add, over the residual that they add it to: as that grows, each step adds less.",
            frames.update_ratios(runs, feed),
            norm_charts.updates,
        ),
    ):
        if len(frame):
            table = figures_table(frame, ["step"], "quantity", counts=False)
            shown.append(Drawn.chart(key, title, about, draw(frame), table))
    return [*shown, *_drawn(conditions.layers_pictures(view(runs)))]


def attention(runs: Runs, feed: str, split: bool, found: Onsets) -> list[Drawn]:
    """Where attention is, per step: masses, excess, per key, entropy, displacement."""
    steps = frames.step_figures(runs, feed)
    marks = view(runs, found).onsets if feed == "drafted" else _no_onsets()
    held = set(steps["quantity"])
    shown = []
    if "mass" in held:
        shown.append(
            Drawn.chart(
                "attention",
                "Where attention is",
                "Share of attention by part of the context, mean over layers and heads; the parts are disjoint and add up to 1.",
                attention_charts.stacked(steps),
                bucket_table(steps, "mass", ".3f"),
            )
        )
    if "excess" in held:
        shown.append(
            Drawn.chart(
                "excess",
                "Beyond the same place without drafting",
                "Mass minus the mass on the same positions when the row is made from real target features; 0 at step 1 by"
                " construction. Dashed rules mark onsets.",
                attention_charts.excess(steps, marks, split=split),
                bucket_table(steps, "excess", "+.3f"),
            )
        )
    if "displacement" in held:
        shown.append(
            Drawn.chart(
                "displacement",
                "Attention that moved",
                "Half the sum of absolute excess over the parts, per head, then the mean over heads: 0 none, 1 all of it.",
                attention_charts.displacement(steps, marks),
                figures_table(steps[steps["quantity"] == "displacement"], ["step"]),
            )
        )
    keys = frames.per_key(runs, feed)
    if len(keys):
        named = keys.assign(bucket=keys["bucket"].map(BUCKET_NAMES))
        shown.append(
            Drawn.chart(
                "per-key",
                "Attention per key",
                "Mass over the part's share of the keys, log scale: 1 is what attention without preference gives.",
                attention_charts.per_key(keys),
                figures_table(named, ["step"], "bucket", form=".2f"),
            )
        )
    if "entropy" in held:
        shown.append(
            Drawn.chart(
                "entropy",
                "Entropy of attention",
                f"In nats, mean over layers and heads; 0 is one key that gets everything. {_spread_words(steps)}",
                attention_charts.entropy(steps),
                figures_table(steps[steps["quantity"] == "entropy"], ["step"]),
            )
        )
    return shown


def _spread_words(steps: pd.DataFrame) -> str:
    """How many keys share the attention, by the entropy of the last step."""
    rows = steps[(steps["quantity"] == "entropy") & steps["mean"].notna()]
    if rows.empty:
        return ""
    value = float(rows.sort_values("step")["mean"].iloc[-1])
    keys = f"as over {math.exp(value):.1f} equally strong keys at the last step"
    return f"It is {keys}: nearly all on one key." if value < _ONE_HOT else f"It is spread {keys}."


def ranking(runs: Runs, bucket: str, feed: str) -> pd.DataFrame:
    """Heads by how much of their attention moved to (or from) a part, strongest first."""
    return frames.head_ranking(runs, bucket, feed)


def head_grid(runs: Runs, bucket: str, feed: str) -> list[Drawn]:
    """Head x step, the heads that drift most first."""
    ranked = frames.head_ranking(runs, bucket, feed)
    if ranked.empty:
        return []
    cells = frames.head_masses(runs, kinds=["excess"], buckets=[bucket], feed=feed, intervals=False)
    return [
        Drawn.chart(
            "heads",
            "Heads, largest change first",
            "Excess by head and step, sorted by size: above 0 the part gains attention, below it"
            " loses; right: at the last step with its 95% interval. p on hover is adjusted for having looked"
            " at every head.",
            attention_charts.heads(cells, ranked),
            ranking_table(ranked),
        )
    ]


def one_head(runs: Runs, layer: int, head: int, feed: str) -> list[Drawn]:
    """Masses and excess of one head."""
    rows = frames.head_masses(runs, layer, head, feed=feed)
    if rows.empty:
        return []
    table, excess = bucket_table(rows, "mass", ".3f"), bucket_table(rows, "excess", "+.3f")
    if len(excess):
        beyond = {name: f"{name}, excess" for name in BUCKET_NAMES.values()}
        table = table.merge(
            excess[["step", *(name for name in excess if name in beyond)]].rename(columns=beyond), on="step"
        )
    return [
        Drawn.chart(
            "head",
            f"Layer {layer}, head {head}",
            "Share of attention by part, and the same minus that of the same position without drafting, of this head alone;"
            " bands are 95% intervals over prompts.",
            attention_charts.one_head(rows),
            table,
        )
    ]


def noise(runs: Runs) -> list[Drawn]:
    """Dose-response, KL and flips."""
    return _drawn(conditions.noise_pictures(view(runs)))


def pin(runs: Runs) -> list[Drawn]:
    """What is left with the size of the state held."""
    return _drawn(conditions.pin_pictures(view(runs)))


def acceptance(runs: Runs) -> list[Drawn]:
    """Joint and conditional, survival, served lengths, confidence."""
    return _drawn(clean.acceptance_pictures(view(runs)))


def depth(runs: Runs) -> list[Drawn]:
    """Beyond the depth of training."""
    return _drawn(conditions.depth_pictures(view(runs)))


def template(runs: Runs) -> list[Drawn]:
    """Prompts wrapped otherwise."""
    return _drawn(conditions.template_pictures(view(runs)))


def length(runs: Runs) -> list[Drawn]:
    """Long texts and windows."""
    return _drawn(conditions.length_pictures(view(runs)))


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
