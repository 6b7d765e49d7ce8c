"""Short names of checkpoints and targets, and run folders named after them."""

from __future__ import annotations

import itertools
from pathlib import Path

_WEIGHT_SUFFIXES = {".pt", ".pth", ".bin", ".safetensors"}
_GENERIC = {"model", "pytorch_model", "draft_model", "checkpoint", "weights"}


def short_name(path: str | Path) -> str:
    """The part of a path or Hub id that tells it from others: `eagle3.1` of `drafters/eagle3.1/model.safetensors`.

    A path without such a part is resolved first, so that `.` has the name of the folder.
    """
    parts = [part for part in Path(path).parts if part not in ("/", ".", "..")] or list(Path(path).resolve().parts)
    last = Path(parts[-1])
    if last.suffix not in _WEIGHT_SUFFIXES:
        return last.name
    return parts[-2] if last.stem in _GENERIC and len(parts) > 1 and parts[-2] != "/" else last.stem


def fresh_run(checkpoint: str | Path, root: Path = Path("runs")) -> Path:
    """A folder for a new run that is not there yet: `runs/eagle3.1`, `runs/eagle3.1-2`, ..."""
    name = short_name(checkpoint)
    candidates = itertools.chain([root / name], (root / f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in candidates if not path.exists())
