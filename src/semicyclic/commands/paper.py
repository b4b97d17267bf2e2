"""The paper's commands: its experiment, its bounds, its hard instances."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic.commands.places import folder

if TYPE_CHECKING:
    from semicyclic.data.tweets import Tweets
    from semicyclic.experiments.approaches import Steps
    from semicyclic.show.terminal import Tell


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
    from semicyclic.data.fetch import SENTIMENT140
    from semicyclic.experiments import protocol, repetition
    from semicyclic.experiments import reproduce as experiment
    from semicyclic.method.learn import Diverged
    from semicyclic.show import terminal
    from semicyclic.show.drawing import check_installed
    from semicyclic.show.figures import draw_all
    from semicyclic.show.output import write_reproduction

    check_installed()
    if file is not None and download:
        raise ValueError("give either FILE or --download, not both")
    if rows is not None and (file is not None or download):
        raise ValueError("--rows is the size of the stand-in: leave it out where there are real data")
    if step_size == []:
        raise ValueError("--step-size needs at least one number")
    if grid and step_size:
        raise ValueError("give either --grid or --step-size, not both")
    skews = {"rate": protocol.by_rate, "drop": protocol.by_drop, "none": None}
    how: dict[str, Any] = {"blocks": blocks, "cycles": cycles, "batch_size": batch_size, "passes": passes}
    if skew is not None:
        how["skew"] = skews[skew]
    steps: tuple[Steps, ...] = (repetition.PAPER,)
    if step_size or grid:
        steps = repetition.grid(step_size or [2 * rate for rate in repetition.LEARNING_RATES])
    follow = protocol.script if as_ == "script" else protocol.text
    plan = repetition.Experiment(follow(**how), steps, repetitions, seed, radius)
    console = Console()
    started = time.perf_counter()
    with folder(out), terminal.progress(console) as tell:
        tweets = _tweets(file, out if download else None, rows, vocabulary, tell)
        ingest = time.perf_counter() - started
        try:
            found = experiment.run_experiment(tweets, plan, progress=tell)
        except Diverged:
            raise ValueError("a chain left the finite numbers: choose a smaller --step-size") from None
        stand_in = file is None and not download
        source = SENTIMENT140.member if download else None if file is None else file.name
        results = experiment.described(found, plan, tweets, protocol=as_, file=source)
        tell(1.0, "drawing")
        pictures = draw_all(results)
        results["seconds"] = {"ingest": ingest, **results["seconds"], "total": time.perf_counter() - started}
        write_reproduction(out, results, pictures)
    console.print(terminal.reproduction(results))
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
    file: Path | None, place: Path | None, rows: int | None, vocabulary: int, tell: "Tell"
) -> "Tweets":
    """The rows of a file, of one fetched into `place`, or of the stand-in."""
    from semicyclic.data import standin, tweets

    if place is not None:
        from semicyclic.data.fetch import SENTIMENT140, fetch

        file = fetch(SENTIMENT140, place, progress=lambda done: tell(done, "fetching Sentiment140"))
    if file is not None:
        return tweets.read_file(file, vocabulary=vocabulary, progress=lambda done: tell(done, "reading"))
    size = standin.ROWS if rows is None else rows
    # A row of the stand-in has about 170 bytes.
    return tweets.read(
        standin.make(size),
        vocabulary=vocabulary,
        progress=lambda done: tell(min(done / (170 * size), 1.0), "making and reading the stand-in"),
    )


def theory(
    *,
    B: Annotated[float, Parameter(name="--B", help="The norm of the solutions competed with.")] = 1.0,
    K: Annotated[int | None, Parameter(name="--K", help="Cycles: 5 unless given, 4 with --hard.")] = None,
    m: Annotated[
        int | None, Parameter(name="--m", help="Blocks a cycle: 6 unless given; --hard has 2.")
    ] = None,
    n: Annotated[
        int | None, Parameter(name="--n", help="Steps a block: 50,000 unless given, 300 with --hard.")
    ] = None,
    epsilon: Annotated[float | None, Parameter(help="Also tell the cycles needed to come so near.")] = None,
    hard: Annotated[
        bool, Parameter(negative=(), help="Run every method on the hard instances, and write a report.")
    ] = False,
    seed: Annotated[int, Parameter(help="Seed of what --hard draws.")] = 0,
    out: Annotated[
        Path | None,
        Parameter(help="Folder for results.json; with --hard for the report, and then theory unless given."),
    ] = None,
) -> None:
    """Print every bound of the paper, as stated and as corrected, and what it means in cycles.

    The default is the paper's example: a keyboard's model, trained for five days of six blocks with
    50,000 steps each. With --hard the lower bounds are shown at work instead.

    Example: semicyclic theory --B 1 --K 5 --m 6 --n 50000 --epsilon 0.001

    Example: semicyclic theory --hard --out theory
    """
    console = Console()
    for name, value in (("--K", K), ("--m", m), ("--n", n)):
        if value is not None and value < 1:
            raise ValueError(f"{name} {value}: must be at least 1")
    for name, size in (("--B", B), ("--epsilon", epsilon)):
        if size is not None and not 1e-100 < size < 1e100:
            raise ValueError(f"{name} {size:g}: must be between 1e-100 and 1e100")
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    if hard:
        if m is not None or epsilon is not None:
            raise ValueError("the hard instances have two blocks: leave out --m and --epsilon")
        shape = {"radius": B, "cycles": 4 if K is None else K, "steps": 300 if n is None else n}
        _hard(console, seed, Path("theory") if out is None else out, shape)
        return
    K, m, n = 5 if K is None else K, 6 if m is None else m, 50_000 if n is None else n
    from semicyclic.method.theory import Setting
    from semicyclic.show import terminal
    from semicyclic.show.output import write_json

    setting = Setting(cycles=K, blocks=m, steps=n, radius=B)
    rows = [(row.quantity, row.bound, row.holds) for row in setting.table()]
    steps = [
        ("step of the single chain", setting.step_size(), "paper B/sqrt(2T), best B/sqrt(T)"),
        ("step of a block's own chain", setting.separate_step_size(), "B/sqrt(T/m); the paper gives none"),
        ("rate of Prod", setting.hedge_rate(), "sqrt((m/T) ln(BT/m)) / (2B)"),
    ]
    needed = []
    if epsilon is not None:
        needed = [
            ("i.i.d. and pluralistic average", setting.cycles_iid(epsilon), "enough"),
            ("separate chains", setting.cycles_separate(epsilon), "enough, to every block's own optimum"),
            (
                "one model, cyclic data",
                setting.cycles_cyclic(epsilon),
                "at least, however many steps a block",
            ),
            (
                "one model, cyclic, smooth",
                setting.cycles_cyclic_smooth(epsilon),
                "at least; paper: up to a constant",
            ),
        ]
    console.print(
        f"K = {K:,}, m = {m:,}, n = {n:,}: T = {setting.total:,} steps; B = {B:g}, G = 1",
        highlight=False,
    )
    parts = [("Bounds", rows), ("Steps and rates", steps)]
    if needed:
        parts.append((f"Cycles for an excess of {epsilon:g}", needed))
    for title, lines in parts:
        console.print(terminal.bounds(title, lines))
    here = f"here there are {m * n:,}"
    if m == 1:
        console.print("With one block the data are i.i.d.: there is no lower bound.", highlight=False)
    else:
        least = f"{setting.hurts_from():,}"
        console.print(
            f"The lower bound exceeds the i.i.d. rate from {least} steps a cycle on; {here}.", highlight=False
        )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        results = {
            "settings": {"B": B, "K": K, "m": m, "n": n, "epsilon": epsilon},
            **{
                title: {
                    name: {"paper": _plain(bound.paper), "corrected": _plain(bound.corrected)}
                    for name, bound, _ in lines
                }
                for title, lines in (("bounds", rows), ("steps", steps), ("cycles", needed))
            },
        }
        write_json(out / "results.json", results)
        console.print(f"written: {out / 'results.json'}", highlight=False, soft_wrap=True)


def _plain(value: float) -> float | None:
    """A number for JSON, which knows no NaN and no infinity."""
    return value if abs(value) < float("inf") else None


def _hard(console: Console, seed: int, out: Path, shape: dict[str, Any]) -> None:
    from semicyclic.experiments.hardness import run_hard
    from semicyclic.experiments.reproduce import versions
    from semicyclic.show import terminal
    from semicyclic.show.drawing import check_installed
    from semicyclic.show.hard import stands
    from semicyclic.show.output import write_hard

    check_installed()
    started = time.perf_counter()
    with folder(out), terminal.progress(console) as tell:
        found = run_hard(seed=seed, **shape, progress=tell)
    results: dict[str, Any] = {
        "experiment": "Semi-Cyclic SGD (ICML 2019), Sections 3 and 4",
        **found,
        "seconds": {"total": time.perf_counter() - started},
        "versions": versions(),
    }
    write_hard(out, results)
    console.print(terminal.hardness(results))
    said = stands(results)
    if said["above"]:
        words = "One model on cyclic data stays above the lower bound, however it is tuned"
        if said["below"]:
            words += "; shuffled data and pluralistic averages do not"
        console.print(f"{words}. Below zero: better than any single model.", highlight=False)
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )
