"""Real features at every step, apart from which token is fed; and rows of chains of which little was read."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from driftscope.chain.patched_chains import patched_chains
from driftscope.chain.patches import REAL
from driftscope.errors import DriftscopeError
from driftscope.runs.rows import anchor_rows, head_rows, step_rows
from driftscope.runs.schema import ANCHORS, HEADS, STEPS
from tests.test_patched_chains import DEPTH, HORIZON, eagle3, made_subject

pytestmark = pytest.mark.numeric("double")


def test_a_real_step_is_step_1_at_its_row() -> None:
    """Token by token what the chains with everything patched draft, and the state of the first step there."""
    subject = made_subject(eagle3())
    real, first = subject.real_rows(DEPTH), subject.clean("text")[0]
    patched = patched_chains(subject, DEPTH)
    wanted = patched.drafted[patched.patches.index(REAL)]
    for step, found in enumerate(real):
        assert torch.equal(found["drafted"], wanted[:, step])
        assert torch.equal(found["text"], patched.text[:, step])
        # Row t + k - 1 is step 1 of a later anchor, where there is one.
        later = len(subject.anchors) - step
        assert torch.allclose(found["rms/carry"][:later], first["rms/carry"][step:])
    assert not torch.allclose(real[1]["rms/carry"], subject.clean("text")[1]["rms/carry"])
    with pytest.raises(DriftscopeError, match="raise --horizon"):
        subject.real_rows(HORIZON + 1)


def test_what_was_read_of_a_few_sites_has_the_same_rows_with_fewer_columns() -> None:
    subject = made_subject(eagle3())
    whole = subject.clean("drafted")
    some = [{name: step[name] for name in ("drafted", "text", "rms/carry")} for step in whole]
    for make, table in ((anchor_rows, ANCHORS), (head_rows, HEADS)):
        full, part = (table.conform(make(subject, "x", "drafted", steps)) for steps in (whole, some))
        if table is HEADS:
            assert part.num_rows == 0
            continue
        assert set(part.column_names) < set(full.column_names)
        held = [name for name in part.column_names if part[name].null_count == 0]
        assert "rms/carry" in held
        pd.testing.assert_frame_equal(part.select(held).to_pandas(), full.select(held).to_pandas())
    own = [{name: step[name] for name in ("drafted", "text", "excess")} for step in whole]
    heads = HEADS.conform(head_rows(subject, "x", "drafted", own))
    wanted = HEADS.conform(head_rows(subject, "x", "drafted", whole))
    assert heads["excess/current"].equals(wanted["excess/current"])
    assert heads["entropy"].null_count == heads.num_rows
    assert STEPS.conform(step_rows(subject, "x", "drafted", some, ["rms/carry"])).num_rows == len(whole)
