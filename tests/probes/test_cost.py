"""Drafters that drift in one known way: all of the cost is found there, and nothing of it elsewhere."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from typing import Any, cast

import pandas as pd
import pytest
import torch
from torch import Tensor

from driftscope.chain.chain import Text
from driftscope.chain.patches import FACTORS
from driftscope.drafter import Drafter
from driftscope.drafter.site import Site
from driftscope.errors import DriftscopeError
from driftscope.figures import cost_figures, rejection_figures
from driftscope.probes.cost import PROBE, CostProbe
from driftscope.probes.options import configured
from driftscope.probes.stacked import spread_anchors
from driftscope.runs.schema import tables as all_tables
from tests import tiny
from tests.plain_chain import grown_text
from tests.probes import planted
from tests.test_patched_chains import EAGLE1, made_subject

PROMPTS = 12
NOTHING = {"mean": 0.0, "low": 0.0, "high": 0.0}
Tables = dict[str, pd.DataFrame]


class Faithful(Drafter):
    """An EAGLE-3 drafter with its own attention and MLP that hands on what the next row's real features fuse to, `factor` times as
    large after every step: without a factor it does not drift."""

    features: Tensor
    factor = 1.0
    steps = 0
    """Of the chain so far."""

    def fuse(self, features: Tensor) -> Tensor:
        self.steps = 0
        return super().fuse(features)

    def step(self, state: Tensor, token_ids: Tensor, positions: Tensor, attend: Any) -> Tensor:
        self.steps += 1
        self.ahead = positions + 1
        return super().step(state, token_ids, positions, attend)

    def leave(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        plain = [torch.nn.Identity()] * self.config.num_aux
        ahead = self.ahead.clamp(max=len(self.features) - 1)
        return self.factor**self.steps * self._combined(self.features[ahead], plain, plain), super().leave(residual)[1]


class ToNewest(Site):
    """Takes a share of the attention of every drafted row and gives it to the newest key."""

    def __init__(self, drafter: Faithful, share: float) -> None:
        super().__init__()
        self.owner, self.share = [drafter], share

    def forward(self, value: Tensor) -> Tensor:
        if self.owner[0].steps < 2:
            return value
        moved = value * (1 - self.share)
        moved[..., -1] += self.share
        return moved


class Foreign(Site):
    """Gives every drafted row the value of another prompt's row at this position."""

    def __init__(self, drafter: Faithful, values: Tensor) -> None:
        super().__init__()
        self.owner, self.values = [drafter], values

    def forward(self, value: Tensor) -> Tensor:
        return value if self.owner[0].steps < 2 else self.values[self.owner[0].ahead - 1]


def faithful(**changes: Any) -> Faithful:
    drafter = tiny.drafter(tiny.CONFIG, tiny.weights(tiny.CONFIG))
    drafter.__class__ = Faithful
    made = cast(Faithful, drafter)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def told(parts: list[Tables]) -> Tables:
    """As a run would return them."""
    joined = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    return {name: all_tables()[name].frame(all_tables()[name].conform(rows)) for name, rows in joined.items()}


@functools.cache
def texts(number: int) -> Text:
    """The rows of real features are the same whatever is planted in the chains: one set of texts serves all."""
    drafter = faithful(features=torch.zeros(1, 3 * tiny.CONFIG.target_hidden_size))
    return grown_text(drafter, length=26, seed=10 + number, share=0.9)


def prompts_of(drafter: Faithful, probe: CostProbe) -> Tables:
    parts = []
    for number in range(PROMPTS):
        text = texts(number)
        drafter.features = text.features
        subject = made_subject(drafter, text=text, prompt_id=f"p{number}")
        parts.append(probe.measure(subject))
    return told(parts)


def measured(drafter: Faithful, probe: CostProbe = PROBE) -> tuple[dict[str, Any], dict[str, Any]]:
    tables = prompts_of(drafter, probe)
    cost = cost_figures(tables["anchors"], resamples=200)
    return cost, rejection_figures(tables["rejections"], cost["depth"], resamples=200)


def only_in(cost: dict[str, Any], ends: dict[str, Any], factor: str) -> None:
    """All of a cost beyond doubt lies in one factor, whichever way it is asked, and every drifted rejection there."""
    assert cost["cost"]["low"] > 0.05
    for name in FACTORS:
        for way in ("alone", "last", "shapley"):
            assert cost[name][way] == (cost["cost"] if name == factor else NOTHING), (name, way)
    assert ends[factor]["low"] > 0
    assert {ends[name]["mean"] for name in FACTORS if name != factor} == {0.0} == {ends["several"]["mean"]}


def test_a_faithful_carry_costs_nothing() -> None:
    cost, ends = measured(faithful())
    assert 0.2 < cost["actual"]["mean"] < 3.8
    for entry in (cost, *cost["by_depth"], *cost["steps"]):
        assert entry["cost"] == NOTHING
        assert all(entry[factor][way] == NOTHING for factor in FACTORS for way in entry[factor])
    assert ends["vocabulary"]["mean"] + ends["drafter"]["mean"] == pytest.approx(1)
    assert ends["gained"] == NOTHING


