"""`read`: loads files into memory as rows, with the features that a model trained on them stores."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import Rows, with_fields
from semicyclic.tables.cleaning import START, clean_parts, infer_columns
from semicyclic.tables.columns import BOOLEAN, CATEGORY, CleanRows, ColumnRequest, Schema
from semicyclic.tables.features import Features, learn_scales
from semicyclic.tables.sources import ReadPosition, Sources
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.tables.vocabulary import Vocabulary


class ReadRequest(NamedTuple):
    """Arguments of `read` other than the files.

    columns: column settings, or None to reuse the features `like` (in JSON form). skip: drop faulty rows.
    """

    columns: ColumnRequest | None
    like: Any
    label: str | None
    bins: int
    bits: int | None
    skip: bool
    options: FormatOptions


def read_files(given: list[str], asked: ReadRequest) -> Rows:
    """Read all rows of the files, sorted by time."""
    inputs = Sources(given, asked.options)
    parts = list(inputs.parts(ReadPosition()))
    features = None
    if asked.columns is None:
        features = Features.from_json(asked.like)
        known = features.columns
        columns = known.without_label() if asked.label is None else replace(known, label=asked.label)
    else:
        columns = infer_columns(parts, asked.columns, inputs.name)
    if not any(len(part.batch.row) for part in parts):
        raise ValueError(f"{inputs.name(0)}: the input has no rows")
    remedy = None if asked.skip else "remove such rows (or on_error='skip')"
    clean = clean_parts(columns, parts, inputs.name, remedy=remedy)
    if len(clean.ticks) == 0:
        raise ValueError(f"{inputs.name(0)}: none of its rows has a label")
    if features is None:
        features = _learn_features(columns, clean.table, asked.bins, asked.bits)
    rows = Rows(
        features.encode(clean.table),
        _labels(clean, columns),
        when=clean.ticks.astype("datetime64[us]"),
        zone="UTC",
        unsorted="sort",
    )
    return with_fields(rows, features=features.to_json())


def _learn_features(columns: Schema, table: Any, bins: int, bits: int | None) -> Features:
    scales = learn_scales(table.slice(0, START), columns, bins=bins)
    if bits is not None:
        return Features(columns, scales, bits)
    vocabulary = Vocabulary(columns)
    vocabulary.add(table)
    return vocabulary.features(scales) or Features(columns, scales)


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
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
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
    """Read CSV, JSON lines or Parquet files into rows sorted by time.

    Column types are inferred from the first rows unless they are given.

    Parameters
    ----------
    files : path or sequence of paths
        Files or folders. A folder's files are read in the order of their names.
    when : str or (str, str), optional
        Time column, or a date and an hour column. Required unless `like` is given.
    label : str, optional
        Label column. Rows without a label are dropped.
    zone : str, default "UTC"
        Time zone of times that name none.
    like : model or Rows, optional
        Encode the rows with the same features as this model or these rows, to predict or to continue
        training. `when`, `when_format`, `zone`, `number`, `category`, `text`, `bins` and `bits` then have
        no effect.
    number, category, text, ignore : sequence of str
        Names of columns whose type is not to be inferred, by type; `ignore` are left out.
    when_format : str, optional
        strptime pattern of the times, if it cannot be inferred.
    bins : int, default 16
        Number of quantile bins of each number, in addition to its scaled value; 1 for none.
    bits : int, optional
        Hash the features to 2^bits columns. By default, every feature in the files has a column.
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
    columns, known = None, None
    if like is not None:
        known = getattr(like, "features", None)
        if known is None:
            raise ValueError("like= has no features: give a model trained on rows from a file, or such rows")
    elif when is None:
        raise ValueError("when= is missing: give the name of the time column")
    else:
        names = (when,) if isinstance(when, str) else tuple(when)
        kinds = tuple(number), tuple(category), tuple(text), tuple(ignore)
        columns = ColumnRequest(names, label, zone, when_format, *kinds)
    paths = [files] if isinstance(files, str | PathLike) else list(files)
    options = FormatOptions(format, encoding, tuple(ignore))
    asked = ReadRequest(columns, known, label, bins, bits, on_error == "skip", options)
    return read_files([fspath(path) for path in paths], asked)
