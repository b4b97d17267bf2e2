"""Benchmarks of `locate` and of importing the package."""

import subprocess
import sys

import numpy as np
import polars as pl

from benchmarks.timing import Figure, Peer, at_most, best_of, note
from semicyclic.schedule.schedule import Schedule

ZONE = "America/New_York"
ROWS = 10_000_000


def locate() -> list[Figure]:
    """`locate` on 10 M zoned times, sorted and shuffled, against Polars' datetime functions."""
    rng = np.random.default_rng(0)
    first = np.datetime64("2020-01-01", "us").astype(np.int64)
    ordered = np.sort(rng.integers(0, 5 * 365 * 86_400, ROWS)) * 1_000_000 + first
    schedule = Schedule.daily(6, zone=ZONE)
    figures = []
    for name, ticks in (("sorted", ordered), ("shuffled", rng.permutation(ordered))):
        when = ticks.astype("datetime64[us]")
        frame = pl.DataFrame({"when": pl.Series(when).dt.replace_time_zone("UTC")})
        local = pl.col("when").dt.convert_time_zone(ZONE)
        days = local.dt.date().cast(pl.Int32).alias("cycle")
        query = [days, (local.dt.hour() // 4).alias("block")]
        located, expected = schedule.locate(when, zone="UTC"), frame.select(query)
        assert np.array_equal(located.cycle, expected["cycle"].to_numpy())
        assert np.array_equal(located.block, expected["block"].to_numpy())
        time = best_of(
            7,
            ours=lambda when=when: schedule.locate(when, zone="UTC"),  # type: ignore[misc]
            polars=Peer(lambda frame=frame, query=query: frame.select(query)),  # type: ignore[misc]
        )
        note(f"locate, {name}", time["ours"])
        figures.append(at_most(f"locate / Polars, {name}", time["ours"] / time["polars"], 0.5))
    return figures


def importing() -> list[Figure]:
    """Seconds for `import semicyclic` with compiled bytecode, best of five."""
    code = "import time; t = time.perf_counter(); import semicyclic; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(6)
    ]
    return [at_most("seconds", note("import", min(runs[1:])), 0.3)]
