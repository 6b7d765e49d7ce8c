"""How often the audit names a planted fault with the right value, and how often it sounds a false alarm.

    python benchmarks/audit_matrix.py examples/smollm2/checkpoints/{eagle3,fc-norm,post-norm,eagle3.1} \\
        --target build/target --unseen examples/smollm2/held-out.jsonl --out benchmarks/results/audit_matrix.json

Every drafter is broken in each way of benchmarks/twins.py, and in pairs. What an audit names is tried: the drafter as it
would be mended is compared with the sound one, switch by switch and tensor by tensor (benchmarks/twins.py, `mended`).

exact     one value is named for every fault, and each is right
in a set  the right value is among several that are named as not to be told apart on these texts
partial   of a pair one fault is named, rightly
wrong     what is named is not what was planted: another switch, or none of the values is right
slight    nothing is named; the fault is listed as better beyond chance by too little to act on
harmless  nothing is named, and the fault costs less than the audit calls practical
missed    nothing is named, and it costs more

Where nothing may be named: the drafters as they are, on the prompts that the audit was made with and on others that it has
not seen (--unseen); with noise on their weights, several seeds; and sound drafters of other training seeds (--seeds).

What is done already is read from --out and left alone, so that an interrupted matrix goes on, also one that --minutes cut
short; a file that other code made is refused. Time is CPU time of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from measuring import machine
from rich.console import Console
from rich.table import Table
from torch import Tensor
from twins import BY_NAME, PAIRS, TWINS, broken, fits, mended, shown, weak

from driftscope.audit import audit_captures
from driftscope.audit.batches import FIRST, Material, prepare
from driftscope.audit.decide import Limits
from driftscope.audit.report import Audit
from driftscope.audit.run import take_captures
from driftscope.audit.setting import Lens, Setting
from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair, load_pair
from driftscope.drafter import build_drafter
from driftscope.progress import NullProgress
from driftscope.target.model import Target, load_target

Line = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "transformers", "numpy", "scipy")
ORDER = ("exact", "in a set", "partial", "wrong", "missed", "slight", "harmless")
COUNTED = ORDER[:5]
"""Results of faults that cost enough to be acted on."""


@dataclass(frozen=True)
class Texts:
    """Captures of a set of prompts with every boundary, handed out by prompt, and what audits share of them."""

    records: Mapping[str, Capture]
    material: Material

    def __call__(self, ids: Sequence[str], boundaries: Iterable[int] = ()) -> list[Capture]:
        return [self.records[name] for name in ids]


@dataclass(frozen=True)
class Case:
    """One audit of the matrix."""

    drafter: str
    kind: str
    """twin, sound, unseen, weak or seed."""
    planted: tuple[str, ...]
    make: Callable[[], tuple[Pair, Lens]]
    unseen: bool = False
    """Whether it runs on the prompts that the audit has not seen."""

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        return self.drafter, self.kind, self.planted


def taken(target: Target, pair: Pair, prompts: Path | None, args: argparse.Namespace) -> Texts:
    """The captures of a set of prompts."""
    records, again = take_captures(pair, prompts, args.count, args.max_new_tokens, None, NullProgress())
    records = again([record.prompt_id for record in records], range(target.num_layers + 1))
    return Texts({record.prompt_id: record for record in records}, prepare(target, records, anchors=args.anchors))


def remade(pair: Pair, names: tuple[str, ...]) -> tuple[Pair, Lens]:
    """The twin of a pair with these faults. Its config.json says what is broken, as a wrong one does."""
    config, weights = broken(names, pair.config, dict(pair.checkpoint.weights), pair.target.head_weight.detach())
    raw = dict(pair.checkpoint.raw_config)
    if config.rope.theta != pair.config.rope.theta:
        raw["rope_theta"] = config.rope.theta
    return _around(replace(pair.checkpoint, config=config, weights=weights, raw_config=raw), pair), shown(names)


def weakened(pair: Pair, share: float, seed: int) -> tuple[Pair, Lens]:
    return _around(replace(pair.checkpoint, weights=weak(pair.checkpoint.weights, share, seed)), pair), Lens()


def _around(checkpoint: Any, pair: Pair) -> Pair:
    target = pair.target
    drafter = build_drafter(
        checkpoint.config,
        checkpoint.weights,
        target_embedding=target.embedding_weight,
        target_head=target.head_weight,
        dtype=target.dtype,
    )
    return Pair(checkpoint, checkpoint.config, target, drafter)


def cases(pair: Pair, name: str, args: argparse.Namespace) -> Iterator[Case]:
    """The audits of one drafter, the sound one first: the harm of a fault is measured against it."""
    as_it_is = partial(_with_no_lens, pair)
    yield Case(name, "sound", (), as_it_is)
    wanted = [t.name for t in TWINS] if args.twins == "all" else args.twins.split(",") if args.twins != "none" else []
    singles: list[tuple[str, ...]] = [(twin,) for twin in wanted]
    for planted in [*singles, *(PAIRS if args.twins == "all" else ())]:
        if all(fits(BY_NAME[part], pair.config) for part in planted):
            yield Case(name, "twin", planted, partial(remade, pair, planted))
    if args.unseen is None:
        return
    yield Case(name, "unseen", (), as_it_is, unseen=True)
    for share, seed in product(args.weak, range(1, args.weak_seeds + 1)):
        planted = f"noise {share:g}", f"seed {seed}"
        yield Case(name, "weak", planted, partial(weakened, pair, share, seed), unseen=True)


def _with_no_lens(pair: Pair) -> tuple[Pair, Lens]:
    return pair, Lens()


def judged(case: Case, found: Audit, sound: Setting, head: Tensor, cpu: float, whole: Line | None) -> Line:
    """One audit against what was planted. sound: the setting of the drafter as it was trained; head: the target's; whole:
    the line of the sound drafter."""
    named = [(fault.finding.code, fault.switch, fault.alternative) for fault in found.faults]
    harm = None
    if whole is not None and case.kind == "twin":
        harm = {
            "loss": [ours - theirs for ours, theirs in zip(found.baseline.loss, whole["loss"], strict=True)],
            "agreement": [b - a for a, b in zip(found.baseline.agreement, whole["agreement"], strict=True)],
        }
    return {
        "drafter": case.drafter,
        "kind": case.kind,
        "planted": list(case.planted),
        "result": _result(case, found, sound, head, harm),
        "outcome": found.outcome,
        "named": named,
        "sets": [[h.name for h in fault.choices] for fault in found.faults],
        "harm": harm,
        "cpu": cpu,
        "hypotheses": sum(row.status != "ruled out" for row in found.rows),
        "rounds": max(row.round for row in found.rows),
        "prompts": found.prompts,
        "anchors": found.anchors,
        "loss": found.baseline.loss,
        "agreement": found.baseline.agreement,
        "controls": [(control.name, control.loss, control.agreement, control.beaten) for control in found.controls],
        "rises": [
            {
                "round": row.round,
                "name": row.name,
                "status": row.status,
                "reason": row.reason,
                "p": row.p_better,
                "loss": [figure.mean for figure in (row.loss_first, row.loss_later) if figure],
                "agreement": [figure.mean for figure in (row.agreement_first, row.agreement_later) if figure],
            }
            for row in found.rows
            if row.p_better is not None and row.p_better < 0.05
        ],
    }


def _result(case: Case, found: Audit, sound: Setting, head: Tensor, harm: dict[str, list[float]] | None) -> str:
    if case.kind != "twin":
        return "false alarm" if found.faults else "silent"
    wanted = [(BY_NAME[name].code, BY_NAME[name].switch) for name in case.planted]
    if found.faults:
        return _named(case, found, sound, head)
    if any(row.slight and (row.code, row.switch) in wanted for row in found.rows):
        return "slight"
    return "missed" if harm is None or costly(harm) else "harmless"


def _named(case: Case, found: Audit, sound: Setting, head: Tensor) -> str:
    """What the faults that an audit named are worth: every combination of the values that it names is tried."""
    for chosen in product(*(fault.choices for fault in found.faults)):
        setting = found.declared_setting
        for hypothesis in chosen:
            setting = hypothesis.apply(setting)
        if mended(setting, sound):
            return "exact" if all(len(fault.choices) == 1 for fault in found.faults) else "in a set"
        rest = [name for name in case.planted if len(case.planted) > len(found.faults)]
        for name in rest:
            # Of a pair: what is named leaves the drafter with the other fault alone.
            config, weights = broken((name,), sound.config, dict(sound.weights), head)
            if mended(setting, Setting(config, weights, shown((name,)))):
                return "partial"
    return "wrong"


def costly(harm: dict[str, list[float]]) -> bool:
    """Whether a fault costs what the audit calls practical: at step 1, at the later steps, or over all of them."""
    limits = Limits()
    parts = (slice(0, 1), slice(1, None), slice(None))
    return any(
        statistics.mean(harm["loss"][steps]) >= limits.loss
        and statistics.mean(harm["agreement"][steps]) >= limits.agreement
        for steps in parts
    )


def made(args: argparse.Namespace) -> dict[str, Any]:
    """Where and from what the results come."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed_since": bool(_git("status", "--porcelain", "-uno", "--", "driftscope", "benchmarks", "examples")),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "cpu": machine()["cpu"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "code": _git("rev-parse", "HEAD:driftscope", "HEAD:benchmarks/twins.py").split(),
        "seeds": {"sign flips": 0, "noise on weights": list(range(1, args.weak_seeds + 1)), "planted tensors": [5, 6]},
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout.strip()


def settings(args: argparse.Namespace) -> dict[str, Any]:
    names = ("count", "anchors", "max_new_tokens")
    told = {**{name: getattr(args, name) for name in names}, "first_pass": FIRST, "time": "CPU seconds of one thread"}
    return {**told, "unseen": args.unseen.name if args.unseen else None, **({"note": args.note} if args.note else {})}


def main() -> None:
    args = _arguments()
    target, console = load_target(args.target), Console()
    origin = made(args)
    held = json.loads(args.out.read_text()) if args.out.exists() else {"made": origin, "audits": []}
    if held.get("made", {}).get("code") != origin["code"]:
        sys.exit(f"{args.out} was made by other code: move it away, a matrix is made by one")
    origin = held["made"]
    results: list[Line] = held["audits"]
    known = {(line["drafter"], line["kind"], tuple(line["planted"])) for line in results}
    paths = {path.name: path for path in args.drafters}
    first = load_pair(args.drafters[0], target)

    @cache
    def texts(unseen: bool) -> Texts:
        return taken(target, first, args.unseen if unseen else None, args)

    def run(case: Case, pair: Pair) -> None:
        if case.key in known:
            return
        began = time.process_time()
        given, lens = case.make()
        shelf = texts(case.unseen)
        ready = time.process_time()
        limits = Limits(rounds=len(case.planted) if case.kind == "twin" else 1)
        found = audit_captures(
            given, list(shelf.records.values()), recapture=shelf, limits=limits, material=shelf.material, lens=lens
        )
        whole = next((line for line in results if (line["drafter"], line["kind"]) == (case.drafter, "sound")), None)
        sound = Setting(pair.config, pair.checkpoint.weights)
        line = judged(case, found, sound, target.head_weight.detach(), time.process_time() - ready, whole)
        results.append(line)
        content = {
            "made": origin,
            "settings": settings(args),
            "cases": len(wanted),
            "summary": summary(results),
            "audits": results,
        }
        unfinished = args.out.with_name(f".{args.out.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(content, indent=1) + "\n")
        unfinished.replace(args.out)
        words = "; ".join(" | ".join(choices) for choices in line["sets"])
        what = " + ".join(case.planted)
        print(f"{case.drafter:9} {case.kind:6} {what:30} {line['result']:11} {line['cpu']:5.1f} s  {words}", flush=True)
        print(f"  made ready in {ready - began:.1f} s", file=sys.stderr)

    # Drafters in turn, case by case, so that a matrix that is cut short has something of each.
    pairs = {name: load_pair(path, target) for name, path in paths.items()}
    turns = [list(cases(pair, name, args)) for name, pair in pairs.items()]
    wanted = [turn[place] for place in range(max(map(len, turns))) for turn in turns if place < len(turn)]
    for path in args.seeds:
        name = f"{path.parent.name}/{path.name}"
        pairs[name] = load_pair(path, target)
        wanted.append(Case(name, "seed", (), partial(_with_no_lens, pairs[name]), unseen=True))
    for index, case in enumerate(wanted):
        if args.minutes and sum(line["cpu"] for line in results) >= 60 * args.minutes:
            print(f"cut short after {args.minutes:g} CPU minutes: {len(wanted) - index} cases are left", flush=True)
            break
        run(case, pairs[case.drafter])
    show(results, console)
    if any(line["result"] in ("false alarm", "missed", "wrong") for line in results):
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafters", nargs="+", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--unseen", type=Path, help="prompts that the audit has not seen, for false alarms")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], help="sound drafters of other training seeds")
    parser.add_argument("--count", type=int, default=48, help="prompts of an audit")
    parser.add_argument("--anchors", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--weak", type=float, nargs="*", default=[0.3, 1.0], help="noise on the weights")
    parser.add_argument("--weak-seeds", type=int, default=2, help="how many seeds of each noise")
    parser.add_argument("--twins", default="all", help="names with commas, all or none")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so much CPU time; 0 runs all cases")
    parser.add_argument("--note", default="", help="why fewer prompts or anchors, kept in the results")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def summary(results: Sequence[Line]) -> dict[str, Any]:
    """Counts by drafter and kind, and what it took."""

    def counts(lines: Sequence[Line]) -> dict[str, int]:
        return {word: sum(line["result"] == word for line in lines) for word in ORDER}

    twins = [line for line in results if line["kind"] == "twin"]
    quiet = [line for line in results if line["kind"] != "twin"]
    found: dict[str, Any] = {}
    for name in dict.fromkeys(line["drafter"] for line in results):
        own = [line for line in twins if line["drafter"] == name]
        calm = [line for line in quiet if line["drafter"] == name]
        found[name] = {
            "single": counts([line for line in own if len(line["planted"]) == 1]),
            "pairs": counts([line for line in own if len(line["planted"]) == 2]),
            "sound": {
                kind: {
                    "cases": sum(line["kind"] == kind for line in calm),
                    "false alarms": sum(line["kind"] == kind and line["result"] != "silent" for line in calm),
                }
                for kind in dict.fromkeys(line["kind"] for line in calm)
            },
        }
    return {
        "drafters": found,
        "single": counts([line for line in twins if len(line["planted"]) == 1]),
        "pairs": counts([line for line in twins if len(line["planted"]) == 2]),
        "sound": {"cases": len(quiet), "false alarms": sum(line["result"] != "silent" for line in quiet)},
        "cpu_minutes": sum(line["cpu"] for line in results) / 60,
    }


def show(results: Sequence[Line], console: Console) -> None:
    drafters = list(dict.fromkeys(line["drafter"] for line in results))
    twins = [line for line in results if line["kind"] == "twin"]
    table = Table("planted", *drafters)
    for case in dict.fromkeys(" + ".join(line["planted"]) for line in twins):
        cells = {line["drafter"]: line["result"] for line in twins if " + ".join(line["planted"]) == case}
        table.add_row(case, *(cells.get(name, "-") for name in drafters))
    console.print(table)
    told = summary(results)
    for word in ("single", "pairs"):
        counts = told[word]
        of = sum(counts[result] for result in COUNTED)
        listed = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
        console.print(f"{word}: {listed}; {counts['exact'] + counts['in a set']} of {of} that cost anything")
    for name, drafter in told["drafters"].items():
        console.print(f"sound, {name}: {drafter['sound']}")
    if results:
        one = [line["cpu"] for line in results if line["rounds"] == 1]
        console.print(
            f"{told['cpu_minutes']:.1f} CPU minutes; an audit of one round: median {statistics.median(one):.1f} CPU s"
        )


if __name__ == "__main__":
    main()
