"""What must hold of a run, for a test suite. They read the run folder alone: neither pytest nor torch is needed.

Every assertion decides on the 95% interval over prompts, never on the point: it holds where the whole interval is on the
right side of the limit, it fails (AssertionError) where the whole interval is on the wrong side, and where the interval
holds the limit, or there is none, too few prompts were measured to tell. That fails as well, with that reason, unless
`allow_unknown=True` turns it into an UndecidedWarning. What the run does not hold at all raises RunError.
"""

from driftscope.asserts.acceptance import assert_acceptance
from driftscope.asserts.attention import assert_no_attention_drift
from driftscope.asserts.baseline import MARGINS, assert_not_worse
from driftscope.asserts.bounds import Bound, Verdict
from driftscope.asserts.findings import assert_no_findings
from driftscope.asserts.golden import assert_matches_golden
from driftscope.asserts.noise import assert_noise_robust
from driftscope.asserts.norms import assert_norm_growth
from driftscope.asserts.outcome import Outcome, UndecidedWarning

__all__ = [
    "MARGINS",
    "Bound",
    "Outcome",
    "UndecidedWarning",
    "Verdict",
    "assert_acceptance",
    "assert_matches_golden",
    "assert_no_attention_drift",
    "assert_no_findings",
    "assert_noise_robust",
    "assert_norm_growth",
    "assert_not_worse",
]
