"""Quantised drafters: what is read equals the stored values times their scales, worked out here in NumPy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from driftscope.checkpoints import inspect_checkpoint, open_checkpoint, open_state_dict
from driftscope.checkpoints.reading.quantised import unpack
from driftscope.errors import CheckpointError
from tests.checkpoints.layouts import stored
from tests.heads import HEADS

TENSORS, CONFIG = stored()
MATRICES = [name for name in TENSORS if "proj.weight" in name]
Parts = dict[str, Tensor]
Quantise = Callable[[str, Tensor], tuple[Parts, np.ndarray]]
"""(stem, weight) -> what is stored and what it stands for."""


def array(tensor: Tensor) -> np.ndarray:
    return tensor.float().numpy().astype(np.float32)


def expanded(scale: np.ndarray, high: int, wide: int, shape: tuple[int, int]) -> np.ndarray:
    return np.kron(scale, np.ones((high, wide), np.float32))[: shape[0], : shape[1]]


def blocks(high: int, wide: int, suffix: str = "weight_scale_inv") -> Quantise:
    def quantise(stem: str, weight: Tensor) -> tuple[Parts, np.ndarray]:
        rows, columns = weight.shape
        scale = 0.01 + torch.rand(-(-rows // high), -(-columns // wide), generator=torch.Generator().manual_seed(rows))
        factor = expanded(scale.numpy(), high, wide, (rows, columns))
        small = (weight / torch.from_numpy(factor)).to(torch.float8_e4m3fn)
        return {f"{stem}.weight": small, f"{stem}.{suffix}": scale}, array(small) * factor

    return quantise


def fp8(scale_of: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float8_e4m3fn) -> Quantise:
    def quantise(stem: str, weight: Tensor) -> tuple[Parts, np.ndarray]:
        scale = scale_of(weight)
        small = (weight / scale.reshape(-1, 1)).to(dtype)
        parts = {f"{stem}.weight": small, f"{stem}.weight_scale": scale, f"{stem}.input_scale": torch.ones(1)}
        return parts, array(small) * array(scale).reshape(-1, 1)

    return quantise


def packed(values: np.ndarray, bits: int) -> Tensor:
    """int32 [row, word] of signed [row, column], the first value in the lowest bits."""
    each = 32 // bits
    words = np.zeros((values.shape[0], -(-values.shape[1] // each)), np.uint32)
    for column in range(values.shape[1]):
        words[:, column // each] |= (values[:, column] + 2 ** (bits - 1)).astype(np.uint32) << np.uint32(
            bits * (column % each)
        )
    return torch.from_numpy(words.view(np.int32).copy())


def integers(bits: int, group: int | None, *, zero: bool = False, order: bool = False, plain: bool = False) -> Quantise:
    def quantise(stem: str, weight: Tensor) -> tuple[Parts, np.ndarray]:
        rng = np.random.default_rng(weight.shape[0])
        rows, columns = weight.shape
        size = group or columns
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        of_column = rng.permutation(columns) // size if order else np.arange(columns) // size
        scale = rng.uniform(3.0, 4.0, (rows, columns // size)).astype(np.float32) / 2 ** (bits - 1)
        middle = rng.integers(low // 4, high // 4 + 1, scale.shape) if zero else np.zeros(scale.shape, np.int64)
        wanted = np.round(weight.numpy() / scale[:, of_column]) + middle[:, of_column]
        values = np.clip(wanted, low, high).astype(np.int64)
        parts: Parts = {f"{stem}.weight_scale": torch.from_numpy(scale)}
        if plain:
            parts[f"{stem}.weight"] = torch.from_numpy(values.astype(np.int8))
        else:
            parts |= {
                f"{stem}.weight_packed": packed(values, bits),
                f"{stem}.weight_shape": torch.tensor([rows, columns]),
            }
        if zero:
            parts[f"{stem}.weight_zero_point"] = (
                torch.from_numpy(middle.astype(np.int8)) if plain else packed(middle.T, bits).T.contiguous()
            )
        if order:
            parts[f"{stem}.weight_g_idx"] = torch.from_numpy(of_column.astype(np.int32))
        return parts, (values - middle[:, of_column]).astype(np.float32) * scale[:, of_column]

    return quantise


def settings(bits: int, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, **more}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


CASES: dict[str, tuple[Quantise, dict[str, Any], str]] = {
    "DeepSeek blocks": (
        blocks(5, 7), {"quant_method": "fp8", "weight_block_size": [5, 7]}, "FP8 with a scale per block of 5 x 7",
    ),
    "blocks of the usual size": (blocks(128, 128), {}, "FP8 with a scale per tensor"),
    "blocks of compressed-tensors": (
        blocks(8, 8, "weight_scale"), settings(8, block_structure=[8, 8]), "FP8 with a scale per block of 8 x 8",
    ),
    "FP8 per tensor": (fp8(lambda w: w.abs().max() / 448), {"quant_method": "modelopt"}, "FP8 with a scale per tensor"),
    "FP8 per row": (fp8(lambda w: w.abs().amax(1, keepdim=True) / 448), {}, "FP8 with a scale per row"),
    "FP8 per row, flat": (fp8(lambda w: w.abs().amax(1) / 448), {}, "FP8 with a scale per row"),
    "FP8 with a wide exponent": (fp8(lambda w: w.abs().max() / 57344, torch.float8_e5m2), {}, "FP8 with a scale per tensor"),
    "integers of 8 bits": (integers(8, None, plain=True), settings(8), "8-bit integers with a scale per row"),
    "integers with zero points": (integers(8, None, plain=True, zero=True), settings(8), "8-bit integers with a scale per row"),
    "packed, 4 bits": (integers(4, 4), settings(4, group_size=4), "4-bit integers with a scale per group of 4"),
    "packed, per row": (integers(4, None), {}, "4-bit integers with a scale per row"),
    "packed, 8 bits": (integers(8, 4), settings(8), "8-bit integers with a scale per group of 4"),
    "packed, 2 bits": (integers(2, 4), settings(2), "2-bit integers with a scale per group of 4"),
    "packed, zero points": (integers(4, 4, zero=True), settings(4), "4-bit integers with a scale per group of 4"),
    "packed, columns reordered": (integers(4, 4, order=True), settings(4), "4-bit integers with a scale per group of 4"),
    "packed, reordered, zero points": (
        integers(4, 4, zero=True, order=True), settings(4), "4-bit integers with a scale per group of 4",
    ),
}  # fmt: skip


def quantised(quantise: Quantise, names: list[str] = MATRICES) -> tuple[Parts, dict[str, np.ndarray]]:
    tensors, expected = dict(TENSORS), {}
    for name in names:
        parts, expected[name] = quantise(name.removesuffix(".weight"), tensors.pop(name))
        tensors |= parts
    return tensors, expected


@pytest.mark.supports("dequantised", lambda case: re.sub(r" of \d+( x \d+)?$", "", CASES[case][2]))
@pytest.mark.parametrize("container", ["safetensors", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_reference_dequantisation(case: str, container: str, tmp_path: Path):
    quantise, quantization, told = CASES[case]
    tensors, expected = quantised(quantise)
    config = CONFIG | {"quantization_config": quantization}
    if container == "torch":
        torch.save(tensors, tmp_path / "model.pt")
    else:
        save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    opened = open_checkpoint(tmp_path)
    plain = open_state_dict(TENSORS, CONFIG)
    assert opened.config == plain.config
    assert opened.weights.keys() == plain.weights.keys()
    assert not opened.unused
    for canonical, name in opened.names.items():
        if name in expected:
            assert opened.weights[canonical].dtype == torch.float32
            np.testing.assert_allclose(opened.weights[canonical].numpy(), expected[name], rtol=1e-6)
            # It is that weight, to the width of a quantisation step.
            apart = np.abs(expected[name] - TENSORS[name].numpy()).mean() / np.abs(TENSORS[name].numpy()).mean()
            assert 0 < apart < 0.6
        else:
            assert opened.weights[canonical].equal(plain.weights[canonical])
    assert any(f"{len(MATRICES)} weights are stored as {told}" in warning for warning in opened.warnings)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_dtype_is_the_one_that_the_config_names(dtype: str):
    tensors, expected = quantised(blocks(8, 8))
    config = CONFIG | {"torch_dtype": dtype, "quantization_config": {"weight_block_size": [8, 8]}}
    opened = open_state_dict(tensors, config)
    name = "layers.0.mlp.up_proj.weight"
    wanted = torch.from_numpy(expected[opened.names[name]]).to(getattr(torch, dtype))
    torch.testing.assert_close(opened.weights[name], wanted)


@pytest.mark.supports("dequantised", "MTP heads of DeepSeek-V3 in FP8, experts apart")
def test_mtp_heads_in_fp8():
    """Experts and latent attention as DeepSeek-V3 publishes them: each expert's matrices apart, with scales beside them."""
    head = HEADS["DeepSeek-V3"]
    tensors, raw = stored(head.config(), head.layout)
    plain = open_state_dict(tensors, raw)
    few = [name for name in tensors if "proj" in name and tensors[name].ndim == 2 and "eh_proj" not in name]
    assert any("experts" in name for name in few)
    stored_parts, expected = dict(tensors), {}
    for name in few:
        parts, expected[name] = blocks(8, 8)(name.removesuffix(".weight"), stored_parts.pop(name))
        stored_parts |= parts
    opened = open_state_dict(
        stored_parts, raw | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 8]}}
    )
    assert opened.config == plain.config
    values = tensors | {name: torch.from_numpy(value) for name, value in expected.items()}
    wanted = open_state_dict(values, raw)
    for name, weight in wanted.weights.items():
        torch.testing.assert_close(opened.weights[name].float(), weight.float(), rtol=1e-6, atol=0, msg=name)


