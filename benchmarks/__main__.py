"""`python -m benchmarks NAME...` prints a JSON line each.

--all                          all of them
--save                         write what was measured into results.json; --all does
--ours NAME                    only our own side, without what it is compared with: its costs
--compare BASE [--rounds N] NAME...   our side at the commit BASE and here, taking turns
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import calendar, chains, estimators, federated, files, models, paper
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
    "fed-wrap": federated.fed_wrap,
    "fed-scale": federated.fed_scale,
    "fed-memory": federated.fed_memory,
}


def measure(name: str) -> dict[str, Any]:
    """One benchmark: all its figures, and the one furthest from its goal in front."""
    figures = BENCHMARKS[name]()
    bound = [figure for figure in figures if figure.has_goal]
    worst = max(bound, key=lambda figure: figure.distance)
    return {
        "name": name,
        "ratio": worst.row()["value"],
        "goal": worst.row()["goal"],
        "pass": all(figure.passed for figure in bound),
        "figures": [figure.row() for figure in figures],
    }


RESULTS = Path(__file__).with_name("results.json")
ROUNDS = 5


def main(words: list[str]) -> None:
    """Run the benchmarks named, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--compare", metavar="BASE")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args(words)
    names = list(BENCHMARKS) if asked.all else asked.names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        parser.error(f"choose from {', '.join(BENCHMARKS)}")
    if asked.compare:
        compare(asked.compare, names, asked.rounds)
        return
    rows = []
    for name in names:
        if asked.ours:
            PEERS.run = False
            BENCHMARKS[name]()
            print(json.dumps({"name": name, "costs": dict(COSTS)}), flush=True)
            COSTS.clear()
        else:
            rows.append(measure(name))
            print(json.dumps(rows[-1]), flush=True)
    files.clean()
    if rows and (asked.all or asked.save):
        _save(rows)


def _save(rows: list[dict[str, Any]]) -> None:
    """Put results in the place of earlier ones of the same name."""
    before = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    held = {row["name"]: row for row in [*before, *rows]}
    ordered = [held[name] for name in BENCHMARKS if name in held]
    results = {"python": platform.python_version(), "machine": platform.machine(), "results": ordered}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
