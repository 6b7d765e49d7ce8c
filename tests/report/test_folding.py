"""The report in Chromium: contents and answer first, sections folded, charts as wide as the column."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from driftscope.show.charts.theme import spec
from driftscope.show.report import render_report
from driftscope.show.report.column import COLUMN, inner, scaled, widened
from tests.rich_run import drawn, drifting


def test_what_is_between_axes_is_stretched_and_axes_are_not() -> None:
    view = {"vconcat": [{"hconcat": [{"width": 200}, {"width": 100}]}, {"width": 250, "layer": [{"mark": "line"}]}]}
    assert inner(view) == 300
    wide = widened(view, '<svg class="marks" width="400" height="9">')
    assert inner(wide) == pytest.approx(COLUMN - 100, abs=12)
    assert inner(scaled(view, 2)) == 600
    assert inner(view) == 300, "the given one stays"
    assert widened({"width": {"step": 20}}, '<svg width="400">') == {"width": {"step": 20}}


def test_every_chart_of_a_run_has_panels_to_stretch_or_goes_by_its_rows() -> None:
    held = {picture.name: inner(spec(picture.chart)) for picture in drawn()}
    assert held["overview"] > 300
    assert sum(width > 0 for width in held.values()) > len(held) / 2


@pytest.mark.slow
@pytest.mark.browser
def test_sections_are_folded_and_open_from_the_contents(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    file = tmp_path / "report.html"
    file.write_text(render_report([drifting()]), encoding="utf-8")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]")
        tops = [
            page.locator(name).bounding_box()["y"] for name in ("nav", ".headline >> nth=0", "details.part >> nth=0")
        ]
        assert tops == sorted(tops)
        assert page.locator("details.part[open]").count() == 1
        folded = page.evaluate("document.documentElement.scrollHeight")
        assert not page.locator("#norms figure").first.is_visible()
        page.click("nav a[href='#norms']")
        page.wait_for_selector("#norms[open] .live svg")
        assert page.evaluate("document.documentElement.scrollHeight") > folded
        widths = page.evaluate(
            "[...document.querySelectorAll('details[open] .live svg.marks')].map(one => one.getBoundingClientRect().width)"
        )
        assert max(widths) <= COLUMN + 1
        assert min(widths) > 0.8 * COLUMN
        assert complaints == []
        browser.close()
