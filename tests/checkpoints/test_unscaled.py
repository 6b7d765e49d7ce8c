"""Float8 values that were cast without their scale are recognised; anything that was trained is not."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from driftscope.checkpoints import inspect_checkpoint, open_checkpoint
from driftscope.checkpoints.unscaled import format_of, unscaled_float8
from tests.checkpoints.layouts import stored

GENERATOR = torch.Generator().manual_seed(0)


def trained(rows=48, columns=64):
    return torch.randn(rows, columns, generator=GENERATOR) * 0.05


def quantised(weight, kind, scale=None):
    """(float8 values, scale) as a quantiser makes them."""
    scale = weight.abs().max() / torch.finfo(kind).max if scale is None else scale
    return (weight / scale).clamp(torch.finfo(kind).min, torch.finfo(kind).max).to(kind), scale


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("kind", "word"), [(torch.float8_e4m3fn, "e4m3"), (torch.float8_e4m3fnuz, "e4m3"), (torch.float8_e5m2, "e5m2")]
)
def test_values_without_their_scale_are_recognised(kind, word, dtype):
    values, _ = quantised(trained(), kind)
    assert format_of(values.to(dtype)).startswith(word)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_what_was_trained_is_not(dtype):
    assert format_of(trained().to(dtype)) == ""
    values, scale = quantised(trained(), torch.float8_e4m3fn)
    assert format_of((values.to(torch.float32) * scale).to(dtype)) == ""


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(8, 8),
        torch.ones(8, 8),
        torch.eye(32),
        torch.full((64,), 448.0),
        torch.randint(0, 400, (8, 8)),
        quantised(trained(), torch.float8_e4m3fn)[0],
        # Cast as they are, with no scale to lose.
        trained().to(torch.float8_e4m3fn).float(),
        torch.empty(0, 4),
    ],
    ids=["zeros", "ones", "identity", "vector", "integers", "float8 itself", "small float8", "empty"],
)
def test_other_tensors_are_left_alone(tensor):
    assert format_of(tensor) == ""


def test_one_entry_off_the_grid_is_enough():
    values = quantised(trained(128, 96), torch.float8_e4m3fn)[0].float()
    assert format_of(values)
    values[77, 13] += 0.01
    assert format_of(values) == ""


def test_blocks_with_scales_of_their_own_are_recognised_by_the_largest():
    weight = trained(256, 128)
    weight[:128] *= 0.01
    parts = [quantised(block, torch.float8_e4m3fn)[0].float() for block in weight.chunk(2)]
    assert format_of(torch.cat(parts)) == "e4m3"


def test_the_line_names_tensors_as_stored():
    values = quantised(trained(), torch.float8_e4m3fn)[0].bfloat16()
    weights = {f"w{index}": values for index in range(5)} | {"fine": trained()}
    (line,) = unscaled_float8(weights, {"w0": "stored.weight"})
    assert line.startswith("stored.weight, w1, w2 and 2 more: looks like unscaled float8 (e4m3)")
    assert unscaled_float8({"fine": trained()}, {}) == []


def test_a_checkpoint_that_lost_its_scales_says_so_when_it_is_opened_and_inspected(tmp_path):
    state, content = stored()
    for name in [name for name in state if name.endswith("proj.weight")]:
        state[name] = quantised(state[name].float(), torch.float8_e4m3fn)[0].bfloat16()
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(content))
    for warnings in (open_checkpoint(tmp_path).warnings, inspect_checkpoint(tmp_path).warnings):
        assert any("looks like unscaled float8" in warning and "proj.weight" in warning for warning in warnings)
