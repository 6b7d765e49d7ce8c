"""The app end to end in a headless Chromium: every page is drawn, follows run and step, and complains about nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from driftscope.runs.run import Run
from tests.app.conftest import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 120
TITLES = {"noise": "Noise and pin", "probes": "Other probes", "new_run": "New run"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium; skipped where it is not installed, which tests/kinds.py makes a failure where CI is set."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install driftscope[dev]"
    )
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(library: Path, measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`driftscope app` on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    environment = {**os.environ, "DRIFTSCOPE_CACHE": str(folder / "cache")}
    environment.pop("DISPLAY", None)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("driftscope")),
                "app",
                str(library),
                str(measured),
                "--port",
                str(port),
            ],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
        )
        try:
            _answers(f"http://127.0.0.1:{port}/_stcore/health", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that collects what the console says and where requests go."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(SECONDS * 1000)
    opened = context.new_page()
    opened.complaints = []
    opened.hosts = set()
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on("console", lambda message: _heard(opened.complaints, message))
    opened.on("request", lambda request: opened.hosts.add(urlsplit(request.url).hostname))
    yield opened
    context.close()


def _heard(complaints: list[str], message: Any) -> None:
    """Errors, but for those of Streamlit's search for its own root below the address of a page."""
    if message.type == "error" and "/_stcore/" not in message.location.get("url", ""):
        complaints.append(message.text)


def _answers(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            if urlopen(url, timeout=5).status == 200:
                return
        except URLError:
            time.sleep(0.2)
    raise AssertionError(f"the app did not start, exit code {server.poll()}")


def settled(page: Any) -> None:
    """The script has run and charts are drawn."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.wait_for_function("document.querySelectorAll('[data-testid=stSkeleton]').length === 0")


def points(page: Any) -> list[dict[str, Any]]:
    """The data behind every point that is drawn, with its place in pixels as `x` and `y`."""
    page.wait_for_function(
        "[...document.querySelectorAll('.stVegaLiteChart')].every(chart => chart.querySelector('canvas, svg'))"
    )
    found: list[dict[str, Any]] = page.evaluate(
        """() => [...document.querySelectorAll('.stVegaLiteChart .mark-symbol path')]
             .filter(mark => mark.__data__ && mark.__data__.datum && mark.__data__.datum.mean !== undefined)
             .map(mark => ({...JSON.parse(JSON.stringify(mark.__data__.datum)), x: mark.__data__.x, y: mark.__data__.y}))"""
    )
    return found


def metrics(page: Any) -> dict[str, str]:
    """Label -> value of every figure in numbers."""
    found: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('[data-testid=stMetric]')].map(part => [
             part.querySelector('[data-testid=stMetricLabel]').innerText.trim(),
             part.querySelector('[data-testid=stMetricValue]').innerText.trim()]))"""
    )
    return found


def visit(page: Any, name: str) -> None:
    """Follow the link in the navigation."""
    page.click(f"[data-testid=stSidebarNav] a[href$='/{name}'], [data-testid=stSidebarNav] a[href='{name}']")
    # Where there is nothing to keep, an address has no parameters.
    page.wait_for_url(f"**/{name}*")
    settled(page)


