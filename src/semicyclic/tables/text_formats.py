"""Parsers of CSV and JSON lines: blocks of bytes to numbered rows of strings."""

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

# Rows per batch of a Parquet file.
BATCH_ROWS = 1 << 15
DELIMITERS = ",\t;|"


class FormatOptions(NamedTuple):
    """File reading options.

    format: csv, jsonl or parquet; by default it follows from the file name. ignore: columns to leave out.
    batch: rows per batch of a Parquet file.
    """

    format: str | None = None
    encoding: str = "utf-8"
    ignore: tuple[str, ...] = ()
    batch: int = BATCH_ROWS


def header(line: bytes, options: FormatOptions) -> tuple[list[str], str]:
    """Return the column names and the delimiter of a CSV header line."""
    try:
        text = line.decode(options.encoding).rstrip("\r\n")
    except (UnicodeDecodeError, LookupError) as error:
        raise ValueError(
            f"the header cannot be read as {options.encoding}: {error}; give encoding="
        ) from None
    if not text.strip():
        raise ValueError("the file is empty: its first line must name the columns")
    delimiter = max(DELIMITERS, key=text.count)
    parse_options = arrow_csv.ParseOptions(delimiter=delimiter)
    parsed = arrow_csv.read_csv(
        pa.BufferReader((text + "\n").encode()),
        read_options=arrow_csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=parse_options,
        convert_options=arrow_csv.ConvertOptions(null_values=[], true_values=[], false_values=[]),
    )
    names = [str(parsed.column(at)[0].as_py()) for at in range(parsed.num_columns)]
    duplicate = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if duplicate is not None:
        raise ValueError(f"the header names the column {duplicate!r} twice")
    return names, delimiter


def csv_rows(data: bytes, names: list[str], delimiter: str, row: int, options: FormatOptions) -> Any:
    """Parse a block of CSV into a table of strings.

    row: number of rows before the block. Returns the table, its row numbers, the faults as (row number,
    message), and the number of rows up to the end of the block.
    """
    faults: list[tuple[int, str]] = []

    def refuse(bad: Any) -> str:
        faults.append((bad.number, f"it has {bad.actual_columns} cells, the header {bad.expected_columns}"))
        return "skip"

    kept = [name for name in names if name not in options.ignore]
    try:
        # Validated here, because Arrow reports invalid bytes in several ways, not all as exceptions.
        text = data.decode(options.encoding)
    except UnicodeDecodeError as error:
        near = row + 1 + data.count(b"\n", 0, error.start)
        raise ValueError(f"near row {near:,}: not valid {options.encoding}: try encoding='latin-1'") from None
    if options.encoding.lower() not in ("utf-8", "utf8"):
        data = text.encode()
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=max(len(data), 1)
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                include_columns=kept,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"after row {row}: {error}") from None
    if delimiter == ";":
        # In semicolon-separated files, a comma between digits is a decimal point.
        for at, name in enumerate(table.column_names):
            plain = pc.replace_substring_regex(table.column(name), r"^([+-]?[0-9]+),([0-9]+)$", r"\1.\2")
            table = table.set_column(at, name, plain)
    count = table.num_rows + len(faults)
    numbers = np.arange(row + 1, row + 1 + count)
    if faults:
        numbers = np.delete(numbers, [number - 1 for number, _ in faults])
    return table, numbers, [(row + number, what) for number, what in faults], row + count


def json_rows(data: bytes, row: int, options: FormatOptions) -> Any:
    """Parse a block of JSON lines; returns the same as `csv_rows`, and the text of each row."""
    columns: dict[str, list[str | None]] = {}
    numbers: list[int] = []
    faults: list[tuple[int, str]] = []
    lines: list[str] = []
    nested: set[str] = set()
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        row += 1
        try:
            text = line.decode(options.encoding)
            value = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
            text.encode()  # raises for a lone surrogate
        except (ValueError, RecursionError) as error:
            faults.append((row, f"not JSON: {error}"))
            continue
        if not isinstance(value, dict):
            faults.append((row, 'not a JSON object, such as {"when": ..., "label": ...}'))
            continue
        for name, cell in value.items():
            if name not in options.ignore:
                if isinstance(cell, dict | list):
                    nested.add(name)
                    cell = None
                column = columns.setdefault(name, [])
                column.extend([None] * (len(numbers) - len(column)))
                column.append(_as_text(cell))
        numbers.append(row)
        lines.append(text)
    for column in columns.values():
        column.extend([None] * (len(numbers) - len(column)))
    if numbers and not columns:
        columns[""] = [None] * len(numbers)  # a table without columns would have no rows
    # Lists and objects cannot be features: a column of only these gets a list type, which marks it as such.
    only_nested = {name for name in nested if all(cell is None for cell in columns[name])}
    types = {name: pa.list_(pa.string()) if name in only_nested else pa.string() for name in columns}
    table = pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})
    return table, np.array(numbers, np.int64), faults, row, lines


def _as_text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return json.dumps(cell, sort_keys=True)
