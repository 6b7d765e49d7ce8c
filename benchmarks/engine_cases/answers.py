"""What `driftscope engine` says of every served case, from its counters alone; the table and the results.

    driftscope probe examples/smollm2/checkpoints/eagle3.1 --target build/target --probes acceptance \\
        --prompts build/benchmarks/engine_cases/run.jsonl --max-new-tokens 80 -o build/benchmarks/engine_cases/runs/eagle3.1
    driftscope engine build/benchmarks/engine_cases/runs/eagle3.1 --metrics benchmarks/engine_cases/counters/eagle3.1_right_run.txt
    python benchmarks/engine_cases/answers.py [-o build/benchmarks/engine_cases] [--to benchmarks/results/engine_cases.json]

The results hold the walks of every reading, a digit an anchor, so that the answers can be given again without a model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from provenance import provenance

from driftscope.from_engines.counters.reading import read_counters
from driftscope.runs.run import Run
from driftscope.serving.diagnosis import Diagnosis, Traffic, diagnose
from driftscope.serving.engine import near_tie_share
from driftscope.serving.reading import Reading, from_content, held_readings, to_content
from driftscope.serving.words import headline

HERE = Path(__file__).parent
COSTLY = 0.1
"""Share of the length from which on a fault has to be named."""


def answers(
    cases: Sequence[Mapping[str, Any]],
    made: Mapping[str, Sequence[Reading]],
    counters: Path,
    near_ties: Mapping[str, float],
    tokens: int,
) -> list[dict[str, Any]]:
    """One row a case that was served, of a drafter that was walked."""
    rows = []
    for case in cases:
        file = counters / f"{case['name']}.txt"
        if not file.is_file() or case["drafter"] not in made:
            continue
        counted = read_counters(file)
        walked = made[case["drafter"]]
        asked = {"other traffic": Traffic(), "same kinds": Traffic(alike=True)}
        if case["prompts"] == "run":
            asked = {
                "same prompts": Traffic(same_prompts=True, max_tokens=tokens, changed=near_ties[case["drafter"]]),
                **asked,
            }
        found = {name: diagnose(counted, walked, traffic) for name, traffic in asked.items()}
        sound = counters / f"{case['drafter']}_right_{case['prompts']}.txt"
        # What the fault costs: against the same engine without it, on the same prompts.
        lost = 1 - counted.length / read_counters(sound).length if sound.is_file() else None
        rows.append(
            {
                **{name: case[name] for name in ("name", "drafter", "change", "prompts", "switch", "alternative")},
                "drafts": counted.drafts,
                "per_position": list(counted.per_position or ()),
                "lost": None if lost is None else round(lost, 3),
                "answers": {name: row(part, case, lost) for name, part in found.items()},
            }
        )
    return rows


def row(found: Diagnosis, case: Mapping[str, Any], lost: float | None) -> dict[str, Any]:
    """One answer, and whether it is right."""
    named, tied = found.named, found.tied
    if lost is None:
        lost = 1 - found.counters.length / (found.declared.length or float("nan"))
    return {
        "outcome": found.outcome,
        "headline": headline(found),
        "p": found.p,
        "exact": found.exact,
        "position": found.position,
        "named": None if named is None else named.reading.name,
        "tied": [part.reading.name for part in tied],
        "excluded": sum(part.excluded for part in found.ranked),
        "walked": len(found.ranked),
        "verdict": judged(found, case, lost),
    }


def judged(found: Diagnosis, case: Mapping[str, Any], lost: float) -> str:
    """`right`, `wrong`, or why it is neither."""
    accused = found.outcome in ("less", "more")
    if case["change"] == "right":
        return "wrong: accused" if accused else "right"
    if not accused:
        return "cannot tell" if lost < COSTLY else "missed"
    if case["switch"] == "target":
        # No reading of the drafter is wrong: that something differs is the whole answer.
        return "right" if found.named is None else "wrong: another switch"
    if found.named is not None and found.named.reading.switch == case["switch"]:
        whole = any(part.reading.alternative.startswith(case["alternative"]) for part in found.tied)
        return "right" if whole else "right switch, another value"
    if any(part.reading.switch == case["switch"] for part in found.tied):
        return "among ties"
    return "wrong: another switch" if found.named is not None else "not named"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown."""
    lines = ["| case | counters | compared | lost | answer | named | verdict |", "|---|---|---|---|---|---|---|"]
    for case in rows:
        for name, part in case["answers"].items():
            named = part["named"] or (f"{len(part['tied'])} tie" if part["tied"] else "")
            counted = f"{case['drafts']}: {' '.join(map(str, case['per_position']))}"
            cells = [
                case["name"],
                counted,
                name,
                f"{case['lost'] or 0.0:+.0%}",
                part["outcome"],
                named,
                part["verdict"],
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/engine_cases"))
    parser.add_argument("--to", type=Path, default=HERE.parent / "results" / "engine_cases.json")
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    cases = json.loads((given.out / "cases.json").read_text("utf-8"))
    made, near_ties, about = {}, {}, {}
    for folder in sorted((given.out / "runs").iterdir()):
        run = Run.open(folder)
        found, whole = held_readings(run, given.k)
        if not whole:
            print(f"{folder}: not walked yet: driftscope engine {folder} --metrics FILE", file=sys.stderr)
            continue
        made[folder.name], near_ties[folder.name] = found, near_tie_share(run)
        about[folder.name] = run.info.checkpoint.sha256
    rows = answers(cases, made, HERE / "counters", near_ties, given.tokens)
    result = {
        "made": provenance(),
        "tokens": given.tokens,
        "near_ties": near_ties,
        "checkpoints": about,
        "cases": rows,
        "walked": {name: to_content(part) for name, part in made.items()},
    }
    given.to.write_text(json.dumps(result, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    print(table(rows))


def again(file: Path) -> list[dict[str, Any]]:
    """The answers of a result, given anew from its walks and the counters that are kept."""
    held = json.loads(file.read_text("utf-8"))
    made = {name: from_content(part) for name, part in held["walked"].items()}
    return answers(held["cases"], made, HERE / "counters", held["near_ties"], held["tokens"])


if __name__ == "__main__":
    main()
