"""Declared tables: what conforms, what is refused, what comes back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from driftscope.errors import RunError
from driftscope.runs.schema import ANCHORS, STEPS, VARIANTS, table_named
from driftscope.runs.schema import tables as all_tables
from tests.fake_run import Fake, tables


@pytest.fixture(scope="module")
def anchors() -> pd.DataFrame:
    return tables(Fake(anchors=4, depth=3), 0)["anchors"]


def test_fake_tables_conform_and_come_back_with_declared_types(anchors: pd.DataFrame) -> None:
    frame = ANCHORS.frame(ANCHORS.conform(anchors))
    assert frame["feed"].dtype == "category"
    assert frame["rms/carry"].dtype == np.float32
    assert frame["step"].dtype == np.int16
    assert frame["rank"].dtype == "Int32"
    assert frame["rank"].isna().sum() == anchors["rank"].isna().sum() > 0
    np.testing.assert_array_equal(frame["drafted"], anchors["drafted"])
    np.testing.assert_allclose(frame["mass/sink"], anchors["mass/sink"], rtol=1e-6)


def test_absent_optional_column_is_null_not_zero(anchors: pd.DataFrame) -> None:
    frame = ANCHORS.frame(ANCHORS.conform(anchors.drop(columns=["prob", "rank"])))
    assert frame["prob"].isna().all()
    assert frame["rank"].isna().all()


def test_nan_is_stored_as_null(anchors: pd.DataFrame) -> None:
    stored = ANCHORS.conform(anchors)
    assert stored["cos_prev"].null_count == anchors["cos_prev"].isna().sum() > 0


def test_missing_column_is_named(anchors: pd.DataFrame) -> None:
    with pytest.raises(RunError, match="anchors: column accepted is missing"):
        ANCHORS.conform(anchors.drop(columns="accepted"))


@pytest.mark.parametrize("name", ["rsm/carry", "mass/recent", "rms/"])
def test_undeclared_column_is_named(anchors: pd.DataFrame, name: str) -> None:
    with pytest.raises(RunError, match=f"undeclared column {name}"):
        ANCHORS.conform(anchors.assign(**{name: 0.0}))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("feed", "own", "'own' is not one of drafted, text"),
        ("step", 70_000, "column step: expected int16"),
        ("step", 0, "column step: 0 is less than 1"),
        ("anchor", -1, "column anchor: -1 is less than 0"),
        ("rank", 1.5, "column rank: expected int32"),
        ("match", "yes", "column match: expected bool"),
        ("prompt", None, "column prompt: .* values are null"),
    ],
)
def test_wrong_values_are_refused(anchors: pd.DataFrame, column: str, value: object, message: str) -> None:
    with pytest.raises(RunError, match=message):
        ANCHORS.conform(anchors.assign(**{column: value}))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [("step", [0], "holds 0 in step"), ("anchor", [-4], "holds -4 in anchor"), ("loop", [None], "holds nulls in loop")],
)
def test_stored_values_that_no_probe_stores_are_refused(
    anchors: pd.DataFrame, column: str, values: list[object], message: str
) -> None:
    stored = ANCHORS.conform(anchors)
    place = stored.schema.get_field_index(column)
    spoilt = stored.set_column(place, column, pa.array(values * len(stored), stored.schema.field(place).type))
    with pytest.raises(RunError, match=f"table anchors {message}, which no probe stores"):
        ANCHORS.frame(spoilt)


def test_string_kinds_of_pandas_all_become_dictionaries(anchors: pd.DataFrame) -> None:
    for kind in ("category", "string", object):
        stored = ANCHORS.conform(anchors.assign(prompt=anchors["prompt"].astype(kind)))
        assert stored.schema.field("prompt").type == pa.dictionary(pa.int32(), pa.string())


def test_repeated_variants_are_read_once() -> None:
    row = tables(Fake(), 0)["variants"]
    assert len(VARIANTS.frame(VARIANTS.conform(pd.concat([row, row, row.assign(probe="depth")])))) == 2


def test_sums_keep_double_precision() -> None:
    row = {"variant": "clean", "feed": "text", "prompt": "a", "step": 1, "anchors": 3}
    frame = pd.DataFrame([row | {"matches": 1, "reached": 3, "accepted": 1, "sum/kl": 1 / 3}])
    assert STEPS.frame(STEPS.conform(frame))["sum/kl"][0] == 1 / 3


@pytest.mark.parametrize("name", all_tables())
def test_empty_table_has_every_plain_column(name: str) -> None:
    declared = table_named(name)
    plain = [column.name for column in declared.columns if column.family is None]
    assert list(declared.frame(declared.empty())) == plain


def test_unknown_table_is_named() -> None:
    with pytest.raises(RunError, match="no table 'head'; the tables are anchors, heads"):
        table_named("head")
