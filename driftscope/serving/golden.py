"""Golden files: what a drafter accepted when it was known to be sound, to hold later runs and engines against.

The figures are for people. The gate reads the digits: one of each anchor, from which every figure follows, so that a
figure that was
changed by hand is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from driftscope._version import __version__
from driftscope.errors import DriftscopeError
from driftscope.files.yaml import yaml_object
from driftscope.findings.withheld import withheld
from driftscope.from_engines.counters.model import Counters
from driftscope.runs.run import Run
from driftscope.serving.diagnosis import Diagnosis, Traffic, diagnose
from driftscope.serving.reading import DECLARED, Reading, walk_of
from driftscope.serving.words import headline
from driftscope.stats.intervals import MIN_PROMPTS, Interval, paired_difference, ratio_of_sums
from driftscope.stats.walks import PromptWalk, Walks

SCHEMA = 1
MARGIN = 0.05
"""Share of the golden length that may be lost."""
_CONTROLS = "another prompt's features, shuffled tokens, permuted weights"


class GoldenError(DriftscopeError):
    """A golden file that cannot be read, or a run that cannot become one."""


@dataclass(frozen=True)
class Golden:
    """A golden file."""

    checkpoint: str
    sha256: str
    target: str
    fingerprint: str
    walks: Walks


@dataclass(frozen=True)
class Gate:
    """A comparison with a golden file."""

    verdict: Literal["passed", "failed", "unknown"]
    sentences: tuple[str, ...]
    """What was found, the most important first."""
    against: str
    """`run` or `engine`."""

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 2 too little to tell."""
        return {"passed": 0, "failed": 1, "unknown": 2}[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"verdict": self.verdict, "against": self.against, "sentences": list(self.sentences)}


def write_golden(run: Run, file: str | Path) -> dict[str, Any]:
    """Write the golden file of a run.

    Args:
        run: the run.
        file: where to.

    Returns:
        What is in it.

    Raises:
        GoldenError: the run is no baseline: it did not beat its negative controls, or nobody asked.
        RunError: the run holds no served walk.
    """
    import yaml

    _check_baseline(run)
    walks = walk_of(run)
    info = run.info
    content: dict[str, Any] = {
        "golden": SCHEMA,
        "checkpoint": {"path": info.checkpoint.path, "sha256": info.checkpoint.sha256},
        "target": {"name": info.target.name, "fingerprint": info.target.fingerprint},
        "settings": {name: info.settings.get(name) for name in ("dtype", "max_new_tokens", "horizon")},
        "written": {"driftscope": __version__, "on": datetime.now(UTC).date().isoformat(), "run": str(run.folder)},
        "controls": {
            name: _rounded((info.trust or {}).get("control", {}).get(name)) for name in ("agreement", "anchors")
        },
        "depth": walks.depth,
        "acceptance": {k: figures_at(walks, k) for k in range(1, walks.depth + 1)},
        "prompts": [
            {"id": p.prompt, "category": p.category, "new_tokens": p.new_tokens, "accepted": p.digits}
            for p in walks.prompts
        ],
    }
    text = yaml.safe_dump(content, sort_keys=False, width=120, default_flow_style=None, allow_unicode=True)
    about = (
        "# What this drafter accepts, K drafted tokens a round, without the bonus token; greedy, served walk, 95% over prompts.\n"
        "# A gate: driftscope engine RUN --golden THIS, or driftscope engine --golden THIS --metrics FILE for a"
        " server's counters.\n"
        "# `accepted` has one digit (base 36) an anchor: tokens accepted from there. The figures follow from it.\n"
    )
    try:
        Path(file).write_text(about + text, encoding="utf-8")
    except OSError as error:
        raise GoldenError(f"cannot write {file}: {error.strerror or error}") from error
    return content


def figures_at(walks: Walks, k: int) -> dict[str, Any]:
    """Length and share by position of rounds of k drafted tokens, with intervals over prompts."""
    counts = walks.counts(k)
    shares = ratio_of_sums(counts[:, 1:], counts[:, :1])
    length = ratio_of_sums(counts[:, 1:].sum(1), counts[:, 0])
    found = {
        "rounds": int(counts[:, 0].sum()),
        "length": _interval(length.at()),
        "positions": [_interval(shares.at(place)) for place in range(k)],
    }
    return found


def read_golden(file: str | Path) -> Golden:
    """Read a golden file back.

    Args:
        file: as `write_golden` wrote it.

    Returns:
        Its figures.

    Raises:
        GoldenError: it is none, or its figures are not those of its digits.
    """
    path = Path(file)
    content = yaml_object(path, GoldenError)
    version = content.get("golden")
    if version != SCHEMA:
        raise GoldenError(
            f"{path}: golden file of version {str(version)[:20]!r}, this driftscope reads {SCHEMA}; write it anew"
        )
    try:
        parts = tuple(
            PromptWalk.of(str(p["id"]), str(p["category"]), int(p["new_tokens"]), str(p["accepted"]))
            for p in content["prompts"]
        )
        walks = Walks(int(content["depth"]), parts)
        checkpoint, target = content["checkpoint"], content["target"]
        golden = Golden(
            str(checkpoint["path"]), str(checkpoint["sha256"]), str(target["name"]), str(target["fingerprint"]), walks
        )
        stated = content["acceptance"]
        if not parts or not 1 <= walks.depth <= 35 or any((p.accepted > walks.depth).any() for p in parts):
            raise ValueError(f"no prompts, or more than {walks.depth} tokens accepted")
        for k in range(1, walks.depth + 1):
            if not _same(stated[k], figures_at(walks, k)):
                raise GoldenError(
                    f"{path}: its figures at K = {k} are not those of its digits: it was changed by hand or is"
                    " cut off; write it anew"
                )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = " ".join(str(error).split())
        raise GoldenError(f"{path}: not a golden file, or cut off ({type(error).__name__}: {what})") from error
    return golden


