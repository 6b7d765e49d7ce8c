"""Short forms of the soak and the fuzzing in benchmarks/: kills, and files that lie."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks import soak
from driftscope.captures.cache import CacheKey, CaptureCache
from driftscope.errors import RunError
from driftscope.files.parquet_pages import inflated
from driftscope.runs.run import Run

# They are programs: they import each other from their own folder.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
fuzz = importlib.import_module("fuzz")
hostile = importlib.import_module("hostile")
readers = importlib.import_module("hostile.readers")

HOUR = 3600
MIB = 2**20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, soak.Outcome]:
    folder = tmp_path_factory.mktemp("soak")
    return folder, soak.soak(folder, 3, 1.0, start=soak.Forked, seed=3)


def test_killed_again_and_again_gives_the_rows_of_an_undisturbed_run(soaked: tuple[Path, soak.Outcome]) -> None:
    _, outcome = soaked
    assert outcome.problems == []
    assert outcome.kills > 0
    assert outcome.captures == 3
    assert outcome.rows["anchors"] > 100


def test_rows_that_differ_are_told(soaked: tuple[Path, soak.Outcome]) -> None:
    folder, _ = soaked
    file = next((folder / "killed" / "run" / "shards" / "clean").glob("*/anchors.parquet"))
    table = pq.read_table(file, partitioning=None)
    place = table.schema.get_field_index("drafted")
    pq.write_table(table.set_column(place, "drafted", pa.array([7] * len(table), table.schema.field(place).type)), file)
    again = soak.Outcome(3)
    soak._compare(folder / "calm", folder / "killed", again)
    assert [problem.partition(":")[0] for problem in again.problems] == ["table anchors differs"]
    file.write_bytes(file.read_bytes()[:-9])
    soak._compare(folder / "calm", folder / "killed", again)
    assert again.problems[1].startswith(f"cannot read {file}")
    shutil.rmtree(file.parent)
    soak._compare(folder / "calm", folder / "killed", again)
    assert "the disturbed run lacks 1 shards" in again.problems


def aged(path: Path, seconds: float) -> Path:
    path.mkdir(parents=True) if not path.suffix else path.write_text("half")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_the_cache_forgets_what_killed_writers_left(tmp_path: Path) -> None:
    cache = CaptureCache(tmp_path)
    key = CacheKey.of("f", "float32", [], [1, 2], 3)
    cache.write(key, {"token_ids": torch.tensor([1, 2, 3])}, {}, target={"name": "x", "dtype": "float32"}, meta={})
    place = tmp_path / key.target
    old = [aged(place / ".tmp-a", 2 * HOUR), aged(place / key.capture / ".tmp-9-1.x", 2 * HOUR)]
    new = [aged(place / ".tmp-b", 0), aged(place / ".tmp-9-target.json", 60)]
    cache.check_writable()
    assert [path.exists() for path in (*old, *new)] == [False, False, True, True]
    assert cache.read(key) is not None


def test_a_run_forgets_what_killed_writers_left(soaked: tuple[Path, soak.Outcome], tmp_path: Path) -> None:
    calm = Run.open(soaked[0] / "calm" / "run")
    meta = calm.info.model_dump(exclude={"schema_version"})
    Run.create(tmp_path / "run", **meta)
    made = ".new-" + "0" * 32
    old = [aged(tmp_path / made, 2 * HOUR), aged(tmp_path / "run" / f"{made}.json", 2 * HOUR)]
    kept = [aged(tmp_path / ".new-idea", 2 * HOUR), aged(tmp_path / "run" / "shards" / "clean" / made, 0)]
    Run.resume(tmp_path / "run")
    assert [path.exists() for path in (*old, *kept)] == [False, False, True, True]
    assert isinstance(Run.open(tmp_path / "run").table("anchors"), pd.DataFrame)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hostile.Stock.build(tmp_path_factory.mktemp("fuzz") / "stock")


@pytest.fixture(scope="module")
def watch() -> Any:
    return fuzz.Watch()


@linux
def test_files_that_lie_are_read_or_refused(stock: Any, watch: Any, tmp_path: Path) -> None:
    # A report takes seconds: the full form alone makes some.
    names = [name for name in fuzz.TURNS if name != "report"]
    for name in names:
        for path in readers.sound(name, stock, tmp_path):
            assert readers.READ[name](path, stock) == ""
    found = [
        fuzz.attempt(number, 0, fuzz.reader_of(number, names), tmp_path / "case", stock, watch) for number in range(60)
    ]
    assert [result for result in found if result["problem"]] == []
    assert {result["reader"] for result in found} == set(names)
    assert sum(result["outcome"] == "refused" for result in found) > 25


@linux
def test_what_a_reader_may_not_do_is_seen(
    stock: Any, watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(reads: Any) -> str:
        monkeypatch.setitem(readers.READ, "checkpoint", reads)
        return str(fuzz.attempt(0, 0, "checkpoint", tmp_path / "case", stock, watch)["problem"])

    assert attempt(lambda path, stock: "refused") == "None"
    assert "KeyError" in attempt(lambda path, stock: {}["x"])
    assert "several lines" in attempt(lambda path, stock: readers.checked(["one\ntwo"]))
    assert "code ran: os.system" in attempt(lambda path, stock: os.system("true") and "")
    assert "code ran: code-ran" in attempt(lambda path, stock: (tmp_path / "case" / hostile.MARK).touch() or "")
    assert "MiB of memory" in attempt(lambda path, stock: str(torch.ones(40 * MIB).sum())[:0])


DIES = """
import json, os, sys
first = int(sys.argv[sys.argv.index("--first") + 1])
for number in range(first, 5):
    print(json.dumps({"start": number}), flush=True)
    if number == 2:
        print("out of it", file=sys.stderr)
        sys.stderr.flush()
        os.abort()
    print(json.dumps(dict(number=number, reader="run", kind="x", outcome="read", problem=None)), flush=True)
