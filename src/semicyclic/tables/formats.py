"""Readers of CSV, JSON lines and Parquet files in batches of numbered rows."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semicyclic.tables.arrow import as_text
from semicyclic.tables.byte_stream import HEAD_BYTES, TAIL_BYTES, ByteStream, Wait, blocks
from semicyclic.tables.text_formats import FormatOptions, csv_rows, header, json_rows
from semicyclic.types import Array

SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
}  # fmt: skip
BOM = b"\xef\xbb\xbf"


class FilePosition(NamedTuple):
    """Read position in a file: byte offset (row number for Parquet) and number of rows read."""

    offset: int = 0
    row: int = 0


class TableBatch(NamedTuple):
    """A batch of rows.

    row: row numbers in the file, from 1. faults: (row number, message) of rows that could not be parsed.
    place: position after the batch. fingerprint: that of the file up to `place`.
    """

    table: Any
    row: Array
    faults: list[tuple[int, str]]
    place: FilePosition
    fingerprint: str
    # Share of the file read up to here; 0 if unknown.
    share: float = 0.0
    # True if an absent column counts as missing values (a key that no JSON object has), not as an error.
    lenient: bool = False
    # The text of each row, for JSON lines.
    lines: list[str] | None = None


def concat_tables(tables: list[Any]) -> Any:
    """Concatenate tables of several files; a column with several types becomes strings."""
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
    """Return csv, jsonl or parquet: the requested format, or else the one of the file name."""
    if options.format is not None:
        return options.format
    by_name = format_by_name(path)
    if by_name is None:
        raise ValueError(f"{path}: the name does not show the format: give format= (csv, jsonl or parquet)")
    return by_name


def format_by_name(path: Path) -> str | None:
    """Return the format of a file by its suffix (ignoring .gz), or None if it is unknown."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def open_table(
    path: Path | None,
    position: FilePosition,
    known: str | None,
    options: FormatOptions,
    *,
    wait: Wait,
    stdin: IO[bytes] | None,
) -> Iterator[TableBatch]:
    """Yield the rows of a file from a position on.

    path: the file, or None for standard input. known: fingerprint that the file must have at `position`.
    """
    if path is not None and format_of(path, options) == "parquet":
        yield from _read_parquet(path, position, known, options)
        return
    stream = ByteStream(path, stdin)
    try:
        yield from _read_records(stream, position, known, options, wait)
    except ValueError as error:
        message = str(error)
        raise ValueError(
            message if message.startswith(stream.name) else f"{stream.name}: {message}"
        ) from None
    finally:
        stream.close()


def check_fingerprint(path: Path, position: FilePosition, known: str, options: FormatOptions) -> None:
    """Raise if the bytes of a file up to `position` differ from those read before."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file was read before but no longer exists")
    if format_of(path, options) == "parquet":
        same = _parquet_fingerprint(path) == known
    elif position.offset == 0:
        return
    else:
        stream = ByteStream(path)
        try:
            first = stream.read(min(HEAD_BYTES, position.offset))
            while len(first) < min(HEAD_BYTES, position.offset) and (
                more := stream.read(HEAD_BYTES - len(first))
            ):
                first += more
            stream.skip(position.offset)
            same = _fingerprint(stream.head, position.offset, stream.tail) == known
        finally:
            stream.close()
    if not same:
        raise ValueError(f"{path}: the file changed since the run began: its bytes differ")


def _read_records(
    stream: ByteStream, position: FilePosition, known: str | None, options: FormatOptions, wait: Wait
) -> Iterator[TableBatch]:
    """Read CSV, with the column names in the first line, or JSON lines."""
    first = _first_bytes(stream, wait)
    file_format = options.format
    if file_format is None:
        file_format = "csv" if stream.path is None else format_of(stream.path, options)
        if stream.path is None and first.lstrip()[:1] == b"{":
            file_format = "jsonl"
    bom_size = len(BOM) if first.startswith(BOM) else 0
    names: list[str] = []
    delimiter, begin = ",", bom_size
    if file_format == "csv":
        end = first.find(b"\n")
        begin = len(first) if end < 0 else end + 1
        names, delimiter = header(first[bom_size:begin], options)
    before, rest = first[:begin], first[begin:]
    if position.offset:
        if position.offset > stream.size:
            stream.skip(position.offset)
        rest = first[position.offset :]
        before = stream.tail if position.offset >= len(first) else first[: position.offset]
        if known is not None and _fingerprint(stream.head, position.offset, before[-TAIL_BYTES:]) != known:
            raise ValueError(f"{stream.name}: the file changed since the run began: its bytes differ")
        if not before.endswith(b"\n"):
            rest = rest or stream.read(HEAD_BYTES)
            if rest and rest[:1] not in (b"\n", b"\r"):
                raise ValueError("its last line was incomplete when it was read before: start a new run")
    row = position.row
    for data, offset, tail in blocks(
        stream, before, rest, wait, delimiter=ord(delimiter), quoted=file_format == "csv"
    ):
        lines: list[str] | None = None
        if file_format == "csv":
            table, numbers, faults, row = csv_rows(data, names, delimiter, row, options)
        else:
            table, numbers, faults, row, lines = json_rows(data, row, options)
        fingerprint = _fingerprint(stream.head, offset, tail)
        plain = stream.path is not None and not stream.zipped
        share = offset / max(stream.path.stat().st_size, 1) if plain and stream.path else 0.0
        yield TableBatch(
            table,
            numbers,
            faults,
            FilePosition(offset, row),
            fingerprint,
            share,
            file_format == "jsonl",
            lines,
        )


def _first_bytes(stream: ByteStream, wait: Wait) -> bytes:
    """Read the first bytes, including the complete first line."""
    first = b""
    while b"\n" not in first:
        new = stream.read(HEAD_BYTES)
        if not new and not wait():
            break
        first += new
    return first


def _fingerprint(head: bytes, offset: int, tail: bytes) -> str:
    """Hash that identifies a file up to `offset`, from its first bytes and the last ones before `offset`."""
    return hashlib.sha256(b"%s|%d|%s" % (head[:offset], offset, tail)).hexdigest()


def _read_parquet(
    path: Path, position: FilePosition, known: str | None, options: FormatOptions
) -> Iterator[TableBatch]:
    fingerprint = _parquet_fingerprint(path)
    if known is not None and fingerprint != known:
        raise ValueError(f"{path}: the file changed since the run began")
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            row, total = 0, max(file.metadata.num_rows, 1)
            names = [name for name in file.schema_arrow.names if name not in options.ignore]
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if row + size <= position.row:
                    row += size
                    continue
                for batch in file.iter_batches(
                    options.batch, row_groups=[group], columns=names, use_threads=True
                ):
                    part, first = pa.Table.from_batches([batch]), row
                    row += len(batch)
                    if row <= position.row:
                        continue
                    if first < position.row:
                        part, first = part.slice(position.row - first), position.row
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
    """Hash of the file size and the last bytes; a Parquet file ends with its metadata."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - HEAD_BYTES, 0))
        return hashlib.sha256(file.read() + b"|%d" % size).hexdigest()
