"""From cells to columns: keys that never change, and rows that equal their definition."""

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semicyclic.store.json_codec import from_json, to_json
from semicyclic.tables.arrow import booleans, numbers, texts
from semicyclic.tables.columns import BOOLEAN, CATEGORY, NUMBER, TEXT, ColumnRequest, Schema, infer_schema
from semicyclic.tables.features import MAX_DEVIATIONS, FeatureNames, Features, learn_scales, scale_of
from semicyclic.tables.kernels import hashing
from semicyclic.tables.kernels.timestamps import BAD, NAIVE, NONE, ZONED, moments
from semicyclic.tables.timestamps import TimeColumn, infer_time_column
from semicyclic.tables.vocabulary import Vocabulary

words = st.text(alphabet="abc XYZ.é_9-\n€", max_size=20)


def test_keys_are_stable_for_ever() -> None:
    """Models are stored on them: these numbers must never change."""
    assert hashing.key_of("carrier=UA") == 11160204345405195588
    assert hashing.key_of("note:naïve") == 3980809984435081951
    assert hashing.key_of("") == 17665956581633026203
    assert hashing.key_of("distance~3") == 756277238275708995


def columns_of(**kinds: str) -> Schema:
    return Schema(TimeColumn(("at",), "s", "UTC"), dict(sorted(kinds.items())))


