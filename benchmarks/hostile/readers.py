"""The readers under test: each is given a path and says what it refused, a line each; it may read or refuse, and no more."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import load_file

from driftscope.captures.cache import CaptureCache
from driftscope.captures.folder import CaptureFolder, open_captures
from driftscope.checkpoints import inspect_checkpoint, open_checkpoint
from driftscope.commands.content import run_content
from driftscope.commands.guard import _finite
from driftscope.compare import compare
from driftscope.errors import DriftscopeError
from driftscope.findings import assess
from driftscope.from_engines.make import capture_from
from driftscope.measuring.captured_texts import about, captured_sinks, confirmation
from driftscope.progress import NullProgress
from driftscope.runs.run import Run
from driftscope.runs.schema import tables as all_tables
from driftscope.show.report import write_report
from driftscope.show.terminal import render_run
from driftscope.target.ends import TargetEnds
from driftscope.target.prompts import load_prompts, tokenize_prompts
from hostile import prompts
from hostile.dumps import GIVEN, with_given
from hostile.registry import written
from hostile.stock import DUMPS, KEY, PLANTED, Stock

LONGEST_LINE = 1200
_TOKENIZED = 100_000
"""Bytes: what the tokenizer of a target makes of more text is its own affair."""


def read_checkpoint(path: Path, stock: Stock) -> str:
    """`inspect`, and what a probe opens."""
    said = []
    for call in (inspect_checkpoint, open_checkpoint):
        try:
            found: Any = call(path)
            held = json.dumps(found.to_dict()) if hasattr(found, "to_dict") else str(dict(found.names))
            assert PLANTED not in held, "a tensor from outside the folder was read"
        except DriftscopeError as error:
            said.append(str(error))
    return checked(said)


def read_capture(path: Path, stock: Stock) -> str:
    """The cache."""
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cache = CaptureCache(path)
            cache.entries()
            found = cache.read(KEY, (1, 2))
        except DriftscopeError as error:
            said.append(str(error))
            found = None
    if found is not None:
        folder = stock.capture / KEY.target / KEY.capture
        whole = load_file(folder / "record.safetensors")
        same = found.tensors.keys() == whole.keys() and all(found.tensors[n].equal(whole[n]) for n in whole)
        for b, state in found.boundaries.items():
            same = same and state.equal(load_file(folder / f"boundary_{b}.safetensors")["state"])
        assert same, "a damaged capture was handed out"
    return checked(said)


def read_folder(path: Path, stock: Stock) -> str:
    """`probe --capture`, up to where chains begin."""
    try:
        _handed_out(open_captures(path), stock.ends)
    except DriftscopeError as error:
        return checked([str(error)])
    return ""


def read_dump(path: Path, stock: Stock) -> str:
    """`capture --from`; what it made is opened again."""
    given = path.parent / GIVEN
    options = json.loads(given.read_text()) if given.is_file() else {}
    out = path.parent / "made"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = capture_from(path, stock.ends, out, **options)
    except DriftscopeError as error:
        left = sorted(entry.name for entry in path.parent.iterdir() if entry.name.startswith(".new-"))
        assert not out.exists(), "it was refused, but there are captures"
        assert not left, f"{left[0]} is left"
        return checked([str(error)])
    json.dumps(made.source)
    assert made.texts, "no text"
    _handed_out(open_captures(out), stock.ends)
    shutil.rmtree(out)
    return ""


def _handed_out(found: CaptureFolder, ends: TargetEnds) -> None:
    """What a probe takes of a folder, and that it can rely on it."""
    found.check_target(ends)
    captured_sinks(found, "auto", NullProgress())
    confirmation(found)
    sources = found.sources(found.boundaries)
    json.dumps(about(found, sources))
    for source in sources:
        record = source.capture
        length, width = record.length, ends.hidden_size
        assert 0 < record.prompt_length < length, f"a prompt of {record.prompt_length} tokens in a text of {length}"
        assert record.token_ids.dtype is torch.int64, f"token ids are {record.token_ids.dtype}"
        assert 0 <= int(record.token_ids.min()) <= int(record.token_ids.max()) < ends.vocab_size, "no such token"
        for what, tensor, shape in (
            ("final", record.final, (length, width)),
            ("rms", record.rms, (ends.num_layers + 1, length)),
            ("near_tie", record.near_tie, (length,)),
            *((f"boundary {b}", state, (length, width)) for b, state in record.boundaries.items()),
        ):
            assert tensor.shape == shape, f"{what} has shape {list(tensor.shape)}, expected {list(shape)}"
            assert tensor.is_floating_point() or what == "near_tie", f"{what} is {tensor.dtype}"
        assert record.near_tie.dtype is torch.bool, f"near_tie is {record.near_tie.dtype}"
        assert all(bool(state.isfinite().all()) for state in record.boundaries.values()), "a state is not finite"


def read_prompts(path: Path, stock: Stock) -> str:
    """`--prompts`, up to the tokens."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = load_prompts(path)
            if path.stat().st_size > _TOKENIZED:
                return ""
            kept, _ = tokenize_prompts(loaded, stock.ends.tokenizer, max_tokens=1 << 20)
    except DriftscopeError as error:
        return checked([str(error)])
    assert all(prompt.token_ids for prompt in kept), "a prompt without tokens"
    return ""


def read_run(path: Path, stock: Stock) -> str:
    """Every table, and what `show` prints."""
    said = []
    try:
        run = Run.open(path)
        repr(run)
        for name in all_tables():
            try:
                run.table(name)
            except DriftscopeError as error:
                said.append(str(error))
        if not said:
            _shown(run)
    except DriftscopeError as error:
        said.append(str(error))
    return checked(said)


def read_report(path: Path, stock: Stock) -> str:
    """`show`, `compare` with a sound run, and `report`."""
    said = []
    calls: tuple[Callable[[], Any], ...] = (
        lambda: _shown(Run.open(path)),
        lambda: compare([path, stock.rich]).to_dict(),
        lambda: write_report([path], path.parent / "report.html"),
    )
    for call in calls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except DriftscopeError as error:
            said.append(str(error))
    return checked(said)


def _shown(run: Run) -> None:
    assessment = assess(run)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        json.dumps(_finite(run_content(run, assessment, None)), allow_nan=False)
        render_run(run, Console(file=io.StringIO(), width=120), assessment=assessment)


def checked(said: Sequence[str]) -> str:
    """The lines in one text, none of which may be several or go on and on."""
    for line in said:
        assert "\n" not in line, f"a message of several lines: {line[:200]!r}"
        assert len(line) < LONGEST_LINE, f"a message of {len(line)} characters: {line[:200]}"
    return "\n".join(said)


READ: dict[str, Callable[[Path, Stock], str]] = {
    "checkpoint": read_checkpoint,
    "capture": read_capture,
    "folder": read_folder,
    "dump": read_dump,
    "prompts": read_prompts,
    "run": read_run,
    "report": read_report,
}


def sound(reader: str, stock: Stock, place: Path) -> list[Path]:
    """What the reader must take, written into `place` where the stock does not hold it as it is read."""
    if reader == "checkpoint":
        return [written(place / "sound", stock.checkpoint)]
    if reader == "prompts":
        return prompts.sound(place)
    if reader == "dump":
        found = []
        for name, (_, _, given) in DUMPS.items():
            dump = Path(shutil.copytree(stock.dump(name), place / "sound" / stock.dump(name).name / "dump"))
            found.append(with_given(dump, given))
        return found
    return [{"capture": stock.capture, "folder": stock.folder, "run": stock.run, "report": stock.rich}[reader]]
