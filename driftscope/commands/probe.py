"""`driftscope probe`: measure a drafter with its target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from driftscope.commands import options
from driftscope.commands.content import run_content
from driftscope.commands.guard import FAILED, Debug, fail, print_json, state
from driftscope.commands.progress import working
from driftscope.errors import DriftscopeError, RunError

EXAMPLES = """[bold]Examples[/bold]

The target is named in the checkpoint's config; a run folder is chosen:
[cyan]driftscope probe drafters/eagle3[/cyan]

A quick look: the first 32 positions of each prompt, 4 steps:
[cyan]driftscope probe drafters/eagle3 --target Qwen/Qwen3-8B --anchors 32 --depth 4[/cyan]

As many prompts as it takes to tell what drift costs to a tenth of a token:
[cyan]driftscope probe drafters/eagle3 --until 0.1[/cyan]

Your prompts, the figures as JSON:
[cyan]driftscope probe drafters/eagle3 --prompts mine.jsonl -o runs/mine --json > mine.json[/cyan]

Go on after an interruption:
[cyan]driftscope probe drafters/eagle3 -o runs/eagle3 --resume[/cyan]

A target too big for this machine, from states captured elsewhere (`driftscope capture --help`):
[cyan]driftscope probe drafters/eagle3 --capture captures/qwen --target Qwen/Qwen3-8B[/cyan]

On the Ray cluster that RAY_ADDRESS names, or on this machine's processors:
[cyan]driftscope probe drafters/eagle3 --shards ray[/cyan]

