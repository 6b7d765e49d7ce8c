"""A pair that really drafts: readings walk as the chains do, and an engine with a planted switch is named from its counters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import driftscope
from benchmarks.twins import broken
from driftscope.audit.hypotheses import hypotheses
from driftscope.audit.run import facts
from driftscope.audit.setting import Setting
from driftscope.audit.walking import Walker
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints import save_checkpoint
from driftscope.cli import app
from driftscope.runs.rows import joint, match_matrix, to_numpy
from driftscope.runs.run import Run
from driftscope.serving.places import Places
from driftscope.serving.reading import walk_of
from driftscope.serving.readings import readings
from driftscope.stats.walks import PromptWalk, Walks
from tests.audit import pair as planted
from tests.audit.test_audit import make
from tests.serving.planted import counters

DEPTH = 3
TRIED = ("carry", "aux_boundaries", "norms before fc", "vocab_map", "position_increment", "rope.layout")


def chained(config, weights) -> Walks:
    """What the chains of a run accept, whose drafted tokens are fed back: another way than the walker's."""
    pair = make(config, weights)
    parts = []
    for record in planted.captures():
        subject = Subject(pair, record, Settings(depth=DEPTH, horizon=DEPTH, sinks=(0,)))
        accepted = joint(match_matrix(to_numpy(subject.chains("drafted"), ("drafted", "text")))).sum(1)
        parts.append(PromptWalk(record.prompt_id, record.category, record.new_tokens, accepted.astype(np.int64)))
    return Walks(DEPTH, tuple(parts))


@pytest.fixture(scope="module")
def walker() -> Walker:
    target = planted.planted_target()
    return Walker(planted.captures(), DEPTH, target.embedding_weight, target.head_weight, target.dtype, "cpu")


@pytest.mark.parametrize("variant", ["eagle3", "eagle3.1"])
def test_every_reading_walks_as_its_chains_do(walker: Walker, variant: str) -> None:
    config, weights = planted.planted_config(variant), planted.planted_weights(variant)
    target = planted.planted_target()
    setting = Setting(config, weights)
    seen = {"": walker.walk(setting)}
    expected = {"": chained(config, weights)}
    for hypothesis in hypotheses(setting, facts(target)):
        if hypothesis.ruled_out or hypothesis.lens or hypothesis.switch not in TRIED:
            continue
        changed = hypothesis.apply(setting)
        if (
            not 0
            <= min(changed.config.aux_boundaries or (0,))
            <= max(changed.config.aux_boundaries or (0,))
            <= planted.LAYERS
        ):
            continue
        seen[hypothesis.name] = walker.walk(setting, hypothesis)
        expected[hypothesis.name] = chained(changed.config, changed.weights)
    assert {name.split(":")[0] for name in seen if name} == {
        "carry",
        "aux_boundaries",
        "norms before fc",
        "vocab_map",
        "position_increment",
        "rope.layout",
    }
    for name, walks in seen.items():
        for one, other in zip(walks.prompts, expected[name].prompts, strict=True):
            # The walker has the anchors at the end of a text as well.
            assert one.accepted[: len(other.accepted)].tolist() == other.accepted.tolist(), (name, one.prompt)
            assert (one.accepted <= one.ahead()).all()
    # Not all of them are the same, or nothing was tested.
    assert len({tuple(walks.counts(DEPTH).sum(0)) for walks in seen.values()}) > 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("served")
    target = planted.planted_target()
    target.model.save_pretrained(root / "target")
    target.tokenizer.save_pretrained(root / "target")
    save_checkpoint(
        root / "sound", planted.planted_config("eagle3.1"), planted.planted_weights("eagle3.1"), "specforge"
    )
    lines = [{"id": p.id, "text": " ".join(f"w{i}" for i in p.token_ids)} for p in planted.prompts()]
    (root / "prompts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return driftscope.probe(
        root / "sound",
        target=root / "target",
        prompts=root / "prompts.jsonl",
        max_new_tokens=36,
        depth=DEPTH,
        horizon=6,
        probes="acceptance",
        audit=False,
        out=root / "run",
        cache_dir=root / "cache",
        device="cpu",
        dtype="float32",
    )


