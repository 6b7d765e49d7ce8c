"""Attention: does the drafter leave the sink and the prompt for its own tokens?

Read from the clean chains: bucket masses per head and step, raw, per key and as excess over the position-matched baseline;
entropy; displacement.
"""

from __future__ import annotations

from driftscope.probes.clean import CleanProbe

PROBE = CleanProbe("attention", "Does attention leave the sink and the prompt for the drafter's own tokens?")
