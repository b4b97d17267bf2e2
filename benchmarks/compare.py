"""Comparison of two commits: benchmarks of our code at a base commit and here, in turns.

Each round runs the benchmarks in three processes: at the base commit, here, and at the base commit again.
The ratio of the two base runs shows how much of a difference is noise.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
Costs = dict[str, dict[str, float]]


def compare(base: str, names: list[str], rounds: int) -> None:
    """Print one JSON line per cost of every benchmark: the median ratio here / base, and its range."""
    with _worktree(base) as before, tempfile.TemporaryDirectory() as data:
        for tree in (before, ROOT):
            _costs(tree, names, data)  # compiles, and generates the data
        turns = []
        for number in range(rounds):
            turns.append([_costs(tree, names, data) for tree in (before, ROOT, before)])
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name in names:
            for cost in turns[0][1][name]:
                if all(cost in costs[name] for turn in turns for costs in turn):
                    print(json.dumps(_row(name, cost, turns)), flush=True)


def _row(name: str, cost: str, turns: list[list[Costs]]) -> dict[str, Any]:
    """Summarize one cost over all rounds."""
    table = [[costs[name][cost] for costs in turn] for turn in turns]
    ratios = [2 * here / (first + again) for first, here, again in table]
    noise = [again / first for first, _, again in table]
    return {
        "name": name,
        "cost": cost,
        "ratio": round(median(ratios), 3),
        "range": [round(min(ratios), 3), round(max(ratios), 3)],
        "base_against_base": [round(min(noise), 3), round(max(noise), 3)],
        "base": round(median(first for first, _, _ in table), 5),
        "rounds": len(turns),
    }


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """Check out a commit in a temporary git worktree."""
    with tempfile.TemporaryDirectory(prefix="semicyclic-base-") as folder:
        tree = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def _costs(tree: Path, names: list[str], data: str) -> Costs:
    """Measure the costs of our code in a separate process."""
    # Numba only detects changes in a kernel's own file, so the cache folder depends on all source files.
    sources = sorted(tree.glob("src/semicyclic/**/*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "NUMBA_CACHE_DIR": str(tree / ".numba_cache" / digest),
        "SEMICYCLIC_BENCHMARK_DATA": data,
    }
    command = [sys.executable, "-m", "benchmarks", "--ours", *names]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the benchmarks failed in {tree.name}: is the base commit older than --ours?")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: row["costs"] for row in rows}
