"""What a run is made of: captures of the prompts, then every probe on every prompt."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import MIN_ANCHORS, Capture, capture, long_enough
from driftscope.captures.conditions import Condition, Source, condition_row, condition_table, fitting
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.errors import DriftscopeError, PromptError
from driftscope.measuring.request import ProbeRequest
from driftscope.probes import SHIPPED, ConditionProbe, Probe, register
from driftscope.probes.options import check_stored
from driftscope.progress import ProgressReport
from driftscope.runs.run import Run
from driftscope.target.prompts import load_prompts, tokenize_prompts
from driftscope.target.sinks import detect_sinks

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Prepared:
    """The texts of a run."""

    sources: list[Source]
    left_out: Mapping[str, int]
    """Prompts that are not among them, by reason."""
    sink: str | Sequence[int]
    """As asked, or as the captured texts had it."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further settings to record."""


@dataclass(frozen=True)
class Bench:
    """What the shards of a run are measured with."""

    pair: Pair
    settings: Settings
    max_new_tokens: int
    cache: CaptureCache


def take_captures(request: ProbeRequest, pair: Pair, extra: set[int], progress: ProgressReport) -> Prepared:
    """The captures of all usable prompts, and how many were left out. extra: further boundaries to record.

    Raises PromptError where no continuation is long enough.
    """
    prompts, max_new_tokens, horizon = request.texts.prompts, request.texts.max_new_tokens, request.chains.horizon
    cache = request.texts.cache()
    target = pair.target
    room = target.max_positions
    loaded = load_prompts(Path(prompts) if prompts is not None else None)
    kept, skipped = tokenize_prompts(
        loaded, target.tokenizer, max_tokens=(room - max_new_tokens) if room else 1 << 30, min_tokens=2
    )
    begun = False

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            progress.stage("capturing target", total)
            begun = True
        if stage == "record":
            progress.advance()

    boundaries = sorted({*needed_boundaries(pair.config, target.num_layers), *extra})
    captures = capture(target, kept, max_new_tokens=max_new_tokens, boundaries=boundaries, cache=cache, progress=tell)
    by_id = {prompt.id: prompt for prompt in loaded}
    usable = [Source(by_id[record.prompt_id], record) for record in captures if long_enough(record, horizon)]
    if not usable:
        raise PromptError(
            f"all {len(captures)} continuations are shorter than horizon {horizon} + {MIN_ANCHORS} tokens; "
            "use other prompts, a larger --max-new-tokens or a smaller --depth"
        )
    counts = {**dataclasses.asdict(skipped), "short_continuation": len(captures) - len(usable)}
    told = {name.replace("_", " "): count for name, count in counts.items() if count}
    if told:
        progress.message("prompts left out: " + ", ".join(f"{count} {name}" for name, count in told.items()))
    return Prepared(usable, counts, request.chains.sink)


def choose_sinks(pair: Pair, captures: Sequence[Capture], sink: str | Sequence[int]) -> tuple[int, ...]:
    """Sink positions: detected on the target, none, or as given."""
    if sink == "auto":
        return detect_sinks(pair.target, captures).positions
    if sink == "none":
        return ()
    try:
        positions = sink.split(",") if isinstance(sink, str) else sink
        return tuple(sorted({int(position) for position in positions}))
    except ValueError:
        raise DriftscopeError(f"--sink {sink} is not known; use auto, none or positions such as 0,1") from None


@dataclass(frozen=True)
class Work:
    """One prompt and what the run lacks of it."""

    source: Source
    probes: tuple[Probe, ...]
    """Whose shards are missing."""
    conditions: Mapping[str, Sequence[Condition]]
    """Shard -> the texts of a probe that asks its own."""


class Watch(Protocol):
    """Looks at a run while it is measured."""

    @property
    def enough(self) -> bool:
        """Whether to stop before the next prompt."""

    def seen(self, shard: str, prompt: str, tables: Tables) -> str:
        """Take the tables of a shard; what there is to say after it, if anything."""


def in_random_order(sources: Sequence[Source], seed: int) -> list[Source]:
    """The same order for the same prompts and seed, however they are listed, so that the first few stand for all."""
    ordered = sorted(sources, key=lambda source: source.prompt.id)
    return [ordered[place] for place in np.random.default_rng(seed).permutation(len(ordered))]


