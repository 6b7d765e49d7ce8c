"""The audit from end to end: captures, rounds until nothing is better, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from driftscope.audit.batches import DEPTH, Material, prepare
from driftscope.audit.controls import Control, run_controls
from driftscope.audit.decide import Limits
from driftscope.audit.hypotheses import Hypothesis, TargetFacts, aux_hypothesis, hypotheses
from driftscope.audit.refine import refinements
from driftscope.audit.refusal import check_audited
from driftscope.audit.report import Audit
from driftscope.audit.rounds import Course, Round, run_round
from driftscope.audit.score import Runner
from driftscope.audit.search import search_boundaries
from driftscope.audit.setting import Lens, Setting
from driftscope.audit.spelled import spelled
from driftscope.audit.static import static_hints
from driftscope.audit.texts import withheld_texts
from driftscope.audit.verdict import Measured, conclude
from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture, capture
from driftscope.chain.pair import Pair, load_pair
from driftscope.errors import PromptError
from driftscope.progress import NullProgress, ProgressReport
from driftscope.target.model import Target
from driftscope.target.prompts import load_prompts, tokenize_prompts

PROMPTS = 48
SEARCHED = 8
"""Prompts that the search for boundaries uses, and that decide nothing about what it finds."""
Recapture = Callable[[Sequence[str], Iterable[int]], list[Capture]]
"""(prompt ids, boundaries) -> their captures with these boundaries."""


def audit(
    checkpoint: str | Path,
    *,
    target: str | Path | Target | None = None,
    prompts: str | Path | None = None,
    count: int = PROMPTS,
    max_new_tokens: int = 128,
    anchors: int = 16,
    device: str = "auto",
    dtype: str = "auto",
    overrides: Mapping[str, Any] | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    cache_dir: str | Path | None = None,
    limits: Limits | None = None,
    progress: ProgressReport | None = None,
) -> Audit:
    """Run the alternatives to every switch of a checkpoint and say whether one of them is what was trained.

    Args:
        checkpoint: a path or a Hub id.
        count: prompts, spread evenly over the file; at least 16 must be usable for a decision.
        anchors: of each prompt.
        limits: what counts as a difference; None is the default.
        target, prompts, max_new_tokens, device, dtype, overrides, revision, trust_remote_code, cache_dir, progress: as
            `driftscope.probe` takes them.

    Returns:
        The outcome with every alternative that was run; losses in nats a token.

    Raises:
        DriftscopeError: one line for whatever the user can mend.
    """
    report = progress or NullProgress()
    report.message(f"loading {checkpoint}")
    pair = load_pair(
        checkpoint,
        target,
        device=device,
        dtype=dtype,
        overrides=overrides,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    check_audited(pair.config)
    captures, again = take_captures(pair, prompts, count, max_new_tokens, cache_dir, report)
    return audit_captures(pair, captures, recapture=again, anchors=anchors, limits=limits, progress=report)


def take_captures(
    pair: Pair,
    prompts: str | Path | None,
    count: int,
    max_new_tokens: int,
    cache_dir: str | Path | None,
    progress: ProgressReport,
) -> tuple[list[Capture], Recapture]:
    """Captures of `count` prompts with the boundaries that plain hypotheses read, and how to get further boundaries."""
    target = pair.target
    room = target.max_positions
    found = load_prompts(Path(prompts) if prompts is not None else None)
    places = np.linspace(0, len(found) - 1, min(count, len(found))).round().astype(int)
    kept, _ = tokenize_prompts(
        [found[i] for i in places],
        target.tokenizer,
        max_tokens=(room - max_new_tokens) if room else 1 << 30,
        min_tokens=2,
    )
    cache = CaptureCache(Path(cache_dir) if cache_dir is not None else None)
    by_id = {prompt.id: prompt for prompt in kept}
    held: set[int] = set()

    def again(ids: Sequence[str], boundaries: Iterable[int]) -> list[Capture]:
        def tell(stage: str, done: int, total: int) -> None:
            if done == 1 and stage == "record":
                progress.stage("capturing target", total)
            if stage == "record":
                progress.advance()

        wanted = sorted({*held, *boundaries})
        chosen = [by_id[name] for name in ids]
        return capture(target, chosen, max_new_tokens=max_new_tokens, boundaries=wanted, cache=cache, progress=tell)

    setting = Setting(pair.config, pair.checkpoint.weights)
    held |= plain_boundaries(setting, facts(target, pair.checkpoint.raw_config))
    return again(list(by_id), ()), again


def facts(target: Target, raw: Mapping[str, Any] | None = None) -> TargetFacts:
    """What the hypotheses ask of a target, and of the drafter's own config.json."""
    config = target.text_config
    rope = getattr(config, "rope_parameters", None) or {}
    if rope and all(isinstance(value, Mapping) for value in rope.values()):
        rope = next(iter(rope.values()))
    theta = rope.get("rope_theta", getattr(config, "rope_theta", None))
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
    return TargetFacts(
        num_layers=target.num_layers,
        embedding=target.embedding_weight.detach(),
        head=target.head_weight.detach(),
        rope_theta=float(theta) if theta else None,
        rope_scaling=scaling if scaling.get("rope_type", "default") != "default" else None,
        written_theta=_theta(raw or {}),
    )


