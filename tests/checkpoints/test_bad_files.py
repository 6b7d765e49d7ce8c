"""Bad files: one clear line each, nothing executed, no more memory than the file is worth."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from driftscope.checkpoints import inspect_checkpoint, open_checkpoint
from driftscope.errors import CheckpointError, DriftscopeError
from tests.checkpoints.layouts import stored

TENSORS, CONFIG = stored()
SAFE = save(TENSORS)
MIB = 2**20


def torch_bytes(held: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(held, buffer)
    return buffer.getvalue()


ZIP = torch_bytes({"state_dict": TENSORS, "config": CONFIG})


def refused(path: Path, pattern: str) -> None:
    for call in (open_checkpoint, inspect_checkpoint):
        with pytest.raises(CheckpointError, match=pattern) as caught:
            call(path)
        message = str(caught.value)
        assert "\n" not in message
        assert str(path) in message
        assert len(message) < len(str(path)) * 2 + 320


def safetensors(header: bytes | dict[str, Any], body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("name", "content", "pattern"),
    [
        ("a.pt", b"", "empty file"),
        ("a.bin", b"hello, this is not a checkpoint", "not a checkpoint"),
        ("a.safetensors", b"\x07\x9c\xe3\x8bqX\x1e" + b"x" * 90, "not a safetensors file"),
        ("a.bin", b"GGUF" + bytes(40), "GGUF model of llama.cpp"),
        ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("a.bin", b"<!DOCTYPE html><html>", "a web page"),
        ("a.pt", pickle.dumps({"a": 1}), "a bare pickle"),
        ("a.pt", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "before 1.6"),
        ("a.safetensors", SAFE[:6] + bytes(2) + SAFE[8:60], "truncated or damaged"),
        ("a.safetensors", SAFE[: len(SAFE) // 2], "does not fit the file"),
        ("a.safetensors", safetensors({"a": entry([2], 0, 8)}, bytes(8), 2**40), "header of 1,099,511,627,776 bytes"),
        ("a.safetensors", safetensors(b"{not json at all}"), "does not fit the file"),
        ("a.safetensors", safetensors({"a": entry([4], 0, 8)}, bytes(8)), "does not fit the file"),
        ("a.safetensors", safetensors({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)), "does not fit"),
        ("a.safetensors", safetensors({"a": entry([2], 8, 16)}, bytes(16)), "does not fit the file"),
        ("a.safetensors", safetensors({"a": entry([2], 0, 8)}, bytes(99)), "does not fit the file"),
        ("a.safetensors", safetensors({"a": entry([2**40, 2**40], 0, 8)}, bytes(8)), "does not fit the file"),
        ("a.safetensors", safetensors({}), "holds no tensor"),
        ("a.pt", ZIP[: len(ZIP) // 2], "truncated or damaged"),
        ("a.pt", ZIP[:-30], "truncated or damaged"),
        ("a.pt", torch_bytes([1, 2, 3]), r"no state dict in it \(found: list\)"),
        ("a.pt", torch_bytes({"epoch": 3, "loss": 0.5}), r"no state dict in it \(found: epoch, loss\)"),
        ("a.pt", torch_bytes(torch.zeros(3)), r"no state dict in it \(found: Tensor\)"),
    ],
)  # fmt: skip
def test_files_that_are_no_checkpoint(name: str, content: bytes, pattern: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, pattern)


def test_paths_that_are_no_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.pt")
    refused(tmp_path / "pipe.pt", "not a regular file")
    (tmp_path / "config.json").write_text("[1, 2")
    save_file(TENSORS, tmp_path / "model.safetensors")
    refused(tmp_path, "not valid JSON")
    (tmp_path / "config.json").write_text("[1, 2]")
    refused(tmp_path, "expected a JSON object, found list")
    (tmp_path / "config.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    refused(tmp_path, "not valid JSON")


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.mark),)


def test_code_in_a_pickle_is_named_and_not_run(tmp_path: Path):
    mark = tmp_path / "ran"
    torch.save(TENSORS | {"hook": Trap(mark)}, tmp_path / "model.pt")
    refused(tmp_path / "model.pt", rf"needs {os.mkdir.__module__}\.mkdir to open, which is code and was not run")
    assert not mark.exists()


def test_a_trainers_own_objects_are_named_with_the_way_out(tmp_path: Path):
    import argparse

    torch.save({"model": TENSORS, "args": argparse.Namespace(lr=1e-4)}, tmp_path / "model.pt")
    refused(tmp_path / "model.pt", r"needs argparse\.Namespace to open.*the trainer's own export")


def rezip(change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(ZIP)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return buffer.getvalue()


def test_zip_bombs_and_foreign_archives(tmp_path: Path):
    path = tmp_path / "model.pt"
    path.write_bytes(rezip(lambda name, data: data + bytes(64 * MIB) if name.endswith("/0") else data, 8))
    assert path.stat().st_size < MIB
    refused(path, "compressed entries")
    bomb = bytearray(ZIP)
    # The directory at the end of the archive claims a size that the file does not have.
    at = bomb.rindex(b"PK\x01\x02")
    bomb[at + 20 : at + 28] = struct.pack("<II", 2**31, 2**31)
    path.write_bytes(bytes(bomb))
    refused(path, "claim more bytes than|truncated or damaged")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    path.write_bytes(buffer.getvalue())
    refused(path, "not one that torch.save writes")
    path.write_bytes(rezip(lambda name, data: data + bytes(40 * MIB) if name.endswith("data.pkl") else data))
    refused(path, "bytes of pickle; a state dict needs a few kB")


def test_tensors_that_claim_more_than_the_file_holds(tmp_path: Path):
    torch.save({"fc.weight": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "model.pt")
    refused(tmp_path / "model.pt", "claim more than twice")
    torch.save({"fc.weight": torch.eye(3).to_sparse()}, tmp_path / "sparse.pt")
    refused(tmp_path / "sparse.pt", "sparse|needs torch")
    with zipfile.ZipFile(tmp_path / "script.pt", "w", 8) as archive:
        archive.writestr("script/constants.pkl", b"")
        archive.writestr("script/code/__torch__.py", "class Module: pass")
    refused(tmp_path / "script.pt", "TorchScript program")


def broken(change: dict[str, Any], drop: tuple[str, ...] = (), **config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    tensors = {name: tensor for name, tensor in (TENSORS | change).items() if name not in drop}
    return tensors, {key: value for key, value in (CONFIG | config).items() if value != "absent"}


NAN = TENSORS["fc.weight"].clone()
NAN[3, 5] = float("nan")
INFINITE = TENSORS["norm.weight"].clone()
INFINITE[0] = float("inf")


@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        (broken({"fc.weight": NAN}), r"fc\.weight holds 1 NaN or infinite values of 768"),
        (broken({"norm.weight": INFINITE}), r"norm\.weight holds 1 NaN"),
        (broken({}, ("fc.weight",)), r"fc\.weight is missing"),
        (broken({}, ("lm_head.weight",)), r"lm_head\.weight is missing"),
        (broken({}, ("norm.weight",)), r"norm\.weight is missing"),
        (broken({}, ("d2t",)), r"d2t is missing"),
        (broken({}, ("midlayer.hidden_norm.weight",)), r"midlayer\.hidden_norm\.weight is missing"),
        (broken({}, ("midlayer.self_attn.k_proj.weight",)), r"midlayer\.self_attn\.k_proj\.weight is missing"),
        (broken({}, ("midlayer.mlp.up_proj.weight",)), r"midlayer\.mlp\.up_proj\.weight is missing"),
        (broken({}, fc_norm=True), r"fc_norm\.0.*, fc_norm\.2\.weight are missing, but fc_norm asks for the first"),
        (broken({"fc_norm.0.weight": torch.ones(16)}, fc_norm="absent"), r"fc_norm\.1\.weight, fc_norm\.2\.weight are missing"),
        (broken({"fc.weight": TENSORS["fc.weight"].int()}), r"fc\.weight is stored as int32, expected float16"),
        (broken({"d2t": TENSORS["d2t"].float()}), r"d2t is stored as float32, expected int64"),
        (broken({"lm_head.weight": torch.ones(10, 16).to(torch.float8_e4m3fn)}), "float8_e4m3fn without a scale"),
        (broken({"d2t": torch.arange(9)}), "d2t has 9 entries for a draft vocabulary of 10"),
        (broken({"d2t": torch.full((10,), 1000)}), "d2t maps outside the target's 40 tokens"),
        (broken({"midlayer.mlp.down_proj.weight": torch.ones(16, 11)}), r"down_proj\.weight has shape \[16, 11\]"),
        (broken({"norm.weight": torch.ones(15)}), r"norm\.weight has shape \[15\].*\[16\]"),
        (broken({"midlayer.self_attn.q_proj.weight": torch.ones(32, 16)}), "q_proj of layer 0 reads 16 features"),
        (broken({"midlayer.self_attn.v_proj.weight": torch.ones(8, 32)}), "k_proj has 16 rows and v_proj 8"),
        (broken({"fc.weight": torch.ones(16)}), r"fc\.weight has shape \[16\], expected 2 dimensions"),
        (broken({"fc.weight": torch.ones(16, 47)}), "fc.weight reads 47 features"),
        (broken({}, hidden_size=32), r"config says hidden_size = 32"),
        (broken({}, intermediate_size=99), r"config says intermediate_size = 99"),
        (broken({}, head_dim=5), "head_dim 5|does not divide"),
        (broken({}, num_attention_heads=3), "config has num_attention_heads = 3"),
        (broken({}, num_key_value_heads=4), "config has num_key_value_heads = 4"),
        (broken({}, vocab_size=41), "t2d covers 40 tokens, but the config says vocab_size = 41"),
        (broken({}, draft_vocab_size=11), "lm_head.weight has 10 rows, but the config says draft_vocab_size = 11"),
        (broken({}, target_hidden_size=20), "no multiple of the target's width 20"),
        (broken({}, num_aux_hidden_states=4), "num_aux_hidden_states = 4 of width 16"),
        (broken({}, eagle_aux_hidden_state_layer_ids=[2, 4]), "fc reads 3 aux features, but 2 are listed"),
        (broken({}, eagle_aux_hidden_state_layer_ids=[2, 2, 4]), "expected distinct layer ids"),
        (broken({}, hidden_size="16"), "hidden_size is '16', expected a positive whole number"),
        (broken({}, rope_theta=-1), "rope_theta is -1, expected a positive number"),
        (broken({}, rms_norm_eps=float("inf")), "rms_norm_eps is inf"),
        (broken({}, rope_scaling={"rope_type": "spiral"}), "rope type 'spiral'"),
        (broken({}, rope_scaling=[1]), "rope_scaling is"),
        (broken({}, norm_output="yes"), "norm_output is 'yes', expected true or false"),
        (broken({}, hidden_act="cosine"), "hidden_act is 'cosine'"),
        (broken({}, architectures="LlamaForCausalLM"), "architectures is 'LlamaForCausalLM', expected a list"),
    ],
)  # fmt: skip
def test_weights_and_configs_that_contradict_each_other(
    case: tuple[dict[str, Any], dict[str, Any]], pattern: str, tmp_path: Path
):
    tensors, config = case
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=pattern) as caught:
        open_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def attempt(path: Path) -> None:
    """Only a CheckpointError, or success."""
    for call in (open_checkpoint, inspect_checkpoint):
        said = ""
        try:
            call(path)
        except DriftscopeError as error:
            said = str(error)
        assert "\n" not in said


FUZZ = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("whole", [SAFE, ZIP], ids=["safetensors", "torch"])
@FUZZ
@given(data=st.data())
def test_truncated_anywhere(whole: bytes, tmp_path: Path, data: st.DataObject):
    path = tmp_path / "model.pt"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(CheckpointError):
        open_checkpoint(path)


@pytest.mark.parametrize("whole", [SAFE, ZIP], ids=["safetensors", "torch"])
@FUZZ
@given(data=st.data())
def test_bits_flipped_anywhere(whole: bytes, tmp_path: Path, data: st.DataObject):
    header = st.integers(0, 2000) if whole is SAFE else st.integers(0, 8 * len(whole) - 1)
    flips = data.draw(st.lists(st.one_of(header, st.integers(0, 8 * len(whole) - 1)), min_size=1, max_size=6))
    changed = bytearray(whole)
    for bit in flips:
        changed[bit // 8] ^= 1 << bit % 8
    path = tmp_path / "model.pt"
    path.write_bytes(bytes(changed))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    attempt(path)


PKL = slice(ZIP.index(b"\x80\x02"), ZIP.index(b"\x80\x02") + 3000)


@FUZZ
@given(flips=st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_changed_in_the_pickle(flips: list[tuple[int, int]], tmp_path: Path):
    changed = bytearray(ZIP)
    for at, value in flips:
        changed[PKL.start + at] = value
    path = tmp_path / "model.pt"
    path.write_bytes(bytes(changed))
    attempt(path)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 10**20), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
KEYS = (*CONFIG, "eagle_aux_hidden_state_layer_ids", "transformer_layer_config", "speculators_model_type", "model",
        "rope_parameters", "layer_types", "sliding_window", "num_aux_hidden_states", "bias", "target_hidden_size")  # fmt: skip


@FUZZ
@given(changes=st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3))
def test_configs_that_hold_anything(changes: dict[str, Any], tmp_path: Path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | changes))
    attempt(tmp_path)


def peak_growth(call: Callable[[], object]) -> int:
    """Bytes by which the resident set peaked above where it stood."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident set is read from /proc")
