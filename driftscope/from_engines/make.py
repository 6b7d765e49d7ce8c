"""Making a folder of captures: by our own target, or from the hidden states that an engine left on disk."""

from __future__ import annotations

import dataclasses
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from driftscope.captures.cache import CacheKey, CaptureCache
from driftscope.captures.capture import capture, long_enough
from driftscope.captures.conditions import spread
from driftscope.captures.folder import CaptureFolder, about_target, check_out, confirmed_share, entry, longest_text
from driftscope.captures.state_checks import StateChecks
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import load_pair
from driftscope.checkpoints import fit_to_target, open_checkpoint
from driftscope.checkpoints.reading.aux_ids import default_boundaries
from driftscope.errors import DriftscopeError, PromptError
from driftscope.from_engines.answers import Answer, Answers
from driftscope.from_engines.checks import check, check_tokens
from driftscope.from_engines.convert import convert
from driftscope.from_engines.drafter import check_with_drafter
from driftscope.from_engines.files import dump_files, held
from driftscope.from_engines.formats import Dump, Format, Ids, Last, check_length, recognised
from driftscope.from_engines.placing import Placed, place
from driftscope.from_engines.reference import TEXTS, check_with_target
from driftscope.progress import NullProgress, ProgressReport
from driftscope.target.ends import TargetEnds
from driftscope.target.model import Target
from driftscope.target.prompts import load_prompts, tokenize_prompts
from driftscope.target.sinks import detect_sinks

HORIZON = 16
"""Texts with a shorter answer do not count where sinks are looked for, as in a run with the usual horizon."""
_CHECKED = 4
_SHRINK, _SPARE = 4, 16 * 2**20
"""Under gzip states of 16 bits stored in 32 shrink most, to a third."""


def capture_with_target(
    target: Target,
    out: str | Path,
    *,
    prompts: str | Path | None = None,
    boundaries: Sequence[int] | None = None,
    drafter: str | Path | None = None,
    max_new_tokens: int = 128,
    progress: ProgressReport | None = None,
) -> CaptureFolder:
    """Continue each prompt greedily and record the text, in a folder that `--capture` takes.

    boundaries: to record beside the final state; those that `drafter` reads, else the published default. Raises
    DriftscopeError in one line.
    """
    report, folder = progress or NullProgress(), Path(out)
    check_out(folder)
    wanted = _wanted(target, boundaries, drafter)
    room = target.max_positions
    loaded = load_prompts(Path(prompts) if prompts is not None else None)
    kept, skipped = tokenize_prompts(
        loaded, target.tokenizer, max_tokens=(room - max_new_tokens) if room else 1 << 30, min_tokens=2
    )
    report.stage("capturing target", len(kept))

    def tell(stage: str, done: int, total: int) -> None:
        if stage == "record":
            report.advance()

    cache = CaptureCache(folder)
    records = capture(target, kept, max_new_tokens=max_new_tokens, boundaries=wanted, cache=cache, progress=tell)
    report.message("looking for sinks")
    long = [record for record in records if long_enough(record, HORIZON)]
    sinks = detect_sinks(target, long or records).positions
    texts = []
    for prompt, record in zip(kept, records, strict=True):
        key = CacheKey.of(target.fingerprint(), str(target.dtype), target.eos_ids, prompt.token_ids, max_new_tokens)
        texts.append(entry(record, key, final=True, confirmed=confirmed_share(record), greedy=True))
    made = CaptureFolder(
        folder=folder,
        target=about_target(target, fingerprint=target.fingerprint()),
        source={"format": "driftscope", "writer": "driftscope", "checks": []},
        max_new_tokens=max_new_tokens,
        sinks=sinks,
        texts=tuple(texts),
        skipped=dataclasses.asdict(skipped),
    )
    made.write()
    return made


