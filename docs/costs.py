"""The page on cost, made of what the programs in benchmarks/ measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
WAYS = {
    "eager": "a chain after the other, whole sequence, full matrices",
    "cached": "a chain after the other, one row over a KV cache",
    "ours": "driftscope",
}

READERS = {
    "checkpoint": "a drafter's checkpoint",
    "capture": "the cache of captures, which drops what is damaged",
    "folder": "a folder for `--capture`",
    "dump": "an engine's dump for `--from`",
    "prompts": "`--prompts`",
    "run": "a run, and `show`",
    "report": "`compare` and `report`",
}

BARE = 1.15
"""Times the bare chain that recording was meant to cost."""
LEAST = 16
"""MiB below which memory that was reserved before hides how it grows."""


def on_files(files: Any, config: Any) -> Any:
    """Hook of mkdocs: add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "cost.md", content=cost_page()))
    return files


def result(name: str) -> dict[str, Any] | None:
    """What a program wrote, or None where it has not run."""
    file = RESULTS / f"{name}.json"
    if not file.is_file():
        return None
    made: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return made


def cost_page() -> str:
    """A section a result; what was not measured is not there."""
    parts = [
        "# What it costs",
        "Measured with `python benchmarks/all.py` on the example pair (SmolLM2-135M-Instruct and its EAGLE 3.1 drafter) on a"
        " CPU, in float32. CPU seconds are over all threads. The numbers of the ways that are compared agree before a time is"
        " taken.",
    ]
    makers = {
        "chain": _chain,
        "capture_cost": _capture,
        "growth": _growth,
        "longest": _longest,
        "arithmetic": _arithmetic,
        "half_precision": _half_precision,
        "drift_cost": _drift_cost,
        "training_cost": _training,
        "startup": _startup,
        "app_speed": _dashboard,
        "fuzz": _fuzz,
        "soak": _soak,
    }
    for name, make in makers.items():
        found = result(name)
        if found is not None:
            parts += make(found)
    parts += [
        "## On a CUDA device",
        "`benchmarks/chain.py`, `growth.py` and `capture_cost.py` take `--device cuda`; wall seconds count"
        " there, and memory is the"
        " device's. `python benchmarks/cuda_check.py` tells in under six minutes whether a machine measures what"
        " a CPU measures in"
        " float32, also with target and drafter on different devices, how bfloat16 and float16 move growth and"
        " acceptance, that"
        " nothing in a chain waits for the device, that `--deterministic` repeats bit for bit, and what all that costs, in"
        " reduced sizes. No figure of a CUDA device is on this page.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _chain(found: dict[str, Any]) -> list[str]:
    settings = found["settings"]
    rows = []
    for way, about in WAYS.items():
        # Results before the batched script had only the one that continues one prompt at a time.
        batched = "cold_singly" in found
        warm, cold = found["warm"][way], found["cold"][way] if batched or way == "ours" else None
        singly = (found["cold_singly"] if batched else found["cold"]).get(way)
        ours_warm, ours_cold = found["warm"]["ours"], found["cold"]["ours"]
        rows.append(
            [
                about,
                f"{warm['cpu']:.1f}",
                f"{warm['cpu'] / ours_warm['cpu']:.1f}x",
                *([f"{cold['cpu']:.1f}", f"{cold['cpu'] / ours_cold['cpu']:.1f}x"] if cold else ["not measured", ""]),
                *([f"{singly['cpu']:.1f}", f"{singly['cpu'] / ours_cold['cpu']:.1f}x"] if singly else ["", ""]),
                f"{warm['peak']:.0f}",
            ]
        )
    seen = found["recording"]
    return [
        "## Against a loop over the anchors",
        f"{found['prompts']} prompts, {found['chains']} chains of {settings['depth']} steps, {found['mean_text_length']:.0f}"
        f" tokens a text, {settings['threads']} thread. Warm: the target's states are there already, as they are for every"
        " drafter after the first. Cold: getting them is included, with transformers' `generate` over the same"
        " batches as ours and"
        " one forward a text; *singly* is the same for a script that continues one prompt at a time.",
        _table(
            ["way", "warm, CPU s", "warm", "cold, CPU s", "cold", "cold singly, CPU s", "cold singly", "peak MiB"], rows
        ),
        f"Recording every site costs {seen['nnsight_ratio']:.2f} times the bare chain ({BARE:g} was aimed at)."
        + (
            f" nnsight that hands out every site and reduces nothing already costs {seen['nothing_ratio']:.2f} times;"
            if "nothing_ratio" in seen
            else ""
        )
        + " plain forward hooks with all"
        f" reductions cost {seen['hooks_ratio']:.2f} times. At this width the rest cannot be had: a step reads"
        " every site once more, makes"
        " one softmax over the draft vocabulary and some 150 operations on tensors of a few thousand numbers,"
        " where handing out an"
        " operation costs as much as the work, while the chain itself is a dozen products. What is bounded is"
        " the share: it falls with"
        " the width, see below.",
    ]


def _capture(found: dict[str, Any]) -> list[str]:
    return [
        "## The target's side",
        f"Continuation and recording of {found['prompts']} prompts ({found['tokens']} tokens) take"
        f" {found['cpu_ratio']:.2f} times the CPU time of transformers' `generate` and one plain forward over the"
        " same texts.",
    ]


def _drift_cost(found: dict[str, Any]) -> list[str]:
    names = {
        "default": "16 anchors",
        "split_state": "`cost.split_state=true`",
        "all_anchors": "`cost.anchors=all`",
    }
    seconds, worth = found["seconds_per_prompt"], found["clean_chains"]
    rows = [[about, f"{seconds[name]:.2f}", f"{worth[name]:.1f}"] for name, about in names.items()]
    return [
        "## The probe cost",
        f"{found['prompts']} prompts of {found['anchors']:.0f} anchors, {found['depth']} steps,"
        f" {found['threads']} thread. One"
        f" set of undisturbed chains, all sites read, takes {seconds['clean']:.2f} CPU seconds a prompt; the goal is under"
        f" {found['goal']:g} of them.",
        _table(["patched chains of", "CPU s a prompt", "clean chains' worth"], rows),
    ]


def _growth(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, grown in found["grown"].items():
        sizes, cpu, peak = grown["sizes"], grown["cpu"], grown["peak_mib"]
        told = [grown[f"{kind}_exponent"] for kind in ("cpu", "peak")]
        if min(peak[len(peak) // 2 :]) < LEAST:
            told[1] = None
        rows.append(
            [
                name,
                f"{sizes[0]} to {sizes[-1]}",
                f"{cpu[0]:.2f} to {cpu[-1]:.2f}",
                *(("" if told[0] is None else f"{told[0]:.2f}"), f"{peak[0]:.0f} to {peak[-1]:.0f}"),
                "" if told[1] is None else f"{told[1]:.2f}",
            ]
        )
    base, limit, recording = found["base"], found["limit"], found["recording"]
    return [
        "## How it grows",
        "Prefix pass and observed chains of one text, one size varied at a time from"
        f" {base['text']} tokens, {base['anchors']} anchors, {base['depth']} steps, {base['heads']} heads. The"
        " exponent is that"
        " of a power law through the larger half of the points.",
        _table(["varied", "over", "CPU s", "exponent", "peak MiB above the drafter", "exponent"], rows),
        "Observing every site reduces what passes: work that grows with the width, while the chains' grows with its square. "
        + ", ".join(f"{64 * int(heads)} wide: {ratio:.2f}x" for heads, ratio in recording.items())
        + " the bare chains.",
        f"The chains do {limit['chain_gflop_per_second']:.0f} GFLOP a CPU second, {limit['share']:.0%} of what one large"
        f" matrix product does there ({limit['product_gflop_per_second']:.0f}); the rest goes into attention,"
        " norms and softmax,"
        " which move more than they multiply. Scores of all rows with all keys are held"
        " until a chunk is full, a sixteenth of what the device has free, at most 256 MiB on a CPU. No figure"
        " depends on the chunks.",
    ]


def _longest(found: dict[str, Any]) -> list[str]:
    capture, probe = found["capture"], found["probe"]
    return [
        "## At the longest text",
        f"One text of {found['tokens']} tokens, all that the target's context holds, {found['chains']} chains of"
        f" {found['depth']} steps with"
        f" every site read: {capture['cpu']:.0f} CPU s and {capture['peak']:.0f} MiB above the loaded pair for"
        " the target's continuation"
        f" and recording, then {probe['cpu']:.1f} CPU s and {probe['peak']:.0f} MiB for each drafter (prefix pass"
        " and chains).",
    ]


def _arithmetic(found: dict[str, Any]) -> list[str]:
    parts = [
        "## Packed weights, and bfloat16",
        "Products of the linear layers with weights kept in the blocked layout of torch's oneDNN (packed, a copy"
        " as large as they are), and"
        " without; in float32 and bfloat16, on the CPU as it is and with the instructions of a smaller one. A"
        " CPU without instructions"
        " for bfloat16 multiplies it in float32; *as stored* is what torch does by itself. Chains over states"
        " that are there, and a capture;"
        f" {found['settings']['prompts']} prompts.",
    ]
    rows = []
    for seen in found["capabilities"].values():
        for way, warm in seen["warm"].items():
            cold = seen["cold"].get(way)
            base = {state: seen[state]["float32, packed"] for state in ("warm", "cold")}
            rows.append(
                [
                    seen["vectors"],
                    way,
                    f"{warm:.2f}",
                    f"{warm / base['warm']:.2f}x",
                    *(["", ""] if cold is None else [f"{cold:.1f}", f"{cold / base['cold']:.2f}x"]),
                ]
            )
    own = found["capabilities"]["own"]
    parts.append(_table(["instructions", "products", "chains, CPU s", "chains", "capture, CPU s", "capture"], rows))
    parts.append(
        f"Products take {own['product_share']:.0%} of the chains' time in float32, so that products without any"
        " cost would make chains"
        f" {1 / (1 - own['product_share']):.1f} times as fast at most: attention, norms, softmax and recording"
        " are in float32 whatever the"
        " dtype. "
        + (
            f"Measured with {', '.join(own['bfloat16_instructions'])}."
            if own["bfloat16_instructions"]
            else "On CPUs with bfloat16 instructions (AMX, AVX512-BF16) weights are packed in bfloat16; how fast that is was not"
            " measured, for want of such a CPU."
        )
    )
    return parts


def _half_precision(found: dict[str, Any]) -> list[str]:
    names = {"float32": "float32", "bfloat16": "bfloat16", "bfloat16_same_texts": "bfloat16, float32's texts"}
    rows = [
        [
            drafter,
            about,
            *(f"{told[name][figure]:.3f}" for figure in ("growth", "accepted", "served", "self_generated")),
            f"{told[name]['near_ties']:.2%}",
        ]
        for drafter, told in found["drafters"].items()
        for name, about in names.items()
    ]
    texts = "; ".join(
        f"{drafter}: {told['same_texts']} of {told['prompts']} texts are the same, and they part after"
        f" {told['tokens_before_they_part']:.0f} tokens on average"
        for drafter, told in found["drafters"].items()
    )
    return [
        "## What bfloat16 changes in the figures",
        f"{found['settings']['prompts']} prompts, {found['settings']['depth']} steps. The target writes other"
        " texts in bfloat16 where"
        f" two tokens are nearly tied ({texts}). The third row of each drafter reads the texts that float32 wrote, so that"
        " what differs there is arithmetic alone. A near tie is a token of the text that the recording forward"
        " does not put first.",
        _table(
            ["drafter", "numbers", "growth", "accepted, all anchors", "served", "self-generated mass", "near ties"],
            rows,
        ),
        "The default on a CPU is float32. Compare runs of one dtype only.",
    ]


def _training(found: dict[str, Any]) -> list[str]:
    every, less = found["all"], found["without_noise"]
    return [
        "## While training",
        f"One `drift_metrics` on {found['prompts']} prompts of at most {found['anchors']} anchors: {every['wall']:.1f} s with"
        f" {found['threads']} thread ({every['cpu']:.1f} CPU s), {less['wall']:.1f} s without noise.",
    ]


def _startup(found: dict[str, Any]) -> list[str]:
    shown, first = found["help"], found["first_figure"]
    return [
        "## Until something is on the screen",
        f"`driftscope --help`: {shown['wall']:.2f} s. `driftscope probe` on a warm capture: the first prompt's figures"
        f" {first['wall']:.1f} s after the drafter is loaded.",
    ]


def _dashboard(found: dict[str, Any]) -> list[str]:
    seconds = dict(found["seconds"])
    opening = seconds["overview"]["first"]
    first = {page: told["first"] for page, told in seconds.items() if page != "overview"}
    slowest = max(first, key=first.__getitem__)
    again, control = (max(told[what] for told in seconds.values()) for what in ("again", "control"))
    return [
        "## The dashboard",
        f"With {found['runs']} runs in the library, of the script without a browser: opening a run of"
        f" {found['rows'] / 1e6:.2f} million rows, reading included, takes {opening:.1f} CPU s; of the other"
        f" {len(first)} pages"
        f" the first visit takes at most {first[slowest]:.1f} ({slowest}), a later one {again:.1f}, and the"
        " change of a control"
        f" {control:.1f}. What was read and computed in between is kept in memory; nothing was on disk before.",
    ]


def _fuzz(found: dict[str, Any]) -> list[str]:
    by_reader: dict[str, dict[str, int]] = {}
    for kind, count in found["by_kind"].items():
        reader, _, outcome = kind.split(" / ")
        told = by_reader.setdefault(reader, {})
        told[outcome] = told.get(outcome, 0) + count
    rows = [
        [about, *(f"{told.get(outcome, 0):,}" for outcome in ("read", "refused"))]
        for name, about in READERS.items()
        if (told := by_reader.get(name))
    ]
    share, slowest = found["largest_share_of_allowed_memory"], found["longest_cpu_seconds"]
    return [
        "## What it withstands",
        f"`python benchmarks/fuzz.py` hands the readers {found['inputs']:,} files that lie: sound ones that were"
        " truncated, whose"
        " bits were flipped, or that were made to deceive, such as headers that claim terabytes, pickles with code in them,"
        " archives and pages that inflate, deep JSON, links to devices, and numbers that no program writes. A"
        " reader may read a"
        " file or refuse it in one line; it may not crash, hang, run what is in it, leave the folder, or take"
        " more memory than"
        f" twice the file's size and 100 MiB. Faults: {len(found['problems'])}. The most memory,"
        f" {share['value']:.0%} of what is"
        f" allowed, was asked by {_kind(share)}; the longest time, {slowest['value']:.1f} CPU s, by {_kind(slowest)}.",
        _table(["reader of", "read", "refused"], rows),
    ]


def _kind(found: dict[str, Any]) -> str:
    reader, _, kind = str(found["kind"]).partition(" / ")
    return f"{READERS[reader]} ({kind})"


def _soak(found: dict[str, Any]) -> list[str]:
    stages = ", ".join(f"{count} while {stage}" for stage, count in found["killed_while"].items())
    rows = sum(found["rows"].values())
    same = "are not those" if found["problems"] else "are, bit for bit, those"
    return [
        f"`python benchmarks/soak.py` probes {found['prompts']:,} prompts with a tiny pair, killed with SIGKILL"
        f" {found['kills']} times ({stages}) and resumed each time: its {rows:,} rows and {found['captures']:,}"
        f" captures {same}"
        " of a run that was left alone.",
    ]
