"""DS110 and DS111: whether drift costs accepted tokens, and what limits the drafter where it is not drift."""

from __future__ import annotations

from driftscope.findings.advice import DRIFT_PAPER, EAGLE31, FEWER, TTT
from driftscope.findings.cost import DRIFT, PATHS, REASONS, DriftCost
from driftscope.findings.cost_words import cost_sentence
from driftscope.findings.measured import AT_ONCE, Measured
from driftscope.findings.model import Coded, Definition, Evidence, Finding, NotMeasured
from driftscope.findings.registry import definition
from driftscope.findings.words import percent
from driftscope.stats.intervals import Interval

NOT_RUN = "the cost probe was not run"
_FEW = "the cost has no interval: too few prompts"

LIMITS = {
    "vocabulary": (
        "the draft vocabulary lacks the token",
        "Rebuild the draft vocabulary from texts like those that you serve, or enlarge it, and train the head again.",
    ),
    "drafter": (
        "the drafter is wrong with real states too",
        "Capacity and data: train longer and on texts like those that you serve; then a wider or deeper drafter, or more"
        " layers of the target to read.",
    ),
}
"""Reason of a rejection that is not drift -> in words, and what mends it."""


def drift_cost(measured: Measured) -> Finding | NotMeasured | None:
    """A cost whose interval lies above 0."""
    code = "DS110"
    cost = _measured(measured, code)
    if isinstance(cost, NotMeasured):
        return cost
    if cost.told == "few":
        return NotMeasured(code, _FEW)
    if cost.told != "costs":
        return None
    over = measured.over if cost.prompts is None else f"{cost.prompts} prompts"

    def evidence(name: str, figure: Interval, unit: str = "tokens") -> Evidence:
        return Evidence.of(name, figure, unit=unit, over=over)

    told = [
        evidence("accepted tokens", cost.actual),
        evidence("accepted tokens without drift", cost.undrifted),
        evidence("cost of drift", cost.cost),
    ]
    if cost.share is not None:
        told.append(evidence("cost over the undrifted length", cost.share, "share"))
    for name, path in cost.paths.items():
        for way, figure in (("", path.shapley), (", patched alone", path.alone), (", patched last", path.last)):
            told.append(evidence(f"cost through {PATHS[name]}{way}", figure))
    about = definition(code)
    return Finding(code, about.title, cost_sentence(cost), tuple(told), about.advice)


def limit(measured: Measured) -> Finding | NotMeasured | None:
    """More chains end for one reason that is not drift than through all of drift."""
    code = "DS111"
    cost = _measured(measured, code)
    if isinstance(cost, NotMeasured):
        return cost
    shares = cost.rejections
    if not shares:
        return NotMeasured(code, "the reasons of rejections were not recorded")
    if any(share.low is None for share in shares.values()):
        return NotMeasured(code, _FEW)
    largest = max(shares, key=lambda name: shares[name].mean)
    # The shares of drift added up at their upper ends: on the safe side, for they cannot all be there.
    most = sum(shares[name].high or 0.0 for name in DRIFT if name in shares)
    low = shares[largest].low
    if largest not in LIMITS or low is None or low <= most:
        return None
    drift = sum(shares[name].mean for name in DRIFT if name in shares)
    words, advice = LIMITS[largest]
    low_, high_ = (percent(end) for end in (low, shares[largest].high or 0.0))
    statement = (
        f"Of the chains that are rejected, {percent(shares[largest].mean)} (95% {low_} to {high_}) end because {words},"
        f" {percent(drift)} through drift."
    )
    evidence = tuple(Evidence.of(REASONS[name], share, unit="share") for name, share in shares.items())
    return Finding(code, definition(code).title, statement, evidence, (advice,), note=True)


def _measured(measured: Measured, code: str) -> DriftCost | NotMeasured:
    if measured.at_once:
        return NotMeasured(code, AT_ONCE)
    return NotMeasured(code, NOT_RUN) if measured.cost is None else measured.cost


FINDINGS = (
    Coded(
        Definition(
            "DS110",
            "Drift costs accepted tokens",
            meaning="Chains are accepted further when what the drafter feeds itself with (the carried state, the attention"
            " pattern, the values of its own rows) is replaced by what it would have from the target's real states: what is"
            " lost between the two is lost to drift.",
            measured="Accepted length with everything its own against everything real, from the same anchors, paired by"
            " prompt; the interval lies above 0. Each path alone, last, and as its Shapley value; the three values add up to"
            " the cost.",
            limits="One path patched into a chain that adapted to the others can hurt: where alone and last differ in sign,"
            " no single number describes that path. A cost of drift says which path to mend, not which training mends it.",
            advice=(EAGLE31, TTT, FEWER),
            probes=("cost",),
            sources=("Shapley, A Value for n-Person Games (1953)", DRIFT_PAPER),
        ),
        drift_cost,
    ),
    Coded(
        Definition(
            "DS111",
            "The drafter, not drift, is what limits",
            meaning="Most chains end for a reason that is there without any drift: the draft vocabulary lacks the token, or"
            " the drafter is wrong with real states too. Curing drift cannot mend these.",
            measured="Every chain that is rejected has one reason, in the order vocabulary, target undecided, drafter, drift;"
            " the largest lies, at the lower end of its interval, above all of drift together.",
            limits="A note: nothing is wrong with the checkpoint.",
            advice=tuple(advice for _, advice in LIMITS.values()),
            probes=("cost",),
        ),
        limit,
    ),
)
"""What is looked for here: its words, its rule, and its limits with the reason for each default."""