"""


def test_a_process_that_dies_costs_one_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.setattr(fuzz, "__file__", str(tmp_path / "dies.py"))
    results = list(fuzz.fuzz(5, 0))
    assert [result["number"] for result in results] == [0, 1, 2, 3, 4]
    assert [result["number"] for result in results if result["problem"]] == [2]
    assert fuzz.summary(results)["problems"][0]["problem"] == "the process died (-6) out of it"


def test_a_fuzz_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    about = {"seed": 1, "readers": ["run"]}
    kept = fuzz._Kept(tmp_path / "fuzz.json", about)
    kept.add({"number": 0, "problem": None})
    kept.add({"number": 1, "problem": "a"})
    assert [result["problem"] for result in fuzz._Kept(tmp_path / "fuzz.json", about).results] == [None, "a"]
    assert fuzz._Kept(tmp_path / "fuzz.json", about).first == 2
    # Another seed is another fuzz.
    assert fuzz._Kept(tmp_path / "fuzz.json", {**about, "seed": 2}).first == 0


def table_file(run: Path, name: str) -> Path:
    return next((run / "shards").rglob(f"{name}.parquet"))


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (lambda t: pa.table({n: pa.nulls(2_000_000, t.schema.field(n).type) for n in t.column_names}), "claims 2,000,000 rows"),
        (lambda t: t.set_column(0, t.column_names[0], pa.array(["x" * (80 * MIB)] + [""] * (len(t) - 1)).dictionary_encode()),
         "its pages claim"),
        (lambda t: t.set_column(0, t.column_names[0], pa.nulls(len(t), pa.int64())), "column variant is int64, expected dict"),
        (lambda t: t.drop_columns(["step"]), "column step is missing"),
    ],
    ids=["rows", "bytes", "type", "column"],
)  # fmt: skip
def test_parquet_that_claims_what_it_should_not(spoil: Any, pattern: str, stock: Any, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stock.run, tmp_path / "run"))
    file = table_file(run, "anchors")
    spoilt = spoil(pq.read_table(file, partitioning=None))
    spoilt = spoilt.cast(pa.schema([f.with_nullable(True) for f in spoilt.schema]))
    pq.write_table(spoilt, file, compression="zstd")
    assert file.stat().st_size < 8 * MIB
    with pytest.raises(RunError, match=pattern) as caught:
        Run.open(run).table("anchors")
    assert str(file) in str(caught.value)


def test_pages_that_inflate_beyond_their_footer_are_seen(stock: Any) -> None:
    """The sum that the page headers claim is what the file holds, and follows a header that was changed."""
    file = table_file(stock.run, "anchors")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(3)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(file.read_bytes())
    end = start + chunk.total_compressed_size
    told = inflated(bytes(content), start, end)
    # The footer counts the headers too.
    assert 0 < told <= chunk.total_uncompressed_size
    assert chunk.total_uncompressed_size - told < 200
    assert content[start] == content[start + 2] == 0x15
    # The same header with a size of 2^31 - 1, which takes more bytes.
    length = next(n for n in range(1, 6) if content[start + 2 + n] < 0x80)
    content[start + 3 : start + 3 + length] = b"\xfe\xff\xff\xff\x0f"
    assert inflated(bytes(content), start, end + 5 - length) >= 2**31 - 1


def test_a_flipped_bit_in_a_table_is_seen(stock: Any, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stock.run, tmp_path / "run"))
    file = table_file(run, "anchors")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(8)
    content = bytearray(file.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 4
    file.write_bytes(bytes(content))
    with pytest.raises(RunError, match="cannot read"):
        Run.open(run).table("anchors")
