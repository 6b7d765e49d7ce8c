"""DS103: one target feature dominates what the drafter reads."""

from __future__ import annotations

import numpy as np
import pandas as pd

from driftscope import stats
from driftscope.findings.advice import DRIFT_PAPER
from driftscope.findings.measured import Measured
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.registry import definition
from driftscope.findings.words import counted, listed, percent, plain, with_interval
from driftscope.runs.summary import CLEAN
from driftscope.stats.intervals import Floats

CODE = "DS103"


def imbalance(measured: Measured) -> Finding | NotMeasured | None:
    """A block of the fused input, or the RMS of a feature, beyond the threshold, without a norm before fc."""
    rows = measured.run.table("aux", probe=CLEAN)
    rows = rows[rows["region"] != "sink"]
    if rows.empty:
        return NotMeasured(CODE, "no target features were recorded; the drafter may read none beside the final state")
    if measured.switches.get("fc_norm") or measured.switches.get("input_norm"):
        return None
    share, sizes = _per_prompt(rows, "sum_share"), _per_prompt(rows, "sum_rms")
    blocks = share.shape[1]
    if blocks < 2:
        return NotMeasured(CODE, "the drafter reads one target feature")
    boundaries = rows.groupby("index")["boundary"].first().tolist()
    over = f"{counted(len(share), 'prompt')}, {counted(int(rows['positions'].sum()) // blocks, 'position')}"

    top, widest = int(np.nanmean(share, 0).argmax()), int(np.nanmean(sizes, 0).argmax())
    largest = stats.bca(share, resamples=measured.resamples)
    # share -> weight of the block over the mean weight of the others, increasing in the share.
    dominance = largest.map(lambda part: part / ((1 - part) / (blocks - 1))).at(top)
    others = np.delete(sizes, widest, axis=1).mean(1)
    ratio = stats.bca(np.log(sizes[:, widest] / others)[:, None], resamples=measured.resamples).map(np.exp).at(0)
    if dominance is None or ratio is None:
        return NotMeasured(CODE, "the shares of the features were not recorded")

    limits = measured.thresholds
    dominated, uneven = (
        dominance.mean > limits["fused_dominance"] and (dominance.low is None or dominance.low > 1),
        ratio.mean > limits["aux_rms_dominance"] and (ratio.low is None or ratio.low > 1),
    )
    if not dominated and not uneven:
        return None
    shares = [largest.at(block) for block in range(blocks)]
    evidence = [
        Evidence.of(
            "largest block of the fused input over the mean of the others",
            dominance,
            unit="x",
            over=over,
            threshold=limits["fused_dominance"] if dominated else None,
        ),
        Evidence.of(
            "largest feature's RMS over the mean of the others",
            ratio,
            unit="x",
            over=over,
            threshold=limits["aux_rms_dominance"] if uneven else None,
        ),
    ]
    for block, part in enumerate(shares):
        if part is not None:
            evidence.append(Evidence.of(f"share of boundary {boundaries[block]}", part, unit="share", over=over))
            size = Evidence(
                f"RMS at boundary {boundaries[block]}", float(np.nanmean(sizes[:, block])), unit="RMS", over=over
            )
            evidence.append(size)
    sized = listed([plain(float(np.nanmean(sizes[:, block]))) for block in range(blocks)])
    held = listed([percent(part.mean) for part in shares if part is not None])
    uneven_by = f"the largest {with_interval(ratio, 'x')} the mean of the others"
    statement = f"The target features that fc reads have RMS {sized}, {uneven_by}"
    statement += f" and no norm evens them out; after fc, they make up {held} of the fused input"
    statement += (
        f": boundary {boundaries[top]} dominates, {with_interval(dominance, 'x')} the mean of the others."
        if dominated
        else ": fc has learned to even them out for the most part."
    )
    about = definition(CODE)
    return Finding(CODE, about.title, statement, tuple(evidence), about.advice)


def _per_prompt(rows: pd.DataFrame, column: str) -> Floats:
    """[prompt, block]: the mean over positions."""
    sums = rows.groupby([rows["prompt"].astype(str), rows["index"]])[[column, "positions"]].sum()
    return np.asarray((sums[column] / sums["positions"]).unstack().to_numpy(np.float64))


FINDINGS = (
    Coded(
        Definition(
            "DS103",
            "Fused-input imbalance",
            meaning="The features that the drafter reads from the target differ in scale by layer. Where no norm evens them"
            " out before fc, the largest, usually the last, can dominate what the drafter sees, and training has to undo"
            " it.",
            measured="Without a norm before fc (`fc_norm`, `input_norm`): the share of each block in the fused input,"
            " |W_i a_i| over the sum of them, and the RMS of each feature, both outside the sink positions. The largest"
            " over the mean of the others is compared with the threshold.",
            limits="fc can learn to even the features out: then the RMS is uneven and the shares are not. The figures"
            " cannot tell what a norm would gain; only a checkpoint trained with it can.",
            advice=(
                "Train with FC-norm (`fc_norm`): an RMSNorm for each target feature before fc.",
                "Choose features of like scale: boundaries whose RMS is close, in the table of target layers.",
            ),
            thresholds=("fused_dominance", "aux_rms_dominance"),
            probes=("norms",),
            sources=(DRIFT_PAPER,),
        ),
        imbalance,
        (
            Threshold(
                "fused_dominance",
                2.0,
                "the largest block of the fused input over the mean of the others, after fc",
                "1 is an equal share; at 2, one of three blocks weighs as much as both others together.",
                above=1.0,
            ),
            Threshold(
                "aux_rms_dominance",
                2.0,
                "RMS of the largest target feature over the mean of the others, where no norm evens them out",
                "From the published RMS of the three features: 1.4 for Llama-3.1-8B, whose trouble is growth, 2.8 for"
                f" Qwen3.5-35B and 18 for gpt-oss-120b: {DRIFT_PAPER}. 2 lies between.",
                above=1.0,
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
