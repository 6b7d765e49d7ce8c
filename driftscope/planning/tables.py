"""Tables of rules and traffic on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftscope.chain.patches import REASONS
from driftscope.chain.verification_rules import RULES
from driftscope.figures.rules import draft_temperature

_RULES = {
    "greedy": "greedy",
    "exact_match": "exact match",
    "one_hot": "one-hot draft",
    "lossless": "lossless",
    "block": "block",
}
_HEADS = {"category": "category", "language": "language", "token": "kind of token", "place": "place in the answer"}


def render_rules(rules: Mapping[str, Any], console: Console) -> None:
    """Acceptance at step 1 and expected lengths, by sampling and rule; and the draft temperature."""
    if not rules:
        return
    made = _table("target", "draft", *(_RULES[rule] for rule in RULES), left=2)
    for entry in rules["samplings"]:
        held = entry["rules"]
        first = [_step_one(held.get(rule, {})) for rule in RULES]
        made.add_row(entry["target"], entry["draft"], *first)
        lengths = [_mean(held.get(rule, {}).get("length")) for rule in RULES]
        if any(lengths):
            made.add_row("", "  length", *(f"[dim]{length}[/dim]" if length else "" for length in lengths))
    console.print(made)
    told = "acceptance of step 1 on greedy texts; length: accepted tokens on texts sampled so (greedy: on greedy texts)"
    console.print(Text(told, "dim"))
    found = rules.get("draft_temperature")
    if found:
        console.print(Text(draft_temperature(found)))


def render_traffic(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """One table a kind of group."""
    for by, head in _HEADS.items():
        own = [row for row in rows if row["by"] == by]
        if not own:
            continue
        lengths = by in ("category", "language")
        reasons = [name for name in REASONS if any(name in row.get("reasons", {}) for row in own)]
        names = ("prompts", "served", "anchor mean") if lengths else ("tokens", "accepted")
        made = _table(head, *names, "cost of drift", *(name.replace("_", " ") for name in reasons), left=1)
        for row in own:
            counted = str(row["prompts" if lengths else "tokens"])
            told = [_mean(row.get(name)) for name in (("served", "anchor_mean") if lengths else ("accepted",))]
            shares = [_share(row.get("reasons", {}).get(name)) for name in reasons]
            made.add_row(row["group"], counted, *told, _mean(row.get("cost")), *shares)
        console.print(made)
    if rows:
        note = "cost of drift in tokens a chain, of kinds and places in tokens a token; reasons are shares of the rejected chains"
        console.print(Text(note, "dim"))


def _table(*columns: str, left: int) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place < left else "right")
    return made


def _step_one(rule: Mapping[str, Any]) -> str:
    steps = rule.get("greedy") or rule.get("sampled") or [{}]
    return _mean(steps[0].get("acceptance"))


def _mean(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    ends = "" if figure["low"] is None else f" ({figure['low']:.2f} to {figure['high']:.2f})"
    return f"{figure['mean']:.3f}{ends}"


def _share(figure: Mapping[str, Any] | None) -> str:
    return "" if figure is None else f"{figure['mean']:.0%}"
