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
from semicyclic.cli.options import Encoding, Format, Ignored, Late, OnError
from semicyclic.cli.output_dir import output_dir
from semicyclic.cli.train_options import train_config


def train(
    files: Annotated[
        list[str],
        Parameter(
            allow_leading_hyphen=True,
            help="CSV, JSON lines or Parquet files, folders, or - for standard input.",
        ),
    ],
    /,
    *,
    when: Annotated[
        list[str],
        Parameter(
            consume_multiple=True, negative=(), help="The column with the time, or a date and an hour."
        ),
    ],
    label: Annotated[str, Parameter(help="The column to predict.")],
    out: Annotated[Path, Parameter(help="Folder for the model, the checkpoint and results.json.")],
    schedule: Annotated[
        str, Parameter(help="Blocks: daily:6, weekly:7, daily:06:00,13:30,22:00 (starts), every:90min:3.")
    ] = "daily:6",
    zone: Annotated[str, Parameter(help="Zone of the blocks, and of times that name none.")] = "UTC",
    method: Annotated[
        Literal["auto", "pluralistic", "separate", "residual", "hedged", "consensus"],
        Parameter(
            help="auto: hundreds of candidates at once, mixed by what they lost lately in each block; "
            "hedged: between one chain and one for each block, by block; separate: a chain for each block; "
            "residual: one chain and a small difference for each block; pluralistic: one chain, averaged by "
            "block, for rows that are independent within blocks; consensus: one model for all."
        ),
    ] = "auto",
    loss: Annotated[
        str | None,
        Parameter(
            help="logistic, hinge, softmax(3), squared, absolute or quantile(0.9). Unless given: "
            "logistic for "
            "two values, booleans or two texts, softmax for more texts, squared for numbers."
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, negative=(), help="All classes, where the first rows lack some."),
    ] = None,
    step_size: Annotated[
        str, Parameter(help="adaptive (per column, rate .2), adaptive:.5, or a number for constant steps.")
    ] = "adaptive",
    batch_size: Annotated[int, Parameter(help="Rows a step.")] = 16,
    read_out: Annotated[
        str, Parameter(help="The model of a block: mean of its iterates, last, tail:5 or fading:5 (cycles).")
    ] = "mean",
    number: Annotated[
        list[str] | None, Parameter(consume_multiple=True, negative=(), help="Columns that are numbers.")
    ] = None,
    category: Annotated[
        list[str] | None, Parameter(consume_multiple=True, negative=(), help="Columns that are categories.")
    ] = None,
    text: Annotated[
        list[str] | None, Parameter(consume_multiple=True, negative=(), help="Columns that are prose.")
    ] = None,
    ignore: Ignored = None,
    bins: Annotated[int, Parameter(help="Quantile bins of a number, beside its value; 1 for none.")] = 16,
    first_pass: Annotated[
        bool,
        Parameter(negative=(), help="Read all once before: a column for every feature, scales of all."),
    ] = False,
    when_format: Annotated[
        str | None, Parameter(help="How times are written, such as '%d.%m.%Y %H:%M'.")
    ] = None,
    lateness: Annotated[
        str, Parameter(help="How much older than the newest row a row may be: 10min, 2d.")
    ] = "0",
    late: Late = "drop",
    label_delay: Annotated[str, Parameter(help="How long after its row a label is known: 1h, 2d.")] = "0",
    on_error: OnError = "stop",
    memory: Annotated[
        str, Parameter(help="Memory to use; decides how many columns and cycles are kept.")
    ] = "1GB",
    bits: Annotated[int | None, Parameter(help="2^BITS hashed columns; from --memory unless given.")] = None,
    save_every: Annotated[
        str,
        Parameter(help="Least time between two checkpoints, or two model files; 0 for as often as can be."),
    ] = "2s",
    follow: Annotated[
        bool, Parameter(negative=(), help="Wait for more when the input ends, for ever.")
    ] = False,
    resume: Annotated[
        bool, Parameter(negative=(), help="Go on where the run in --out was stopped or killed.")
    ] = False,
    format: Annotated[Format | None, Parameter(help="Where the files' names do not tell.")] = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Train a model for every block, in one pass over timestamped rows of any number.

    Rows are learnt from in the order of time. A model file is written at the end of every cycle, and a
    checkpoint every few seconds: killed at any instant, the run goes on with --resume as if nothing had
    happened. Numbers are scaled and cut into bins, categories and texts are hashed.

    Example: semicyclic train flights.parquet --when when --label late --zone America/New_York --out late

    Example: tail -f clicks.jsonl | semicyclic train - --when at --label clicked --follow --out clicks
    """

    job = train_config(locals())
    inputs = tables.sources.Sources(
        files, tables.text_formats.FormatOptions(format, encoding, tuple(ignore or ())), follow
    )
    console = Console(stderr=True)
    with output_dir(out), training.run_dir.lock_run_dir(out), _stoppable():
        if training.run_dir.holds_run(out) and not resume:
            raise ValueError(
                f"--out {out}: there is a run in this folder: go on with it (--resume), or name another"
            )
        known = (out / training.run_dir.CHECKPOINT).exists()
        if resume and not known:
            console.print("no checkpoint yet: starting from the beginning", highlight=False)
        started = time.perf_counter()
        every = specs.parse_duration("--save-every", save_every) / 1e6
        try:
            with reports.train.progress(console) as tell:
                results = training.train_files.FileTraining(job, inputs, out, tell, every=every).go(
                    resume=resume
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped: go on with the same command and --resume") from None
        reports.train.print_results(Console(), results, out, time.perf_counter() - started)


@contextmanager
def _stoppable() -> Iterator[None]:
    """A polite request to end (SIGTERM) ends a run like Ctrl-C: between two files, never in one."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: whoever runs us has his own signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
