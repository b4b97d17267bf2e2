"""Files as rows, in memory, with features that travel on to the model."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from semicyclic.data.columns import BOOLEAN, CATEGORY, Columns, Tidy, Wish, learn_columns
from semicyclic.data.dictionary import FirstPass
from semicyclic.data.features import Features, learn_scales
from semicyclic.data.inputs import Inputs, Mark
from semicyclic.data.parse import Options
from semicyclic.data.tidied import START, first_rows, gathered, refuse_first, tidied
from semicyclic.method.rows import Rows


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
            columns = learn_columns(sample, asked.wish)
        except ValueError as error:
            raise ValueError(f"{inputs.name(0)}: {error}") from None
    held = []
    for part in parts:
        name = inputs.name(part.file)
        held.append(tidied(columns, part, name))
        if not asked.skip:
            refuse_first(held[-1], name, "or leave such rows out: bad='skip'")
    tidy = gathered(held)
    if len(tidy.ticks) == 0:
        raise ValueError(f"{inputs.name(0)}: none of its rows has a label")
    if features is None:
        features = _learnt(columns, tidy.table, asked.bins, asked.bits)
    rows = Rows(
        features.encode(tidy.table),
        _labels(tidy, columns),
        when=tidy.ticks.astype("datetime64[us]"),
        zone="UTC",
        unsorted="sort",
    )
    rows.features = features.to_json()
    return rows


def _learnt(columns: Columns, table: Any, bins: int, bits: int | None) -> Features:
    scales = learn_scales(table.slice(0, START), columns, bins=bins)
    if bits is not None:
        return Features(columns, scales, bits)
    seen = FirstPass(columns)
    seen.add(table)
    return seen.features(scales) or Features(columns, scales)


def _labels(tidy: Tidy, columns: Columns) -> Any:
    if columns.label is None:
        return None
    if columns.label_kind == CATEGORY:
        return np.array(tidy.labels.to_pylist())
    values = tidy.labels
    if columns.label_kind == BOOLEAN:
        return values > 0.5
    whole = bool((values == np.round(values)).all()) and np.abs(values).max(initial=0) < 2**53
    return values.astype(np.int64) if whole else values