def query(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def choose(page: Any, label: str, option: str) -> None:
    """An option of a select box or segmented control."""
    box = page.locator(f"[data-testid=stSelectbox]:has-text('{label}')")
    if box.count():
        box.first.click()
        page.locator(f"[role=option]:has-text('{option}')").first.click()
    else:
        group = page.locator(f"[data-testid=stButtonGroup]:has-text('{label}')").first
        group.get_by_text(option, exact=True).click()


def test_every_page_is_drawn_and_complains_about_nothing(page: Any, address: str) -> None:
    page.goto(f"{address}/?run=drifting")
    settled(page)
    page.wait_for_function("document.title.includes('driftscope') || document.title.length > 0")
    for name in PAGES[1:]:
        visit(page, name)
        heading = page.locator("h1").first.inner_text()
        assert heading == TITLES.get(name, name.replace("_", " ").capitalize())
        assert page.locator("[data-testid=stException]").count() == 0, name
        errors = page.locator("[data-testid=stAlertContentError]")
        assert errors.count() == 0, (name, errors.all_inner_texts())
    assert page.complaints == []
    assert page.hosts <= {"127.0.0.1", None, ""}, "something was asked of a network"


def test_charts_and_figures_agree_with_the_run_and_follow_run_and_step(page: Any, address: str, library: Path) -> None:
    page.goto(f"{address}/?run=drifting")
    settled(page)
    for name in ("drifting", "steady"):
        if name != "drifting":
            choose(page, "Run", name)
            page.wait_for_function(f"new URLSearchParams(location.search).get('run') === '{name}'")
            page.wait_for_function(f"document.querySelector('h1').innerText === '{name}'")
            settled(page)
        steps = Run.open(library / name).summary()["steps"]
        growth = [point for point in points(page) if point.get("label") == "over step 1"]
        assert [point["mean"] for point in growth] == pytest.approx([step["growth"]["mean"] for step in steps])
        assert [point["count"] for point in growth] == [step["acceptance"]["anchors"] for step in steps]
        # On a log axis, what is above is larger.
        order = sorted(growth, key=lambda point: point["mean"])
        assert [point["y"] for point in order] == sorted((point["y"] for point in growth), reverse=True)
        sink = [point for point in points(page) if point.get("bucket") == "sink" and point["mean"] >= 0][: len(steps)]
        assert [point["mean"] for point in sink] == pytest.approx([step["mass"]["sink"]["mean"] for step in steps])
        for number in (3, 4):
            choose(page, "Figures at step", str(number))
            page.wait_for_function(f"new URLSearchParams(location.search).get('step') === '{number}'")
            settled(page)
            wanted = f"{steps[number - 1]['growth']['mean']:.2f}x"
            page.wait_for_function(
                f"[...document.querySelectorAll('[data-testid=stMetricValue]')].some(part => part.innerText.trim() === '{wanted}')"
            )
            shown = metrics(page)
            assert shown["carry growth"] == wanted
            assert shown["sink mass"] == f"{steps[number - 1]['mass']['sink']['mean']:.3f}"
    assert page.complaints == []


def test_a_reload_keeps_the_view(page: Any, address: str) -> None:
    page.goto(f"{address}/?run=steady")
    settled(page)
    visit(page, "norms")
    choose(page, "Unit", "L2")
    page.wait_for_function("new URLSearchParams(location.search).get('unit') === 'l2'")
    settled(page)
    before = points(page)
    page.reload()
    settled(page)
    page.wait_for_selector(".stVegaLiteChart svg")
    assert query(page)["run"] == "steady"
    assert query(page)["unit"] == "l2"
    after = points(page)
    assert [point["mean"] for point in after] == [point["mean"] for point in before]


def test_a_token_is_clicked_and_the_chain_starts_there(page: Any, address: str, measured: Path) -> None:
    attended = Run.open(measured / "tiny").table("attended")
    first = attended.iloc[0]
    page.goto(f"{address}/tokens?run=tiny&prompt={first['prompt']}&anchor={first['anchor']}&step=2")
    settled(page)
    later = int(first["anchor"]) + 1
    page.evaluate("window.sameDocument = true")
    page.locator(f".ribbon [data-anchor='{later}']").click()
    page.wait_for_function(f"new URLSearchParams(location.search).get('anchor') === '{later}'")
    settled(page)
    assert query(page)["run"] == "tiny"
    assert page.evaluate("window.sameDocument"), "the page was loaded again"
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.complaints == []


def test_a_thumbnail_selects_its_head_and_leads_to_a_prompt(page: Any, address: str) -> None:
    page.goto(f"{address}/attention?run=tiny")
    settled(page)
    page.wait_for_selector(".heads button")
    other = page.locator(".heads button[aria-pressed=false]").first
    name = other.get_attribute("data-head")
    other.click()
    page.wait_for_function(f"new URLSearchParams(location.search).get('head') === '{name}'")
    page.wait_for_selector(f".heads button[data-head='{name}'][aria-pressed=true]")
    page.locator("[class*=st-key-head-prompts] a").first.click()
    page.wait_for_url("**/tokens*")
    settled(page)
    assert page.locator(".ribbon .start").count() > 0
    assert {"run", "prompt", "step"} <= set(query(page))
    assert page.locator("[data-testid=stAlertContentWarning]").count() == 0
    assert page.complaints == []


def test_a_click_into_a_panel_chooses_the_step(page: Any, address: str) -> None:
    page.goto(f"{address}/compare?runs=drifting,steady&step=4")
    settled(page)
    page.wait_for_selector(".stVegaLiteChart .mark-symbol path")
    target = page.locator("xpath=//*[name()='path'][starts-with(@aria-label, 'step: 2;')]").first
    target.click(force=True)
    page.wait_for_function("new URLSearchParams(location.search).get('step') === '2'")
    settled(page)
    assert page.complaints == []


def test_a_chart_is_downloaded_as_image_and_as_data(page: Any, address: str) -> None:
    page.goto(f"{address}/acceptance?run=drifting")
    settled(page)
    page.locator("[data-testid=stPopover] button:has-text('Download')").first.click()
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"figure,run,")):
        with page.expect_download() as waiting:
            page.locator(f"[data-testid=stDownloadButton] button:has-text('{kind}')").first.click()
        path = waiting.value.path()
        assert waiting.value.suggested_filename == f"acceptance.{kind.lower()}"
        assert Path(path).read_bytes().startswith(start)


def test_the_first_page_has_a_name_in_the_address_too(page: Any, address: str) -> None:
    page.goto(f"{address}/overview?run=steady&step=2")
    settled(page)
    page.wait_for_function("document.querySelector('h1')?.innerText === 'steady'")
    assert page.get_by_text("Page not found").count() == 0
    assert query(page) == {"run": "steady", "step": "2"}


@pytest.mark.parametrize("width", [1280, 1920])
def test_charts_fill_their_cards_and_do_not_stick_out(page: Any, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    for name in (
        "norms?run=drifting",
        "attention?run=drifting",
        "noise?run=drifting",
        "robustness?run=drifting",
        "compare?runs=drifting,steady",
    ):
        page.goto(f"{address}/{name}")
        settled(page)
        points(page)
        page.wait_for_timeout(300)
        found = page.evaluate(
            """() => [...document.querySelectorAll('[class*=st-key-panels]')].map(part => {
                 const room = part.getBoundingClientRect();
                 const drawn = [...part.querySelectorAll('.stVegaLiteChart svg.marks')].map(svg => svg.getBoundingClientRect());
                 return {name: part.className, room: room.width, inside: drawn.every(
                   box => box.left >= room.left - 1 && box.right <= room.right + 1),
                   share: (Math.max(...drawn.map(box => box.right)) - room.left) / Math.min(room.width, 1060)}})"""
        )
        assert found
        assert [part["name"] for part in found if not part["inside"]] == []
        assert [part["name"] for part in found if part["share"] < 0.9] == []