def run_probes(
    run: Run,
    bench: Bench,
    sources: Sequence[Source],
    probes: Sequence[Probe],
    progress: ProgressReport,
    watch: Watch | None = None,
) -> int:
    """Measure what the run lacks, prompt by prompt. Probes with the same shard are measured once.

    Returns:
        Prompts that were left when `watch` had enough.
    """
    register(*(item for item in probes if item.name not in SHIPPED))
    todo, done = lacking(run, bench, sources, probes)
    progress.stage("probing", done + sum(len(work.probes) for work in todo))
    progress.advance(done)
    said = ""
    for place, work in enumerate(todo):
        if watch is not None and watch.enough:
            return len(todo) - place
        for shard, tables in measured(bench, work):
            prompt_id = work.source.prompt.id
            run.write_shard(shard, prompt_id, tables)
            said = (watch.seen(shard, prompt_id, tables) if watch is not None else "") or said
            progress.advance(note=f"{prompt_id} {shard}" + (f" · {said}" if said else ""))
    return 0


def lacking(run: Run, bench: Bench, sources: Sequence[Source], probes: Sequence[Probe]) -> tuple[list[Work], int]:
    """What is to be measured, prompt by prompt, and how many shards are there already.

    Raises RunError where the run holds rows of a probe that were measured with other options.
    """
    shards: dict[str, Probe] = {}
    for item in probes:
        shards.setdefault(item.shard, item)
    for item in shards.values():
        check_stored(run, item, bench.pair)
    asked: dict[str, dict[str, list[Condition]]] = {}
    for item in shards.values():
        if isinstance(item, ConditionProbe):
            mine = asked.setdefault(item.shard, defaultdict(list))
            for condition in item.conditions(bench.pair, sources, bench.settings, bench.max_new_tokens):
                mine[condition.id].append(condition)
    todo, done = [], 0
    for source in sources:
        prompt_id = source.prompt.id
        wanted = [item for item in shards.values() if item.shard not in asked or prompt_id in asked[item.shard]]
        missing = [item for item in wanted if not run.done(item.shard, prompt_id)]
        done += len(wanted) - len(missing)
        if missing:
            own = {shard: asked[shard][prompt_id] for shard in asked if prompt_id in asked[shard]}
            todo.append(Work(source, tuple(missing), own))
    return todo, done


def measured(bench: Bench, work: Work) -> Iterator[tuple[str, Tables]]:
    """The shards of one prompt by name, one after another: its prefix pass and clean chains serve every probe."""
    subject = Subject(bench.pair, work.source.capture, bench.settings)
    for item in work.probes:
        if item.shard in work.conditions:
            tables = measure_conditions(item, bench, work.conditions[item.shard])
        else:
            tables = item.measure(subject)
        yield item.shard, {**tables, "variants": variant_rows(item, bench.pair)}


def measure_conditions(item: Probe, bench: Bench, conditions: Sequence[Condition]) -> Tables:
    """All conditions of one prompt: captured, measured, their rows put together.

    Only one prompt's captures are held at a time, so that long texts fit.
    """
    pair, settings, cache = bench.pair, bench.settings, bench.cache
    target = pair.target
    boundaries = sorted({*needed_boundaries(pair.config, target.num_layers), *item.boundaries(pair)})
    lengths = [condition.new_tokens or bench.max_new_tokens for condition in conditions]
    conditions = [
        fitting(condition, length, target.max_positions) for condition, length in zip(conditions, lengths, strict=True)
    ]
    captured: dict[str, Capture] = {}
    for length in sorted(set(lengths)):
        part = [c for c, own in zip(conditions, lengths, strict=True) if own == length and c.left_out is None]
        records = capture(target, part, max_new_tokens=length, boundaries=boundaries, cache=cache)
        captured |= {condition.name: record for condition, record in zip(part, records, strict=True)}
    bos = getattr(target.tokenizer, "bos_token_id", None)
    parts: list[Tables] = []
    rows = []
    for condition in conditions:
        record = captured.get(condition.name)
        if record is not None and not long_enough(record, settings.horizon):
            condition = condition.without("continuation too short")
        elif record is not None:
            parts.append(item.measure(Subject(pair, record, settings, condition=condition)))
        ids = condition.token_ids
        row = condition_row(
            condition.name,
            condition.id,
            prompt_tokens=len(ids) or None,
            text_tokens=record.length if record is not None else None,
            double_bos=None if bos is None or not ids else ids[:2] == (bos, bos),
            left_out=condition.left_out,
        )
        rows.append(row)
    parts.append({"conditions": condition_table(rows)})
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: pd.concat([part[name] for part in parts if name in part], ignore_index=True) for name in names}


def variant_rows(item: Probe, pair: Pair) -> pd.DataFrame:
    """The `variants` table of one probe."""
    rows: list[dict[str, Any]] = [
        {
            "variant": variant.name,
            "probe": item.shard,
            "kind": variant.kind,
            "parameters": json.dumps(variant.parameters),
        }
        for variant in item.variants(pair)
    ]
    return pd.DataFrame(rows)
