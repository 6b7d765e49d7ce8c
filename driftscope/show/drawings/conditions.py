"""Charts by name of the probes beyond the clean chains, and of any probe's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from driftscope.show.charts import cost as cost_charts
from driftscope.show.charts import depth as depth_charts
from driftscope.show.charts import layers as layer_charts
from driftscope.show.charts import length as length_charts
from driftscope.show.charts import noise as noise_charts
from driftscope.show.charts import pin as pin_charts
from driftscope.show.charts import rules as rule_charts
from driftscope.show.charts import template as template_charts
from driftscope.show.charts import traffic as traffic_charts
from driftscope.show.charts import trees as tree_charts
from driftscope.show.charts.figures import figures as draw_figures
from driftscope.show.drawings.view import Shown, View
from driftscope.show.frames.cost import budget, ends, paths
from driftscope.show.frames.measured import probe_rows
from driftscope.show.frames.probes import collapses, half_points


def figures(view: View, probe: str, draw: Callable[[pd.DataFrame], Any] = draw_figures) -> Shown:
    """The tidy rows of any probe: by step, or as bars."""
    rows = probe_rows(view.runs, probe, view.depth)
    return Shown(rows, lambda: draw(rows))


def cost(view: View) -> Shown:
    """Where the drafted tokens go: accepted, or lost, by reason."""
    frame = budget(view.runs)
    rows = frame.assign(part=frame["part"].map(cost_charts.PARTS), unit="tokens per anchor")
    return Shown(rows, lambda: cost_charts.budget(frame))


def cost_paths(view: View) -> Shown:
    """What drift costs in all, and through state, attention and values."""
    frame = paths(view.runs)
    rows = frame.assign(path=frame["path"].map(cost_charts.PATHS), unit="tokens per anchor")
    return Shown(rows, lambda: cost_charts.paths(frame))


def cost_steps(view: View) -> Shown:
    """Of the chains alive at a step, those accepted, and why the others end."""
    frame = ends(view.runs)
    rows = frame.assign(part=frame["part"].map(cost_charts.PARTS), unit="share of living chains")
    return Shown(rows, lambda: cost_charts.ends(frame))


def noise(view: View, quantity: str = "anchor_mean_kept") -> Shown:
    """Length kept by the size of the noise, with half-points; or kl, flips, cos_carry per step."""
    frame = probe_rows(view.runs, "noise")
    if quantity in noise_charts.MOVED:
        rows = frame[(frame["quantity"] == quantity) & (frame["step"] > 0)]
        return Shown(rows, lambda: noise_charts.moved(frame, quantity))
    return Shown(frame, lambda: noise_charts.dose(frame, half_points(view.runs), quantity))


def pin(view: View, *, effects: bool = False) -> Shown:
    """Excess with the size held, or what the pins remove and cost."""
    frame = probe_rows(view.runs, "pin")
    if not effects:
        return Shown(frame, lambda: pin_charts.excess(frame))
    held = frame["quantity"].isin(["share_from_magnitude", "length_kept"]) & (frame["condition"] != "free")
    return Shown(frame[held], lambda: pin_charts.effects(frame))


def depth(view: View, quantity: str = "agreement") -> Shown:
    """Agreement with the target to the horizon; or growth of the carry, or rank of the target's token."""
    frame = probe_rows(view.runs, "depth")
    wanted = ("agreement", "conditional") if quantity == "agreement" else (quantity,)
    rows = frame[frame["quantity"].isin(wanted)]
    rows = rows.assign(column=rows["quantity"] + ", " + rows["feed"] + "-fed")
    if quantity == "agreement":
        return Shown(rows, lambda: depth_charts.agreement(frame, collapses(view.runs)))
    return Shown(rows, lambda: {"growth": depth_charts.growth, "rank": depth_charts.rank}[quantity](frame))


def rank(view: View) -> Shown:
    """Rank of the target's token to the horizon."""
    return depth(view, "rank")


def layers(view: View, quantity: str = "cka", *, best: bool = False) -> Shown:
    """Likeness of the carry to the target's boundaries; `best` is the highest over them."""
    frame = probe_rows(view.runs, "layers")
    rows = frame[frame["quantity"] == quantity]
    if best:
        rows = rows.loc[rows.groupby(["run", "step", "row"])["mean"].idxmax()]
        return Shown(rows, lambda: layer_charts.best(frame))
    return Shown(rows, lambda: layer_charts.likeness(frame, quantity))


def template(view: View) -> Shown:
    """What other ways to wrap a prompt leave."""
    rows = probe_rows(view.runs, "template")
    return Shown(rows, lambda: template_charts.matrix(rows))


def length(view: View, quantity: str = "anchor_mean") -> Shown:
    """A figure by length of the text and attention window."""
    frame = probe_rows(view.runs, "length")
    return Shown(frame[frame["quantity"] == quantity], lambda: length_charts.by_length(frame, quantity))


def trees(view: View) -> Shown:
    """Accepted tokens by number of nodes, of each tree and of the chain of as many."""
    rows = probe_rows(view.runs, "trees")
    return Shown(rows, lambda: tree_charts.trees(rows))


def traffic(view: View) -> Shown:
    """Acceptance by category, language, kind of token and place in the answer."""
    rows = probe_rows(view.runs, "traffic", view.depth)
    return Shown(rows, lambda: traffic_charts.traffic(rows))


def rules(view: View) -> Shown:
    """What each rule of verification accepts, by sampling and over the steps."""
    rows = probe_rows(view.runs, "rules")
    return Shown(rows, lambda: rule_charts.rules(rows))
