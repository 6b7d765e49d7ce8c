"""One rule a code: a finding, why it could not be asked, or None where the figures are within the thresholds."""

from __future__ import annotations

from collections.abc import Callable

from driftscope.findings.measured import Measured
from driftscope.findings.model import Finding, NotMeasured
from driftscope.findings.rules import acceptance, attention, cost, data, fused, length, noise, norms, template

Outcome = Finding | NotMeasured | None
Rule = Callable[[Measured], Outcome]

RULES: dict[str, Rule] = {
    "DS101": norms.growth,
    "DS102": attention.drift,
    "DS103": fused.imbalance,
    "DS104": noise.fragility,
    "DS105": acceptance.depth_collapse,
    "DS106": template.sensitivity,
    "DS107": length.breaks,
    "DS108": acceptance.dispersion,
    "DS110": cost.drift_cost,
    "DS111": cost.limit,
    "DS301": data.loops,
    "DS302": data.vocabulary,
    "DS303": data.few_prompts,
    "DS304": data.near_ties,
    "DS305": data.left_out,
    "DS306": data.no_sink,
}
