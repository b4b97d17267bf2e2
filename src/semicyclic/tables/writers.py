"""Writers of CSV, JSON lines and Parquet, batch by batch."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from semicyclic.store.atomic import atomic_path


class Writer(Protocol):
    """Writer of a sequence of tables.

    added: names of the columns that were not in the input. lines: the input rows as JSON, if the input was
        JSON lines: they are written unchanged, with the added columns.
    """

    def write(self, table: pa.Table, added: list[str], lines: list[str] | None) -> None: ...


@contextmanager
def open_writer(path: Path | None, kind: str, stdout: IO[bytes]) -> Iterator[Writer]:
    """Open a writer of CSV, JSON lines or Parquet to `path` (atomically), or to `stdout` if it is None."""
    if path is None:
        writer = _TableWriter(stdout, kind)
        yield writer
        writer.close()
        stdout.flush()
        return
    with atomic_path(path) as part, open(part, "wb") as file:
        writer = _TableWriter(file, kind)
        yield writer
        writer.close()


class _TableWriter:
    """Writer of tables with the same schema in one format (`kind`)."""

    def __init__(self, file: IO[bytes], kind: str) -> None:
        self.file, self.kind = file, kind
        self.writer: Any = None
        self.schema: Any = None

    def write(self, table: pa.Table, added: list[str], lines: list[str] | None) -> None:
        if self.kind == "jsonl":
            self._write_lines(table, added, lines)
            return
        first = self.schema is None
        if first:
            self.schema = table.schema
            if self.kind == "parquet":
                # Numbers rarely repeat, so dictionary encoding would not pay off.
                texts = [field.name for field in self.schema if pa.types.is_string(field.type)]
                self.writer = pq.ParquetWriter(self.file, self.schema, use_dictionary=texts or False)
        table = self._match_schema(table)
        if self.kind == "parquet":
            self.writer.write_table(table)
        else:
            self.file.write(_csv_bytes(table, header=first))

    def _match_schema(self, table: Any) -> Any:
        if table.schema.equals(self.schema):
            return table
        extra = sorted(set(table.column_names) - set(self.schema.names))
        if extra:
            raise ValueError(
                f"the column {extra[0]!r} is not in the first rows: write JSON lines (out='F.jsonl')"
            )
        columns = [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def _write_lines(self, table: pa.Table, added: list[str], lines: list[str] | None) -> None:
        if lines is None:
            rows = table.to_pylist()
        else:
            additions = table.select(added).to_pylist()
            rows = [json.loads(line) | new for line, new in zip(lines, additions, strict=True)]
        for row in rows:
            try:
                text = json.dumps(row, default=str, ensure_ascii=False, allow_nan=False)
            except ValueError:
                text = json.dumps(_replace_nonfinite(row), default=str, ensure_ascii=False)
            self.file.write(text.encode() + b"\n")

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _replace_nonfinite(value: Any) -> Any:
    """Replace numbers that are not finite, which JSON cannot represent, by None."""
    if isinstance(value, dict):
        return {name: _replace_nonfinite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _csv_bytes(table: Any, *, header: bool) -> Any:
    """Return a table as CSV bytes, quoted only if a cell needs quotes."""
    for style in ("none", "needed"):
        buffer = pa.BufferOutputStream()
        options = arrow_csv.WriteOptions(include_header=header, quoting_style=style, quoting_header=style)
        try:
            arrow_csv.write_csv(table, buffer, options)
            return buffer.getvalue()
        except pa.ArrowInvalid:
            if style == "needed":
                raise
    raise AssertionError
