"""Predictions for files, batch by batch."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.cleaning import clean_batch, raise_first_fault
from semicyclic.tables.features import Features
from semicyclic.tables.labels import class_name
from semicyclic.tables.sources import ReadPosition, SourceBatch, Sources
from semicyclic.training.read_ahead import read_ahead
from semicyclic.types import Array

BLOCK, PREDICTION, PROBABILITY, SCORE = "block", "prediction", "probability", "score"
# Up to so many weights are looked up in a table rather than in frames.
DENSE = 1 << 26


class PredictedBatch(NamedTuple):
    """A batch with its answers; how many rows have none, and how many were no rows at all."""

    table: Any
    added: list[str]
    lines: list[str] | None
    empty: int
    left_out: int
    share: float


def predict_batches(model: Pluralistic, inputs: Sources, *, skip: bool) -> Iterator[PredictedBatch]:
    """Every batch with the columns `block`, `prediction` and, for classes, `probability` or `score`.

    Where the rows have a column of that name already, `_model` is added to it.
    skip: a row that cannot be read is given back without an answer, instead of ending it all.
    """
    if model.features is None or not isinstance(model.schedule, Schedule):
        raise ValueError("this model was not trained from a file: it does not know how to read one")
    features = Features.from_json(model.features)
    if np.prod(model.shape) <= DENSE:
        model = replace(model, held=model.weights)
    made = (_predict_batch(model, features, inputs, part, skip=skip) for part in inputs.parts(ReadPosition()))
    # Answered in a thread of their own, while what was answered before is written.
    for answered in read_ahead(made):
        if answered is not None:
            yield answered


def _predict_batch(
    model: Pluralistic, features: Features, inputs: Sources, part: SourceBatch, *, skip: bool
) -> PredictedBatch:
    batch, name = part.batch, inputs.name(part.file)
    tidy = clean_batch(features.columns.without_label(), part, name)
    if not skip:
        raise_first_fault(tidy, name, "or go on without an answer to it: --on-error skip")
    # Rows are numbered in order, and only in a file of texts does a number lack its row.
    fine = np.searchsorted(batch.row, tidy.row)
    table, added = batch.table, []
    for column, values in _columns(model, features, tidy, fine, len(batch.row)).items():
        added.append(column if column not in batch.table.column_names else f"{column}_model")
        table = table.append_column(added[-1], values)
    left_out = len(batch.faults)
    return PredictedBatch(table, added, batch.lines, len(tidy.faults) - left_out, left_out, batch.share)


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
