"""Tables of a run as files: what is written is read back, whatever is null, and what page headers claim is added up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftscope.files import parquet_pages
from driftscope.files.parquet_pages import inflated
from driftscope.runs.parquet import chosen_of, read_columns, write_table
from driftscope.runs.run import Run
from driftscope.runs.schema import ANCHORS
from driftscope.runs.schema import tables as all_tables
from tests.fake_run import Fake, meta, prompt_ids, tables

FAKE = Fake(prompts=2, anchors=5, depth=3, heads=2)


@pytest.fixture
def rows() -> pa.Table:
    return ANCHORS.conform(tables(FAKE, 0)["anchors"])


def test_a_table_is_read_back_as_it_was(rows: pa.Table, tmp_path: Path) -> None:
    write_table(tmp_path / "anchors.parquet", rows)
    stored, found = read_columns(tmp_path / "anchors.parquet", ANCHORS)
    assert stored == found.column_names == rows.column_names
    assert found.cast(rows.schema).equals(rows)


@pytest.mark.parametrize("name", all_tables())
@pytest.mark.parametrize("way", [{}, {"use_dictionary": False}, {"use_dictionary": True}])
def test_a_table_without_rows_is_read_back(name: str, way: dict[str, Any], tmp_path: Path) -> None:
    """Such as the heaviest keys of a prompt all of whose anchors lie in loops: it has columns, and no page in them."""
    declared, file = all_tables()[name], tmp_path / f"{name}.parquet"
    pq.write_table(declared.empty(), file, **way) if way else write_table(file, declared.empty())
    stored, found = read_columns(file, declared)
    assert stored == declared.empty().column_names
    assert len(found) == 0
    assert list(declared.frame(found)) == stored


def test_families_and_names_choose_columns(rows: pa.Table, tmp_path: Path) -> None:
    write_table(tmp_path / "anchors.parquet", rows)
    stored, found = read_columns(tmp_path / "anchors.parquet", ANCHORS, ("step", "mass/", "nothing"))
    assert stored == rows.column_names
    assert found.column_names == chosen_of(stored, ("mass/", "step"))
    assert found.column_names == ["step", *(name for name in stored if name.startswith("mass/"))]


def test_shards_need_not_have_their_nulls_in_the_same_columns(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", **meta(FAKE))
    for number, prompt in enumerate(prompt_ids(FAKE)):
        anchors = tables(FAKE, number)["anchors"].assign(rank=7)
        if number:
            anchors = anchors.assign(rank=pd.array([None] * len(anchors), dtype="Int32"), entropy=np.nan)
        run.write_shard("clean", prompt, {"anchors": anchors})
    rows = Run.open(run.folder).table("anchors", "clean", columns=["prompt", "rank", "entropy"])
    first = rows["prompt"] == prompt_ids(FAKE)[0]
    assert set(rows.loc[first, "rank"]) == {7}
    assert rows.loc[first, "entropy"].notna().all()
    assert rows.loc[~first, ["rank", "entropy"]].isna().all(axis=None)
    assert str(rows["rank"].dtype) == "Int32"


WAYS: list[dict[str, Any]] = [
    {"compression": "snappy", "write_statistics": False, "use_dictionary": ["prompt"]},
    {"compression": "zstd"},
    {"compression": "none", "write_page_checksum": True, "data_page_size": 64},
    {"compression": "lz4", "data_page_version": "2.0"},
]


def chunks(file: Path) -> list[tuple[int, int, int]]:
    """Of each column: where it starts and ends, and its size once decompressed, page headers included."""
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    sizes = [(column.total_compressed_size, column.total_uncompressed_size) for column in columns]
    return [(start, start + packed, whole) for start, (packed, whole) in zip(starts, sizes, strict=True)]


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how["compression"])
def test_headers_of_any_writer_say_the_same_at_once_and_field_by_field(
    how: dict[str, Any], rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(rows, tmp_path / "file", **how)
    content = (tmp_path / "file").read_bytes()
    told = [inflated(content, start, end) for start, end, _ in chunks(tmp_path / "file")]
    assert all(0 < claim < whole for claim, (_, _, whole) in zip(told, chunks(tmp_path / "file"), strict=True))
    assert all(parquet_pages._HEADER.match(content, start) for start, _, _ in chunks(tmp_path / "file"))
    monkeypatch.setattr(parquet_pages, "_HEADER", Never())
    assert [inflated(content, start, end) for start, end, _ in chunks(tmp_path / "file")] == told


def test_spoilt_headers_say_the_same_at_once_and_field_by_field(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(rows, tmp_path / "file", compression="zstd")
    content = (tmp_path / "file").read_bytes()
    columns = chunks(tmp_path / "file")
    rng = np.random.default_rng(0)
    usual, outcomes = parquet_pages._HEADER, set()
    for _ in range(3000):
        start, end, _ = columns[rng.integers(len(columns))]
        spoilt = bytearray(content)
        spoilt[start + rng.integers(min(60, end - start))] = rng.integers(256)
        found = []
        for header in (usual, Never()):
            monkeypatch.setattr(parquet_pages, "_HEADER", header)
            try:
                found.append(inflated(bytes(spoilt), start, end))
            except (ValueError, IndexError):
                found.append(-1)
        assert found[0] == found[1]
        outcomes.add(found[0] < 0)
    assert outcomes == {True, False}


@dataclasses.dataclass
class Never:
    """A pattern that nothing matches."""

    def match(self, content: bytes, at: int) -> None:
        return None