def test_a_carry_that_equals_the_next_features_costs_nothing() -> None:
    """Made of weights alone: features are a function of the token that the row before embeds. Some tokens it does not know."""
    head = (planted.SUCCESSOR @ planted.UNITS)[: planted.TOKENS].clone()
    head[[3, 11, 12]] = 0
    pair = planted.planted_pair(torch.eye(planted.WIDTH), planted.ZERO, lm_head__weight=head)
    subjects = [planted.subject(pair, n, final=planted.UNITS[planted.capture(n).token_ids]) for n in range(PROMPTS)]
    tables = told([PROBE.measure(subject) for subject in subjects])
    cost = cost_figures(tables["anchors"], resamples=200)
    assert cost["cost"] == NOTHING == cost["share"]
    assert 0 < cost["actual"]["mean"] < planted.SETTINGS.depth
    assert all(cost[factor][way] == NOTHING for factor in FACTORS for way in ("alone", "last", "shapley"))


def test_a_scaled_carry_costs_through_the_state_and_there_through_its_size() -> None:
    """The state is normed before attention: pattern and values do not notice, what it is added to does."""
    cost, ends = measured(faithful(factor=4.0), CostProbe(depth=2, split_state=True))
    only_in(cost, ends, "state")
    for way in ("alone", "last", "shapley"):
        assert cost["state_rms"][way] == cost["cost"]
        assert cost["state_direction"][way] == NOTHING


def test_attention_moved_to_the_newest_key_costs_through_the_pattern() -> None:
    drafter = faithful()
    drafter.layers[0].attention = ToNewest(drafter, 0.6)
    only_in(*measured(drafter), "pattern")


def test_values_of_another_prompt_cost_through_the_values() -> None:
    drafter = faithful()
    drafter.features = texts(PROMPTS).features
    other = made_subject(drafter, text=texts(PROMPTS)).passed.prefix[0].values
    drafter.layers[0].v = Foreign(drafter, torch.cat([other, other], 1).transpose(0, 1).contiguous())
    only_in(*measured(drafter), "values")


def test_a_step_counts_the_chains_that_are_alive() -> None:
    cost, ends = measured(faithful(factor=4.0))
    steps, reasons = cost["steps"], ends["steps"]
    assert [step["alive"] for step in steps] == [step["alive"] for step in reasons]
    assert steps[0]["alive"] == cost["anchors"]
    assert steps[0]["cost"] == NOTHING
    for step, why in zip(steps, reasons, strict=True):
        failed = sum(why[name]["mean"] for name in ("vocabulary", "target_undecided", "drafter", *FACTORS, "several"))
        assert 1 - step["actual"]["mean"] == pytest.approx(failed)
    lost = sum(figure["mean"] for figure in ends["lost"].values())
    assert cost["actual"]["mean"] + lost == pytest.approx(cost["depth"])


def planted_ends(cut: set[int], wrong: set[int], ties: dict[int, set[int]]) -> tuple[Tables, Counter[str]]:
    """A drafter that knows the next token, but cannot draft those of `cut` and fails at those of `wrong`; a target that is
    undecided before the positions of `ties`, by prompt. And how many anchors end for which reason."""
    kept = [token for token in range(planted.TOKENS) if token not in cut]
    head = (planted.SUCCESSOR @ planted.UNITS)[kept].clone()
    head[[kept.index(token) for token in wrong]] = 0
    config = dataclasses.replace(planted.CONFIG, draft_vocab_size=len(kept), vocab_map="index")
    tensors = planted.planted_pair(torch.eye(planted.WIDTH), planted.ZERO).drafter.state_dict()
    pair = planted.as_pair(config, {**tensors, "lm_head.weight": head, "d2t": torch.tensor(kept)})
    # as_pair's target has the drafter's head; the target proper has every token.
    full = planted.UNITS[: planted.TOKENS]
    pair.target.head = lambda hidden: hidden @ full.T  # type: ignore[method-assign]
    parts, expected = [], Counter[str]()
    for number in range(PROMPTS):
        subject = planted.subject(pair, number, final=planted.UNITS[(planted.capture(number).token_ids + 1) % 20])
        subject.capture.near_tie[[place - 1 for place in ties.get(number, ())]] = True
        parts.append(PROBE.measure(subject))
        ids = subject.capture.token_ids.tolist()
        for anchor in spread_anchors(subject, 16).anchors.tolist():
            ahead = range(anchor + 2, anchor + 2 + planted.SETTINGS.depth)
            end = next((place for place in ahead if ids[place] in cut | wrong), None)
            if end is not None:
                undecided = "target_undecided" if end in ties.get(number, ()) else "drafter"
                expected["vocabulary" if ids[end] in cut else undecided] += 1
    return told(parts), expected


