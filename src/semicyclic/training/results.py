"""Results of a run: the model with its provenance, the table of visits, and `results.json`."""

import csv
import io
from dataclasses import replace
from math import isfinite, sqrt
from typing import Any, TypedDict

import numpy as np

from semicyclic.auto.export import CandidateWeight, Choice, SlotChoice
from semicyclic.evaluation.scores import NORMAL
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Encoding
from semicyclic.store.json_codec import to_json
from semicyclic.tables.encoding import TableEncoding
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.labels import Labels
from semicyclic.tables.sources import Sources
from semicyclic.training.config import TrainConfig
from semicyclic.training.learner import Learner
from semicyclic.training.reader import ReaderState
from semicyclic.training.run_dir import TrainState
from semicyclic.version import __version__


class RowUse(TypedDict):
    """Numbers of rows read, and of those used, refused, late, unlabelled, waiting, or with shifted times."""

    read: int
    used: int
    refused: int
    late_dropped: int
    late_kept: int
    without_label: int
    waiting: int
    shifted: int


class Progressive(TypedDict):
    """Progressive losses, overall and by block; margins of their confidence intervals; None without rows."""

    all: float | None
    by_block: list[float | None]
    margin: list[float | None]
    rows: list[int]
    blocks: list[str]


class MemoryUse(TypedDict):
    """Memory limit in bytes, number of columns, and bytes for visit records and waiting rows."""

    bytes: int
    columns: int
    record_bytes: int
    waiting_bytes: int


class ColumnUse(TypedDict):
    """Types of the feature columns, reasons for those that are ignored, and the format of the times."""

    kinds: dict[str, str]
    ignored: dict[str, str]
    when: Any


class TrainResults(TypedDict):
    """Contents of `results.json`. first, last, latest_by: microseconds."""

    files: list[str]
    job: dict[str, Any]
    memory: MemoryUse
    columns: ColumnUse
    loss: str
    classes: list[Any]
    rows: RowUse
    latest_by: int
    refused_examples: list[str]
    first: int
    last: int
    features_named: int
    progressive: Progressive
    chosen: Choice | None
    blocks: list[str]


def model_of(config: TrainConfig, reading: ReaderState, learner: Learner, names: FeatureNames) -> Pluralistic:
    """Return the current model with its provenance and everything that prediction needs."""
    try:
        model = learner.model()
    except ValueError:
        if not config.read_out.needs_records:
            raise
        raise ValueError(
            f"read_out='{config.read_out}': cycles that it needs were dropped to stay within memory=: "
            "continue with resume=True and read_out='mean', or start again with more memory="
        ) from None
    finished = finish_model(model, reading.labels, encoding_of(reading, names))
    return replace(finished, provenance=_provenance(config, reading, learner))


def encoding_of(reading: ReaderState, names: FeatureNames) -> TableEncoding:
    """Return how tables become rows, with the names of the features found so far."""
    return TableEncoding({**reading.features.to_json(), "names": names.first(reading.names_known)})


def finish_model(model: Pluralistic, labels: Labels, encoding: Encoding | None) -> Pluralistic:
    """Return the model in the units of the labels, with class names and the encoding of tables."""
    weights = model.weights
    if not labels.classes:
        # Training uses scaled labels; the saved model predicts in the original units.
        # Double precision: single precision has no decimals left if the mean is in the millions.
        weights = weights * np.float64(labels.scale)
        weights[..., -1] += labels.mean
        model = replace(model, loss=model.loss.scaled(labels.scale))
    return replace(model, held=weights, classes=labels.classes, features=encoding)


def _provenance(config: TrainConfig, reading: ReaderState, learner: Learner) -> dict[str, Any]:
    """Return the provenance of a model.

    It contains no file names, clock times or machine names, so that the same rows give the same bytes.
    """
    return {
        "semicyclic": __version__,
        "method": config.method,
        "read_out": str(config.read_out),
        "step": to_json(config.step),
        "batch_size": config.batch_size,
        "label_delay": config.label_delay,
        "lateness": config.lateness,
        "rows": counts_of(reading, learner),
        "first": reading.first,
        "last": int(reading.watermark.newest),
        "loss": learner.loss.name,
        "progressive": losses_of(config, reading, learner),
        "chosen": in_units(learner.choice(), reading.labels.loss_scale()),
    }