def _theta(raw: Mapping[str, Any]) -> float | None:
    """rope_theta as a config says it, plain, in its rope_parameters or in the config of its layer."""
    for place in (raw, raw.get("rope_parameters"), raw.get("transformer_layer_config")):
        value = place.get("rope_theta") if isinstance(place, Mapping) else None
        if isinstance(value, int | float) and value > 0:
            return float(value)
    return None


def plain_boundaries(setting: Setting, target: TargetFacts) -> set[int]:
    """Boundaries that the setting and its hypotheses read, those of the search excepted."""
    settings = [setting, *(h.apply(setting) for h in hypotheses(setting, target) if not h.ruled_out)]
    return {b for item in settings for b in item.boundaries(target.num_layers)}


def audit_captures(
    pair: Pair,
    captures: Sequence[Capture],
    *,
    recapture: Recapture | None = None,
    anchors: int = 16,
    limits: Limits | None = None,
    switches: Collection[str] | None = None,
    material: Material | None = None,
    lens: Lens | None = None,
    progress: ProgressReport | None = None,
) -> Audit:
    """audit() for a pair and captures that are there already.

    Without `recapture`, hypotheses whose boundaries the captures lack are listed as not captured, and nothing is searched.
    switches: only the hypotheses of these, named as in the rows of an audit. material: what `prepare` made of these captures,
    which audits with the same target can share. lens: how the text is shown where that is known to be otherwise than trained.
    """
    check_audited(pair.config)
    limits, report = limits or Limits(), progress or NullProgress()
    target = facts(pair.target, pair.checkpoint.raw_config)
    material = material or prepare(pair.target, captures, anchors=anchors)
    if not material.captures:
        raise PromptError(
            f"none of {len(captures)} continuations has 4 tokens outside loops with {DEPTH + 3} more after them;"
            " use other prompts or a larger --max-new-tokens"
        )
    runner = Runner(material, target.embedding, target.head, pair.target.dtype)
    declared = runner.cast(Setting(pair.config, pair.checkpoint.weights, lens or Lens()))
    setting = declared
    began = time.monotonic()
    rounds: list[Round] = []
    while len(rounds) < limits.rounds:
        tried, searched_on = _tried(setting, target, runner, recapture, switches)
        report.stage(f"round {len(rounds) + 1}", len(tried))
        rounds.append(
            run_round(
                len(rounds) + 1,
                setting,
                tried,
                runner,
                limits,
                Course(
                    searched_on,
                    time.monotonic,
                    lambda note: report.advance(note=note),
                    partial(_refined, setting, target, runner, recapture, tuple(tried)),
                ),
            )
        )
        if rounds[-1].winner is None:
            break
        setting = rounds[-1].winner.apply(setting)
    final = _final_controls(setting, rounds, runner, limits)
    hints = static_hints(pair.checkpoint, declared, target.embedding, target.head)
    seconds = time.monotonic() - began
    garbage = withheld_texts(pair.target, captures)
    return conclude(pair, Measured(declared, setting, rounds, final, hints, seconds, garbage), material, limits)