@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_memory_stays_under_twice_the_file_and_inspection_far_below(name: str, tmp_path: Path):
    rows = 200_000
    tensors = TENSORS | {"embed_tokens.weight": torch.ones(rows, 16)}
    tensors |= {"t2d": torch.zeros(rows, dtype=torch.bool).index_fill(0, torch.arange(10) + TENSORS["d2t"], True)}
    (save_file if name.endswith("safetensors") else torch.save)(tensors, tmp_path / name)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": rows}))
    size = (tmp_path / name).stat().st_size
    del tensors
    assert peak_growth(lambda: open_checkpoint(tmp_path / name)) < 2 * size + 100 * MIB
    sparse = tmp_path / "big.safetensors"
    header = json.dumps({"embed_tokens.weight": entry([2**26, 8], 0, 2**31)}).encode()
    header += b" " * (-len(header) % 8)
    with sparse.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2**31)
    assert peak_growth(lambda: attempt(sparse)) < 100 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident set is read from /proc")
def test_a_huge_header_is_refused_before_it_is_parsed(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    one = '"%d":{"dtype":"F32","shape":[],"data_offsets":[%d,%d]},'
    text = "{" + "".join(one % (i, 4 * i, 4 * i + 4) for i in range(150_000))[:-1] + "}"
    path.write_bytes(safetensors(text.encode(), bytes(4 * 150_000)))
    assert path.stat().st_size > 8 * MIB
    assert peak_growth(lambda: refused(path, "more than the .* any drafter needs")) < 50 * MIB
