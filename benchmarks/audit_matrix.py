"""How often the audit names a planted fault, and how often it sounds a false alarm.

    python benchmarks/audit_matrix.py DRAFTER [DRAFTER ...] --target TARGET [--sound 10] [--weak 0.2 0.5] [--twins all]

Every drafter is broken in each way of benchmarks/twins.py, and in pairs; the first finding of an audit must be the planted
one. Then the same drafter is audited as it is, on other prompts each time, and with noise on its weights: nothing may be
found. Captures are made once. Prints the matrix, the rates, and what a hypothesis costs; --out keeps all as JSON.
"""

from __future__ import annotations

import argparse
import json
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
from driftscope.audit.decide import Limits
from driftscope.audit.report import Audit
from driftscope.audit.run import take_captures
from driftscope.captures import Capture
from driftscope.checkpoints.config import DrafterConfig
from driftscope.drafter import build_drafter
from driftscope.pair import Pair, load_pair
from driftscope.progress import NullProgress
from driftscope.target import load_target

Made = tuple[DrafterConfig, dict[str, Any]]


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


def run(pair: Pair, shelf: Shelf, ids: Sequence[str], anchors: int, limits: Limits) -> tuple[Audit, float]:
    began = time.monotonic()
    found = audit_captures(pair, shelf(ids), recapture=shelf, anchors=anchors, limits=limits)
    return found, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafters", nargs="+", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--count", type=int, default=24, help="prompts of an audit")
    parser.add_argument("--pool", type=int, default=48, help="prompts to draw them from")
    parser.add_argument("--anchors", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3, help="of an audit; pairs of faults get two")
    parser.add_argument("--sound", type=int, default=10, help="audits of each drafter as it is")
    parser.add_argument("--weak", type=float, nargs="*", default=[0.3, 1.0], help="noise on the weights")
    parser.add_argument("--twins", default="all", help="names with commas, all or none")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    names = {"all": [t.name for t in TWINS], "none": []}.get(args.twins, args.twins.split(","))
    pairs = PAIRS if args.twins == "all" else ()
    target, console = load_target(args.target), Console()
    rng, results = np.random.default_rng(0), []
    shelf: Shelf | None = None
    for path in args.drafters:
        pair = load_pair(path, target)
        if shelf is None:
            records, again = take_captures(pair, None, args.pool, args.max_new_tokens, None, NullProgress())
            shelf = Shelf(again([record.prompt_id for record in records], range(target.num_layers + 1)))
        pool = list(shelf.records)
        first = pool[:: max(1, len(pool) // args.count)][: args.count]
        weights = dict(pair.checkpoint.weights)
        head = target.head_weight.detach()
        limits = Limits(rounds=args.rounds)
        whole, seconds = run(pair, shelf, first, args.anchors, limits)
        results.append(judged(path.name, "sound", ("prompts of the twins",), whole, seconds, whole))
        cases: list[tuple[str, tuple[str, ...], Callable[[], Pair], Sequence[str]]] = []
        for number in range(args.sound):
            chosen = rng.choice(pool, min(args.count, len(pool)), replace=False).tolist()
            cases.append(("sound", (f"prompts {number}",), partial(load_pair, path, target), chosen))
        for share in args.weak:
            cases.append(("weak", (f"noise {share:g}",), partial(remade, pair, partial(weakened, pair, share)), first))
        for planted in [*((name,) for name in names), *pairs]:
            if all(fits(BY_NAME[name], pair.config) for name in planted):
                twin = partial(broken, planted, pair.config, weights, head)
                cases.append(("twin", planted, partial(remade, pair, twin), first))
        for kind, planted, case, ids in cases:
            rounds = max(args.rounds, len(planted) if kind == "twin" else 1)
            found, seconds = run(case(), shelf, ids, args.anchors, replace(limits, rounds=rounds))
            results.append(judged(path.name, kind, planted, found, seconds, whole))
            line = results[-1]
            if args.out:
                args.out.write_text(json.dumps(results, indent=1) + "\n")
            print(
                f"{path.name:10} {kind:6} {' + '.join(planted):32} {line['result']:12} {seconds:5.1f} s  {found.verdict}",
                flush=True,
            )
    show(results, console)
    if any(line["result"] in ("false alarm", "missed", "misnamed") for line in results):
        sys.exit(1)


def judged(
    drafter: str, kind: str, planted: Sequence[str], found: Audit, seconds: float, whole: Audit
) -> dict[str, Any]:
    """One audit against what was planted. whole: the audit of the drafter as it is, on the same prompts as the twins."""
    named = [(fault.finding.code, fault.switch, fault.alternative) for fault in found.faults]
    wanted = [] if kind != "twin" else [(BY_NAME[name].code, BY_NAME[name].switch) for name in planted]
    heads = [(code, switch) for code, switch, _ in named[: len(wanted)]]
    limits = Limits()
    harm = {
        "loss": [ours - theirs for ours, theirs in zip(found.baseline.loss, whole.baseline.loss, strict=True)],
        "agreement": [b - a for a, b in zip(found.baseline.agreement, whole.baseline.agreement, strict=True)],
    }
    if not wanted:
        result = "false alarm" if named else "silent"
    elif sorted(heads) == sorted(wanted):
        result = "hit, and more" if len(named) > len(wanted) else "hit"
    elif set(wanted) <= {(code, switch) for code, switch, _ in named}:
        result = "found later"
    else:
        # What costs less than the audit calls practical is not to be named.
        result = (
            "missed" if max(harm["agreement"]) >= limits.agreement and max(harm["loss"]) >= limits.loss else "harmless"
        )
        result = "misnamed" if named else result
    return {
        "drafter": drafter,
        "kind": kind,
        "planted": list(planted),
        "result": result,
        "outcome": found.outcome,
        "named": named,
        "harm": harm,
        "seconds": seconds,
        "hypotheses": sum(row.status != "ruled out" for row in found.rows),
        "rounds": max(row.round for row in found.rows),
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


def show(results: Sequence[dict[str, Any]], console: Console) -> None:
    drafters = list(dict.fromkeys(line["drafter"] for line in results))
    table = Table("case", *drafters)
    for case in dict.fromkeys(" + ".join(line["planted"]) for line in results):
        cells = {line["drafter"]: line["result"] for line in results if " + ".join(line["planted"]) == case}
        table.add_row(case, *(cells.get(name, "-") for name in drafters))
    console.print(table)
    twins = [line for line in results if line["kind"] == "twin"]
    quiet = [line for line in results if line["kind"] != "twin"]
    if twins:
        told = [line for line in twins if line["result"] != "harmless"]
        hits = sum(line["result"].startswith("hit") for line in told)
        console.print(f"planted faults named first: {hits} of {len(told)} that cost anything, {len(twins)} in all")
    if quiet:
        console.print(f"false alarms: {sum(line['result'] == 'false alarm' for line in quiet)} of {len(quiet)}")
    one = [line for line in results if line["rounds"] == 1]
    if one:
        seconds = statistics.median(line["seconds"] for line in one)
        each = statistics.median(line["seconds"] / line["hypotheses"] for line in one)
        console.print(f"an audit of one round: median {seconds:.1f} s, {each:.2f} s for each hypothesis that was run")


if __name__ == "__main__":
    main()
