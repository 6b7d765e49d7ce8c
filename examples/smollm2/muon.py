"""Muon for matrices, AdamW for norms: the update rule of the example drafters.

Muon (Jordan et al. 2024; scaled as in Liu et al. 2025, "Muon is scalable for LLM training"): the momentum's nearest
orthogonal matrix, by five Newton-Schulz steps, times 0.2 sqrt(longer side). torch.optim.Muon runs those steps in bfloat16,
which is seven times slower than float32 on a CPU without bfloat16 units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
QK_SHARE = 0.15
"""The product of q and k weights grows with both: at the full rate heads end up on one key each."""


def orthogonal(x: Tensor, steps: int = 5) -> Tensor:
    """The matrix with the singular vectors of `x` and singular values near 1."""
    a, b, c = NEWTON_SCHULZ
    turned = x.shape[0] > x.shape[1]
    x = x.mT if turned else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if turned else x


class Muon(torch.optim.Optimizer):
    def __init__(self, groups: list[dict], momentum: float = 0.95, weight_decay: float = 0.1) -> None:
        super().__init__(groups, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                held = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                held.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonal(weight.grad.lerp(held, group["momentum"]))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def optimizers(model: nn.Module, lr: float = 0.0) -> list[torch.optim.Optimizer]:
    """Each group has its share of the learning rate, which `update` sets."""
    matrices = {name: p for name, p in model.named_parameters() if p.ndim == 2}
    slow = [p for name, p in matrices.items() if name.endswith(("q_proj.weight", "k_proj.weight"))]
    fast = [p for name, p in matrices.items() if not name.endswith(("q_proj.weight", "k_proj.weight"))]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    return [
        Muon(
            [
                {"params": fast, "share": 1.0, "lr": lr},
                {"params": slow, "share": QK_SHARE, "lr": lr * QK_SHARE},
            ]
        ),
        torch.optim.AdamW([{"params": vectors, "share": 1.0}], lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def update(model: nn.Module, groups: list[torch.optim.Optimizer], loss: Tensor, lr: float) -> None:
    """One step along the gradient of `loss`."""
    for group in groups:
        for inner in group.param_groups:
            inner["lr"] = lr * inner["share"]
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    for group in groups:
        group.step()
        group.zero_grad(set_to_none=True)
