"""Files as rows, in memory, with features that travel on to the model."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semicyclic.data.columns import BOOLEAN, CATEGORY, Columns, Tidy, Wish, check_columns, learn_columns
from semicyclic.data.dictionary import FirstPass
from semicyclic.data.features import Features, learn_scales
from semicyclic.data.inputs import Inputs, Mark, Part
from semicyclic.data.parse import Options
from semicyclic.data.tables import stacked
from semicyclic.method.rows import Rows

# As many of the first rows tell what columns are and how numbers are spread, as in a stream.
START = 1 << 14


class Asked(NamedTuple):
    """What `read` is asked for beside the files."""

    wish: Wish | None
    like: Any
    label: str | None
    bins: int
    bits: int | None
    skip: bool
    options: Options


def read_files(given: list[str], asked: Asked) -> Rows:
    """All rows of some files, sorted by time."""
    inputs = Inputs(given, asked.options)
    parts = list(inputs.parts(Mark()))
    if sum(part.batch.table.num_rows for part in parts) == 0:
        raise ValueError(f"{inputs.name(0)}: there are no rows")
    features = None
    if asked.wish is None:
        features = Features.from_json(asked.like)
        known = features.columns
        columns = known.without_label() if asked.label is None else replace(known, label=asked.label)
    else:
        try:
            columns = learn_columns(_first(parts), asked.wish)
        except ValueError as error:
            raise ValueError(f"{inputs.name(0)}: {error}") from None
    tidy = [_tidied(columns, part, inputs, skip=asked.skip) for part in parts]
    table = pa.concat_tables([each.table for each in tidy])
    if table.num_rows == 0:
        raise ValueError(f"{inputs.name(0)}: none of its rows has a label")
    if features is None:
        features = _learnt(columns, table, asked.bins, asked.bits)
    ticks = np.concatenate([each.ticks for each in tidy])
    rows = Rows(
        features.encode(table.combine_chunks()),
        _labels(tidy, columns),
        when=ticks.astype("datetime64[us]"),
        zone="UTC",
        unsorted="sort",
    )
    rows.features = features.to_json()
    return rows


def _first(parts: list[Part]) -> Any:
    tables, left = [], START
    for part in parts:
        if left > 0:
            tables.append(part.batch.table.slice(0, left))
            left -= tables[-1].num_rows
    return stacked(tables)


def _tidied(columns: Columns, part: Part, inputs: Inputs, *, skip: bool) -> Tidy:
    table, name = part.batch.table, inputs.name(part.file)
    if part.batch.lenient:
        for missing in set(columns.names) - set(table.column_names):
            table = table.append_column(missing, pa.nulls(table.num_rows, pa.string()))
    try:
        check_columns(columns.names, table.column_names)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    tidy = columns.tidy(table, part.batch.row)
    faults = sorted([*part.batch.faults, *tidy.faults])
    if faults and not skip:
        raise ValueError(f"{name}, row {faults[0][0]:,}: {faults[0][1]}; or leave such rows out: bad='skip'")
    return tidy


def _learnt(columns: Columns, table: Any, bins: int, bits: int | None) -> Features:
    scales = learn_scales(table.slice(0, START), columns, bins=bins)
    if bits is not None:
        return Features(columns, scales, bits)
    seen = FirstPass(columns)
    seen.add(table)
    return seen.features(scales) or Features(columns, scales)


def _labels(tidy: list[Tidy], columns: Columns) -> Any:
    if columns.label is None:
        return None
    if columns.label_kind == CATEGORY:
        return np.array([each for part in tidy for each in part.labels.to_pylist()])
    values = np.concatenate([part.labels for part in tidy])
    if columns.label_kind == BOOLEAN:
        return values > 0.5
    whole = bool((values == np.round(values)).all()) and np.abs(values).max(initial=0) < 2**53
    return values.astype(np.int64) if whole else values