def gate_run(run: Run, golden: Golden, *, margin: float = MARGIN) -> Gate:
    """A run against a golden file: on the same prompts, paired, else over both spreads.

    Fails where the length at every position together is lower by more than `margin` of the golden one with its whole interval.
    """
    walks = walk_of(run)
    k = min(walks.depth, golden.walks.depth)
    if run.info.target.fingerprint != golden.fingerprint:
        note = f"another target than the golden file's ({run.info.target.name} against {golden.target})"
    else:
        note = ""
    common = [p.prompt for p in golden.walks.prompts if p.prompt in {q.prompt for q in walks.prompts}]
    if len(common) < MIN_PROMPTS:
        raise GoldenError(
            f"run {run.folder} has {len(common)} of the golden file's {len(golden.walks.prompts)} prompts,"
            f" {MIN_PROMPTS} are needed:"
            " probe with the same --prompts"
        )
    lengths = [_lengths(part.part(common), common, k) for part in (walks, golden.walks)]
    base = golden.walks.part(common).length(k)
    change = paired_difference(lengths[0] / base, lengths[1] / base).at()
    assert change is not None
    sentences = [
        f"length at K = {k}: {walks.part(common).length(k):.2f} against {base:.2f} tokens a round,"
        f" {change.mean:+.1%} (95% {_end(change.low)} to {_end(change.high)}) over {len(common)} prompts; {margin:.0%} may be lost"
    ]
    counts = [part.part(common).counts(k).sum(0) for part in (walks, golden.walks)]
    rows = [" ".join(f"{share:.3f}".removeprefix("0") for share in c[1:] / c[0]) for c in counts]
    sentences.append(f"accepted by position: {rows[0]} against {rows[1]}")
    sentences += [note] if note else []
    if change.low is None or change.high is None:
        verdict: Literal["passed", "failed", "unknown"] = "unknown"
    else:
        verdict = "passed" if change.low >= -margin else "failed" if change.high < -margin else "unknown"
    return Gate(verdict, tuple(sentences), "run")


def gate_counters(counters: Counters, golden: Golden, traffic: Traffic | None = None) -> Gate:
    """An engine's counters against the walk that a golden file holds."""
    found = diagnose_golden(counters, golden, traffic)
    verdicts: dict[str, Literal["passed", "failed", "unknown"]] = {
        "same": "passed", "more": "passed", "less": "failed", "cannot tell": "unknown",
    }  # fmt: skip
    return Gate(verdicts[found.outcome], (headline(found),), "engine")


def diagnose_golden(counters: Counters, golden: Golden, traffic: Traffic | None = None) -> Diagnosis:
    """The counters against the walk of the file, the only reading that it holds."""
    return diagnose(counters, [Reading(DECLARED, walks=golden.walks)], traffic)


def _check_baseline(run: Run) -> None:
    trust = run.info.trust or {}
    if why := withheld(trust):
        raise GoldenError(f"run {run.folder} is no baseline: {why}")
    control = trust.get("control")
    if not isinstance(control, Mapping):
        raise GoldenError(
            f"run {run.folder} is no baseline: nobody asked whether the drafter beats its negative controls"
            f" ({_CONTROLS}), for which"
            f" {MIN_PROMPTS} prompts are needed; probe again with more prompts"
        )
    if control.get("lost"):
        raise GoldenError(
            f"run {run.folder} is no baseline: the drafter does no better than {', '.join(map(str, control['lost']))}"
        )


def _lengths(walks: Walks, order: list[str], k: int) -> Any:
    """[prompt] accepted tokens of a round."""
    counts = dict(zip((p.prompt for p in walks.prompts), walks.counts(k), strict=True))
    table = np.stack([counts[name] for name in order])
    with np.errstate(invalid="ignore", divide="ignore"):
        return table[:, 1:].sum(1) / table[:, 0]


def _interval(value: Interval | None) -> dict[str, float | None] | None:
    return None if value is None else {name: _rounded(part) for name, part in value.to_dict().items()}


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) and math.isfinite(value) else value


def _same(stated: Any, made: Any) -> bool:
    """Whether figures are equal up to the last digit that is written."""
    if isinstance(made, dict):
        return (
            isinstance(stated, dict) and stated.keys() == made.keys() and all(_same(stated[n], made[n]) for n in made)
        )
    if isinstance(made, list):
        return isinstance(stated, list) and len(stated) == len(made) and all(map(_same, stated, made))
    if isinstance(made, float) and isinstance(stated, float | int):
        return abs(stated - made) < 2e-4
    return bool(stated == made)


def _end(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.1%}"
