"""Packed weights: the products of a model's linear layers, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from driftscope.drafter import onednn as packing
from driftscope.drafter.onednn import packed_products
from tests.closeness import assert_same

pytestmark = pytest.mark.numeric("packed")
needs_onednn = pytest.mark.skipif(not packing.works(), reason="this torch has no oneDNN linear layer")


class Twice(nn.Module):
    """Two layers, the second with a weight that is tied to an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.first = nn.Linear(16, 16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.first(self.embedding(ids)))


@pytest.fixture
def model() -> Twice:
    torch.manual_seed(0)
    return Twice()


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the weights that were packed."""
    shapes: list[tuple[int, ...]] = []
    plain: Callable[[Tensor], Tensor] = packing.pack

    def pack(weight: Tensor) -> Tensor:
        shapes.append(tuple(weight.shape))
        return plain(weight)

    packing.works()
    monkeypatch.setattr(packing, "pack", pack)
    return shapes


@needs_onednn
@torch.no_grad()
def test_a_model_gives_what_it_gives_otherwise_and_packs_every_weight_once(model: Twice, packed: list[object]) -> None:
    ids = torch.arange(12).view(3, 4)
    wanted = model(ids)
    with packed_products(model):
        for rows in (ids, ids[:1], ids):
            assert_same(model(rows), wanted[: len(rows)], terms=16, sums=2)
    assert packed == [(16, 16), (30, 16)]
    assert torch.equal(model(ids), wanted)


@torch.no_grad()
def test_other_weights_are_left_alone(model: Twice, packed: list[object]) -> None:
    other, x = nn.Linear(16, 4), torch.randn(2, 16)
    wanted = other(x)
    with packed_products(model):
        assert torch.equal(other(x), wanted)
        assert torch.equal(F.linear(x, other.weight), x @ other.weight.T)
    assert packed == []


def test_gradients_flow_as_ever(model: Twice, packed: list[object]) -> None:
    with packed_products(model):
        model(torch.arange(4)).sum().backward()
    assert model.first.weight.grad is not None
    assert packed == []


@pytest.mark.parametrize("case", ["too large", "half precision", "switched off", "no layer"])
@torch.no_grad()
def test_nothing_is_packed_where_it_does_not_fit(
    case: str, model: Twice, packed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.arange(4)
    chosen: nn.Module = model
    if case == "too large":
        monkeypatch.setattr(packing, "LIMIT", 4 * (16 * 16 + 30 * 16) - 1)
    elif case == "half precision":
        model.bfloat16()
    elif case == "switched off":
        monkeypatch.setattr(packing, "works", lambda: False)
    else:
        chosen = model.embedding
    wanted = model(ids)
    with packed_products(chosen):
        assert torch.equal(model(ids), wanted)
    assert packed == []
