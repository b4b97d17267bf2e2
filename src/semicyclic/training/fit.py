"""`fit`: trains a model from a table in memory, from files or from rows, and returns it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from semicyclic.method.average import ReadOut
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows, count_features, with_fields
from semicyclic.method.step import Step
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.columns import BOOLEAN, CATEGORY, NUMBER
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.labels import Labels, learn_labels
from semicyclic.tables.load import source_of
from semicyclic.tables.sources import Source
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.training.config import BATCH_SIZE, L2, READ_OUT, STEP_SIZE, TrainConfig, train_config
from semicyclic.training.learner import AUTO
from semicyclic.training.progress_log import ProgressLog, logger
from semicyclic.training.read_ahead import read_ahead
from semicyclic.training.reader import Reader, expected_features, learn_in_chunks, open_reader
from semicyclic.training.results import finish_model, model_of
from semicyclic.types import Array

NO_MODEL = "no model was trained: no row could be used, or no label is known yet"


def fit(
    table: Any,
    *,
    when: str | Sequence[str] | None = None,
    label: str | None = None,
    zone: str | None = None,
    schedule: str | Schedule = "daily:6",
    method: str = AUTO,
    loss: str | Loss | None = None,
    classes: Sequence[str] = (),
    step_size: str | float | Step = STEP_SIZE,
    batch_size: int = BATCH_SIZE,
    l2: float = L2,
    read_out: str | ReadOut = READ_OUT,
    label_delay: str | timedelta = "0",
    memory: str | int = "1GB",
    number: Sequence[str] = (),
    category: Sequence[str] = (),
    text: Sequence[str] = (),
    ignore: Sequence[str] = (),
    when_format: str | None = None,
    lateness: str | timedelta = "0",
    late: str = "drop",
    on_error: str = "stop",
    bins: int = 16,
    bits: int | None = None,
    first_pass: bool = True,
    sample_rows: int | None = None,
    horizon: str | timedelta = "7d",
    format: str | None = None,
    encoding: str = "utf-8",
) -> Pluralistic:
    """Train a model with one set of weights per block, in one pass by time, and return it.

    Numbers are scaled and binned; categories, texts and missing values become features; columns with times
    are left out, except `when`. The settings are those of `semicyclic train`, with the same results.

    Parameters
    ----------
    table : table, path, sequence of paths, or Rows
        A pandas, Polars or Arrow table, or a list of dicts, whose rows may be in any order; files or folders,
        as in `semicyclic train`; or labelled rows with times or blocks.
    when : str or (str, str)
        Time column, or a date and an hour column. Leave it out for Rows.
    label : str
        Column to predict. Rows without a label are left out. Leave it out for Rows.
    zone : str, optional
        Time zone of the blocks, and of times without a zone. By default that of the `Schedule`, or UTC.
    schedule : str or Schedule, default "daily:6"
        Blocks: "daily:6", "weekly:7", "daily:06:00,13:30,22:00" or a `semicyclic.Schedule`.
    method : {"auto", "pluralistic", "separate", "residual", "hedged", "consensus"}, default "auto"
        "auto" mixes hundreds of candidates, weighted in each block by their recent loss.
    loss : str or Loss, optional
        By default, logistic for two values, booleans or two texts, softmax for more texts, squared for
        numbers.
    classes : sequence of str, optional
        All classes, if some are missing from the first rows.
    step_size, batch_size, l2, read_out
        Settings of a single method; "auto" takes the defaults only. `l2`: strength of the penalty
        l2 / 2 ||w||^2 on the mean loss, without the intercept.
    label_delay : str or timedelta, default "0"
        Time from a row until its label is known, such as "1h" or "2d".
    memory : str or int, default "1GB"
        Memory budget for rows, candidates and past cycles; also limits the number of columns.
    number, category, text, ignore : sequence of str
        Names of columns whose type is not to be inferred, by type; `ignore` are left out.
    when_format : str, optional
        strptime pattern of the times, if it cannot be inferred.
    lateness : str or timedelta, default "0"
        Of files: maximum lag behind the newest row at which a row is still sorted in.
    late : {"drop", "keep", "stop"}, default "drop"
        Of files: what to do with rows later than `lateness`.
    on_error : {"stop", "skip"}, default "stop"
        Raise at a row that cannot be read, or skip it.
    bins : int, default 16
        Quantile bins per number column, added to its scaled value; 1 for none.
    bits : int, optional
        Hash the features to 2^bits columns, instead of giving each feature its own.
    first_pass : bool, default True
        Read all rows once before training: one column per feature, and scales from all rows. If False, or
        with `bits`, features are hashed, and scales come from the first rows.
    sample_rows : int, optional
        Number of first rows from which column types, scales and classes are inferred, 16,384 by default.
    horizon : str or timedelta, default "7d"
        How long the model will serve before it is fitted again, in whole days. "auto" evaluates its
        candidates by models that have served for up to as long.
    format, encoding
        Of files, as in `read`.

    Returns
    -------
    Pluralistic
        The model. It predicts for tables, single rows as dicts, and Rows.

    Raises
    ------
    ValueError
        If a setting is invalid, a column is missing, or no row can be used.
    TypeError
        If `table` is of another type.
    FileNotFoundError
        If a file does not exist.

    Examples
    --------
    >>> import semicyclic as sc
    >>> days = [f"2026-03-{day:02d} {hour:02d}:00" for day in range(1, 29) for hour in range(24)]
    >>> rows = [{"when": time, "rain": k % 3, "late": int(time[11:13]) > 12} for k, time in enumerate(days)]
    >>> model = sc.fit(rows, when="when", label="late")
    >>> model.predict({"when": "2026-03-29 18:00", "rain": 1})
    True
    """
    if zone is None:
        zone = schedule.zone if isinstance(schedule, Schedule) else "UTC"
    options: dict[str, Any] = {
        "zone": zone, "schedule": schedule, "method": method, "loss": loss, "classes": classes,
        "step_size": step_size, "batch_size": batch_size, "l2": l2, "read_out": read_out,
        "label_delay": label_delay, "memory": memory, "number": number, "category": category, "text": text,
        "ignore": ignore,
        "when_format": when_format, "lateness": lateness, "late": late, "on_error": on_error, "bins": bins,
        "bits": bits, "first_pass": first_pass and bits is None, "sample_rows": sample_rows,
        "horizon": horizon,
    }  # fmt: skip
    if isinstance(table, Rows):
        if when is not None or label is not None:
            raise ValueError("Rows have their times and labels: leave out when= and label=")
        return fit_rows(table, train_config(when="when", label="label", **options))
    for name, value in (("when", when), ("label", label)):
        if value is None:
            raise ValueError(
                f"{name}= is missing: give the name of the {'time' if name == 'when' else 'label'} column"
            )
    assert when is not None
    assert label is not None
    config = train_config(when=when, label=label, **options)
    source = source_of(table, config.columns, FormatOptions(format, encoding, tuple(ignore)))
    return fit_source(config, source)


def fit_source(config: TrainConfig, source: Source) -> Pluralistic:
    """Train on all rows of a source, and return the model."""
    progress = ProgressLog()
    reading, parts = open_reader(config, source, lambda stage: logger.info("fit: %s", stage))
    unused = {name: why for name, why in reading.columns.ignored.items() if why != "as asked"}
    if unused:
        logger.warning(
            "columns that are not used: %s; leave them out by ignore=",
            ", ".join(f"{name!r} ({why})" for name, why in unused.items()),
        )
    learner = config.learner(
        reading.features.width,
        expected_features(config, reading.features, reading.labels.loss.outputs),
        reading.labels.loss,
    )
    names, rows = FeatureNames.of(reading.features), 0
    reader = Reader(config, source.name, reading, names)
    for chunk in read_ahead(reader.chunks(parts)):
        if chunk is None:
            continue
        learner.learn(chunk.arrived.rows, chunk.arrived.clock, chunk.arrived.ticks)
        rows += len(chunk.arrived.rows)
        progress.rows(rows, learner.mean_loss)
    last = reader.rest()
    if last is not None:
        learner.learn(last.arrived.rows, last.arrived.clock, last.arrived.ticks)
        rows += len(last.arrived.rows)
    learner.end()
    if not learner.has_learned:
        raise ValueError(NO_MODEL)
    logger.info(
        "fit: done, %s rows (%d without a label and %d that cannot be read were left out), loss %.4f, %.1f s",
        f"{rows:,}",
        reader.state.counts.unlabelled,
        reader.state.counts.refused,
        learner.mean_loss(),
        progress.seconds,
    )
    return model_of(config, replace(reader.state, names_known=len(names.names)), learner, names)


def fit_rows(rows: Rows, config: TrainConfig) -> Pluralistic:
    """Train on encoded rows, and return the model."""
    if rows.labels is None:
        raise ValueError("the rows have no labels: give y to Rows, or label= to read")
    if not rows.intercept:
        raise ValueError("the rows have intercept=False: use a function of semicyclic.train")
    labels, codes = _encode_labels(rows.labels, config)
    learner = config.learner(rows.width, count_features(rows), labels.loss)
    cycle, block = rows.place(config.schedule)
    ticks = rows.when
    clock = np.arange(len(rows)) if ticks is None else ticks
    placed = with_fields(rows.with_blocks(block, cycle), labels=codes, values=rows.values.astype(np.float32))
    learn_in_chunks(learner, placed, clock, ticks)
    learner.end()
    if not learner.has_learned:
        raise ValueError(NO_MODEL)
    return finish_model(learner.model(), labels, rows.features)


def _encode_labels(values: Array, config: TrainConfig) -> tuple[Labels, Array]:
    """Return the encoding of the labels of rows, and the encoded labels."""
    kind = BOOLEAN if values.dtype.kind == "b" else NUMBER if values.dtype.kind in "iuf" else CATEGORY
    cells = pa.array([str(value) for value in values]) if kind == CATEGORY else values.astype(np.float64)
    labels = learn_labels(cells, kind, config.loss, config.classes)
    codes, unknown = labels.codes(cells)
    if unknown.any():
        raise ValueError(
            f"row {int(unknown.argmax())}: {labels.new_classes(cells, np.arange(len(values)), unknown)[0][1]}"
        )
    return labels, codes
