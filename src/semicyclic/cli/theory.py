"""`semicyclic theory`: print the paper's bounds, or run methods on its hard instances."""

import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import experiments, reports
from semicyclic.cli.output_dir import output_dir
from semicyclic.theory import bounds


def theory(
    *,
    B: Annotated[float, Parameter(name="--B", help="Norm bound B of the reference solutions.")] = 1.0,
    K: Annotated[
        int | None, Parameter(name="--K", help="Number of cycles. Default: 5, or 4 with --hard.")
    ] = None,
    m: Annotated[
        int | None, Parameter(name="--m", help="Blocks per cycle. Default: 6; always 2 with --hard.")
    ] = None,
    n: Annotated[
        int | None, Parameter(name="--n", help="Steps per block. Default: 50,000, or 300 with --hard.")
    ] = None,
    epsilon: Annotated[
        float | None, Parameter(help="Also print the number of cycles needed for this excess loss.")
    ] = None,
    hard: Annotated[
        bool, Parameter(negative=(), help="Run every method on the hard instances and write a report.")
    ] = False,
    seed: Annotated[int, Parameter(help="Random seed for --hard.")] = 0,
    out: Annotated[
        Path | None,
        Parameter(help="Output folder for results.json; with --hard, for the report (default: theory)."),
    ] = None,
) -> None:
    """Print every bound of the paper, as stated and as corrected.

    The default is the paper's example: a keyboard model trained for five days of six blocks with 50,000 steps
    each. With --epsilon, the bounds are also converted to numbers of cycles. With --hard, the methods run on
    the instances behind the lower bounds instead.

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
        settings = {"radius": B, "cycles": 4 if K is None else K, "steps": 300 if n is None else n}
        _run_hard_instances(console, seed, Path("theory") if out is None else out, settings)
        return
    K, m, n = 5 if K is None else K, 6 if m is None else m, 50_000 if n is None else n

    setting = bounds.Setting(cycles=K, blocks=m, steps=n, radius=B)
    rows = [(row.quantity, row.bound, row.holds) for row in setting.table()]
    steps = [
        ("step of the single chain", setting.step_size(), "paper B/sqrt(2T), best B/sqrt(T)"),
        ("step of a block's own chain", setting.separate_step_size(), "B/sqrt(T/m); the paper gives none"),
        ("rate of Prod", setting.hedge_rate(), "sqrt((m/T) ln(BT/m)) / (2B)"),
    ]
    cycles_needed = []
    if epsilon is not None:
        cycles_needed = [
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
    sections = [("Bounds", rows), ("Steps and rates", steps)]
    if cycles_needed:
        sections.append((f"Cycles for an excess of {epsilon:g}", cycles_needed))
    for title, lines in sections:
        console.print(reports.terminal.bounds(title, lines))
    if m == 1:
        console.print("With one block the data are i.i.d.: there is no lower bound.", highlight=False)
    else:
        console.print(
            f"The lower bound exceeds the i.i.d. rate from {setting.hurts_from():,} steps a cycle on; "
            f"here there are {m * n:,}.",
            highlight=False,
        )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        results = {
            "settings": {"B": B, "K": K, "m": m, "n": n, "epsilon": epsilon},
            **{
                title: {
                    name: {
                        "paper": _finite_or_none(bound.paper),
                        "corrected": _finite_or_none(bound.corrected),
                    }
                    for name, bound, _ in lines
                }
                for title, lines in (("bounds", rows), ("steps", steps), ("cycles", cycles_needed))
            },
        }
        reports.output_files.write_json(out / "results.json", results)
        console.print(f"written: {out / 'results.json'}", highlight=False, soft_wrap=True)


def _finite_or_none(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if abs(value) < float("inf") else None


def _run_hard_instances(console: Console, seed: int, out: Path, settings: dict[str, Any]) -> None:
    """Run the methods on the hard instances, write the report and print a summary."""

    reports.plot.check_installed()
    started = time.perf_counter()
    with output_dir(out), reports.terminal.progress(console) as report_progress:
        outcome = experiments.lower_bounds.run_hard(seed=seed, **settings, progress=report_progress)
    results: dict[str, Any] = {
        "experiment": "Semi-Cyclic SGD (ICML 2019), Sections 3 and 4",
        **outcome,
        "seconds": {"total": time.perf_counter() - started},
        "versions": experiments.reproduce.run.versions(),
    }
    reports.lower_bounds.write(out, results)
    console.print(reports.terminal.hardness(results))
    claims = reports.lower_bounds.check_claims(results)
    if claims["above"]:
        words = "One model on cyclic data stays above the lower bound, however it is tuned"
        if claims["below"]:
            words += "; shuffled data and pluralistic averages do not"
        console.print(f"{words}. Below zero: better than any single model.", highlight=False)
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )
