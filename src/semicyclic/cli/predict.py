"""`semicyclic predict`: add predictions to the rows of files."""

import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, tables, training
from semicyclic.cli.options import Encoding, Files, Format, IgnoredColumns, ModelFile, OnError


def predict(
    model: ModelFile,
    files: Files,
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(help="Output file: .csv, .jsonl or .parquet. Default: CSV on standard output."),
    ] = None,
    on_error: OnError = "stop",
    ignore: IgnoredColumns = None,
    format: Format = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Add the columns block, prediction and, for classes, probability to every row.

    The files must look like those that the model was trained on. With two classes, the probability is that of
    the second class; with more, that of the predicted class. Rows keep their order. With --on-error skip, an
    unreadable row gets an empty prediction.

    Example: semicyclic predict late new-flights.csv --out predictions.csv
    """

    loaded = training.open_model.load(model)
    inputs = tables.sources.Sources(
        files, tables.text_formats.FormatOptions(format, encoding, tuple(ignore or ()))
    )
    output_format = "csv" if out is None else tables.formats.format_by_name(out)
    if output_format is None or (out is not None and out.suffix == ".gz"):
        raise ValueError(f"--out {out}: name it .csv, .jsonl or .parquet, so that its format is known")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.parent}")
    console = Console(stderr=True)
    started, rows, empty, left_out = time.perf_counter(), 0, 0, 0
    with (
        reports.terminal.progress(console) as report_progress,
        tables.writers.open_writer(out, output_format, sys.stdout.buffer) as writer,
    ):
        for batch in training.predict.predict_batches(loaded, inputs, skip=on_error == "skip"):
            writer.write(batch.table, batch.added, batch.lines)
            rows += batch.table.num_rows
            empty += batch.empty
            left_out += batch.left_out
            report_progress(batch.share, f"{rows:,} rows")
    if out is not None or empty or left_out:
        exceptions = f", {empty:,} of them without an answer" if empty else ""
        exceptions += f", and {left_out:,} left out that were no rows" if left_out else ""
        target = f": {out}" if out is not None else ""
        seconds = time.perf_counter() - started
        console.print(f"{rows:,} rows{exceptions}, {seconds:.1f} s{target}", highlight=False, soft_wrap=True)
