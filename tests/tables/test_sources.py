"""Files, cut anywhere, and rows put in order."""

import csv
import gzip
import io
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semicyclic.store.json_codec import from_json, to_json
from semicyclic.tables import byte_stream
from semicyclic.tables.sources import ReadPosition, Sources
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.tables.watermark import LatePolicy, WaitingRows, Watermark, concat_waiting
from tests.tables.small_tables import WRITERS, rows_of, write_csv, write_jsonl

cell = st.text(alphabet='ab,"\n\r é;|', max_size=6)


def read_all(
    inputs: Sources, mark: ReadPosition | None = None
) -> tuple[list[dict[str, Any]], list[int], list[Any]]:
    """All rows as texts, their numbers, and what was refused."""
    found: list[dict[str, Any]] = []
    numbers: list[int] = []
    faults: list[Any] = []
    for part in inputs.parts(mark or ReadPosition()):
        found += part.batch.table.to_pylist()
        numbers += part.batch.row.tolist()
        faults += part.batch.faults
    return found, numbers, faults


@given(st.lists(st.lists(cell, min_size=2, max_size=2), max_size=8), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_csv_is_read_as_python_reads_it_wherever_it_is_cut(table: list[list[str]], size: int) -> None:
    text = io.StringIO()
    # A bare carriage return ends a row, unless it is quoted.
    quoting: Any = csv.QUOTE_ALL if any("\r" in cell for row in table for cell in row) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator="\n", quoting=quoting).writerows([["one", "two"], *table])
    data = text.getvalue().encode()
    expected = list(csv.reader(io.StringIO(text.getvalue(), newline="")))[1:]
    kept = byte_stream.READ_BYTES
    try:
        byte_stream.READ_BYTES = size
        found, numbers, faults = read_all(Sources(["-"], stdin=io.BytesIO(data)))
    finally:
        byte_stream.READ_BYTES = kept
    assert [[row["one"], row["two"]] for row in found] == expected
    assert numbers == list(range(1, len(expected) + 1))
    assert faults == []


def test_a_quote_within_a_cell_opens_nothing() -> None:
    data = b'a,b\n5" pipe,x\n6" pipe,"y\nz"\n'
    found, _, _ = read_all(Sources(["-"], stdin=io.BytesIO(data)))
    assert found == [{"a": '5" pipe', "b": "x"}, {"a": '6" pipe', "b": "y\nz"}]


def test_a_quote_that_never_closes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_stream, "MAX_RECORD_BYTES", 100)
    monkeypatch.setattr(byte_stream, "READ_BYTES", 64)
    data = b'a,b\n1,"x' + b"\ny" * 200
    with pytest.raises(ValueError, match="a quote is opened there that never closes"):
        read_all(Sources(["-"], stdin=io.BytesIO(data)))


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_line_ends_and_marks_of_order_are_understood(tmp_path: Path, mark: str, end: str) -> None:
    lines = [mark.join(["at", "x y", "y"]), mark.join(["1", "2.5", "no"]), mark.join(["2", '"a, b"', "yes"])]
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
    found, _, _ = read_all(Sources([path]))
    assert found == [{"at": "1", "x y": "2.5", "y": "no"}, {"at": "2", "x y": "a, b", "y": "yes"}]


def test_rows_of_the_wrong_length_are_numbered_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n\n6,7,8\n9,10\n")
    found, numbers, faults = read_all(Sources([path]))
    assert [row["a"] for row in found] == ["1", "4", "9"]
    assert numbers == [1, 3, 5]
    assert faults == [(2, "it has 1 cells, the header 2"), (4, "it has 3 cells, the header 2")]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"a,a\n1,2\n", "names the column 'a' twice"),
        (b"a,b\n\xff,2\n", "try encoding='latin-1'"),
        (b"\xff\xfe,b\n1,2\n", "the header cannot be read as utf-8"),
    ],
)
def test_a_csv_file_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=sentence) as told:
        read_all(Sources([path]))
    assert "rows.csv" in str(told.value)


def test_other_encodings_can_be_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("a,ü\n1,é\n".encode("latin-1"))
    found, _, _ = read_all(Sources([path], FormatOptions(encoding="latin-1")))
    assert found == [{"a": "1", "ü": "é"}]