@given(st.lists(st.one_of(st.none(), words), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_categories_and_tokens_have_the_keys_of_their_names(cells: list[str | None]) -> None:
    """The compiled hash equals the definition, and a token is what the rule says it is."""
    column = pa.array(cells, pa.string())
    features = Features(columns_of(c=CATEGORY, t=TEXT), {}, bits=20)
    held = texts(column)
    for row, cell in enumerate(cells):
        missing = cell is None or cell in hashing.MISSING_WORDS
        assert held.there[row] == (not missing)
        expected: dict[int, float] = {}
        own = ["c?"] if missing else [f"c={cell}"]
        for name in own:
            expected[hashing.key_of(name) >> 44] = 1.0
        tokens = ["t?"] if missing else [f"t:{word}" for word in spelt(cell or "")]
        for name in tokens:
            column_ = hashing.key_of(name) >> 44
            expected[column_] = expected.get(column_, 0.0) + 1 / np.sqrt(len(tokens))
        made = features.encode(pa.table({"c": column[row : row + 1], "t": column[row : row + 1]}))
        found = dict(zip(made.indices.tolist(), made.data.tolist(), strict=True))
        assert set(found) == set(expected)
        assert all(abs(found[at] - expected[at]) < 1e-6 for at in expected)
    whole = features.encode(pa.table({"c": column, "t": column}))
    assert len(whole.indptr) == len(cells) + 1


def spelt(text: str) -> list[str]:
    """Tokens by a rule of another kind: ASCII letters in lower case, all beyond ASCII as it is."""
    lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    return re.findall(r"[a-z0-9_\u0080-\U0010ffff]+", lowered)


def test_numbers_are_scaled_binned_and_cut_off() -> None:
    scale = scale_of(np.arange(1.0, 101.0), bins=4)
    assert scale.edges == (26.0, 51.0, 76.0)
    features = Features(columns_of(x=NUMBER), {"x": scale}, bits=20)
    values = [1.0, 25.99, 26.0, 100.0, 1e9, -np.inf, None]
    made = features.encode(pa.table({"x": pa.array(values, pa.float64())}))
    place = {hashing.key_of(name) >> 44: name for name in ("x", "x?", "x~0", "x~1", "x~2", "x~3")}
    rows = [
        {place[int(made.indices[p])]: made.data[p] for p in range(made.indptr[r], made.indptr[r + 1])}
        for r in range(len(values))
    ]
    assert [sorted(row) for row in rows] == [
        ["x", "x~0"], ["x", "x~0"], ["x", "x~1"], ["x", "x~3"], ["x", "x~3"], ["x", "x~0"], ["x?"],
    ]  # fmt: skip
    assert np.isclose(rows[0]["x"], (1 - 50.5) / np.std(np.arange(1.0, 101.0)))
    assert rows[4]["x"] == MAX_DEVIATIONS
    assert rows[5]["x"] == -MAX_DEVIATIONS
    assert rows[6]["x?"] == 1.0


@pytest.mark.parametrize("values", [[5.0] * 9, [np.nan] * 3, [1e300, -1e300], [0.0, 1.0]])
def test_odd_numbers_can_be_scaled(values: list[float]) -> None:
    scale = scale_of(np.array(values))
    assert np.isfinite(scale.mean)
    assert np.isfinite(scale.deviation)
    assert scale.deviation > 0
    assert all(np.isfinite(edge) for edge in scale.edges)
    if values == [0.0, 1.0]:
        assert scale.edges == (1.0,)


def test_a_dictionary_has_every_feature_and_no_other() -> None:
    table = pa.table({"c": ["a", "b", None, "a"], "t": ["x y", "Y z", "", "x"], "n": [1.0, 2.0, 3.0, 4.0]})
    columns = columns_of(c=CATEGORY, t=TEXT, n=NUMBER)
    seen = Vocabulary(columns)
    seen.add(table)
    features = seen.features(learn_scales(table, columns, bins=2))
    assert features is not None
    names = ["c=a", "c=b", "c?", "n", "n?", "n~0", "n~1", "t:x", "t:y", "t:z", "t?"]
    assert list(features.names) == names
    made = features.encode(pa.table({"c": ["b", "new"], "t": ["Z q", "x"], "n": [9.0, None]}))
    rows = [set(made.indices[made.indptr[r] : made.indptr[r + 1]].tolist()) for r in range(2)]
    assert rows == [
        {names.index(each) for each in ("c=b", "n", "n~1", "t:z")},
        {names.index("n?"), names.index("t:x")},
    ]
    again = Features.from_json(features.to_json())
    assert again.encode(table).indices.tolist() == features.encode(table).indices.tolist()


def test_the_sample_of_a_first_pass_does_not_depend_on_how_rows_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("semicyclic.tables.vocabulary.SAMPLE_ROWS", 16)
    values = np.random.default_rng(0).normal(size=300)
    for cuts in ([], [1], [7, 60, 61, 200], list(range(0, 300, 11))):
        seen = Vocabulary(columns_of(n=NUMBER))
        for part in np.split(values, cuts):
            seen.add(pa.table({"n": part}))
        kept = np.concatenate(seen.numbers["n"])
        assert np.array_equal(kept, values[:: seen.stride])
        assert 8 <= len(kept) <= 32


def test_names_are_those_of_the_features_seen_first() -> None:
    columns = columns_of(c=CATEGORY, n=NUMBER, t=TEXT)
    table = pa.table({"c": ["a", None], "n": [1.0, 5.0], "t": ["Big wind", "wind"]})
    features = Features(columns, learn_scales(table, columns, bins=2), bits=20)
    names = FeatureNames.of(features)
    features.encode(table, names)
    assert sorted(names.names.values()) == ["c=a", "c?", "n", "n?", "n~0", "n~1", "t:big", "t:wind"]
    assert all(hashing.key_of(name) >> 44 == column for column, name in names.names.items())
    assert features.title("n~0") == "n < 5"
    assert features.title("n~1") == "n >= 5"
    assert features.title("c=a~1") == "c=a~1"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"columns": {}},
        {"columns": {"when": {"columns": ["a"], "form": "s", "zone": "UTC"}, "kinds": {"x": "number"},
        "label": None,
                     "label_kind": "number"}, "scales": {}, "bits": 8},
        {"columns": {"when": {"columns": ["a"], "form": "s", "zone": "UTC"}, "kinds": {}, "label": None,
                     "label_kind": "number"}, "scales": {}, "bits": 99},
        {"columns": {"when": {"columns": ["a"], "form": "s", "zone": "Mars"}, "kinds": {}, "label": None,
                     "label_kind": "number"}, "scales": {}, "bits": 9},
        None,
    ],
)  # fmt: skip
def test_features_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        Features.from_json(value)


