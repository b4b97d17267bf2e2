"""Benchmarks of the first use on a machine: an empty cache of compiled code, in a new process.

Goals are seconds of CPU time of all processes of the job, next to the time of a loop in C in the same run,
which says how fast the machine is.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.chains import c_seconds
from benchmarks.timing import Figure, at_most, no_goal, note

FIT = """
import sys
import numpy as np, pandas as pd
from semicyclic import SemiCyclicClassifier

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(6000, 2)), columns=["price", "rain"])
X["when"] = pd.date_range("2026-03-01", periods=6000, freq="3min", tz="Europe/Paris")
clicked = (X["price"] > 0) == (X["when"].dt.hour < 12)
model = SemiCyclicClassifier(time_column="when", schedule="daily:6", zone="Europe/Paris", method=sys.argv[1])
assert len(model.fit(X, clicked).predict(X)) == 6000
"""


def first_fit() -> list[Figure]:
    """`fit` and `predict` of the estimator on 6,000 rows: the default and one chain."""
    figures = []
    for method, goal in (("auto", 20.0), ("pluralistic", 6.0)):
        cold, warm = _cold_and_warm("-c", FIT, method)
        note(f"cold {method}", cold["cpu"])
        figures += [
            at_most(f"{method}, empty cache: seconds of CPU", cold["cpu"], goal),
            no_goal(f"{method}, empty cache: seconds", cold["wall"]),
            no_goal(f"{method}, compiled: seconds of CPU", warm["cpu"]),
        ]
    return [*figures, no_goal("seconds of the loop in C", c_seconds())]


def first_demo() -> list[Figure]:
    """`semicyclic demo`."""
    cold, warm = _cold_and_warm("-m", "semicyclic", "demo", "--out", "demo")
    note("cold demo", cold["cpu"])
    return [
        at_most("demo, empty cache: seconds of CPU", cold["cpu"], 75.0),
        at_most("demo, compiled: seconds of CPU", warm["cpu"], 45.0),
        no_goal("demo, empty cache: seconds", cold["wall"]),
        no_goal("demo, compiled: seconds", warm["wall"]),
        no_goal("seconds of the loop in C", c_seconds()),
    ]


def _cold_and_warm(*command: str) -> list[dict[str, Any]]:
    """Run Python twice with the same arguments, the first time with an empty cache; return both costs."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
        costs = []
        for _ in range(2):
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(
                [sys.executable, *command],
                cwd=folder,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            costs.append({"cpu": cpu, "wall": time.perf_counter() - start})
    return costs
