"""`semicyclic train`: train a model per block from files."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import method, reports, schedule, specs, tables, training
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
            help="Model of a block: mean of its iterates, last iterate, tail:5 (mean of the last 5 cycles), "
            "tail (of half of them), last-cycle, or fading:5 (mean with a half-life of 5 cycles)."
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
        save_seconds = specs.parse_duration("save_every", save_every) / 1e6
        try:
            with reports.train.progress(console) as report_progress:
                file_training = training.train_files.FileTraining(
                    config, inputs, out, report_progress, save_seconds=save_seconds
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


def train_config(given: dict[str, Any]) -> "training.config.TrainConfig":
    """Check the options and return the settings of the run.

    given: option values by parameter name.
    """

    when = [name for names in given["when"] for name in names.split(",")]
    if len(when) not in (1, 2):
        raise ValueError(f"--when {' '.join(when)}: give one column, or two: a date and an hour")
    columns_by_kind = {kind: tuple(given[kind] or ()) for kind in ("number", "category", "text", "ignore")}
    all_columns = [name for names in columns_by_kind.values() for name in names]
    for name in all_columns:
        if all_columns.count(name) > 1:
            raise ValueError(
                f"column {name!r} is named twice among --number, --category, --text and --ignore"
            )
    if given["batch_size"] < 1:
        raise ValueError(f"--batch-size {given['batch_size']}: must be at least 1")
    if given["bins"] < 1 or given["bins"] > 1000:
        raise ValueError(f"--bins {given['bins']}: must be from 1 to 1000")
    if given["bits"] is not None and not 4 <= given["bits"] <= 24:
        raise ValueError(f"--bits {given['bits']}: must be from 4 to 24")
    try:
        schedule.timezones.zone_info(given["zone"])
    except ValueError as error:
        raise ValueError(f"--zone {given['zone']}: {error}") from None
    if given["when_format"] is not None and "%" not in given["when_format"]:
        raise ValueError(
            f"--when-format {given['when_format']}: write it with % signs, such as '%d.%m.%Y %H:%M'"
        )
    memory = specs.parse_size("memory", given["memory"])
    if memory < 64 * 10**6:
        raise ValueError(f"--memory {given['memory']}: must be at least 64MB")
    if given["loss"] is not None:
        method.loss.by_name(given["loss"])
    step = specs.parse_step("step_size", given["step_size"])
    read_out = specs.parse_read_out("read_out", given["read_out"])
    if given["method"] == "auto":
        _check_auto_defaults(given)
    return training.config.TrainConfig(
        tables.columns.ColumnRequest(
            tuple(when), given["label"], given["zone"], given["when_format"], **columns_by_kind
        ),
        specs.parse_schedule("schedule", given["schedule"], given["zone"]),
        method=given["method"],
        loss=given["loss"],
        classes=tuple(given["classes"] or ()),
        step=step,
        batch_size=given["batch_size"],
        lateness=specs.parse_duration("lateness", given["lateness"]),
        late=tables.watermark.LatePolicy(given["late"]),
        skip_errors=given["on_error"] == "skip",
        label_delay=specs.parse_duration("label_delay", given["label_delay"]),
        memory=memory,
        bits=given["bits"],
        bins=given["bins"],
        first_pass=given["first_pass"],
        read_out=read_out,
    )


def _check_auto_defaults(given: dict[str, Any]) -> None:
    """Raise if an option is set that method `auto` tries many values of."""
    for name, default in (("step_size", "adaptive"), ("batch_size", 16), ("read_out", "mean")):
        if given[name] != default:
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} {given[name]}: --method auto tries many of these: name a method of which there "
                "is one, such as --method hedged"
            )
