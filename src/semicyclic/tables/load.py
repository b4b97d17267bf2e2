"""`read`: files as rows in memory, with the features that a model takes along."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import Rows
from semicyclic.tables.cleaning import START, clean_batch, concat_clean_rows, first_rows, raise_first_fault
from semicyclic.tables.columns import BOOLEAN, CATEGORY, CleanRows, ColumnRequest, Schema, infer_schema
from semicyclic.tables.features import Features, learn_scales
from semicyclic.tables.sources import ReadPosition, Sources
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.tables.vocabulary import Vocabulary


class ReadRequest(NamedTuple):
    """What `read` is asked for beside the files."""

    wish: ColumnRequest | None
    like: Any
    label: str | None
    bins: int
    bits: int | None
    skip: bool
    options: FormatOptions


def read_files(given: list[str], asked: ReadRequest) -> Rows:
    """All rows of some files, sorted by time."""
    inputs = Sources(given, asked.options)
    parts = list(inputs.parts(ReadPosition()))
    sample = first_rows(parts)
    if sample is None:
        raise ValueError(f"{inputs.name(0)}: there are no rows")
    features = None
    if asked.wish is None:
        features = Features.from_json(asked.like)
        known = features.columns
        columns = known.without_label() if asked.label is None else replace(known, label=asked.label)
    else:
        try:
            columns = infer_schema(sample, asked.wish)
        except ValueError as error:
            raise ValueError(f"{inputs.name(0)}: {error}") from None
    held = []
    for part in parts:
        name = inputs.name(part.file)
        held.append(clean_batch(columns, part, name))
        if not asked.skip:
            raise_first_fault(held[-1], name, "or leave such rows out: on_error='skip'")
    tidy = concat_clean_rows(held)
    if len(tidy.ticks) == 0:
        raise ValueError(f"{inputs.name(0)}: none of its rows has a label")
    if features is None:
        features = _learn_features(columns, tidy.table, asked.bins, asked.bits)
    rows = Rows(
        features.encode(tidy.table),
        _labels(tidy, columns),
        when=tidy.ticks.astype("datetime64[us]"),
        zone="UTC",
        unsorted="sort",
    )
    rows.features = features.to_json()
    return rows


def _learn_features(columns: Schema, table: Any, bins: int, bits: int | None) -> Features:
    scales = learn_scales(table.slice(0, START), columns, bins=bins)
    if bits is not None:
        return Features(columns, scales, bits)
    seen = Vocabulary(columns)
    seen.add(table)
    return seen.features(scales) or Features(columns, scales)


def _labels(tidy: CleanRows, columns: Schema) -> Any:
    if columns.label is None:
        return None
    if columns.label_kind == CATEGORY:
        return np.array(tidy.labels.to_pylist())
    values = tidy.labels
    if columns.label_kind == BOOLEAN:
        return values > 0.5
    whole = bool((values == np.round(values)).all()) and np.abs(values).max(initial=0) < 2**53
    return values.astype(np.int64) if whole else values


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
    """Rows of CSV, JSON lines or Parquet files, sorted by time.

    when: the column with the time, or two, a date and an hour. zone: that of times which name none.
    label: the column to learn. Rows without one are left out.
    like: a model or rows: make the same features as they have, to predict or to go on learning.
    number, category, text, ignore: what columns are, where their cells do not tell.
    bins: quantile bins of a number, beside its scaled value; 1 for none.
    bits: 2^bits hashed columns; unless given, a column for every feature in the files.
    on_error: "stop" at a row that cannot be read, or "skip" it.
    """

    if on_error not in ("stop", "skip"):
        raise ValueError(f"on_error={on_error!r}: choose 'stop' or 'skip'")
    wish, known = None, None
    if like is not None:
        known = getattr(like, "features", None)
        if known is None:
            raise ValueError("like= has no features: it must be a model or rows that come from a file")
    elif when is None:
        raise ValueError("say which column has the time: when='...'")
    else:
        names = (when,) if isinstance(when, str) else tuple(when)
        kinds = tuple(number), tuple(category), tuple(text), tuple(ignore)
        wish = ColumnRequest(names, label, zone, when_format, *kinds)
    given = [files] if isinstance(files, str | PathLike) else list(files)
    options = FormatOptions(format, encoding, tuple(ignore))
    asked = ReadRequest(wish, known, label, bins, bits, on_error == "skip", options)
    return read_files([fspath(each) for each in given], asked)
