"""Loading of complete files as one labelled stream in memory, for `backtest` and `diagnose`."""

from typing import Any, NamedTuple

from semicyclic import auto, evaluation, experiments, tables, training
from semicyclic.cli.train import train_config
from semicyclic.types import ReportProgress


def reading_config(given: dict[str, Any]) -> "training.config.TrainConfig":
    """Return the settings for reading the files of `backtest` and `diagnose`.

    The label delay is 0 here: labels are known as soon as their rows are read, and the backtest applies the
    delay later.
    """

    columns = vars(given["columns"])
    fixed = {
        "method": "pluralistic",
        "step_size": "adaptive",
        "batch_size": 16,
        "label_delay": "0",
        "first_pass": False,
        "read_out": "mean",
    }
    return train_config(
        {**fixed, **columns, **{name: given[name] for name in ("when", "label", "zone", "schedule")}}
    )


class LoadedStream(NamedTuple):
    """All rows of the input files in memory, with the settings used to read them."""

    config: "training.config.TrainConfig"
    loaded: "training.load_all.LoadedRows"
    stream: "evaluation.backtest.LabelledStream"


def load_stream(given: dict[str, Any], report_progress: ReportProgress) -> LoadedStream:
    """Read all rows of the files into memory, as a labelled stream.

    given: option values by parameter name.
    """

    config = reading_config(given)
    columns = given["columns"]
    if columns.loss == "hinge":
        raise ValueError("--loss hinge: it has no probabilities to be judged by: choose logistic")
    inputs = tables.sources.Sources(
        given["files"],
        tables.text_formats.FormatOptions(columns.format, columns.encoding, tuple(columns.ignore or ())),
    )
    loaded = training.load_all.load_all(config, inputs, report_progress)
    labels = loaded.reading.labels
    scale = labels.scale if not labels.classes else 1.0
    if not scale < 1e100:
        raise ValueError(
            f"the labels in column {given['label']!r} are of order {scale:.0e}, which is too large: "
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
