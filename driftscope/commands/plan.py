"""`driftscope plan`: how many tokens to draft, and whether to speculate at all."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json

if TYPE_CHECKING:
    from driftscope.chain.pair import Pair

EXAMPLES = """[bold]Examples[/bold]

Time the pair of the run here, and plan with that:
[cyan]driftscope plan runs/eagle3 --measure --batches 1,4,16[/cyan]

With the costs of your server, and with a data sheet's:
[cyan]driftscope plan runs/eagle3 --costs h100.json[/cyan]
[cyan]driftscope plan runs/eagle3 --roofline H100[/cyan]

With a drafter step that costs a tenth of a forward of the target:
[cyan]driftscope plan runs/eagle3 --ratio 0.1[/cyan]

Is the prediction right? A real greedy loop over 4 prompts of the run, beside it:
[cyan]driftscope plan runs/eagle3 --measure --batches 1 --serve 4[/cyan]"""

COSTS = "Costs, one of them at most"


def plan(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)],
    measure: Annotated[
        bool, typer.Option("--measure", help="Time drafter and target of the run here.", rich_help_panel=COSTS)
    ] = False,
    costs: Annotated[
        Path | None,
        typer.Option("--costs", metavar="FILE", help="JSON with the time of every pass.", rich_help_panel=COSTS),
    ] = None,
    roofline: Annotated[
        str | None,
        typer.Option(
            "--roofline", metavar="NAME", help="Predict from a data sheet: H100, A100, ...", rich_help_panel=COSTS
        ),
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option("--ratio", help="A drafter step, in forwards of the target.", rich_help_panel=COSTS),
    ] = None,
    batches: Annotated[str, typer.Option("--batches", help="Batch sizes to time or predict.")] = "1,4,16",
    max_k: Annotated[
        int | None,
        typer.Option("--max-k", min=1, help="Largest number of drafted tokens. [dim]Default: the run's.[/dim]"),
    ] = None,
    serve: Annotated[
        int,
        typer.Option(
            "--serve", min=0, metavar="N", help="Decode N prompts of the run for real, beside the prediction."
        ),
    ] = 0,
    save_costs: Annotated[
        Path | None, typer.Option("--save-costs", metavar="FILE", help="Keep the costs, for --costs.")
    ] = None,
    json: options.Json = False,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="Where the target is now. [dim]Default: where it was.[/dim]",
            rich_help_panel=options.PLACES,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=options.PLACES)
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.", rich_help_panel=options.PLACES)
    ] = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Plan what to serve: how many tokens to draft, chain or tree, on which traffic.

    The run's chains tell what an engine would serve for every K, and a model of costs how long it takes. Beside the best K: the
    bound of an oracle that chooses K each round, what an early stop on the drafter's probability would give, how well that is
    calibrated, and the flags for vLLM and SGLang. Costs are times of whole passes, so that speed-ups are ratios; queueing is not
    in them.
    """
    from driftscope.errors import DriftscopeError
    from driftscope.planning.costs import write_costs
    from driftscope.planning.plan import plan as plan_run
    from driftscope.planning.rounds import read_drafts
    from driftscope.planning.sources import CostRequest, costs_for, load_run_pair, measured_nodes
    from driftscope.progress import stderr_progress
    from driftscope.runs.run import Run

    request = CostRequest(costs, ratio, roofline, measure, batches).check()
    run = Run.open(folder)
    drafts = read_drafts(run, max_k)
    # Libraries print as they please: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr), stderr_progress() as progress:

        @cache
        def pair() -> Pair:
            progress.message(f"loading {run.info.checkpoint.path}")
            return load_run_pair(run, target, device=device, dtype=dtype, trust_remote_code=trust_remote_code)

        request = replace(request, nodes=measured_nodes(run))
        model = costs_for(run, request, drafts.depth, pair, progress.message)
        if model is None and (save_costs is not None or serve):
            raise DriftscopeError(
                "--save-costs and --serve need costs: --measure, --costs FILE, --roofline NAME or --ratio R"
            )
        if save_costs is not None and model is not None:
            write_costs(save_costs, model)
        found: dict[str, Any] = plan_run(run, model, max_k)
        if serve and model is not None:
            from driftscope.planning.proof import proof, run_texts

            found["proof"] = proof(pair(), run_texts(run, drafts, serve), drafts, model, tell=progress.message)
    if json:
        print_json(found)
        return
    from driftscope.planning.view import render_plan
    from driftscope.show.terminal import stdout_console

    render_plan(found, stdout_console())
