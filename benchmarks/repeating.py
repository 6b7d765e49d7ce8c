"""Whether `driftscope probe --deterministic` repeats: every probe, twice, in two processes, and every table of both.

That torch has deterministic kernels for all that runs shows here too: those that have none are an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftscope.runs.run import Run
from driftscope.runs.schema import tables as all_tables
from driftscope.target.prompts import Prompt

RUNS = ("first", "second")
PROGRAM = "import json, sys; from driftscope.api import probe; probe(**json.loads(sys.argv[1]))"


def repeated(options: dict[str, Any], prompts: Sequence[Prompt], seconds: float) -> dict[str, Any]:
    """`probe(deterministic=True, **options)` over the prompts. `rows` compared, and the names of the tables that `differ`.

    The processes run side by side. Raises RuntimeError where one fails, or takes longer than `seconds`.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file = place / "prompts.jsonl"
        file.write_text("".join(json.dumps(as_json(prompt)) + "\n" for prompt in prompts), encoding="utf-8")
        common = {"deterministic": True, "prompts": str(file), **options}
        # Captures too are made twice.
        given = [common | {"out": str(place / name), "cache_dir": str(place / f"cache of {name}")} for name in RUNS]
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(one)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            for one in given
        ]
        try:
            for process in running:
                _, said = process.communicate(timeout=seconds)
                if process.returncode:
                    raise RuntimeError(f"probe failed: {(said.decode(errors='replace').splitlines() or ['?'])[-1]}")
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"probe took longer than {seconds:.0f} s") from error
        finally:
            for process in running:
                process.kill()
                process.wait()
        first, second = (Run.open(place / name) for name in RUNS)
        rows, differ = compared(first, second)
        return {"probes": first.probes, "rows": rows, "differ": differ}


def compared(first: Run, second: Run) -> tuple[int, list[str]]:
    """Rows of all tables of the first run, and the names of the tables that are not the same in both, bit for bit."""
    tables = {name: (first.table(name), second.table(name)) for name in all_tables()}
    differ = [name for name, (one, other) in tables.items() if not one.equals(other)]
    return sum(len(one) for one, _ in tables.values()), differ


def as_json(prompt: Prompt) -> dict[str, Any]:
    """A prompt as a line of a prompt file."""
    about: dict[str, Any] = {"id": prompt.id, "category": prompt.category}
    if prompt.messages is None:
        return about | {"text": prompt.text}
    return about | {"messages": [{"role": m.role, "content": m.content} for m in prompt.messages]}
