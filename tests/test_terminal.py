from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from driftscope.figures import cost_figures, rejection_figures
from driftscope.show.step_table import bar, step_table
from driftscope.show.terminal import render, stdout_console
from tests.fake_cost import FakeCost, told
from tests.fake_summary import drifting, step, summary, without

ORIGINS = {
    "carry": {"source": "default", "detail": "EAGLE-3"},
    "fc_norm": {"source": "weights", "detail": "fc_norm.0.weight"},
    "rope.theta": {"source": "user", "detail": "--rope-theta"},
    "hidden_size": {"source": "config", "detail": "hidden_size"},
}


def printed(figures: dict, width: int = 120, encoding: str = "utf-8", **how: object) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    render(figures, Console(file=stream, width=width, highlight=False, markup=False, emoji=False), **how)  # type: ignore[arg-type]
    stream.flush()
    return raw.getvalue().decode(encoding)


def row(text: str, number: int) -> str:
    (line,) = re.findall(rf"^ +{number} +[^a-z]*$|^ +{number} .* of .*$", text, flags=re.M)
    return line


def test_the_verdict_comes_first() -> None:
    text = printed(drifting(norm_up=2))
    assert "eagle3.1 (specforge), drafting for SmolTarget" in text.splitlines()[0]
    assert "Drift starts at step 2" in text.splitlines()[1]


def test_a_row_per_step_with_the_onset_marked_where_it_happens() -> None:
    text = printed(drifting(norm_up=2, sink_down=3, self_up=5, displaced=4))
    assert "▲1.20" in row(text, 2)
    assert "▼0.30" in row(text, 3)
    assert "▲0.09" in row(text, 4)
    assert "▲+0.08" in row(text, 5)
    assert sum(text.count(mark) for mark in "▲▼") == 4 + 2  # the legend has both once
    assert "3.58" in row(text, 8)
    assert "▲" not in printed(summary())


def test_only_figures_from_the_onset_on_stand_out() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=120, force_terminal=True, color_system="standard", legacy_windows=False)
    figures = drifting(norm_up=3)
    console.print(step_table(figures["steps"], figures["onset"], console)[0])
    marked = re.findall(r"\x1b\[1;33m(\d\.\d\d)\x1b\[0m\x1b\[2m \d", stream.getvalue())
    assert marked == ["1.44", "1.73", "2.07", "2.49", "2.99", "3.58"]


def test_everything_is_there_at_120_columns() -> None:
    text = printed(drifting(norm_up=2), 120)
    for word in ("RMS", "growth", "matched", "sink", "prompt", "commit.", "self", "excess", "placed", "entropy"):
        assert word in text
    assert "1.19-1.21" in row(text, 2)
    assert "0.60 of 1,440" in row(text, 2)
    assert "█" in text


@pytest.mark.parametrize("width", [70, 80, 90, 100, 120, 160])
@pytest.mark.parametrize("virtual", [False, True])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_cut(width: int, virtual: bool) -> None:
    figures = drifting(norm_up=2, sink_down=2, self_up=2, displaced=2)
    if virtual:
        for each in figures["steps"]:
            each["mass"]["virtual"] = {"mean": 0.1, "low": 0.1, "high": 0.1}
    text = printed(figures, width, checkpoint=figures["checkpoint"] | {"origins": ORIGINS})
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_a_narrow_terminal_says_what_it_leaves_out() -> None:
    console = Console(width=80, file=io.StringIO())
    _, left_out = step_table(drifting()["steps"], {}, console)
    assert {"carry RMS", "entropy"} <= set(left_out)
    assert "Left out at this width: carry RMS, entropy" in " ".join(printed(drifting(), 80).split())
    assert step_table(drifting()["steps"], {}, console, width=200)[1] == []


def test_what_was_not_measured_has_no_column_or_a_dash() -> None:
    assert "nan" not in printed(without(drifting(norm_up=2), "entropy"))
    assert "entropy" not in printed(without(drifting(), "entropy"))
    figures = drifting()
    figures["steps"][7]["acceptance"] |= {"conditional": {"mean": float("nan"), "low": None, "high": None}}
    figures["steps"][7]["acceptance"]["conditional_denominator"] = 12
    assert row(printed(figures), 8).rstrip().endswith("- of 12")


def test_nothing_is_self_generated_at_step_1() -> None:
    figures = summary([step(1, excess=-0.0), step(2)])
    line = row(printed(figures), 1)
    assert " - " in line
    assert "+0.00" in line
    assert "-0.00" not in line


def test_an_ascii_terminal_gets_ascii() -> None:
    text = printed(drifting(norm_up=2, sink_down=3), encoding="ascii")
    assert "^1.20" in row(text, 2)
    assert "v0.30" in row(text, 3)
    assert "##" in text


@pytest.mark.parametrize(("rms", "shown"), [(0.0312, "0.0312"), (6.5, "6.50"), (13.52, "13.5"), (1455.0, "1455")])
def test_rms_of_any_size_is_readable(rms: float, shown: str) -> None:
    figures = without(drifting(), "carry_rms", value=rms)
    assert f" {shown} " in row(printed(figures, 140), 3)


