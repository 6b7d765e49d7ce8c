"""What a user can get wrong: one clear line, exit code 2, and what was measured stays."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from driftscope.api import probe
from driftscope.cli import app
from driftscope.errors import CheckpointError, DriftscopeError, PromptError, RunError, TargetError
from driftscope.runs.run import Run
from driftscope.runs.schema import tables as all_tables
from tests import tiny_target
from tests.tiny_pair import TinyPair, save_pair, write_prompts

PROBES = ("norms", "attention", "acceptance")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Read only."""
    return save_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def drafter(pair: TinyPair, tmp_path: Path) -> Path:
    """A copy of the checkpoint, to be spoilt."""
    return Path(shutil.copytree(pair.checkpoint, tmp_path / "drafter"))


def arguments(pair: TinyPair, checkpoint: Path, out: Path) -> list[str]:
    return ["probe", str(checkpoint), *pair.arguments, "--probes", ",".join(PROBES), "-o", str(out)]


def command(pair: TinyPair, checkpoint: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(app, [*arguments(pair, checkpoint, out), *more])


def refused(
    pair: TinyPair,
    out: Path,
    kind: type[DriftscopeError],
    pattern: str,
    checkpoint: Path | None = None,
    **changes: Any,
) -> str:
    """Probe from Python and from the command line; both say the same one line. Returns it."""
    checkpoint = checkpoint or pair.checkpoint
    with pytest.raises(kind, match=pattern) as caught:
        probe(checkpoint, out=out, probes=PROBES, **{**pair.options, **changes})
    message = str(caught.value)
    assert "\n" not in message
    shown = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    result = command(pair, checkpoint, out, *shown)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == f"error: {message}"
    return message


def other_target(folder: Path, **changes: Any) -> Path:
    tiny_target.tiny_model(**changes).save_pretrained(folder)
    tiny_target.tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"hidden_size": 16}, "features of width 32 .* the target has 16: not its target"),
        ({"vocab_size": 70}, "a vocabulary of 61 .* the target has 70: not its target"),
        ({"num_hidden_layers": 1}, "the target has 1 layers?"),
    ],
    ids=["width", "vocabulary", "depth"],
)
def test_a_target_that_does_not_fit_is_refused(
    pair: TinyPair, tmp_path: Path, changes: dict[str, Any], pattern: str
) -> None:
    target = other_target(tmp_path / "target", **changes)
    refused(pair, tmp_path / "run", TargetError, pattern, target=str(target))
    assert not (tmp_path / "run").exists()


def test_another_recorded_target_only_warns(pair: TinyPair, drafter: Path, tmp_path: Path) -> None:
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps(config | {"target_model_name_or_path": "someone/other-model"}))
    run = probe(drafter, out=tmp_path / "run", probes=PROBES, **pair.options)
    wanted = "the checkpoint records the target someone/other-model"
    assert [text for text in run.info.checkpoint.warnings if wanted in text]
    assert run.summary()["acceptance_length"]["served"] is not None


def test_nan_in_the_drafter_is_refused(pair: TinyPair, drafter: Path, tmp_path: Path) -> None:
    weights = load_file(drafter / "model.safetensors")
    weights["midlayer.mlp.up_proj.weight"][3, 1] = float("nan")
    save_file(weights, drafter / "model.safetensors")
    refused(pair, tmp_path / "run", CheckpointError, r"up_proj\.weight holds 1 NaN or infinite", drafter)


def test_nan_in_the_target_is_refused(pair: TinyPair, tmp_path: Path) -> None:
    target = other_target(tmp_path / "target")
    weights = load_file(target / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 1] = float("nan")
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    refused(pair, tmp_path / "run", TargetError, "not finite", target=str(target))


@pytest.mark.parametrize("container", ["safetensors", "torch"])
def test_a_truncated_file_is_refused(pair: TinyPair, drafter: Path, tmp_path: Path, container: str) -> None:
    file = drafter / "model.safetensors"
    if container == "torch":
        torch.save(load_file(file), drafter / "pytorch_model.bin")
        file.unlink()
        file = drafter / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused(pair, tmp_path / "run", CheckpointError, "does not fit the file|truncated|damaged", drafter)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "code ran")


