"""The support matrix of docs/formats.md, made of the tests that carry the marker `supports`.

python -m tests.support        # rewrite the tables

`@pytest.mark.supports(what, system)`: the test shows that `what` holds of a system. `system` is its name, several, or a
function that is called with the parameters of each case (by name) and returns what follows `what`: the system, and with
"opened" the layout, with "equal to" the peer; None where a case is of no system of its own. Nothing is run here: a test
that fails is for the suite to tell.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors import safe_open

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "formats.md"
MARKS = ("<!-- support matrix: made by tests/support.py -->", "<!-- end of the matrix -->")
WHAT = {
    "opened": "opened from",
    "equal to": "step by step equal to",
    "run": "run as chains or blocks",
    "captured": "captured as its own forward passes it on",
    "dequantised": "dequantised",
}
DRAFTERS = (
    "EAGLE-3", "EAGLE 3.1", "EAGLE-3, latent attention (MLA)", "EAGLE-3, learned sinks", "EAGLE-3, gated attention",
    "EAGLE-3, sliding window", "EAGLE-1, EAGLE-2, HASS", "GRIFFIN",
)  # fmt: skip


def of_layout(layout: Any, variant: str) -> tuple[str, str] | None:
    """Of a case of tests/checkpoints/layouts.py."""
    place = f"`{layout.name}`"
    if layout.name.endswith("-mtp"):
        return f"{variant.removeprefix('speculators ')}, MTP", place
    named = {
        "eagle1": "EAGLE-1, EAGLE-2, HASS",
        "griffin": "GRIFFIN",
        "dflash": "DFlash",
        "speculators-dflash": "DFlash",
    }
    if layout.name in named:
        return named[layout.name], place
    return (_variant(variant), place) if _variant(variant) else None  # type: ignore[return-value]


def _variant(name: str) -> str | None:
    """The system of a variant of an EAGLE-3 layer, by its first words."""
    for start, system in (
        ("latent", "EAGLE-3, latent attention (MLA)"), ("learned sinks", "EAGLE-3, learned sinks"),
        ("gated", "EAGLE-3, gated attention"),
        ("window", "EAGLE-3, sliding window"), ("P-EAGLE", "P-EAGLE"), ("p-eagle", "P-EAGLE"), ("dflash", "DFlash"),
    ):  # fmt: skip
        if name.startswith(start):
            return system
    return name if name in ("EAGLE-3", "EAGLE 3.1") else None


def of_golden(path: Path) -> tuple[str, str] | None:
    """Of a file in tests/golden, which names its peer."""
    with safe_open(path, "pt") as file:
        told = {key: json.loads(text) for key, text in (file.metadata() or {}).items() if key in ("peer", "config")}
    if "peer" not in told:
        return None
    peer, stem = told["peer"].partition(",")[0], path.stem
    if "-mtp-" in stem:
        return {"qwen3": "Qwen3, MTP", "qwen3-next": "Qwen3-Next, MTP"}[stem.partition("-mtp-")[2]], peer
    for start, system in (("eagle1", "EAGLE-1, EAGLE-2, HASS"), ("griffin", "GRIFFIN")):
        if stem.startswith(start):
            return system, peer
    kind = told["config"].get("speculators_model_type")
    if kind in ("dflash", "peagle") or "dflash" in stem or "peagle" in stem:
        return ("P-EAGLE" if kind == "peagle" or "peagle" in stem else "DFlash"), peer
    return ("EAGLE 3.1" if "fc-norm-post-norm" in stem else "EAGLE-3"), peer


def of_head(name: str) -> str:
    """Of a row of tests/heads.py."""
    return f"{name.removeprefix('speculators ')}, MTP"


def of_layer(name: str) -> str | None:
    """Of a case of tests/test_layers.py."""
    return _variant(name)


def modules() -> list[ModuleType]:
    """The test modules in which the marker occurs."""
    files = sorted(file for file in TESTS.rglob("test_*.py") if "mark.supports(" in file.read_text(encoding="utf-8"))
    places = [".".join(file.relative_to(TESTS.parent).with_suffix("").parts) for file in files]
    return [importlib.import_module(place) for place in places]


def claims() -> Iterator[tuple[str, str, str]]:
    """(what, system, detail) of every case of every marked test."""
    for module in modules():
        for function in vars(module).values():
            marks = getattr(function, "pytestmark", []) if inspect.isfunction(function) else []
            for mark in marks:
                if mark.name == "supports":
                    yield from _claims(marks, *mark.args)


def _claims(marks: list[Any], what: str, system: Any) -> Iterator[tuple[str, str, str]]:
    if what not in WHAT:
        raise ValueError(f"supports({what!r}): expected one of {', '.join(WHAT)}")
    if not callable(system):
        for name in (system,) if isinstance(system, str) else system:
            yield what, name, ""
        return
    wanted = list(inspect.signature(system).parameters)
    for case in _cases(marks):
        found = system(**{name: case[name] for name in wanted})
        if found is not None:
            name, detail = (found, "") if isinstance(found, str) else found
            yield what, name, detail


def _cases(marks: list[Any]) -> Iterator[dict[str, Any]]:
    """The parameters of every case, as parametrize spells them."""
    axes = []
    for mark in marks:
        if mark.name == "parametrize":
            names, values = mark.args[0], mark.args[1]
            names = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
            rows = [getattr(value, "values", value) if not isinstance(value, dict) else value for value in values]
            axes.append([dict(zip(names, row if len(names) > 1 else _one(row), strict=True)) for row in rows])
    for parts in itertools.product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def _one(row: Any) -> tuple[Any, ...]:
    return tuple(row) if type(row) is tuple and len(row) == 1 else (row,)


def table() -> str:
    """The tables: drafters by what was shown of them, targets, and quantised weights."""
    held: dict[str, dict[str, list[str]]] = {}
    for what, system, detail in claims():
        details = held.setdefault(system, {}).setdefault(what, [])
        if detail and detail not in details:
            details.append(detail)
    drafters = [name for name in held if {"opened", "equal to", "run"} & held[name].keys()]
    order = {name: place for place, name in enumerate(DRAFTERS)}
    drafters.sort(key=lambda name: (order.get(name, len(order)), not name.endswith(", MTP"), name.lower()))
    columns = ("opened", "equal to", "run")
    lines = ["| drafter | " + " | ".join(WHAT[what] for what in columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for name in drafters:
        lines.append(f"| {name} | " + " | ".join(_cell(held[name], what) for what in columns) + " |")
    for what, title in (("captured", "target"), ("dequantised", "quantised weights")):
        lines += ["", f"| {title} | {WHAT[what]} |", "|---|---|"]
        lines += [f"| {name} | {_cell(held[name], what)} |" for name in held if what in held[name]]
    return "\n".join(lines)


def _cell(row: dict[str, list[str]], what: str) -> str:
    return ", ".join(row[what]) or "yes" if what in row else ""


def page_with(made: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = MARKS
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{made}\n{end}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
