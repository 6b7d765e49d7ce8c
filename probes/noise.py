"""Noise: how much of its acceptance does the drafter keep when the carried state, or the embedding, is noisy?

Gaussian noise of scale alpha * RMS(row) is added at a site. `state` is what enters a step, before its norm, so the noise
reaches the residual too; `carry` is the same site from step 2 on, which leaves the fused input of step 1 alone; `embed` is
the token embedding. The noise of an anchor and step depends on nothing but the seed, the prompt, the anchor's position and
the width of the site: every checkpoint of one shape gets the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from driftscope.errors import DriftscopeError
from driftscope.figures.noise import noise_figures, noise_rows, noise_sentences
from driftscope.probes.base import Variant
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from driftscope.chain.chain import Feed
    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder

NoiseSite = Literal["state", "carry", "embed"]
CLEAN = "noise/clean"
TEXT_QUANTITIES = ("kl", "flip", "cos_clean")


def figures(run: RunFolder, depth: int | None) -> Figures:
    return noise_figures(run.table("steps", "noise"), run.table("variants", "noise"))


def _moved(name: str, title: str, about: str) -> Caption:
    return Caption(
        f"noise-{name}",
        title,
        f"{about}, fed with the text, by size of the noise in units of the row's RMS (alpha); {INTERVALS}.",
        "noise",
        {"quantity": name},
        Layout(("site", "alpha"), "step", intervals=False, counts=False),
    )


RECORD = Record(
    figures=figures,
    about={
        "clean": "acceptance lengths of the same anchors without noise",
        "depth": "steps of the chains",
        "sites": "by site: a level for every alpha, and the alpha at which half of a length is lost",
    },
    rows=noise_rows,
    axes=("site", "alpha", "step", "quantity"),
    sentences=noise_sentences,
    heading="Noise: how much acceptance is left when the state or the embedding is noisy?",
    pictures=(
        Caption(
            "noise-dose",
            "Length kept under noise",
            "Acceptance length as a share of the undisturbed one, by the noise's size in units of the row's RMS (square-root"
            f" scale); a cross marks where half is lost; {INTERVALS}.",
            "noise",
            table=Layout(("site", "alpha"), where={"step": 0, "quantity": ("served_kept", "anchor_mean_kept")}),
        ),
        _moved("kl", "KL by step", "KL divergence from the undisturbed draft, in nats"),
        _moved("flips", "Flips by step", "Share of top tokens that the noise changes"),
    ),
    page="noise",
)


@dataclass(frozen=True)
class NoiseProbe:
    """Drafted chains for the length kept; text-fed ones for KL(clean || noisy), top-1 flips and the cosine of the carry."""

    name: str = "noise"
    question: str = "How much acceptance is left when the carried state or the embedding is noisy?"
    shard: str = "noise"
    record = RECORD
    sites: tuple[NoiseSite, ...] = ("state", "embed")
    alphas: tuple[float, ...] = (0.1, 0.5, 1.0)
    """In units of the row's RMS."""
    seeds: int = 4
    steps: Literal["every", "first"] = "every"
    """`first`: only the first step that the site reaches, 2 for `carry`, else 1."""
    anchors: int | None = 16
    """The first so many of each prompt, so that they are consecutive; None is all."""

    def __post_init__(self) -> None:
        few = self.seeds < 1 or (self.anchors is not None and self.anchors < 1)
        if few or not self.sites or not self.alphas or min(self.alphas) < 0:
            raise DriftscopeError(
                f"noise needs a site, alphas of 0 or more, and at least 1 seed and 1 anchor; got sites {self.sites}, alphas "
                f"{self.alphas}, seeds {self.seeds}, anchors {self.anchors}"
            )

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        common = {"steps": self.steps, "anchors": self.anchors}
        return [
            Variant(CLEAN, "clean", {"anchors": self.anchors}),
            *(
                Variant(
                    self.variant(site, alpha, seed),
                    "intervention",
                    {"site": site, "alpha": alpha, "seed": seed, **common},
                )
                for site in self.sites
                for alpha in self.alphas
                for seed in range(self.seeds)
            ),
        ]

    def variant(self, site: NoiseSite, alpha: float, seed: int) -> str:
        """`noise/state/0.5/seed0`; `noise/state-first/...` where only the first step is noisy."""
        return f"noise/{site}{'' if self.steps == 'every' else '-first'}/{alpha:g}/seed{seed}"

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.probes.stacked import first_anchors

        if "carry" in self.sites and not subject.pair.config.carries:
            raise DriftscopeError("noise.sites=carry: this drafter drafts all steps at once and carries no state")
        narrow = first_anchors(subject, self.anchors)
        noise = stacked_noise(narrow, self.seeds)
        frames = [*self._feed(narrow, "drafted", noise), *self._feed(narrow, "text", noise)]
        return {"steps": pd.concat(frames, ignore_index=True)}

    def _feed(self, subject: Subject, feed: Feed, noise: Tensor) -> Iterator[pd.DataFrame]:
        """`steps` rows of the clean chains and of every variant; only text-fed ones are compared with the clean ones."""
        from driftscope.chain.interventions import Noise
        from driftscope.probes.compare import Compare
        from driftscope.probes.stacked import copy_of, stacked_anchors, stacked_chains
        from driftscope.runs.rows import step_rows

        compared = feed == "text"
        anchors = stacked_anchors(subject, self.seeds)
        carries = subject.pair.config.carries
        sites = ("carry", "logits") if compared and carries else ("logits",)
        measure = Compare(subject.pair.drafter, subject.text, anchors, keep=compared)
        # As many copies as the noisy chains have: the same shapes round the same way.
        clean = stacked_chains(subject, feed, self.seeds, measure, sites=sites)
        yield step_rows(subject, CLEAN, feed, copy_of(clean, self.seeds, 0))
        if compared:
            measure = Compare(subject.pair.drafter, subject.text, anchors, reference=clean)
        for site in self.sites:
            first = 2 if site == "carry" else 1
            last = first if self.steps == "first" else None
            for alpha in self.alphas:
                added = Noise("embed" if site == "embed" else "state", alpha, noise, first, last)
                noisy = stacked_chains(subject, feed, self.seeds, measure, sites=sites, interventions=[added])
                for seed in range(self.seeds):
                    part = copy_of(noisy, self.seeds, seed)
                    quantities = tuple(n for n in TEXT_QUANTITIES if n in part[0]) if compared else ()
                    yield step_rows(subject, self.variant(site, alpha, seed), feed, part, quantities)

    def cost(self, depth: int) -> float:
        # Only logits are read, of a few anchors: measured at about a quarter of a clean chain per feed and condition.
        share = 0.25 * self.seeds * (self.anchors or 100) / 64
        return round(2 * share * (1 + len(self.sites) * len(self.alphas)), 1)


def stacked_noise(subject: Subject, seeds: int) -> Tensor:
    """Standard normal [depth, anchor * seeds, hidden] for the stacked chains of a subject, drawn on the CPU and moved to the
    drafter's device at once."""
    import torch

    settings, width = subject.settings, subject.pair.config.hidden_size
    drawn = [
        anchor_noise(settings.seed, seed, subject.capture.prompt_id, anchor, settings.depth, width)
        for anchor in subject.anchors.tolist()
        for seed in range(seeds)
    ]
    return torch.from_numpy(np.stack(drawn, 1)).to(subject.pair.drafter.device)


def anchor_noise(run_seed: int, seed: int, prompt_id: str, anchor: int, depth: int, width: int) -> NDArray[np.float32]:
    """[depth, width]. A deeper chain begins with the noise of a shorter one."""
    named = hashlib.sha256(f"{run_seed}/{seed}/{width}/{anchor}/{prompt_id}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(named[:16], "big"))
    return generator.standard_normal((depth, width), dtype=np.float32)


PROBE = NoiseProbe()
