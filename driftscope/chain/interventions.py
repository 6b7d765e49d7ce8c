"""What may be done to a chain at a site. Interventions touch chain rows only and go through observe()."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from driftscope.drafter.norms import rms


@runtime_checkable
class Intervention(Protocol):
    """Overwrites one site. Tensors that hold one entry per anchor are sliced with `rows`, the chunk's anchors."""

    @property
    def site(self) -> str:
        """Name of the site."""
        ...

    def acts(self, step: int) -> bool:
        """Whether this step (from 1) is touched."""

    def __call__(self, value: Tensor, step: int, rows: slice) -> Tensor:
        """The new value of the site, of the same shape."""


@dataclass(frozen=True)
class Noise:
    """Gaussian noise of scale alpha * RMS(row): value + alpha * rms(value) * noise."""

    site: str
    alpha: float
    noise: Float[Tensor, "depth anchor width"]
    """Standard normal, drawn for the whole prompt, so that chunks of anchors cannot change it."""
    first_step: int = 1
    last_step: int | None = None

    def acts(self, step: int) -> bool:
        """Whether this step (from 1) is touched."""
        return self.alpha != 0 and step >= self.first_step and (self.last_step is None or step <= self.last_step)

    def __call__(self, value: Tensor, step: int, rows: slice) -> Tensor:
        noise = self.noise[step - 1, rows].to(value.device)
        return (value.float() + self.alpha * rms(value)[:, None] * noise).to(value.dtype)


@dataclass(frozen=True)
class PinRMS:
    """Rescale every row of the site to a given RMS."""

    site: str
    target: Float[Tensor, " anchor"]
    first_step: int = 1

    def acts(self, step: int) -> bool:
        """Whether this step (from 1) is touched."""
        return step >= self.first_step

    def __call__(self, value: Tensor, step: int, rows: slice) -> Tensor:
        wanted = self.target[rows].to(value.device)
        scale = wanted / rms(value).clamp_min(torch.finfo(torch.float32).tiny)
        return (value.float() * scale[:, None]).to(value.dtype)


@dataclass(frozen=True)
class PinHeadRMS:
    """Rescale the rows of a per-head site (queries, keys, values) to one RMS per head."""

    site: str
    target: Float[Tensor, " head"]
    first_step: int = 1

    def acts(self, step: int) -> bool:
        """Whether this step (from 1) is touched."""
        return step >= self.first_step

    def __call__(self, value: Tensor, step: int, rows: slice) -> Tensor:
        scale = self.target.to(value.device) / rms(value).clamp_min(torch.finfo(torch.float32).tiny)
        return (value.float() * scale[..., None]).to(value.dtype)
