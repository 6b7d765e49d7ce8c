"""`driftscope report`: runs as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from driftscope.commands import options
from driftscope.commands.guard import Debug

EXAMPLES = """[bold]Examples[/bold]

One run:
[cyan]driftscope report runs/eagle3[/cyan]

Several side by side, with every chart as a file too:
[cyan]driftscope report runs/eagle3 runs/eagle3.1 -o compare.html --images charts --format png[/cyan]"""


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The HTML file.")] = Path("report.html"),
    images: Annotated[
        Path | None, typer.Option("--images", metavar="FOLDER", help="Write every chart into this folder as well.")
    ] = None,
    image_format: Annotated[Literal["svg", "png"], typer.Option("--format", help="Of the images.")] = "svg",
    dark: Annotated[bool, typer.Option("--dark", help="Dark images. [dim]The HTML follows the browser.[/dim]")] = False,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Only the first steps. [dim]Default: all.[/dim]")
    ] = None,
    thresholds: options.Thresholds = None,
    debug: Debug = False,
) -> None:
    """Write a report that opens offline: the verdict first, then every chart with its figures."""
    from rich.text import Text

    from driftscope.runs.run import Run
    from driftscope.show.report import write_images, write_report
    from driftscope.show.terminal import stdout_console

    opened = [Run.open(folder) for folder in runs]
    console = stdout_console()
    file = write_report(opened, out, depth=depth, thresholds=thresholds)
    size = f"  ({file.stat().st_size / 1e6:.1f} MB, opens offline)"
    console.print(Text.assemble(("report  ", "dim"), str(file), (size, "dim")), soft_wrap=True)
    if images is not None:
        look: Literal["light", "dark"] = "dark" if dark else "light"
        written = write_images(opened, images, image_format=image_format, look=look, depth=depth, thresholds=thresholds)
        console.print(Text.assemble(("images  ", "dim"), f"{len(written)} in {images}"), soft_wrap=True)
