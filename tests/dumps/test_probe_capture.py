"""Probing a folder of captures with the ends of its target: the numbers of a direct probe, and no acceptance where nothing
confirms the text."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from driftscope.api import capture, probe
from driftscope.captures.folder import CaptureFolder
from driftscope.checkpoints.reading import archives
from driftscope.cli import app
from driftscope.errors import DriftscopeError
from driftscope.findings import assess
from driftscope.runs.run import Run
from driftscope.target.ends import ends_digest, load_target_ends, matching
from driftscope.target.model import load_target
from tests import tiny_target
from tests.dumps import writers
from tests.tiny_pair import TinyPair, save_pair

PROBES = ("norms", "attention", "acceptance", "noise")
TABLES = ("anchors", "heads", "steps", "layers", "aux", "tokens", "attended", "variants")
ANCHORS: dict[str, Any] = {"depth": 3, "horizon": 4, "probes": PROBES, "audit": False}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Read only."""
    return save_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def captured(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> CaptureFolder:
    """By our own target, with what the drafter reads."""
    out = tmp_path_factory.mktemp("own") / "captures"
    return capture(str(pair.target), out=out, prompts=pair.prompts, drafter=pair.checkpoint, max_new_tokens=24)


@pytest.fixture(scope="module")
def direct(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return probe(pair.checkpoint, **pair.options, probes=PROBES, out=tmp_path_factory.mktemp("d") / "run", audit=False)


def through(pair: TinyPair, folder: Path, out: Path, **options: Any) -> Run:
    return probe(pair.checkpoint, target=str(pair.target), capture=folder, out=out, **{**ANCHORS, **options})


def test_the_numbers_are_those_of_a_direct_probe(
    pair: TinyPair, captured: CaptureFolder, direct: Run, tmp_path: Path
) -> None:
    run = through(pair, captured.folder, tmp_path / "run")
    for table in TABLES:
        pd.testing.assert_frame_equal(run.table(table), direct.table(table), check_exact=True)
    assert run.info.target == direct.info.target
    assert run.info.prompts == direct.info.prompts
    assert run.info.settings["capture"] == {"format": "driftscope", "greedy": True, "sinks": "captured", "checks": []}
    # An engine's dump of the same states, read by the writer's rules, gives them again.
    source = writers.specforge(tmp_path / "dump", captured.captures(), (1, 2, 3))
    options: dict[str, Any] = {"layers": (0, 1, 2), "prompts": pair.prompts, "max_new_tokens": 24}
    capture(str(pair.target), source=source, out=tmp_path / "read", **options)
    again = through(pair, tmp_path / "read", tmp_path / "again", sink="none")
    for table in ("anchors", "heads", "steps", "aux", "tokens", "attended"):
        pd.testing.assert_frame_equal(again.table(table), direct.table(table), check_exact=True)
    assert set(again.table("layers")["boundary"]) == {1, 2, 3}


def test_only_the_ends_of_the_target_are_read(pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    tensor = archives.safetensors_tensor
    monkeypatch.setattr(archives, "safetensors_tensor", lambda path, name: read.append(name) or tensor(path, name))
    ends = load_target_ends(pair.target)
    assert sorted(read) == ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"]
    assert not list(ends.layers)
    with pytest.raises(DriftscopeError, match="needs the whole target"):
        ends.forward(torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(DriftscopeError, match="needs the whole target"):
        _ = ends.nn


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "gemma2": {},
    "cohere": {},
    "gpt_neox": {},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_ends_do_what_the_whole_target_does(family: str, tmp_path: Path) -> None:
    tiny_target.tiny_model(family, **FAMILIES[family]).save_pretrained(tmp_path)
    tiny_target.tiny_tokenizer().save_pretrained(tmp_path)
    whole, ends = load_target(tmp_path), load_target_ends(tmp_path)
    ids = torch.arange(7)
    hidden = whole.forward(ids[None], output_hidden_states=True).hidden_states
    last: list[torch.Tensor] = []
    hook = whole.final_norm.register_forward_pre_hook(lambda _, inputs: last.append(inputs[0][0]))
    whole.forward(ids[None])
    hook.remove()
    assert torch.equal(ends.embedded(ids), hidden[0][0])
    assert torch.equal(ends.normed(last[0]), hidden[-1][0])
    assert torch.equal(ends.head(hidden[-1][0]), whole.head(hidden[-1][0]))
    assert (ends.num_layers, ends.eos_ids, ends.dtype) == (whole.num_layers, whole.eos_ids, whole.dtype)
    assert ends.fingerprint() == ends_digest(whole)
    assert not ends.assumed


def test_an_unknown_class_is_taken_for_an_rms_norm_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def unknown(*given: Any, **more: Any) -> Any:
        raise ValueError("no such class")

    tiny_target.tiny_model().save_pretrained(tmp_path)
    tiny_target.tiny_tokenizer().save_pretrained(tmp_path)
    known = load_target_ends(tmp_path)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_config", unknown)
    ends = load_target_ends(tmp_path)
    assert "taken for an RMSNorm with eps 1e-06" in ends.assumed[0]
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ends.normed(states), known.normed(states))
    assert torch.equal(ends.embedded(torch.arange(5)), known.embedded(torch.arange(5)))
    assert ends.fingerprint() == known.fingerprint()


def test_names_behind_other_words() -> None:
    stored = ["language_model.model.embed_tokens.weight", "language_model.model.norm.weight", "lm_head.weight"]
    assert matching(stored, "model.norm.weight") == stored[1]
    assert matching(stored, "lm_head.weight") == "lm_head.weight"
    assert matching(stored, "model.final_norm.weight") is None


def test_missing_and_quantised_ends_are_one_line(pair: TinyPair, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    held = load_file(pair.target / "model.safetensors")
    for file in pair.target.iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DriftscopeError, match="read from safetensors only"):
        load_target_ends(tmp_path)
    save_file({name: t for name, t in held.items() if name != "model.norm.weight"}, tmp_path / "model.safetensors")
    with pytest.raises(DriftscopeError, match=r"no tensor model\.norm\.weight"):
        load_target_ends(tmp_path)
    save_file({**held, "lm_head.weight": held["lm_head.weight"].to(torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(DriftscopeError, match=r"stored as torch\.int8; its ends must not be quantised"):
        load_target_ends(tmp_path)


@pytest.fixture(scope="module")
def unconfirmed(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """States of vLLM without the last layer: nothing says what the target would."""
    base = tmp_path_factory.mktemp("unconfirmed")
    own = capture(str(pair.target), out=base / "own", prompts=pair.prompts, layers=(1, 2, 3), max_new_tokens=24)
    source = writers.vllm(base / "dump", own.captures(), (1, 2, 3))
    made = capture(str(pair.target), source=source, out=base / "captures", layers=(1, 2, 3), prompts=pair.prompts)
    assert any("no final state in the dump" in line for line in made.source["checks"])
    return made.folder


def test_without_final_states_there_is_no_acceptance(
    pair: TinyPair, direct: Run, unconfirmed: Path, tmp_path: Path
) -> None:
    run = through(pair, unconfirmed, tmp_path / "run", sink="none")
    anchors, steps = run.table("anchors"), run.table("steps")
    assert anchors[["match", "accepted"]].isna().all(axis=None)
    assert anchors["sampling"].isna().all()
    assert steps[["matches", "reached", "accepted", "served_rounds", "served_accepted"]].isna().all(axis=None)
    # All that does not need the target's word is there, and the same.
    for name in ("drafted", "text", "rms/carry", "matched_growth", "mass/prompt", "excess/current", "prob", "entropy"):
        pd.testing.assert_series_equal(anchors[name], direct.table("anchors")[name], check_exact=True)
    summary = run.summary()
    schema = json.loads(files("driftscope").joinpath("schemas/summary.schema.json").read_text())
    jsonschema.validate(summary, schema)
    assert summary["acceptance_length"] == {}
    for step in (*summary["steps"], *summary["text_fed_steps"]):
        assert set(step["acceptance"]) == {"anchors"}
        assert "growth" in step
    result = CliRunner().invoke(app, ["show", str(run.folder)])
    said = " ".join(result.stdout.split())
    assert "acceptance was not measured: the captured texts are not confirmed as the target's greedy ones" in said
    assert "0%" not in said.partition("Notes")[0]
    # Growth alone is no clean bill: without findings that is told apart from a healthy run.
    assessment = assess(run)
    assert not assessment.judged
    assert assessment.exit_code == (1 if assessment.wrong else 2)


def test_every_reader_bears_a_run_without_acceptance(pair: TinyPair, unconfirmed: Path, tmp_path: Path) -> None:
    from driftscope.app.reading import accepted_lengths, reading
    from driftscope.app.token_html import states_of
    from driftscope.compare import compare
    from driftscope.figures import acceptance_figures, noise_figures
    from driftscope.show import frames
    from driftscope.show.report import write_report

    run = through(pair, unconfirmed, tmp_path / "run")
    assert run.info.target.sinks == [0]
    assert run.info.settings["capture"]["sinks"] == "assumed"
    found = reading([run], run.info.prompts[0].id)
    assert accepted_lengths(found.chains) == {}
    assert set(states_of(found.chain(found.anchors[0]))) == {"unknown"}
    assert acceptance_figures(run.table("anchors", probe="clean")) == {}
    noise = noise_figures(run.table("steps", probe="noise"), run.table("variants", probe="noise"))
    assert "served" not in noise["clean"]
    assert all("served_kept" not in level for site in noise["sites"].values() for level in site["levels"])
    for frame in (frames.served_lengths, frames.survival, frames.sampling):
        assert frame([run]).empty
    write_report([run], tmp_path / "report.html")
    compare([run, run])


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"probes": ("template",)}, "probe template asks the target for texts of its own"),
        ({"probes": ("layers",)}, r"holds boundaries 1, 2, 3 of text prompts-01, not 4; capture with --layers"),
        ({"overrides": {"aux_boundaries": (0, 1, 2)}}, "not 0; capture with --layers"),
        ({"prompts": "prompts.jsonl"}, "change nothing about --capture"),
        ({"horizon": 22}, "answers are shorter than horizon"),
    ],
)
def test_what_a_capture_cannot_give_is_one_line(
    change: dict[str, Any], pattern: str, pair: TinyPair, captured: CaptureFolder, tmp_path: Path
) -> None:
    with pytest.raises(DriftscopeError, match=pattern) as caught:
        through(pair, captured.folder, tmp_path / "run", **change)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_another_target_or_a_damaged_folder_is_one_line(
    pair: TinyPair, captured: CaptureFolder, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    tiny_target.tiny_model(seed=1).save_pretrained(other)
    tiny_target.tiny_tokenizer().save_pretrained(other)
    with pytest.raises(DriftscopeError, match="head are not those of"):
        probe(pair.checkpoint, target=str(other), capture=captured.folder, out=tmp_path / "run", **ANCHORS)
    with pytest.raises(DriftscopeError, match=r"no captures\.json in it; make one with `driftscope capture`"):
        through(pair, tmp_path, tmp_path / "run")
    copy = tmp_path / "copy"
    for file in captured.folder.rglob("*"):
        if file.is_file():
            (copy / file.relative_to(captured.folder)).parent.mkdir(parents=True, exist_ok=True)
            (copy / file.relative_to(captured.folder)).write_bytes(file.read_bytes())
    state = next(copy.rglob("boundary_2.safetensors"))
    whole = state.read_bytes()
    state.write_bytes(whole[:-40])
    with pytest.raises(DriftscopeError, match="missing or damaged"):
        through(pair, copy, tmp_path / "run")
    assert state.exists()
    index = copy / "captures.json"
    told = json.loads(index.read_text())
    told["texts"][0]["key"] = "../../elsewhere"
    index.write_text(json.dumps(told))
    with pytest.raises(DriftscopeError, match="lies outside of the folder"):
        through(pair, copy, tmp_path / "run")
    index.write_text('{"schema": 1}')
    with pytest.raises(DriftscopeError, match="not the index of a capture folder"):
        through(pair, copy, tmp_path / "run")


def test_on_the_command_line(pair: TinyPair, captured: CaptureFolder, tmp_path: Path) -> None:
    source = writers.vllm(tmp_path / "dump", captured.captures(), (1, 2, 3))
    target = ["--target", str(pair.target)]
    given = [
        "--from",
        str(source),
        "--layers",
        "1,2,3",
        "--prompts",
        str(pair.prompts),
        "-o",
        str(tmp_path / "captures"),
    ]
    made = CliRunner().invoke(app, ["capture", *given, *target, "--json"])
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert (told["texts"], told["boundaries"], told["final_states"]) == (3, [1, 2, 3], False)
    arguments = ["probe", str(pair.checkpoint), *target, "--capture", str(tmp_path / "captures")]
    refused = CliRunner().invoke(app, [*arguments, "--max-new-tokens", "64"])
    assert refused.exit_code == 2
    assert "--max-new-tokens changes nothing about --capture" in refused.stderr
    lone = CliRunner().invoke(app, ["capture", *target, "--ids", "boundary", "-o", str(tmp_path / "more")])
    assert lone.exit_code == 2
    assert "belong to --from" in lone.stderr
