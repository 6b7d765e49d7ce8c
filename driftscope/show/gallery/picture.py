"""What a picture of a run consists of."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from driftscope.show.charts.base import Chart
from driftscope.show.frames import Runs

SECTIONS = {
    "overview": "In one picture",
    "cost": "Cost: how many accepted tokens does drift cost, and by which path?",
    "norms": "Norms: does the carried state grow, does one aux feature dominate?",
    "attention": "Attention: does it leave the sink and the prompt for the drafter's own tokens?",
    "acceptance": "Acceptance: how many drafted tokens survive?",
    "noise": "Noise: how much acceptance is left when the state or the embedding is noisy?",
    "pin": "Pin: how much of the drift does the size of the carried state cause?",
    "depth": "Depth: where does it collapse when it drafts further?",
    "layers": "Layers: is a step the next position, or a deeper layer?",
    "template": "Template: how much depends on how the prompt is wrapped?",
    "length": "Length: where does acceptance break, and does a window rescue it?",
}
INTERVALS = "bands and bars are 95% intervals over prompts"


@dataclass(frozen=True)
class View:
    """What is looked at."""

    runs: Runs
    depth: int | None
    """Steps of the clean chains, as in `Run.summary`."""
    onsets: pd.DataFrame
    """`frames.onsets`."""


@dataclass(frozen=True)
class Picture:
    """One chart with what it needs to be read."""

    name: str
    """Unique, also a file name."""
    section: str
    title: str
    about: str
    chart: Chart
    table: pd.DataFrame
    sentences: tuple[str, ...] = ()
