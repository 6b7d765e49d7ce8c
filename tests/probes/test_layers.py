"""Steps that are made to look like something are found to; unrelated features give a CKA of 0."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from driftscope.chain.pair import Pair
from driftscope.errors import DriftscopeError
from driftscope.figures import layers_figures
from driftscope.figures.layers import sentence
from driftscope.probes.layers import LayersProbe, compare, linear_cka, unbiased_hsic
from driftscope.runs.schema import tables as all_tables
from tests.probes import planted

PROMPTS = 12
SETTINGS = dataclasses.replace(planted.SETTINGS, depth=3)
PROBE = LayersProbe(count=3)
# Unrelated directions for the tokens, so that neighbours do not resemble one another.
EMBEDDING = torch.randn(planted.TOKENS, planted.WIDTH, generator=torch.Generator().manual_seed(1))


def copier() -> Pair:
    """Its carry at step k is the embedding of token t+k."""
    return planted.planted_pair(torch.eye(planted.WIDTH), planted.ZERO, embed_tokens__weight=EMBEDDING)


def keeper() -> Pair:
    """Its carry at every step is the feature that the chain started from."""
    return planted.planted_pair(planted.ZERO, torch.eye(planted.WIDTH))


def figures(pair: Pair, deepest: str, prompts: int = PROMPTS):  # type: ignore[no-untyped-def]
    """Boundaries 1 and 2 are noise; 3 holds what `deepest` says about the tokens, in another basis and another scale."""
    parts = []
    turn = torch.linalg.qr(planted.random_rows(-1, planted.WIDTH)).Q * 7
    for number in range(prompts):
        tokens = torch.randint(0, planted.TOKENS, (60,), generator=torch.Generator().manual_seed(number))
        final = planted.random_rows(number, 60)
        last: Tensor = {
            "token": EMBEDDING[tokens],
            "next token": EMBEDDING[tokens.roll(-1)],
            "final": final,
            "noise": planted.random_rows(900 + number, 60),
        }[deepest]
        boundaries = {b: planted.random_rows(1000 * b + number, 60) for b in (1, 2)} | {3: last @ turn}
        subject = planted.subject(pair, number, SETTINGS, length=60, tokens=tokens, final=final, boundaries=boundaries)
        parts.append(PROBE.measure(subject)["similarity"])
    table = all_tables()["similarity"]
    return layers_figures(table.frame(table.conform(pd.concat(parts, ignore_index=True))), resamples=200)


@pytest.mark.parametrize(
    ("pair", "deepest", "looks", "words"),
    [
        (copier(), "token", ["next"] * 3, "steps 2 to 3 look like the next position's features"),
        (copier(), "next token", ["same"] * 3, "steps 2 to 3 look like a deeper layer at the same row"),
        (
            keeper(),
            "final",
            ["same", "anchor", "anchor"],
            "steps 2 to 3 look like the anchor that the chain started from",
        ),
        (copier(), "noise", ["neither"] * 3, "steps 2 to 3 look like neither the next position's features nor"),
    ],
    ids=["next position", "same row", "anchor", "neither"],
)
def test_what_a_step_was_made_to_look_like_is_found(pair: Pair, deepest: str, looks: list[str], words: str) -> None:
    found = figures(pair, deepest)
    assert [step["looks_like"] for step in found["steps"]] == looks
    assert found["sentence"].startswith(words)
    if looks[1] != "neither":
        for step, row in zip(found["steps"], looks, strict=True):
            assert step["best"][row]["boundary"] == 3
            assert step["best"][row]["cka"]["mean"] == pytest.approx(1.0, abs=1e-6)
    for step in found["steps"]:
        for entry in step["cka"]["next"][:2]:
            assert abs(entry["mean"]) < 0.1


def test_cosines_are_of_the_row_that_is_named() -> None:
    features = planted.random_rows(5, 30).double().numpy()
    anchors = np.array([3, 4, 7, 9, 10, 11, 12, 14])
    rows = {
        (row["step"], row["row"]): row
        for row in compare("p", 2, [features[anchors + 1], features[anchors + 1]], features, anchors)
    }
    assert rows[1, "next"]["sum_cos"] == pytest.approx(8)
    assert rows[2, "same"]["sum_cos"] == pytest.approx(8)
    assert rows[1, "next"]["cka"] == rows[2, "same"]["cka"] == pytest.approx(1)
    assert rows[1, "same"] == rows[1, "anchor"] | {"row": "same"}
    assert abs(rows[2, "next"]["sum_cos"]) < 4
    other = compare("p", 2, [features[anchors + 1]], features[:, :5], anchors)
    assert np.isnan([row["sum_cos"] for row in other]).all()
    assert np.isfinite([row["cka"] for row in other]).all()


def test_cka_is_0_for_unrelated_features_though_they_outnumber_the_items() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        one, other = rng.normal(size=(20, 60)), rng.normal(size=(20, 60))
        found.append(linear_cka(one @ one.T, other @ other.T))
    # The biased estimator gives about 0.75 here.
    assert abs(np.mean(found)) < 0.05


def test_cka_ignores_rotation_scale_and_offset_and_needs_items() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(20, 6))
    other = 3 * one @ np.linalg.qr(rng.normal(size=(6, 6)))[0] + 5
    assert linear_cka(one @ one.T, other @ other.T) == pytest.approx(1)
    assert np.isnan(linear_cka(one[:7] @ one[:7].T, other[:7] @ other[:7].T))
    assert np.isnan(linear_cka(one @ one.T, np.ones((20, 20))))


def test_hsic_is_the_average_over_quadruples() -> None:
    """Song et al., equation 4: the definition that the closed form sums up."""
    rng = np.random.default_rng(1)
    n = 6
    one, other = (part @ part.T for part in rng.normal(size=(2, n, 3)))
    total = []
    for i in range(n):
        for j in set(range(n)) - {i}:
            for q in set(range(n)) - {i, j}:
                for r in set(range(n)) - {i, j, q}:
                    total.append(one[i, j] * (other[i, j] + other[q, r] - 2 * other[i, q]))
    assert unbiased_hsic(one, other) / (n * (n - 3)) == pytest.approx(np.mean(total))


def test_few_prompts_are_not_measurable_and_loops_are_left_out() -> None:
    found = figures(copier(), "token", prompts=2)
    assert [step["looks_like"] for step in found["steps"]] == ["not measurable"] * 3
    boundaries = {b: planted.random_rows(b) for b in (1, 2, 3)}
    rows = PROBE.measure(planted.subject(copier(), 0, SETTINGS, boundaries=boundaries, loop=range(12, 40)))
    assert rows["similarity"].empty
    kept = PROBE.measure(planted.subject(copier(), 0, SETTINGS, boundaries=boundaries, loop=range(30, 40)))
    assert set(kept["similarity"]["anchors"]) == {12}
    assert (
        layers_figures(all_tables()["similarity"].frame(all_tables()["similarity"].conform(rows["similarity"]))) == {}
    )


@pytest.mark.parametrize(
    ("layers", "count", "expected"), [(30, 8, (4, 8, 11, 15, 19, 22, 26, 30)), (3, 8, (1, 2, 3)), (5, 1, (5,))]
)
def test_boundaries_are_spread_up_to_the_last(layers: int, count: int, expected: tuple[int, ...]) -> None:
    pair = SimpleNamespace(target=SimpleNamespace(num_layers=layers))
    assert LayersProbe(count=count).boundaries(pair) == expected  # type: ignore[arg-type]


def test_no_boundary_is_refused() -> None:
    with pytest.raises(DriftscopeError, match="at least 1 boundary"):
        LayersProbe(count=0)


def test_steps_that_look_alike_are_told_together() -> None:
    assert sentence(["same", "next", "next", "neither"]) == (
        "steps 2 to 3 look like the next position's features; step 4 looks like neither the next position's features nor a "
        "layer at the same row"
    )