def _wanted(target: Target, boundaries: Sequence[int] | None, drafter: str | Path | None) -> tuple[int, ...]:
    if boundaries is not None:
        return tuple(sorted(set(boundaries)))
    if drafter is None:
        found = default_boundaries(target.num_layers)
        if min(found) < 0 or len(set(found)) < len(found):
            raise DriftscopeError(
                f"target {target.name} has {target.num_layers} layers, too few for a default: --layers"
            )
        return found
    opened = open_checkpoint(drafter, target_config=target.text_config)
    return needed_boundaries(fit_to_target(opened.config, target.text_config), target.num_layers)


def capture_from(
    source: str | Path,
    ends: TargetEnds,
    out: str | Path,
    *,
    format: str = "auto",
    layers: Sequence[int] | None = None,
    ids: Ids | None = None,
    last: Last | None = None,
    prompts: str | Path | None = None,
    prompt_tokens: int | None = None,
    drafter: str | Path | None = None,
    whole: Target | None = None,
    max_new_tokens: int = 128,
    limit: int | None = 64,
    progress: ProgressReport | None = None,
) -> CaptureFolder:
    """Read the states that vLLM, speculators, SpecForge or TorchSpec left in `source`, check what they are said to be, and
    write captures.

    layers: the ids that the peer was given, in its order and its convention, which `ids` overrides. last: whether the final
    state was stored before or after the final norm. prompts or prompt_tokens: where a text's answer begins, if the files do
    not say. drafter, whole: further judges of the layer ids. limit: texts to take, evenly spread. Raises DriftscopeError in
    one line where something does not fit; then nothing is written.
    """
    report, folder, origin = progress or NullProgress(), Path(out), Path(source)
    check_out(folder)
    files = dump_files(origin)
    chosen = spread(files, limit) if limit is not None else files
    if len(chosen) < len(files):
        report.message(f"{len(chosen)} of {len(files)} files are taken, evenly spread (--limit)")
    answers = Answers(origin, _asked(ends, prompts), prompt_tokens)
    reader = _Reader(ends, answers, format, layers, ids, last, max_new_tokens)
    first = [text for file in spread(chosen, _CHECKED) for text in reader.texts(file)][:_CHECKED]
    placed, lines = check(ends, first, reader.placed)
    lines = [reader.placed.how, *lines]
    if whole is not None:
        lines += check_with_target(whole, [dump for dump, _ in first][:TEXTS], placed)
    for line in lines:
        report.message(line)
    # Their states would lie in memory beside those of the text that is read.
    del first
    report.stage("reading states", len(chosen))
    partial = folder.absolute().parent / f".new-{uuid.uuid4().hex}"
    try:
        texts = []
        cache, names, short, checks = CaptureCache(partial), _Names(), 0, StateChecks()
        about = about_target(ends, fingerprint=None)
        for file in chosen:
            for dump, answer in reader.texts(file):
                if answer.stop - answer.start < 2:
                    short += 1
                    continue
                name = names.fresh(answer.prompt.id if answer.prompt else _stem(dump.name))
                category = answer.prompt.category if answer.prompt else reader.format.name
                made = convert(ends, dump, answer, placed, name=name, category=category)
                record = made.record
                checks.add(record)
                key = CacheKey.of(f"{about['ends']} {name}", about["dtype"], ends.eos_ids, record.token_ids.tolist(), 0)
                key = dataclasses.replace(key, target=str(about["ends"])[:16])
                tensors = {"token_ids": record.token_ids, "rms": record.rms}
                if made.final:
                    tensors |= {"final": record.final, "near_tie": record.near_tie}
                meta = {"prompt_id": name, "prompt_length": record.prompt_length, "length": record.length}
                cache.write(
                    key, tensors, record.boundaries, target={"name": ends.name, "dtype": about["dtype"]}, meta=meta
                )
                texts.append(entry(record, key, final=made.final, confirmed=made.confirmed, greedy=record.greedy))
            report.advance()
        checks.finish()
        if not texts:
            raise DriftscopeError(f"--from {origin}: no text with an answer of 2 tokens or more")
        found = CaptureFolder(
            folder=partial,
            target=about,
            source={
                "format": reader.format.name,
                "writer": reader.format.writer,
                "from": str(origin),
                "boundaries": list(placed.boundaries),
                "assumed": list(ends.assumed),
            },
            max_new_tokens=max_new_tokens,
            sinks=None,
            texts=tuple(texts),
            skipped={"short_answer": short},
        )
        if drafter is not None:
            report.message(f"checking with {drafter}")
            pair = load_pair(drafter, ends)
            lines += (seen := check_with_drafter(pair.drafter, pair.config, found.captures()))
            report.message(seen[0])
        found.source["checks"] = lines
        found.write()
        if folder.exists():
            folder.rmdir()
        partial.replace(folder)
    except OSError as error:
        raise DriftscopeError(f"cannot write {folder}: {error.strerror or error}; choose another --out") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return dataclasses.replace(found, folder=folder)


