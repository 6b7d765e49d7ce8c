"""How often the audit names a planted fault, and how often it sounds a false alarm.

    python benchmarks/audit_matrix.py DRAFTER [DRAFTER ...] --target TARGET --out RESULTS.json

Every drafter is broken in each way of benchmarks/twins.py, and in pairs; the first finding of an audit must be the planted
one (of a pair: the first two, in any order). "slight" is a fault that is listed as better beyond chance by too little to act
on, "harmless" one that costs less than the audit calls practical. Where nothing may be found: the drafter as it is; the same
with noise on its weights; and the decision repeated on two thirds of the prompts, drawn anew, with the same measurements.

What is done already is read from --out and left alone, so that an interrupted matrix goes on. Time is CPU time of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from twins import BY_NAME, PAIRS, TWINS, broken, fits, weak

from driftscope.audit import audit_captures
from driftscope.audit.batches import FIRST, Material, prepare
from driftscope.audit.controls import run_controls
from driftscope.audit.decide import Difference, Limits
from driftscope.audit.hypotheses import hypotheses
from driftscope.audit.report import Audit
from driftscope.audit.rounds import hopeless, judge, winner
from driftscope.audit.run import facts, take_captures
from driftscope.audit.score import Runner, Scores
from driftscope.audit.setting import Setting
from driftscope.captures.capture import Capture
from driftscope.chain.pair import Pair, load_pair
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import build_drafter
from driftscope.errors import CheckpointError
from driftscope.progress import NullProgress
from driftscope.target.model import load_target

Made = tuple[DrafterConfig, dict[str, Any]]
Line = dict[str, Any]


def remade(pair: Pair, make: Callable[[], Made]) -> Pair:
    """The pair with the switches and tensors that `make` gives, under the same checkpoint."""
    config, weights = make()
    target = pair.target
    drafter = build_drafter(
        config, weights, target_embedding=target.embedding_weight, target_head=target.head_weight, dtype=target.dtype
    )
    return Pair(replace(pair.checkpoint, config=config, weights=weights), config, target, drafter)


def weakened(pair: Pair, share: float) -> Made:
    return pair.config, weak(pair.checkpoint.weights, share)


class Shelf:
    """All captures with every boundary, handed out by prompt."""

    def __init__(self, records: Sequence[Capture]) -> None:
        self.records = {record.prompt_id: record for record in records}

    def __call__(self, ids: Sequence[str], boundaries: Iterable[int] = ()) -> list[Capture]:
        return [self.records[name] for name in ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafters", nargs="+", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--count", type=int, default=48, help="prompts of an audit")
    parser.add_argument("--anchors", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--sound", type=int, default=25, help="decisions on other prompts, for each drafter as it is")
    parser.add_argument("--weak", type=float, nargs="*", default=[0.3, 1.0], help="noise on the weights")
    parser.add_argument("--twins", default="all", help="names with commas, all or none")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    names = {"all": [t.name for t in TWINS], "none": []}.get(args.twins, args.twins.split(","))
    pairs = PAIRS if args.twins == "all" else ()
    target, console = load_target(args.target), Console()
    results: list[Line] = json.loads(args.out.read_text())["audits"] if args.out.exists() else []
    known = {(line["drafter"], line["kind"], tuple(line["planted"])) for line in results}
    shelf: Shelf | None = None
    material: Material | None = None

    def keep(line: Line) -> None:
        results.append(line)
        partial_file = args.out.with_name(f".{args.out.name}.{os.getpid()}")
        partial_file.write_text(json.dumps({"settings": settings(args), "audits": results}, indent=1) + "\n")
        partial_file.replace(args.out)
        what = " + ".join(line["planted"])
        named = "; ".join(f"{switch}: {alternative}" for _, switch, alternative in line["named"])
        print(
            f"{line['drafter']:9} {line['kind']:8} {what:30} {line['result']:13} {line['cpu']:5.1f} s  {named}",
            flush=True,
        )

    for path in args.drafters:
        pair = load_pair(path, target)
        if shelf is None or material is None:
            records, again = take_captures(pair, None, args.count, args.max_new_tokens, None, NullProgress())
            records = again([record.prompt_id for record in records], range(target.num_layers + 1))
            shelf, material = Shelf(records), prepare(target, records, anchors=args.anchors)
        if args.sound and (path.name, "reseeded", ("0",)) not in known:
            for line in reseeded(pair, path.name, material, args.sound):
                keep(line)
        limits = Limits(rounds=1)
        made: list[tuple[str, tuple[str, ...], Callable[[], Pair]]] = [("sound", (), lambda pair=pair: pair)]
        made += [
            ("weak", (f"noise {share:g}",), partial(remade, pair, partial(weakened, pair, share)))
            for share in args.weak
        ]
        for planted in [*((name,) for name in names), *pairs]:
            if all(fits(BY_NAME[name], pair.config) for name in planted):
                twin = partial(broken, planted, pair.config, dict(pair.checkpoint.weights), target.head_weight.detach())
                made.append(("twin", planted, partial(remade, pair, twin)))
        for kind, planted, make in made:
            if (path.name, kind, planted) in known:
                continue
            began = time.process_time()
            rounds = max(1, len(planted) if kind == "twin" else 1)
            found = audit_captures(
                make(),
                list(shelf.records.values()),
                recapture=shelf,
                limits=replace(limits, rounds=rounds),
                material=material,
            )
            whole = next((line for line in results if (line["drafter"], line["kind"]) == (path.name, "sound")), None)
            keep(judged(path.name, kind, planted, found, time.process_time() - began, whole))
    show(results, console)
    if any(line["result"] in ("false alarm", "missed", "misnamed") for line in results):
        sys.exit(1)


def settings(args: argparse.Namespace) -> dict[str, Any]:
    names = ("count", "anchors", "max_new_tokens")
    return {**{name: getattr(args, name) for name in names}, "first_pass": FIRST, "time": "CPU seconds of one thread"}


def judged(drafter: str, kind: str, planted: Sequence[str], found: Audit, cpu: float, whole: Line | None) -> Line:
    """One audit against what was planted. whole: the line of the drafter as it is."""
    named = [(fault.finding.code, fault.switch, fault.alternative) for fault in found.faults]
    wanted = [] if kind != "twin" else [(BY_NAME[name].code, BY_NAME[name].switch) for name in planted]
    harm = None
    if whole is not None:
        harm = {
            "loss": [ours - theirs for ours, theirs in zip(found.baseline.loss, whole["loss"], strict=True)],
            "agreement": [b - a for a, b in zip(found.baseline.agreement, whole["agreement"], strict=True)],
        }
    if not wanted:
        result = "false alarm" if named else "silent"
    elif sorted(wanted) == sorted((code, switch) for code, switch, _ in named):
        result = "hit"
    elif named:
        result = "first only" if named[0][:2] in wanted else "misnamed"
    elif any(row.slight and (row.code, row.switch) in wanted for row in found.rows):
        result = "slight"
    else:
        result = "missed" if harm is None or costly(harm) else "harmless"
    return {
        "drafter": drafter,
        "kind": kind,
        "planted": list(planted),
        "result": result,
        "outcome": found.outcome,
        "named": named,
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


def costly(harm: dict[str, list[float]]) -> bool:
    """Whether a fault costs what the audit calls practical: at step 1, at the later steps, or over all of them."""
    limits = Limits()
    parts = (slice(0, 1), slice(1, None), slice(None))
    return any(
        statistics.mean(harm["loss"][steps]) >= limits.loss
        and statistics.mean(harm["agreement"][steps]) >= limits.agreement
        for steps in parts
    )


def reseeded(pair: Pair, name: str, material: Material, times: int) -> Iterable[Line]:
    """The decision of a round on two thirds of the prompts, first pass included; nothing is searched."""
    target, limits = facts(pair.target), Limits(rounds=1)
    began = time.process_time()
    runner = Runner(material, target.embedding, target.head, pair.target.dtype)
    setting = runner.cast(Setting(pair.config, pair.checkpoint.weights))
    declared, base = runner.run(setting)
    control = min(control.loss for control in run_controls(setting, declared, runner, limits))
    tried = [h for h in hypotheses(setting, target) if not h.ruled_out]
    measured: dict[int, Scores] = {}
    for index, hypothesis in enumerate(tried):
        try:
            measured[index] = runner.run(hypothesis.apply(setting), reach=hypothesis.reach, base=base)[0]
        except CheckpointError:
            continue
    once = time.process_time() - began
    prompts = len(material.captures)
    for seed in range(times):
        began = time.process_time()
        chosen = np.random.default_rng(seed).choice(prompts, 2 * prompts // 3, replace=False)
        # As an audit: all hypotheses on the first prompts, the hopeful ones on all.
        parts = {i: (part(scores, chosen), of(scores, declared, chosen)) for i, scores in measured.items()}
        early = {index: of(scores, declared, chosen[:FIRST]) for index, scores in measured.items()}
        stopped = hopeless(tried, early, limits)
        for index in stopped:
            parts[index] = parts[index][0], early[index]
        rows = [row for _, row in judge(1, tried, parts, stopped, part(declared, chosen), control, limits)]
        best = winner(rows, {tried[index].name: difference for index, (_, difference) in parts.items()})
        yield {
            "drafter": name,
            "kind": "reseeded",
            "planted": [str(seed)],
            "result": "false alarm" if best else "silent",
            "named": [(best.code, best.switch, best.alternative)] if best else [],
            "cpu": time.process_time() - began + once / times,
            "hypotheses": len(measured),
            "rounds": 1,
            "prompts": len(chosen),
        }


def part(scores: Scores, chosen: np.ndarray) -> Scores:
    arrays = (scores.loss, scores.agree, scores.reached, scores.accepted, scores.anchors)
    return Scores(*(array[chosen] for array in arrays), scores.finite)


def of(scores: Scores, declared: Scores, chosen: np.ndarray) -> Difference:
    """Differences of the chosen prompts, in the order of the material; NaN for the others."""
    left_out = np.ones(len(declared.anchors), bool)
    left_out[chosen] = False
    return Difference.of(scores, declared, left_out)


def show(results: Sequence[Line], console: Console) -> None:
    drafters = list(dict.fromkeys(line["drafter"] for line in results))
    twins = [line for line in results if line["kind"] == "twin"]
    quiet = [line for line in results if line["kind"] != "twin"]
    table = Table("planted", *drafters)
    for case in dict.fromkeys(" + ".join(line["planted"]) for line in twins):
        cells = {line["drafter"]: line["result"] for line in twins if " + ".join(line["planted"]) == case}
        table.add_row(case, *(cells.get(name, "-") for name in drafters))
    console.print(table)
    if twins:
        told = [line for line in twins if line["result"] not in ("harmless", "slight")]
        for count, word in ((1, "single faults"), (2, "pairs")):
            some = [line for line in told if len(line["planted"]) == count]
            hits = sum(line["result"] == "hit" for line in some)
            console.print(f"{word} named: {hits} of {len(some)} that cost anything")
        console.print(f"below the practical size: {len(twins) - len(told)} of {len(twins)}")
    for kind in dict.fromkeys(line["kind"] for line in quiet):
        some = [line for line in quiet if line["kind"] == kind]
        console.print(f"false alarms, {kind}: {sum(line['result'] == 'false alarm' for line in some)} of {len(some)}")
    one = [line for line in results if line["rounds"] == 1 and line["kind"] != "reseeded"]
    if one:
        cpu = statistics.median(line["cpu"] for line in one)
        each = statistics.median(line["cpu"] / line["hypotheses"] for line in one)
        console.print(
            f"an audit of one round: median {cpu:.1f} CPU s, {each:.2f} CPU s for each hypothesis that was run"
        )


if __name__ == "__main__":
    main()
