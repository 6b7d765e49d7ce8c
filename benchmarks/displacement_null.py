"""What displacement reads where nothing drifts: the distribution on which its threshold rests.

    python benchmarks/displacement_null.py CHECKPOINT... --target TARGET [--prompts FILE] [-o RESULT.json] [--picture PLACE.svg]

Sound pairs of samples of one and the same drafter, put against each other by the very estimator of the findings
(`driftscope.stats.shared_displacement`), at every step from 2 on:

- `prompts`: two random halves of the prompts, paired at random: the drafter against itself under other prompts;
- `texts`: the first half of each prompt's text against its second, which of them is called first drawn by prompt.

A draw is what a run of that many pairs would read; the truth is 0. The limit is the largest 99% quantile over drafters, steps
and both nulls, rounded up to .01, so that a drafter whose attention only differs between texts stays below it nearly always.
The same is done with the signed excess on the drafter's own tokens, by absolute value. What the drafters read against no
drafting stands beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import torch
from measuring import machine
from numpy.typing import NDArray

from driftscope import stats
from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture, capture
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.measure import BUCKETS
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.runs.naming import short_name
from driftscope.show.charts.export import save
from driftscope.target.model import Target, load_target
from driftscope.target.prompts import load_prompts, tokenize_prompts

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator], Floats]
"""One draw of differences [pair, step, head, bucket]."""

SEED, DRAWS, LEVEL = 0, 1000, 0.99
NEW_TOKENS = 128
OWN = [BUCKETS.index(name) for name in ("drafted", "current")]
"""Self-generated from step 2 on."""


def halves(pair: Pair, record: Capture, settings: Settings) -> Floats | None:
    """Mean excess [half, step, head, bucket] over the anchors outside loops of both halves of a text; None where one is empty."""
    subject = Subject(pair, record, settings)
    if not len(subject.anchors):
        return None
    steps = subject.chains("drafted")
    excess = torch.stack([step["excess"].flatten(1, 2) for step in steps], 1).double().cpu().numpy()
    kept = excess[~subject.looping]
    middle = len(kept) // 2
    return np.stack([kept[:middle].mean(0), kept[middle:].mean(0)]) if middle else None


def of_prompts(excess: Floats) -> Draw:
    """`excess[prompt, half, ...]`: prompts against other prompts."""
    means = excess.mean(1)

    def draw(rng: np.random.Generator) -> Floats:
        order = rng.permutation(len(means))
        count = len(means) // 2
        return np.asarray(means[order[:count]] - means[order[count : 2 * count]])

    return draw


def of_texts(excess: Floats) -> Draw:
    """`excess[prompt, half, ...]`: a half of each text against the other."""
    difference = excess[:, 0] - excess[:, 1]

    def draw(rng: np.random.Generator) -> Floats:
        sign = rng.choice((-1.0, 1.0), len(difference))
        return np.asarray(sign[:, None, None, None] * difference)

    return draw


NULLS = {"prompts": of_prompts, "texts": of_texts}


def readings(difference: Floats) -> tuple[Floats, Floats]:
    """Displacement and signed excess on own tokens [step], steps from 2, as a run with these differences would read them."""
    displaced = stats.shared_displacement(difference).mean(0)
    own = difference[..., OWN].sum(-1).mean((0, 2))
    return displaced[1:], own[1:]


def null(excess: Floats, name: str, draws: int, seed: int) -> dict[str, Floats]:
    """[draw, step] of both readings under one null."""
    rng = np.random.default_rng([seed, list(NULLS).index(name)])
    draw = NULLS[name](excess)
    found = [readings(draw(rng)) for _ in range(draws)]
    return {"displacement": np.array([part[0] for part in found]), "self_excess": np.array([part[1] for part in found])}


def limit(draws: Mapping[str, Mapping[str, Floats]], quantity: str, level: float = LEVEL) -> float:
    """The largest quantile over drafters, nulls and steps, rounded up to .01; `draws[drafter/null][quantity]` is [draw, step]."""
    quantiles = [np.quantile(np.abs(found[quantity]), level, axis=0).max() for found in draws.values()]
    return math.ceil(round(100 * max(quantiles), 9)) / 100


def measured(excess: Floats) -> dict[str, Any]:
    """What the drafter itself reads against no drafting, per step from 2 on, with 95% intervals over prompts; and the slopes of
    displacement, over all these steps and over the later half."""
    mean = excess.mean(1)
    displaced, own = stats.shared_displacement(mean), mean[..., OWN].sum(-1).mean(-1)
    result: dict[str, Any] = {
        name: [found.to_dict() for place in range(1, mean.shape[1]) if (found := figures.at(place)) is not None]
        for name, figures in (("displacement", stats.bca(displaced)), ("self_excess", stats.bca(own)))
    }
    for name, slope in (("slope", stats.slope), ("late_slope", stats.late_slope)):
        found = stats.bca(slope(displaced)[:, None]).at(0)
        if found is not None:
            result[name] = found.to_dict()
    return result


def summary(draws: Mapping[str, Floats]) -> dict[str, Any]:
    """Per step from 2 on: mean, standard deviation, 95% and 99% quantiles; of the signed excess those of its size."""
    result = {}
    for name, values in draws.items():
        size = np.abs(values) if name == "self_excess" else values
        found = {"mean": values.mean(0), "sd": values.std(0, ddof=1)}
        found |= {f"q{level:.0%}".rstrip("%"): np.quantile(size, level, axis=0) for level in (0.95, LEVEL)}
        result[name] = {part: [round(float(number), 5) for number in numbers] for part, numbers in found.items()}
    return result


def opened(target: Target, prompts: Path | None) -> Sequence[Any]:
    room = (target.max_positions or 1 << 30) - NEW_TOKENS
    kept, _ = tokenize_prompts(load_prompts(prompts), target.tokenizer, max_tokens=room, min_tokens=2)
    return kept


def excess_of(checkpoint: str, target: Target, prompts: Sequence[Any]) -> tuple[Pair, Floats]:
    """Of one drafter: [prompt, half, step, head, bucket]."""
    pair = load_pair(checkpoint, target)
    boundaries = needed_boundaries(pair.config, target.num_layers)
    records = capture(target, prompts, max_new_tokens=NEW_TOKENS, boundaries=boundaries, cache=CaptureCache(None))
    found = [halves(pair, record, Settings()) for record in records]
    return pair, np.stack([part for part in found if part is not None])


def benchmark(checkpoints: Sequence[str], target: str, prompts: Path | None, draws: int, seed: int) -> tuple[Any, Any]:
    """The result, and every draw by drafter and null."""
    commit = _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--porcelain", "-uno") else "")
    loaded = load_target(target, device="cpu")
    asked = opened(loaded, prompts)
    drafters: dict[str, Any] = {}
    every: dict[str, dict[str, Floats]] = {}
    for checkpoint in checkpoints:
        name = short_name(checkpoint)
        print(name, file=sys.stderr)
        pair, excess = excess_of(checkpoint, loaded, asked)
        found = {kind: null(excess, kind, draws, seed) for kind in NULLS}
        every |= {f"{name}/{kind}": part for kind, part in found.items()}
        drafters[name] = {
            "sha256": pair.checkpoint.sha256,
            "prompts": len(excess),
            "measured": measured(excess),
            "null": {kind: summary(part) for kind, part in found.items()},
        }
    result = {
        "commit": commit,
        "versions": {name: version(name) for name in ("driftscope", "torch", "transformers", "numpy", "scipy")},
        "machine": machine(),
        "seed": seed,
        "draws": draws,
        "level": LEVEL,
        "target": {"name": short_name(target), "fingerprint": loaded.fingerprint()},
        "steps": Settings().depth,
        "limits": {name: limit(every, name) for name in ("displacement", "self_excess")},
        "drafters": drafters,
    }
    return result, every


def picture(result: Mapping[str, Any], every: Mapping[str, Mapping[str, Floats]]) -> alt.LayerChart:
    """The nulls of displacement over all steps, as shares of the draws, with the limit, and what the drafters read."""
    edges = np.arange(-0.06, 0.1601, 0.004)
    rows = []
    for kind in NULLS:
        pooled = np.concatenate(
            [part["displacement"].ravel() for name, part in every.items() if name.endswith(f"/{kind}")]
        )
        counts = np.histogram(pooled, edges)[0] / len(pooled)
        label = {"prompts": "other prompts", "texts": "halves of a text"}[kind]
        rows += [
            {"null": label, "displacement": x, "share": y} for x, y in zip(edges[:-1] + 0.002, counts, strict=True)
        ]
    top = max(row["share"] for row in rows)
    marks = [
        {
            "displacement": part["measured"]["displacement"][-1]["mean"],
            "text": name,
            "share": top * (0.97 - 0.09 * place),
        }
        for place, (name, part) in enumerate(result["drafters"].items())
    ]
    curves = (
        alt.Chart(pd.DataFrame(rows))
        .mark_area(opacity=0.35, line=True, interpolate="step")
        .encode(
            x=alt.X("displacement:Q", title="displacement (share of a head's attention)"),
            y=alt.Y("share:Q", title="share of draws", stack=None, axis=alt.Axis(format="%")),
            color=alt.Color("null:N", title="nothing drifts: against"),
        )
    )
    limits = pd.DataFrame([{"displacement": result["limits"]["displacement"]}])
    drawn = alt.Chart(pd.DataFrame(marks))
    return alt.layer(
        curves,
        alt.Chart(limits).mark_rule(strokeDash=[5, 3]).encode(x="displacement:Q"),
        drawn.mark_point(filled=True, size=45, color="#D55E00").encode(x="displacement:Q", y="share:Q"),
        drawn.mark_text(align="left", dx=7).encode(x="displacement:Q", y="share:Q", text="text:N"),
    ).properties(width=560, height=240)


def _git(*arguments: str) -> str:
    run = subprocess.run(("git", *arguments), capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return run.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    parser.add_argument("--target", required=True)
    parser.add_argument("--prompts", type=Path, help="a file of prompts (default: the shipped ones)")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/displacement_null.json"))
    parser.add_argument("--picture", type=Path, help="where the picture of the nulls goes (SVG)")
    given = parser.parse_args()
    result, every = benchmark(given.checkpoints, given.target, given.prompts, given.draws, given.seed)
    for name, value in result["limits"].items():
        print(f"{name}: limit {value:g}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    if given.picture is not None:
        save(picture(result, every), given.picture)


if __name__ == "__main__":
    main()
