"""DS104: little noise on the carried state costs much of the accepted length."""

from __future__ import annotations

import numpy as np

from driftscope import stats
from driftscope.findings.measured import AT_ONCE, Measured
from driftscope.findings.model import Evidence, Finding, NotMeasured
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