# ------------------------------------------------------------------------------ numbers


@given(
    st.lists(
        st.one_of(
            st.none(), st.floats(), st.sampled_from(["x", " 5 ", "1e5", "+.5", "NA", "inf", "1_0", "0x1"])
        )
    )
)
@settings(max_examples=80, deadline=None)
def test_texts_are_numbers_where_python_thinks_so(cells: list[Any]) -> None:
    column = pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    values, bad = numbers(column)
    for cell, value, wrong in zip(cells, values.tolist(), bad.tolist(), strict=True):
        if cell in ("x", "1_0", "0x1"):
            assert wrong
        else:
            assert not wrong
            expected = float("nan") if cell in (None, "NA") else float(cell)
            assert value == expected or (np.isnan(value) and np.isnan(expected))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@example(values=[7.286752014489049e-44, 1.401298464324817e-45])  # subnormal: one figure tells them apart
@example(values=[float(np.float32(text)) for text in ("9.98476e-38", "9.87731e-13")])  # six do, seven differ
@settings(max_examples=100, deadline=None)
def test_single_precision_is_read_as_it_is_written(values: list[float]) -> None:
    """A file with types and the texts that programs write of it are the same numbers."""
    column = pa.array(values, pa.float32())
    typed, _ = numbers(column)
    written, _ = numbers(pa.array([str(np.float32(value)) for value in values]))
    assert np.allclose(typed, written, rtol=1e-12, atol=0)
    plain = [np.float32(round(value, 2)) for value in values if abs(value) < 9999]
    typed, _ = numbers(pa.array(plain, pa.float32()))
    assert typed.tolist() == [float(str(value)) for value in plain]


def test_booleans_are_words_or_types() -> None:
    values, bad = booleans(pa.array(["true", "False", "TRUE", None, "", "yes"]))
    assert values[:3].tolist() == [1.0, 0.0, 1.0]
    assert np.isnan(values[3:]).all()
    assert bad.tolist() == [False] * 5 + [True]
    assert booleans(pa.array([True, None, False]))[0][[0, 2]].tolist() == [1.0, 0.0]


# -------------------------------------------------------------------------------- times

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
instants = st.datetimes(datetime(1, 1, 3), datetime(9998, 12, 28), timezones=st.one_of(st.none(), zones))


@given(instants, st.sampled_from(["auto", "minutes", "seconds", "microseconds"]), st.sampled_from("T "))
@settings(max_examples=150, deadline=None)
def test_times_are_read_as_python_reads_them(when: datetime, spec: str, parting: str) -> None:
    text = when.isoformat(parting, spec)
    ticks, kind = np.zeros(1, np.int64), np.zeros(1, np.int64)
    moments(*texts(pa.array([f" {text} "])), ticks, kind)
    exact = datetime.fromisoformat(text)
    start = datetime(1970, 1, 1, tzinfo=None if exact.tzinfo is None else timezone.utc)  # noqa: UP017
    assert kind[0] == (NAIVE if exact.tzinfo is None else ZONED)
    assert int(ticks[0]) == (exact - start) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-01-31", NAIVE), ("2013/01/31 05:15", NAIVE), ("2013-01-31T05:15Z", ZONED),
        ("2013-01-31 05:15:09.1234567 UTC", ZONED), ("2013-01-31T05:15+0530", ZONED),
        ("2013-01-31T05:15-05", ZONED),
        ("2012-02-29", NAIVE), ("2013-02-29", BAD), ("1900-02-29", BAD), ("2000-02-29", NAIVE),
        ("2013-13-01", BAD),
        ("2013-00-01", BAD), ("2013-04-31", BAD), ("2013-01-31 24:00", BAD), ("2013-01-31 05:60", BAD),
        ("", NONE),
        ("2013-01-31 05:15:60", BAD), ("2013-01-31X05:15", BAD), ("2013-01/31", BAD), ("20130131", BAD),
        ("2013-01-31 05:15:09.", BAD), ("2013-01-31 05:15 PST", BAD), ("31.01.2013", BAD), ("2013-1-1", BAD),
        ("0000-01-01", BAD), ("2013-01-31 5:15", BAD), ("2013-01-31 05:15:09+05:3", BAD), ("NA", NONE),
    ],
)  # fmt: skip
def test_what_is_no_time_is_not_read_as_one(text: str, expected: int) -> None:
    ticks, kind = np.zeros(1, np.int64), np.zeros(1, np.int64)
    moments(*texts(pa.array([text])), ticks, kind)
    assert kind[0] == expected