@pytest.mark.parametrize("bare", [False, True], ids=["torch.save", "pickle"])
def test_pickled_code_is_refused_and_does_not_run(pair: TinyPair, drafter: Path, tmp_path: Path, bare: bool) -> None:
    trap = tmp_path / "trap"
    weights = {**load_file(drafter / "model.safetensors"), "optimizer": Trap(trap)}
    (drafter / "model.safetensors").unlink()
    file = drafter / "pytorch_model.bin"
    file.write_bytes(pickle.dumps(weights)) if bare else torch.save(weights, file)
    refused(pair, tmp_path / "run", CheckpointError, "code", drafter)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Trap(trap)))
    assert trap.exists(), "the trap works"


def test_no_prompt_left(pair: TinyPair, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    write_prompts(prompts, " ", "w1", " ".join(["w2"] * 300))
    message = refused(pair, tmp_path / "run", PromptError, "no prompt left of 3", prompts=prompts)
    assert "1 empty, 1 too short, 1 too long" in message


def test_continuations_that_are_all_too_short(pair: TinyPair, tmp_path: Path) -> None:
    refused(pair, tmp_path / "run", PromptError, "shorter than horizon 4 .* --max-new-tokens", max_new_tokens=5)


def test_single_unusable_prompts_are_skipped_and_counted(pair: TinyPair, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    good = json.loads(pair.prompts.read_text().splitlines()[0])["text"]
    write_prompts(prompts, " ", good, "w1", " ".join(["w2"] * 300))
    run = probe(pair.checkpoint, out=tmp_path / "run", probes=PROBES, **{**pair.options, "prompts": prompts})
    assert [prompt.id for prompt in run.info.prompts] == ["prompts-02"]
    skipped = run.info.provenance["skipped_prompts"]
    assert {name: count for name, count in skipped.items() if count} == {"empty": 1, "too_short": 1, "too_long": 1}


# Below a file nothing can be made, by root neither.
def test_a_run_folder_that_cannot_be_written(pair: TinyPair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(pair, tmp_path / "file" / "run", RunError, "cannot write .*; choose another folder with -o")


def test_a_cache_that_cannot_be_written(pair: TinyPair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(
        pair, tmp_path / "run", DriftscopeError, "cannot write the capture cache .*--cache-dir",
        cache_dir=tmp_path / "file" / "cache",
    )  # fmt: skip
    assert not (tmp_path / "run").exists()


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    import pyarrow.parquet as pq
    from driftscope.cli import app

    written, write_table = [], pq.write_table

    def write(table, where, **how):
        # In the middle of the second prompt's shard.
        if len({os.path.dirname(path) for path in written}) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        written.append(str(where))
        write_table(table, where, **how)

    pq.write_table = write
    app(sys.argv[1:])
    """
)


def test_killed_and_resumed_gives_the_rows_of_an_undisturbed_run(pair: TinyPair, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    words = [sys.executable, "-c", KILLED, *arguments(pair, pair.checkpoint, out)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(Run.open(out).table("anchors")["prompt"].unique()) == 1
    before = (out / "run.json").read_bytes()
    assert command(pair, pair.checkpoint, out).exit_code == 2
    assert (out / "run.json").read_bytes() == before
    resumed = probe(pair.checkpoint, out=out, probes=PROBES, resume=True, **pair.options)
    whole = probe(pair.checkpoint, out=tmp_path / "whole", probes=PROBES, **pair.options)
    for name in all_tables():
        pd.testing.assert_frame_equal(resumed.table(name), whole.table(name), check_exact=True)
    assert len(whole.table("anchors")["prompt"].unique()) == 3


def test_a_run_of_other_settings_is_not_resumed(pair: TinyPair, tmp_path: Path) -> None:
    out = tmp_path / "run"
    probe(pair.checkpoint, out=out, probes=PROBES, **pair.options)
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"cannot resume .*settings\.depth was 3, now 2"):
        probe(pair.checkpoint, out=out, probes=PROBES, resume=True, **{**pair.options, "depth": 2})
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files
