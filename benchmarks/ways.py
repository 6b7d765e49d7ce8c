"""The ways to one and the same: what a script would write, one chain after another, and driftscope's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import naive
import torch
from naive import Numbers
from transformers.utils.logging import disable_progress_bar

from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture, capture
from driftscope.chain.chain import chain_inputs
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.measure import BUCKETS, HEAVIEST, StepMeasure
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints import open_checkpoint
from driftscope.drafter.site import site
from driftscope.errors import DriftscopeError
from driftscope.target.prompts import TokenizedPrompt, load_prompts, tokenize_prompts

SINKS = (0,)
RMS_TOLERANCE = 1e-4
"""Relative."""
MASS_TOLERANCE = 1e-4
"""Absolute."""
NEAR_TIE = 1e-3
"""Logits closer than this may be ranked otherwise by another order of summation."""
LOOPS = {"eager": naive.probe_eager, "cached": naive.probe_cached}


@dataclass(frozen=True)
class Job:
    """What all processes work on."""

    checkpoint: str
    target: str | None
    prompts: int
    prompt_file: str | None
    anchors: int
    depth: int
    max_new_tokens: int
    threads: int
    cache: str
    device: str = "cpu"
    dtype: str = "float32"


def refuse_unknown(job: Job) -> None:
    """DriftscopeError before the costly part, where the plain loops cannot run this drafter."""
    unknown = naive.unknown_switches(open_checkpoint(job.checkpoint).config)
    if unknown:
        raise DriftscopeError(f"{job.checkpoint}: the plain loops of this benchmark do not know {', '.join(unknown)}")


# Where the parts of a benchmark share a process they share the pair.
@lru_cache(maxsize=1)
def opened(job: Job) -> tuple[Pair, list[TokenizedPrompt]]:
    torch.set_num_threads(job.threads)
    disable_progress_bar()
    pair = load_pair(job.checkpoint, job.target, device=job.device, dtype=job.dtype)
    file = Path(job.prompt_file) if job.prompt_file else None
    room = (pair.target.max_positions or 1 << 30) - job.max_new_tokens
    kept, _ = tokenize_prompts(load_prompts(file), pair.target.tokenizer, max_tokens=room, min_tokens=2)
    return pair, kept[: job.prompts]


def captured(job: Job, pair: Pair, prompts: Sequence[TokenizedPrompt], *, cached: bool = True) -> list[Capture]:
    """Captures with at least one anchor."""
    found = capture(
        pair.target,
        prompts,
        max_new_tokens=job.max_new_tokens,
        boundaries=needed_boundaries(pair.config, pair.target.num_layers),
        cache=CaptureCache(Path(job.cache)) if cached else None,
    )
    return [record for record in found if record.new_tokens > job.depth]


def subjects(job: Job, pair: Pair, captures: Sequence[Capture]) -> list[Subject]:
    """Fresh ones, which have computed nothing yet."""
    settings = Settings(depth=job.depth, horizon=job.depth, sinks=SINKS, anchors=job.anchors)
    return [Subject(pair, record, settings) for record in captures]


def our_numbers(subject: Subject) -> Numbers:
    """Prefix pass, baseline and chains with every site observed."""
    steps = subject.chains("drafted")
    named = [BUCKETS.index(name) for name in naive.BUCKETS]
    return Numbers(
        carry_rms=torch.stack([step["rms/carry"] for step in steps], 1),
        mass=torch.stack([step["mass"][:, 0][..., named] for step in steps], 1),
        drafted=torch.stack([step["drafted"] for step in steps], 1),
    )


def plain_numbers(loop: naive.Probe, subject: Subject, weights: naive.Weights) -> Numbers:
    """The same with a loop over the anchors."""
    text, drafter = subject.text, subject.pair.drafter
    return loop(
        subject.pair.config,
        weights,
        drafter.embed_tokens.weight,
        text.token_ids,
        text.prompt_length,
        text.features,
        subject.anchors.tolist(),
        subject.settings.depth,
        subject.settings.sinks,
    )


def plain_weights(pair: Pair) -> naive.Weights:
    """The drafter's weights under their canonical names, where it runs."""
    weights = dict(pair.drafter.state_dict())
    stored = pair.checkpoint.weights
    return weights | {name: stored[name].to(pair.drafter.device) for name in ("d2t",) if name in stored}


def agreement(ours: Sequence[Numbers], plain: Sequence[Numbers]) -> dict[str, float]:
    """The largest differences, over all steps up to the first near tie of a chain. AssertionError where they are too large."""
    rms = mass = 0.0
    ties = 0
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine.drafted.shape == theirs.drafted.shape, "the ways ran other anchors"
        assert theirs.gap is not None
        differs = (mine.drafted != theirs.drafted).cummax(1).values
        # A chain leaves the comparison only where its first differing token was a near tie; that step still counts.
        first = differs & ~torch.nn.functional.pad(differs, (1, 0))[:, :-1]
        assert bool((theirs.gap[first] < NEAR_TIE).all()), "the ways draft other tokens"
        ties += int(first.sum())
        kept = ~differs | first
        rms = max(rms, float((mine.carry_rms / theirs.carry_rms - 1).abs()[kept].max()))
        mass = max(mass, float((mine.mass - theirs.mass).abs()[kept].max()))
    assert rms <= RMS_TOLERANCE, f"carry RMS differs by {rms:.2g} (relative)"
    assert mass <= MASS_TOLERANCE, f"masses differ by {mass:.2g}"
    return {"carry_rms_relative": rms, "mass_absolute": mass, "near_ties": ties}


@torch.no_grad()
def bare_chain(subject: Subject) -> torch.Tensor:
    """The chains with nothing read but the drafted tokens."""
    inputs = chain_inputs(
        subject.text,
        subject.passed.prefix,
        subject.windows,
        anchors=subject.anchors,
        depth=subject.settings.depth,
        feed="drafted",
    )
    drafted: torch.Tensor = subject.pair.chain(inputs)
    return drafted


def hooked_chain(subject: Subject) -> list[dict[str, torch.Tensor]]:
    """The chains, observed with plain forward hooks that reduce as observe() does."""
    drafter = subject.pair.drafter
    measure = StepMeasure(
        drafter, subject.text, subject.passed.baseline, subject.settings.sinks, subject.anchors, HEAVIEST
    )
    values: dict[str, torch.Tensor] = {}
    steps: list[dict[str, torch.Tensor]] = []

    def keeper(name: str) -> Callable[[Any, Any, torch.Tensor], None]:
        def keep(module: Any, args: Any, output: torch.Tensor) -> None:
            values[name] = output
            if name == drafter.step_sites[-1]:
                steps.append(measure(len(steps) + 1, slice(0, len(subject.anchors)), dict(values)))
                values.clear()

        return keep

    names = (*drafter.first_sites, *drafter.step_sites)
    handles = [site(drafter, name).register_forward_hook(keeper(name)) for name in names]
    try:
        bare_chain(subject)
    finally:
        for handle in handles:
            handle.remove()
    return steps
