"""Option types and groups shared by several commands."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from semicyclic import method, specs, tables

# An option that takes several values and has no `--no-` form.
Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())]

# ------------------------------------------------------------------------------------- input files

Files = Annotated[
    list[str],
    Parameter(
        allow_leading_hyphen=True, help="CSV, JSON lines or Parquet files, folders, or - for standard input."
    ),
]
Format = Annotated[
    Literal["csv", "jsonl", "parquet"] | None,
    Parameter(help="File format, if the file names do not show it."),
]
Encoding = Annotated[str, Parameter(help="Text encoding of CSV and JSON lines files.")]
OnError = Annotated[
    Literal["stop", "skip"],
    Parameter(help="Unreadable rows: stop at the first, or skip and count them."),
]

# ------------------------------------------------------------------------------------- columns

When = Annotated[
    list[str],
    Parameter(consume_multiple=True, negative=(), help="Time column, or a date column and an hour column."),
]
WhenFormat = Annotated[str | None, Parameter(help="Format of the times, such as '%d.%m.%Y %H:%M'.")]
Label = Annotated[str, Parameter(help="Column to predict.")]
Classes = Annotated[Names, Parameter(help="All classes, if some are missing from the first rows.")]
LossName = Annotated[
    str | None,
    Parameter(
        help=f"{', '.join(method.loss.CLASS_LOSSES)} (hinge: train only) for classes; "
        f"{', '.join(method.loss.NUMBER_LOSSES)} for numbers. Default: logistic for two values, booleans or "
        "two texts, softmax for more texts, squared for numbers."
    ),
]
NumberColumns = Annotated[Names, Parameter(help="Columns to read as numbers.")]
CategoryColumns = Annotated[Names, Parameter(help="Columns to read as categories.")]
TextColumns = Annotated[Names, Parameter(help="Columns to read as free text.")]
IgnoredColumns = Annotated[Names, Parameter(help="Columns to leave out.")]
Bins = Annotated[int, Parameter(help="Quantile bins per number column, added to its scaled value; 1: none.")]
Bits = Annotated[
    int | None,
    Parameter(help="Use 2^BITS hashed columns. Default: chosen from the first rows and --memory."),
]
Memory = Annotated[
    str,
    Parameter(
        help="Memory budget, such as 2GB, for rows, candidates and past cycles; also limits hashed columns."
    ),
]

# ------------------------------------------------------------------------------------- time

Zone = Annotated[str, Parameter(help="Time zone of the blocks, and of times without a zone.")]
ScheduleSpec = Annotated[
    str,
    Parameter(
        help="Blocks: daily:6, weekly:7, daily:06:00,13:30,22:00 (start times), yearly:12 or every:90min:3."
    ),
]
Lateness = Annotated[
    str, Parameter(help="Maximum lag behind the newest row at which a row is still sorted in: 10min, 2d.")
]
Late = Annotated[
    Literal["drop", "keep", "stop"],
    Parameter(help="Rows later than --lateness: drop them, keep them in input order, or stop at the first."),
]
LabelDelay = Annotated[str, Parameter(help="Time from a row until its label is known, such as 1h or 2d.")]

# ------------------------------------------------------------------------------------- models and reports

ModelFile = Annotated[Path, Parameter(help="Model file, or folder of a training run.")]
ReportDir = Annotated[Path, Parameter(help="Output folder for the report, its figures and results.json.")]
Horizon = Annotated[
    str, Parameter(help="How long a model will serve until it is trained again: 1d, 7d. For method auto.")
]
BatchSize = Annotated[int, Parameter(help="Rows per SGD step (minibatch size).")]


@Parameter(name="*")
@dataclass(frozen=True)
class InputOptions:
    """Options of `train`, `backtest` and `diagnose` for the time, the label and the time zone."""

    when: When
    label: Label
    zone: Zone = "UTC"


@Parameter(name="*")
@dataclass(frozen=True)
class ColumnOptions:
    """Options of `train`, `backtest` and `diagnose` for columns and for reading files."""

    number: NumberColumns = None
    category: CategoryColumns = None
    text: TextColumns = None
    ignore: IgnoredColumns = None
    loss: LossName = None
    classes: Classes = None
    when_format: WhenFormat = None
    lateness: Lateness = "0"
    late: Late = "drop"
    on_error: OnError = "stop"
    bins: Bins = 16
    bits: Bits = None
    format: Format = None
    encoding: Encoding = "utf-8"

    def format_options(self) -> "tables.text_formats.FormatOptions":
        """Return the options of the file reader."""
        return tables.text_formats.FormatOptions(self.format, self.encoding, tuple(self.ignore or ()))


DEFAULT_COLUMNS = ColumnOptions()


def parse_warm_up(text: str, clock: Any) -> int:
    """Return the number of warm-up rows, which are learned from but not scored.

    text: a percentage of the rows (30%), a number of rows, or a duration from the first row (14d).
    clock: [n] arrival times of the rows in microseconds, ascending.
    """
    number = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%?)", text.strip())
    count = len(clock)
    if number is None:
        import numpy as np

        rows = int(np.searchsorted(clock, clock[0] + specs.parse_duration("warm_up", text), side="left"))
    elif number[2]:
        rows = int(float(number[1]) / 100 * count)
    else:
        rows = int(float(number[1]))
    if not 0 <= rows < count:
        raise ValueError(f"--warm-up {text}: that leaves none of {count:,} rows to be scored: give less")
    return rows
