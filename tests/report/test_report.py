"""The report: one file that asks nothing of a network, verdict first, every chart with its table."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftscope.cli import app
from driftscope.errors import RunError
from driftscope.findings.verdict import verdict
from driftscope.runs.run import Run
from driftscope.show.frames import labelled
from driftscope.show.report import render_report, write_images, write_report
from tests.fake_run import meta
from tests.rich_run import SMALL, calm, drawn, drifting, unmeasured

FETCHING = {"src", "href", "data", "action", "poster", "srcset", "background"}


class Page(HTMLParser):
    """Elements, what they would fetch, scripts and visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.styles: list[str] = []
        self.scripts: dict[str, str] = {}
        self.policies: list[str] = []
        self.charts: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.fetched += [value for name, value in given.items() if name in FETCHING]
        self.styles += [given["style"]] if "style" in given else []
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(given["content"])
        if "data-chart" in given:
            self.charts.append(given["data-chart"])
        self._script = given.get("id", f"script {len(self.scripts)}") if tag in ("script", "style") else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


@pytest.fixture(scope="module")
def html() -> str:
    return render_report([drifting()])


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_nothing_is_fetched(page: Page) -> None:
    assert page.fetched
    assert all(value.startswith(("data:", "#")) for value in page.fetched)
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    style = page.scripts["script 0"]
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = page.policies
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_the_verdict_comes_first_then_pictures_with_tables(html: str, page: Page) -> None:
    headline = verdict(drifting().summary()).headline
    assert headline in page.text
    contents, answer, pictures = (page.text.index(text) for text in ("In one picture", headline, "Top: RMS of"))
    assert contents < answer < pictures
    assert "DS101" in page.text
    expected = [picture.name for picture in drawn()]
    assert page.charts == expected
    assert page.tags.count("img") == len(expected)
    # One more for how the run was measured.
    assert page.tags.count("table") == len(expected) + 1


def test_charts_are_inlined_with_both_looks(page: Page) -> None:
    specs = {
        name.removeprefix("spec-"): json.loads(text) for name, text in page.scripts.items() if name.startswith("spec-")
    }
    assert list(specs) == page.charts
    assert all("vega-lite" in spec["$schema"] for spec in specs.values())
    themes = json.loads(page.scripts["themes"])
    assert themes["light"]["background"] != themes["dark"]["background"]
    stills = [value for value in page.fetched if value.startswith("data:")]
    for still in stills:
        assert base64.b64decode(still.partition(",")[2]).startswith(b"<svg")
    assert any("vegaEmbed" in text and len(text) > 500_000 for text in page.scripts.values())


def test_several_runs_are_compared() -> None:
    page = Page(render_report([drifting(), calm()]))
    assert "Between these two checkpoints" in page.text
    assert page.charts[:3] == ["overview", "compare-values", "compare-differences"]
    for label in labelled([drifting(), calm()]):
        assert label in page.text


def test_runs_that_do_not_compare_are_shown_all_the_same(tmp_path: Path) -> None:
    fields = meta(SMALL)
    fields["target"]["fingerprint"] = "another"
    fields["checkpoint"]["path"] = "drafters/<script>alert(1)</script>"
    other = Run.create(tmp_path / "other", **fields)
    text = render_report([drifting(), other], depth=2)
    assert "These runs cannot be compared" in text
    assert "<script>alert" not in text


def test_a_run_without_shards_says_so() -> None:
    page = Page(render_report([unmeasured()]))
    assert "nothing was measured yet" in page.text
    assert page.charts == []


def test_errors_name_the_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run at"):
        write_report([tmp_path / "missing"], tmp_path / "report.html")
    with pytest.raises(RunError, match="no run to report on"):
        write_report([], tmp_path / "report.html")
    (tmp_path / "taken").mkdir()
    with pytest.raises(RunError, match="choose another file with -o"):
        write_report([unmeasured()], tmp_path / "taken")


@pytest.mark.parametrize(("image_format", "start"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_every_chart_becomes_an_image(tmp_path: Path, image_format: str, start: bytes, few: Callable[[], None]) -> None:
    written = write_images([drifting()], tmp_path / "images", image_format=image_format, look="dark")  # type: ignore[arg-type]
    assert [file.name for file in written] == [f"growth.{image_format}", f"lengths.{image_format}"]
    assert all(file.read_bytes().startswith(start) for file in written)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pictures instead of all: drawing takes a while."""
    from driftscope.show import charts, frames
    from driftscope.show.gallery import figures_table
    from driftscope.show.gallery.picture import Picture

    def two(runs: list[Run], *_: object) -> list[Picture]:
        figures, lengths = frames.step_figures(runs), frames.served_lengths(runs)
        return [
            Picture("growth", "norms", "Growth", "x", charts.norms.growth(figures), figures_table(lengths, ["length"])),
            Picture(
                "lengths", "norms", "L", "x", charts.acceptance.lengths(lengths), figures_table(lengths, ["length"])
            ),
        ]

    monkeypatch.setattr("driftscope.show.report.write.pictures", two)


def test_the_command_writes_report_and_images(tmp_path: Path, few: None) -> None:
    out = tmp_path / "made" / "report.html"
    result = CliRunner().invoke(
        app, ["report", str(drifting().folder), "-o", str(out), "--images", str(tmp_path / "charts")]
    )
    assert result.exit_code == 0, result.output
    assert "opens offline" in result.output
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(file.name for file in (tmp_path / "charts").iterdir()) == ["growth.svg", "lengths.svg"]


def test_the_command_refuses_a_folder_that_is_no_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 2
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on PATH: apt-get install chromium")
def test_a_browser_without_a_network_draws_every_chart(tmp_path: Path, html: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=20000",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    result = subprocess.run(
        ["chromium", *flags, file.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    found = re.findall(r'<div class="live[^"]*"[^>]*data-chart="([^"]+)"[^>]*>.{0,200}?<svg', result.stdout, re.DOTALL)
    assert found == [picture.name for picture in drawn()]
    assert "Refused to" not in result.stderr
    assert not re.search(r"CONSOLE.*(error|Uncaught)", result.stderr, re.IGNORECASE)
