"""The parts of the programs in benchmarks/ that a small machine can run."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import naive
from driftscope.pair import Pair
from tests.tiny_pair import CONFIG, TinyPair, save_pair

# They are programs: they import each other from their own folder.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
chain = importlib.import_module("chain")
cuda_check = importlib.import_module("cuda_check")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return save_pair(tmp_path_factory.mktemp("pair"), dataclasses.replace(CONFIG, fc_norm=True, carry="post"))


@pytest.fixture(scope="module")
def job(tiny: TinyPair) -> Any:
    return chain.Job(
        checkpoint=str(tiny.checkpoint),
        target=str(tiny.target),
        prompts=2,
        prompt_file=str(tiny.prompts),
        anchors=6,
        depth=4,
        max_new_tokens=16,
        threads=torch.get_num_threads(),
        cache=str(tiny.cache),
    )


@pytest.fixture(scope="module")
def opened(job: Any) -> tuple[Pair, Any]:
    pair, prompts = chain.opened(job)
    return pair, chain.subjects(job, pair, chain.captured(job, pair, prompts))


def test_the_three_ways_give_the_same_numbers(opened: tuple[Pair, Any]) -> None:
    pair, subjects = opened
    weights = chain.plain_weights(pair)
    ours = [chain.our_numbers(subject) for subject in subjects]
    for loop in chain.LOOPS.values():
        theirs = [chain.plain_numbers(loop, subject, weights) for subject in subjects]
        seen = chain.agreement(ours, theirs)
        assert seen["carry_rms_relative"] < 1e-5
        assert seen["mass_absolute"] < 1e-5
    assert ours[0].carry_rms.shape == (6, 4)


@pytest.mark.parametrize("name", ["carry_rms", "mass", "drafted"])
def test_other_numbers_are_not_taken_for_the_same(opened: tuple[Pair, Any], name: str) -> None:
    pair, subjects = opened
    ours = [chain.our_numbers(subjects[0])]
    theirs = chain.plain_numbers(naive.probe_cached, subjects[0], chain.plain_weights(pair))
    spoilt = getattr(theirs, name).clone()
    spoilt[2, 0] += 1
    with pytest.raises(AssertionError, match=r"differs?|draft other"):
        chain.agreement(ours, [dataclasses.replace(theirs, **{name: spoilt})])


def test_a_near_tie_ends_the_comparison_of_its_chain_only(opened: tuple[Pair, Any]) -> None:
    pair, subjects = opened
    ours = [chain.our_numbers(subjects[0])]
    theirs = chain.plain_numbers(naive.probe_cached, subjects[0], chain.plain_weights(pair))
    drafted, gap, rms = theirs.drafted.clone(), theirs.gap.clone(), theirs.carry_rms.clone()
    drafted[2, 1:] += 1
    gap[2, 1] = 1e-5
    rms[2, 2:] *= 3
    tied = dataclasses.replace(theirs, drafted=drafted, gap=gap, carry_rms=rms)
    assert chain.agreement(ours, [tied])["near_ties"] == 1
    rms[3, 2:] *= 3
    with pytest.raises(AssertionError, match="carry RMS"):
        chain.agreement(ours, [tied])


def test_plain_hooks_reduce_to_what_observe_returns(opened: tuple[Pair, Any]) -> None:
    subject = opened[1][0]
    hooked, observed = chain.hooked_chain(subject), subject.chains("drafted")
    for one, other in zip(hooked, observed, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            torch.testing.assert_close(one[name], other[name], equal_nan=True)
    assert torch.equal(chain.bare_chain(subject), torch.stack([step["drafted"] for step in observed], 1))


def test_the_scripts_capture_is_ours(job: Any, opened: tuple[Pair, Any]) -> None:
    pair, subjects = opened
    for subject in subjects:
        record = subject.capture
        prompt = record.token_ids[: record.prompt_length].tolist()
        text, features = naive.plain_capture(
            pair.target.model, prompt, job.max_new_tokens, pair.config.aux_boundaries, pair.target.eos_ids
        )
        assert torch.equal(text, record.token_ids)
        torch.testing.assert_close(features, subject.text.features)


def test_cost_is_measured() -> None:
    kept: list[torch.Tensor] = []
    cost = chain.measured(lambda: kept.append(torch.ones(16 << 20)))
    assert cost.wall > 0
    assert cost.cpu > 0
    assert cost.peak > 50


def test_drafters_that_the_plain_loops_do_not_know_are_named() -> None:
    assert naive.unknown_switches(CONFIG) == []
    assert naive.unknown_switches(dataclasses.replace(CONFIG, qk_norm=True, num_layers=2)) == [
        "num_layers = 2",
        "qk_norm = True",
    ]


def test_cuda_check_as_a_dry_run(
    tiny: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_check, "load_prompts", lambda _: chain.load_prompts(tiny.prompts))
    arguments = [str(tiny.checkpoint), "--target", str(tiny.target), "--device", "cpu", "--max-new-tokens", "16"]
    assert cuda_check.main([*arguments, "--prompts", "2", "--depth", "3", "-o", str(tmp_path / "out.json")]) == 0
    told = capsys.readouterr().out
    assert "waits in the step loop none" in told
    assert "problem" not in told
    assert (tmp_path / "out.json").is_file()


def test_cuda_check_without_a_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cuda_check.main([]) == 0
    assert capsys.readouterr().out == "no CUDA device\n"


def test_cuda_check_sees_rows_that_differ(opened: tuple[Pair, Any]) -> None:
    steps = opened[1][0].chains("text")
    other = [dict(step) for step in steps]
    assert cuda_check.compare_steps(steps, other) == (dict.fromkeys(cuda_check.ROW_TOLERANCE, 0.0), 0.0)
    other[1]["rms/layers.0.q"] = other[1]["rms/layers.0.q"] * 1.5
    other[2]["prob"] = torch.where(torch.arange(6) == 3, float("nan"), 0.5)
    other[3]["drafted"] = other[3]["drafted"] + (torch.arange(6) == 0)
    largest, share = cuda_check.compare_steps(steps, other)
    assert largest["rms"] == pytest.approx(1 / 3, abs=1e-5)
    assert largest["prob"] == float("inf")
    assert largest["mass"] == 0
    assert share == 1 / 24


def test_the_guard_covers_the_chain_and_is_lifted_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    device = SimpleNamespace(is_available=lambda: True, set_sync_debug_mode=modes.append)
    monkeypatch.setattr(cuda_check.torch, "cuda", device)

    class Waits(nn.Module):
        def forward(self) -> None:
            assert modes == ["error"]
            raise RuntimeError("called a synchronizing CUDA operation")

    module = Waits()
    with pytest.raises(RuntimeError, match="synchronizing"), cuda_check.no_sync(module) as runs:
        module()
    assert runs == [0]
    assert modes[-1] == "default"


def test_an_error_inside_the_reductions_is_seen_as_one(opened: tuple[Pair, Any]) -> None:
    pair, subjects = opened

    def waits(step: int, rows: slice, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        raise RuntimeError("called a synchronizing CUDA operation")

    with pytest.raises(RuntimeError, match="synchronizing"), cuda_check.no_sync(pair.chain) as runs:
        subjects[0].chains("drafted", measure=waits)
    assert runs == [0]
