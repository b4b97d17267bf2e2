"""`python -m benchmarks NAME...` prints one JSON line per benchmark.

--all                          run all benchmarks
--save                         write the results into results.json (implied by --all)
--ours NAME                    measure only our code, without the peers, and print its costs
--compare BASE [--rounds N] NAME...   compare our code at the commit BASE with this one, in turns
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import calendar, chains, cold_start, estimators, federated, files, models, paper
from benchmarks.compare import compare
from benchmarks.timing import COSTS, PEERS, Figure

BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "chain": chains.chain,
    "chain-packed": chains.chain_packed,
    "chain-c": chains.chain_c,
    "pluralistic": chains.pluralistic,
    "hedged": chains.hedged,
    "growth-m": chains.growth_m,
    "growth-d": chains.growth_d,
    "readout": chains.readout,
    "matrix": models.matrix,
    "file": models.file,
    "locate": calendar.locate,
    "import": calendar.importing,
    "ingest": paper.ingest,
    "ingest-memory": paper.ingest_memory,
    "protocol": paper.protocol_once,
    "reproduce": paper.reproduce,
    "stream-train": files.stream_train,
    "checkpoint": files.checkpoint,
    "predict": files.predict,
    "stream-memory": files.stream_memory,
    "auto": files.auto,
    "auto-memory": files.auto_memory,
    "what-if": files.what_if,
    "sk-fit": estimators.sk_fit,
    "sk-predict": estimators.sk_predict,
    "predict-one": estimators.predict_one,
    "first-fit": cold_start.first_fit,
    "first-demo": cold_start.first_demo,
    "fed-wrap": federated.fed_wrap,
    "fed-scale": federated.fed_scale,
    "fed-memory": federated.fed_memory,
}


def measure(name: str) -> dict[str, Any]:
    """Run one benchmark; return all its figures, and first the one furthest from its goal."""
    figures = BENCHMARKS[name]()
    with_goal = [figure for figure in figures if figure.has_goal]
    worst = max(with_goal, key=lambda figure: figure.distance)
    return {
        "name": name,
        "ratio": worst.row()["value"],
        "goal": worst.row()["goal"],
        "pass": all(figure.passed for figure in with_goal),
        "figures": [figure.row() for figure in figures],
    }


RESULTS = Path(__file__).with_name("results.json")
ROUNDS = 5


def main(arguments: list[str]) -> None:
    """Parse the command line and run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--compare", metavar="BASE")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    names = list(BENCHMARKS) if options.all else options.names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        parser.error(f"choose from {', '.join(BENCHMARKS)}")
    if options.compare:
        compare(options.compare, names, options.rounds)
        return
    rows = []
    for name in names:
        if options.ours:
            PEERS.run = False
            BENCHMARKS[name]()
            print(json.dumps({"name": name, "costs": dict(COSTS)}), flush=True)
            COSTS.clear()
        else:
            rows.append(measure(name))
            print(json.dumps(rows[-1]), flush=True)
    files.clean()
    if rows and (options.all or options.save):
        _save(rows)


def _save(rows: list[dict[str, Any]]) -> None:
    """Write results to results.json, replacing earlier ones of the same name."""
    before = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    by_name = {row["name"]: row for row in [*before, *rows]}
    ordered = [by_name[name] for name in BENCHMARKS if name in by_name]
    results = {"python": platform.python_version(), "machine": platform.machine(), "results": ordered}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
