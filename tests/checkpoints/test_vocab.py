"""d2t and t2d: offsets, ids, placeholders, and what they cover."""

from __future__ import annotations

import pytest
import torch

from driftscope.checkpoints import open_state_dict
from driftscope.checkpoints.reading.vocab import read_vocab_map
from driftscope.errors import CheckpointError
from tests.checkpoints.layouts import stored

IDS = torch.tensor([3, 5, 6, 20, 39])
OFFSETS = IDS - torch.arange(5)
T2D = torch.zeros(40, dtype=torch.bool).index_fill(0, IDS, True)


@pytest.mark.parametrize(
    ("d2t", "t2d", "reading", "increasing"),
    [
        (OFFSETS, T2D, "offset", True),
        (OFFSETS, None, "offset", True),
        (IDS, T2D, "index", True),
        (IDS, None, "index", True),  # read as offsets the last one would be 43
        (OFFSETS.flip(0), None, "offset", False),
        (torch.zeros(5, dtype=torch.int64), None, "placeholder", True),
        (torch.zeros(5, dtype=torch.int64), T2D, "placeholder", True),
        (torch.zeros(5, dtype=torch.int64), torch.arange(40) < 5, "offset", True),
        (torch.arange(5), None, "placeholder", True),
        (torch.arange(5), T2D, "placeholder", True),
        (torch.arange(5), torch.arange(40) < 5, "index", True),
        (torch.arange(5), (torch.arange(40) < 10) & (torch.arange(40) % 2 == 0), "offset", True),
        (torch.full((5,), 99), None, "unusable", True),
        (torch.full((5,), -9), None, "unusable", True),
    ],
)
def test_readings(d2t: torch.Tensor, t2d: torch.Tensor | None, reading: str, increasing: bool):
    found = read_vocab_map(d2t, t2d, 40)
    assert (found.reading, found.increasing) == (reading, increasing)


def test_coverage_counts_each_target_id_once():
    found = read_vocab_map(torch.tensor([3, 3, 1]), None, 12)  # ids 3, 4, 3
    assert (found.repeated, found.coverage, found.largest) == (1, 2 / 12, 4)
    assert found.to_dict()["coverage"] == 2 / 12
    assert read_vocab_map(OFFSETS, None, None).coverage is None
    agreeing = read_vocab_map(OFFSETS, T2D, None)
    assert (agreeing.t2d_agrees, agreeing.t2d_count, agreeing.target_size) == (True, 5, 40)
    assert read_vocab_map(OFFSETS, ~T2D, 40).t2d_agrees is False


def opened(**changes):
    tensors, config = stored()
    return open_state_dict({k: v for k, v in (tensors | changes).items() if v is not None}, config)


def test_what_opening_makes_of_them():
    tensors, config = stored()
    ids = tensors["d2t"] + torch.arange(10)
    assert opened().config.vocab_map == "offset"
    as_ids = opened(d2t=ids)
    assert as_ids.config.vocab_map == "index"
    assert any("holds token ids, not offsets" in warning for warning in as_ids.warnings)
    zero = opened(d2t=torch.zeros(10, dtype=torch.int64))
    assert zero.config.vocab_map == "offset"
    assert any("d2t is all zero" in warning for warning in zero.warnings)
    torn = opened(t2d=~tensors["t2d"])
    assert any("d2t and t2d disagree" in warning for warning in torn.warnings)
    (counts,) = [warning for warning in torn.warnings if "disagree" in warning]
    assert counts.endswith("t2d marks 30, lm_head has 10 rows, and 0 of the ids of d2t are marked")
    counted = opened(d2t=torch.arange(10), t2d=None)
    assert counted.config.vocab_map == "index"
    assert any("d2t is 0, 1, 2, ..., which looks like an unset default" in warning for warning in counted.warnings)
    assert opened(d2t=tensors["d2t"].int()).weights["d2t"].dtype == torch.int64
    with pytest.raises(CheckpointError, match="d2t maps outside"):
        opened(d2t=torch.full((10,), 99))
    forced = open_state_dict(tensors | {"d2t": torch.full((10,), 99)}, config, overrides={"vocab_map": "index"})
    assert forced.config.vocab_map == "index"


def test_a_map_that_is_the_identity_of_a_whole_vocabulary_is_no_map():
    tensors, config = stored()
    whole = {"d2t": torch.zeros(40, dtype=torch.int64), "lm_head.weight": torch.ones(40, 16)}
    found = open_state_dict(
        {k: v for k, v in (tensors | whole).items() if k != "t2d"}, config | {"draft_vocab_size": 40}
    )
    assert found.config.vocab_map == "none"
    assert found.warnings == ()
