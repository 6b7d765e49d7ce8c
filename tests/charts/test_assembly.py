"""Charts put together without altair's copies: they are those that altair makes."""

from __future__ import annotations

import json
import math

import altair as alt
import pandas as pd
import pytest

from driftscope.show.charts import spec
from driftscope.show.charts.assembly import below, beside, in_rows, layered, specification
from driftscope.show.gallery import pictures
from tests.rich_run import calm, drawn, drifting

ROWS = pd.DataFrame({"x": [1.0, 2.0], "y": [3, 4]})


def plain(chart: alt.TopLevelMixin) -> str:
    content = chart.to_dict()
    return json.dumps({**content, "config": {}}, sort_keys=True)


def test_every_picture_is_written_as_altair_writes_it_and_is_valid() -> None:
    found = [*drawn(), *pictures([drifting(), calm()])]
    for picture in found:
        assert json.dumps(spec(picture.chart), sort_keys=True) == plain(picture.chart), picture.name


@pytest.mark.parametrize(
    ("ours", "theirs"), [(layered, alt.layer), (beside, alt.hconcat), (below, alt.vconcat), (in_rows, alt.concat)]
)
@pytest.mark.parametrize("alike", [True, False])
def test_parts_share_rows_where_altair_lets_them(ours: object, theirs: object, alike: bool) -> None:
    def parts() -> list[alt.Chart]:
        frames = (ROWS, ROWS if alike else ROWS.head(1))
        kinds = (alt.Chart(frame).encode(x=alt.X("x:Q"), y=alt.Y("y:Q")) for frame in frames)
        return [chart.mark_line().properties(width=80, height=40) for chart in kinds]

    made, wanted = (put(*parts(), **({} if put in (layered, alt.layer) else {"spacing": 3})) for put in (ours, theirs))  # type: ignore[operator]
    assert plain(made) == plain(wanted)
    assert json.dumps({**specification(made), "config": {}}, sort_keys=True) == plain(wanted)
    assert ("data" in specification(made)) == alike


def test_rows_are_json_with_null_for_what_is_no_number() -> None:
    frame = pd.DataFrame(
        {
            "number": [1.5, math.nan, -math.inf],
            "whole": [1, 2, 3],
            "yes": [True, False, True],
            "word": ["a", None, "c"],
            "kind": pd.Categorical(["u", None, "v"]),
            "count": pd.array([1, None, 3], dtype="Int32"),
            "any": [None, "text", 2.0],
        }
    )
    chart = alt.Chart(frame).mark_point().encode(x=alt.X("number:Q"))
    (rows,) = specification(chart)["datasets"].values()
    assert [tuple(row.values()) for row in rows] == [
        (1.5, 1, True, "a", "u", 1, None),
        (None, 2, False, None, None, None, "text"),
        (None, 3, True, "c", "v", 3, 2.0),
    ]
    assert plain(chart) == json.dumps({**specification(chart), "config": {}}, sort_keys=True)
