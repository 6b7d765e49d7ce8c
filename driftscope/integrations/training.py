"""Drift of a drafter that is being trained, on a small fixed capture of its target."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from driftscope import stats
from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture, capture, long_enough
from driftscope.captures.conditions import spread
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.interventions import Noise
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.drafter import build_drafter
from driftscope.errors import PromptError
from driftscope.integrations.live import Live, read_live
from driftscope.integrations.undisturbed import undisturbed
from driftscope.probes.compare import Compare
from driftscope.probes.noise import stacked_noise
from driftscope.probes.stacked import first_anchors, stacked_anchors, stacked_chains
from driftscope.runs.rows import anchor_rows, head_rows, joint, step_rows
from driftscope.runs.summary import FeedFigures, feed_figures
from driftscope.stats.intervals import Floats
from driftscope.target.model import Target, load_target
from driftscope.target.prompts import load_prompts, tokenize_prompts
from driftscope.target.sinks import detect_sinks

PREFIX = "driftscope/"
ALPHAS = (0.1, 0.2, 0.5, 1.0)
"""Scales of the noise, in units of a row's RMS."""
_NOISY_ANCHORS = 8


@dataclass(frozen=True)
class TrainingCapture:
    """What every evaluation reads: texts of the target with the states that the drafter needs, on the CPU.

    The target itself is not needed any more; of it, embedding and head stay referenced.
    """

    captures: tuple[Capture, ...]
    settings: Settings
    target_config: Any
    embedding: Tensor
    head: Tensor


def training_capture(
    target: Target | str | Path,
    drafter: Live,
    *,
    config: Any = None,
    overrides: Mapping[str, Any] | None = None,
    prompts: str | Path | None = None,
    count: int = 12,
    max_new_tokens: int = 64,
    depth: int = 8,
    anchors: int | None = 32,
    sinks: Sequence[int] | None = None,
    cache_dir: str | Path | None = None,
) -> TrainingCapture:
    """Have the target continue prompts and record the states that this drafter reads.

    Captures are cached on disk as those of `driftscope.probe` are.

    Args:
        target: as `load_pair` takes it.
        drafter: tells which of the target's layers are read; its weights do not matter.
        config, overrides: as `drift_metrics` takes them.
        prompts: a file, by default a choice of the shipped ones.
        count: prompts.
        max_new_tokens: tokens of each continuation.
        depth: steps of a chain.
        anchors: the first so many of each prompt; None is all.
        sinks: positions; None detects them.
        cache_dir: where captures are kept.

    Returns:
        What `drift_metrics` takes in place of a target.

    Raises:
        CheckpointError: the drafter is none.
        TargetError: a target that cannot be loaded.
        PromptError: prompts that cannot be used.
    """
    with undisturbed():
        loaded = target if isinstance(target, Target) else load_target(target)
        switches, _ = read_live(drafter, config, overrides, loaded.text_config)
        room = (loaded.max_positions or 1 << 30) - max_new_tokens
        kept, _ = tokenize_prompts(
            load_prompts(Path(prompts) if prompts is not None else None),
            loaded.tokenizer,
            max_tokens=room,
            min_tokens=2,
        )
        records = capture(
            loaded,
            spread(kept, count),
            max_new_tokens=max_new_tokens,
            boundaries=needed_boundaries(switches, loaded.num_layers),
            cache=CaptureCache(Path(cache_dir) if cache_dir is not None else None),
        )
        usable = tuple(record for record in records if long_enough(record, depth))
        if not usable:
            raise PromptError(
                f"all {len(records)} continuations are too short for chains of {depth} steps; use other prompts, a larger "
                "max_new_tokens or a smaller depth"
            )
        found = detect_sinks(loaded, usable).positions if sinks is None else tuple(sinks)
        return TrainingCapture(
            usable,
            Settings(depth=depth, horizon=depth, sinks=found, anchors=anchors),
            loaded.text_config,
            loaded.embedding_weight.detach(),
            loaded.head_weight.detach(),
        )


def drift_metrics(
    drafter: Live,
    target: Target | TrainingCapture,
    *,
    config: Any = None,
    overrides: Mapping[str, Any] | None = None,
    alphas: Sequence[float] = ALPHAS,
    prefix: str = PREFIX,
) -> dict[str, float]:
    """Five figures of drift, ready to be logged: call it every so many steps of a training.

    `norm_growth`: RMS of the carry at the last step over step 1's, geometric mean. `sink_slope`, `self_excess_slope`:
    shares of attention per step, over the steps 2 to the last. `served_length`: drafted tokens accepted per round, without
    the bonus token. `noise_half_point`: scale of noise on the state, in units of its RMS, at which half of the accepted
    length is lost; absent where that is outside `alphas`. Beside them `matched_growth`, `displacement` and `noise_kept`, the share
    of the length left at the largest alpha up to 0.5.

    Parameters, gradients, random number generators, train/eval and grad mode are left as they are.

    Args:
        drafter: the module in training (wrappers of torch.compile, DDP and FSDP with full parameters are looked through; of a
            module that holds target and drafter, the drafter is taken) or a state dict. Its layout is recognised as a
            checkpoint's is.
        target: what `training_capture` returned, or a Target, whose capture is then made at the first call.
        config: as config.json, a dict or a transformers config; None takes the module's own.
        overrides: switches of DrafterConfig by name.
        alphas: scales of noise; () leaves it out.
        prefix: of the names.

    Returns:
        Name -> mean over prompts, in float32. What could not be measured is absent, as is all about noise while hardly anything is
        accepted.

    Raises:
        CheckpointError: the drafter is none.
        TargetError: it does not fit the target.
    """
    with undisturbed():
        held = target if isinstance(target, TrainingCapture) else _capture_of(target, drafter, config, overrides)
        with _pair(drafter, held, config, overrides) as pair:
            found = _figures(pair, held, tuple(alphas))
    return {prefix + name: value for name, value in found.items() if value is not None and math.isfinite(value)}


