"""The table of the page on counters, made of what benchmarks/engine_cases found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "engine_cases.json"
MARK = "<!-- engine_cases -->"
COSTLY = 0.1
"""Share of the length from which on a fault has to be named."""
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
    result = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else None
    found = "" if result is None else f"{in_short(result)}\n\n{result_table(result)}"
    return markdown.replace(MARK, found)


def in_short(result: Mapping[str, Any]) -> str:
    """How many faults that cost a tenth are named, by the way of comparing, and that no sound engine is accused."""
    lines = []
    for name in ("same prompts", "same kinds", "other traffic"):
        asked = [(case, case["answers"][name]) for case in result["cases"] if name in case["answers"]]
        costly = [
            part["verdict"] for case, part in asked if case["change"] != "right" and (case["lost"] or 0) >= COSTLY
        ]
        sound = [part["verdict"] for case, part in asked if case["change"] == "right"]
        accused = sum(verdict != "right" for verdict in sound)
        lines.append(
            f"- {name}: of {len(costly)} servers that lose a tenth or more, {costly.count('right')} are answered rightly,"
            f" {costly.count('among ties')} name the switch among several that the counters cannot tell apart,"
            f" {costly.count('missed')} are too little to tell, {sum(v.startswith('wrong') for v in costly)} are wrong;"
            f" {accused} of {len(sound)} sound ones accused."
        )
    return "\n".join(lines)


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
