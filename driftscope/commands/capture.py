"""`driftscope capture`: states of a target in a folder, made here or read from an engine's files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from driftscope.commands import options
from driftscope.commands.guard import Debug, print_json, state
from driftscope.commands.progress import working
from driftscope.errors import DriftscopeError

EXAMPLES = """[bold]Examples[/bold]

States that vLLM's extract_hidden_states wrote, with the layer ids that it was given:
[cyan]driftscope capture --from states --layers 2,30,57,61 --target moonshotai/Kimi-K2.6 --prompts asked.jsonl -o k2[/cyan]

SpecForge's offline features, checked with the drafter that was trained on them:
[cyan]driftscope capture --from cache/hidden_states --target Qwen/Qwen3-8B --drafter drafters/eagle3 --out captures/qwen[/cyan]

With the whole target, to be probed elsewhere:
[cyan]driftscope capture --target Qwen/Qwen3-8B --drafter drafters/eagle3 --out captures/qwen[/cyan]

Then, with the target's embedding, final norm and head alone:
[cyan]driftscope probe drafters/eagle3 --capture captures/qwen --target Qwen/Qwen3-8B[/cyan]"""

READING = "Reading files (--from)"


def capture(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the captures go; a new folder.")],
    target: Annotated[
        str,
        typer.Option("--target", help="Target: a Hugging Face folder or name. With --from only its ends are loaded."),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Hidden states that an engine or a trainer wrote. [dim]Default: the target is run here.[/dim]",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            help="Prompts: JSONL, text or a chat file. With --from: those that the texts begin with, where the files do not say"
            " where an answer starts.",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="ID,ID,...",
            help="Boundaries to record; with --from the ids that the peer was given, in its own convention."
            " [dim]Default: what the drafter reads, or the peer's own default.[/dim]",
        ),
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option(
            "--drafter", help="Checkpoint that will be probed: chooses the layers; with --from its loss checks them."
        ),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=2, help="Length of a continuation; longer answers are cut.")
    ] = 128,
    chat_template: Annotated[
        Path | None,
        typer.Option("--chat-template", help="Jinja file to use instead of the target's own chat template."),
    ] = None,
    format: Annotated[
        Literal["auto", "vllm", "speculators", "specforge", "torchspec"],
        typer.Option("--format", help="Who wrote the files.", rich_help_panel=READING),
    ] = "auto",
    ids: Annotated[
        Literal["boundary", "layer-output"] | None,
        typer.Option(
            "--ids",
            help="What an id means: the stream before that layer, or after it. [dim]Default: as the format has it.[/dim]",
            rich_help_panel=READING,
        ),
    ] = None,
    last: Annotated[
        Literal["pre", "post"] | None,
        typer.Option(
            "--last",
            help="The final state was stored before or after the final norm. [dim]Default: as the format has it.[/dim]",
            rich_help_panel=READING,
        ),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            "--prompt-tokens",
            metavar="N",
            min=1,
            help="Every text begins with N tokens of prompt, where nothing else says so.",
            rich_help_panel=READING,
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", min=0, help="Files to take, evenly spread; 0 is all.", rich_help_panel=READING),
    ] = 64,
    whole_target: Annotated[
        bool,
        typer.Option(
            "--whole-target",
            help="Load the whole target, too, and compare the states of two texts with its own.",
            rich_help_panel=READING,
        ),
    ] = False,
    json: options.Json = False,
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=options.PLACES)
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.", rich_help_panel=options.PLACES)
    ] = "auto",
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Put a target's states into a folder, for `driftscope probe --capture`.

    With --from they come from a serving engine or a trainer, so that a target too big for one process can be probed. Layer
    ids, off-by-one conventions and the final norm are checked against the target's embedding and head, not trusted.
    """
    numbers = options.positions(layers, "--layers", "give ids such as 2,18,33") if layers is not None else None
    if source is None and (format, ids, last, prompt_tokens, whole_target) != ("auto", None, None, None, False):
        raise DriftscopeError("--format, --ids, --last, --prompt-tokens and --whole-target belong to --from")
    with working(state(context).debug) as progress:
        from driftscope.api import capture as make

        made = make(
            target,
            out=out,
            source=source,
            prompts=prompts,
            layers=numbers,
            drafter=drafter,
            max_new_tokens=max_new_tokens,
            chat_template=chat_template,
            format=format,
            ids=ids,
            last=last,
            prompt_tokens=prompt_tokens,
            limit=limit or None,
            whole_target=whole_target,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            progress=progress,
        )
    if json:
        print_json(content(made))
    else:
        _print(made)


def content(made: Any) -> dict[str, Any]:
    """What --json prints of a folder of captures."""
    return {
        "folder": str(made.folder),
        "target": made.target["name"],
        "texts": len(made.texts),
        "tokens": sum(text.length for text in made.texts),
        "boundaries": list(made.boundaries),
        "final_states": all(text.final for text in made.texts),
        "greedy": sum(text.greedy for text in made.texts),
        "source": made.source,
    }


def _print(made: Any) -> None:
    from driftscope.show.terminal import stdout_console

    console, told = stdout_console(), content(made)
    lines = [
        f"{told['texts']} texts, {told['tokens']:,} tokens, boundaries {', '.join(map(str, told['boundaries'])) or 'none'}",
        *told["source"]["checks"],
    ]
    if told["greedy"] < told["texts"]:
        lines.append(
            f"acceptance can be measured on {told['greedy']} of {told['texts']} texts: the final states of the others do not"
            " confirm them as what the target writes greedily"
        )
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print(Text.assemble(("captures  ", "dim"), told["folder"]), soft_wrap=True)
