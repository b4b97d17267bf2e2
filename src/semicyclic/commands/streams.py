"""The commands for people's own files: train, predict, inspect."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import units
from semicyclic.commands.places import folder
from semicyclic.commands.wishes import job_of
from semicyclic.files import check_installed

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())]
Format = Literal["csv", "jsonl", "parquet"]
Bad = Annotated[
    Literal["stop", "skip"],
    Parameter(help="Stop at a row that cannot be read, or leave it out and count it."),
]
Encoding = Annotated[str, Parameter(help="Encoding of CSV and JSON lines.")]
Ignored = Annotated[
    list[str] | None, Parameter(consume_multiple=True, negative=(), help="Columns to leave out.")
]


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
    late: Annotated[
        Literal["refuse", "use"], Parameter(help="Rows beyond that: refuse them, or use them as they come.")
    ] = "refuse",
    label_delay: Annotated[str, Parameter(help="How long after its row a label is known: 1h, 2d.")] = "0",
    bad: Bad = "stop",
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
    check_installed()
    from semicyclic.data.inputs import Inputs
    from semicyclic.data.parse import Options
    from semicyclic.show import streams as show
    from semicyclic.stream.folder import CHECKPOINT, holds_run, locked
    from semicyclic.stream.training import Training

    job = job_of(locals())
    inputs = Inputs(files, Options(format, encoding, tuple(ignore or ())), follow)
    console = Console(stderr=True)
    with folder(out), locked(out), _stoppable():
        if holds_run(out) and not resume:
            raise ValueError(
                f"--out {out}: there is a run in this folder: go on with it (--resume), or name another"
            )
        known = (out / CHECKPOINT).exists()
        if resume and not known:
            console.print("no checkpoint yet: starting from the beginning", highlight=False)
        started = time.perf_counter()
        every = units.length("--save-every", save_every) / 1e6
        try:
            with show.progress(console) as tell:
                results = Training(job, inputs, out, tell, every=every).go(resume=resume)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped: go on with the same command and --resume") from None
        show.trained(Console(), results, out, time.perf_counter() - started)


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
    bad: Bad = "stop",
    ignore: Ignored = None,
    format: Annotated[Format | None, Parameter(help="Where the files' names do not tell.")] = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Add block, prediction and (of classes) probability to every row.

    The probability is that of the second of two classes, or of the class predicted among several. Rows
    stay in their order; of a row that cannot be read (--bad skip) the answer is empty.

    Example: semicyclic predict late new-flights.csv --out predictions.csv
    """
    check_installed()
    from semicyclic.data.inputs import Inputs
    from semicyclic.data.parse import Options
    from semicyclic.data.tables import format_by_name
    from semicyclic.show import terminal
    from semicyclic.store.modelfile import load
    from semicyclic.stream.predicting import answers, opened

    loaded = load(_model_file(model))
    inputs = Inputs(files, Options(format, encoding, tuple(ignore or ())))
    kind = "csv" if out is None else format_by_name(out)
    if kind is None or (out is not None and out.suffix == ".gz"):
        raise ValueError(f"--out {out}: name it .csv, .jsonl or .parquet, so that its format is known")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.parent}")
    console = Console(stderr=True)
    started, rows, empty, left_out = time.perf_counter(), 0, 0, 0
    with terminal.progress(console) as tell, opened(out, kind, sys.stdout.buffer) as writer:
        for answered in answers(loaded, inputs, skip=bad == "skip"):
            writer.write(answered)
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


def inspect(
    model: Annotated[Path, Parameter(help="A model file, or the folder of a run.")],
    /,
    *,
    top: Annotated[int, Parameter(help="How many features that differ between blocks.")] = 10,
    json_: Annotated[
        bool, Parameter(name="--json", negative=(), help="For programs: all of it as JSON.")
    ] = False,
) -> None:
    """Show a model: its schedule, its loss in every block, what differs between blocks, where it comes from.

    Example: semicyclic inspect late --top 5
    """
    check_installed()
    from semicyclic.show import streams as show
    from semicyclic.store.modelfile import load
    from semicyclic.stream.inspecting import described

    if top < 0:
        raise ValueError(f"--top {top}: must be 0 or more")
    path = _model_file(model)
    found = described(load(path), top=top)
    if json_:
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        show.model(Console(), path, found)


def _model_file(path: Path) -> Path:
    from semicyclic.stream.folder import MODEL

    if path.is_dir():
        if not (path / MODEL).is_file():
            raise FileNotFoundError(f"{path}: there is no model in this folder yet")
        return path / MODEL
    return path
