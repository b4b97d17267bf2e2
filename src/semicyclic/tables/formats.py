"""File formats: CSV, JSON lines and Parquet as numbered batches of rows."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semicyclic.tables.arrow import as_text
from semicyclic.tables.byte_stream import HEAD, TAIL, ByteStream, Wait, blocks
from semicyclic.tables.text_formats import FormatOptions, csv_rows, header, json_rows
from semicyclic.types import Array

SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
}  # fmt: skip
BOM = b"\xef\xbb\xbf"


class FilePosition(NamedTuple):
    """How far a file was read: bytes of texts (rows of Parquet), and rows."""

    offset: int = 0
    row: int = 0


class TableBatch(NamedTuple):
    """Some rows, numbered from 1; the rows that are no rows; and the place after them."""

    table: Any
    row: Array
    faults: list[tuple[int, str]]
    place: FilePosition
    fingerprint: str
    # How much of the file was read by then, where that is known.
    share: float = 0.0
    # Whether a column that is not there has missing values, as a key that a JSON object lacks.
    lenient: bool = False
    # The objects themselves, of JSON lines.
    lines: list[str] | None = None


def concat_tables(tables: list[Any]) -> Any:
    """Tables of several files as one; a column that is of several types becomes texts."""
    types: dict[str, set[Any]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    mixed = [name for name, kinds in types.items() if len(kinds) > 1]
    alike = []
    for table in tables:
        for name in mixed:
            if name in table.column_names:
                at = table.column_names.index(name)
                table = table.set_column(at, name, as_text(table.column(name).combine_chunks()))
        alike.append(table)
    return pa.concat_tables(alike, promote_options="default").combine_chunks()


def format_of(path: Path, options: FormatOptions) -> str:
    """csv, jsonl or parquet, as asked or by the file's name."""
    if options.format is not None:
        return options.format
    found = format_by_name(path)
    if found is None:
        raise ValueError(f"{path}: cannot tell its format by its name: say --format csv, jsonl or parquet")
    return found


def format_by_name(path: Path) -> str | None:
    """The format that a file's name tells, zipped or not."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def open_table(
    path: Path | None,
    place: FilePosition,
    known: str | None,
    options: FormatOptions,
    *,
    wait: Wait,
    stdin: IO[bytes] | None,
) -> Iterator[TableBatch]:
    """The rows of a file from a place on; `known` is the fingerprint it had there.

    path: None is standard input.
    """
    if path is not None and format_of(path, options) == "parquet":
        yield from _parquet(path, place, known, options)
        return
    stream = ByteStream(path, stdin)
    try:
        yield from _records(stream, place, known, options, wait)
    except ValueError as error:
        told = str(error)
        raise ValueError(told if told.startswith(stream.name) else f"{stream.name}: {told}") from None
    finally:
        stream.close()


def check_fingerprint(path: Path, place: FilePosition, known: str, options: FormatOptions) -> None:
    """Refuse a file that is not, up to a place, the one that was read before."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: it was read before, and is gone")
    if format_of(path, options) == "parquet":
        same = _parquet_fingerprint(path) == known
    elif place.offset == 0:
        return
    else:
        stream = ByteStream(path)
        try:
            first = stream.read(min(HEAD, place.offset))
            while len(first) < min(HEAD, place.offset) and (more := stream.read(HEAD - len(first))):
                first += more
            stream.skip(place.offset)
            same = _fingerprint(stream.head, place.offset, stream.tail) == known
        finally:
            stream.close()
    if not same:
        raise ValueError(f"{path}: it is not what it was when the run began: its bytes differ")


def _records(
    stream: ByteStream, place: FilePosition, known: str | None, options: FormatOptions, wait: Wait
) -> Iterator[TableBatch]:
    """CSV, of which the first line names the columns, or JSON lines."""
    first = _first_bytes(stream, wait)
    kind = options.format
    if kind is None:
        kind = "csv" if stream.path is None else format_of(stream.path, options)
        if stream.path is None and first.lstrip()[:1] == b"{":
            kind = "jsonl"
    mark = len(BOM) if first.startswith(BOM) else 0
    names: list[str] = []
    delimiter, begin = ",", mark
    if kind == "csv":
        end = first.find(b"\n")
        begin = len(first) if end < 0 else end + 1
        names, delimiter = header(first[mark:begin], options)
    before, rest = first[:begin], first[begin:]
    if place.offset:
        if place.offset > stream.size:
            stream.skip(place.offset)
        rest = first[place.offset :]
        before = stream.tail if place.offset >= len(first) else first[: place.offset]
        if known is not None and _fingerprint(stream.head, place.offset, before[-TAIL:]) != known:
            raise ValueError(f"{stream.name}: it is not what it was when the run began: its bytes differ")
        if not before.endswith(b"\n"):
            rest = rest or stream.read(HEAD)
            if rest and rest[:1] not in (b"\n", b"\r"):
                raise ValueError("its last line was learnt from before it was whole: start again")
    row = place.row
    for data, offset, tail in blocks(
        stream, before, rest, wait, delimiter=ord(delimiter), quoted=kind == "csv"
    ):
        lines: list[str] | None = None
        if kind == "csv":
            table, numbers, faults, row = csv_rows(data, names, delimiter, row, options)
        else:
            table, numbers, faults, row, lines = json_rows(data, row, options)
        fingerprint = _fingerprint(stream.head, offset, tail)
        plain = stream.path is not None and not stream.zipped
        share = offset / max(stream.path.stat().st_size, 1) if plain and stream.path else 0.0
        yield TableBatch(
            table, numbers, faults, FilePosition(offset, row), fingerprint, share, kind == "jsonl", lines
        )


def _first_bytes(stream: ByteStream, wait: Wait) -> bytes:
    """The first bytes, with the first line whole."""
    first = b""
    while b"\n" not in first:
        new = stream.read(HEAD)
        if not new and not wait():
            break
        first += new
    return first


def _fingerprint(head: bytes, offset: int, tail: bytes) -> str:
    """By what a file is known again: its first bytes, and the last before a place."""
    return hashlib.sha256(b"%s|%d|%s" % (head[:offset], offset, tail)).hexdigest()


def _parquet(
    path: Path, place: FilePosition, known: str | None, options: FormatOptions
) -> Iterator[TableBatch]:
    fingerprint = _parquet_fingerprint(path)
    if known is not None and fingerprint != known:
        raise ValueError(f"{path}: it is not the file that it was when the run began")
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            row, total = 0, max(file.metadata.num_rows, 1)
            names = [name for name in file.schema_arrow.names if name not in options.ignore]
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if row + size <= place.row:
                    row += size
                    continue
                for batch in file.iter_batches(
                    options.batch, row_groups=[group], columns=names, use_threads=True
                ):
                    part, first = pa.Table.from_batches([batch]), row
                    row += len(batch)
                    if row <= place.row:
                        continue
                    if first < place.row:
                        part, first = part.slice(place.row - first), place.row
                    yield TableBatch(
                        part,
                        np.arange(first + 1, row + 1),
                        [],
                        FilePosition(row, row),
                        fingerprint,
                        row / total,
                    )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(f"{path}: not a Parquet file, or a damaged one ({str(error)[:200]})") from None


def _parquet_fingerprint(path: Path) -> str:
    """A Parquet file ends with its description, so its last bytes tell it from others."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - HEAD, 0))
        return hashlib.sha256(file.read() + b"|%d" % size).hexdigest()