def _tried(
    setting: Setting,
    target: TargetFacts,
    runner: Runner,
    recapture: Recapture | None,
    switches: Collection[str] | None,
) -> tuple[list[Hypothesis], np.ndarray]:
    """The hypotheses of a round with what the search adds; captures are extended to what they read."""
    tried = [h for h in hypotheses(setting, target) if switches is None or h.switch in switches]
    ids = [record.prompt_id for record in runner.material.captures]
    searched_on = np.zeros(len(ids), bool)
    sets: list[tuple[int, ...]] = []
    whole = setting.config.feature_source == "aux" and not setting.lens.last_after_norm
    whole &= switches is None or "aux_boundaries" in switches
    if recapture is not None and whole and len(ids) > 2 * SEARCHED:
        chosen = np.linspace(0, len(ids) - 1, SEARCHED).round().astype(int)
        searched_on[chosen] = True
        records = recapture([ids[i] for i in chosen], range(target.num_layers + 1))
        part = runner.material.part(chosen.tolist(), records, stride=2)
        small = Runner(part, runner.embedding, runner.head, runner.dtype)
        sets = search_boundaries(setting, small, target.num_layers)
    known = {h.changes.get("aux_boundaries") for h in tried}
    for index, found in enumerate(sets):
        word = "best single replacement" if index == 0 else "repeated replacements"
        if found not in known:
            tried.append(aux_hypothesis(setting, found, f"{spelled(found)} (search: {word})", searched=True))
    needed = {b for h in tried if not h.ruled_out for b in h.apply(setting).boundaries(target.num_layers)}
    held = set.intersection(*(set(record.boundaries) for record in runner.material.captures))
    if needed <= held:
        return tried, searched_on
    if recapture is not None:
        runner.material = replace(runner.material, captures=tuple(recapture(ids, needed | held)))
        return tried, searched_on
    return [_without(h, setting, target, held) for h in tried], searched_on


def _refined(
    setting: Setting,
    target: TargetFacts,
    runner: Runner,
    recapture: Recapture | None,
    tried: Sequence[Hypothesis],
    winner: Hypothesis,
) -> list[Hypothesis]:
    """`refinements` of a winner, as far as their boundaries are captured or can be."""
    found = refinements(winner, setting, target, tried)
    needed = {b for h in found for b in h.apply(setting).boundaries(target.num_layers)}
    held = set.intersection(*(set(record.boundaries) for record in runner.material.captures))
    if needed <= held:
        return found
    if recapture is not None:
        ids = [record.prompt_id for record in runner.material.captures]
        runner.material = replace(runner.material, captures=tuple(recapture(ids, needed | held)))
        return found
    return [h for h in found if set(h.apply(setting).boundaries(target.num_layers)) <= held]


def _without(hypothesis: Hypothesis, setting: Setting, target: TargetFacts, held: set[int]) -> Hypothesis:
    missing = set() if hypothesis.ruled_out else set(hypothesis.apply(setting).boundaries(target.num_layers)) - held
    return replace(hypothesis, ruled_out=f"boundary {min(missing)} is not captured") if missing else hypothesis


def _final_controls(setting: Setting, rounds: Sequence[Round], runner: Runner, limits: Limits) -> list[Control]:
    if rounds[-1].winner is None:
        return rounds[-1].controls
    scores, _ = runner.run(setting)
    return run_controls(setting, scores, runner, limits)
