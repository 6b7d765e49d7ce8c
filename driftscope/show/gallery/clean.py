"""Pictures of the clean chains: overview, norms, attention, acceptance."""

from __future__ import annotations

from collections.abc import Iterator

from driftscope.show import frames
from driftscope.show.charts import acceptance, attention, norms
from driftscope.show.charts.jumps import jumps
from driftscope.show.charts.overview import overview
from driftscope.show.frames import Runs
from driftscope.show.frames.jumps import jump_sentences
from driftscope.show.gallery.picture import INTERVALS, Picture, View
from driftscope.show.gallery.tables import bucket_table, figures_table, ranking_table, step_table, with_bucket_names


def overview_pictures(view: View) -> Iterator[Picture]:
    """The one picture."""
    figures = frames.step_figures(view.runs, depth=view.depth)
    if figures.empty:
        return
    yield Picture(
        "overview",
        "overview",
        "Growth, attention and excess",
        "Top: RMS of the carried state over its own step 1, and over the same position without drafting, log scale. "
        "Middle: where attention is, by part of the context. Bottom: the same minus what the drafter does at that position "
        f"from real target features. Dashed rules mark onsets; {INTERVALS}.",
        overview(figures, view.onsets),
        step_table(figures, ["growth", "matched_growth", "displacement"], {"growth": ".2f", "matched_growth": ".2f"}),
    )


def norm_pictures(view: View) -> Iterator[Picture]:
    """Sizes by site, boundary and aux feature."""
    sizes = frames.site_norms(view.runs)
    carry = frames.carry_norms(view.runs)
    if len(carry):
        yield Picture(
            "carry",
            "norms",
            "Size of the carried state",
            "RMS of the state that a step hands to the next, log scale, behind that of the rows before the chain, which are made "
            "from real target features. With a post-norm carry it is flat by construction.",
            norms.carry(carry),
            figures_table(carry, ["where"], head="RMS", form=".4g"),
        )
    yield from jump_pictures(view.runs)
    if len(sizes):
        yield Picture(
            "sites",
            "norms",
            "Size at every site of the drafter",
            "RMS by site, in the order of computation, and step; colours on a log scale. Empty: the site does not run.",
            norms.sites(sizes),
            figures_table(sizes, ["site"], "step", form=".3g", intervals=False, counts=False),
        )
        matched = frames.site_norms(view.runs, "matched")
        yield Picture(
            "sites-matched",
            "norms",
            "Size at every site, against no drafting",
            "RMS over that of the same site at the same position with real target features: 1 is no drift.",
            norms.sites(matched, "matched"),
            figures_table(matched, ["site"], "step", form=".2f", intervals=False, counts=False),
        )
    yield from _target_norms(view)
    for name, title, about, frame, draw in (
        (
            "cosines",
            "Direction of the carried state",
            "Cosine with the step before, and with the carry at the same position without drafting.",
            frames.cosines(view.runs),
            norms.cosines,
        ),
        (
            "updates",
            "Size of updates",
            "RMS of what attention and MLP add, over the residual that they add it to: as the residual grows, it shrinks.",
            frames.update_ratios(view.runs),
            norms.updates,
        ),
    ):
        if len(frame):
            table = figures_table(frame, ["step"], "quantity", counts=False)
            yield Picture(name, "norms", title, about, draw(frame), table)


def jump_pictures(runs: Runs, feed: str = "drafted") -> Iterator[Picture]:
    """At which site growth arises."""
    frame = frames.site_jumps(runs, feed)
    if len(frame):
        yield Picture(
            "jumps",
            "norms",
            "Where growth arises",
            "Left: RMS of each site at step 2 over step 1, the last row made from real target features. Right: factor per step "
            "behind it. Sites in the order of computation, log scale, 1 is no change. A jump alone is a drafter that has to get "
            f"used to its own state, a slope is drift; {INTERVALS}.",
            jumps(frame),
            figures_table(frame, ["site"], "quantity"),
            tuple(f"{run}: {text}" for run, text in jump_sentences(frame)),
        )


def _target_norms(view: View) -> Iterator[Picture]:
    boundaries = frames.layer_norms(view.runs)
    if len(boundaries):
        yield Picture(
            "boundaries",
            "norms",
            "Size of the target's residual stream",
            "RMS by boundary (residual stream after so many layers), log scale, sink positions apart; dashed rules mark the "
            f"boundaries that the drafter reads; {INTERVALS}.",
            norms.boundaries(boundaries),
            figures_table(boundaries, ["boundary"], "region", form=".3g", counts=False),
        )
    aux = frames.aux_norms(view.runs)
    if len(aux):
        # Two lines of the table per feature: sink positions apart.
        yield Picture(
            "aux",
            "norms",
            "Aux features",
            "RMS of each feature that the drafter reads, before and after its own norm, and the share of its block in the fused "
            "input (L2 of the block over the sum of the blocks' L2).",
            norms.aux(aux),
            figures_table(aux, ["boundary", "region"], "quantity", form=".3g", counts=False),
        )


