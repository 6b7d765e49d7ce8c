"""One rule a code: a finding, why it could not be asked, or None where the figures are within the thresholds.

A module holds all that makes its findings: words, thresholds, rule (`FINDINGS`).
"""

from driftscope.findings.registry import register
from driftscope.findings.rules import acceptance, attention, cost, data, fused, length, noise, norms, template

MODULES = (norms, attention, fused, noise, acceptance, template, length, cost, data)

register(*(coded for module in MODULES for coded in module.FINDINGS))