def test_lines_that_are_no_objects_are_refused() -> None:
    data = b'{"a": 1, "b": [1, {"c": 2}]}\n[1]\n{"a": tr}\n\n{"b": true, "a": 1.50}\n{"a": NaN}\n'
    found, numbers, faults = read_all(Sources(["-"], FormatOptions(format="jsonl"), stdin=io.BytesIO(data)))
    assert found == [
        {"a": "1", "b": None},
        {"a": "1.50", "b": "true"},
        {"a": "NaN", "b": None},
    ]
    assert numbers == [1, 4, 5]
    assert [row for row, _ in faults] == [2, 3]


def test_files_and_folders_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    rows = rows_of(30)
    (tmp_path / "in").mkdir()
    write_csv(tmp_path / "in" / "b.csv", rows[10:20])
    write_jsonl(tmp_path / "in" / "a.jsonl", rows[:10])
    (tmp_path / "in" / "README").write_text("not data")
    (tmp_path / "in" / ".hidden.csv").write_text("not data")
    with gzip.open(tmp_path / "c.csv.gz", "wb") as file:
        file.write(write_csv(tmp_path / "c.csv", rows[20:]).read_bytes())
    inputs = Sources([tmp_path / "in", tmp_path / "c.csv.gz"])
    assert [inputs.name(k) for k in range(3)] == ["a.jsonl", "b.csv", "c.csv.gz"]
    found, _, _ = read_all(inputs)
    assert [row["at"] for row in found] == [str(row["at"]) for row in rows]


@pytest.mark.parametrize("what", ["nothing", "folder", "name"])
def test_inputs_that_are_not_there_are_named(tmp_path: Path, what: str) -> None:
    if what == "nothing":
        with pytest.raises(FileNotFoundError, match=r"none\.csv: there is no such file or folder"):
            Sources([tmp_path / "none.csv"])
    elif what == "folder":
        with pytest.raises(ValueError, match="there are no files to read"):
            Sources([tmp_path])
    else:
        (tmp_path / "rows.dat").write_text("a\n1\n")
        with pytest.raises(ValueError, match="the name does not show the format: give format="):
            read_all(Sources([tmp_path / "rows.dat"]))


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(ValueError, match=r"rows\.parquet: not a Parquet file, or a damaged one"):
        read_all(Sources([path]))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "csv.gz"])
def test_reading_goes_on_from_every_mark(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_stream, "READ_BYTES", 300)
    monkeypatch.setattr(byte_stream, "HEAD_BYTES", 200)
    monkeypatch.setattr("semicyclic.tables.formats.HEAD_BYTES", 200)
    rows = rows_of(60)
    path = tmp_path / f"rows.{form.removesuffix('.gz')}"
    WRITERS[form.removesuffix(".gz")](path, rows[:40])
    if form.endswith("gz"):
        path = tmp_path / "rows.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / "rows.csv").read_bytes()))
    last = write_csv(tmp_path / "z.csv", rows[40:])
    options = FormatOptions(batch=7)
    parts = list(Sources([path, last], options).parts(ReadPosition()))
    assert len(parts) > 5
    whole = [row["at"] for part in parts for row in part.batch.table.to_pylist()]
    assert len(whole) == 60
    for number, part in enumerate(parts):
        mark = from_json(json.loads(json.dumps(to_json(part.position))), ReadPosition)
        rest, _, _ = read_all(Sources([path, last], options), mark)
        done = sum(each.batch.table.num_rows for each in parts[: number + 1])
        assert [row["at"] for row in rest] == whole[done:]


@pytest.mark.parametrize("change", ["shrunk", "beginning", "before the place", "gone"])
def test_an_input_that_has_changed_is_refused(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_stream, "READ_BYTES", 2000)
    monkeypatch.setattr(byte_stream, "HEAD_BYTES", 500)
    monkeypatch.setattr("semicyclic.tables.formats.HEAD_BYTES", 500)
    monkeypatch.setattr(byte_stream, "TAIL_BYTES", 100)
    monkeypatch.setattr("semicyclic.tables.formats.TAIL_BYTES", 100)
    path = write_csv(tmp_path / "a.csv", rows_of(200))
    other = write_csv(tmp_path / "b.csv", rows_of(100))
    data = path.read_bytes()
    inside = list(Sources([path, other]).parts(ReadPosition()))[3].position
    place = inside.places[0].offset
    beyond = list(Sources([path, other]).parts(ReadPosition()))[-2].position
    assert len(beyond.places) == 2
    if change == "shrunk":
        path.write_bytes(data[: place - 10])
    elif change == "beginning":
        path.write_bytes(b"b" + data[1:])
    elif change == "before the place":
        for mark in (inside, beyond):
            at = mark.places[0].offset
            path.write_bytes(data[: at - 5] + b"#" + data[at - 4 :])
            with pytest.raises(ValueError, match="its bytes differ"):
                read_all(Sources([path, other]), mark)
        return
    else:
        path.unlink()
        path.mkdir()
        return
    for mark in (inside, beyond):
        with pytest.raises(ValueError, match=r"shrank|its bytes differ"):
            read_all(Sources([path, other]), mark)


