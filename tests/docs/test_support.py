"""The support matrix in the docs is the one that the tests make."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests import support


@pytest.fixture(scope="module")
def made() -> str:
    return support.table()


def row(made: str, name: str) -> list[str]:
    found = [line for line in made.splitlines() if line.startswith(f"| {name} |")]
    assert len(found) == 1, name
    return [cell.strip() for cell in found[0].strip("|").split("|")][1:]


def test_the_documented_matrix_is_the_tested_one(made: str) -> None:
    assert support.page_with(made) == support.PAGE.read_text(encoding="utf-8"), "run python -m tests.support"


def test_what_has_tests_has_rows(made: str) -> None:
    opened, equal, run = row(made, "EAGLE 3.1")
    assert {"`specforge`", "`vllm`", "`speculators`"} <= set(opened.split(", "))
    assert "speculators 0.9.0" in equal
    assert run == "yes"
    assert "SpecForge 0.2.0" in row(made, "EAGLE-3")[1]
    assert row(made, "DeepSeek-V3, MTP") == ["`deepseek-mtp`", "MtpModel of transformers, the model's own layer", "yes"]
    assert row(made, "Qwen2.5-VL") == ["yes"]
    for name in support.DRAFTERS:
        assert any(row(made, name))


def mark(name: str, *args: Any) -> Any:
    return getattr(pytest.mark, name)(*args).mark


def test_cases_are_those_of_parametrize() -> None:
    marks = [
        mark("parametrize", "a", ["x", pytest.param("y", id="z")]),
        mark("parametrize", ("b", "c"), [(1, 2), (3, 4)]),
    ]
    assert list(support._cases(marks)) == [
        {"a": a, "b": b, "c": c} for a in ("x", "y") for b, c in ((1, 2), (3, 4))
    ]  # fmt: skip
    claims = support._claims(marks, "run", lambda a, c: f"{a}{c}" if c > 2 else None)
    assert list(claims) == [("run", "x4", ""), ("run", "y4", "")]
    with pytest.raises(ValueError, match="expected one of"):
        list(support._claims([], "works", "x"))


def test_every_mark_is_found() -> None:
    """A marker on a class or on a function that is made otherwise would be lost."""
    files = {file: len(re.findall(r"^@pytest\.mark\.supports\(", file.read_text(encoding="utf-8"), re.M))
             for file in support.TESTS.rglob("test_*.py")}  # fmt: skip
    found = 0
    for module in support.modules():
        for function in vars(module).values():
            found += sum(m.name == "supports" for m in getattr(function, "pytestmark", []) if hasattr(m, "name"))
    assert found == sum(files.values()) > 8
