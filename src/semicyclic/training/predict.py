"""Predictions for files, batch by batch."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.cleaning import clean_part
from semicyclic.tables.encoding import TableEncoding
from semicyclic.tables.features import Features
from semicyclic.tables.labels import class_name
from semicyclic.tables.sources import ReadPosition, SourceBatch, Sources
from semicyclic.training.read_ahead import read_ahead
from semicyclic.types import Array

BLOCK, PREDICTION, PROBABILITY, SCORE = "block", "prediction", "probability", "score"
# Models with at most this many weights are decoded to a dense array for faster lookup.
MAX_DENSE_WEIGHTS = 1 << 26


class PredictedBatch(NamedTuple):
    """A batch with its predictions.

    added: names of the new columns. lines: the original objects of a JSON lines file, else None.
    empty: rows without a prediction. left_out: records that could not be parsed into rows.
    share: fraction of the input read, from 0 to 1.
    """

    table: Any
    added: list[str]
    lines: list[str] | None
    empty: int
    left_out: int
    share: float


def predict_batches(model: Pluralistic, inputs: Sources, *, skip: bool) -> Iterator[PredictedBatch]:
    """Yield every batch with the columns `block`, `prediction` and, for classes, `probability` or `score`.

    If the rows already have a column of that name, `_model` is appended to the new name.
    skip: return a row that cannot be read without a prediction, instead of raising.
    """
    if model.features is None or not isinstance(model.schedule, Schedule):
        raise ValueError("this model was not trained from a file, so it cannot predict for files")
    assert isinstance(model.features, TableEncoding)
    features = model.features.features
    if np.prod(model.shape) <= MAX_DENSE_WEIGHTS:
        model = replace(model, held=model.weights)
    batches = (
        _predict_batch(model, features, inputs, part, skip=skip) for part in inputs.parts(ReadPosition())
    )
    # A second thread predicts while the caller writes the previous batch.
    for predicted in read_ahead(batches):
        if predicted is not None:
            yield predicted


def _predict_batch(
    model: Pluralistic, features: Features, inputs: Sources, part: SourceBatch, *, skip: bool
) -> PredictedBatch:
    batch, name = part.batch, inputs.name(part.file)
    remedy = None if skip else "or leave its prediction empty with on_error='skip'"
    clean = clean_part(features.columns.without_label(), part, name, remedy=remedy)
    # Row numbers are sorted; only in text files can a number have no row.
    readable = np.searchsorted(batch.row, clean.row)
    table, added = batch.table, []
    for column, values in _prediction_columns(model, features, clean, readable, len(batch.row)).items():
        added.append(column if column not in batch.table.column_names else f"{column}_model")
        table = table.append_column(added[-1], values)
    left_out = len(batch.faults)
    return PredictedBatch(table, added, batch.lines, len(clean.faults) - left_out, left_out, batch.share)


def _prediction_columns(
    model: Pluralistic, features: Features, clean: Any, readable: Array, n: int
) -> dict[str, Any]:
    """Return the new columns of n rows; null for rows not in `readable`, the positions of readable rows."""
    schedule = model.schedule
    assert isinstance(schedule, Schedule)
    absent = np.ones(n, bool)
    absent[readable] = False
    labels = pa.array(list(schedule.labels))
    # The hinge loss has no probabilities.
    confidence = SCORE if model.loss.name == "hinge" else PROBABILITY
    if len(readable) == 0:
        dtype = pa.string() if model.classes else pa.float64()
        nulls = {BLOCK: pa.nulls(n, pa.string()), PREDICTION: pa.nulls(n, dtype)}
        return nulls | ({confidence: pa.nulls(n, pa.float64())} if model.classes else {})
    block = schedule.place(clean.ticks).block
    rows = Rows(features.encode(clean.table), block=block)
    score = model.score(rows)
    prediction = model.loss.link(score)
    row_block = np.zeros(n, np.int64)
    row_block[readable] = block
    out = {BLOCK: labels.take(pa.array(row_block, mask=absent))}
    if not model.classes:
        numbers = np.zeros(n)
        numbers[readable] = prediction
        return out | {PREDICTION: pa.array(numbers, mask=absent)}
    code = (score > 0).astype(np.int64) if score.ndim == 1 else score.argmax(axis=1)
    chosen = prediction if prediction.ndim == 1 else prediction[np.arange(len(prediction)), code]
    names = pa.array([class_name(name) for name in model.classes])
    row_code, row_confidence = np.zeros(n, np.int64), np.zeros(n)
    row_code[readable], row_confidence[readable] = code, chosen
    return out | {
        PREDICTION: names.take(pa.array(row_code, mask=absent)),
        confidence: pa.array(row_confidence, mask=absent),
    }