def test_a_file_that_grows_is_followed_line_by_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,")
    inputs = Sources([path], follow=True, pause=0.01)
    parts = inputs.parts(ReadPosition())
    assert next(parts).batch.table.to_pylist() == [{"a": "1", "b": "x"}]

    def grow() -> Iterator[str]:
        yield "y"
        yield '\n3,"z\n'
        yield 'z"\n'

    def writer() -> None:
        for text in grow():
            time.sleep(0.05)
            with open(path, "a") as file:
                file.write(text)

    thread = threading.Thread(target=writer)
    thread.start()
    assert next(parts).batch.table.to_pylist() == [{"a": "2", "b": "y"}]
    assert next(parts).batch.table.to_pylist() == [{"a": "3", "b": "z\nz"}]
    thread.join()
    with open(path, "w") as file:
        file.write("a,b\n")
    with pytest.raises(ValueError, match="the file shrank"):
        next(parts)


def test_a_folder_is_followed_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a\n1\n2")
    inputs = Sources([tmp_path], follow=True, pause=0.01)
    parts = inputs.parts(ReadPosition())
    assert next(parts).batch.table.to_pylist() == [{"a": "1"}]
    (tmp_path / "2.csv").write_text("a\n3\n")
    assert next(parts).batch.table.to_pylist() == [{"a": "2"}]
    assert next(parts).batch.table.to_pylist() == [{"a": "3"}]
    (tmp_path / "0.csv").write_text("a\n0\n")
    with pytest.raises(ValueError, match="new ones must sort after them"):
        next(parts)


# ------------------------------------------------------------------------------- order


def held(ticks: list[int], first: int = 0) -> WaitingRows:
    array = np.array(ticks, np.int64)
    number = np.arange(first, first + len(ticks))
    table = pa.table({"n": number})
    return WaitingRows(table, array, array, number.astype(float), number, number)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=30),
    st.integers(0, 8),
    st.booleans(),
    st.lists(st.integers(0, 30), max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_rows_come_out_sorted_whatever_parts_they_came_in(
    ticks: list[int], lateness: int, use: bool, cuts: list[int]
) -> None:
    """Late by the row-by-row definition; all others stably sorted; late ones where the stream has got to."""
    newest, expected, refused, used, worst = -(10**9), [], 0, 0, 0
    for number, tick in enumerate(ticks):
        if newest - tick > lateness:
            worst = max(worst, newest - tick)
            refused += not use
            used += use
            if use:
                expected.append((newest - lateness, number))
        else:
            expected.append((tick, number))
        newest = max(newest, tick)
    order = Watermark(lateness, LatePolicy.KEEP if use else LatePolicy.DROP)
    out: list[int] = []
    bounds = [0, *sorted(min(cut, len(ticks)) for cut in cuts), len(ticks)]
    for low, high in pairwise(bounds):
        order, ready = order.add(held(ticks[low:high], low))
        assert (ready.key <= order.newest - lateness).all()
        out += ready.label.tolist()
        assert ready.table.column("n").to_pylist() == ready.label.tolist()
    order, rest = order.end()
    out += [] if rest is None else rest.label.tolist()
    assert out == [number for _, number in sorted(expected)]
    assert order.late.dropped == refused
    assert order.late.kept == used
    assert order.late.worst == worst


def test_joined_parts_are_one_after_another() -> None:
    whole = concat_waiting([held([1, 2]), held([], 2), held([5], 2)])
    assert whole.label.tolist() == [0, 1, 2]
    assert whole.table.num_rows == 3