def read_when(
    cells: dict[str, Any], columns: tuple[str, ...] = ("at",), zone: str = "UTC", form: str | None = None
) -> Any:
    table = pa.table(cells)
    clock = infer_time_column(table, columns, zone, form)
    return clock, clock.read(table)


@pytest.mark.parametrize(("per", "unit"), [(1, "s"), (1000, "ms"), (10**6, "us"), (10**9, "ns")])
@pytest.mark.parametrize("as_text", [False, True])
def test_epochs_are_told_apart_by_their_size(per: int, unit: str, as_text: bool) -> None:
    values: list[Any] = [1_700_000_000 * per, 1_700_000_001 * per + per // 2]
    clock, times = read_when({"at": [str(value) for value in values] if as_text else values})
    assert clock.form == unit
    half = 0 if per == 1 else 500_000
    assert times.ticks.tolist() == [1_700_000_000_000_000, 1_700_000_001_000_000 + half]
    assert not times.bad.any()


def test_a_time_in_another_unit_is_refused() -> None:
    _, times = read_when({"at": [1_700_000_000, 1_700_000_001, 1_700_000_002_000]})
    assert times.bad.tolist() == [False, False, True]


def test_local_hours_that_do_not_exist_are_shifted_and_repeated_ones_are_the_first() -> None:
    cells = ["2013-03-10 01:30", "2013-03-10 02:30", "2013-11-03 01:30", "2013-11-03 02:30"]
    for column in (cells, pa.array([datetime.fromisoformat(cell) for cell in cells])):
        clock, times = read_when({"at": column}, zone="America/New_York")
        assert clock.form == "local"
        assert times.skipped.tolist() == [False, True, False, False]
        assert times.twice.tolist() == [False, False, True, False]
        utc = [str(np.datetime64(int(tick), "us"))[:16] for tick in times.ticks]
        assert utc == ["2013-03-10T06:30", "2013-03-10T07:30", "2013-11-03T05:30", "2013-11-03T07:30"]


def test_times_of_two_kinds_are_not_mixed() -> None:
    clock, times = read_when({"at": ["2013-01-01T00:00Z", "2013-01-01T01:00Z", "2013-01-01T02:00"]})
    assert clock.form == "zoned"
    assert times.bad.tolist() == [False, False, True]
    clock, times = read_when({"at": ["2013-01-01", "2013-01-02 05:00", "2013-01-01T02:00+01:00", None]})
    assert clock.form == "local"
    assert times.bad.tolist() == [False, False, True, True]
    zoned = pa.array([0, None, 10**6], pa.timestamp("us", "Europe/Paris"))
    clock, times = read_when({"at": zoned}, zone="America/New_York")
    assert times.ticks[[0, 2]].tolist() == [0, 10**6]
    assert times.bad.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("hour", "minutes"),
    [
        (5, 300),
        (5.5, 330),
        ("5", 300),
        ("17:30", 1050),
        ("05:00:30", 300.5),
        ("5.5", 330),
        (24, 1440),
        ("24", 1440),
    ],
)
def test_a_date_and_an_hour_make_a_time(hour: Any, minutes: float) -> None:
    for date in ("2013-01-31", datetime(2013, 1, 31)):
        clock, times = read_when({"d": [date], "h": [hour]}, ("d", "h"), "America/New_York")
        assert clock.form == "date and hour"
        expected = np.datetime64("2013-01-31T05:00", "us") + np.timedelta64(round(minutes * 60_000_000), "us")
        assert times.ticks.tolist() == [expected.astype(int)]
        assert not times.bad.any()