_CAPTURES: WeakKeyDictionary[Target, dict[tuple[int, ...], TrainingCapture]] = WeakKeyDictionary()


def _capture_of(target: Target, drafter: Live, config: Any, overrides: Mapping[str, Any] | None) -> TrainingCapture:
    switches, _ = read_live(drafter, config, overrides, target.text_config)
    held = _CAPTURES.setdefault(target, {})
    wanted = needed_boundaries(switches, target.num_layers)
    if wanted not in held:
        held[wanted] = training_capture(target, drafter, config=config, overrides=overrides)
    return held[wanted]


@contextlib.contextmanager
def _pair(drafter: Live, held: TrainingCapture, config: Any, overrides: Mapping[str, Any] | None) -> Iterator[Pair]:
    switches, weights = read_live(drafter, config, overrides, held.target_config)
    device = next(iter(weights.values())).device
    built = build_drafter(switches, weights, target_embedding=held.embedding, target_head=held.head, device=device)
    # Nothing that is measured here asks the checkpoint or the target.
    yield Pair(cast(Any, None), switches, cast(Any, None), built)


def _figures(pair: Pair, held: TrainingCapture, alphas: tuple[float, ...]) -> dict[str, float | None]:
    anchors, heads = [], []
    served, rounds = 0, 0
    clean, noisy = 0, np.zeros(len(alphas))
    # A block drafter has no more steps than its block.
    depth = min(held.settings.depth, pair.drafter.max_steps or held.settings.depth)
    settings = replace(held.settings, depth=depth)
    for record in held.captures:
        subject = Subject(pair, record, settings)
        chains = subject.clean("drafted")
        anchors.append(anchor_rows(subject, "clean", "drafted", chains))
        heads.append(head_rows(subject, "clean", "drafted", chains))
        last = step_rows(subject, "clean", "drafted", chains).iloc[-1]
        served, rounds = served + int(last["served_accepted"]), rounds + int(last["served_rounds"])
        if alphas:
            accepted = _under_noise(subject, alphas)
            clean, noisy = clean + accepted[0], noisy + accepted[1:]
    figures = feed_figures(pd.concat(anchors, ignore_index=True), pd.concat(heads, ignore_index=True))
    found = {} if figures is None else _drift(figures)
    if not held.settings.sinks:
        found["sink_slope"] = None
    found["served_length"] = served / rounds if rounds else None
    if alphas and clean >= stats.MIN_DENOMINATOR:
        kept = noisy / clean
        point = stats.half_point(alphas, kept)
        found["noise_half_point"] = point if isinstance(point, float) else None
        small = [place for place, alpha in enumerate(alphas) if alpha <= 0.5]
        found["noise_kept"] = float(kept[max(small, key=lambda place: alphas[place])]) if small else None
    return found


def _drift(figures: FeedFigures) -> dict[str, float | None]:
    means = figures.means

    def last(name: str) -> float | None:
        return _mean(means[name][:, -1]) if name in means else None

    def slope(name: str) -> float | None:
        return _mean(stats.slope(means[name])) if name in means else None

    growth, matched = last("log_growth"), last("log_matched_growth")
    return {
        "norm_growth": None if growth is None else math.exp(growth),
        "matched_growth": None if matched is None else math.exp(matched),
        "sink_slope": slope("mass/sink"),
        "self_excess_slope": slope("excess/self_generated"),
        "displacement": last("displacement"),
    }


def _under_noise(subject: Subject, alphas: tuple[float, ...]) -> Floats:
    """Accepted tokens over the first anchors outside loops: undisturbed, then with each alpha of state noise.

    One pass for all: the copies of an anchor get the same noise, scaled by their alpha.
    """
    narrow = first_anchors(subject, _NOISY_ANCHORS)
    copies = 1 + len(alphas)
    noise = stacked_noise(narrow, 1).repeat_interleave(copies, 1)
    scale = torch.tensor((0.0, *alphas), device=noise.device).repeat(len(narrow.anchors))
    noise = noise * scale[:, None]
    measure = Compare(narrow.pair.drafter, narrow.text, stacked_anchors(narrow, copies))
    added = [Noise("state", 1.0, noise)]
    steps = stacked_chains(narrow, "drafted", copies, measure, sites=("logits",), interventions=added)
    match = np.stack([(step["drafted"] == step["text"]).cpu().numpy() for step in steps], 1)
    accepted = joint(match).reshape(-1, copies, len(steps))
    return np.asarray(accepted[~narrow.looping].sum((0, 2)), dtype=np.float64)


def _mean(values: Floats) -> float | None:
    present = values[np.isfinite(values)]
    return float(present.mean()) if present.size else None
