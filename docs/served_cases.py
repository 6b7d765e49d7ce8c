"""The table of the page on counters, made of what benchmarks/engine_cases found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "engine_cases.json"
MARK = "<!-- engine_cases -->"
WORDS = {
    "right": "as it is",
    "carry": "norm_output flipped",
    "no-fc-norm": "fc_norm left out",
    "aux-plus-1": "layers +1",
    "aux-minus-1": "layers -1",
    "rope-10000": "rope_theta 10000",
    "rope-1e6": "rope_theta 1000000",
    "no-map": "d2t of zeros",
    "target-4-bit": "target rounded to 4 bits",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Hook of mkdocs: put the table where the page asks for it."""
    found = result_table(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.is_file() else ""
    return markdown.replace(MARK, found)


def result_table(result: Mapping[str, Any]) -> str:
    """A row a case and way of comparing."""
    lines = [
        "| drafter | served with | prompts | drafts: accepted at 1, 2, ... | compared as | lost | answer | named |",
        "|---|---|---|---|---|---:|---|---|",
    ]
    for case in result["cases"]:
        about = f"| {case['drafter']} | {WORDS.get(case['change'], case['change'])} | {case['prompts']} |"
        about += f" {case['drafts']}: {' '.join(map(str, case['per_position']))} |"
        for name, part in case["answers"].items():
            ties = f"{len(part['tied'])} tie" if part["tied"] else ""
            lost = "" if case["lost"] is None else f"{case['lost']:.0%}"
            lines.append(f"{about} {name} | {lost} | {part['outcome']} | {part['named'] or ties} |")
            about = "| | | | |"
    return "\n".join(lines)
