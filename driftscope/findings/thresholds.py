"""Every threshold of the findings in one place, with the reason for its default.

Overridden in `[tool.driftscope.thresholds]` of the nearest pyproject.toml, or in a TOML file that holds the same table
or the bare names.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftscope.errors import DriftscopeError

DRIFT_PAPER = "arXiv 2605.09992 (Attention Drift, 2026)"


class ThresholdError(DriftscopeError):
    """A file of thresholds that cannot be read."""


@dataclass(frozen=True)
class Threshold:
    """One limit. Values must lie strictly between `above` and `below`."""

    name: str
    default: float
    meaning: str
    reason: str
    above: float = 0.0
    below: float = math.inf


THRESHOLDS = (
    Threshold(
        "norm_growth",
        1.1,
        "growth of the carry's RMS over step 1's, as a factor",
        "Published pre-norm drafters grow 1.3x (gpt-oss-120b) to 3.6x (Llama-3.1-8B) over 8 steps, a post-norm one"
        f" stays within 1%: {DRIFT_PAPER}. 10% lies between.",
        above=1.0,
    ),
    Threshold(
        "displacement",
        0.05,
        "share of a head's attention that moved against no drafting",
        "What displacement reads where nothing drifts: the example drafters against themselves, under other prompts and in"
        " the other half of each text, read less than .05 in 99 of 100 draws (benchmarks/displacement_null.py). Published"
        " tables give raw masses, which are another quantity.",
        below=1.0,
    ),
    Threshold(
        "self_excess",
        0.05,
        "attention on the chain's own rows beyond that without drafting",
        "As for displacement: where nothing drifts, less than .04 in 99 of 100 draws (benchmarks/displacement_null.py).",
        below=1.0,
    ),
    Threshold(
        "sink_loss",
        0.05,
        "attention that the sink loses against step 1",
        f"As for displacement: the sink goes from .46 to .08 in the published pre-norm drafter, from .11 to .10 in the"
        f" post-norm one ({DRIFT_PAPER}).",
        below=1.0,
    ),
    Threshold(
        "fused_dominance",
        2.0,
        "the largest block of the fused input over the mean of the others, after fc",
        "1 is an equal share; at 2, one of three blocks weighs as much as both others together.",
        above=1.0,
    ),
    Threshold(
        "aux_rms_dominance",
        2.0,
        "RMS of the largest target feature over the mean of the others, where no norm evens them out",
        "From the published RMS of the three features: 1.4 for Llama-3.1-8B, whose trouble is growth, 2.8 for"
        f" Qwen3.5-35B and 18 for gpt-oss-120b: {DRIFT_PAPER}. 2 lies between.",
        above=1.0,
    ),
    Threshold(
        "noise_half_point",
        0.4,
        "scale of state noise, relative to the state's RMS, at which half of the accepted length is lost",
        "From the published lengths kept at .1, .5 and 1: half is lost at .2 for the pre-norm Llama-3.1-8B drafter and"
        f" at .6 for the post-norm one ({DRIFT_PAPER}). .4 lies between.",
    ),
    Threshold(
        "depth_kept",
        0.5,
        "text-fed agreement at the last step over that at step 1",
        "Conditional acceptance at step 16 over that at step 1 is .55 and .57 in the published drafters that"
        f" hold out and 0 in the one that collapses ({DRIFT_PAPER}).",
        below=1.0,
    ),
    Threshold(
        "template_kept",
        0.9,
        "accepted length under another template over that under the model's own",
        "In the published ablation the pre-norm drafter keeps 83, 62 and 49%, the post-norm one 97, 96 and 95%"
        f" ({DRIFT_PAPER}). 90% lies between.",
        below=1.0,
    ),
    Threshold(
        "length_kept",
        0.5,
        "accepted length in a long context over that in the shortest one",
        "A published break goes from 2.30 accepted at 2k tokens to 1.08 at 20k (vllm-project/speculators PR 684),"
        " lengths with the bonus token: .13 kept without it.",
        below=1.0,
    ),
    Threshold(
        "length_dispersion",
        1.25,
        "SD of the accepted length per round over the SD that one constant acceptance rate would give",
        "1 is the model by which a mean predicts a speed-up (Leviathan et al., arXiv 2211.17192, section 3); at 1.25 the"
        " variance is half as large again.",
        above=1.0,
    ),
    Threshold(
        "loop_share",
        0.05,
        "share of anchors where the target repeats itself",
        "Loops are predicted nearly always, so that 5% of them can move a served length by as much as a change of"
        " drafter. A published record length came from a loop of two tokens (lightseekorg/tokenspeed issue 1305).",
        below=1.0,
    ),
    Threshold(
        "vocabulary_coverage",
        0.99,
        "share of the text's tokens that the draft vocabulary holds",
        "Below it the vocabulary alone rejects more than one token in a hundred.",
        below=1.0 + 1e-9,
    ),
    Threshold(
        "near_tie_share",
        0.25,
        "share of anchors with a near tie of the target within the horizon",
        "Beyond it a quarter of the anchors is missing from exact comparisons, such as with an engine's log.",
        below=1.0,
    ),
    Threshold(
        "skipped_share",
        0.1,
        "share of prompts that were left out",
        "Beyond it the figures may be of other prompts than those that were meant.",
        below=1.0,
    ),
)
_BY_NAME = {threshold.name: threshold for threshold in THRESHOLDS}
_TABLE = "[tool.driftscope.thresholds]"


@dataclass(frozen=True)
class Thresholds(Mapping[str, float]):
    """The values in force, and the file of those that are not defaults."""

    overrides: Mapping[str, float]
    origin: str = ""

    def __getitem__(self, name: str) -> float:
        return self.overrides.get(name, _BY_NAME[name].default)

    def __iter__(self) -> Iterator[str]:
        return iter(_BY_NAME)

    def __len__(self) -> int:
        return len(_BY_NAME)

    def changed(self, name: str) -> bool:
        """Whether the value is not the default."""
        return self[name] != _BY_NAME[name].default


DEFAULTS = Thresholds({})


def definition(name: str) -> Threshold:
    """The threshold of that name. KeyError if there is none."""
    return _BY_NAME[name]


def checked(values: Mapping[str, Any], where: str) -> Thresholds:
    """`values` as thresholds. Raises ThresholdError for an unknown name or a value out of range."""
    for name, value in values.items():
        if name not in _BY_NAME:
            near = difflib.get_close_matches(name, _BY_NAME, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_BY_NAME)}"
            raise ThresholdError(f"{where}: no threshold {name}; {hint}")
        limit = _BY_NAME[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not limit.above < value < limit.below:
            upper = f" and below {limit.below:g}" if limit.below < math.inf else ""
            raise ThresholdError(f"{where}: {name} = {value!r}; expected a number above {limit.above:g}{upper}")
    return Thresholds({name: float(value) for name, value in values.items()}, where if values else "")


def load(file: Path | None = None, folder: Path | None = None) -> Thresholds:
    """Thresholds of `file`; without one, of the nearest pyproject.toml at or above `folder` (the working directory).

    Raises ThresholdError for a file that cannot be read, an unknown name or a value out of range.
    """
    if file is not None:
        content = _read(file)
        return checked(_table(content, file) if "tool" in content else content, str(file))
    start = (folder or Path.cwd()).resolve()
    found = next(
        (path for path in (parent / "pyproject.toml" for parent in (start, *start.parents)) if path.is_file()), None
    )
    return DEFAULTS if found is None else checked(_table(_read(found), found), f"{found} {_TABLE}")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ThresholdError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ThresholdError(f"{file} is not TOML: {(str(error).splitlines() or ['?'])[0]}") from error


def _table(content: Any, file: Path) -> dict[str, Any]:
    for key in ("tool", "driftscope", "thresholds"):
        content = content.get(key, {})
        if not isinstance(content, dict):
            raise ThresholdError(f"{file}: {_TABLE} is not a table")
    return content
