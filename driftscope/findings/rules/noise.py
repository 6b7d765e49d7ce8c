"""DS104: little noise on the carried state costs much of the accepted length."""

from __future__ import annotations

import numpy as np

from driftscope import stats
from driftscope.findings.advice import DRIFT_PAPER, EAGLE31, TTT
from driftscope.findings.measured import AT_ONCE, Measured
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured, Threshold
from driftscope.findings.noise_sums import noise_sums
from driftscope.findings.registry import definition
from driftscope.findings.words import counted, listed, percent, plain, with_interval
from driftscope.stats.contrasts import contrasts, log_half_point, relative
from driftscope.stats.intervals import MIN_PROMPTS, Interval

CODE = "DS104"


def fragility(measured: Measured) -> Finding | NotMeasured | None:
    """Half of the length is lost at less noise than the threshold."""
    if measured.at_once:
        return NotMeasured(CODE, AT_ONCE)
    noise = noise_sums(measured.run)
    if noise is None:
        return NotMeasured(CODE, "the noise probe was not run")
    if len(noise.prompts) < MIN_PROMPTS:
        return NotMeasured(CODE, f"{counted(len(noise.prompts), 'prompt')}, intervals need {MIN_PROMPTS}")
    limit, alphas = measured.thresholds["noise_half_point"], list(noise.levels)
    kept = {alpha: _kept((*sums, *noise.reference), measured.resamples) for alpha, sums in noise.levels.items()}
    shares = {alpha: share for alpha, share in kept.items() if share is not None}
    if not shares:
        return NotMeasured(CODE, "too few tokens were accepted without noise")
    half = stats.half_point(list(shares), [share.mean for share in shares.values()])
    if half == "beyond the range":
        return (
            None
            if max(alphas) >= limit
            else NotMeasured(CODE, f"half is not lost at alpha {max(alphas):g}, the most tried")
        )
    if half == "below the range":
        if min(alphas) > limit:
            return NotMeasured(CODE, f"half is lost at alpha {min(alphas):g}, the least tried")
        point = Interval(min(alphas))
        told = f"at {plain(min(alphas))} or less"
    else:
        found = (
            contrasts([noise.parts], [[1.0]], log_half_point(alphas), resamples=measured.resamples).map(np.exp).at(0)
        )
        if found is None or found.mean >= limit:
            return None
        point, told = found, f"at {with_interval(found)}"
    accepted, anchors = (float(np.nansum(part)) for part in noise.reference)
    over = f"{counted(len(noise.prompts), 'prompt')}, {counted(int(anchors), 'anchor')}, without noise {plain(accepted / anchors)}"
    evidence = [Evidence.of("alpha at which half is lost", point, unit="alpha", over=over, threshold=limit)]
    evidence += [
        Evidence.of(f"length kept at alpha {alpha:g}", share, unit="share", over=over)
        for alpha, share in shares.items()
    ]
    losses = listed([f"{percent(share.mean)} at {alpha:g}" for alpha, share in shares.items()])
    statement = (
        f"Noise on the carried state costs half of the accepted length {told} of the state's RMS; kept are {losses}."
    )
    about = definition(CODE)
    return Finding(CODE, about.title, statement, tuple(evidence), about.advice)


def _kept(parts: tuple[np.ndarray, ...], resamples: int) -> Interval | None:
    return contrasts([parts], [[1.0]], relative, resamples=resamples).at(0)


FINDINGS = (
    Coded(
        Definition(
            "DS104",
            "Noise fragility",
            meaning="Little noise on the carried state costs much of the accepted length. From step 2 on the state is the"
            " drafter's own and never exact, so a drafter that tolerates no error there cannot draft far.",
            measured="Gaussian noise of scale alpha times the RMS of each row, on the carried state; length kept in % of"
            " the clean one on the same anchors. The alpha at which half is lost, interpolated on a log scale, is compared"
            " with the threshold.",
            limits="Measured on few anchors by default. Noise on the embedding is reported beside it and is no part of"
            " the finding.",
            advice=(EAGLE31, "Add noise to the features in training, as EAGLE-1 did.", TTT),
            thresholds=("noise_half_point",),
            probes=("noise",),
            sources=(DRIFT_PAPER,),
        ),
        fragility,
        (
            Threshold(
                "noise_half_point",
                0.4,
                "scale of state noise, relative to the state's RMS, at which half of the accepted length is lost",
                "From the published lengths kept at .1, .5 and 1: half is lost at .2 for the pre-norm Llama-3.1-8B drafter and"
                f" at .6 for the post-norm one ({DRIFT_PAPER}). .4 lies between.",
            ),
        ),
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