class _Reader:
    """Reads the texts of one file after another, all of one format and with states of the same ids."""

    def __init__(
        self,
        ends: TargetEnds,
        answers: Answers,
        wanted: str,
        layers: Sequence[int] | None,
        ids: Ids | None,
        last: Last | None,
        max_new_tokens: int,
    ) -> None:
        self.ends, self.answers, self.wanted = ends, answers, wanted
        self.longest, self.max_new_tokens = longest_text(ends), max_new_tokens
        self.options: dict[str, Any] = {"layers": layers, "ids": ids, "last": last}
        self.format: Format
        self.placed: Placed
        self._known = False

    def texts(self, file: Path) -> Iterator[tuple[Dump, Answer]]:
        content, used = held(file), 0
        check_length(file, content, self.longest)
        format = recognised(file, content, self.wanted)
        if self._known and format is not self.format:
            raise DriftscopeError(
                f"{file}: by {format.writer}, others here by {self.format.writer}; --format chooses one"
            )
        dumps = format.read(file, content, self.ends.hidden_size)
        # Where they are copies, the file need not stay in memory.
        del content
        for dump in dumps:
            placed = place(format, dump, self.ends.num_layers, **self.options)
            if self._known and placed != self.placed:
                raise DriftscopeError(f"{dump.name}: {placed.how}, unlike the texts before it; capture them separately")
            self.format, self.placed, self._known = format, placed, True
            check_tokens(self.ends, dump)
            answer = self.answers.find(dump, file)
            answer = dataclasses.replace(answer, stop=min(answer.stop, answer.start + self.max_new_tokens))
            # Padding is never read, and may be most of a file.
            used += sum(part[: answer.stop].nbytes for part in (dump.states, dump.last) if part is not None)
            if used > _SHRINK * file.stat().st_size + _SPARE:
                raise DriftscopeError(
                    f"{file}: {used:,} bytes of states in {file.stat().st_size:,}; none shrink like that"
                )
            yield dump, answer


class _Names:
    """Ids that differ, also where upper and lower case do not count."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name.casefold() in self.taken:
            count += 1
            name = f"{wanted}-{count}"
        self.taken.add(name.casefold())
        return name


def _stem(name: str) -> str:
    """`data_3` of `rows_0-2000/data_3.ckpt.gz`, `step_1-row-2` of `step_1.pt row 2`."""
    path, _, row = name.partition(" row ")
    stem = Path(path).name
    while (suffix := Path(stem).suffix) in (".safetensors", ".ckpt", ".gz", ".pt"):
        stem = stem.removesuffix(suffix)
    return f"{stem}-row-{row}" if row else stem


def _asked(ends: TargetEnds, prompts: str | Path | None) -> list[Any]:
    if prompts is None:
        return []
    if ends.tokenizer is None:
        raise PromptError(f"target {ends.name} has no tokenizer for --prompts; give --prompt-tokens")
    return tokenize_prompts(load_prompts(Path(prompts)), ends.tokenizer, max_tokens=1 << 30)[0]
