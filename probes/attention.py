"""Attention: does the drafter leave the sink and the prompt for its own tokens?

Read from the clean chains: bucket masses per head and step, raw, per key and as excess over the position-matched baseline;
entropy; displacement.
"""

from __future__ import annotations

from driftscope.probes.clean import CleanProbe, in_steps
from driftscope.probes.record import Caption, Layout, Record

RECORD = Record(
    figures=in_steps,
    printed=False,
    heading="Attention: does it leave the sink and the prompt for the drafter's own tokens?",
    pictures=(
        Caption(
            "attention",
            "Where attention is",
            "Share of attention by part of the context, mean over layers and heads; the parts are disjoint and add up to 1.",
            "attention",
            table=Layout(("step",), "bucket"),
        ),
        Caption(
            "excess",
            "Attention beyond no drafting",
            "Mass minus the mass on the same positions without drafting; 0 at step 1 by construction.",
            "excess",
            {"split": True},
            Layout(("step",), "bucket", form="+.3f"),
        ),
        Caption(
            "displacement",
            "Attention that moved",
            "Half the sum of absolute excess over the parts, per head, then the mean over heads: 0 none, 1 all of it.",
            "displacement",
            table=Layout(("step",)),
        ),
        Caption(
            "per-key",
            "Attention per key",
            "Mass over the part's share of the keys, log scale: 1 is what attention without preference gives.",
            "per_key",
            table=Layout(("step",), "bucket", form=".2f"),
        ),
        Caption(
            "heads",
            "Heads, largest change first",
            "Excess on {bucket} by head and step, sorted by size: above 0 it gains attention, below it loses; right: at the last "
            "step with its interval. p is adjusted for having looked at every head.",
            "heads",
            table="ranking",
        ),
        Caption(
            "head",
            "One head",
            "Share of attention by part, and the same minus that of the same position without drafting, of this head alone; bands"
            " are 95% intervals over prompts.",
            "one_head",
            table="one_head",
            asked=True,
        ),
        Caption(
            "entropy",
            "Entropy of attention",
            "In nats, mean over layers and heads.",
            "entropy",
            table=Layout(("step",)),
        ),
    ),
    page="attention",
)

PROBE = CleanProbe("attention", "Does attention leave the sink and the prompt for the drafter's own tokens?", RECORD)
