"""Every form in which a checkpoint comes: single files, wrapped dicts, folders, shards, Hub ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from driftscope.checkpoints import open_checkpoint, open_state_dict
from driftscope.errors import CheckpointError
from tests.checkpoints.layouts import LAYOUTS, PLAIN, stored, weights

TENSORS, CONFIG = stored()


def write_config(path: Path, config: dict[str, Any] = CONFIG) -> None:
    path.write_text(json.dumps(config))


def check(path: Path | str, **kwargs: Any):
    opened = open_checkpoint(path, **kwargs)
    made = weights(PLAIN)
    assert opened.weights.keys() == made.keys()
    assert all(torch.equal(opened.weights[name], made[name]) for name in made)
    assert opened.config.num_heads == PLAIN.num_heads
    assert opened.config.rope.theta == PLAIN.rope.theta
    return opened


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "pytorch_model.bin", "model.safetensors"])
def test_a_file_alone_with_a_config_beside_it(name: str, tmp_path: Path):
    (save_file if name.endswith("safetensors") else torch.save)(TENSORS, tmp_path / name)
    write_config(tmp_path / "config.json")
    assert not check(tmp_path / name).warnings
    assert not check(tmp_path).warnings


def test_the_config_named_after_the_file_comes_first(tmp_path: Path):
    torch.save(TENSORS, tmp_path / "epoch3.pt")
    write_config(tmp_path / "config.json", CONFIG | {"rope_theta": 7.0})
    write_config(tmp_path / "epoch3.json")
    check(tmp_path / "epoch3.pt")


@pytest.mark.parametrize(
    ("held", "where"),
    [
        ({"state_dict": TENSORS, "config": CONFIG}, "state_dict"),
        ({"model": TENSORS, "config": CONFIG, "epoch": 3}, "model"),
        ({"module": TENSORS, "model_config": CONFIG}, "module"),
        ({"optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}}, "step": 7,
          "checkpoint_version": 1.0, "model": {"state_dict": TENSORS}, "config": CONFIG}, "model][state_dict"),
    ],
)  # fmt: skip
def test_dicts_around_the_state_dict_are_opened_and_told(held: dict[str, Any], where: str, tmp_path: Path):
    torch.save(held, tmp_path / "model.pt")
    assert f"the weights lie in model.pt[{where}]" in check(tmp_path / "model.pt").warnings


def test_a_config_inside_the_file_beats_one_beside_it_and_says_so(tmp_path: Path):
    torch.save({"state_dict": TENSORS, "config": CONFIG}, tmp_path / "model.pt")
    write_config(tmp_path / "config.json", CONFIG | {"rope_theta": 7.0})
    opened = check(tmp_path / "model.pt")
    assert "the config inside model.pt is used; config.json beside it is not read" in opened.warnings


@pytest.mark.parametrize(
    "prefix",
    ["module.", "model.", "_orig_mod.", "draft_model.", "module._orig_mod.", "draft_model.model.", "trainer.drafter."],
)
def test_wrapper_prefixes_are_taken_off_and_told(prefix: str, tmp_path: Path):
    save_file({prefix + name: tensor for name, tensor in TENSORS.items()}, tmp_path / "model.safetensors")
    write_config(tmp_path / "config.json")
    opened = check(tmp_path)
    (told,) = [warning for warning in opened.warnings if "wrapper prefix" in warning]
    assert all(repr(part + ".") in told for part in prefix.split(".")[:-1] if part != "trainer")
    assert opened.names["fc.weight"] == prefix + "fc.weight"


def test_wrappers_in_the_middle_of_a_name(tmp_path: Path):
    inner = {name.replace("midlayer.", "midlayer._fsdp_wrapped_module."): t for name, t in TENSORS.items()}
    save_file(inner, tmp_path / "model.safetensors")
    write_config(tmp_path / "config.json")
    assert any("_fsdp_wrapped_module." in warning for warning in check(tmp_path).warnings)


def test_a_target_beside_the_drafter_is_left_out_and_told(tmp_path: Path):
    both = {f"draft_model.{name}": tensor for name, tensor in TENSORS.items()}
    both |= {f"target_model.layers.{i}.mlp.up_proj.weight": torch.zeros(2, 2) for i in range(3)}
    torch.save(both, tmp_path / "model.pt")
    write_config(tmp_path / "config.json")
    opened = check(tmp_path)
    assert "3 tensors outside 'draft_model.' are not the drafter's and were not read" in opened.warnings
    assert len(opened.unused) == 3


def test_two_names_for_one_tensor_are_refused(tmp_path: Path):
    save_file(TENSORS | {"model.fc.weight": torch.zeros(16, 48)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"fc\.weight and model\.fc\.weight are both fc\.weight|are both"):
        open_checkpoint(tmp_path)


def shard(folder: Path, *, index: bool = True) -> dict[str, str]:
    names = sorted(TENSORS)
    where = {}
    for part, chosen in enumerate((names[:5], names[5:]), start=1):
        file = f"model-{part:05d}-of-00002.safetensors"
        save_file({name: TENSORS[name] for name in chosen}, folder / file)
        where |= dict.fromkeys(chosen, file)
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    write_config(folder / "config.json")
    return where


def test_shards_with_and_without_index(tmp_path: Path):
    shard(tmp_path)
    assert not check(tmp_path).warnings
    (tmp_path / "model.safetensors.index.json").unlink()
    assert "no index beside the 2 shards; all were read" in check(tmp_path).warnings
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="1 of 2 shards"):
        open_checkpoint(tmp_path)


def test_an_index_that_names_an_absent_shard(tmp_path: Path):
    shard(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names model-00002-of-00002\.safetensors, which is not there"):
        open_checkpoint(tmp_path)


def test_a_stray_shard_is_told_and_not_read(tmp_path: Path):
    shard(tmp_path)
    save_file({"fc.weight": torch.zeros(2, 2)}, tmp_path / "model-00003-of-00003.safetensors")
    opened = check(tmp_path)
    said = (
        "model-00003-of-00003.safetensors is not in model.safetensors.index.json and was not read: all its tensors are"
    )
    assert any(warning.startswith(said) for warning in opened.warnings)


def test_a_shard_with_tensors_that_no_index_lists_is_read_and_told(tmp_path: Path):
    shard(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    last = "model-00002-of-00002.safetensors"
    listed["weight_map"] = {name: file for name, file in listed["weight_map"].items() if file != last}
    index.write_text(json.dumps(listed))
    opened = check(tmp_path)
    said = (
        f"{last} is not in {index.name}: its {len(TENSORS) - 5} tensors (first: {sorted(TENSORS)[5]}) are read beside"
    )
    assert any(warning.startswith(said) for warning in opened.warnings)


def test_a_head_that_the_index_of_its_model_does_not_list_is_found(tmp_path: Path):
    """MiMo's: three shards, the last with the MTP head, and an index from before it was added."""
    layout = next(layout for layout in LAYOUTS if layout.name == "mimo-mtp")
    tensors, config = stored(layout.config(layout.variants[0]), "mimo-mtp")
    head = {name: tensor for name, tensor in tensors.items() if "mtp" in name}
    model = {f"model.layers.{i}.mlp.up_proj.weight": torch.ones(2, 2) for i in range(3)}
    model |= {name: tensor for name, tensor in tensors.items() if name not in head}
    save_file(model, tmp_path / "model-00001-of-00003.safetensors")
    save_file(head, tmp_path / "model-mtp-of-00003.safetensors")
    where = dict.fromkeys(model, "model-00001-of-00003.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    write_config(tmp_path / "config.json", config)
    opened = open_checkpoint(tmp_path)
    assert opened.layout == "mimo-mtp"
    assert any(warning.startswith("model-mtp-of-00003.safetensors is not in") for warning in opened.warnings)


def test_what_was_not_read_is_said_again_where_it_may_be_what_is_missing(tmp_path: Path):
    shard(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    last = tmp_path / "model-00002-of-00002.safetensors"
    listed["weight_map"] = {name: file for name, file in listed["weight_map"].items() if file != last.name}
    index.write_text(json.dumps(listed))
    last.write_bytes(b"not weights, but something else")
    with pytest.raises(CheckpointError, match=f"{last.name} is not in {index.name} and was not read"):
        open_checkpoint(tmp_path)


def test_all_missing_tensors_are_named_at_once():
    held = {name: tensor for name, tensor in TENSORS.items() if "layernorm" not in name}
    with pytest.raises(
        CheckpointError, match=r"post_attention_layernorm\.weight, .*input_layernorm\.weight are missing"
    ):
        open_state_dict(held, CONFIG)


def test_an_adapter_beside_the_drafter_is_said(tmp_path: Path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    write_config(tmp_path / "config.json")
    save_file({"x.lora_A.weight": torch.ones(2, 2)}, tmp_path / "adapter_model.safetensors")
    assert any(
        w.startswith("adapter_model.safetensors beside it: an adapter, which is not applied")
        for w in check(tmp_path).warnings
    )


def test_an_index_and_its_shards_that_disagree(tmp_path: Path):
    where = shard(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where | {"extra.weight": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"places extra\.weight in it, but it is not there"):
        open_checkpoint(tmp_path)
    (tmp_path / "outside.safetensors").write_bytes(b"")
    for name in ("../model.safetensors", "/etc/passwd", "..", 3):
        index.write_text(json.dumps({"weight_map": where | {"fc.weight": name}}))
        with pytest.raises(CheckpointError, match="is not the name of a file in this folder"):
            open_checkpoint(tmp_path)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        open_checkpoint(tmp_path)


def test_folders_choose_the_weights_and_leave_trainer_files_alone(tmp_path: Path):
    torch.save({"a.b": torch.zeros(1)}, tmp_path / "optimizer.pt")
    torch.save({"a.b": torch.zeros(1)}, tmp_path / "training_state.pt")
    torch.save(TENSORS, tmp_path / "epoch_2.pt")
    write_config(tmp_path / "config.json")
    assert not check(tmp_path).warnings
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert "model.safetensors was read; epoch_2.pt beside it not" in check(tmp_path).warnings
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"several weight files \(epoch_2\.pt, other\.safetensors\); name one"):
        open_checkpoint(tmp_path)


def test_folders_without_weights_point_inside(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no weight file \(\*\.safetensors"):
        open_checkpoint(tmp_path)
    inner = tmp_path / "epoch_9"
    inner.mkdir()
    save_file(TENSORS, inner / "model.safetensors")
    with pytest.raises(CheckpointError, match="weights lie in its folder epoch_9"):
        open_checkpoint(tmp_path)


def test_nothing_there_and_ids_that_no_hub_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_checkpoint(tmp_path / "absent")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CheckpointError, match="not a path here, and the Hub did not give it at revision v9"):
        open_checkpoint("nobody-here/no-such-drafter", revision="v9")
    save_file(TENSORS, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="--revision belongs to a Hub id"):
        open_checkpoint(tmp_path, revision="main")


def test_a_hub_id_opens_what_the_hub_client_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_file(TENSORS, tmp_path / "model.safetensors")
    write_config(tmp_path / "config.json")
    asked: dict[str, Any] = {}

    def snapshot(repo: str, **kwargs: Any) -> str:
        asked.update(kwargs, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    opened = check("owner/drafter", revision="abc")
    assert opened.path == "owner/drafter"
    assert (asked["repo"], asked["revision"]) == ("owner/drafter", "abc")
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any(pattern.endswith(".py") for pattern in asked["allow_patterns"])


def test_a_name_that_belies_the_container(tmp_path: Path):
    write_config(tmp_path / "config.json")
    torch.save(TENSORS, tmp_path / "model.pt")
    (tmp_path / "model.pt").rename(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"as torch\.save writes it, not safetensors; rename it to \.pt"):
        open_checkpoint(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    save_file(TENSORS, tmp_path / "model.bin")
    assert any("is a safetensors file, whatever" in w for w in check(tmp_path / "model.bin").warnings)


def test_a_live_state_dict_opens_like_a_file():
    opened = open_state_dict(TENSORS, CONFIG)
    assert opened.config.switches() | {"aux_ids": None} == PLAIN.switches()
    assert opened.layout == "specforge"
    assert opened.sha256 == open_state_dict(dict(reversed(TENSORS.items())), CONFIG).sha256
