"""The parts of the programs in benchmarks/ that a small machine can run."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks import naive
from driftscope.api import probe
from driftscope.chain.pair import Pair
from driftscope.target.prompts import Prompt, load_prompts
from tests import fake_run
from tests.absent_device import DEVICE, put
from tests.closeness import assert_same, bound
from tests.tiny_pair import CONFIG, TinyPair, save_pair
from tests.tiny_target import ROUNDED

# They are programs: they import each other from their own folder.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
(
    agreeing,
    capture_cost,
    chain,
    cuda_check,
    cuda_costs,
    displacement_null,
    growth,
    made_up,
    measuring,
    repeating,
    ways,
) = map(
    importlib.import_module,
    (
        "agreeing",
        "capture_cost",
        "chain",
        "cuda_check",
        "cuda_costs",
        "displacement_null",
        "growth",
        "made_up",
        "measuring",
        "repeating",
        "ways",
    ),
)


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


@pytest.mark.numeric("plain")
def test_the_three_ways_give_the_same_numbers(opened: tuple[Pair, Any]) -> None:
    pair, subjects = opened
    weights = chain.plain_weights(pair)
    ours = [chain.our_numbers(subject) for subject in subjects]
    for loop in chain.LOOPS.values():
        theirs = [chain.plain_numbers(loop, subject, weights) for subject in subjects]
        seen = chain.agreement(ours, theirs)
        allowed = bound(1.0, **ROUNDED, dtype=torch.float32)
        assert seen["carry_rms_relative"] < allowed
        assert seen["mass_absolute"] < allowed
    assert ours[0].carry_rms.shape == (6, 4)


@pytest.mark.parametrize("way", ["eager", "cached"])
def test_the_plain_loops_stay_on_one_device(opened: tuple[Pair, Any], way: str) -> None:
    pair, subjects = opened
    text = subjects[0].text
    # Scripts index with lists, which come from the host.
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    weights, text = put(fake, [ways.plain_weights(pair), text])
    with torch.no_grad(), fake:
        made = ways.LOOPS[way](
            pair.config,
            weights,
            weights["embed_tokens.weight"],
            text.token_ids,
            text.prompt_length,
            text.features,
            subjects[0].anchors.tolist(),
            4,
            (0,),
        )
    assert all(value.device.type == DEVICE for value in vars(made).values())


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


@pytest.mark.numeric("plain")
def test_plain_hooks_reduce_to_what_observe_returns(opened: tuple[Pair, Any]) -> None:
    subject = opened[1][0]
    hooked, observed = chain.hooked_chain(subject), subject.chains("drafted")
    for one, other in zip(hooked, observed, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name], name, **ROUNDED, size=1 if name == "excess" else None)
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
        assert torch.equal(features, subject.text.features)


def test_cost_is_measured() -> None:
    kept: list[torch.Tensor] = []
    cost = measuring.measured(lambda: kept.append(torch.ones(16 << 20)))
    assert cost.wall > 0
    assert cost.cpu > 0
    assert cost.peak > 50


def test_on_a_device_clocks_wait_for_it_and_memory_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    held = iter([100, 100 + 7])
    device = SimpleNamespace(
        synchronize=lambda place: told.append("wait"),
        reset_peak_memory_stats=lambda place: told.append("reset"),
        max_memory_allocated=lambda place: next(held) * measuring.MIB,
    )
    monkeypatch.setattr(measuring.torch, "cuda", device)
    cost = measuring.measured(lambda: told.append("work"), 2, "cuda:0")
    assert cost.peak == 7
    assert told == ["wait", "reset", "work", "wait", "work", "wait"]
    told.clear()
    assert measuring.in_turn({"a": lambda: told.append("a"), "b": lambda: told.append("b")}, 1, "cuda").keys() == {
        "a",
        "b",
    }
    assert told == ["wait", "a", "wait", "wait", "b", "wait"] * 2
    assert (measuring.counted("cuda:1"), measuring.counted("cpu")) == ("wall", "cpu")


@pytest.mark.parametrize("kind", ["cpu", "wall"])
def test_growth_tells_seconds_of_the_kind_that_counts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "caller", lambda device: measuring.here)
    monkeypatch.setattr(growth, "counted", lambda device: kind)
    monkeypatch.setattr(growth, "LIMIT", {"cpu": (made_up.Size(text=80, anchors=8, depth=2, heads=3), 64)})
    place = made_up.Place(torch.get_num_threads(), dtype="float32" if kind == "cpu" else "bfloat16")
    varied = {"anchors": (4, 8, 16), "heads": (3,)}
    result = growth.benchmark(place, varied, lambda line: None)
    assert ("machine" in result) == (kind == "wall")
    found = result["grown"]["anchors"]
    assert found.keys() == {"sizes", kind, "peak_mib", f"{kind}_exponent", "peak_exponent"}
    assert min(found[kind]) > 0
    assert result["recording"]["3"] > 0
    assert result["limit"][f"chain_{kind}_seconds"] > 0
    console = Console(file=io.StringIO())
    growth.print_report(result, console)
    assert ("CPU" in console.file.getvalue()) == (kind == "cpu")


def test_only_the_operations_of_the_chains_are_counted() -> None:
    size = made_up.Size(text=80, anchors=8, depth=3, heads=3)
    place = made_up.Place(torch.get_num_threads())
    found = growth.limit(place, size, 64)
    subject = made_up.subject(size, place)
    assert len(subject.anchors) == size.anchors
    sizes = {name: part.numel() for name, part in subject.pair.drafter.named_parameters() if part.ndim == 2}
    fused = sizes.pop("fc.weight")
    del sizes["embed_tokens.weight"]
    # Every query meets all rows of the prefix, hidden ones too, and the chain's own.
    prefix = subject.passed.prefix[0].keys.shape[1]
    keys = sum(prefix + step for step in range(1, size.depth + 1))
    products = size.anchors * (size.depth * sum(sizes.values()) + fused + 2 * 64 * size.heads * keys)
    assert found["chain_gflop"] == pytest.approx(2 * products / 1e9, rel=1e-6)


def test_capture_is_set_beside_generate(job: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capture_cost, "caller", lambda device: measuring.here)
    found = capture_cost.benchmark(dataclasses.replace(job, anchors=1, depth=1, cache=str(tmp_path)))
    assert found.keys() == {"prompts", "tokens", "threads", "ours", "plain", "cpu_ratio", "goal"}
    monkeypatch.setattr(capture_cost, "counted", lambda device: "wall")
    low = dataclasses.replace(job, anchors=1, depth=1, cache=str(tmp_path), dtype="bfloat16")
    found = capture_cost.benchmark(low)
    assert found["dtype"] == "bfloat16"
    assert found["wall_ratio"] > 0


def test_drafters_that_the_plain_loops_do_not_know_are_named() -> None:
    assert naive.unknown_switches(CONFIG) == []
    assert naive.unknown_switches(dataclasses.replace(CONFIG, qk_norm=True, num_layers=2)) == [
        "num_layers = 2",
        "qk_norm = True",
    ]


def small(monkeypatch: pytest.MonkeyPatch, tiny: TinyPair) -> None:
    """Sizes for seconds, and no process but this."""
    for module in (chain, capture_cost, growth):
        monkeypatch.setattr(module, "caller", lambda device: measuring.here)
    for module in (cuda_check, ways, cuda_costs):
        monkeypatch.setattr(module, "load_prompts", lambda _: load_prompts(tiny.prompts))
    monkeypatch.setattr(growth, "VARIED", {"depth": (2, 4, 8), "heads": (3, 6, 9)})
    monkeypatch.setattr(growth, "LIMIT", {"cpu": (made_up.Size(text=80, anchors=8, depth=2, heads=3), 64)})


def test_cuda_check_as_a_dry_run(
    tiny: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch, tiny)
    asked: list[dict[str, Any]] = []

    def repeated(options: dict[str, Any], prompts: Any, seconds: float) -> dict[str, Any]:
        asked.append(options)
        return {"probes": ["clean"], "rows": 12, "differ": ["heads"]}

    monkeypatch.setattr(repeating, "repeated", repeated)
    arguments = [str(tiny.checkpoint), "--target", str(tiny.target), "--device", "cpu", "--max-new-tokens", "16"]
    arguments += ["--prompts", "2", "--depth", "3", "--anchors", "5", "-o", str(tmp_path / "out.json")]
    assert cuda_check.main(arguments) == 1
    told = capsys.readouterr().out
    assert "waits in the step loop none" in told
    assert [line for line in told.splitlines() if "problem" in line] == ["problem: deterministic runs differ in heads"]
    assert (asked[0]["device"], asked[0]["horizon"], asked[0]["anchors"]) == ("cpu", 3, 5)
    inspect.signature(probe).bind(**asked[0], deterministic=True)
    result = json.loads((tmp_path / "out.json").read_text())
    assert (
        result["bfloat16"]["bfloat16"].keys() == result["float16"]["float16"].keys() == {*result["bfloat16"]["float32"]}
    )
    apart = [result[name] for name in cuda_check.PLACES[:2]]
    assert all(found["rows"] == dict.fromkeys(agreeing.ROW_TOLERANCE, 0.0) for found in apart)
    costs = result["costs"]
    assert costs["skipped"] == []
    assert costs["failed"] == {}
    assert costs["found"].keys() == costs["seconds"].keys()
    assert {"repeated run", "chain", "capture", "growth by depth", "limit, bfloat16"} < costs["found"].keys()
    assert "plain hooks" in told
    assert "one large product" in told


def test_what_no_longer_fits_is_left_out_by_name(
    tiny: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch, tiny)
    arguments = [str(tiny.checkpoint), "--target", str(tiny.target), "--device", "cpu", "--max-new-tokens", "16"]
    arguments += ["--prompts", "1", "--depth", "3", "--budget", "0", "-o", str(tmp_path / "out.json")]
    assert cuda_check.main(arguments) == 0
    assert "left out, for they may not have fitted: repeated run, chain, capture, recording" in capsys.readouterr().out
    costs = json.loads((tmp_path / "out.json").read_text())["costs"]
    assert costs["found"] == {}
    assert len(costs["skipped"]) == 9


def test_a_part_that_fails_costs_the_others_nothing() -> None:
    def fail() -> None:
        raise RuntimeError("no such kernel\nand more")

    show = lambda found, console: console.print(found)  # noqa: E731
    parts = {"one": cuda_costs.Part(1, fail, show), "two": cuda_costs.Part(1, lambda: "made", show)}
    parts["three"] = cuda_costs.Part(1e9, fail, show)
    kept: list[dict[str, Any]] = []
    result = cuda_costs.run_parts(parts, cuda_costs.Budget(100), lambda costs: kept.append(dict(costs)), print)
    assert result["found"] == {"two": "made"}
    assert cuda_costs.problems_of(result) == ["one failed: RuntimeError: no such kernel"]
    assert result["skipped"] == ["three"]
    assert len(kept) == 3
    console = Console(file=io.StringIO())
    cuda_costs.show(result, parts, console)
    assert "made" in console.file.getvalue()


def test_two_runs_are_compared_table_by_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake_run.write_fake_run(tmp_path / "made", fake_run.NO_DRIFT)
    copied = f"import json, shutil, sys; shutil.copytree({str(made.folder)!r}, json.loads(sys.argv[1])['out'])"
    monkeypatch.setattr(repeating, "PROGRAM", copied)
    prompts = load_prompts(None)[:2]
    found = repeating.repeated({}, prompts, seconds=60)
    assert found["differ"] == []
    assert found["rows"] > 1000
    other = fake_run.write_fake_run(tmp_path / "other", dataclasses.replace(fake_run.NO_DRIFT, seed=99))
    assert "anchors" in repeating.compared(made, other)[1]
    for program, told in (("raise SystemExit('no kernel')", "probe failed: no kernel"),
                          ("import time; time.sleep(60)", "longer than 1 s")):  # fmt: skip
        monkeypatch.setattr(repeating, "PROGRAM", program)
        with pytest.raises(RuntimeError, match=told):
            repeating.repeated({}, prompts, seconds=1 if "sleep" in program else 60)


def test_the_repeated_program_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr("driftscope.api.probe", lambda **options: seen.append(options))
    monkeypatch.setattr(sys, "argv", ["-c", '{"checkpoint": "a", "deterministic": true}'])
    exec(repeating.PROGRAM, {})
    assert seen == [{"checkpoint": "a", "deterministic": True}]


def test_prompts_are_written_as_they_are_read(tmp_path: Path) -> None:
    shipped = [*load_prompts(None), Prompt("plain", "none", text="Once upon")]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(repeating.as_json(prompt)) + "\n" for prompt in shipped))
    assert load_prompts(file) == shipped


def test_cuda_check_without_a_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cuda_check.main([]) == 2
    assert capsys.readouterr().err == "error: no CUDA device, so nothing was checked; --device cpu is a dry run\n"


@pytest.mark.cuda
@pytest.mark.slow
def test_a_cuda_device_measures_what_a_cpu_measures(
    tiny: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch, tiny)
    arguments = [str(tiny.checkpoint), "--target", str(tiny.target), "--max-new-tokens", "16", "--prompts", "2"]
    assert cuda_check.main([*arguments, "--depth", "3", "--budget", "0", "-o", str(tmp_path / "out.json")]) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["problems"] == []
    assert result["float32"]["synchronised"] is None


def test_cuda_check_sees_rows_that_differ(opened: tuple[Pair, Any]) -> None:
    steps = opened[1][0].chains("text")
    other = [dict(step) for step in steps]
    assert agreeing.compare_steps(steps, other) == (dict.fromkeys(agreeing.ROW_TOLERANCE, 0.0), 0.0)
    other[1]["rms/layers.0.q"] = other[1]["rms/layers.0.q"] * 1.5
    other[2]["prob"] = torch.where(torch.arange(6) == 3, float("nan"), 0.5)
    other[3]["drafted"] = other[3]["drafted"] + (torch.arange(6) == 0)
    largest, share = agreeing.compare_steps(steps, other)
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


def scattered(seed: int, shift: float = 0.0) -> Any:
    """Excess [prompt, half, step, head, bucket] of 40 prompts that scatter around a shift from bucket 0 to 4."""
    excess = np.random.default_rng(seed).normal(0, 0.1, (40, 2, 4, 5, 6))
    excess[:, :, 0] = 0.0
    excess[:, :, 1:, :, 0] -= shift
    excess[:, :, 1:, :, 4] += shift
    return excess


def test_a_drafter_against_itself_reads_nothing_however_far_it_has_moved() -> None:
    for shift in (0.0, 0.3):
        draws = {
            f"a/{kind}": displacement_null.null(scattered(0, shift), kind, 200, 0) for kind in displacement_null.NULLS
        }
        for found in draws.values():
            for name in ("displacement", "self_excess"):
                assert found[name].shape == (200, 3)
                assert abs(found[name].mean()) < 0.01
        assert 0.01 < displacement_null.limit(draws, "displacement") < 0.2
    read = displacement_null.measured(scattered(0, 0.3))["displacement"]
    assert read[0]["mean"] == pytest.approx(0.3, abs=0.05)


def test_the_limit_is_the_largest_quantile_rounded_up() -> None:
    draws = {"a/x": {"displacement": np.full((10, 2), 0.031)}, "b/x": {"displacement": np.array([[-0.0401, 0.0]] * 10)}}
    assert displacement_null.limit(draws, "displacement") == 0.05
    assert displacement_null.limit({"a/x": draws["a/x"]}, "displacement") == 0.04


def test_the_nulls_of_a_small_pair(tiny: TinyPair, tmp_path: Path) -> None:
    import altair as alt

    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n\n".join(f"{place} and {place * 7} are" for place in range(14)), encoding="utf-8")
    result, every = displacement_null.benchmark([str(tiny.checkpoint)], str(tiny.target), prompts, 20, 0)
    (drafter,) = result["drafters"].values()
    assert drafter["prompts"] >= 12
    assert set(drafter["null"]) == {"prompts", "texts"}
    assert len(drafter["measured"]["displacement"]) == len(drafter["null"]["texts"]["displacement"]["q99"]) == 7
    assert json.loads(json.dumps(result, allow_nan=False))["limits"].keys() == {"displacement", "self_excess"}
    assert isinstance(displacement_null.picture(result, every), alt.LayerChart)
