"""A section of the acceptance page: how many tokens to draft, by what a drafter step costs."""

from __future__ import annotations

from typing import Any

import streamlit as st

from driftscope.app.cards import escaped, grid
from driftscope.app.drawing import Drawn
from driftscope.app.library import Entry
from driftscope.app.loading import computed
from driftscope.errors import DriftscopeError
from driftscope.planning.choices import choices
from driftscope.planning.costs import ratio_costs
from driftscope.planning.plan import drafts_in_one_pass
from driftscope.planning.rounds import read_drafts
from driftscope.planning.view import headline
from driftscope.runs.run import Run
from driftscope.show.charts.plan import plan_frame, speed_up

_RATIOS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)


def section(entry: Entry) -> None:
    """A slider for the cost ratio, the answer, and the speed-up by K."""
    st.header("How many tokens to draft", anchor=False)
    ratio = st.select_slider(
        "A drafter step, in forwards of the target",
        _RATIOS,
        0.1,
        key=f"ratio-{entry.folder}",
        format_func=lambda r: f"{r:g}",
    )
    found = computed(planned, [entry], float(ratio))
    if isinstance(found, str):
        st.caption(escaped(found))
        return
    st.markdown(f"**{escaped(headline(found))}**")
    frame = plan_frame(found["batches"])
    about = (
        "Served tokens a round over the time of the round, if verifying cost no more than one token; bands are 95% intervals over"
        " prompts. Times of your machine, batch sizes, an early stop and the flags of engines: driftscope plan."
    )
    grid([Drawn.chart("speed-up", "Speed-up by drafted tokens", about, speed_up(frame), frame)], "speed-up")
    st.code(f"driftscope plan {entry.folder} --measure", language="bash")


def planned(runs: list[Run], ratio: float) -> dict[str, Any] | str:
    """The plan at this cost ratio, or why there is none."""
    try:
        drafts = read_drafts(runs[0])
    except DriftscopeError as error:
        return str(error)
    costs = ratio_costs(ratio, drafts.depth, drafts_in_one_pass(runs[0]))
    cost = costs.batches[0]
    return {"batches": [{"batch": 1, "plain": cost.plain, **choices(drafts, costs, cost)}]}