A switch that the config should have said:
[cyan]driftscope probe drafters/eagle3 --carry post[/cyan]"""

MEASUREMENT = "Measurement"


def probe(
    context: typer.Context,
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CHECKPOINT", help="Drafter: a folder, a weight file or a Hub id.", show_default=False),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target", help="Target: a Hugging Face folder or name. [dim]Default: what the config names.[/dim]"
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts", help="Prompts: JSONL, text or a chat file. [dim]Default: the 48 that are shipped.[/dim]"
        ),
    ] = None,
    chat_template: Annotated[
        Path | None,
        typer.Option("--chat-template", help="Jinja file to use instead of the target's own chat template."),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            "--capture",
            metavar="FOLDER",
            help="Texts and states of `driftscope capture` instead of prompts; only the target's ends are loaded.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Run folder. [dim]Default: a new one in runs/.[/dim]"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    shards: Annotated[
        Literal["local", "ray"],
        typer.Option("--shards", help="Where prompts are measured: here, or as tasks of a Ray cluster."),
    ] = "local",
    json: options.Json = False,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Length of a continuation.", rich_help_panel=MEASUREMENT)
    ] = 128,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Steps of a chain.", rich_help_panel=MEASUREMENT)] = 8,
    horizon: Annotated[
        int,
        typer.Option(
            "--horizon",
            min=1,
            help="Text that every anchor has ahead; runs of different depth with the same horizon have the same anchors.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = 16,
    anchors: Annotated[
        int | None,
        typer.Option(
            "--anchors",
            min=1,
            help="Only N anchors of each prompt, evenly over its text. [dim]Default: all.[/dim]",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    sink: Annotated[
        str,
        typer.Option(
            "--sink",
            metavar="auto|none|0,1",
            help="Sink positions: found in the target, none, or these.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = "auto",
    until: Annotated[
        float | None,
        typer.Option(
            "--until",
            metavar="TOKENS",
            help="Stop once the interval of drift's cost is no wider than this, with prompts in a random order; --resume goes on.",
            show_default=False,
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            "--probes",
            metavar="A,B|all",
            help="What to measure; `driftscope probes` lists them. [dim]Default: the cheap ones.[/dim]",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    probe_option: Annotated[
        list[str] | None,
        typer.Option(
            "--probe-option",
            metavar="PROBE.OPTION=VALUE",
            help="An option of a probe, such as noise.alphas=0.1,0.5; can be repeated.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit/--no-audit",
            help="A short audit first: is it run as it was trained? `driftscope audit` does more.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = True,
    thresholds: options.Thresholds = None,
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is drawn.", rich_help_panel=MEASUREMENT)] = 0,
    aux: options.Aux = None,
    carry: options.Carry = None,
    rope_theta: options.RopeTheta = None,
    settings: options.Set = None,
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=options.PLACES)
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.", rich_help_panel=options.PLACES)
    ] = "auto",
    device_map: Annotated[
        str | None,
        typer.Option(
            "--device-map",
            metavar="auto|balanced|sequential",
            help="Spread the target over devices and memory, as transformers does; needs accelerate.",
            rich_help_panel=options.PLACES,
        ),
    ] = None,
    drafter_device: Annotated[
        str | None,
        typer.Option(
            "--drafter-device",
            help="Where the drafter runs. [dim]Default: with its target.[/dim]",
            rich_help_panel=options.PLACES,
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Only kernels whose results repeat bit for bit; slower on CUDA.",
            rich_help_panel=options.PLACES,
        ),
    ] = False,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--cache-dir", envvar="DRIFTSCOPE_CACHE", help="Where captures are kept.", rich_help_panel=options.PLACES
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Measure from which step on a drafter drifts, and how.

    The target continues each prompt once; then the drafter runs from every position of that text.
    Prints a verdict, a table with a row per step, findings, and how the checkpoint was read. All rows stay in the run
    folder. Exit code 0: nothing found, 1: findings (`driftscope explain`; DS3xx are notes), 2: it could not be measured.
    """
    from driftscope.findings import assess, load, save
    from driftscope.runs.naming import fresh_run

    switches = options.overrides(aux, carry, rope_theta, settings)
    sinks = options.sink(sink)
    limits = load(thresholds)
    folder = _folder(checkpoint, out, resume) if out or resume else fresh_run(checkpoint)
    given: dict[str, Any] = {
        "target": target,
        "prompts": prompts,
        "chat_template": chat_template,
        "capture": capture,
        "max_new_tokens": max_new_tokens,
        "depth": depth,
        "horizon": horizon,
        "anchors": anchors,
        "sink": sinks,
        "seed": seed,
        "overrides": switches,
        "audit": audit,
        "until": until,
        "resume": resume,
        "shards": shards,
        "device": device,
        "dtype": dtype,
        "device_map": device_map,
        "drafter_device": drafter_device,
        "deterministic": deterministic,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
        "cache_dir": cache_dir,
    }
    if probes is not None:
        given["probes"] = probes
    if capture is not None and str(context.get_parameter_source("max_new_tokens")).endswith("COMMANDLINE"):
        raise DriftscopeError("--max-new-tokens changes nothing about --capture: its texts are as long as they are")
    chosen_options = _check_probes(probes, probe_option)
    state(context).run = folder

    with working(state(context).debug) as progress:
        from driftscope.api import measure_request
        from driftscope.measuring.request import ProbeRequest

        request = ProbeRequest.of(checkpoint, folder, options=chosen_options, **given)
        run = measure_request(request, progress)
        progress.message("looking for findings")
        # A block drafter has no more steps than its block.
        depth = min(depth, int(run.info.settings.get("depth", depth)))
        assessment = assess(run, limits, depth=depth)
        save(run, assessment)
    if json:
        print_json(run_content(run, assessment, depth))
    else:
        from driftscope.show.terminal import render_run, stdout_console

        console = stdout_console()
        render_run(run, console, depth, assessment=assessment)
        again = ("  (print it again: driftscope show ", "dim"), (str(folder), "dim"), (")", "dim")
        console.print(Text.assemble(("\nrun folder  ", "dim"), str(folder), *again), soft_wrap=True)
    if assessment.exit_code == FAILED:
        from driftscope.findings.view import summary_line

        fail(summary_line(assessment), kind="no verdict")
    raise typer.Exit(assessment.exit_code)


def _folder(checkpoint: str, out: Path | None, resume: bool) -> Path:
    if out is None:
        from driftscope.runs.naming import short_name

        raise RunError(f"--resume needs -o: which run to go on with, for example -o runs/{short_name(checkpoint)}")
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} exists: use --resume to go on with it or another -o")
    return out


def _check_probes(names: str | None, options: list[str] | None) -> dict[str, str]:
    """The options; names of probes and the form of options are checked before anything is loaded."""
    from driftscope.probes import chosen
    from driftscope.probes.options import parse_options

    if names is not None:
        chosen(names)
    return parse_options(options or ())
