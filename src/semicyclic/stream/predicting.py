"""Predictions for files: every row with its block and what the model says, batch by batch."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from semicyclic.data.features import Features
from semicyclic.data.inputs import Inputs, Mark, Part
from semicyclic.data.labels import class_name
from semicyclic.data.tidied import refuse_first, tidied
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.schedule import Schedule
from semicyclic.store.safely import placing
from semicyclic.stream.ahead import ahead
from semicyclic.types import Array

BLOCK, PREDICTION, PROBABILITY, SCORE = "block", "prediction", "probability", "score"
# Up to so many weights are looked up in a table rather than in frames.
DENSE = 1 << 26


class Answered(NamedTuple):
    """A batch with its answers; how many rows have none, and how many were no rows at all."""

    table: Any
    added: list[str]
    lines: list[str] | None
    empty: int
    left_out: int
    share: float


class Writer(Protocol):
    """Takes tables one after another."""

    def write(self, answered: Answered) -> None: ...


def answers(model: Pluralistic, inputs: Inputs, *, skip: bool) -> Iterator[Answered]:
    """Every batch with the columns `block`, `prediction` and, for classes, `probability` or `score`.

    Where the rows have a column of that name already, `_model` is added to it.
    skip: a row that cannot be read is given back without an answer, instead of ending it all.
    """
    if model.features is None or not isinstance(model.schedule, Schedule):
        raise ValueError("this model was not trained from a file: it does not know how to read one")
    features = Features.from_json(model.features)
    if np.prod(model.shape) <= DENSE:
        model = replace(model, held=model.weights)
    made = (_answered(model, features, inputs, part, skip=skip) for part in inputs.parts(Mark()))
    # Answered in a thread of their own, while what was answered before is written.
    for answered in ahead(made):
        if answered is not None:
            yield answered


def _answered(model: Pluralistic, features: Features, inputs: Inputs, part: Part, *, skip: bool) -> Answered:
    batch, name = part.batch, inputs.name(part.file)
    tidy = tidied(features.columns.without_label(), part, name)
    if not skip:
        refuse_first(tidy, name, "or go on without an answer to it: --bad skip")
    # Rows are numbered in order, and only in a file of texts does a number lack its row.
    fine = np.searchsorted(batch.row, tidy.row)
    table, added = batch.table, []
    for column, values in _columns(model, features, tidy, fine, len(batch.row)).items():
        added.append(column if column not in batch.table.column_names else f"{column}_model")
        table = table.append_column(added[-1], values)
    left_out = len(batch.faults)
    return Answered(table, added, batch.lines, len(tidy.faults) - left_out, left_out, batch.share)


def _columns(model: Pluralistic, features: Features, tidy: Any, fine: Array, n: int) -> dict[str, Any]:
    """The answers to the rows that can be read, `fine` of n; the others have none."""
    schedule = model.schedule
    assert isinstance(schedule, Schedule)
    absent = np.ones(n, bool)
    absent[fine] = False
    labels = pa.array(list(schedule.labels))
    # A hinge has no probabilities to give.
    sure_of = SCORE if model.loss.name == "hinge" else PROBABILITY
    if len(fine) == 0:
        kind = pa.string() if model.classes else pa.float64()
        none = {BLOCK: pa.nulls(n, pa.string()), PREDICTION: pa.nulls(n, kind)}
        return none | ({sure_of: pa.nulls(n, pa.float64())} if model.classes else {})
    block = schedule.place(tidy.ticks).block
    rows = Rows(features.encode(tidy.table), block=block)
    score = model.score(rows)
    answer = model.loss.link(score)
    spread = np.zeros(n, np.int64)
    spread[fine] = block
    out = {BLOCK: labels.take(pa.array(spread, mask=absent))}
    if not model.classes:
        numbers = np.zeros(n)
        numbers[fine] = answer
        return out | {PREDICTION: pa.array(numbers, mask=absent)}
    code = (score > 0).astype(np.int64) if score.ndim == 1 else score.argmax(axis=1)
    chance = answer if answer.ndim == 1 else answer[np.arange(len(answer)), code]
    names = pa.array([class_name(each) for each in model.classes])
    picked, sure = np.zeros(n, np.int64), np.zeros(n)
    picked[fine], sure[fine] = code, chance
    return out | {
        PREDICTION: names.take(pa.array(picked, mask=absent)),
        sure_of: pa.array(sure, mask=absent),
    }


# ---------------------------------------------------------------------------- writing


@contextmanager
def opened(path: Path | None, kind: str, stdout: IO[bytes]) -> Iterator[Writer]:
    """A writer of CSV, JSON lines or Parquet; a file appears when it is whole."""
    if path is None:
        writer = _Tables(stdout, kind)
        yield writer
        writer.close()
        stdout.flush()
        return
    with placing(path) as part, open(part, "wb") as file:
        writer = _Tables(file, kind)
        yield writer
        writer.close()


class _Tables:
    """Tables of one schema, in one of the formats."""

    def __init__(self, file: IO[bytes], kind: str) -> None:
        self.file, self.kind = file, kind
        self.writer: Any = None
        self.schema: Any = None

    def write(self, answered: Answered) -> None:
        if self.kind == "jsonl":
            self._lines(answered)
            return
        table = answered.table
        first = self.schema is None
        if first:
            self.schema = table.schema
            if self.kind == "parquet":
                # Numbers hardly repeat: a dictionary of them would be built for nothing.
                texts = [field.name for field in self.schema if pa.types.is_string(field.type)]
                self.writer = pq.ParquetWriter(self.file, self.schema, use_dictionary=texts or False)
        table = self._fitting(table)
        if self.kind == "parquet":
            self.writer.write_table(table)
        else:
            self.file.write(_csv(table, header=first))

    def _fitting(self, table: Any) -> Any:
        if table.schema.equals(self.schema):
            return table
        extra = sorted(set(table.column_names) - set(self.schema.names))
        if extra:
            raise ValueError(
                f"the column {extra[0]!r} is not in the first rows: write JSON lines (--out F.jsonl)"
            )
        columns = [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def _lines(self, answered: Answered) -> None:
        table = answered.table
        if answered.lines is None:
            rows = table.to_pylist()
        else:
            own = table.select(answered.added).to_pylist()
            rows = [json.loads(line) | new for line, new in zip(answered.lines, own, strict=True)]
        for row in rows:
            try:
                text = json.dumps(row, default=str, ensure_ascii=False, allow_nan=False)
            except ValueError:
                text = json.dumps(_finite(row), default=str, ensure_ascii=False)
            self.file.write(text.encode() + b"\n")

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _finite(value: Any) -> Any:
    """Without what JSON has no word for: numbers that are not finite are null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _csv(table: Any, *, header: bool) -> Any:
    """A table as CSV, with quotes only where some text of it needs them."""
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
