"""`semicyclic train`: train a model per block from files."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, specs, tables, training
from semicyclic.cli.options import (
    BatchSize,
    Bins,
    Bits,
    CategoryColumns,
    Classes,
    Encoding,
    Files,
    Format,
    IgnoredColumns,
    Label,
    LabelDelay,
    Late,
    Lateness,
    LossName,
    Memory,
    NumberColumns,
    OnError,
    ScheduleSpec,
    TextColumns,
    When,
    WhenFormat,
    Zone,
)
from semicyclic.cli.output_dir import output_dir
from semicyclic.cli.train_options import train_config


def train(
    files: Files,
    /,
    *,
    when: When,
    label: Label,
    out: Annotated[
        Path, Parameter(help="Output folder for the model, the checkpoint, the log and results.json.")
    ],
    schedule: ScheduleSpec = "daily:6",
    zone: Zone = "UTC",
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
    loss: LossName = None,
    classes: Classes = None,
    step_size: Annotated[
        str, Parameter(help="adaptive (AdaGrad per column, rate .2), adaptive:.5, or a constant step size.")
    ] = "adaptive",
    batch_size: BatchSize = 16,
    read_out: Annotated[
        str,
        Parameter(
            help="Model of a block: mean of its iterates, last iterate, tail:5 (mean of the last 5 cycles) "
            "or fading:5 (mean with a half-life of 5 cycles)."
        ),
    ] = "mean",
    number: NumberColumns = None,
    category: CategoryColumns = None,
    text: TextColumns = None,
    ignore: IgnoredColumns = None,
    bins: Bins = 16,
    first_pass: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Read all files once before training: one column per feature, scales from all rows.",
        ),
    ] = False,
    when_format: WhenFormat = None,
    lateness: Lateness = "0",
    late: Late = "drop",
    label_delay: LabelDelay = "0",
    on_error: OnError = "stop",
    memory: Memory = "1GB",
    bits: Bits = None,
    save_every: Annotated[
        str,
        Parameter(help="Minimum time between checkpoints, and between model files; 0: as often as possible."),
    ] = "2s",
    follow: Annotated[
        bool, Parameter(negative=(), help="Keep reading as the input grows (like `tail -f`).")
    ] = False,
    resume: Annotated[
        bool, Parameter(negative=(), help="Resume the interrupted run in the --out folder.")
    ] = False,
    format: Format = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Train one model per block, in a single pass over timestamped rows.

    Rows are learned from in time order; their number is not limited. A model file is written at the end of
    every cycle, and a checkpoint every few seconds. A run that is killed continues with --resume and ends
    with the same result. Numbers are scaled and binned; categories and texts are hashed.

    Example: semicyclic train flights.parquet --when when --label late --zone America/New_York --out late

    Example: tail -f clicks.jsonl | semicyclic train - --when at --label clicked --follow --out clicks
    """

    config = train_config(locals())
    inputs = tables.sources.Sources(
        files, tables.text_formats.FormatOptions(format, encoding, tuple(ignore or ())), follow
    )
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
        save_seconds = specs.parse_duration("--save-every", save_every) / 1e6
        try:
            with reports.train.progress(console) as report_progress:
                file_training = training.train_files.FileTraining(
                    config, inputs, out, report_progress, every=save_seconds
                )
                results = file_training.go(resume=resume)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped: go on with the same command and --resume") from None
        reports.train.print_results(Console(), results, out, time.perf_counter() - started)


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
