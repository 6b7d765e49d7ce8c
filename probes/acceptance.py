"""Acceptance: how many drafted tokens survive verification?

Read from the clean chains: joint and conditional acceptance with their denominators, the anchor mean, and the served length
of the walk t <- t + accepted + 1, the only one that compares with a serving engine.
"""

from __future__ import annotations

from driftscope.probes.clean import CleanProbe

PROBE = CleanProbe("acceptance", "How many drafted tokens survive verification, step by step?")