def attention_pictures(view: View) -> Iterator[Picture]:
    """Masses, excess, heads, entropy."""
    figures = frames.step_figures(view.runs, depth=view.depth)
    held = set(figures["quantity"])
    if "mass" in held:
        yield Picture(
            "attention",
            "attention",
            "Where attention is",
            "Share of attention by part of the context, mean over layers and heads; the parts are disjoint and add up to 1.",
            attention.stacked(figures),
            bucket_table(figures, "mass", ".3f"),
        )
    if "excess" in held:
        yield Picture(
            "excess",
            "attention",
            "Attention beyond no drafting",
            "Mass minus the mass on the same positions without drafting; 0 at step 1 by construction.",
            attention.excess(figures, view.onsets, split=True),
            bucket_table(figures, "excess", "+.3f"),
        )
    if "displacement" in held:
        yield Picture(
            "displacement",
            "attention",
            "Attention that moved",
            "Half the sum of absolute excess over the parts, per head, then the mean over heads: 0 none, 1 all of it.",
            attention.displacement(figures, view.onsets),
            step_table(figures, ["displacement"]),
        )
    keys = frames.per_key(view.runs)
    if len(keys):
        yield Picture(
            "per-key",
            "attention",
            "Attention per key",
            "Mass over the part's share of the keys, log scale: 1 is what attention without preference gives.",
            attention.per_key(keys),
            figures_table(with_bucket_names(keys), ["step"], "bucket", form=".2f"),
        )
    ranking = frames.head_ranking(view.runs)
    if len(ranking):
        cells = frames.head_masses(view.runs, kinds=["excess"], buckets=["self_generated"], intervals=False)
        yield Picture(
            "heads",
            "attention",
            "Heads, strongest drift first",
            "Excess on self-generated tokens by head and step; right: at the last step with its interval. p is adjusted for "
            "having looked at every head.",
            attention.heads(cells, ranking),
            ranking_table(ranking),
        )
    if "entropy" in held:
        yield Picture(
            "entropy",
            "attention",
            "Entropy of attention",
            "In nats, mean over layers and heads.",
            attention.entropy(figures),
            step_table(figures, ["entropy"]),
        )


def acceptance_pictures(view: View) -> Iterator[Picture]:
    """Acceptance by step, survival, served lengths, confidence."""
    figures = frames.step_figures(view.runs, depth=view.depth)
    if not len(figures):
        return
    yield Picture(
        "acceptance",
        "acceptance",
        "Acceptance by step",
        "Conditional: of the chains whose earlier steps were all accepted; a gap where too few reach the step. Joint: of all "
        "chains, what vLLM calls per-position acceptance.",
        acceptance.acceptance(figures),
        step_table(figures, ["conditional", "joint"]),
    )
    survival = frames.survival(view.runs, view.depth)
    yield Picture(
        "survival",
        "acceptance",
        "Survival of chains",
        "Share with at least k accepted tokens: of the rounds that an engine serves, and of the chains from every position.",
        acceptance.survival(survival),
        figures_table(survival, ["step"], "quantity", counts=False),
    )
    lengths = frames.served_lengths(view.runs, view.depth)
    if len(lengths):
        yield Picture(
            "lengths",
            "acceptance",
            "Served lengths",
            "Drafted tokens accepted in a round along the walk that an engine takes, without the bonus token.",
            acceptance.lengths(lengths),
            figures_table(lengths.rename(columns={"length": "accepted"}), ["accepted"], head="share of rounds"),
        )
    for name, title, about, frame, draw in (
        (
            "confidence",
            "Confidence",
            "Mean probability that the drafter gives to its own token and to the target's.",
            frames.confidence(view.runs),
            acceptance.confidence,
        ),
        (
            "sampling",
            "Sampling acceptance",
            "Sum over tokens of min(p, q): the share accepted when both models are sampled; fed with the text.",
            frames.sampling(view.runs, view.depth),
            acceptance.sampling,
        ),
    ):
        if len(frame):
            columns = "quantity" if "quantity" in frame else None
            yield Picture(name, "acceptance", title, about, draw(frame), figures_table(frame, ["step"], columns))
