"""One row as a dict is encoded exactly as a table of that row."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.schedule.timezones import EARLIEST, LATEST, from_wall, local_to_utc, offset_at, to_wall
from semicyclic.tables.columns import BOOLEAN, CATEGORY, NUMBER, TEXT, Schema
from semicyclic.tables.encoding import TableEncoding
from semicyclic.tables.features import Features, Scale
from semicyclic.tables.timestamps import TimeColumn

KINDS = {"flag": BOOLEAN, "kind": CATEGORY, "n": NUMBER, "note": TEXT, "plain": NUMBER}
SCALES = {"n": Scale(3.5, 2.0, (1.0, 2.5, 2.5000001, 40.0)), "plain": Scale(0.0, 1.0, ())}
NAMES = (
    "flag=true", "flag?", "kind=a", "kind=7", "kind?", "n", "n?", "n~0", "n~1", "n~4", "note:rain", "note?",
    "plain", "plain?",
)  # fmt: skip
ZONE = "Europe/Paris"
SCHEDULE = sc.Schedule.daily(edges=["05:00", "13:30", "22:00"], zone=ZONE)
TWO_DAYS = 2 * 86_400 * 1_000_000
FORMS = ["local", "zoned", "s", "ms", "us", "ns", "%d.%m.%Y %H:%M", "%Y-%m-%d %H:%M:%S%z"]


def encoding(form: str, bits: int | None) -> TableEncoding:
    columns = Schema(TimeColumn(("when",), form, ZONE), KINDS)
    return TableEncoding(Features(columns, SCALES, bits, () if bits else NAMES).to_json())


words = st.sampled_from(
    ["a", "7", "A B", "", "NA", "nan", "true", "FALSE", "é,ü", "rain RAIN sun!", " 2.5 ", "1e3"]
)
numbers = st.one_of(
    st.integers(-(2**60), 2**60),
    st.floats(),
    st.floats(width=32, allow_nan=False),
    st.sampled_from(["1", "-2.5", "+.5", "5.", "1e5", "x", "1_000", "2.5000001"]),
    st.sampled_from([np.float32(39.02), np.float64(1.1), np.int16(4), np.bool_(True)]),
)
cells = st.fixed_dictionaries(
    {
        "flag": st.one_of(st.none(), st.booleans(), words),
        "kind": st.one_of(st.none(), st.booleans(), st.integers(-10, 10), words, st.floats(-3, 3)),
        "n": st.one_of(st.none(), numbers),
        "note": st.one_of(st.none(), words, st.text(max_size=12)),
        "plain": st.one_of(st.none(), numbers, st.booleans()),
    }
)
moments = st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1))
zones = st.sampled_from([UTC, timezone(timedelta(hours=-7, minutes=30)), ZoneInfo("Asia/Tokyo")])


@st.composite
def times(draw: Any, form: str) -> Any:
    """A time that the form can hold, as a string, a number or a datetime; or something else."""
    moment, zone = draw(moments), draw(zones)
    seconds = int((moment - datetime(1970, 1, 1)).total_seconds())
    if form in ("s", "ms", "us", "ns"):
        unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[form]
        return draw(st.sampled_from([seconds * unit, float(seconds * unit), str(seconds * unit), None, "x"]))
    if "%" in form:
        text = moment.replace(tzinfo=zone).strftime(form)
        return draw(st.sampled_from([text, "x", None]))
    value = moment.replace(tzinfo=zone) if form == "zoned" else moment
    as_pandas = pd.Timestamp(value)
    return draw(st.sampled_from([value, str(value), value.isoformat(), as_pandas, moment, "soon", None]))


def outcome(encode: Callable[[], sc.Rows]) -> Any:
    """The rows, or the message of the error."""
    try:
        return encode()
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


@given(data=st.data(), row=cells, form=st.sampled_from(FORMS), bits=st.sampled_from([None, 4, 12]))
@settings(max_examples=600, deadline=None)
def test_a_dict_is_encoded_as_a_table_of_one_row(data: Any, row: Any, form: str, bits: int | None) -> None:
    row = {**row, "when": data.draw(times(form))}
    both = encoding(form, bits)
    table, one = outcome(lambda: both._encode([row], SCHEDULE)), outcome(lambda: both.rows(row, SCHEDULE))
    if isinstance(table, str):
        assert one == table
        return
    for name in ("indptr", "indices", "values", "block"):
        found, expected = getattr(one, name), getattr(table, name)
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert found.dtype == expected.dtype


def test_usual_rows_are_encoded_without_arrow() -> None:
    row = {"flag": True, "kind": "a", "n": 2.5, "note": "Rain, rain and sun", "plain": 3}
    for form, when in (
        ("local", "2026-03-29 02:30"),
        ("local", datetime(2026, 3, 29, 2, 30)),
        ("zoned", "2026-03-29T02:30:00+02:00"),
        ("zoned", pd.Timestamp("2026-03-29T04:30", tz="Europe/Paris")),
        ("s", 1_774_750_000),
        ("ms", 1_774_750_000_000.0),
        ("%d.%m.%Y %H:%M", "29.03.2026 02:30"),
    ):
        for bits in (None, 12):
            encoder = encoding(form, bits)._row_encoder
            assert encoder.encode({**row, "when": when}, SCHEDULE) is not None, (form, when)


@given(
    tick=st.integers(EARLIEST + TWO_DAYS, LATEST - TWO_DAYS),
    near=st.integers(-7_300_000_000, 7_300_000_000),
    change=st.integers(0, 40),
    zone=st.sampled_from(
        ["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
    ),
)
@settings(max_examples=300, deadline=None)
def test_one_time_is_converted_as_many_are(tick: int, near: int, change: int, zone: str) -> None:
    # Also close to the changes of the clock in one year.
    last_sunday = int(datetime(1990 + change, 3, 31, tzinfo=UTC).timestamp()) * 1_000_000
    for ticks in (tick, last_sunday + near):
        assert ticks + offset_at(zone, ticks) == to_wall(zone, np.array([ticks]))[0]
        wall = from_wall(zone, np.array([ticks]), ambiguous="earlier", missing="shift").ticks[0]
        assert local_to_utc(zone, ticks) == wall
        for schedule in (
            sc.Schedule.daily(5, zone=zone),
            sc.Schedule.weekly(edges=["Tue 03:00", "Sat 00:00"], zone=zone),
        ):
            cycle, block = schedule.place(np.array([ticks]))
            assert schedule.place_one(ticks) == (cycle[0], block[0])


def test_missing_columns_are_named_and_others_ignored() -> None:
    both = encoding("local", 12)
    row = {"flag": True, "kind": "a", "n": 1.0, "note": "x", "plain": 2, "when": "2026-01-01 00:00", "id": 7}
    assert len(both.rows(row, SCHEDULE)) == 1
    del row["n"], row["when"]
    with pytest.raises(ValueError, match=r"missing: 'n', 'when'.*does not know: 'id'. Give None where"):
        both.rows(row, SCHEDULE)
    # Without blocks, no time is needed.
    assert both.rows({**row, "n": None}, None).block is None


def test_threads_share_an_encoder() -> None:
    both = encoding("local", None)
    rows = [
        {
            "flag": k % 2 == 0,
            "kind": f"k{k}",
            "n": k / 7,
            "note": f"w{k} rain",
            "plain": k,
            "when": "2026-01-01",
        }
        for k in range(6000)
    ]
    expected = both._encode(rows, SCHEDULE)
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for k in range(first, len(rows), 4):
            found[k] = both.rows(rows[k], SCHEDULE)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, one in found.items():
        span = slice(expected.indptr[k], expected.indptr[k + 1])
        np.testing.assert_array_equal(one.indices, expected.indices[span])
        np.testing.assert_array_equal(one.values, expected.values[span])
