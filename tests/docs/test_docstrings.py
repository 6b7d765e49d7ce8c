"""What docs/api.md lists is public: its docstrings have one form, Google's."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

API = Path(__file__).resolve().parents[2] / "docs" / "api.md"
LISTED = tuple(
    name if name.startswith("driftscope") else f"driftscope.{name}"
    for name in re.findall(r"^::: (\S+)", API.read_text(encoding="utf-8"), re.MULTILINE)
)


def found(name: str) -> Any:
    """The object of a dotted name, a module included."""
    module, _, attribute = name.rpartition(".")
    held = getattr(importlib.import_module(module), attribute, None)
    return importlib.import_module(name) if held is None else held


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those that the page lists."""
    for name in LISTED:
        if inspect.isfunction(held := found(name)):
            yield name, held


def section(doc: str, title: str) -> str:
    """The indented lines under a title; empty where there is none."""
    part = re.search(rf"^{title}:\n((?:    .*\n|\n)*)", doc + "\n", re.MULTILINE)
    return part[1] if part else ""


def described(doc: str) -> set[str]:
    """Names in front of the colons of `Args:`, several of them with commas between."""
    heads = re.findall(r"^    ([\w, \n]+?):", section(doc, "Args"), re.MULTILINE)
    return {name for head in heads for name in re.split(r",\s*", head)}


def misses(function: Callable[..., Any]) -> list[str]:
    """What its docstring lacks."""
    doc, signature = inspect.getdoc(function) or "", inspect.signature(function)
    given = {name for name in signature.parameters if name not in ("self", "cls")}
    lacks = [f"Args: {name}" for name in sorted(given - described(doc))]
    lacks += [f"Args: {name} is no parameter" for name in sorted(described(doc) - given)]
    if signature.return_annotation not in (None, "None") and not section(doc, "Returns").strip():
        lacks.append("Returns")
    lacks += [f"Raises: {name}" for name in raised(function) - set(re.findall(r"^    (\w+):", doc, re.MULTILINE))]
    return lacks


def raised(function: Callable[..., Any]) -> set[str]:
    """Errors that it raises itself and does not catch."""
    source = inspect.getsource(function)
    caught = {name for part in re.findall(r"except ([^:]+)", source) for name in re.findall(r"\w+", part)}
    return set(re.findall(r"^\s+raise (\w+)\(", source, re.MULTILINE)) - caught


def test_the_page_lists_functions_and_classes() -> None:
    held = [found(name) for name in LISTED]
    assert sum(map(inspect.isfunction, held)) > 30
    assert sum(map(inspect.isclass, held)) > 15


@pytest.mark.parametrize(("name", "function"), [pytest.param(*item, id=item[0]) for item in functions()])
def test_a_listed_function_says_what_it_takes_gives_and_raises(name: str, function: Callable[..., Any]) -> None:
    assert misses(function) == []


@pytest.mark.parametrize("name", [name for name in LISTED if inspect.isclass(found(name))])
def test_a_listed_class_and_its_public_methods_say_what_they_are(name: str) -> None:
    held = found(name)
    assert (inspect.getdoc(held) or "").strip()
    own = {key: part for key, part in vars(held).items() if not key.startswith("_")}
    methods = {key: getattr(part, "__func__", part) for key, part in own.items()}
    bare = [key for key, part in methods.items() if inspect.isfunction(part) and not inspect.getdoc(part)]
    bare += [key for key, part in own.items() if isinstance(part, property) and not inspect.getdoc(part)]
    assert bare == []


def test_what_a_docstring_lacks_is_named() -> None:
    def short(width: int, /, height: int) -> int:
        """Half.

        Args:
            width: one side.
            depth: nothing.
        """
        raise ValueError("no")

    assert misses(short) == ["Args: height", "Args: depth is no parameter", "Returns", "Raises: ValueError"]
