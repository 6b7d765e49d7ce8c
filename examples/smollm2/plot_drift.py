"""Drift over the training of the example drafters: a chart of what `train.py --drift-every N` wrote.

    python examples/smollm2/plot_drift.py build/smollm2/*/drift.jsonl -o drift-over-training.svg

The name of a file's folder is that of the drafter. Written as .svg, .png, .html or .json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from driftscope.show.charts.theme import RUN_COLOURS, themed

PANELS = {
    "norm_growth": ("Norm growth over a chain", "x step 1", 1.0),
    "self_excess_slope": ("Attention gained by its own tokens", "share a step", 0.0),
    "noise_half_point": ("State noise that costs half of the length", "x RMS", None),
    "served_length": ("Served length", "tokens", None),
}
"""Metric -> title, unit, and the value that no drift has."""
ORDER = ("eagle3", "fc-norm", "post-norm", "eagle3.1")
FORMATS = ("svg", "png", "html", "json")


def read(files: Sequence[Path]) -> pd.DataFrame:
    """Columns `drafter`, `step`, `metric` and `value`; what was not measured has no row."""
    rows = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            rows += [
                {
                    "drafter": file.parent.name,
                    "step": entry["step"],
                    "metric": name,
                    "value": entry[f"driftscope/{name}"],
                }
                for name in PANELS
                if f"driftscope/{name}" in entry
            ]
    return pd.DataFrame(rows, columns=["drafter", "step", "metric", "value"])


def chart(frame: pd.DataFrame) -> alt.ConcatChart:
    """A panel per metric, a line per drafter; dots where a metric was measured."""
    drafters = sorted(frame["drafter"].unique(), key=lambda name: (ORDER.index(name) if name in ORDER else 9, name))
    colour = alt.Color("drafter:N", title="drafter", sort=drafters, scale=alt.Scale(domain=drafters, range=RUN_COLOURS))
    shape = alt.Shape("drafter:N", title="drafter", sort=drafters, scale=alt.Scale(domain=drafters))
    x = alt.X("step:Q", title="training step", scale=alt.Scale(domain=[0, int(frame["step"].max())], nice=False))
    panels = []
    for name, (title, unit, neutral) in PANELS.items():
        rows = frame[frame["metric"] == name]
        if rows.empty:
            continue
        y = alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False))
        base = alt.Chart(rows).encode(x=x, y=y, color=colour)
        panel = base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=36).encode(shape=shape)
        if neutral is not None:
            panel += alt.Chart(pd.DataFrame({"value": [neutral]})).mark_rule(style="reference").encode(y=y)
        panels.append(panel.properties(width=340, height=190, title=title))
    return alt.concat(*panels, columns=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="DRIFT.JSONL")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/smollm2/drift-over-training.svg"))
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    args = parser.parse_args()
    if args.out.suffix.lstrip(".") not in FORMATS:
        parser.error(f"{args.out}: expected one of {', '.join(FORMATS)}")
    missing = [file for file in args.files if not file.is_file()]
    if missing:
        sys.exit(f"{missing[0]}: no such file; train with --drift-every N first")
    frame = read(args.files)
    if frame.empty:
        sys.exit("nothing was measured in these files")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    themed(chart(frame), args.theme).save(str(args.out))
    print(f"{args.out}: {frame['drafter'].nunique()} drafters, {frame['step'].max()} steps")


if __name__ == "__main__":
    main()
