"""Folders are named after the pipeline, and imports run down it: what comes later in ORDER never imports what comes before.

Lazy imports and those for types alone count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"driftscope": "driftscope", "driftscope.probes": "probes", "driftscope.app": "app"}
ORDER = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("app", "pytest_plugin"),
    ("driftscope",),
    ("api",),
    # A failing assertion shows the table of steps.
    ("integrations", "asserts"),
    ("show",),
    ("serving",),
    ("audit", "compare", "planning"),
    ("findings",),
    ("measuring",),
    ("probes",),
    ("figures",),
    ("runs",),
    ("from_engines",),
    ("chain",),
    ("captures",),
    ("target",),
    ("drafter",),
    ("checkpoints",),
    ("stats", "files", "progress"),
    ("errors", "views", "_version"),
)
"""From what a user calls down to what everything rests on. Folders of one row do not import one another."""
RANK = {name: rank for rank, row in enumerate(ORDER) for name in row}
Import = tuple[str, str, str]
"""(module, what it imports, file and line)."""


@cache
def modules() -> dict[str, Path]:
    """Module -> file."""
    found = {}
    for package, folder in PACKAGES.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = file
    return found


@cache
def imports() -> list[Import]:
    """Every import of one module of ours by another."""
    return [found for module, file in modules().items() for found in _imports(module, file)]


def _imports(module: str, file: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else str(node.module) for name in whole]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        where = f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        yield from ((module, name, where) for name in dict.fromkeys(names) if name in modules() and name != module)


def room(module: str) -> str:
    """The folder or top file that a module is in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def test_every_folder_has_its_place() -> None:
    assert {room(module) for module in modules()} == set(RANK)


def test_imports_run_down_the_pipeline() -> None:
    upward = [
        f"{where}: {module} imports {name}, which is above or beside it"
        for module, name, where in imports()
        if room(module) != room(name) and RANK[room(name)] <= RANK[room(module)]
    ]
    assert upward == []


def test_no_circle() -> None:
    """Of modules, within folders too; a package's own `__init__`, which hands names on, is not followed."""
    edges: dict[str, dict[str, str]] = {}
    for module, name, where in imports():
        # `from driftscope import stats` names a package; what it re-exports is imported from where it is.
        if modules()[name].name != "__init__.py" and modules()[module].name != "__init__.py":
            edges.setdefault(module, {}).setdefault(name, where)
    circles = [" -> ".join(circle) for circle in _circles(edges)]
    assert circles == []


def _circles(edges: dict[str, dict[str, str]]) -> Iterator[list[str]]:
    """One circle for every import that closes one, by a depth-first walk."""
    done: set[str] = set()
    for start in edges:
        stack: list[tuple[str, Iterator[str]]] = [(start, iter(edges.get(start, ())))] if start not in done else []
        path = [start]
        while stack:
            module, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done.add(module)
                stack.pop()
                path.pop()
            elif following in path:
                yield [*path[path.index(following) :], f"{following} ({edges[module][following]})"]
            elif following not in done:
                stack.append((following, iter(edges.get(following, ()))))
                path.append(following)


@pytest.mark.parametrize(
    "folder", sorted({name for row in ORDER for name in row if (ROOT / "driftscope" / name).is_dir()})
)
def test_a_folder_says_what_it_is(folder: str) -> None:
    text = (ROOT / "driftscope" / folder / "__init__.py").read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), f"driftscope/{folder}/__init__.py has no docstring"