@pytest.mark.parametrize("hour", [-1, 25, "25:00", "17:75", "noon", None])
def test_an_hour_that_is_none_is_refused(hour: Any) -> None:
    _, times = read_when({"d": ["2013-01-31"] * 2, "h": [hour, hour]}, ("d", "h"))
    assert times.bad.all()


def test_any_other_way_of_writing_times_can_be_told() -> None:
    clock, times = read_when({"at": ["31.01.2013 05:15", "nonsense"]}, form="%d.%m.%Y %H:%M")
    assert clock.form == "%d.%m.%Y %H:%M"
    assert times.ticks[0] == np.datetime64("2013-01-31T05:15", "us").astype(int)
    assert times.bad.tolist() == [False, True]


# ------------------------------------------------------------------------------ columns


def test_what_a_column_is_follows_from_its_cells() -> None:
    prose = [f"the wind number {k} blows here" for k in range(20)]
    table = pa.table(
        {
            "at": list(range(10**9, 10**9 + 20)),
            "y": [0, 1] * 10,
            "count": list(range(20)),
            "text numbers": [str(k / 2) for k in range(19)] + ["NA"],
            "flag": [True, False] * 10,
            "text flag": ["true", "false"] * 10,
            "prose": prose,
            "repeated": [prose[k % 2] for k in range(20)],
            "city": ["New York City", "Paris"] * 10,
            "day": ["2013-01-01"] * 20,
            "typed day": [datetime(2013, 1, 1)] * 20,
            "list": [[1]] * 20,
            "empty": [None] * 20,
            "code": ["007", "x9"] * 10,
            "said": list(range(20)),
        }
    )
    columns = infer_schema(table, ColumnRequest(("at",), "y", category=("said",), ignore=("count",)))
    assert columns.kinds == {
        "city": CATEGORY, "code": CATEGORY, "empty": CATEGORY, "flag": BOOLEAN, "prose": TEXT,
        "repeated": CATEGORY,
        "said": CATEGORY, "text flag": BOOLEAN, "text numbers": NUMBER,
    }  # fmt: skip
    assert columns.ignored == {
        "count": "as asked", "day": "a time", "typed day": "a time", "list": "of type list<item: int64>"
    }  # fmt: skip
    assert from_json(to_json(columns), Schema) == columns


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (ColumnRequest(("when",), "y"), "there is no column 'when': the columns are 'at', 'x', 'y'"),
        (ColumnRequest(("at",), "z"), "there is no column 'z'"),
        (ColumnRequest(("at",), "y", number=("w",)), "there is no column 'w'"),
        (ColumnRequest(("at",), "y", ignore=("y",)), "column 'y' is the time or the label"),
        (ColumnRequest(("at",), "y", zone="Mars"), "unknown time zone 'Mars'"),
    ],
)
def test_columns_that_are_not_there_are_named(wish: ColumnRequest, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        infer_schema(pa.table({"at": [1], "x": [2], "y": [3]}), wish)


def test_tidy_rows_are_counted_and_those_that_are_not_are_named() -> None:
    table = pa.table(
        {
            "at": ["2013-01-01", "x", "2013-01-03", "2013-01-04", "2013-01-05", None],
            "n": ["1", "2", "three", "", "5", "6"],
            "y": ["0", "1", "1", "NA", "1", "1"],
        }
    )
    first = infer_schema(
        pa.table({"at": ["2013-01-01"], "n": ["1"], "y": ["0"]}), ColumnRequest(("at",), "y")
    )
    tidy = first.clean(table, np.arange(11, 17))
    assert tidy.row.tolist() == [11, 15]
    assert tidy.labels.tolist() == [0.0, 1.0]
    assert tidy.missing == 1
    assert [row for row, _ in tidy.faults] == [12, 13, 16]
    assert "column 'at': 'x' is not a time without a zone" in tidy.faults[0][1]
    assert "column 'n': 'three' is not a number" in tidy.faults[1][1]
    assert "column 'at': an empty cell is not a time" in tidy.faults[2][1]
