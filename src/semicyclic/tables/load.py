"""`read`: loads files or tables into memory as rows, with the encoding that models trained on them store."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

import numpy as np

from semicyclic.method.rows import Rows, with_fields
from semicyclic.tables.cleaning import START, clean_parts, infer_columns
from semicyclic.tables.columns import (
    BOOLEAN,
    CATEGORY,
    CleanRows,
    ColumnRequest,
    Schema,
    check_column_names,
    check_not_ignored,
)
from semicyclic.tables.encoding import TableEncoding
from semicyclic.tables.features import Features, learn_scales
from semicyclic.tables.frames import TableSource, is_table
from semicyclic.tables.sources import ReadPosition, Source, Sources
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.tables.vocabulary import exact_features

FORMATS = "csv", "jsonl", "parquet"


def source_of(given: Any, request: ColumnRequest | None, options: FormatOptions) -> Source:
    """Return files or a table in memory as a source of rows.

    request: the time column by which the rows of a table are sorted; None to keep their order.
    """
    if is_table(given):
        if options != FormatOptions(ignore=options.ignore):
            raise ValueError(
                "format= and encoding= are for files, and this is a table in memory: leave them out"
            )
        if request is None:
            return TableSource(given, ignore=options.ignore)
        return TableSource(given, request.when, request.zone, request.form, options.ignore)
    if isinstance(given, str | PathLike):
        given = [given]
    if (
        not isinstance(given, Sequence)
        or not given
        or not all(isinstance(path, str | PathLike) for path in given)
    ):
        raise TypeError(
            f"a table is a {type(given).__name__}: give a data frame of pandas or Polars, an Arrow table, a "
            "list of dicts, or paths of files"
        )
    if options.format not in (None, *FORMATS):
        raise ValueError(f"format={options.format!r}: choose {', '.join(map(repr, FORMATS))}")
    return Sources([fspath(path) for path in given], options)


def _labels(clean: CleanRows, columns: Schema) -> Any:
    if columns.label is None:
        return None
    if columns.label_kind == CATEGORY:
        return np.array(clean.labels.to_pylist())
    values = clean.labels
    if columns.label_kind == BOOLEAN:
        return values > 0.5
    integral = bool((values == np.round(values)).all()) and np.abs(values).max(initial=0) < 2**53
    return values.astype(np.int64) if integral else values


def read(
    table: Any,
    *,
    when: str | tuple[str, str] | None = None,
    label: str | None = None,
    zone: str = "UTC",
    like: Any = None,
    number: Sequence[str] = (),
    category: Sequence[str] = (),
    text: Sequence[str] = (),
    ignore: Sequence[str] = (),
    when_format: str | None = None,
    bins: int = 16,
    bits: int | None = None,
    on_error: str = "stop",
    format: str | None = None,
    encoding: str = "utf-8",
) -> Rows:
    """Read a table in memory, or CSV, JSON lines or Parquet files, into rows sorted by time.

    Column types are inferred from the first rows unless they are given.

    Parameters
    ----------
    table : table, path or sequence of paths
        A pandas, Polars or Arrow table, a list of dicts, or files or folders. A folder's files are read in
        the order of their names.
    when : str or (str, str), optional
        Time column, or a date and an hour column. Required unless `like` is given.
    label : str, optional
        Label column. Rows without a label are dropped.
    zone : str, default "UTC"
        Time zone of times that name none.
    like : model or Rows, optional
        Encode the rows with the same features as this model or these rows, to continue training. `when`,
        `when_format`, `zone`, `number`, `category`, `text`, `bins` and `bits` then have no effect.
    number, category, text, ignore : sequence of str
        Names of columns whose type is not to be inferred, by type; `ignore` are left out.
    when_format : str, optional
        strptime pattern of the times, if it cannot be inferred.
    bins : int, default 16
        Number of quantile bins of each number, in addition to its scaled value; 1 for none.
    bits : int, optional
        Hash the features to 2^bits columns. By default, every feature in the rows has a column.
    on_error : {"stop", "skip"}, default "stop"
        Raise at a row that cannot be read, or skip it.
    format : {"csv", "jsonl", "parquet"}, optional
        File format. By default, it follows from the file name.
    encoding : str, default "utf-8"
        Encoding of CSV and JSON lines.

    Returns
    -------
    Rows
        The rows. Their `features` attribute describes the encoding.

    Raises
    ------
    ValueError
        If an argument is invalid, a column is missing, a file is damaged or has no usable rows, or, with
        ``on_error="stop"``, a row cannot be read.
    FileNotFoundError
        If a file does not exist.
    """
    if on_error not in ("stop", "skip"):
        raise ValueError(f"on_error={on_error!r}: choose 'stop' or 'skip'")
    request, encoding_of = None, None
    if like is not None:
        encoding_of = getattr(like, "features", None)
        if encoding_of is None:
            raise ValueError("like= has no features: give a model trained from a table, or such rows")
    elif when is None:
        raise ValueError("when= is missing: give the name of the time column")
    else:
        names = (when,) if isinstance(when, str) else tuple(when)
        check_column_names(names, label)
        check_not_ignored((*names, label), ignore)
        kinds = tuple(number), tuple(category), tuple(text), tuple(ignore)
        request = ColumnRequest(names, label, zone, when_format, *kinds)
    source = source_of(table, request, FormatOptions(format, encoding, tuple(ignore)))
    parts = list(source.parts(ReadPosition()))
    if encoding_of is not None:
        columns = encoding_of.features.columns
        columns = columns.without_label() if label is None else replace(columns, label=label)
    else:
        assert request is not None
        columns = infer_columns(parts, request, source.name)
    if not any(len(part.batch.row) for part in parts):
        raise ValueError(f"{source.name(0)}: the input has no rows")
    remedy = None if on_error == "skip" else "remove such rows (or on_error='skip')"
    clean = clean_parts(columns, parts, source.name, remedy=remedy)
    if len(clean.ticks) == 0:
        raise ValueError(f"{source.name(0)}: none of its rows has a label")
    if encoding_of is None:
        if bits is None:
            features = exact_features(columns, [clean.table], bins=bins)
        else:
            features = Features(columns, learn_scales(clean.table.slice(0, START), columns, bins=bins), bits)
        encoding_of = TableEncoding(features.to_json())
    else:
        features = encoding_of.features
    rows = Rows(
        features.encode(clean.table),
        _labels(clean, columns),
        when=clean.ticks.astype("datetime64[us]"),
        zone="UTC",
        unsorted="sort",
    )
    return with_fields(rows, features=encoding_of)
