"""`semicyclic reproduce`: run the paper's experiment."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import datasets, experiments, method, reports
from semicyclic.cli.options import BatchSize
from semicyclic.cli.output_dir import output_dir
from semicyclic.types import ReportProgress

# Shown in the report: options that choose a protocol, and how to run the experiment on real tweets.
COMMANDS = {
    "text": "--as text",
    "script": "--as script",
    "file": "semicyclic reproduce training.1600000.processed.noemoticon.csv --out DIR",
    "download": "--download",
}


def reproduce(
    file: Annotated[
        Path | None, Parameter(help="Sentiment140's CSV file. Default: synthetic stand-in data.")
    ] = None,
    *,
    out: Annotated[
        Path, Parameter(help="Output folder for the report, its figures and results.json.")
    ] = Path("reproduce"),
    as_: Annotated[
        Literal["text", "script"],
        Parameter(name="--as", help="Protocol of the paper's text, or of its authors' script."),
    ] = "text",
    seed: Annotated[int, Parameter(help="Random seed for train-test splits, label skew and row orders.")] = 0,
    repetitions: Annotated[int, Parameter(help="Number of repetitions, each with its own split.")] = 10,
    blocks: Annotated[int, Parameter(help="Blocks per day, m.")] = 6,
    cycles: Annotated[int, Parameter(help="Number of cycles (days), K.")] = 10,
    vocabulary: Annotated[int, Parameter(help="Number of features: the most frequent words.")] = 1024,
    batch_size: BatchSize = 128,
    skew: Annotated[
        Literal["rate", "drop", "none"] | None,
        Parameter(
            help="Label skew over the day: interpolated rates of positives, interpolated shares of dropped "
            "rows, or none. Default: rate for text, drop for script."
        ),
    ] = None,
    passes: Annotated[int, Parameter(help="Number of passes over the rows within the K cycles.")] = 1,
    step_size: Annotated[
        list[float] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help="Logistic step size of every approach; with several, each approach uses its best.",
        ),
    ] = None,
    grid: Annotated[
        bool,
        Parameter(negative=(), help="Try the paper's grid of learning rates: .1 .215 .464 1 2.15."),
    ] = False,
    radius: Annotated[
        float, Parameter(help="Radius B of the ball onto which Prod's two chains are projected.")
    ] = 10.0,
    download: Annotated[
        bool,
        Parameter(
            negative=(), help="Download Sentiment140 (81 MB) to the output folder, verify and unpack it."
        ),
    ] = False,
    rows: Annotated[int | None, Parameter(help="Number of stand-in rows. Default: 1,600,000.")] = None,
) -> None:
    """Run the paper's experiment with all its approaches and figures, and additional baselines.

    Without FILE or --download, the data are a synthetic stand-in with the layout and size of Sentiment140.
    Writes report.html, the figures as SVG and PNG, results.json and results.csv.

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
    settings: dict[str, Any] = {
        "blocks": blocks,
        "cycles": cycles,
        "batch_size": batch_size,
        "passes": passes,
    }
    if skew is not None:
        settings["skew"] = skews[skew]
    steps: tuple[experiments.reproduce.approaches.StepSizes, ...] = (experiments.reproduce.repetition.PAPER,)
    if step_size or grid:
        steps = experiments.reproduce.repetition.grid(
            step_size or [2 * rate for rate in experiments.reproduce.repetition.LEARNING_RATES]
        )
    protocols = experiments.reproduce.protocol
    protocol = (protocols.script if as_ == "script" else protocols.text)(**settings)
    experiment = experiments.reproduce.repetition.Experiment(protocol, steps, repetitions, seed, radius)
    console = Console()
    started = time.perf_counter()
    with output_dir(out), reports.terminal.progress(console) as report_progress:
        tweets = _read_tweets(file, out if download else None, rows, vocabulary, report_progress)
        ingest_seconds = time.perf_counter() - started
        try:
            outcome = experiments.reproduce.run.run_experiment(tweets, experiment, progress=report_progress)
        except method.training_loop.Diverged:
            raise ValueError("a chain left the finite numbers: choose a smaller --step-size") from None
        stand_in = file is None and not download
        source = datasets.download.SENTIMENT140.member if download else None if file is None else file.name
        results = experiments.reproduce.run.describe(outcome, experiment, tweets, protocol=as_, file=source)
        report_progress(1.0, "drawing")
        pictures = reports.reproduce.draw_all(results)
        total_seconds = time.perf_counter() - started
        results["seconds"] = {"ingest": ingest_seconds, **results["seconds"], "total": total_seconds}
        reports.reproduce.write(out, results, pictures, COMMANDS)
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


def _read_tweets(
    file: Path | None,
    download_dir: Path | None,
    rows: int | None,
    vocabulary: int,
    report_progress: ReportProgress,
) -> "datasets.sentiment140.Tweets":
    """Return the tweets of a file, of the file downloaded into `download_dir`, or of the stand-in.

    rows: size of the stand-in. vocabulary: number of words that are features.
    """

    if download_dir is not None:
        file = datasets.download.fetch(
            datasets.download.SENTIMENT140,
            download_dir,
            progress=lambda share: report_progress(share, "fetching Sentiment140"),
        )
    if file is not None:
        return datasets.sentiment140.read_file(
            file, vocabulary=vocabulary, progress=lambda share: report_progress(share, "reading")
        )
    size = datasets.synthetic_tweets.ROWS if rows is None else rows
    return datasets.synthetic_tweets.make(
        size, vocabulary=vocabulary, progress=lambda share: report_progress(share, "making the stand-in")
    )
