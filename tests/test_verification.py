"""Rules of verification against closed forms and against sums over all paths."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from driftscope.chain.verification import distribution, joint_acceptance, step_acceptance
from driftscope.chain.verification_rules import Sampling, SamplingPair, sampling, sampling_pair
from driftscope.errors import DriftscopeError


def test_one_step() -> None:
    p, q = torch.tensor([[0.6, 0.2, 0.1, 0.1]]), torch.tensor([[0.7, 0.2, 0.05, 0.05]])
    found = {name: float(value) for name, value in step_acceptance(p, q).items()}
    assert found == pytest.approx({"exact_match": 0.47, "one_hot": 0.6, "lossless": 0.9, "block": 0.9})


def lengths(p: torch.Tensor, q: torch.Tensor, steps: int) -> dict[str, float]:
    """Expected accepted tokens where every step has the same p and q: the estimates, weighted by the chance of each path."""
    total = dict.fromkeys(("exact_match", "one_hot", "lossless", "block"), 0.0)
    for path in itertools.product(range(len(p)), repeat=steps):
        ids = torch.tensor(path)
        found = joint_acceptance(p[ids][None], q[ids][None], (ids == int(q.argmax()))[None])
        for name, value in found.items():
            total[name] += float(p[ids].prod() * value.sum())
    return total


def block_length(p: torch.Tensor, q: torch.Tensor, steps: int) -> float:
    """Block verification as its algorithm runs: of every path that the draft samples, the longest prefix that passes."""
    expected = 0.0
    for path in itertools.product(range(len(p)), repeat=steps):
        ids = torch.tensor(path)
        accept, passes = 1.0, []
        for i, token in enumerate(path):
            accept = min(1.0, accept * float(p[token] / q[token]))
            rest = float((accept * p - q).clamp(min=0).sum())
            passes.append(accept if i == steps - 1 else 0.0 if rest == 0 else rest / (rest + 1 - accept))
        stays = 1.0
        for i in range(steps - 1, -1, -1):
            expected += float(q[ids].prod()) * stays * passes[i] * (i + 1)
            stays *= 1 - passes[i]
    return expected


def test_two_steps_by_token_and_by_block() -> None:
    p, q = (torch.tensor(part, dtype=torch.float64) for part in ((1 / 3, 2 / 3), (2 / 3, 1 / 3)))
    found = lengths(p, q, 2)
    assert found["lossless"] == pytest.approx(10 / 9)
    assert found["block"] == pytest.approx(11 / 9)


@pytest.mark.parametrize("seed", range(3))
def test_estimates_are_the_sums_over_all_paths(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(3, generator=generator, dtype=torch.float64).mul(1.5).softmax(0) for _ in range(2))
    found, steps = lengths(p, q, 3), 3
    once = {name: float(value) for name, value in step_acceptance(p[None], q[None]).items()}
    for name in ("exact_match", "one_hot", "lossless"):
        assert found[name] == pytest.approx(sum(once[name] ** k for k in range(1, steps + 1)))
    assert found["block"] == pytest.approx(block_length(p, q, steps))
    assert found["block"] >= found["lossless"] - 1e-12


def test_lossless_sampling_with_the_same_distribution_accepts_all() -> None:
    p = torch.tensor([[0.1, 0.2, 0.7]])
    assert float(step_acceptance(p, p)["lossless"]) == pytest.approx(1.0)


def test_sampling_is_what_transformers_makes_of_the_logits() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    assert torch.allclose(distribution(logits, Sampling()), logits.softmax(-1))
    assert torch.allclose(distribution(logits, Sampling(0.5)), (logits * 2).softmax(-1))
    top = distribution(logits, Sampling(top_k=2))[0]
    assert top[2:].tolist() == [0.0, 0.0]
    assert float(top[0]) == pytest.approx(1 / (1 + math.exp(-1)))
    nucleus = distribution(logits, Sampling(top_p=0.6))[0]
    assert nucleus.tolist() == [1.0, 0.0, 0.0, 0.0]
    before = torch.tensor([[0, 3]])
    penalised = distribution(logits, Sampling(penalty=2.0), before)
    assert torch.allclose(penalised, torch.tensor([[1.0, 1.0, 0.0, -2.0]]).softmax(-1))


def test_halved_logits_are_a_draft_temperature_of_2() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal((logits / 2).argmax(-1), logits.argmax(-1))
    assert torch.allclose(distribution(logits / 2, Sampling()), distribution(logits, Sampling(2.0)))


def test_samplings_are_read_by_name() -> None:
    assert sampling("t0.7,k50,p0.9,r1.1") == Sampling(0.7, 50, 0.9, 1.1)
    assert sampling_pair("t0.7/t1") == SamplingPair(Sampling(0.7), Sampling(1.0))
    assert sampling_pair("t0.7,p0.9").name == "t0.7,p0.9/t0.7,p0.9"
    for text in ("", "0.7", "t0", "t-1", "p1.5", "k2.5", "t1,t2", "tnan", "tinf"):
        with pytest.raises(DriftscopeError, match="sampling"):
            sampling_pair(text)
