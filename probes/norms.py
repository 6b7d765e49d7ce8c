"""Norms: does the carried state grow, and does one aux feature dominate the fused input?

Read from the clean chains: RMS per target boundary, aux feature, site and step; growth against step 1 and against the
position-matched baseline; the share of each aux block in the fused input.
"""

from __future__ import annotations

from driftscope.probes.clean import CleanProbe

PROBE = CleanProbe("norms", "Does the carried state grow from step to step, and does one aux feature dominate?")
