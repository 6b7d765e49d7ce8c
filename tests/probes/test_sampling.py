"""Sampling acceptance against its definition, and where it must be 1."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from driftscope.errors import DriftscopeError
from driftscope.probes.clean import CleanProbe
from driftscope.probes.sampling import target_probs, with_sampling
from tests import tiny
from tests.closeness import assert_same
from tests.probes import planted
from tests.tiny_target import ROUNDED


@pytest.mark.numeric("plain")
def test_equal_distributions_accept_everything_at_any_temperature() -> None:
    pair = planted.from_embedding()
    tokens = planted.capture().token_ids
    subject = planted.subject(pair, final=planted.UNITS[tokens])
    for temperature in (0.3, 1.0, 4.0):
        for step in subject.chains("text", measure=with_sampling(subject, temperature)):
            assert_same(step["sampling"], torch.ones(len(subject.anchors)), **ROUNDED)


@pytest.mark.numeric("plain")
@pytest.mark.parametrize("budget", [1 << 28, 4000])
def test_it_is_the_sum_of_the_smaller_probabilities_at_the_position_that_is_predicted(budget: int) -> None:
    config = dataclasses.replace(tiny.CONFIG, aux_boundaries=(1, 2, 3))
    tensors = tiny.weights(config)
    head = torch.randn(config.vocab_size, config.hidden_size, generator=torch.Generator().manual_seed(9))
    pair = planted.as_pair(config, tensors)
    pair.target = SimpleNamespace(num_layers=3, head=lambda hidden: hidden @ head.T)  # type: ignore[assignment]
    made = {
        "tokens": torch.randint(0, 60, (40,), generator=torch.Generator().manual_seed(2)),
        "final": planted.random_rows(1),
        "boundaries": {b: planted.random_rows(b) for b in (1, 2, 3)},
    }
    subject = planted.subject(pair, settings=dataclasses.replace(planted.SETTINGS, budget=budget), **made)
    temperature = 0.7
    found = subject.chains("text", measure=with_sampling(subject, temperature))

    def logits(step: int, rows: slice, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"logits": values["logits"].clone()}

    for k, step in enumerate(subject.chains("text", measure=logits, sites=("logits",)), start=1):
        q = torch.zeros(len(subject.anchors), 60)
        q[:, pair.drafter.target_ids] = (step["logits"] / temperature).softmax(-1)
        p = (made["final"][subject.anchors + k] @ head.T / temperature).softmax(-1)
        assert_same(found[k - 1]["sampling"], torch.minimum(p, q).sum(-1), **ROUNDED)
        assert 0 < float(found[k - 1]["sampling"].mean()) < 1


@pytest.mark.numeric("plain")
def test_probabilities_are_of_the_whole_vocabulary() -> None:
    target = SimpleNamespace(head=lambda hidden: hidden)
    hidden = planted.random_rows(0, 600)
    wanted = torch.tensor([3, 1, 7])
    expected = (hidden / 2).softmax(-1)[:, wanted]
    assert_same(target_probs(target, hidden, wanted, 2.0), expected, terms=600)  # type: ignore[arg-type]


def test_clean_rows_have_it_text_fed_only_and_say_the_temperature() -> None:
    probe = CleanProbe("acceptance", "?", temperature=0.5)
    subject = planted.subject(planted.from_embedding())
    rows = probe.measure(subject)["anchors"]
    assert rows.loc[rows["feed"] == "drafted", "sampling"].isna().all()
    assert np.isfinite(rows.loc[rows["feed"] == "text", "sampling"]).all()
    assert probe.variants(subject.pair)[0].parameters == {"temperature": 0.5}
    with pytest.raises(DriftscopeError, match="temperature 0"):
        CleanProbe("acceptance", "?", temperature=0.0)
