"""Fill the marked blocks of README, docs and the example's page from committed results.

python docs/fill.py        # rewrite the blocks

A block stands between `<!-- filled: NAME -->` and `<!-- end of NAME -->`; its template is docs/filled/NAME.md.j2. A template
sees `pair`, the results of the example drafters by name, `training`, what their trainings left, and `bench`, those of
benchmarks/; a figure that no result holds is
an error, so that no page can state it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "docs" / "filled"
SOURCES = {"pair": ROOT / "examples" / "smollm2" / "results", "bench": ROOT / "benchmarks" / "results"}
BLOCK = re.compile(r"(<!-- filled: (?P<name>[a-z0-9-]+) -->\n)(?P<text>.*?)(<!-- end of (?P=name) -->)", re.S)
Figure = Mapping[str, float]


def pages() -> list[Path]:
    """Every page that may hold a block."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *docs, ROOT / "examples" / "smollm2" / "README.md"]


def results(folder: Path) -> dict[str, Any]:
    """The results in a folder, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def trainings() -> dict[str, Any]:
    """What each example drafter's training left beside its checkpoint, by name."""
    files = sorted((ROOT / "examples" / "smollm2" / "checkpoints").glob("*/training.json"))
    return {file.parent.name: json.loads(file.read_text(encoding="utf-8")) for file in files}


def number(value: float, digits: int = 2) -> str:
    """`0.41`, `2.33`, `4,296`; never a negative zero."""
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def signed(value: float, digits: int = 2) -> str:
    """`+0.26`, `-0.05`, `0.00`."""
    text = number(value, digits)
    return text if text.startswith("-") or float(text.replace(",", "")) == 0 else f"+{text}"


def share(value: float, digits: int = 0) -> str:
    """A share of 1 as percent, without the sign: `.732` is `73`."""
    return number(100 * value, digits)


def between(figure: Figure, digits: int = 2, form: str = "number") -> str:
    """Mean and 95% interval: `2.33 (2.28 to 2.38)`; the mean alone where there is no interval."""
    write = {"number": number, "signed": signed, "share": share}[form]
    if figure.get("low") is None:
        return write(figure["mean"], digits)
    return f"{write(figure['mean'], digits)} ({write(figure['low'], digits)} to {write(figure['high'], digits)})"


def step(run: Mapping[str, Any], place: int, feed: str = "steps") -> Any:
    """The figures of a step, counted from 1, of a run."""
    return next(found for found in run[feed] if found["step"] == place)


def onset(run: Mapping[str, Any], name: str) -> str:
    """`step 2`, `none` or `not measurable`, as the run says."""
    found = run["onset"][name]
    value = found["step"] if isinstance(found, Mapping) else found
    return f"step {value}" if isinstance(value, int) else str(value)


def effect(pair: Mapping[str, Any], quantity: str, switch: str, direction: str) -> Figure:
    """The effect of a switch in the 2 x 2. Raises ValueError where its direction is not the one that the page states."""
    quantities = pair["comparison"]["comparison"]["quantities"]
    effects = next(part["effects"] for part in quantities if part["name"] == quantity)
    found = next(part for part in effects if part["effect"] == switch and not part["given"])
    if found["direction"] != direction:
        raise ValueError(f"{quantity}: the effect of {switch} is {found['direction']!r}, the page says {direction!r}")
    return dict(found)


def environment() -> jinja2.Environment:
    """Templates in which an unknown name is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters |= {"number": number, "signed": signed, "share": share, "between": between, "onset": onset}
    made.globals |= {"step": step, "effect": effect, "training": trainings()}
    made.globals |= {name: results(folder) for name, folder in SOURCES.items()}
    return made


def filled(text: str, templates: jinja2.Environment) -> str:
    """A page with every block made anew. Raises jinja2.UndefinedError for a figure that no result holds."""

    def made(block: re.Match[str]) -> str:
        content = templates.get_template(f"{block['name']}.md.j2").render()
        return f"{block[1]}{content.rstrip()}\n{block[4]}"

    return BLOCK.sub(made, text)


def stale() -> Iterator[tuple[Path, str]]:
    """(page, its text as it should be) of the pages that are not as their results say."""
    templates = environment()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        wanted = filled(text, templates)
        if wanted != text:
            yield page, wanted


if __name__ == "__main__":
    for page, text in stale():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
