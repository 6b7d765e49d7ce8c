"""`eagle3` once more as a bare state dict, as some trainers leave it: no config says how it was trained.

    python examples/smollm2/bare.py build/smollm2/eagle3-bare/model.pt
    driftscope probe build/smollm2/eagle3-bare/model.pt --target build/target --rope-theta 100000

Nothing in the file tells its rope base: without `--rope-theta` it is taken for 10000, and `driftscope audit` says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

CHECKPOINT = Path(__file__).parent / "checkpoints" / "eagle3" / "model.safetensors"


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(load_file(CHECKPOINT), out)


if __name__ == "__main__":
    main()
