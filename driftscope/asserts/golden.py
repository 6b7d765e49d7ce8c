"""Acceptance must be that of a golden file."""

from __future__ import annotations

import warnings
from pathlib import Path

from driftscope.asserts.outcome import Outcome, UndecidedWarning, refuse_withheld
from driftscope.from_engines.counters.model import Counters
from driftscope.from_engines.counters.reading import read_counters
from driftscope.runs.run import Run
from driftscope.serving.diagnosis import Traffic
from driftscope.serving.golden import MARGIN, gate_counters, gate_run, read_golden


def assert_matches_golden(
    found: Run | Counters | str | Path,
    golden: str | Path,
    *,
    margin: float = MARGIN,
    same_prompts: bool = False,
    allow_unknown: bool = False,
) -> Outcome:
    """A run, or what a server counted, accepts what a golden file says (`driftscope engine RUN --write-golden FILE`).

    Args:
        found: a run on the same prompts; or counters, or the file that holds them.
        golden: the golden file.
        margin: share of the length that a run may lose.
        same_prompts: the server answered the golden file's prompts, once each, greedily.
        allow_unknown: warn where too few prompts were measured to tell, instead of failing.

    Returns:
        What was found.

    Raises:
        AssertionError: less is accepted, or it cannot be told.
        GoldenError: a golden file that cannot be read.
        CountersError: counters that cannot be read.
    """
    __tracebackhide__ = True
    held = read_golden(golden)
    if isinstance(found, Run):
        refuse_withheld(found)
        gate = gate_run(found, held, margin=margin)
    else:
        counters = found if isinstance(found, Counters) else read_counters(found)
        gate = gate_counters(counters, held, Traffic(same_prompts=same_prompts))
    if gate.verdict == "passed":
        return Outcome("passed")
    message = "\n".join([f"golden file {golden}: {gate.verdict}", *gate.sentences])
    message += "\nwhat it means and what to try: driftscope explain DS405"
    if gate.verdict == "unknown" and allow_unknown:
        warnings.warn(gate.sentences[0], UndecidedWarning, stacklevel=2)
        return Outcome("unknown", message=message)
    raise AssertionError(message)
