"""Sites: named places in a drafter that hooks can read and overwrite."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Site(nn.Module):
    """Hands its input on unchanged, so that a hook on it reads and overwrites exactly this quantity."""

    def forward(self, value: Tensor) -> Tensor:
        return value


def site(root: Any, name: str) -> Any:
    """The submodule of `root` that a dotted site name stands for; AttributeError when there is none.

    Works on an nnsight envelope of the drafter as well as on the plain module.
    """
    module = root
    for part in name.split("."):
        module = module[int(part)] if part.isdigit() else getattr(module, part)
    return module