def test_packing_is_that_of_compressed_tensors():
    """Words that compressed_tensors.compressors.pack_to_int32 gives for -8 .. 7 in 4 bits and for 5 values in 8."""
    four = torch.tensor([[1985229328, -19088744]], dtype=torch.int32)
    assert unpack(four, 4, 16).tolist() == [list(range(-8, 8))]
    eight = torch.tensor([[-16744448, 133]], dtype=torch.int32)
    assert unpack(eight, 8, 5).tolist() == [[-128, 0, -128, 127, 5]]


UP = "midlayer.mlp.up_proj"


@pytest.mark.parametrize(
    ("parts", "quantization", "pattern"),
    [
        ({f"{UP}.weight": torch.ones(12, 16).to(torch.float8_e4m3fn)}, {}, "float8_e4m3fn without a scale .*weight_scale_inv"),
        ({f"{UP}.weight": torch.ones(12, 16, dtype=torch.int8)}, {}, "int8 without a scale"),
        ({f"{UP}.weight": torch.ones(12, 16, dtype=torch.int32)}, {}, "stored as int32, expected float16"),
        ({f"{UP}.weight": torch.ones(12, 16).to(torch.float8_e4m3fn), f"{UP}.weight_scale": torch.ones(3, 5)}, {},
         r"weight_scale has shape \[3, 5\], which fits .*up_proj.weight of \[12, 16\] neither"),
        ({f"{UP}.weight": torch.ones(12, 16).to(torch.float8_e4m3fn), f"{UP}.weight_scale": torch.ones(12, dtype=torch.int32)},
         {}, "weight_scale is stored as int32, expected a float"),
        ({f"{UP}.weight": torch.ones(12, 16).to(torch.float8_e4m3fn), f"{UP}.weight_scale_inv": torch.ones(2, 2)},
         {"weight_block_size": "128"}, "block of a scale is '128', expected two whole numbers"),
        ({f"{UP}.weight": torch.ones(12, 16).to(torch.float8_e4m3fn), f"{UP}.weight_scale": torch.full((1,), float("nan"))},
         {}, "holds 192 NaN"),
        ({f"{UP}.weight_packed": torch.ones(12, 3, dtype=torch.int32), f"{UP}.weight_shape": torch.tensor([12, 16]),
          f"{UP}.weight_scale": torch.ones(12, 1)}, {}, r"\[12, 3\]: not \[12, 16\] values of 4 or 8 bits"),
        ({f"{UP}.weight_packed": torch.ones(12, 2, dtype=torch.int32), f"{UP}.weight_shape": torch.tensor([12, 16]),
          f"{UP}.weight_scale": torch.ones(12, 1)}, settings(3), r"not \[12, 16\] values of 3 bits"),
        ({f"{UP}.weight_packed": torch.ones(12, 2, dtype=torch.int32), f"{UP}.weight_shape": torch.tensor([12, 16, 1]),
          f"{UP}.weight_scale": torch.ones(12, 1)}, {}, r"weight_shape is \[12, 16, 1\], expected the two sizes"),
        ({f"{UP}.weight_packed": torch.ones(12, 2, dtype=torch.int32), f"{UP}.weight_shape": torch.tensor([12, 16]),
          f"{UP}.weight_scale": torch.ones(12, 4), f"{UP}.weight_g_idx": torch.full((16,), 4)}, {}, "names group 4 of 4"),
        ({f"{UP}.weight_packed": torch.ones(12, 8, dtype=torch.uint8), f"{UP}.weight_scale": torch.ones(12, 1)}, {},
         "packed or sparse, quantised weights"),
        ({f"{UP}.weight": torch.ones(12, 8, dtype=torch.uint8), f"{UP}.weight_scale_2": torch.ones(1)}, {}, "NVFP4"),
    ],
)  # fmt: skip
def test_what_cannot_be_dequantised_is_refused_in_one_line(
    parts: Parts, quantization: dict[str, Any], pattern: str, tmp_path: Path
):
    tensors = {name: tensor for name, tensor in TENSORS.items() if not name.startswith(f"{UP}.")} | parts
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quantization}))
    with pytest.raises(CheckpointError, match=pattern) as caught:
        open_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_inspection_tells_how_weights_are_stored(tmp_path: Path):
    tensors, _ = quantised(blocks(8, 8))
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": {"weight_block_size": [8, 8]}}))
    found = inspect_checkpoint(tmp_path)
    assert not found.problems
    assert any("FP8 with a scale per block of 8 x 8; dequantised to float32" in warning for warning in found.warnings)
