"""`semicyclic reproduce`: run the paper's experiment."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import datasets, experiments, method, reports
from semicyclic.cli.output_dir import output_dir
from semicyclic.types import ReportProgress


def reproduce(
    file: Annotated[
        Path | None, Parameter(help="Sentiment140's CSV file; without it, a stand-in is made.")
    ] = None,
    *,
    out: Annotated[Path, Parameter(help="Folder for the report, the figures and results.json.")] = Path(
        "reproduce"
    ),
    as_: Annotated[
        Literal["text", "script"], Parameter(name="--as", help="The paper's words, or its authors' program.")
    ] = "text",
    seed: Annotated[int, Parameter(help="Seed of splits, skew and orders.")] = 0,
    repetitions: Annotated[int, Parameter(help="Repetitions, each with its own split.")] = 10,
    blocks: Annotated[int, Parameter(help="m, blocks of the day.")] = 6,
    cycles: Annotated[int, Parameter(help="K, days.")] = 10,
    vocabulary: Annotated[int, Parameter(help="How many of the most frequent words are features.")] = 1024,
    batch_size: Annotated[int, Parameter(help="Rows a step.")] = 128,
    skew: Annotated[
        Literal["rate", "drop", "none"] | None,
        Parameter(
            help="Label skew: rates (text) or shares dropped (script) interpolated over the day, or none."
        ),
    ] = None,
    passes: Annotated[int, Parameter(help="Passes over the rows within the K days.")] = 1,
    step_size: Annotated[
        list[float] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help="Logistic step of every approach; of several, each approach takes its best.",
        ),
    ] = None,
    grid: Annotated[
        bool,
        Parameter(negative=(), help="Try the paper's learning rates .1 .215 .464 1 2.15, as the paper did."),
    ] = False,
    radius: Annotated[
        float, Parameter(help="B, the ball onto which Prod's two chains are projected.")
    ] = 10.0,
    download: Annotated[
        bool, Parameter(negative=(), help="Fetch Sentiment140 (81 MB) into the folder, check and unpack it.")
    ] = False,
    rows: Annotated[int | None, Parameter(help="Rows of the stand-in, 1,600,000 unless given.")] = None,
) -> None:
    """Run the paper's experiment, whole: its approaches, its figures, and what it leaves out.

    Writes report.html, the figures as SVG and PNG, results.json and results.csv. Without FILE or
    --download the data are a stand-in made by the package, in the layout and size of Sentiment140.

    Example: semicyclic reproduce training.1600000.processed.noemoticon.csv --out paper --seed 1
    """

    reports.plot.check_installed()
    if file is not None and download:
        raise ValueError("give either FILE or --download, not both")
    if rows is not None and (file is not None or download):
        raise ValueError("--rows is the size of the stand-in: leave it out where there are real data")
    if step_size == []:
        raise ValueError("--step-size needs at least one number")
    if grid and step_size:
        raise ValueError("give either --grid or --step-size, not both")
    skews = {
        "rate": experiments.reproduce.protocol.by_rate,
        "drop": experiments.reproduce.protocol.by_drop,
        "none": None,
    }
    how: dict[str, Any] = {"blocks": blocks, "cycles": cycles, "batch_size": batch_size, "passes": passes}
    if skew is not None:
        how["skew"] = skews[skew]
    steps: tuple[experiments.reproduce.approaches.StepSizes, ...] = (experiments.reproduce.repetition.PAPER,)
    if step_size or grid:
        steps = experiments.reproduce.repetition.grid(
            step_size or [2 * rate for rate in experiments.reproduce.repetition.LEARNING_RATES]
        )
    follow = experiments.reproduce.protocol.script if as_ == "script" else experiments.reproduce.protocol.text
    plan = experiments.reproduce.repetition.Experiment(follow(**how), steps, repetitions, seed, radius)
    console = Console()
    started = time.perf_counter()
    with output_dir(out), reports.terminal.progress(console) as tell:
        tweets = _tweets(file, out if download else None, rows, vocabulary, tell)
        ingest = time.perf_counter() - started
        try:
            found = experiments.reproduce.run.run_experiment(tweets, plan, progress=tell)
        except method.training_loop.Diverged:
            raise ValueError("a chain left the finite numbers: choose a smaller --step-size") from None
        stand_in = file is None and not download
        source = datasets.download.SENTIMENT140.member if download else None if file is None else file.name
        results = experiments.reproduce.run.describe(found, plan, tweets, protocol=as_, file=source)
        tell(1.0, "drawing")
        pictures = reports.reproduce.draw_all(results)
        results["seconds"] = {"ingest": ingest, **results["seconds"], "total": time.perf_counter() - started}
        reports.output_files.write_reproduction(out, results, pictures)
    console.print(reports.terminal.reproduction(results))
    console.print(
        f"{len(tweets):,} {'made-up ' if stand_in else ''}rows, {blocks} blocks, {cycles} days, as the {as_} "
        f"has it{', without skew' if skew == 'none' else ''}, seed {seed}. Prod's chains are projected "
        f"onto a ball of radius {radius:g}.",
        highlight=False,
    )
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )


def _tweets(
    file: Path | None, place: Path | None, rows: int | None, vocabulary: int, tell: ReportProgress
) -> "datasets.sentiment140.Tweets":
    """The rows of a file, of one fetched into `place`, or of the stand-in."""

    if place is not None:
        file = datasets.download.fetch(
            datasets.download.SENTIMENT140, place, progress=lambda done: tell(done, "fetching Sentiment140")
        )
    if file is not None:
        return datasets.sentiment140.read_file(
            file, vocabulary=vocabulary, progress=lambda done: tell(done, "reading")
        )
    size = datasets.synthetic_tweets.ROWS if rows is None else rows
    # A row of the stand-in has about 170 bytes.
    return datasets.sentiment140.read(
        datasets.synthetic_tweets.make(size),
        vocabulary=vocabulary,
        progress=lambda done: tell(min(done / (170 * size), 1.0), "making and reading the stand-in"),
    )
