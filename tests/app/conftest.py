"""The app on runs without a model, and on a real run of a tiny pair."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

import driftscope.app.main
from driftscope.app import jobs, rights
from driftscope.app.library import PATHS
from driftscope.runs.run import Run
from tests.fake_run import Fake, meta, prompt_ids, tables
from tests.rich_run import add_probes, write_rich_run

MAIN = Path(driftscope.app.main.__file__)
PAGES = (
    "overview",
    "norms",
    "attention",
    "noise",
    "acceptance",
    "robustness",
    "probes",
    "compare",
    "tokens",
    "training",
    "checkpoint",
    "new_run",
)
SMALL = Fake(prompts=13, anchors=8, depth=4, heads=2, loops=1)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one target that measured the same texts: one drifts and holds every probe, one does neither."""
    folder = tmp_path_factory.mktemp("library")
    write_rich_run(folder / "steady", SMALL.changed(growth=1.0, sink_shift=0.0, self_shift=0.0), "post", "post")
    add_probes(write_rich_run(folder / "drifting", SMALL, "pre"), SMALL)
    return folder


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a tiny random pair, as `driftscope probe` makes it."""
    # Here, because they take torch along, which most of these tests do without.
    from driftscope import probe
    from tests.tiny_pair import save_pair

    folder = tmp_path_factory.mktemp("measured")
    pair = save_pair(folder, prompts=3)
    probe(pair.checkpoint, out=folder / "runs" / "tiny", probes="norms,attention,acceptance", **pair.options)
    return folder / "runs"


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that are empty, half-written, of another schema, corrupt or not runs at all."""
    folder = tmp_path_factory.mktemp("odd")
    Run.create(folder / "empty", **meta(SMALL))
    partial = Run.create(folder / "partial", **meta(SMALL))
    for number in range(2):
        partial.write_shard("clean", prompt_ids(SMALL)[number], tables(SMALL, number))
    (folder / "partial" / "shards" / "clean" / ".new-1").mkdir()
    shutil.copytree(folder / "partial", folder / "corrupt")
    broken = folder / "corrupt" / "shards" / "clean" / prompt_ids(SMALL)[0]
    (broken / "anchors.parquet").write_bytes(b"PAR1 no")
    # A shard is known by its folder's time, which a copy has kept.
    os.utime(broken)
    old = json.loads((folder / "partial" / "run.json").read_text())
    (folder / "old-schema").mkdir()
    (folder / "old-schema" / "run.json").write_text(json.dumps({**old, "schema_version": 0}))
    for name, text in (("torn", '{"schema_version": 1, "check'), ("foreign", '["not", "a", "run"]')):
        (folder / name).mkdir()
        (folder / name / "run.json").write_text(text)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the app keeps: by content, so that tests can share it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Callable[..., AppTest]:
    """Start the app on these paths, at a page with these parameters."""
    monkeypatch.setenv("DRIFTSCOPE_CACHE", str(cache))
    monkeypatch.setattr(jobs, "_jobs", {})
    for name in (rights.FOLDERS, rights.STARTING, rights.TOKEN):
        monkeypatch.delenv(name, raising=False)

    def start(*paths: Path, page: str = "overview", **parameters: str) -> AppTest:
        monkeypatch.setenv(PATHS, json.dumps([str(path) for path in paths]))
        test = AppTest.from_file(str(MAIN), default_timeout=120)
        test.query_params.update(parameters)
        test.run()
        if page == "overview":
            return test
        # The first page has taken what is not its own out of the address; a browser opens the page itself.
        test.query_params.update(parameters)
        return go(test, page)

    return start


def go(test: AppTest, page: str) -> AppTest:
    """Change the page."""
    return test.switch_page(f"views/{page}.py").run()


def messages(test: AppTest) -> list[str]:
    """Errors on the page."""
    return [element.value for element in test.error]


def warned(test: AppTest) -> list[str]:
    """Warnings on the page."""
    return [str(element.value).replace("\\", "") for element in test.warning]


def words(test: AppTest) -> str:
    """Everything that is written on the page, Markdown's escapes taken out."""
    parts = [*test.markdown, *test.caption, *test.title, *test.header, *test.subheader, *test.info, *test.warning]
    texts = [str(part.value) for part in parts]
    texts += [element.proto.body for element in test.get("html")]
    return "\n".join(texts).replace("\\", "")


def charts(test: AppTest) -> list[dict[str, Any]]:
    """Specifications of the charts on the page."""
    return [json.loads(element.proto.spec) for element in test.get("vega_lite_chart")]


def drawn(test: AppTest) -> pd.DataFrame:
    """Every row of figures that the charts on the page draw."""
    parts = []
    for element in test.get("vega_lite_chart"):
        for dataset in element.proto.datasets:
            with pa.ipc.open_stream(io.BytesIO(dataset.data.data)) as stream:
                frame = stream.read_all().to_pandas()
            if "mean" in frame:
                parts.append(frame)
    return pd.concat(parts, ignore_index=True)


__all__ = ["MAIN", "PAGES", "SMALL", "charts", "drawn", "go", "messages", "words"]
