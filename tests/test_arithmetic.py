"""In which numbers a CPU multiplies half precision, and that it is the same product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from driftscope.drafter import arithmetic
from driftscope.drafter.arithmetic import instructions, matmul, product_dtype
from driftscope.target.placement import dtype_note

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    instructions.cache_clear()
    yield
    instructions.cache_clear()


def machine(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True) | {"amx_fp16": False}, raising=False
    )


@pytest.mark.parametrize(
    ("names", "bfloat16", "float16"),
    [
        (("avx2",), torch.float32, torch.float32),
        (("avx512_bf16",), torch.bfloat16, torch.float32),
        (("amx_bf16", "avx512_fp16"), torch.bfloat16, torch.float16),
        (("bf16", "fp16_arith"), torch.bfloat16, torch.float16),
    ],
)
def test_half_precision_is_multiplied_as_such_where_the_cpu_can(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], bfloat16: torch.dtype, float16: torch.dtype
) -> None:
    machine(monkeypatch, *names)
    assert product_dtype(torch.bfloat16) == bfloat16
    assert product_dtype(torch.float16) == float16
    assert product_dtype(torch.float32) == torch.float32
    assert product_dtype(torch.float64) == torch.float64


@pytest.mark.parametrize(
    ("isa", "there"), [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_AMX", True), ("", False)]
)
def test_what_onednn_may_not_use_is_not_there(monkeypatch: pytest.MonkeyPatch, isa: str, there: bool) -> None:
    machine(monkeypatch, "amx_bf16")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    assert bool(instructions(torch.bfloat16)) == there


def test_a_torch_that_cannot_tell_multiplies_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert product_dtype(torch.bfloat16) == torch.float32


@pytest.mark.parametrize("names", [("avx2",), ("avx512_bf16",)])
def test_a_product_is_rounded_once(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    machine(monkeypatch, *names)
    torch.manual_seed(0)
    a, b = torch.randn(3, 5, 64).bfloat16(), torch.randn(3, 64, 7).bfloat16()
    exact = a.double() @ b.double()
    found = matmul(a, b)
    assert found.dtype == torch.bfloat16
    assert ((found.double() - exact).abs() <= 0.51 * torch.finfo(torch.bfloat16).eps * exact.abs() + 1e-5).all()
    whole = a.float(), b.float()
    assert torch.equal(matmul(*whole), whole[0] @ whole[1])


def test_a_line_says_what_was_chosen_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "avx2")
    assert dtype_note("float32", torch.float32, CPU) is None
    assert "float32 (auto: exact on a CPU; without bfloat16" in str(dtype_note("auto", torch.float32, CPU))
    assert "multiplies in float32" in str(dtype_note("bfloat16", torch.bfloat16, CPU))
    cuda = torch.device("cuda")
    assert dtype_note("auto", torch.bfloat16, cuda) == "dtype bfloat16 (auto: the target's own)"
    assert dtype_note("bfloat16", torch.bfloat16, cuda) is None
    arithmetic.instructions.cache_clear()
    machine(monkeypatch, "amx_bf16")
    assert "amx_bf16" in str(dtype_note("auto", torch.float32, CPU))
    assert dtype_note("bfloat16", torch.bfloat16, CPU) is None
