"""Results of a run: the model with its provenance, the table of visits, and `results.json`."""

import csv
import io
import warnings
from dataclasses import replace
from math import isfinite, sqrt
from typing import Any

import numpy as np

from semicyclic.auto.export import describe_choice, loss_sums, model_weights, unseen
from semicyclic.auto.portfolio import Portfolio
from semicyclic.evaluation.scores import NORMAL
from semicyclic.method.model import Pluralistic
from semicyclic.method.run import Run
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.sources import Sources
from semicyclic.training.config import TrainConfig
from semicyclic.training.delayed_loss import DelayedLoss
from semicyclic.training.reader import ReaderState
from semicyclic.version import __version__


def model_of(
    config: TrainConfig,
    reading: ReaderState,
    names: FeatureNames,
    run: Run,
    scored: DelayedLoss | None,
    portfolio: Portfolio | None = None,
) -> Pluralistic:
    """Return the current model with its provenance and everything that prediction needs."""
    if portfolio is None:
        model = _read_out(config, run)
    else:
        schedule = portfolio.candidate_set.calendar.model
        model = Pluralistic(model_weights(portfolio), schedule, run.loss, fallback=unseen(portfolio))
    about = _provenance(config, reading, run, scored, portfolio)
    return replace(finish_model(model, reading, names), provenance=about)


def finish_model(model: Pluralistic, reading: ReaderState, names: FeatureNames) -> Pluralistic:
    """Return the model in the units of the labels, with class names and feature encoding attached."""
    weights = model.weights
    labels = reading.labels
    if not labels.classes:
        # Training uses scaled labels; the saved model predicts in the original units.
        # Double precision: single precision has no decimals left if the mean is in the millions.
        weights = weights * np.float64(labels.scale)
        weights[..., -1] += labels.mean
        model = replace(model, loss=model.loss.scaled(labels.scale))
    features = {**reading.features.to_json(), "names": names.first(reading.names_known)}
    return replace(model, held=weights, classes=labels.classes, features=features)


def _read_out(config: TrainConfig, run: Run) -> Pluralistic:
    """Return the model of the read-out set in `config.read_out`."""
    with warnings.catch_warnings():
        # The provenance and `inspect` report this.
        warnings.filterwarnings("ignore", message=".*never visited.*")
        try:
            return run.read_out(config.read_out)
        except ValueError:
            if not config.read_out.needs_records:
                raise
            raise ValueError(
                f"read_out='{config.read_out}': cycles that it needs were dropped to stay within memory=: "
                "continue with resume=True and read_out='mean', or start again with more memory="
            ) from None


def _provenance(
    config: TrainConfig,
    reading: ReaderState,
    run: Run,
    scored: DelayedLoss | None,
    portfolio: Portfolio | None,
) -> dict[str, Any]:
    """Return the provenance of a model.

    It contains no file names, clock times or machine names, so that the same rows give the same bytes.
    """
    chosen = None if portfolio is None else in_units(describe_choice(portfolio), reading.labels.loss_scale())
    return {
        "semicyclic": __version__,
        "method": config.method,
        "read_out": str(config.read_out),
        "step": config.step_json(),
        "batch_size": config.batch_size,
        "label_delay": config.label_delay,
        "lateness": config.lateness,
        "rows": counts_of(reading, run),
        "first": reading.first,
        "last": int(reading.watermark.newest),
        "loss": run.loss.name,
        "progressive": losses_of(config, reading, run, scored, portfolio),
        "chosen": chosen,
    }


def in_units(chosen: dict[str, Any], scale: float) -> dict[str, Any]:
    """Convert the losses of the chosen candidates to the units of the labels, in place."""
    for block in chosen["blocks"].values():
        for entry in (block, *block["candidates"]):
            if entry["loss"] is not None:
                entry["loss"] *= scale
    return chosen


def counts_of(reading: ReaderState, run: Run) -> dict[str, int]:
    """Return the number of rows read, split into used, refused, dropped, unlabelled and waiting rows."""
    counts, late = reading.counts, reading.late
    waiting = [part for part in (reading.queue, reading.watermark.buffered) if part is not None]
    pending = 0 if run.pending is None else len(run.pending)
    unused = sum(map(len, waiting)) + pending
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


def losses_of(
    config: TrainConfig,
    reading: ReaderState,
    run: Run,
    scored: DelayedLoss | None,
    portfolio: Portfolio | None = None,
) -> dict[str, Any]:
    """Return the progressive loss per block and overall, with the margins of confidence intervals.

    Every row is scored before it is trained on. For method `auto`, the models are frozen at the last local
    midnight; in the first nights of a run, the current models are used instead.
    """
    blocks, scale = run.blocks, reading.labels.loss_scale()
    if portfolio is not None:
        rows, total, squares = loss_sums(portfolio).T
        spread = np.maximum(squares - total**2 / np.maximum(rows, 1), 0.0)
        count = rows
        mean = np.divide(total, rows, out=np.full(blocks, np.nan), where=rows > 0)
    elif config.label_delay and scored is not None:
        rows, total = scored.rows, scored.loss
        spread = np.maximum(scored.squares - total**2 / np.maximum(rows, 1), 0.0)
        count = rows
        mean = np.divide(total, rows, out=np.full(blocks, np.nan), where=rows > 0)
    else:
        count, _, _, spread = run.log.tally()
        loss, rows = run.loss_sums()
        mean = np.divide(loss, rows, out=np.full(blocks, np.nan), where=rows > 0)
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


def visits_table(config: TrainConfig, reading: ReaderState, run: Run) -> str:
    """Return a CSV table of the recorded visits: cycle, block, rows and progressive loss."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cycle", "block", "rows", "progressive_loss"])
    visits, scale = run.progressive_visits(), reading.labels.loss_scale()
    for cycle, block, loss, rows in zip(*visits, strict=True):
        label = config.schedule.labels[int(block)]
        writer.writerow([int(cycle), label, round(float(rows)), repr(float(loss) * scale)])
    return text.getvalue()


def results_of(
    config: TrainConfig, inputs: Sources, reading: ReaderState, names: FeatureNames, model: Pluralistic
) -> dict[str, Any]:
    """Return the contents of `results.json`; row counts and losses are those in the model's provenance."""
    columns = reading.columns
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
        "columns": {"kinds": columns.kinds, "ignored": columns.ignored, "when": columns.time.to_json()},
        "loss": model.loss.name,
        "classes": list(reading.labels.classes),
        "rows": about["rows"],
        "latest_by": reading.late.worst,
        "refused_examples": list(reading.examples),
        "first": reading.first,
        "last": int(reading.watermark.newest),
        "features_named": len(names.names),
        "progressive": about["progressive"],
        "chosen": about["chosen"],
        "blocks": list(config.schedule.labels),
    }
