"""Pages that mkdocs makes at build time from what the code says about itself: findings, probes, tables, prompt files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from driftscope.findings import Definition, definitions
from driftscope.findings import thresholds as limits
from driftscope.probes import DEFAULT, SHIPPED, Probe, available
from driftscope.probes.options import option_fields
from driftscope.runs.schema import Column
from driftscope.runs.schema import tables as all_tables

ROOT = Path(__file__).resolve().parent.parent
KINDS = {
    "drift": ("Drift (DS1xx)", "The drafter, run as it says, drifts. `driftscope probe` finds these; exit code 1."),
    "checkpoint": (
        "A checkpoint that is not run as it was trained (DS2xx)",
        "`driftscope audit` finds these; exit code 1. [How the audit decides](audit.md).",
    ),
    "note": ("Notes on the data (DS3xx)", "Nothing is wrong with the drafter; the exit code stays 0."),
    "engine": (
        "An engine that does not serve what the walk serves (DS4xx)",
        "`driftscope engine` finds these in what a server counts; exit code 1. [From an engine's counters](counters.md).",
    ),
}


def on_files(files: Any, config: Any) -> Any:
    """Hook of mkdocs: add the pages."""
    from mkdocs.structure.files import File

    for name, content in pages().items():
        files.append(File.generated(config, name, content=content))
    return files


def pages() -> dict[str, str]:
    """Path below docs/ -> Markdown."""
    return {
        "findings.md": findings_page(),
        "probes/index.md": probes_page(),
        "tables.md": tables_page(),
        "prompts.md": (ROOT / "probes" / "prompts" / "README.md").read_text(encoding="utf-8"),
    }


def findings_page() -> str:
    """A section a code, as `driftscope explain` prints it, with the default thresholds."""
    parts = [
        "# Findings",
        "A finding has a code, a sentence with its figures, and what to try. `driftscope explain DS101` prints any section"
        " of this page, with the thresholds in force where you call it. Thresholds are set in `[tool.driftscope.thresholds]`"
        " of the nearest `pyproject.toml`, or in a file given with `--thresholds`; each stands below with its default and"
        " the reason for it.",
        "A rule that could not be asked, because its probe did not run or because there are too few prompts, is listed as"
        " *not asked* with the reason. It is never counted as passed.",
    ]
    for kind, (title, about) in KINDS.items():
        parts += [f"## {title}", about]
        parts += [_finding(code) for code in definitions().values() if code.kind == kind]
    return "\n\n".join(parts) + "\n"


def _finding(code: Definition) -> str:
    parts = [f"### {code.code} {code.title} {{ #{code.code.lower()} }}", code.meaning]
    parts.append(f"**How it is measured.** {code.measured}")
    if code.thresholds:
        rows = (limits.definition(name) for name in code.thresholds)
        parts.append("**Beyond which.**")
        parts.append(_bullets(f"`{row.name}` = {row.default:g}: {row.meaning}. {linked(row.reason)}" for row in rows))
    parts.append(f"**What it does not say.** {code.limits}")
    if code.advice:
        parts += ["**What to try.**", _bullets(code.advice)]
    if code.kind == "checkpoint":
        parts.append("**Measured by** `driftscope audit CHECKPOINT`.")
    elif code.kind == "engine":
        parts.append("**Measured by** `driftscope engine RUN --metrics FILE`.")
    elif code.probes:
        parts.append(f"**Measured by** `driftscope probe CHECKPOINT --probes {','.join(code.probes)}`.")
    if code.sources:
        parts += ["**Sources.**", _bullets(linked(source) for source in code.sources)]
    return "\n\n".join(parts)


def probes_page() -> str:
    """The shipped probes with question, cost and options."""
    shared: set[str] = set()
    found = available()
    rows = ["| probe | question | runs | cost at 8 steps | options |", "|---|---|---|---|---|"]
    for name in SHIPPED:
        probe = found[name]
        runs = "by default" if name in DEFAULT else "on request"
        cost = "shared" if probe.shard in shared else f"{probe.cost(8):g}x"
        rows.append(f"| [{name}]({name}.md) | {probe.question} | {runs} | {cost} | {_options(probe)} |")
        shared.add(probe.shard)
    table = "\n".join(rows)
    return f"""# The probes

