"""Norms: does the carried state grow, and does one aux feature dominate the fused input?

Read from the clean chains: RMS per target boundary, aux feature, site and step; growth against step 1 and against the
position-matched baseline; the share of each aux block in the fused input.
"""

from __future__ import annotations

from driftscope.probes.clean import CleanProbe, in_steps
from driftscope.probes.record import INTERVALS, Caption, Layout, Record

_SITES = Layout(("site",), "step", form=".3g", intervals=False, counts=False)
_FACTORS = Layout(("site",), "step", form=".2f", intervals=False, counts=False)

RECORD = Record(
    figures=in_steps,
    printed=False,
    heading="Norms: does the carried state grow, does one aux feature dominate?",
    pictures=(
        Caption(
            "carry",
            "Size of the carried state",
            "{unit} of the state that a step hands to the next, log scale, behind that of the rows before the chain, which are "
            "made from real target features. With a post-norm carry it is flat by construction.",
            "norms",
            table=Layout(("where",), None, head="{unit}", form=".4g"),
        ),
        Caption(
            "jumps",
            "Where growth arises",
            "Left: RMS of each site at step 2 over step 1, the last row made from real target features. Right: factor per step "
            "behind it. Sites in the order of computation, log scale, 1 is no change. A jump alone is a drafter that has to get "
            f"used to its own state, a slope is drift; {INTERVALS}.",
            "jumps",
            table=Layout(("site",)),
        ),
        Caption(
            "sites",
            "Size at every site of the drafter",
            "{unit} by site, in the order of computation, and step; colours on a log scale. Empty: the site does not run.",
            "sites",
            table=_SITES,
        ),
        Caption(
            "sites-growth",
            "Size at every site, against step 1",
            "RMS over that of the same chain's own step 1; colours on a log scale. Empty: the site does not run.",
            "sites",
            {"mode": "growth"},
            _FACTORS,
            asked=True,
        ),
        Caption(
            "sites-matched",
            "Size at every site, against no drafting",
            "RMS over that of the same site at the same position with real target features: 1 is no drift.",
            "sites",
            {"mode": "matched"},
            _FACTORS,
        ),
        Caption(
            "boundaries",
            "Size of the target's residual stream",
            "{unit} by boundary (residual stream after so many layers), log scale, sink positions apart; dashed rules mark the "
            f"boundaries that the drafter reads; {INTERVALS}.",
            "boundaries",
            table=Layout(("boundary",), "region", form=".3g", counts=False),
        ),
        Caption(
            "aux",
            "Aux features",
            "{unit} of each feature that the drafter reads, before and after its own norm, and the share of its block in the "
            "fused input (L2 of the block over the sum of the blocks' L2).",
            "aux",
            # Two lines of the table per feature: sink positions apart.
            table=Layout(("boundary", "region"), form=".3g", counts=False),
        ),
        Caption(
            "cosines",
            "Direction of the carried state",
            "Cosine with the step before, and with the carry at the same position without drafting.",
            "cosines",
            table=Layout(("step",), counts=False),
        ),
        Caption(
            "updates",
            "Size of updates",
            "RMS of what attention and MLP add, over the residual that they add it to: as the residual grows, it shrinks.",
            "updates",
            table=Layout(("step",), counts=False),
        ),
    ),
    page="norms",
)

PROBE = CleanProbe("norms", "Does the carried state grow from step to step, and does one aux feature dominate?", RECORD)
