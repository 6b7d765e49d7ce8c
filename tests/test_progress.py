from __future__ import annotations

import io

import pytest
from rich.console import Console

from driftscope import progress
from driftscope.progress import LineProgress, NullProgress, RichProgress, stderr_progress


def test_lines_for_start_and_end_of_a_stage() -> None:
    stream = io.StringIO()
    with LineProgress(Console(file=stream, width=40)) as report:
        report.stage("capturing", 3)
        for _ in range(3):
            report.advance(note="a[b]")
        report.message("a long message that no narrow console may break [x]")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "capturing: 0/3"
    assert lines[1].startswith("capturing: 3/3 in ")
    assert lines[2] == "a long message that no narrow console may break [x]"


def test_a_slow_stage_gets_lines_between(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    report = LineProgress(Console(file=stream))
    report.stage("probing", 6)
    for number in range(6):
        report.advance(note=f"p{number}")
    assert stream.getvalue().splitlines() == [
        "probing: 0/6",
        "probing: 2/6 (p1)",
        "probing: 4/6 (p3)",
        "probing: 6/6 in 60 s",
    ]


def test_bars_on_a_terminal_keep_each_stage() -> None:
    stream = io.StringIO()
    with RichProgress(Console(file=stream, force_terminal=True, width=100)) as report:
        report.advance()
        report.stage("capturing", 2)
        report.advance(2, "chat-01")
        report.stage("probing [red]", 5)
        report.advance()
        report.message("left out: 2 [empty]")
    text = stream.getvalue()
    assert "2/2" in text
    assert "1/5" in text
    assert "probing [red]" in text
    assert "left out: 2 [empty]" in text


def test_stderr_that_is_no_terminal_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with stderr_progress() as report:
        assert isinstance(report, LineProgress)
        report.message("hello")
    captured = capsys.readouterr()
    assert captured.err == "hello\n"
    assert captured.out == ""


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with NullProgress() as report:
        report.stage("x", 1)
        report.advance()
        report.message("y")
    captured = capsys.readouterr()
    assert captured.err + captured.out == ""
