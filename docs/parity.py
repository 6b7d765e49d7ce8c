"""The table of the page on engines, made of what benchmarks/vllm_parity found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "vllm_parity.json"
MARK = "<!-- vllm_parity -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Hook of mkdocs: put the table where the page asks for it."""
    found = result_table(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.is_file() else ""
    return markdown.replace(MARK, found)


def result_table(result: Mapping[str, Any]) -> str:
    """A row a drafter and number of speculative tokens."""
    lines = [
        "| drafter | K | rounds: vLLM, driftscope, equal | drafted tokens: all, equal | accepted at position 1, 2, ...: vLLM |"
        " driftscope | equal rounds with the other carry |",
        "|---|---:|---:|---:|---|---|---:|",
    ]
    for row in result["rows"]:
        engine, ours = (" ".join(map(str, row[f"accepted_{who}"])) for who in ("engine", "driftscope"))
        control = row.get("control")
        lines.append(
            f"| {row['drafter']} | {row['speculative_tokens']} | {row['rounds_engine']}, {row['rounds_driftscope']}, "
            f"{row['rounds_equal']} | {row['drafted']}, {row['drafted_equal']} | {engine} | {ours} | "
            f"{control['rounds_equal'] if control else ''} |"
        )
    return "\n".join(lines)
