"""Drafters of one target on the same captures: paired differences, and what FC-norm and post-norm do in a 2 x 2."""

from driftscope.compare.captures import CompareError
from driftscope.compare.comparing import compare
from driftscope.compare.headline import cost_answer
from driftscope.compare.model import Compared, Comparison, Effect
from driftscope.compare.quantity import Quantity
from driftscope.compare.targets import OnTarget, compare_targets

__all__ = [
    "CompareError",
    "Compared",
    "Comparison",
    "Effect",
    "OnTarget",
    "Quantity",
    "compare",
    "compare_targets",
    "cost_answer",
]
