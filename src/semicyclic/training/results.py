"""Results of a run: the model with its provenance, a table of visits, `results.json`."""

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
    job: TrainConfig,
    reading: ReaderState,
    names: FeatureNames,
    run: Run,
    scored: DelayedLoss | None,
    portfolio: Portfolio | None = None,
) -> Pluralistic:
    """The model as the run stands, with all that a later prediction needs."""
    if portfolio is None:
        model = _read_out(job, run)
    else:
        schedule = portfolio.form.calendar.model
        model = Pluralistic(model_weights(portfolio), schedule, run.loss, fallback=unseen(portfolio))
    about = _provenance(job, reading, run, scored, portfolio)
    return replace(finish_model(model, reading, names), provenance=about)


def finish_model(model: Pluralistic, reading: ReaderState, names: FeatureNames) -> Pluralistic:
    """A model of what was read: in the labels' own units, with their classes and how features are made."""
    held = model.weights
    labels = reading.labels
    if not labels.classes:
        # Learnt from scaled labels; what is saved answers in the labels' own units.
        # In double precision: a mean of millions leaves single precision no decimals.
        held = held * np.float64(labels.scale)
        held[..., -1] += labels.mean
    features = {**reading.features.to_json(), "names": names.first(reading.named)}
    return replace(model, held=held, classes=labels.classes, features=features)


def _read_out(job: TrainConfig, run: Run) -> Pluralistic:
    """The read-out that was asked for."""
    kind, _, argument = job.read_out.partition(":")
    with warnings.catch_warnings():
        # Said in the provenance, and by `inspect`.
        warnings.filterwarnings("ignore", message=".*never visited.*")
        try:
            if kind == "tail":
                model = run.tail(int(argument))
            elif kind == "fading":
                model = run.fading(float(argument))
            else:
                model = run.last() if kind == "last" else run.mean()
        except ValueError:
            if kind not in ("tail", "fading"):
                raise
            raise ValueError(
                f"--read-out {job.read_out}: cycles that it needs were dropped to stay within --memory: go "
                "on with --resume and --read-out mean, or start again with more --memory"
            ) from None
    return model


def _provenance(
    job: TrainConfig, reading: ReaderState, run: Run, scored: DelayedLoss | None, portfolio: Portfolio | None
) -> dict[str, Any]:
    """Where a model comes from; nothing of files' names, clocks or machines, so that the same rows give
    the same bytes."""
    what = None if portfolio is None else in_units(describe_choice(portfolio), reading.labels.loss_scale())
    return {
        "semicyclic": __version__,
        "method": job.method,
        "read_out": job.read_out,
        "step": list(job.step),
        "batch_size": job.batch_size,
        "label_delay": job.label_delay,
        "lateness": job.lateness,
        "rows": counts_of(reading, run),
        "first": reading.first,
        "last": int(reading.order.newest),
        "loss": run.loss.name,
        "progressive": losses_of(job, reading, run, scored, portfolio),
        "chosen": what,
    }


def in_units(what: dict[str, Any], scale: float) -> dict[str, Any]:
    """What was chosen, with losses in the labels' own units."""
    for block in what["blocks"].values():
        for each in (block, *block["candidates"]):
            if each["loss"] is not None:
                each["loss"] *= scale
    return what


def counts_of(reading: ReaderState, run: Run) -> dict[str, int]:
    """Rows read, and what became of them; they add up."""
    counts, late = reading.counts, reading.late
    waiting = [part for part in (reading.queue, reading.order.held) if part is not None]
    pending = 0 if run.pending is None else len(run.pending)
    left = sum(map(len, waiting)) + pending
    gone = counts.unlabelled + counts.refused + late.dropped
    return {
        "read": counts.read,
        "used": counts.read - gone - left,
        "refused": counts.refused,
        "late_dropped": late.dropped,
        "late_kept": late.kept,
        "without_label": counts.unlabelled,
        "waiting": left,
        "shifted": counts.shifted,
    }


def losses_of(
    job: TrainConfig,
    reading: ReaderState,
    run: Run,
    scored: DelayedLoss | None,
    portfolio: Portfolio | None = None,
) -> dict[str, Any]:
    """The loss of every block's rows before they were learnt from, with a confidence interval, and of all.

    Of the automatic choice: as models of the last midnight would have answered them.
    """
    blocks, scale = run.blocks, reading.labels.loss_scale()
    if portfolio is not None:
        rows, total, squares = loss_sums(portfolio).T
        spread = np.maximum(squares - total**2 / np.maximum(rows, 1), 0.0)
        count = rows
        mean = np.divide(total, rows, out=np.full(blocks, np.nan), where=rows > 0)
    elif job.label_delay and scored is not None:
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
    whole = float(np.nansum(mean * rows) / rows.sum()) * scale if rows.sum() > 0 else None
    return {
        "all": whole,
        "by_block": [float(value) * scale if isfinite(value) else None for value in mean],
        "margin": margin,
        "rows": [round(float(each)) for each in rows],
        "blocks": list(job.schedule.labels),
    }


def visits_table(job: TrainConfig, reading: ReaderState, run: Run) -> str:
    """Every visit that is kept: its cycle, block, rows and progressive loss, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cycle", "block", "rows", "progressive_loss"])
    found, scale = run.progressive_visits(), reading.labels.loss_scale()
    for cycle, block, loss, rows in zip(*found, strict=True):
        label = job.schedule.labels[int(block)]
        writer.writerow([int(cycle), label, round(float(rows)), repr(float(loss) * scale)])
    return text.getvalue()


def results_of(
    job: TrainConfig, inputs: Sources, reading: ReaderState, names: FeatureNames, model: Pluralistic
) -> dict[str, Any]:
    """What `results.json` says; of rows and losses what the model says."""
    columns = reading.columns
    budget, about = job.budget(model.loss.outputs), model.provenance
    return {
        "files": [inputs.name(file) for file in range(len(inputs.files))],
        "job": job.to_json(),
        "memory": {
            "bytes": job.memory,
            "columns": reading.features.width,
            "record_bytes": budget.records,
            "waiting_bytes": budget.waiting,
        },
        "columns": {"kinds": columns.kinds, "ignored": columns.ignored, "when": columns.clock.to_json()},
        "loss": model.loss.name,
        "classes": list(reading.labels.classes),
        "rows": about["rows"],
        "latest_by": reading.late.worst,
        "refused_examples": list(reading.examples),
        "first": reading.first,
        "last": int(reading.order.newest),
        "features_named": len(names.names),
        "progressive": about["progressive"],
        "chosen": about["chosen"],
        "blocks": list(job.schedule.labels),
    }
