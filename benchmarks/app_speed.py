"""How long a page of the app takes with 100 runs in the library and a run of a million rows, and whether any takes 2 seconds.

    python benchmarks/app_speed.py [--runs 100] [--rows 1000000] [--work FOLDER] [-o FILE]

Of the script alone, without a browser, in seconds of processor time: the first visit of every page, which computes its
figures (that of the overview, which comes first, also reads the run); a later visit, with figures kept; and the change of one
control on it. The runs are made up, and kept in FOLDER for the next time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from driftscope.app.library import PATHS, find_runs, signature  # noqa: E402
from driftscope.runs.run import Run  # noqa: E402
from tests.fake_run import Fake  # noqa: E402
from tests.rich_run import add_probes, write_rich_run  # noqa: E402

OPENING = "overview"
OTHERS = ("norms", "attention", "noise", "acceptance", "robustness", "compare", "tokens", "checkpoint", "new_run")
CONTROLS = {
    "overview": ("q-step", "3"),
    "norms": ("q-unit", "l2"),
    "attention": ("q-parts", "split"),
    "compare": ("q-step", "3"),
}
PROMPTS, DEPTH = 48, 8
LIMIT = 2.0
LARGE = "large"

Seconds = dict[str, dict[str, float]]
"""Page -> first, again, control."""


def main() -> int:
    """Print the times; exit code 1 if a page takes longer than the limit."""
    arguments = _arguments()
    work = Path(arguments.work or tempfile.mkdtemp(prefix="driftscope-app-"))
    library = make_library(work, arguments.runs, arguments.rows)
    os.environ[PATHS] = json.dumps([str(library)])
    os.environ["DRIFTSCOPE_CACHE"] = str(work / "cache")
    shutil.rmtree(work / "cache", ignore_errors=True)
    rows = len(Run.open(library / LARGE).table("anchors"))
    print(f"{arguments.runs} runs; {rows:,} rows of anchors in the large one; limit {LIMIT:g} s a page\n")
    seconds = measure()
    print(f"{'page':<12}{'first visit':>12}{'again':>9}{'control':>9}")
    for page, found in seconds.items():
        print(f"{page:<12}{found['first']:>12.2f}{found['again']:>9.2f}{found['control']:>9.2f}")
    slow = beyond(seconds)
    print(f"\nslower than {LIMIT:g} s: {', '.join(slow) or 'none'}")
    if arguments.json:
        told = {"runs": arguments.runs, "rows": rows, "limit": LIMIT, "seconds": seconds}
        Path(arguments.json).write_text(json.dumps(told, indent=2) + "\n")
    return int(bool(slow))


def beyond(seconds: Seconds) -> list[str]:
    """Pages that take too long."""
    return [page for page, found in seconds.items() if max(found.values()) > LIMIT]


def measure() -> Seconds:
    """Seconds by page, on the large run."""
    from streamlit.testing.v1 import AppTest

    import driftscope.app.main

    test = AppTest.from_file(str(driftscope.app.main.__file__), default_timeout=600)
    test.query_params["run"] = LARGE
    _warm(test)
    first = {OPENING: _timed(test.run)}
    # Lines of the table of runs are computed a few at a time, while one looks.
    passes = [_timed(test.run)]
    while any(value == "…" for value in test.dataframe[0].value["verdict"]):
        passes.append(_timed(test.run))
    print(
        f"the table of runs was whole after {sum(passes):.0f} s, in {len(passes)} passes of {max(passes):.2f} s at most\n"
    )
    for page in OTHERS:
        test.switch_page(f"views/{page}.py")
        first[page] = _timed(test.run)
    found = {}
    for page in (OPENING, *OTHERS):
        test.switch_page(f"views/{page}.py")
        again = _timed(test.run)
        problems = [element.value for element in (*test.error, *test.exception)]
        if problems:
            raise SystemExit(f"{page}: {problems[0]}")
        key, value = CONTROLS.get(page, ("", ""))
        if key:
            test.session_state[key] = value
        found[page] = {"first": first[page], "again": again, "control": _timed(test.run)}
    return found


def _warm(test: Any) -> None:
    """What every process does once, whatever it shows: imports."""
    test.query_params["run"] = "run-000"
    test.run()
    test.query_params["run"] = LARGE


def make_library(work: Path, runs: int, rows: int) -> Path:
    """`runs` run folders under `work`, one of them with `rows` rows of anchors; what is there already is kept."""
    library = work / f"runs-{runs}-{rows}"
    if library.is_dir():
        return library
    making = work / f"{library.name}.partial"
    shutil.rmtree(making, ignore_errors=True)
    anchors = math.ceil(rows / (PROMPTS * DEPTH * 2))
    large = Fake(prompts=PROMPTS, anchors=anchors, depth=DEPTH, heads=9)
    add_probes(write_rich_run(making / LARGE, large, LARGE, read_along=True), large)
    first = making / "run-000"
    write_rich_run(first, Fake(prompts=16, anchors=24, depth=DEPTH, heads=9), "drafter-000")
    for number in range(1, runs - 1):
        folder = making / f"run-{number:03d}"
        shutil.copytree(first, folder)
        record = json.loads((first / "run.json").read_text())
        record["checkpoint"]["path"] = f"drafters/drafter-{number:03d}"
        (folder / "run.json").write_text(json.dumps(record))
    assert len({signature(entry.folder) for entry in find_runs([making])}) == runs
    making.rename(library)
    return library


def _timed(step: Callable[[], Any]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="how many runs there are")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of anchors in the large one")
    parser.add_argument("--work", help="folder for the runs; a new one without it")
    parser.add_argument("-o", "--json", help="file for the times")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