One file per question. `driftscope probe CHECKPOINT --probes norms,pin` chooses, `--probes all` runs every one, and
`driftscope probes` lists them with those of [plug-ins](../extending.md#a-probe). Cost is in chain passes: 1x is one pass of
clean chains over the anchors of a prompt. `shared` means that the rows are those of the probe above. Template and length also
let the target write texts of their own, which costs more than the chains do.

{table}

An option is set from Python: `driftscope.probe(..., probes="noise", options={{"noise.alphas": (0.2, 0.4)}})`. Rows that were
measured with other options are never mixed: the run says what differs.

## What every probe shares

The target continues each prompt greedily, once; every position of that continuation is an **anchor** *t* at which a chain of
drafted tokens could start. Row *i* pairs the embedding of token *i + 1* with the target's features of position *i*, and
predicts token *i + 2*. Step 1 of anchor *t* is row *t*; step *k* stands at row *t + k - 1*, embeds the token of step
*k - 1* and takes the state that was carried from it. All anchors of a prompt run step *k* in one pass, with the result that
one chain after another would have.

`feed` is the token that a step embeds. `drafted`, its own, is what serving does; acceptance is always of this feed. `text`,
the target's, keeps every step on the path at every anchor, so that what a step does can be compared between checkpoints.

Every figure is a mean over the anchors of a prompt and then over prompts (acceptance is a ratio of sums). Intervals are 95%
BCa bootstrap intervals that resample prompts; with fewer than 12 prompts there are none. Anchors where the target repeats
itself (a block of at most 32 tokens, three times) are left out of everything but the served length. What was not measured is
absent, never 0. All columns stand under [tables](../tables.md).
"""


def _options(probe: Probe) -> str:
    fields = option_fields(probe)
    return ", ".join(f"`{name}` = {_value(value)}" for name, value in fields.items()) or "none"


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(_value, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def tables_page() -> str:
    """The tables of a run folder."""
    parts = [
        "# The run folder and its tables",
        "`driftscope probe` leaves a folder: `run.json` (what was measured, how the checkpoint was read, findings) and"
        " `shards/PROBE/PROMPT/TABLE.parquet`. A shard is written whole, so a run that was stopped goes on with"
        " `--resume`, and several processes can fill one run. `driftscope.open_run(folder).table(name)` puts the shards"
        " together as a pandas DataFrame; any Parquet reader can as well.",
        "RMS = L2 / sqrt(d), in float32; d is `hidden_size` in `run.json`. Sums are float64 and stand beside their"
        " denominator. Steps count from 1; boundary *b* is the target's residual stream after *b* layers (0 the"
        " embeddings). An empty value was not measured. A column with braces is a family: `rms/{site}` is there once per"
        " site.",
    ]
    for table in all_tables().values():
        rows = "\n".join(_column(column) for column in table.columns)
        parts += [f"## {table.name}", f"| column | type | meaning |\n|---|---|---|\n{rows}"]
    return "\n\n".join(parts) + "\n"


def _column(column: Column) -> str:
    about = column.about
    if column.values is not None:
        about += f"{'; ' if about else ''}one of {', '.join(f'`{value}`' for value in column.values)}"
    kind = "string" if str(column.type).startswith("dictionary") else str(column.type)
    about = about.replace("|", "\\|")
    return f"| `{column.name}` | {kind}{', may be empty' if column.nullable else ''} | {about} |"


def _bullets(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines)


def linked(text: str) -> str:
    """`text` with arXiv numbers and GitHub threads as links."""
    text = re.sub(r"\barXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    text = re.sub(r"\b([\w.-]+/[\w.-]+) PR (\d+)", r"[\1 PR \2](https://github.com/\1/pull/\2)", text)
    return re.sub(r"\b([\w.-]+/[\w.-]+) issue (\d+)", r"[\1 issue \2](https://github.com/\1/issues/\2)", text)
