"""The report as a file."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from driftscope._version import __version__
from driftscope.errors import RunError
from driftscope.findings.thresholds import Thresholds
from driftscope.runs.run import Run
from driftscope.show.charts.export import ImageFormat, browser_scripts, save, svg_of
from driftscope.show.charts.theme import ThemeName, spec, theme
from driftscope.show.frames import Runs, onsets
from driftscope.show.gallery import FIRST, Picture, pictures, sections
from driftscope.show.report.column import widened
from driftscope.show.report.content import (
    RunPart,
    comparison_of,
    comparison_pictures,
    evidence_text,
    run_parts,
    title_of,
)

_COMPARE = "Side by side"


def write_report(
    runs: Sequence[Run | str | Path],
    path: str | Path,
    *,
    depth: int | None = None,
    thresholds: Thresholds | Path | None = None,
) -> Path:
    """Write one HTML file on these runs that opens offline. Raises RunError if a folder is no run, if a run holds fewer
    steps than `depth`, or if the file cannot be written."""
    opened = _opened(runs)
    file = Path(path)
    text = render_report(opened, depth=depth, thresholds=thresholds)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror or error}; choose another file with -o") from error
    return file


def render_report(runs: Runs, *, depth: int | None = None, thresholds: Thresholds | Path | None = None) -> str:
    """The HTML of the report."""
    parts = run_parts(runs, depth, thresholds)
    drawn, comparison, why_not = _everything(runs, parts, depth, thresholds)
    headings = sections(runs)
    headings = {FIRST: headings[FIRST], "compare": _COMPARE, **headings}
    specs = {picture.name: spec(picture.chart) for picture in drawn}
    svgs = {name: svg_of(plain) for name, plain in specs.items()}
    environment = Environment(loader=PackageLoader("driftscope"), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"evidence": evidence_text, "code": _code}
    return environment.get_template("report.html").render(
        title=title_of(runs),
        parts=parts,
        comparison=comparison,
        why_not=why_not,
        first=FIRST if any(picture.section == FIRST for picture in drawn) else next((p.section for p in drawn), ""),
        sections=[(name, text, [p for p in drawn if p.section == name]) for name, text in headings.items()],
        stills={name: _still(svg) for name, svg in svgs.items()},
        specs={name: _script(widened(plain, svgs[name])) for name, plain in specs.items()},
        themes=_script({"light": theme("light"), "dark": theme("dark")}),
        scripts=Markup(browser_scripts().replace("</script", "<\\/script")),
        version=__version__,
    )


def write_images(
    runs: Sequence[Run | str | Path],
    folder: str | Path,
    *,
    image_format: ImageFormat = "svg",
    look: ThemeName = "light",
    depth: int | None = None,
    thresholds: Thresholds | Path | None = None,
) -> list[Path]:
    """Write every chart of the report into `folder`, as NAME.svg or NAME.png. Raises RunError as `write_report` does."""
    opened = _opened(runs)
    place = Path(folder)
    drawn, _, _ = _everything(opened, run_parts(opened, depth, thresholds), depth, thresholds)
    try:
        place.mkdir(parents=True, exist_ok=True)
        return [save(picture.chart, place / f"{picture.name}.{image_format}", look) for picture in drawn]
    except OSError as error:
        raise RunError(f"cannot write into {place}: {error.strerror or error}; choose another folder") from error


def _everything(
    runs: Runs, parts: Sequence[RunPart], depth: int | None, thresholds: Thresholds | Path | None
) -> tuple[list[Picture], Any, str]:
    assessments = [part.assessment for part in parts]
    marks = onsets(runs, depth, [part.onsets for part in assessments], [part.spreads for part in assessments])
    comparison, why_not = comparison_of(runs, depth, thresholds)
    side_by_side = [] if comparison is None else comparison_pictures(comparison)
    return [*side_by_side, *pictures(runs, depth, marks)], comparison, why_not


def _opened(runs: Sequence[Run | str | Path]) -> list[Run]:
    if not runs:
        raise RunError("no run to report on: name one or more run folders")
    return [run if isinstance(run, Run) else Run.open(run) for run in runs]


def _still(svg: str) -> str:
    """The chart for paper and for browsers without scripts. As an image, so that ids of several do not clash."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _code(text: str) -> Markup:
    """Words in backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _script(content: Any) -> Markup:
    """JSON that may stand inside a script element."""
    return Markup(json.dumps(content, allow_nan=False).replace("<", "\\u003c"))
