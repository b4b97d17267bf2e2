"""Compiling: it is announced once it takes long, and not otherwise."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import numpy as np
import semicyclic as sc

rows = sc.Rows(np.eye(4), [0, 1, 0, 1], when=[0, 40_000, 86_400, 130_000])
sc.train.pluralistic(rows, sc.Schedule.daily(2), batch_size=1).mean()
"""


def run(cache: Path, seconds: float) -> str:
    code = f"import semicyclic.jit\nsemicyclic.jit.NOTICE_SECONDS = {seconds}\n{CODE}"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr


def test_compiling_is_announced_and_loading_is_not(tmp_path: Path) -> None:
    first = run(tmp_path, 0.05)
    assert first.startswith("compiling: the first use on this machine takes some seconds")
    assert len(first.splitlines()) == 1
    # The second process finds the compiled code in the cache.
    assert run(tmp_path, 0.05) == ""
    assert "compiling" not in run(tmp_path / "other", 1e9)
