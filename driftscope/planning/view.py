"""A plan on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

Figure = Mapping[str, Any]


def headline(plan: Figure) -> str:
    """What to do, in a sentence."""
    batch = plan["batches"][0]
    best = batch.get("best")
    if best is None:
        return "Too few rounds to say how many tokens to draft"
    speed = _times(best["speed_up"])
    if best["k"] == 0:
        return (
            f"Do not speculate at batch {batch['batch']}: the best is K = {best['of_k']} at {speed} of plain decoding"
        )
    alike = f"; {_ks(best['alike'])} cannot be told from it" if best["alike"] else ""
    return f"Draft {best['k']} tokens a round at batch {batch['batch']}: {speed} of plain decoding{alike}"


def render_plan(plan: Figure, console: Console) -> None:
    """The answer, speed-ups per K and batch, what choosing K by round would give, calibration, the proof, the settings."""
    console.print(Panel(Text(headline(plan), "bold"), padding=(0, 1)))
    costs = plan["costs"]
    console.print(
        Text(f"costs: {costs['note']}; served length of {plan['prompts']} prompts; 95% intervals over prompts", "dim")
    )
    console.print(_speed_ups(plan))
    console.print(
        Text("speed-up over plain decoding; * best, ~ cannot be told from it, - slower than not drafting", "dim")
    )
    console.print(_per_batch(plan))
    if plan.get("trees"):
        console.print(_trees(plan))
    stops = plan["batches"][0]["early_stop"]
    if stops:
        console.print(_early_stop(plan))
    if plan["calibration"]:
        console.print(_calibration(plan))
    if plan.get("proof"):
        console.print(_proof(plan))
    for engine, flags in plan["settings"].items():
        console.print(Text.assemble((f"{engine}: ", "bold"), flags), soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _speed_ups(plan: Figure) -> Table:
    table = _table("K", "served", *(f"batch {batch['batch']}" for batch in plan["batches"]))
    for place, length in enumerate(plan["lengths"]):
        cells = [_speed(batch, place) for batch in plan["batches"]]
        table.add_row(str(length["k"]), _interval(length.get("served")), *cells)
    return table


def _speed(batch: Figure, place: int) -> str:
    entry, best = batch["choices"][place], batch.get("best", {})
    found = entry.get("speed_up")
    if found is None:
        return ""
    mark = "*" if entry["k"] == best.get("k") else "~" if entry["k"] in best.get("alike", ()) else " "
    return f"{_interval(found)}{'-' if found['mean'] < 1 else mark}"


def _per_batch(plan: Figure) -> Table:
    table = _table("batch", "plain, ms", "best K", "speed-up", "breaks even at", "served", "oracle, K by round")
    for batch in plan["batches"]:
        best = batch.get("best")
        if best is None:
            continue
        place = best["of_k"] - 1
        served = plan["lengths"][place].get("served")
        table.add_row(
            str(batch["batch"]),
            f"{1e3 * batch['plain']:.3g}",
            str(best["k"]),
            _interval(best["speed_up"]),
            f"{batch['choices'][place]['break_even_length']:.2f} tokens",
            _interval(served),
            _interval(batch["oracle"].get("speed_up")),
        )
    return table


def _trees(plan: Figure) -> Table:
    table = _table(
        "tree", "nodes", "served", "chain, same nodes", *(f"batch {batch['batch']}" for batch in plan["batches"])
    )
    for tree in plan["trees"]:
        speeds = {entry["batch"]: entry["speed_up"] for entry in tree["batches"]}
        cells = [_interval(speeds.get(batch["batch"])) for batch in plan["batches"]]
        table.add_row(tree["name"], str(tree["nodes"]), _interval(tree["served"]), _interval(tree.get("chain")), *cells)
    return table


def _early_stop(plan: Figure) -> Table:
    table = _table("stop below", "drafted a round", *(f"batch {batch['batch']}" for batch in plan["batches"]))
    for place, entry in enumerate(plan["batches"][0]["early_stop"]):
        cells = [_interval(batch["early_stop"][place].get("speed_up")) for batch in plan["batches"]]
        table.add_row(f"{entry['threshold']:.1f}", _interval(entry.get("drafted")), *cells)
    return table


def _calibration(plan: Figure) -> Table:
    table = _table("step", "chains", "drafter's probability", "accepted", "ECE")
    for entry in plan["calibration"]:
        told = (_interval(entry.get(name)) for name in ("confidence", "accepted", "ece"))
        table.add_row(str(entry["step"]), str(entry["chains"]), *told)
    return table


def _proof(plan: Figure) -> Table:
    table = _table("K", "measured", "predicted", "accepted by the loop", "served by the run", "texts as plain")
    for entry in plan["proof"]:
        table.add_row(
            str(entry["k"]),
            f"{entry['measured']:.3f}x",
            f"{entry['predicted']:.3f}x" if "predicted" in entry else "",
            f"{entry['accepted']:.3f}",
            f"{entry['served']:.3f}",
            f"{entry['identical']} of {entry['texts']}",
        )
    return table


def _interval(figure: Figure | None) -> str:
    if figure is None:
        return ""
    ends = "" if figure["low"] is None else f" ({figure['low']:.2f} to {figure['high']:.2f})"
    return f"{figure['mean']:.2f}{ends}"


def _times(figure: Figure) -> str:
    ends = "" if figure["low"] is None else f" ({figure['low']:.2f} to {figure['high']:.2f})"
    return f"{figure['mean']:.2f} times the speed{ends}"


def _ks(numbers: list[int]) -> str:
    return f"K = {', '.join(map(str, numbers))}"
