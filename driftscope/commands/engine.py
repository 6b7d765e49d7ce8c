"""`driftscope engine`: does a serving engine run the drafter as it was trained? From its counters alone."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json
from driftscope.errors import DriftscopeError

EXAMPLES = """[bold]Examples[/bold]

What a running server counted, against a run of the same drafter (driftscope probe):
[cyan]curl -s localhost:8000/metrics | driftscope engine runs/eagle3 --metrics -[/cyan]

What was counted between two scrapes; a server's log and JSON work as well:
[cyan]driftscope engine runs/eagle3 --metrics after.txt --before before.txt[/cyan]
[cyan]driftscope engine runs/eagle3 --metrics server.log[/cyan]

The sharpest comparison: a server that has answered the run's prompts, once each, at temperature 0:
[cyan]driftscope engine runs/eagle3 --metrics after.txt --before before.txt --same-prompts[/cyan]

A golden file for CI, and the gate, without checkpoint or target:
[cyan]driftscope engine runs/eagle3 --write-golden eagle3.golden.yaml[/cyan]
[cyan]driftscope engine --golden eagle3.golden.yaml --metrics after.txt[/cyan]"""
_GOLDEN = "Golden file"


def engine(
    run: Annotated[
        Path | None,
        typer.Argument(help="Run folder of the drafter; not needed for --golden with --metrics.", show_default=False),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics", metavar="FILE|-", help="Text of /metrics, a server's log, or JSON with counts; - is stdin."
        ),
    ] = None,
    before: Annotated[
        Path | None, typer.Option("--before", metavar="FILE", help="An earlier scrape of /metrics, taken off.")
    ] = None,
    same_prompts: Annotated[
        bool,
        typer.Option(
            "--same-prompts", help="The server answered the run's prompts, once each, greedily: compared exactly."
        ),
    ] = False,
    same_kinds: Annotated[
        bool,
        typer.Option(
            "--same-kinds", help="The run's prompts are a sample of what the server answers: the same kinds, as often."
        ),
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="The server's limit of an answer, with --same-prompts.")
    ] = None,
    drafts: Annotated[
        int | None,
        typer.Option("--drafts", min=1, help="Verify steps, where the file has a mean without its count (SGLang)."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="Drafted tokens of a step, where the file does not say it.")
    ] = None,
    walk: Annotated[
        bool,
        typer.Option(
            "--walk/--no-walk", help="Walk every other reading of the checkpoint; without, only the run's own, at once."
        ),
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="List every reading, and why some were not walked.")] = False,
    json: options.Json = False,
    write_golden: Annotated[
        Path | None,
        typer.Option(
            "--write-golden", metavar="FILE", help="Write what the run accepted, as YAML.", rich_help_panel=_GOLDEN
        ),
    ] = None,
    golden: Annotated[
        Path | None,
        typer.Option(
            "--golden", metavar="FILE", help="Hold the run, or --metrics, against it.", rich_help_panel=_GOLDEN
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Where the drafter is now, if it was moved.", rich_help_panel=options.PLACES),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Where the target is now, if it was moved.", rich_help_panel=options.PLACES),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=options.PLACES)
    ] = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--cache-dir", envvar="DRIFTSCOPE_CACHE", help="Where captures are kept.", rich_help_panel=options.PLACES
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Say from a server's counters whether it runs the drafter as it was trained, and if not, which switch it has wrong.

    Every other reading of the checkpoint is walked over the run's texts, and the counters say which of them they can
    be of. Walks are
    kept in the run folder: the first call loads the pair, later ones take a second.

    Exit code 0: the server serves what the walk serves (the golden file holds), 1: it does not, 2: it cannot be
    told, or could not be
    read.
    """
    from driftscope.progress import stderr_progress
    from driftscope.runs.run import Run
    from driftscope.show.terminal import stdout_console

    if metrics is None and golden is None and write_golden is None:
        raise DriftscopeError(
            "nothing to compare: give --metrics FILE (or - for stdin), --golden FILE or --write-golden FILE"
        )
    if run is None and (golden is None or metrics is None or write_golden is not None):
        raise DriftscopeError("name the run folder; only --golden with --metrics does without one")
    if same_prompts and same_kinds:
        raise DriftscopeError("--same-prompts and --same-kinds exclude each other: the former is the stronger")
    from driftscope.from_engines.counters.reading import read_counters

    counted = None if metrics is None else read_counters(metrics, before=before, drafts=drafts, tokens=tokens)
    opened = None if run is None else Run.open(run)
    console = stdout_console()
    content: dict[str, object] = {}
    codes = []
    # Libraries print as they please: stdout is for the result.
    with contextlib.redirect_stdout(sys.stderr), stderr_progress() as progress:
        from driftscope.serving import golden as gold
        from driftscope.serving.diagnosis import Traffic

        traffic = Traffic(same_prompts, same_kinds, max_tokens)
        gate = found = None
        if write_golden is not None:
            assert opened is not None
            content["golden"] = {"written": str(write_golden), **gold.write_golden(opened, write_golden)}
        if golden is not None:
            held = gold.read_golden(golden)
            if counted is not None:
                gate = gold.gate_counters(counted, held, traffic)
            else:
                assert opened is not None
                gate = gold.gate_run(opened, held)
            codes.append(gate.exit_code)
            content["gate"] = gate.to_dict()
        if counted is not None and opened is not None:
            from driftscope.serving.engine import compare_engine
            from driftscope.serving.places import Places
            from driftscope.serving.report import content as diagnosis_content
            from driftscope.serving.report import keep

            places = Places(checkpoint, target, device, None, trust_remote_code, cache_dir)
            found = compare_engine(opened, counted, traffic=traffic, walk=walk, places=places, progress=progress)
            told = diagnosis_content(found)
            keep(opened, told)
            codes.append(found.exit_code)
            content |= told
    if json:
        print_json(content)
    else:
        from driftscope.serving.view import render_diagnosis, render_gate

        if write_golden is not None:
            console.print(f"golden file written to {write_golden}", soft_wrap=True, highlight=False)
        if gate is not None:
            render_gate(gate, console)
        if found is not None:
            render_diagnosis(found, console, run=str(run), every=every)
    worst = 1 if 1 in codes else max(codes, default=0)
    if worst:
        raise typer.Exit(worst)
