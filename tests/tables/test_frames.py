"""Tables in memory: every form becomes the same Arrow table, and what cannot is refused with a sentence."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from semicyclic.tables.frames import TableSource, column_of, to_arrow
from semicyclic.tables.sources import ReadPosition

PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        ([1, None, 3], pa.int64(), [1, None, 3]),
        ([1, 2.5, None, np.float32(39.02)], pa.float64(), [1.0, 2.5, None, 39.02]),
        ([1.0, float("nan"), pd.NA], pa.float64(), [1.0, None, None]),
        ([Decimal("1.5"), np.int16(2)], pa.float64(), [1.5, 2.0]),
        ([True, np.bool_(False), None], pa.bool_(), [True, False, None]),
        (["a", None, float("nan")], pa.string(), ["a", None, None]),
        # Cells of several types are text, as in a JSON file.
        ([1, "x", 2.5, True, None], pa.string(), ["1", "x", "2.5", "true", None]),
        ([True, 1], pa.string(), ["true", "1"]),
        ([None, None], pa.string(), [None, None]),
        ([date(2026, 1, 2), None], pa.date32(), [date(2026, 1, 2), None]),
        ([[1], [2, 3]], pa.list_(pa.string()), [None, None]),
        ([2**70, 1], pa.string(), [str(2**70), "1"]),
    ],
)
def test_cells_become_a_column_of_their_type(cells: list[Any], dtype: Any, values: list[Any]) -> None:
    column = column_of(cells)
    assert column.type == dtype
    assert column.to_pylist() == values


def test_times_keep_their_instant_and_their_zone() -> None:
    aware = [
        datetime(2026, 3, 1, 12, tzinfo=PARIS),
        pd.Timestamp("2026-03-01T12:00", tz="Europe/Paris"),
        pd.NaT,
    ]
    column = column_of(aware)
    assert column.type == pa.timestamp("us", "Europe/Paris")
    assert column.cast(pa.int64()).to_pylist()[:2] == [1_772_362_800_000_000] * 2
    mixed = column_of([datetime(2026, 3, 1, 12, tzinfo=PARIS), datetime(2026, 3, 1, 11, tzinfo=UTC)])
    assert mixed.type.tz == "UTC"
    assert len(set(mixed.cast(pa.int64()).to_pylist())) == 1
    assert column_of([np.datetime64("2026-03-01T12:00"), np.datetime64("NaT")]).null_count == 1
    assert pa.types.is_string(column_of([aware[0], datetime(2026, 3, 1)]).type)


def test_every_form_is_the_same_table() -> None:
    rows = [{"a": 1, "b": "x", "c": None}, {"a": 2.5, "b": None, "c": True}, {"b": "y", "a": 3, "c": False}]
    expected = to_arrow(rows)
    frame = pd.DataFrame(rows)
    assert to_arrow(frame).to_pylist() == expected.to_pylist()
    assert to_arrow(pl.DataFrame(rows, strict=False)).to_pylist() == expected.to_pylist()
    assert to_arrow(expected) == expected
    # A key that some rows lack is missing there.
    assert to_arrow([{"a": 1}, {"b": 2}]).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert to_arrow(pd.DataFrame({0: [1], 1: [2]})).column_names == ["0", "1"]
    words = pl.DataFrame({"k": pl.Series(["u", "v"], dtype=pl.Categorical), "s": ["u", "v"]})
    assert to_arrow(words).take(pa.array([1])).to_pylist() == [{"k": "v", "s": "v"}]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "table is a int: give a data frame"),
        ({"a": 1}, "table is a dict"),
        (pl.LazyFrame({"a": [1]}), r"give table.collect\(\)"),
        ([{1: 2}], "column name 1 is a int: names must be strings"),
        ([{}], "the table has no columns"),
        (pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"]), "two columns 'a'"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), "two columns 'a'"),
        (pd.DataFrame(), "no columns"),
    ],
)
def test_what_is_no_table_is_refused(table: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        to_arrow(table)


def test_rows_are_sorted_by_time_and_keep_their_numbers() -> None:
    rows = [{"t": time, "k": k} for k, time in enumerate([30, 10, None, 20, 10])]
    source = TableSource([{**row, "t": row["t"] and 1_700_000_000 + row["t"]} for row in rows], ("t",))
    (part,) = source.parts(ReadPosition())
    assert part.batch.row.tolist() == [2, 1, 4, 3, 0]
    assert part.batch.table.column("k").to_pylist() == [2, 1, 4, 3, 0]
    assert source.can_reread
    assert TableSource(rows, ignore=("t",)).table.column_names == ["k"]
