"""A plan on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from driftscope.planning.tables import render_rules, render_traffic

Figure = Mapping[str, Any]
NO_COSTS = "No costs, so no speed-up: name them with --measure, --costs FILE, --roofline NAME or --ratio R"


def headline(plan: Figure) -> str:
    """What to do, in a sentence."""
    if not plan["batches"]:
        return NO_COSTS
    batch = plan["batches"][0]
    best = batch.get("best")
    if best is None:
        return "Too few rounds to say how many tokens to draft"
    speed = _times(best["speed_up"])
    if best["k"] == 0:
        return (
            f"Do not speculate at batch {batch['batch']}: the best is K = {best['of_k']} at {speed} of plain decoding"
        )
    alike = f"; K = {', '.join(map(str, best['alike']))} cannot be told from it" if best["alike"] else ""
    tokens = "1 token" if best["k"] == 1 else f"{best['k']} tokens"
    return f"Draft {tokens} a round at batch {batch['batch']}: {speed} of plain decoding{alike}"


def render_plan(plan: Figure, console: Console) -> None:
    """The answer, then its tables: speed-ups, trees, early stop, calibration, the proof, rules, traffic, and the flags."""
    console.print(Panel(Text(headline(plan), "bold"), padding=(0, 1)))
    costs = f"costs: {plan['costs']['note']}; " if "costs" in plan else ""
    console.print(Text(f"{costs}served length of {plan['prompts']} prompts; 95% intervals over prompts", "dim"))
    console.print(_speed_ups(plan))
    if plan["batches"]:
        marks = "speed-up over plain decoding; * best, ~ cannot be told from it, - slower than not drafting"
        console.print(Text(marks, "dim"))
        console.print(_per_batch(plan))
    if plan["trees"]:
        _render_trees(plan, console)
    if plan["batches"] and plan["batches"][0]["early_stop"]:
        console.print(_early_stop(plan))
        console.print(
            Text("each request pays for its own draft; the token that makes a round stop is verified too", "dim")
        )
    if plan["calibration"]:
        console.print(_calibration(plan))
    if plan.get("proof"):
        console.print(_proof(plan))
    render_rules(plan["rules"], console)
    render_traffic(plan["traffic"], console)
    for engine, flags in plan["settings"].items():
        console.print(Text.assemble((f"{engine}: ", "bold"), flags), soft_wrap=True)


def table(*columns: str, left: int = 0) -> Table:
    """A table whose first `left` columns are words."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place < left else "right")
    return made


def _speed_ups(plan: Figure) -> Table:
    made = table("K", "served", *_batch_names(plan))
    for place, length in enumerate(plan["lengths"]):
        cells = [_speed(batch, place) for batch in plan["batches"]]
        made.add_row(str(length["k"]), interval(length.get("served")), *cells)
    return made


def _batch_names(plan: Figure) -> list[str]:
    return [f"batch {batch['batch']}" for batch in plan["batches"]]


def _speed(batch: Figure, place: int) -> str:
    entry, best = batch["choices"][place], batch.get("best", {})
    found = entry.get("speed_up")
    if found is None:
        return ""
    mark = "*" if entry["k"] == best.get("k") else "~" if entry["k"] in best.get("alike", ()) else " "
    return f"{interval(found)}{'-' if found['mean'] < 1 else mark}"


def _per_batch(plan: Figure) -> Table:
    made = table("batch", "plain, ms", "best K", "speed-up", "breaks even at", "served", "oracle, K by round")
    for batch in plan["batches"]:
        best = batch.get("best")
        if best is None:
            continue
        place = best["of_k"] - 1
        made.add_row(
            str(batch["batch"]),
            f"{1e3 * batch['plain']:.3g}",
            str(best["k"]),
            interval(best["speed_up"]),
            f"{batch['choices'][place]['break_even_length']:.2f} tokens",
            interval(plan["lengths"][place].get("served")),
            interval(batch["oracle"].get("speed_up")),
        )
    return made


def _render_trees(plan: Figure, console: Console) -> None:
    made = table("tree", "steps", "top-k", "nodes", "served", "chain of as many", "gain", *_batch_names(plan), left=1)
    lacking = None
    for tree in plan["trees"]:
        speeds = {entry["batch"]: entry["speed_up"] for entry in tree["batches"]}
        cells = [interval(speeds.get(batch["batch"])) for batch in plan["batches"]]
        shape = (str(tree[name]) for name in ("steps", "topk", "nodes"))
        lengths = (interval(tree.get(name)) for name in ("served", "chain", "gain"))
        made.add_row(tree["name"], *shape, *lengths, *cells)
        lacking = lacking or tree.get("lacking")
    console.print(made)
    console.print(Text("accepted tokens a round without the bonus token; over the anchors of probe trees", "dim"))
    if lacking:
        console.print(Text(lacking, "dim"))


def _early_stop(plan: Figure) -> Table:
    made = table("stop below", "drafted a round", *_batch_names(plan))
    for place, entry in enumerate(plan["batches"][0]["early_stop"]):
        cells = [interval(batch["early_stop"][place].get("speed_up")) for batch in plan["batches"]]
        made.add_row(f"{entry['threshold']:.1f}", interval(entry.get("drafted")), *cells)
    return made


def _calibration(plan: Figure) -> Table:
    made = table("step", "chains", "drafter's probability", "accepted", "ECE")
    for entry in plan["calibration"]:
        told = (interval(entry.get(name)) for name in ("confidence", "accepted", "ece"))
        made.add_row(str(entry["step"]), str(entry["chains"]), *told)
    return made


def _proof(plan: Figure) -> Table:
    made = table("K", "measured", "predicted", "accepted by the loop", "served by the run", "texts as plain")
    for entry in plan["proof"]:
        made.add_row(
            str(entry["k"]),
            f"{entry['measured']:.3f}x",
            f"{entry['predicted']:.3f}x" if "predicted" in entry else "",
            f"{entry['accepted']:.3f}",
            f"{entry['served']:.3f}",
            f"{entry['identical']} of {entry['texts']}",
        )
    return made


def interval(figure: Figure | None) -> str:
    """`1.34 (1.28 to 1.40)`."""
    return "" if figure is None else f"{figure['mean']:.2f}{_ends(figure)}"


def _ends(figure: Figure) -> str:
    return "" if figure["low"] is None else f" ({figure['low']:.2f} to {figure['high']:.2f})"


def _times(figure: Figure) -> str:
    return f"{figure['mean']:.2f} times the speed{_ends(figure)}"
