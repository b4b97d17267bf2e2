"""Option groups shared by several commands, and the loading of a whole file as a stream."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from semicyclic import auto, evaluation, experiments, specs, tables, training
from semicyclic.cli.train_options import train_config
from semicyclic.types import ReportProgress

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())]
OnError = Annotated[
    Literal["stop", "skip"],
    Parameter(help="Stop at a row that cannot be read, or leave it out and count it."),
]
Late = Annotated[
    Literal["drop", "keep", "stop"],
    Parameter(help="Rows later than --lateness: drop them, keep them as they come, or stop at the first."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class ColumnOptions:
    """What columns are, and how files are read."""

    number: Annotated[Names, Parameter(help="Columns that are numbers.")] = None
    category: Annotated[Names, Parameter(help="Columns that are categories.")] = None
    text: Annotated[Names, Parameter(help="Columns that are texts.")] = None
    ignore: Annotated[Names, Parameter(help="Columns to leave out.")] = None
    loss: Annotated[
        str | None, Parameter(help="logistic, squared, absolute or quantile(0.9), unless the label tells.")
    ] = None
    classes: Annotated[Names, Parameter(help="All classes, where the first rows lack some.")] = None
    when_format: Annotated[str | None, Parameter(help="How times are written, such as '%d.%m.%Y %H:%M'.")] = (
        None
    )
    lateness: Annotated[
        str, Parameter(help="How late rows may come and still be put in order, such as 2h.")
    ] = "0"
    late: Late = "drop"
    on_error: OnError = "stop"
    bins: Annotated[int, Parameter(help="Quantile bins of a number, beside its scaled value.")] = 16
    bits: Annotated[int | None, Parameter(help="2^bits hashed columns.")] = None
    memory: Annotated[str, Parameter(help="How much memory the rows may use, such as 2GB.")] = "4GB"
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None, Parameter(help="Where the files' names do not tell.")
    ] = None
    encoding: Annotated[str, Parameter(help="Encoding of CSV and JSON lines.")] = "utf-8"


Files = Annotated[
    list[str],
    Parameter(allow_leading_hyphen=True, help="CSV, JSON lines or Parquet files, folders, or -."),
]
When = Annotated[
    list[str],
    Parameter(consume_multiple=True, negative=(), help="The column with the time, or a date and an hour."),
]
Label = Annotated[str, Parameter(help="The column to predict.")]
Zone = Annotated[str, Parameter(help="Zone of the blocks, and of times that name none.")]
Plan = Annotated[str, Parameter(help="Blocks: daily:24, weekly:168, daily:06:00,13:30,22:00, every:90min:3.")]
Out = Annotated[Path, Parameter(help="Folder for the report and results.json.")]
Delay = Annotated[str, Parameter(help="How long after its row a label is known, such as 1d.")]
NO_COLUMNS = ColumnOptions()


def reading_config(told: dict[str, Any]) -> "training.config.TrainConfig":
    """The job of reading these files; labels are taken as known at once, and held back later."""

    columns = vars(told["columns"])
    rest = {
        "method": "pluralistic",
        "step_size": "adaptive",
        "batch_size": 16,
        "label_delay": "0",
        "first_pass": False,
        "read_out": "mean",
    }
    return train_config(
        {**rest, **columns, **{name: told[name] for name in ("when", "label", "zone", "schedule")}}
    )


class LoadedStream(NamedTuple):
    """All rows of some files in memory, and how they were read."""

    config: "training.config.TrainConfig"
    loaded: "training.load_all.LoadedRows"
    stream: "evaluation.backtest.LabelledStream"


def load_stream(told: dict[str, Any], tell: ReportProgress) -> LoadedStream:
    """All rows of the files, and the stream they are."""

    job = reading_config(told)
    columns = told["columns"]
    if columns.loss == "hinge":
        raise ValueError("--loss hinge: it has no probabilities to be judged by: choose logistic")
    inputs = tables.sources.Sources(
        told["files"],
        tables.text_formats.FormatOptions(columns.format, columns.encoding, tuple(columns.ignore or ())),
    )
    found = training.load_all.load_all(job, inputs, tell)
    labels = found.reading.labels
    scale = labels.scale if not labels.classes else 1.0
    if not scale < 1e100:
        raise ValueError(f"labels of column {told['label']!r} are around {scale:.0e}: scale them first")
    target = auto.buffer.targets(found.rows.labels, labels.loss)
    held = found.rows, found.ticks, found.clock, target, labels.loss
    stream = evaluation.backtest.LabelledStream(
        *held, (scale**2, scale), 0.0 if labels.classes else labels.mean
    )
    return LoadedStream(job, found, stream)


def parse_warm_up(text: str, clock: Any) -> int:
    """How many rows are learnt from before any is scored: 30%, a number of rows, or a length of time."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%?)", text.strip())
    count = len(clock)
    if found is None:
        import numpy as np

        rows = int(np.searchsorted(clock, clock[0] + specs.parse_duration("--warm-up", text), side="left"))
    elif found[2]:
        rows = int(float(found[1]) / 100 * count)
    else:
        rows = int(float(found[1]))
    if not 0 <= rows < count:
        raise ValueError(f"--warm-up {text}: that leaves none of {count:,} rows to be scored: give less")
    return rows


Format = Literal["csv", "jsonl", "parquet"]


Encoding = Annotated[str, Parameter(help="Encoding of CSV and JSON lines.")]


Ignored = Annotated[
    list[str] | None, Parameter(consume_multiple=True, negative=(), help="Columns to leave out.")
]


def model_path(path: Path) -> Path:

    if path.is_dir():
        if not (path / training.run_dir.MODEL).is_file():
            raise FileNotFoundError(f"{path}: there is no model in this folder yet")
        return path / training.run_dir.MODEL
    return path


def describe_stream(
    job: "training.config.TrainConfig",
    found: "training.load_all.LoadedRows",
    stream: "evaluation.backtest.LabelledStream",
) -> dict[str, Any]:
    """What was asked of which rows."""

    reading = found.reading
    return {
        "task": "classification" if reading.labels.classes else "regression",
        "loss": stream.loss.name,
        "label": reading.columns.label,
        "classes": list(reading.labels.classes),
        "rows": len(stream.clock),
        "first": int(stream.clock[0]),
        "last": int(stream.clock[-1]),
        "zone": job.schedule.zone,
        "schedule": job.schedule.to_json(),
        "blocks": list(job.schedule.labels),
        "versions": experiments.reproduce.run.versions(),
    }
