"""Words that screens show for the names of tables."""

from __future__ import annotations

BUCKET_NAMES = {
    "sink": "sink",
    "prompt": "prompt",
    "committed": "committed",
    "drafted": "drafted",
    "current": "current",
    "self_generated": "self-generated",
    "virtual": "virtual sink",
}
UNIT_NAMES = {"rms": "RMS", "l2": "L2 norm"}
"""A norm by its unit: L2 = RMS * sqrt(width)."""