def test_a_cut_vocabulary_ends_exactly_those_chains() -> None:
    tables, expected = planted_ends(cut={2, 9}, wrong=set(), ties={})
    ends = rejection_figures(tables["rejections"], planted.SETTINGS.depth, resamples=200)
    assert ends["vocabulary"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert ends["rejected"] == expected["vocabulary"] > 20
    assert tables["rejections"]["rank"].isna().all()
    assert cost_figures(tables["anchors"], resamples=50)["cost"] == NOTHING


def test_reasons_are_asked_in_their_order() -> None:
    ties = {number: {18, 19, 20, 24} for number in range(6)}
    tables, expected = planted_ends(cut={4}, wrong={10, 17}, ties=ties)
    assert len(expected) == 3
    rows = tables["rejections"]
    assert Counter(rows["reason"].dropna().astype(str)) == expected
    ends = rejection_figures(rows, planted.SETTINGS.depth, resamples=200)
    for name, count in expected.items():
        assert ends[name]["mean"] == pytest.approx(count / expected.total())
    # The target puts e on its unit vector's token and 1 on the other 19.
    e = float(torch.e)
    assert rows["target_prob"].dropna().tolist() == pytest.approx([e / (e + 19)] * expected.total(), rel=1e-6)
    later = rejection_figures(rows, 1, resamples=50)
    assert later["rejected"] == int((rows["step"] == 1).sum()) < ends["rejected"]


def test_anchors_in_loops_are_left_out_of_figures() -> None:
    pair, length = planted.from_state(), 40
    subjects = [planted.subject(pair, n, loop=range(20, length) if n % 2 else ()) for n in range(PROMPTS)]
    tables = told([PROBE.measure(subject) for subject in subjects])
    kept = int((~tables["rejections"]["loop"]).sum())
    assert 0 < kept < len(tables["rejections"])
    assert cost_figures(tables["anchors"], resamples=50)["anchors"] == kept
    assert rejection_figures(tables["rejections"], 4, resamples=50)["anchors"] == kept


def test_texts_that_are_not_confirmed_have_tokens_but_no_cost() -> None:
    subject = planted.subject(planted.from_state())
    subject.capture = dataclasses.replace(subject.capture, greedy=False)
    tables = told([PROBE.measure(subject)])
    assert list(tables) == ["anchors"]
    assert tables["anchors"]["match"].isna().all()
    assert tables["anchors"]["drafted"].notna().all()
    assert cost_figures(tables["anchors"]) == {}


def test_options() -> None:
    def set_to(**options: Any) -> CostProbe:
        return cast(CostProbe, configured([PROBE], {f"cost.{name}": value for name, value in options.items()})[0])

    assert set_to(anchors="all").anchors == "all"
    assert set_to(anchors="4", depth="3", split_state="true") == CostProbe(anchors=4, depth=3, split_state=True)
    with pytest.raises(DriftscopeError, match="at least 1 anchor"):
        set_to(anchors="0")
    with pytest.raises(DriftscopeError, match=r"cost\.anchors=few"):
        set_to(anchors="few")
    with pytest.raises(DriftscopeError, match="asks for 7 steps, anchors have 6 ahead: raise --horizon"):
        CostProbe(depth=7).measure(planted.subject(planted.from_state()))
    pair = planted.from_state()
    anchors = [len(CostProbe(anchors=n).measure(planted.subject(pair))["rejections"]) for n in (4, "all")]
    assert anchors == [4, len(planted.subject(pair).anchors)]
    every = planted.subject(pair).anchors.tolist()
    chosen = {
        spread: CostProbe(anchors=4, spread=spread).measure(planted.subject(pair))["rejections"]["anchor"].tolist()
        for spread in (True, False)
    }
    assert chosen[False] == every[:4]
    assert chosen[True][0] > every[0]
    assert len({*chosen[True]} & {*every}) == 4
    assert set_to(spread="false").spread is False
    names = [variant.name for variant in PROBE.variants(pair)]
    assert names[0] == "cost/own"
    assert names[-1] == "cost/real"
    assert len(names) == 8


def test_eagle1_is_patched_where_it_adds_its_embedding() -> None:
    """Its residual holds the embedding: a state made real must meet the token of the text."""
    config = dataclasses.replace(tiny.CONFIG, **EAGLE1)
    drafter = tiny.drafter(config, tiny.weights(config))
    parts = []
    for number in range(PROMPTS):
        text = grown_text(drafter, seed=50 + number, share=0.9)
        parts.append(PROBE.measure(made_subject(drafter, text=text, prompt_id=f"p{number}")))
    cost = cost_figures(told(parts)["anchors"], resamples=100)
    total = sum(cost[factor]["shapley"]["mean"] for factor in FACTORS)
    assert total == pytest.approx(cost["cost"]["mean"], abs=1e-12)
    assert cost["cost"]["mean"] > 0