def test_bars() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.0, 3) == "   "
    assert bar(1.7, 2) == "██"
    assert bar(1 / 16, 2) == "▏ "
    assert bar(0.5, 4, ascii_only=True) == "##.."


def test_acceptance_lengths_say_what_they_are() -> None:
    text = printed(drifting())
    assert "Acceptance length at 8 drafted tokens" in text
    assert re.search(r"served +1\.43 \(95% 1\.42 to 1\.44\)", text)
    assert re.search(r"with bonus token +2\.43", text)
    assert re.search(r"anchor mean +1\.31", text)
    assert re.search(r"by request +1\.51", text)
    assert "what vLLM logs" in text
    cut = drifting()
    cut["settings"] = {"depth": 8, "anchors": 32}
    assert "what vLLM logs" not in printed(cut)
    assert "of the first 32 positions of each text only, no engine's figure" in " ".join(printed(cut).split())
    figures = drifting()
    figures["acceptance_length"] = {"anchor_mean": {"mean": 1.3, "low": None, "high": None}}
    assert "not measured: the anchors of a prompt are not consecutive" in printed(figures)


def test_notes() -> None:
    counts = {"prompts": 48, "anchors": 2600, "loop": 200, "near_tie": 31}
    text = " ".join(printed(drifting(), counts=counts).split())
    assert "200 of 2,600 anchors (8%) lie where the target repeats itself" in text
    assert "31 anchors have a near tie" in text
    assert "prompts left out: 2 too long" in text
    assert "48 prompts; 2,400 anchors" in text
    assert "empty" not in text


def test_other_sinks_than_the_first_position_are_told() -> None:
    figures = drifting()
    figures["target"]["sinks"] = [0, 3]
    assert "sink positions: 0, 3" in printed(figures)
    figures["target"]["sinks"] = []
    assert "the target has no sink position" in printed(figures)


def test_switches_come_with_their_origins_and_warnings_last() -> None:
    figures = drifting()
    checkpoint = figures["checkpoint"] | {"origins": ORIGINS, "warnings": ["carry [pre] was assumed"]}
    text = printed(figures, checkpoint=checkpoint)
    assert re.search(r"carry +pre +default +EAGLE-3", text)
    assert re.search(r"fc_norm +yes +weights", text)
    assert re.search(r"rope\.theta +100000 +user", text)
    assert "1 more (1 from config)" in text
    assert text.rstrip().splitlines()[-1].split() == ["warning", "carry", "[pre]", "was", "assumed"]


def test_the_text_fed_table_has_no_onsets() -> None:
    figures = drifting(norm_up=2)
    figures["text_fed_steps"] = [step(1), step(2, growth=1.5)]
    text = printed(figures, feed="text")
    assert "each step embeds the text" in text
    assert "1.50" in row(text, 2)
    assert "▲" not in text


def test_a_run_without_steps_can_be_shown() -> None:
    figures = summary([])
    figures |= {"onset": {}, "acceptance_length": {}}
    assert "No verdict: nothing was measured yet." in printed(figures)


def with_cost(fake: FakeCost, depth: int = 4) -> dict:
    shard = told(fake)
    cost = cost_figures(shard["anchors"], resamples=50)
    return {**summary(), "drift_cost": cost, "rejections": rejection_figures(shard["rejections"], depth, resamples=50)}


@pytest.mark.parametrize(("width", "encoding"), [(120, "utf-8"), (80, "ascii")])
def test_the_cost_of_drift_has_its_paths_and_chains_their_ends(width: int, encoding: str) -> None:
    figures = with_cost(FakeCost(split=True))
    cost, ends = figures["drift_cost"], figures["rejections"]
    text = printed(figures, width=width, encoding=encoding)
    assert f"in accepted tokens of 4 drafted ({cost['anchors']} anchors)" in text
    for words, figure in (
        (rf"cost of drift, {cost['share']['mean']:.0%} of that", cost["cost"]),
        ("by the carried state", cost["state"]["shapley"]),
        (r"its size \(RMS\)", cost["state_rms"]["shapley"]),
    ):
        assert re.search(rf"{words} *\|? +{re.escape(format(figure['mean'], '+.3f'))}", text)
    assert f"{ends['rejected']} of {ends['anchors']} anchors are rejected within 4 steps" in text
    assert re.search(rf"wrong without drift too *\|? +{ends['drafter']['mean']:.0%}", text)


def test_a_block_is_told_its_price_and_a_run_without_the_probe_nothing() -> None:
    text = printed(with_cost(FakeCost(block=True)))
    assert "drafting in one block" in text
    assert "by the carried state" not in text
    assert "accepted tokens of" not in printed(summary())


def test_no_colour_when_asked_and_none_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    render(drifting(norm_up=2), stdout_console(stream))
    assert "\x1b" not in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) > 100
    for no_color, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        stream = io.StringIO()
        render(drifting(norm_up=2), Console(file=stream, width=120, force_terminal=True, color_system="standard"))
        assert (re.search(r"\x1b\[(?:\d;)?3\d", stream.getvalue()) is not None) == coloured
