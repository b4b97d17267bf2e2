"""CSV and JSON lines: parsing of byte blocks into numbered rows of text."""

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

BATCH = 1 << 15
DELIMITERS = ",\t;|"


class FormatOptions(NamedTuple):
    """How files are read: `format` where the name does not tell; columns to leave out."""

    format: str | None = None
    encoding: str = "utf-8"
    ignore: tuple[str, ...] = ()
    batch: int = BATCH


def header(line: bytes, options: FormatOptions) -> tuple[list[str], str]:
    """The columns' names, and what parts the cells."""
    try:
        text = line.decode(options.encoding).rstrip("\r\n")
    except (UnicodeDecodeError, LookupError) as error:
        raise ValueError(
            f"the header cannot be read as {options.encoding}: {error}; say --encoding"
        ) from None
    if not text.strip():
        raise ValueError("the file is empty: its first line must name the columns")
    delimiter = max(DELIMITERS, key=text.count)
    options_ = arrow_csv.ParseOptions(delimiter=delimiter)
    found = arrow_csv.read_csv(
        pa.BufferReader((text + "\n").encode()),
        read_options=arrow_csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=options_,
        convert_options=arrow_csv.ConvertOptions(null_values=[], true_values=[], false_values=[]),
    )
    names = [str(found.column(at)[0].as_py()) for at in range(found.num_columns)]
    double = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if double is not None:
        raise ValueError(f"the header names the column {double!r} twice")
    return names, delimiter


def csv_rows(data: bytes, names: list[str], delimiter: str, row: int, options: FormatOptions) -> Any:
    """A block of CSV as a table of texts."""
    wrong: list[tuple[int, str]] = []

    def refuse(bad: Any) -> str:
        wrong.append((bad.number, f"it has {bad.actual_columns} cells, the header {bad.expected_columns}"))
        return "skip"

    kept = [name for name in names if name not in options.ignore]
    try:
        # Checked here: Arrow complains of bad bytes in its own ways, some of them not to us.
        text = data.decode(options.encoding)
    except UnicodeDecodeError as error:
        near = row + 1 + data.count(b"\n", 0, error.start)
        raise ValueError(f"near row {near:,}: not valid {options.encoding}: say --encoding latin-1") from None
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
        # Where cells are parted by semicolons, a comma among figures is a decimal point.
        for at, name in enumerate(table.column_names):
            plain = pc.replace_substring_regex(table.column(name), r"^([+-]?[0-9]+),([0-9]+)$", r"\1.\2")
            table = table.set_column(at, name, plain)
    count = table.num_rows + len(wrong)
    numbers = np.arange(row + 1, row + 1 + count)
    if wrong:
        numbers = np.delete(numbers, [number - 1 for number, _ in wrong])
    return table, numbers, [(row + number, what) for number, what in wrong], row + count


def json_rows(data: bytes, row: int, options: FormatOptions) -> Any:
    """A block of JSON lines as a table of texts."""
    found: dict[str, list[str | None]] = {}
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
            text.encode()  # half a surrogate is no text
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
                column = found.setdefault(name, [])
                column.extend([None] * (len(numbers) - len(column)))
                column.append(_as_text(cell))
        numbers.append(row)
        lines.append(text)
    for column in found.values():
        column.extend([None] * (len(numbers) - len(column)))
    if numbers and not found:
        found[""] = [None] * len(numbers)  # a table without columns would have no rows
    # Lists and structures are no features: a column of nothing else has the type that says so.
    odd = {name for name in nested if all(cell is None for cell in found[name])}
    types = {name: pa.list_(pa.string()) if name in odd else pa.string() for name in found}
    table = pa.table({name: pa.array(column, types[name]) for name, column in found.items()})
    return table, np.array(numbers, np.int64), faults, row, lines


def _as_text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return json.dumps(cell, sort_keys=True)
