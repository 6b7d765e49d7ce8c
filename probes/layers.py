"""Layers: is step k a deeper layer at the same row, or does it stand in for the features of the next position?

The carry of step k, of anchor t, is compared with target boundaries at three rows of the text: `next` t+k, the position whose
features it stands in for at step k+1; `same` t+k-1, the row at which step k stands; and `anchor` t, where the chain started.
Chains are text-fed, so that row t+k holds the very token that step k read.

Linear CKA between two sets of vectors at the same n anchors, per prompt, from n x n Gram matrices with the unbiased estimator
of HSIC: with fewer anchors than features the usual one is far above 0 for unrelated vectors. Song et al., Feature Selection
via Dependence Maximization (2012), equation 5; Kornblith et al., Similarity of Neural Network Representations Revisited
(2019); Nguyen et al., Do Wide and Deep Networks Learn the Same Things? (2021), equation 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from driftscope.errors import DriftscopeError
from driftscope.figures.layers import layers_figures, layers_rows
from driftscope.probes.base import Variant
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record
from driftscope.runs.columns import FEED, INT16, INT32, PROMPT, STEP, STRING, SUM, Column, Table, optional
from driftscope.runs.columns import VARIANT as VARIANT_COLUMN

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder

Floats = NDArray[np.float64]

VARIANT = "layers"
MIN_ANCHORS = 8
"""With fewer anchors a prompt has no CKA."""


SIMILARITY = Table(
    "similarity",
    (
        VARIANT_COLUMN,
        FEED,
        PROMPT,
        STEP,
        Column("boundary", INT16, least=0),
        Column(
            "row", STRING, "of the target: t+k, t+k-1 or t, for step k of anchor t", values=("next", "same", "anchor")
        ),
        Column("anchors", INT32, "anchors outside loops", least=0),
        optional("cka", SUM, "linear CKA of the carries and the boundary over those anchors, unbiased HSIC"),
        optional("sum_cos", SUM, "sum of their cosines; null where the widths differ"),
    ),
)


def figures(run: RunFolder, depth: int | None) -> Figures:
    return layers_figures(run.table("similarity", "layers"))


def sentences(figures: Figures) -> list[tuple[str, str]]:
    return [("", figures["sentence"])] if "sentence" in figures else []


RECORD = Record(
    tables=(SIMILARITY,),
    figures=figures,
    about={
        "boundaries": "the target's, that were compared",
        "steps": "per step: likeness to every boundary at three rows, the likest one, and what the step looks like",
        "sentence": "the same in words",
    },
    rows=layers_rows,
    axes=("step", "row", "boundary", "quantity"),
    table=Layout(("step",), "row", where={"quantity": "best_cka"}, counts=False),
    sentences=sentences,
    heading="Layers: is a step the next position, or a deeper layer?",
    pictures=(
        Caption(
            "layers-best",
            "What a step looks like",
            f"Highest likeness of the carry to any boundary of the target, at three rows; {INTERVALS}.",
            "layers",
            {"best": True},
            Layout(("step",), "row", counts=False),
        ),
        Caption(
            "layers",
            "Likeness by boundary",
            "Linear CKA of the carry and the target's residual stream, fed with the text.",
            "layers",
            table=Layout(("row", "step"), "boundary", form=".2f", intervals=False, counts=False),
        ),
    ),
    page="norms",
)


@dataclass(frozen=True)
class LayersProbe:
    """Text-fed chains against `count` boundaries, evenly spread up to the last."""

    name: str = "layers"
    question: str = "Is a step a deeper layer at the same row, or the next position's features?"
    shard: str = "layers"
    record = RECORD
    needs_carry = True
    count: int = 8

    def __post_init__(self) -> None:
        if self.count < 1:
            raise DriftscopeError(f"probe layers needs at least 1 boundary, got count {self.count}")

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        """Without the embeddings, which every step is given."""
        layers = pair.target.num_layers
        return tuple(sorted({max(1, round(layers * i / self.count)) for i in range(1, self.count + 1)}))

    def variants(self, pair: Pair) -> list[Variant]:
        return [Variant(VARIANT, "clean", {"boundaries": list(self.boundaries(pair))})]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        def carries(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"carry": values["carry"].clone()}

        chains = subject.chains("text", measure=carries, sites=("carry",))
        anchors = subject.anchors.cpu().numpy()[~subject.looping]
        if not len(anchors):
            return {"similarity": pd.DataFrame(columns=list(COLUMNS))}
        carried = [as_floats(step["carry"])[~subject.looping] for step in chains]
        rows = []
        for boundary in self.boundaries(subject.pair):
            features = as_floats(subject.capture.boundaries[boundary])
            rows += compare(subject.capture.prompt_id, boundary, carried, features, anchors)
        return {"similarity": pd.DataFrame(rows, columns=list(COLUMNS))}

    def cost(self, depth: int) -> float:
        return 1.0


COLUMNS = ("variant", "feed", "prompt", "step", "boundary", "row", "anchors", "cka", "sum_cos")


def compare(
    prompt: str, boundary: int, carried: list[Floats], features: Floats, anchors: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Rows of the `similarity` table of one boundary: carries [anchor, hidden] per step against features [position, target
    hidden]. There is no cosine where the widths differ."""
    first = int(anchors[0])
    used = features[first : int(anchors[-1]) + len(carried) + 1]
    grams = used @ used.T
    alike = carried[0].shape[1] == features.shape[1]
    rows = []
    for step, carry in enumerate(carried, start=1):
        own = carry @ carry.T
        for name, row in (("next", anchors + step), ("same", anchors + step - 1), ("anchor", anchors)):
            place = row - first
            rows.append(
                {
                    "variant": VARIANT,
                    "feed": "text",
                    "prompt": prompt,
                    "step": step,
                    "boundary": boundary,
                    "row": name,
                    "anchors": len(anchors),
                    "cka": linear_cka(own, grams[np.ix_(place, place)]),
                    "sum_cos": cosines(carry, features[row]).sum() if alike else np.nan,
                }
            )
    return rows


def linear_cka(first: Floats, second: Floats) -> float:
    """Linear CKA from two Gram matrices [n, n] of the same n items: 0 in the mean for unrelated ones, at most about 1; NaN
    with fewer than 8 items or without variance."""
    if len(first) < MIN_ANCHORS:
        return np.nan
    scale = unbiased_hsic(first, first) * unbiased_hsic(second, second)
    return float(unbiased_hsic(first, second) / np.sqrt(scale)) if scale > 0 else np.nan


def unbiased_hsic(first: Floats, second: Floats) -> float:
    """HSIC_1 of two Gram matrices [n, n], n > 3, up to a factor that depends on n only."""
    n = len(first)
    one, other = first - np.diag(first.diagonal()), second - np.diag(second.diagonal())
    sums, others = one.sum(0), other.sum(0)
    trace = (one * other).sum()
    return float(trace + sums.sum() * others.sum() / ((n - 1) * (n - 2)) - 2 * (sums @ others) / (n - 2))


def cosines(first: Floats, second: Floats) -> Floats:
    """Of the rows of two matrices [n, width]."""
    sizes = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.divide((first * second).sum(1), sizes, out=np.zeros(len(first)), where=sizes > 0)


def as_floats(values: Tensor) -> Floats:
    """Float64 on the CPU: the estimator subtracts sums of n squared entries from one another."""
    return values.detach().cpu().double().numpy()


PROBE = LayersProbe()
