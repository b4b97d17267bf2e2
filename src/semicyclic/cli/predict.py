"""`semicyclic predict`: add predictions to the rows of files."""

import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, store, tables, training
from semicyclic.cli.options import Encoding, Format, Ignored, OnError, model_path


def predict(
    model: Annotated[Path, Parameter(help="A model file, or the folder of a run.")],
    files: Annotated[
        list[str],
        Parameter(allow_leading_hyphen=True, help="Files like those it was trained from, folders, or -."),
    ],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(help="File to write: .csv, .jsonl or .parquet. Unless given, CSV to standard output."),
    ] = None,
    on_error: OnError = "stop",
    ignore: Ignored = None,
    format: Annotated[Format | None, Parameter(help="Where the files' names do not tell.")] = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Add block, prediction and (of classes) probability to every row.

    The probability is that of the second of two classes, or of the class predicted among several. Rows
    stay in their order; of a row that cannot be read (--on-error skip) the answer is empty.

    Example: semicyclic predict late new-flights.csv --out predictions.csv
    """

    loaded = store.model_file.load(model_path(model))
    inputs = tables.sources.Sources(
        files, tables.text_formats.FormatOptions(format, encoding, tuple(ignore or ()))
    )
    kind = "csv" if out is None else tables.formats.format_by_name(out)
    if kind is None or (out is not None and out.suffix == ".gz"):
        raise ValueError(f"--out {out}: name it .csv, .jsonl or .parquet, so that its format is known")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.parent}")
    console = Console(stderr=True)
    started, rows, empty, left_out = time.perf_counter(), 0, 0, 0
    with (
        reports.terminal.progress(console) as tell,
        tables.writers.open_writer(out, kind, sys.stdout.buffer) as writer,
    ):
        for answered in training.predict.predict_batches(loaded, inputs, skip=on_error == "skip"):
            writer.write(answered.table, answered.added, answered.lines)
            rows += answered.table.num_rows
            empty += answered.empty
            left_out += answered.left_out
            tell(answered.share, f"{rows:,} rows")
    if out is not None or empty or left_out:
        less = f", {empty:,} of them without an answer" if empty else ""
        less += f", and {left_out:,} left out that were no rows" if left_out else ""
        where = f": {out}" if out is not None else ""
        seconds = time.perf_counter() - started
        console.print(f"{rows:,} rows{less}, {seconds:.1f} s{where}", highlight=False, soft_wrap=True)
