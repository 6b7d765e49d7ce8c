"""In which numbers a device multiplies: a CPU without instructions for half precision does it in float32.

There the same product takes 4 to 7 times as long in bfloat16 as in float32, conversion included (docs: what it costs). Every
value that it reads and returns is a half-precision one either way, and sums are in float32 either way.
"""

from __future__ import annotations

import os
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

INSTRUCTIONS = {
    torch.bfloat16: ("amx_bf16", "avx512_bf16", "bf16"),
    torch.float16: ("amx_fp16", "avx512_fp16", "fp16_arith"),
}
"""Names of torch.cpu.get_capabilities() that stand for products in this type, on x86 and ARM."""
_ONEDNN_WITH_HALF = ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")


@cache
def instructions(dtype: torch.dtype) -> tuple[str, ...]:
    """The instructions of this CPU for products in `dtype`, without those that ONEDNN_MAX_CPU_ISA switches off. Of a torch that
    cannot tell, none."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
    if not any(name in allowed for name in _ONEDNN_WITH_HALF):
        return ()
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return tuple(name for name in INSTRUCTIONS.get(dtype, ()) if capabilities.get(name))


def product_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a CPU multiplies tensors of `dtype` in."""
    return torch.float32 if dtype in INSTRUCTIONS and not instructions(dtype) else dtype


def matmul(a: Float[Tensor, "*batch row inner"], b: Float[Tensor, "*batch inner column"]) -> Tensor:
    """a @ b, rounded to their dtype once."""
    if a.device.type == "cpu" and product_dtype(a.dtype) != a.dtype:
        return (a.float() @ b.float()).to(a.dtype)
    return a @ b
