"""Advice and a source that several codes share."""

from __future__ import annotations

DRIFT_PAPER = "arXiv 2605.09992 (Attention Drift, 2026)"
EAGLE31 = (
    "Train with the two norms of EAGLE 3.1: one on each target feature before fc (`fc_norm`) and the post-norm carry"
    " (`norm_output`). Which of the two helps on your pair is what `driftscope compare` answers, given checkpoints of"
    " each."
)
FLIP = "Flipping the switch at inference (--carry post) is a control: a drafter trained without it gets worse."
PIN = "driftscope probe CHECKPOINT --probes pin: how much of the drift of attention the magnitude causes."
TTT = (
    "Train with more unrolled steps, so that the states of later steps are seen in training: the published pre-norm"
    " drafter keeps .50 of conditional acceptance at step 16 with 8 of them and nothing with 2."
)
FEWER = "Until then draft fewer steps: those past the first step that drifts cost the most for what they bring."
