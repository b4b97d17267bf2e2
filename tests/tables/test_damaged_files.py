"""Files that were damaged: an error with a sentence, or rows that add up."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.sources import ReadPosition, Sources
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.tables.watermark import LatePolicy
from semicyclic.training.config import TrainConfig
from semicyclic.training.reader import Reader, open_stream
from tests.tables.small_tables import rows_of, write

JOB = TrainConfig(
    ColumnRequest(("at",), "y"),
    sc.Schedule.daily(6),
    bits=8,
    sample_rows=40,
    skip_errors=True,
    lateness=10**9,
    late=LatePolicy.KEEP,
)
PIECES = st.sampled_from(
    [
        b"",
        b",",
        b"\n",
        b"\r\n",
        b";",
        b"\x00",
        b"\xff",
        b"1e999",
        b"nan",
        b"{",
        b"}",
        b"[",
        b"null",
        b"-",
        b"  ",
        b"\xe2\x82",
        b"a,b",
    ]
)
changes = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), PIECES), min_size=1, max_size=4)


def damaged(data: bytes, how: list[tuple[float, int, bytes]], keep: int = 0) -> bytes:
    """Some bytes cut out and others put in their place; the first `keep` stay."""
    for share, count, piece in how:
        at = keep + int(share * (len(data) - keep))
        data = data[:at] + piece + data[at + count :]
    return data


def count(files: list[Any], options: FormatOptions) -> tuple[int, int, int]:
    """Rows read, rows that reached a chunk, and all that were left out; whatever the rows are."""
    inputs = Sources(files, options)
    parts = list(inputs.parts(ReadPosition()))
    reader = Reader(
        JOB, inputs.name, first := open_stream(JOB, parts, inputs.name), FeatureNames.of(first.features)
    )
    trained = sum(len(chunk.arrived.rows) for chunk in reader.chunks(iter(parts)))
    last = reader.rest()
    trained += 0 if last is None else len(last.arrived.rows)
    counts = reader.state.counts
    return counts.read, trained, counts.refused + counts.unlabelled + reader.state.late.dropped


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@given(how=changes)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_give_a_sentence_or_rows_that_add_up(
    form: str, how: list[tuple[float, int, bytes]], tmp_path: Path
) -> None:
    path = write(tmp_path, rows_of(60), form)
    path.write_bytes(damaged(path.read_bytes(), how))
    try:
        read, trained, left_out = count([path], FormatOptions(batch=9))
    except ValueError:
        return  # a sentence, as the command line prints it
    assert read == trained + left_out


@given(how=changes)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_row_of_a_damaged_file_is_lost(how: list[tuple[float, int, bytes]], tmp_path: Path) -> None:
    """By Python's own count of its rows: those with the wrong number of cells count too."""
    rows = [{**row, "kind": "a", "note": "some words here"} for row in rows_of(60)]
    data = write(tmp_path, rows).read_bytes()
    data = damaged(data, [each for each in how if b"\r" not in each[2]], keep=data.index(b"\n") + 1)
    (tmp_path / "rows.csv").write_bytes(data)
    expected = sum(1 for row in csv.reader(io.StringIO(data.decode("latin-1"), newline="")) if row) - 1
    try:
        read, _, _ = count([tmp_path / "rows.csv"], FormatOptions(encoding="latin-1"))
    except ValueError:
        return
    assert read == expected


@given(how=changes)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_line_of_damaged_json_is_lost(how: list[tuple[float, int, bytes]], tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(60), "jsonl")
    data = damaged(path.read_bytes(), how)
    path.write_bytes(data)
    lines = [line for line in data.split(b"\n") if line.strip()]
    fine = 0
    for line in lines:
        try:
            fine += isinstance(json.loads(line.decode()), dict)
        except ValueError:
            continue
    try:
        read, trained, _ = count([path], FormatOptions())
    except ValueError:
        return
    assert read == len(lines)
    assert trained <= fine


def test_the_rows_that_reach_a_chunk_are_those_of_the_file(tmp_path: Path) -> None:
    assert count([write(tmp_path, rows_of(200))], FormatOptions()) == (200, 200, 0)
