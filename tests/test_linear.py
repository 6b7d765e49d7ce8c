"""The drafter's linear layer: the product of nn.Linear, whatever happens to the weight."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from driftscope.drafter import onednn as packing
from driftscope.drafter.linear import Linear
from tests.closeness import assert_same

pytestmark = pytest.mark.numeric("packed")


@pytest.fixture
def layer() -> Linear:
    torch.manual_seed(0)
    return Linear(48, 40, bias=True)


needs_onednn = pytest.mark.skipif(not packing.works(), reason="this torch has no oneDNN linear layer")


@torch.no_grad()
def agrees(layer: Linear, *shape: int) -> None:
    x = torch.randn(*shape, 48)
    assert_same(layer(x), F.linear(x.double(), layer.weight.double(), layer.bias.double()), terms=48)


@pytest.mark.parametrize("shape", [(1,), (7,), (64,), (3, 5), ()])
def test_equals_the_plain_product(layer: Linear, shape: tuple[int, ...]) -> None:
    agrees(layer, *shape)


@needs_onednn
def test_the_copy_is_kept_and_follows_the_weight(layer: Linear) -> None:
    agrees(layer, 4)
    kept = layer._packed
    agrees(layer, 9)
    assert layer._packed is kept is not None
    with torch.no_grad():
        layer.weight.mul_(2)
    agrees(layer, 4)
    layer.weight = nn.Parameter(torch.randn(40, 48))
    agrees(layer, 4)
    layer.load_state_dict({"weight": torch.randn(40, 48), "bias": torch.randn(40)}, assign=True)
    agrees(layer, 4)
    # A freed weight's address is soon another's.
    for _ in range(20):
        layer.weight.data = torch.randn(40, 48)
        agrees(layer, 4)
    for _ in range(20):
        layer.weight = nn.Parameter(torch.randn(40, 48), requires_grad=False)
        agrees(layer, 4)
    layer.to("meta")
    with torch.no_grad():
        layer(torch.randn(2, 48, device="meta"))
    assert layer._packed is None


def test_a_step_of_an_optimizer_is_seen(layer: Linear) -> None:
    agrees(layer, 4)
    layer(torch.randn(4, 48)).square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    agrees(layer, 4)


@needs_onednn
def test_gradients_other_dtypes_and_the_switch_take_the_plain_way(layer: Linear) -> None:
    layer(torch.randn(4, 48)).sum().backward()
    assert layer._packed is None
    assert layer.weight.grad is not None
    with torch.no_grad():
        layer.bfloat16()(torch.randn(4, 48, dtype=torch.bfloat16))
        layer.float()
        with torch.backends.mkldnn.flags(enabled=False):
            layer(torch.randn(4, 48))
    assert layer._packed is None
    with torch.inference_mode():
        made = Linear(48, 40)
        agrees(made, 4)
    assert made._packed is None


def test_it_is_copied_and_pickled_without_the_copy(layer: Linear) -> None:
    agrees(layer, 4)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other.weight, layer.weight)
        assert other._packed is None
        agrees(other, 4)
    assert list(layer.state_dict()) == ["weight", "bias"]
