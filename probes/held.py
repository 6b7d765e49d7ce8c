"""What a run holds of the probes: their records, and the figures that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from driftscope.probes import known
from driftscope.probes.record import Figures, Record, heading_of

if TYPE_CHECKING:
    from driftscope.runs.folder import RunFolder

CLEAN = "clean"


@dataclass(frozen=True)
class Held:
    """A probe of which a run has shards."""

    name: str
    question: str
    shard: str
    record: Record

    @property
    def heading(self) -> str:
        return heading_of(self.name, self.question, self.record)


_figures: WeakKeyDictionary[RunFolder, dict[tuple[str, int | None], tuple[object, Figures]]] = WeakKeyDictionary()


def held(run: RunFolder) -> list[Held]:
    """The probes whose shards lie in a run, in the order in which they are listed; then shards of probes that are not installed,
    under their own name."""
    shards = run.probes
    every = [Held(name, item.question, item.shard, record_of(item)) for name, item in known().items()]
    found = [item for item in every if item.shard in shards]
    owned = {item.shard for item in found}
    return found + [Held(name, "", name, Record()) for name in shards if name not in owned]


def record_of(probe: object) -> Record:
    """The record of a probe; one with defaults where it declares none."""
    record = getattr(probe, "record", None)
    return record if isinstance(record, Record) else Record()


def figures_of(run: RunFolder, item: Held, depth: int | None = None) -> Figures:
    """The figures of one probe, worked out once while its shards stay the same."""
    stamp = run.stamp(item.shard)
    cache = _figures.setdefault(run, {})
    key = item.name, depth
    if key not in cache or cache[key][0] != stamp:
        make = item.record.figures or _of_steps(item.shard)
        cache[key] = (stamp, make(run, depth))
    return cache[key][1]


def rows_of(record: Record, figures: Figures) -> list[dict[str, Any]]:
    """The tidy rows of a probe's figures: as its record makes them, else one for every figure."""
    from driftscope.figures.tidy import step_figure_rows, tidy_rows

    if not figures:
        return []
    make = record.rows or (step_figure_rows if record.figures is None else tidy_rows)
    return [dict(row) for row in make(figures)]


def probe_figures(run: RunFolder, depth: int | None = None) -> dict[str, Any]:
    """The figures of every probe that the run holds, ready for JSON.

    Args:
        run: the run.
        depth: steps; None is all that the run holds.

    Returns:
        By the probe's name. A figure is `{"mean": .., "low": .., "high": ..}`, with a 95% interval over prompts; what was not
        measured is absent.
    """
    found = {item.name: dict(figures_of(run, item, depth)) for item in held(run)}
    return {name: figures for name, figures in found.items() if figures}


def run_summary(run: RunFolder, depth: int | None = None) -> dict[str, Any]:
    """All figures of a run: those of the clean chains (`driftscope.runs.summary.summarise`), and under `probes` those of every
    other probe, by its name. Raises RunError if the run holds fewer steps than `depth`."""
    from driftscope.runs.summary import summarise

    summary = summarise(run, depth)
    probes: dict[str, Any] = {}
    for item in held(run):
        figures = figures_of(run, item, depth)
        if item.record.at_top:
            summary |= figures
        elif figures:
            probes[item.name] = dict(figures)
    return {**summary, "probes": probes} if probes else summary


def _of_steps(shard: str) -> Any:
    def make(run: RunFolder, depth: int | None) -> Figures:
        from driftscope.figures.tidy import step_figures

        found = step_figures(run.table("steps", shard))
        return found or {"prompts": run.prompts_done(shard)}

    return make
