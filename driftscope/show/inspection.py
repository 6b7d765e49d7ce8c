"""What an inspection of a checkpoint looks like on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from driftscope.show.terminal import print_warnings, switches_table

_STATUS = {"used": "green", "never applied": "yellow", "unused": "yellow", "missing": "bold red"}
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM"}


def render_inspection(found: Mapping[str, Any], console: Console) -> None:
    """Print `Inspection.to_dict()`: what it is, switches, tensors, vocabulary, engines, then what is wrong."""
    console.print(_facts(found))
    switches = found["switches"]
    if switches:
        origins = {name: {"source": entry["origin"], "detail": entry["detail"]} for name, entry in switches.items()}
        values = {name: entry["value"] for name, entry in switches.items()}
        console.print(switches_table(values, origins, every=True))
    console.print(_tensors(found["tensors"], found["norms"]))
    console.print()
    if found["engines"]:
        console.print(Text("Engines that read this config otherwise", "bold"))
        console.print(_engines(found["engines"]))
        for reading in found["engines"]:
            console.print(Text(f"{reading['switch']}: {reading['why']}", "dim"))
    elif switches:
        console.print(Text("vLLM, SGLang and TensorRT-LLM read this config as it is run here.", "green"))
    print_warnings(found["warnings"], console)
    for problem in found["problems"]:
        console.print(Text.assemble(("problem  ", "bold red"), (problem, "red")))


def _facts(found: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    files = ", ".join(found["files"])
    grid.add_row("checkpoint", Text(found["path"], "bold"))
    grid.add_row("files", f"{files} ({decimal(found['bytes'])})")
    grid.add_row("sha256", found["sha256"] or "not computed above 1 GiB")
    grid.add_row("config", found["config_path"] or "none")
    grid.add_row("layout", Text.assemble((found["layout"], "bold"), f": {found['reason']}"))
    grid.add_row("target", found["target"] or "not recorded: name it with --target")
    grid.add_row("parameters", f"{found['parameters']:,}")
    if found["position_limit"]:
        grid.add_row("positions", f"up to {found['position_limit']:,}")
    if found["vocab"]:
        grid.add_row("vocabulary", _vocabulary(found["vocab"]))
    return grid


def _vocabulary(vocab: Mapping[str, Any]) -> str:
    coverage = vocab.get("coverage")
    parts = [f"{vocab['draft_size']:,} draft ids"]
    if vocab["target_size"]:
        parts[0] += f" of {vocab['target_size']:,}" + (f" ({coverage:.1%})" if coverage is not None else "")
    parts.append(f"d2t read as {vocab['reading']}: {vocab['reason']}")
    if not vocab["increasing"]:
        parts.append("target ids do not rise")
    if vocab["repeated"]:
        parts.append(f"{vocab['repeated']:,} repeated")
    if vocab["t2d_agrees"] is not None:
        parts.append("t2d agrees" if vocab["t2d_agrees"] else f"t2d disagrees (it marks {vocab['t2d_count']:,})")
    return "; ".join(parts)


def _tensors(tensors: Sequence[Mapping[str, Any]], norms: Sequence[Mapping[str, Any]]) -> Table:
    counts = Counter(tensor["status"] for tensor in tensors)
    weights = {norm["name"]: norm for norm in norms}
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="bold",
        caption=", ".join(f"{count} {status}" for status, count in counts.items()),
        caption_justify="left",
    )
    table.add_column("tensor", overflow="fold")
    table.add_column("dtype", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("norm weights", no_wrap=True)
    for tensor in tensors:
        shape = tensor["shape"]
        table.add_row(
            tensor["name"],
            tensor["dtype"] or "-",
            " x ".join(map(str, shape)) if shape is not None else "-",
            Text(tensor["status"], _STATUS.get(tensor["status"], "")),
            _norm(weights.get(tensor["name"])),
        )
    return table


def _norm(norm: Mapping[str, Any] | None) -> Text:
    if norm is None:
        return Text()
    if norm["not_finite"]:
        return Text(f"{norm['not_finite']} NaN or infinite", "bold red")
    if norm["mean"] is None:
        return Text("empty", "bold red")
    if norm["all_ones"]:
        return Text("all ones", "yellow")
    return Text(f"mean {norm['mean']:.3g} ({norm['low']:.3g} to {norm['high']:.3g})", "dim")


def _engines(readings: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("switch", no_wrap=True)
    table.add_column("here", overflow="fold")
    for title in _ENGINES.values():
        table.add_column(title, overflow="fold")
    for reading in readings:
        cells = (
            Text("as here", "dim") if reading[engine] is None else Text(reading[engine], "yellow")
            for engine in _ENGINES
        )
        table.add_row(reading["switch"], Text(reading["here"], "bold"), *cells)
    return table