def in_units(chosen: Choice | None, scale: float) -> Choice | None:
    """Convert the losses of the chosen candidates, if any, to the units of the labels, in place."""
    for block in chosen["blocks"].values() if chosen is not None else ():
        entries: list[SlotChoice | CandidateWeight] = [block, *block["candidates"]]
        for entry in entries:
            if entry["loss"] is not None:
                entry["loss"] *= scale
    return chosen


def counts_of(reading: ReaderState, learner: Learner) -> RowUse:
    """Return the number of rows read, split into used, refused, dropped, unlabelled and waiting rows."""
    counts, late = reading.counts, reading.late
    waiting = [part for part in (reading.queue, reading.watermark.buffered) if part is not None]
    unused = sum(map(len, waiting)) + learner.waiting
    excluded = counts.unlabelled + counts.refused + late.dropped
    return {
        "read": counts.read,
        "used": counts.read - excluded - unused,
        "refused": counts.refused,
        "late_dropped": late.dropped,
        "late_kept": late.kept,
        "without_label": counts.unlabelled,
        "waiting": unused,
        "shifted": counts.shifted,
    }


def losses_of(config: TrainConfig, reading: ReaderState, learner: Learner) -> Progressive:
    """Return the progressive loss per block and overall, with the margins of confidence intervals.

    Every row is scored before it is trained on. For method `auto`, the models are frozen at the last local
    midnight; in the first nights of a run, the current models are used instead.
    """
    rows, mean, count, spread = learner.losses()
    blocks, scale = len(rows), reading.labels.loss_scale()
    margin = [
        NORMAL * sqrt(spread[i] / (count[i] * (count[i] - 1))) * scale if count[i] > 1 else None
        for i in range(blocks)
    ]
    overall = float(np.nansum(mean * rows) / rows.sum()) * scale if rows.sum() > 0 else None
    return {
        "all": overall,
        "by_block": [float(value) * scale if isfinite(value) else None for value in mean],
        "margin": margin,
        "rows": [round(float(number)) for number in rows],
        "blocks": list(config.schedule.labels),
    }


def visits_table(config: TrainConfig, state: TrainState) -> str:
    """Return a CSV table of the recorded visits: cycle, block, rows and progressive loss."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cycle", "block", "rows", "progressive_loss"])
    visits = state.learner.run.progressive_visits()
    scale = state.reading.labels.loss_scale()
    for cycle, block, loss, rows in zip(*visits, strict=True):
        label = config.schedule.labels[int(block)]
        writer.writerow([int(cycle), label, round(float(rows)), repr(float(loss) * scale)])
    return text.getvalue()


def results_of(config: TrainConfig, inputs: Sources, state: TrainState, model: Pluralistic) -> TrainResults:
    """Return the contents of `results.json`; row counts and losses are those in the model's provenance."""
    reading, columns = state.reading, state.reading.columns
    budget, about = config.budget(model.loss.outputs), model.provenance
    return {
        "files": [inputs.name(file) for file in range(len(inputs.files))],
        "job": config.to_json(),
        "memory": {
            "bytes": config.memory,
            "columns": reading.features.width,
            "record_bytes": budget.records,
            "waiting_bytes": budget.waiting,
        },
        "columns": {"kinds": columns.kinds, "ignored": columns.ignored, "when": to_json(columns.when)},
        "loss": model.loss.name,
        "classes": list(reading.labels.classes),
        "rows": about["rows"],
        "latest_by": reading.late.worst,
        "refused_examples": list(reading.examples),
        "first": reading.first,
        "last": int(reading.watermark.newest),
        "features_named": len(state.names.names),
        "progressive": about["progressive"],
        "chosen": about["chosen"],
        "blocks": list(config.schedule.labels),
    }
