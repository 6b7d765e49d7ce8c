"""A pytest plugin: which tests run, what the last line says of the others, and the record of the nightly ones."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
VERSIONS = ("torch", "transformers", "numpy", "nnsight", "scipy")
NO_CASE = "no case: "
"""Begins the reason of a test that nothing is wanting for: the parameters do not go together."""
GET = {
    "Chromium": "Chromium: apt-get install chromium",
    "no target": "the example target: make build/target/config.json",
    "no CUDA": "a CUDA device",
}
"""What the reason of a skipped test holds -> what it waits for, and how to get it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", type=Path, metavar="FILE", help="write what the nightly tests of this session gave to FILE"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave nightly tests out unless they are asked for by marker or by name; skip CUDA tests without a device."""
    named = any("::" in argument for argument in config.args)
    if "nightly" not in config.option.markexpr and not named:
        left = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Where CI is set there is a browser, so that a test without one has failed."""
    report = yield
    if report.skipped and os.environ.get("CI") and item.get_closest_marker("browser"):
        report.outcome, report.longrepr = "failed", f"skipped, and CI is set: {reason_of(report)}"
    return report


def reason_of(report: Any) -> str:
    """Why a test was skipped."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")


def missing(skipped: list[Any]) -> list[str]:
    """One entry for each thing that tests were skipped for, with their number."""
    counts: dict[str, int] = {}
    for report in skipped:
        reason = reason_of(report)
        if reason.startswith(NO_CASE):
            continue
        wants = next((how for word, how in GET.items() if word in reason), reason)
        counts[wants] = counts.get(wants, 0) + 1
    return [f"{count} for want of {wants}" for wants, count in counts.items()]


# Last of all: the line is what a person sees at the end of `make test`.
@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    told = missing(reporter.stats.get("skipped", []))
    if told:
        reporter.write_line(f"Not run: {'; '.join(told)}.")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    path = config.getoption("--record")
    if path is not None and not hasattr(config, "workerinput"):
        path.write_text(json.dumps(record(terminalreporter.stats), indent=1) + "\n", encoding="utf-8")
        terminalreporter.write_line(f"The record is in {path}.")


def record(stats: dict[str, list[Any]]) -> dict[str, Any]:
    """Outcomes with when and with what they were got. Tests that did not run are absent."""
    outcomes = {
        report.nodeid: {"outcome": report.outcome, "seconds": round(report.duration, 1)}
        for kind in ("passed", "failed")
        for report in stats.get(kind, [])
        if report.when == "call"
    }
    for kind, when in (("error", "error"), ("skipped", "skipped")):
        outcomes |= {report.nodeid: {"outcome": when} for report in stats.get(kind, [])}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip() or None,
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "capability": torch.backends.cpu.get_cpu_capability(),
        },
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        "seeds": SEEDS,
        "tests": dict(sorted(outcomes.items())),
    }


SEEDS = {"random head, random embedding": 6, "draft vocabulary of another run": 5}
"""Of the faults that are drawn at random (benchmarks/twins.py); everything else is greedy and draws nothing."""


def cpu_name() -> str:
    """As the machine calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
