"""What the page "Decide" shows of the example pair: best K with measured and predicted speed-up, trees, rules and traffic.

    for probes in acceptance,cost,trees,traffic rules; do
      driftscope probe examples/smollm2/checkpoints/eagle3.1 --target build/target --probes $probes \\
        -o build/benchmarks/decide/$probes
    done
    python benchmarks/decide.py build/benchmarks/decide/* [--serve 4] [-o benchmarks/results/decide.json]

The runs are of one checkpoint; what one of them lacks another may hold, such as the rules, which sample texts of their own and
may be asked of fewer prompts. Costs are those of one thread of this machine, in CPU seconds; the loop that serves for real takes
its times in the same process, plain and with every K in turn. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from provenance import write_result

from driftscope.figures.rules import run_rules
from driftscope.planning.plan import plan
from driftscope.planning.proof import proof, run_texts
from driftscope.planning.rounds import read_drafts
from driftscope.planning.sources import CostRequest, costs_for, load_run_pair, measured_nodes
from driftscope.progress import stderr_progress
from driftscope.runs.run import Run

BATCHES = "1,4,10"
"""A level of EAGLE-2's tree is a drafter step of 10 rows."""
PLACES = ("run", "checkpoint", "target")


def decided(runs: list[Run], serve: int, threads: int) -> dict[str, Any]:
    """The plan of the run that holds trees, with the rules of the one that holds them, and the proof."""
    torch.set_num_threads(threads)
    run = next(one for one in runs if "trees" in one.probes)
    rules = next((one for one in runs if "rules" in one.probes), None)
    drafts = read_drafts(run, None)
    with stderr_progress() as progress:
        pair = load_run_pair(run, None, device="cpu", dtype="float32", trust_remote_code=False)
        request = CostRequest(measure=True, batches=BATCHES, nodes=measured_nodes(run))
        costs = costs_for(run, request, drafts.depth, lambda: pair, progress.message)
        assert costs is not None, "costs were asked to be measured"
        found = plan(run, costs)
        found["proof"] = proof(pair, run_texts(run, drafts, serve), drafts, costs, tell=progress.message)
    if rules is not None:
        found |= {"rules": run_rules(rules), "rules_prompts": len(rules.info.prompts)}
    found |= {name: Path(found[name]).name for name in PLACES}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--serve", type=int, default=4, help="prompts that are decoded for real")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results/decide.json"))
    given = parser.parse_args()
    write_result(
        given.out,
        decided([Run.open(folder) for folder in given.runs], given.serve, given.threads),
        threads=given.threads,
    )
    print(given.out)


if __name__ == "__main__":
    main()
