"""Loading of complete files as one labelled stream in memory, for `backtest` and `diagnose`."""

from typing import Any, NamedTuple

from semicyclic import auto, evaluation, experiments, tables, training
from semicyclic.cli.options import ColumnOptions, InputOptions
from semicyclic.cli.train import train_config
from semicyclic.types import ReportProgress


class LoadedStream(NamedTuple):
    """All rows of the input files in memory, with the settings used to read them."""

    config: "training.config.TrainConfig"
    loaded: "training.load_all.LoadedRows"
    stream: "evaluation.backtest.LabelledStream"


def load_stream(
    files: list[str],
    report_progress: ReportProgress,
    inputs: InputOptions,
    columns: ColumnOptions,
    *,
    schedule: str,
    memory: str,
    horizon: str = "1d",
) -> LoadedStream:
    """Read all rows of the files into memory, as a labelled stream.

    The label delay is 0 here: labels are known as soon as their rows are read, and the backtest applies the
    delay later.
    """
    config = train_config(inputs, columns, schedule=schedule, memory=memory, horizon=horizon)
    if columns.loss == "hinge":
        raise ValueError("--loss hinge: it has no probabilities to be judged by: choose logistic")
    sources = tables.sources.Sources(files, columns.format_options())
    loaded = training.load_all.load_all(config, sources, report_progress)
    labels = loaded.reading.labels
    scale = labels.scale if not labels.classes else 1.0
    if not scale < 1e100:
        raise ValueError(
            f"the labels in column {inputs.label!r} are of order {scale:.0e}, which is too large: "
            "rescale them first"
        )
    target = auto.buffer.targets(loaded.rows.labels, labels.loss)
    stream = evaluation.backtest.LabelledStream(
        loaded.rows,
        loaded.ticks,
        loaded.clock,
        target,
        labels.loss,
        (scale**2, scale),
        0.0 if labels.classes else labels.mean,
    )
    return LoadedStream(config, loaded, stream)


def describe_stream(
    config: "training.config.TrainConfig",
    loaded: "training.load_all.LoadedRows",
    stream: "evaluation.backtest.LabelledStream",
) -> dict[str, Any]:
    """Return the task, rows, time span, schedule and package versions, for `results.json`."""

    reading = loaded.reading
    return {
        "task": "classification" if reading.labels.classes else "regression",
        "loss": stream.loss.name,
        "label": reading.columns.label,
        "classes": list(reading.labels.classes),
        "rows": len(stream.clock),
        "first": int(stream.clock[0]),
        "last": int(stream.clock[-1]),
        "zone": config.schedule.zone,
        "schedule": config.schedule.to_json(),
        "blocks": list(config.schedule.labels),
        "versions": experiments.reproduce.run.versions(),
    }
