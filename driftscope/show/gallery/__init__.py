"""Every picture of a run in reading order: its caption, its chart, and the same figures as a table.

Which pictures there are is declared by the probes (`driftscope.probes.Record.pictures`); a probe that declares none is drawn from
its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from driftscope.probes.held import Held
from driftscope.probes.record import Caption, Layout
from driftscope.show.drawings import CHARTS, Shown, View
from driftscope.show.frames import Runs
from driftscope.show.frames.measured import held_probes, sentences
from driftscope.show.gallery.picture import Picture
from driftscope.show.tables import NAMED, figures_table, table_of
from driftscope.show.words import BUCKET_NAMES

__all__ = ["FIRST", "OVERVIEW", "Picture", "View", "figures_table", "pictures", "pictures_of", "sections"]

FIRST = "overview"
OVERVIEW = Caption(
    FIRST,
    "Growth, attention and excess",
    "Top: RMS of the carried state over its own step 1, and over the same position without drafting, log scale. "
    "Middle: where attention is, by part of the context. Bottom: the same minus what the drafter does at that position "
    "from real target features. Dashed rules mark onsets; bands and bars are 95% intervals over prompts.",
    FIRST,
    table=Layout(("step",), forms={"growth": ".2f", "matched growth": ".2f"}),
)
"""The one picture that is no single probe's."""


def sections(runs: Runs) -> dict[str, str]:
    """Section -> heading, in reading order: the one picture, then the probes that one of the runs holds."""
    return {FIRST: "In one picture", **{item.name: item.heading for item in held_probes(runs)}}


def pictures(runs: Runs, depth: int | None = None, onsets: pd.DataFrame | None = None) -> list[Picture]:
    """Every picture for which one of the runs holds figures, in the order of `sections`.

    `depth` as in `Run.summary`; `onsets` are those to mark, by default the summaries'.
    """
    view = View(runs, depth, onsets)
    found = [picture for picture in [_picture(view, FIRST, OVERVIEW, {})] if picture is not None]
    for item in held_probes(runs):
        found += pictures_of(view, item.name)
    return found


def pictures_of(
    view: View, probe: str, names: Sequence[str] | None = None, options: Mapping[str, Any] | None = None
) -> list[Picture]:
    """The pictures of one probe for which the runs hold figures; `names`: these ones, also such as are drawn only when asked for.
    `options` are those of every chart that is drawn."""
    if probe == FIRST:
        drawn = _picture(view, FIRST, OVERVIEW, options or {})
        return [] if drawn is None else [drawn]
    item = next((item for item in held_probes(view.runs) if item.name == probe), None)
    if item is None:
        return []
    said = sentences(view.runs, probe)
    found: list[Picture] = []
    for caption in captions_of(item):
        if not caption.asked if names is None else caption.name in names:
            drawn = _picture(view, item.name, caption, options or {}, said if not found else ())
            if drawn is not None:
                found.append(drawn)
    return found


def captions_of(item: Held) -> Iterator[Caption]:
    """The pictures of a probe, or one of its rows."""
    yield from item.record.pictures
    if not item.record.pictures:
        about = (
            f"{item.question or f'What the probe {item.name} measured'} Bars and bands are 95% intervals over prompts."
        )
        yield Caption(item.name, item.name.capitalize(), about.strip(), table=item.record.table or Layout())


def shown(view: View, probe: str, caption: Caption, options: Mapping[str, Any]) -> Shown:
    """The rows of a picture, and how it is drawn."""
    given = {**caption.options, **options}
    if callable(caption.chart):
        return CHARTS["figures"](view, probe, caption.chart)
    if caption.chart == "figures":
        given["probe"] = probe
    return CHARTS[caption.chart](view, **given)


def _picture(
    view: View, section: str, caption: Caption, options: Mapping[str, Any], said: Sequence[str] = ()
) -> Picture | None:
    found = shown(view, section, caption, options)
    if found.rows.empty:
        return None
    bucket = str(options.get("bucket", "self_generated"))
    words = {**view.words, "bucket": f"{BUCKET_NAMES.get(bucket, bucket)} tokens"}
    layout = caption.table
    table = NAMED[layout](found.rows) if isinstance(layout, str) else table_of(found.rows, layout, **words)
    return Picture(
        caption.name,
        section,
        caption.title.format(**words),
        caption.about.format(**words),
        found.draw(),
        table,
        (*found.sentences, *said),
    )
