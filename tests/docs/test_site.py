"""The pages that are made from the code, and the frame of the site."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from driftscope.findings import definitions
from driftscope.findings.thresholds import DEFAULTS
from driftscope.probes import SHIPPED
from driftscope.runs.schema import tables as all_tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generated", ROOT / "docs" / "generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8")))


def test_every_code_has_a_section_with_all_that_explain_prints(generated: ModuleType) -> None:
    page = generated.findings_page()
    for code in definitions().values():
        start = page.index(f"### {code.code} {code.title} {{ #{code.code.lower()} }}")
        section = page[start:].partition("\n### ")[0]
        for text in (code.meaning, code.measured, code.limits, *code.advice):
            assert text in section
        for name in code.thresholds:
            assert f"`{name}` = {DEFAULTS[name]:g}" in section


def test_every_probe_has_a_row_and_a_page(generated: ModuleType, config: dict[str, Any]) -> None:
    page = generated.probes_page()
    for name in SHIPPED:
        assert f"| [{name}]({name}.md) |" in page
        text = (ROOT / "docs" / "probes" / f"{name}.md").read_text(encoding="utf-8")
        assert [
            part for part in ("**Question.**", "## Definition", "## Pitfalls", "## Source") if part not in text
        ] == []
        assert f"probes/{name}.md" in pages_of(config["nav"])


def test_every_table_is_described(generated: ModuleType) -> None:
    page = generated.tables_page()
    for table in all_tables().values():
        section = page.partition(f"\n## {table.name}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^\| `([^`]+)`", section, re.M) == [column.name for column in table.columns]


def test_sources_become_links(generated: ModuleType) -> None:
    text = "arXiv 2605.09992, SafeAILab/EAGLE issue 63 and vllm-project/vllm-ascend PR 7038: text"
    assert generated.linked(text) == (
        "[arXiv 2605.09992](https://arxiv.org/abs/2605.09992), "
        "[SafeAILab/EAGLE issue 63](https://github.com/SafeAILab/EAGLE/issues/63) and "
        "[vllm-project/vllm-ascend PR 7038](https://github.com/vllm-project/vllm-ascend/pull/7038): text"
    )


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        return [page for part in nav.values() for page in pages_of(part)]
    return [page for part in nav for page in pages_of(part)]


def test_the_navigation_holds_every_page_once(generated: ModuleType, config: dict[str, Any]) -> None:
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sorted(pages_of(config["nav"])) == sorted({*written, *generated.pages(), "cost.md"})


def test_warnings_are_errors(config: dict[str, Any]) -> None:
    assert config["strict"] is True
    assert set(config["validation"].values()) == {"warn"}
