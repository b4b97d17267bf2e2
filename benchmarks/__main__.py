"""`python -m benchmarks NAME` prints one JSON line; `--all` runs all and writes results.json."""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import calendar, chains, estimators, federated, files, models, paper
from benchmarks.timing import Figure

BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "chain": chains.chain,
    "chain-packed": chains.chain_packed,
    "chain-c": chains.chain_c,
    "pluralistic": chains.pluralistic,
    "hedged": chains.hedged,
    "growth-m": chains.growth_m,
    "growth-d": chains.growth_d,
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


def main(words: list[str]) -> None:
    """Run the benchmarks named, or all of them."""
    unknown = [word for word in words if word not in BENCHMARKS and word != "--all"]
    if unknown or not words:
        raise SystemExit(f"usage: python -m benchmarks NAME... | --all, with NAME of {', '.join(BENCHMARKS)}")
    rows = []
    for name in BENCHMARKS if "--all" in words else words:
        rows.append(measure(name))
        print(json.dumps(rows[-1]), flush=True)
    files.clean()
    if "--all" in words:
        results = {"python": platform.python_version(), "machine": platform.machine(), "results": rows}
        Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
