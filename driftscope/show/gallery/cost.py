"""Pictures of what drift costs."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from driftscope.show.charts import cost
from driftscope.show.frames.cost import budget, ends, paths
from driftscope.show.gallery.picture import INTERVALS, Picture, View
from driftscope.show.gallery.tables import figures_table


def cost_pictures(view: View) -> Iterator[Picture]:
    """Where every drafted token goes, and the cost by path."""
    parts, by_path = budget(view.runs), paths(view.runs)
    if len(parts):
        yield Picture(
            "cost-budget",
            "cost",
            "Where the drafted tokens go",
            "Of the tokens that a chain drafts: those accepted, and those lost behind the first rejection, by its reason. Drift is "
            "the reason only where a row from real target features would have been right.",
            cost.budget(parts),
            _table(parts.assign(part=parts["part"].map(cost.PARTS)), "part", ".2f"),
        )
    if len(by_path):
        yield Picture(
            "cost-paths",
            "cost",
            "What drift costs, by path",
            "Accepted tokens that drift costs, in all and through the carried state, the attention rows and the values of the "
            f"chain's own rows (Shapley values, which sum to it); {INTERVALS}.",
            cost.paths(by_path),
            _table(by_path.assign(path=by_path["path"].map(cost.PATHS)), "path", "+.3f"),
        )
    by_step = ends(view.runs)
    if len(by_step):
        yield Picture(
            "cost-steps",
            "cost",
            "Where chains end, step by step",
            "Of the chains that are alive at a step, which part is accepted, and for which reason the others end there. Drift can "
            "only be the reason from step 2 on: step 1 is made from real features. Few chains are alive at deep steps.",
            cost.ends(by_step),
            figures_table(
                by_step.assign(part=by_step["part"].map(cost.PARTS), unit="share of living chains"),
                ["step", "part"],
                "unit",
                form=".1%",
            ),
        )


def _table(frame: pd.DataFrame, axis: str, form: str) -> pd.DataFrame:
    return figures_table(frame.assign(unit="tokens per anchor"), [axis], "unit", form=form, counts=False)
