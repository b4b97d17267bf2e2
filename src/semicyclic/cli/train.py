"""`semicyclic train`: train a model per block from files."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, specs, tables, training
from semicyclic.cli.messages import name_options
from semicyclic.cli.options import (
    DEFAULT_COLUMNS,
    BatchSize,
    ColumnOptions,
    Files,
    Horizon,
    InputOptions,
    LabelDelay,
    Memory,
    ScheduleSpec,
)
from semicyclic.cli.output_dir import output_dir


def train(
    files: Files,
    /,
    *,
    inputs: InputOptions,
    out: Annotated[
        Path, Parameter(help="Output folder for the model, the checkpoint, the log and results.json.")
    ],
    schedule: ScheduleSpec = "daily:6",
    method: Annotated[
        Literal["auto", "pluralistic", "separate", "residual", "hedged", "consensus"],
        Parameter(
            help="auto: mixture of hundreds of candidates, weighted in each block by their recent loss; "
            "hedged: mixture of one shared chain and one chain per block, weighted in each block; "
            "separate: one chain per block; residual: one shared chain and a small difference per block; "
            "pluralistic: one chain, averaged per block, for rows that are independent within blocks; "
            "consensus: one model for all blocks."
        ),
    ] = "auto",
    step_size: Annotated[
        str,
        Parameter(
            help="normalized (AdaGrad per column, for features of any scale, rate .2), normalized:.5, "
            "adaptive (AdaGrad without scales), adaptive:.5, or a constant step size."
        ),
    ] = "normalized",
    batch_size: BatchSize = 16,
    l2: Annotated[
        float, Parameter(help="Strength of the penalty l2 / 2 ||w||^2 on the mean loss, without intercept.")
    ] = 0.0,
    read_out: Annotated[
        str,
        Parameter(help=f"Model of a block: {specs.read_out_help()}."),
    ] = "mean",
    first_pass: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Read all files once before training: one column per feature, scales from all rows.",
        ),
    ] = False,
    label_delay: LabelDelay = "0",
    horizon: Horizon = "1d",
    memory: Memory = "1GB",
    save_every: Annotated[
        str,
        Parameter(help="Minimum time between checkpoints, and between model files; 0: as often as possible."),
    ] = "2s",
    sample_rows: Annotated[
        int | None,
        Parameter(
            help="Number of first rows from which column types, scales and classes are inferred. "
            "Default: 16384."
        ),
    ] = None,
    follow: Annotated[
        bool, Parameter(negative=(), help="Keep reading as the input grows (like `tail -f`).")
    ] = False,
    resume: Annotated[
        bool, Parameter(negative=(), help="Resume the interrupted run in the --out folder.")
    ] = False,
    columns: ColumnOptions = DEFAULT_COLUMNS,
) -> None:
    """Train one model per block, in a single pass over timestamped rows.

    Rows are learned from in time order; their number is not limited. A model file is written at the end of
    every cycle, and a checkpoint every few seconds. A run that is killed continues with --resume and ends
    with the same result. Numbers are scaled and binned; categories and texts are hashed.

    Example: semicyclic train flights.parquet --when when --label late --zone America/New_York --out late

    Example: tail -f clicks.jsonl | semicyclic train - --when at --label clicked --follow --out clicks
    """

    config = train_config(
        inputs,
        columns,
        schedule=schedule,
        memory=memory,
        label_delay=label_delay,
        method=method,
        step_size=step_size,
        batch_size=batch_size,
        l2=l2,
        read_out=read_out,
        first_pass=first_pass,
        sample_rows=sample_rows,
        horizon=horizon,
    )
    sources = tables.sources.Sources(files, columns.format_options(), follow)
    console = Console(stderr=True)
    with output_dir(out), training.run_dir.lock_run_dir(out), _sigterm_as_interrupt():
        if training.run_dir.holds_run(out) and not resume:
            raise ValueError(
                f"--out {out}: there is a run in this folder: go on with it (--resume), or name another"
            )
        has_checkpoint = (out / training.run_dir.CHECKPOINT).exists()
        if resume and not has_checkpoint:
            console.print("no checkpoint yet: starting from the beginning", highlight=False)
        started = time.perf_counter()
        save_seconds = specs.parse_duration("save_every", save_every) / 1e6
        try:
            with reports.train.progress(console) as report_progress:
                file_training = training.train_files.FileTraining(
                    config, sources, out, report_progress, save_seconds=save_seconds
                )
                results = file_training.go(resume=resume)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped: go on with the same command and --resume") from None
        options = {field.name: f"--{field.name.replace('_', '-')}" for field in fields(ColumnOptions)}
        reports.train.print_results(
            Console(),
            results,
            out,
            time.perf_counter() - started,
            translate=lambda text: name_options(text, options),
        )


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that a run stops between two file writes, never within one."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        previous_handler = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: the caller handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def train_config(
    inputs: InputOptions, columns: ColumnOptions, **settings: Any
) -> "training.config.TrainConfig":
    """Return the settings of a run from the options of a command."""
    of_reader = ("format", "encoding")
    given = {field.name: getattr(columns, field.name) for field in fields(columns)}
    of_columns = {name: value for name, value in given.items() if value is not None and name not in of_reader}
    when = tuple(name for names in inputs.when for name in names.split(","))
    return training.config.train_config(
        when=when, label=inputs.label, zone=inputs.zone, **of_columns, **settings
    )
