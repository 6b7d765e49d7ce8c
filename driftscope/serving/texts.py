"""The pair and the very texts of a run, taken up again: to walk them under readings of the checkpoint that the run
did not measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture, capture
from driftscope.captures.record import record
from driftscope.chain.pair import Pair, load_pair
from driftscope.errors import RunError
from driftscope.progress import ProgressReport
from driftscope.runs.run import Run
from driftscope.runs.summary import CLEAN
from driftscope.serving.places import Places
from driftscope.target.loops import loop_mask
from driftscope.target.prompts import TokenizedPrompt


def pair_of(run: Run, places: Places) -> Pair:
    """The checkpoint and target of a run, with the switches that the user set for it.

    Raises RunError where the checkpoint is another one by now, and a DriftscopeError where one of them cannot be loaded.
    """
    info = run.info
    origins = info.checkpoint.origins
    chosen = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in info.checkpoint.switches.items()
        if isinstance(origins.get(name), Mapping) and origins[name].get("source") == "user"
    }
    pair = load_pair(
        places.checkpoint or info.checkpoint.path,
        places.target or info.target.name,
        device=places.device,
        dtype=places.dtype or str(info.settings.get("dtype", "auto")),
        overrides=chosen,
        trust_remote_code=places.trust_remote_code,
    )
    if pair.checkpoint.sha256 != info.checkpoint.sha256:
        raise RunError(
            f"{pair.checkpoint.path} is not the checkpoint of run {run.folder} any more (its files differ): probe it again, or name"
            " the one that the run measured with --checkpoint"
        )
    if info.target.fingerprint and pair.target.fingerprint() != info.target.fingerprint:
        raise RunError(
            f"{pair.target.name} is not the target of run {run.folder}: name the one that the run measured with --target"
        )
    return pair


def texts_of(
    run: Run, pair: Pair, boundaries: Sequence[int], places: Places, progress: ProgressReport
) -> list[Capture]:
    """Captures of the run's texts with these boundaries: from the cache, else recorded anew.

    Raises RunError where the run does not hold its texts.
    """
    held = _tokens(run)
    prompts = [part for part in run.info.prompts if part.id in held]
    if not prompts:
        raise RunError(f"run {run.folder} holds no texts: probe the checkpoint again, with acceptance among --probes")
    if run.info.settings.get("capture") is None:
        found = _cached(run, pair, prompts, held, boundaries, places, progress)
        if found is not None:
            return found
    progress.stage("recording the run's texts", len(prompts))
    made = []
    for prompt in prompts:
        made.append(recorded(pair, prompt.id, prompt.category or "", held[prompt.id], prompt.prompt_length, boundaries))
        progress.advance(note=prompt.id)
    return made


def recorded(
    pair: Pair, prompt_id: str, category: str, token_ids: Sequence[int], prompt_length: int, boundaries: Sequence[int]
) -> Capture:
    """The capture of a text that is there already: one forward of the target over it."""
    ids = torch.tensor(list(token_ids))
    made = record(pair.target, list(token_ids), boundaries, first=prompt_length - 1, label=f"prompt {prompt_id}")
    near_tie = torch.zeros(len(ids), dtype=torch.bool)
    near_tie[prompt_length - 1 : -1] = made.argmax[:-1] != ids[prompt_length:]
    return Capture(
        prompt_id=prompt_id,
        category=category,
        token_ids=ids,
        prompt_length=prompt_length,
        final=made.final,
        boundaries=made.boundaries,
        rms=made.rms,
        near_tie=near_tie,
        loop=torch.from_numpy(loop_mask(ids.numpy(), prompt_length)),
        stopped=bool(len(ids) > prompt_length and int(ids[-1]) in pair.target.eos_ids),
    )


def _cached(
    run: Run,
    pair: Pair,
    prompts: Sequence[Any],
    held: Mapping[str, list[int]],
    boundaries: Sequence[int],
    places: Places,
    progress: ProgressReport,
) -> list[Capture] | None:
    """Of the cache, or continued anew; None where that gives other texts than the run has."""
    asked = [
        TokenizedPrompt(part.id, part.category or "", tuple(held[part.id][: part.prompt_length]), "")
        for part in prompts
    ]

    def tell(stage: str, done: int, total: int) -> None:
        if stage == "record":
            if done == 1:
                progress.stage("recording the run's texts", total)
            progress.advance()

    cache = CaptureCache(Path(places.cache_dir) if places.cache_dir is not None else None)
    longest = int(run.info.settings.get("max_new_tokens") or 128)
    found = capture(pair.target, asked, max_new_tokens=longest, boundaries=boundaries, cache=cache, progress=tell)
    same = all(record.token_ids.tolist() == held[record.prompt_id] for record in found)
    return found if same else None


def _tokens(run: Run) -> dict[str, list[int]]:
    """Prompt -> the tokens of its text, in order."""
    table = run.table("tokens", CLEAN, columns=["prompt", "position", "id"]).dropna(subset=["position"])
    table = table.sort_values(["prompt", "position"])
    return {str(name): rows["id"].astype(int).tolist() for name, rows in table.groupby("prompt", observed=True)}