def served(twin: str | None) -> Walks:
    """What an engine serves whose checkpoint has this wrong; the last anchors of a text as an engine sees them."""
    config, weights = planted.planted_config("eagle3.1"), planted.planted_weights("eagle3.1")
    made = broken((twin,), config, weights, planted.planted_target().head_weight) if twin else (config, weights)
    return chained(*made)


def invoke(run: Run, walks: Walks, tmp_path: Path, *words: str):
    counted = counters(walks, tokens=24)
    file = tmp_path / "counters.json"
    file.write_text(json.dumps({"drafts": counted.drafts, "per_position": counted.per_position, "engine": "vllm"}))
    options = ["--metrics", str(file), "--cache-dir", str(run.folder.parent / "cache"), "--device", "cpu", *words]
    return CliRunner().invoke(app, ["engine", str(run.folder), *options], catch_exceptions=False)


def test_the_run_s_own_walk_is_the_declared_reading(run: Run) -> None:
    from driftscope.progress import NullProgress

    made = readings(
        run, DEPTH, places=Places(device="cpu", cache_dir=run.folder.parent / "cache"), progress=NullProgress()
    )
    declared, own = made[0].walks, walk_of(run)
    assert declared is not None
    by_name = {prompt.prompt: prompt for prompt in declared.prompts}
    for prompt in own.prompts:
        assert by_name[prompt.prompt].accepted[: len(prompt.accepted)].tolist() == prompt.accepted.tolist()
    assert sum(part.walks is not None for part in made) > 20


def test_a_sound_engine_serves_every_round(run: Run, tmp_path: Path) -> None:
    done = invoke(run, served(None), tmp_path, "--same-prompts", "--max-tokens", "24", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["exact"] is True
    assert found["finding"] is None
    assert invoke(run, served(None), tmp_path, "--same-kinds", "--json").exit_code in (0, 2)


@pytest.mark.parametrize(
    ("twin", "switch", "code"),
    [
        ("carry", "carry", "DS403"),
        ("aux +1", "aux_boundaries", "DS403"),
        ("fc_norm left out", "norms before fc", "DS403"),
    ],
)
def test_the_planted_switch_is_named(run: Run, tmp_path: Path, twin: str, switch: str, code: str) -> None:
    done = invoke(run, served(twin), tmp_path, "--same-prompts", "--max-tokens", "24", "--json")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["outcome"] == "less"
    assert found["named"]["switch"] == switch
    assert found["finding"]["code"] == code
    kept = json.loads((run.folder / "engine.json").read_text())
    assert kept["headline"] == found["headline"]


def test_the_screen_leads_with_the_answer(run: Run, tmp_path: Path) -> None:
    done = invoke(run, served("carry"), tmp_path, "--same-prompts", "--max-tokens", "24", "--all")
    text = " ".join(done.stdout.split())
    assert "on the engine accepts less than the walk" in text
    assert "norm_output" in text
    assert "DS403" in text


def test_without_the_pair_the_run_s_own_walk_is_compared(run: Run, tmp_path: Path) -> None:
    done = invoke(run, served("carry"), tmp_path, "--no-walk", "--same-kinds", "--checkpoint", "nowhere", "--json")
    found = json.loads(done.stdout)
    assert [part["name"] for part in found["readings"]] == ["declared"]
    assert found["outcome"] == "less"
    assert found["finding"]["code"] in ("DS401", "DS402")


def test_another_checkpoint_is_refused(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_checkpoint(other, planted.planted_config("eagle3.1"), {**planted.planted_weights("eagle3.1")}, "vllm")
    moved = tmp_path / "run"
    import shutil

    shutil.copytree(run.folder, moved, ignore=shutil.ignore_patterns("engine*"))
    options = ["--metrics", str(tmp_path / "c.json"), "--checkpoint", str(other), "--device", "cpu"]
    (tmp_path / "c.json").write_text('{"drafts": 100, "per_position": [40, 20, 5]}')
    done = CliRunner().invoke(app, ["engine", str(moved), *options])
    assert done.exit_code == 2
    assert "is not the checkpoint of run" in " ".join(done.stderr.split())
