"""Compiled code: without a cache folder, and with the same bits for any number of threads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse

import semicyclic as sc
from semicyclic.method import learn, readout, train

PACKAGE = Path(sc.__file__).parent
SCRIPT = """
import os, numpy as np, semicyclic as sc
print(os.path.dirname(sc.__file__))
rows = sc.Rows(np.eye(4), [0, 1, 0, 1], block=[0, 0, 1, 1])
print(sc.train.pluralistic(rows, 2, batch_size=1).mean().weights.shape)
"""


def test_an_unwritable_cache_folder_does_no_harm(tmp_path: Path) -> None:
    """No place to keep compiled code: a file stands where each folder would be.

    Permissions would not do, for root may write anywhere.
    """
    shutil.copytree(PACKAGE, tmp_path / "semicyclic", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "semicyclic" / "method" / "__pycache__").write_text("in the way")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *packages]),
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null/cache",
        "NUMBA_CACHE_DIR": "/dev/null/cache",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-S", "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines() == [str(tmp_path / "semicyclic"), "(2, 1, 5)"], done.stderr
    assert not list(tmp_path.rglob("*.nbi"))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    rng = np.random.default_rng(0)
    n, d = 3000, 20_000
    X = scipy.sparse.random(n, d, density=30 / d, random_state=rng, format="csr")
    rows = sc.Rows(X, rng.integers(0, 2, n), block=np.arange(n) * 48 // n % 12)
    packed = sc.pack(rows, 12, loss=sc.loss.logistic, batch_size=16)
    found = []
    for cores in (1, threads):
        with mock.patch.object(os, "cpu_count", return_value=cores):
            run = train.pluralistic(packed, step_size=0.5)
            assert run.log.running is None
            assert not run.log.pages[0].page.is_table
            found.append([run.mean().weights.tobytes(), run.tail(2).weights.tobytes()])
    assert found[0] == found[1]


def test_large_models_read_out_by_column_equal_those_from_a_table() -> None:
    """Rare and frequent columns, several pages and several portions of models."""
    rng = np.random.default_rng(1)
    n, d, m = 2000, 500, 30
    zipf = 1 / np.arange(1, d + 1)
    columns = rng.choice(d, (n, 6), p=zipf / zipf.sum())
    X = scipy.sparse.csr_matrix((np.ones(n * 6), (np.repeat(np.arange(n), 6), columns.ravel())), shape=(n, d))
    block = np.arange(n) * 5 * m // n % m
    rows = sc.Rows(X, rng.integers(0, 2, n), block=block, dtype=np.float64)
    for method in (train.pluralistic, train.separate, train.residual):
        for step in (0.5, sc.step.adagrad(0.3), sc.step.dual_averaging(0.5)):
            with mock.patch.object(learn, "_is_traced", return_value=False):
                table = method(rows, m, step_size=step, batch_size=4)
            with mock.patch.object(learn, "_is_traced", return_value=True):
                trace = method([rows[:900], rows[900:]], m, step_size=step, batch_size=4)
            with mock.patch.object(readout, "SHARES", 1):
                for read in ("mean", "last", "consensus"):
                    one, other = getattr(table, read)().weights, getattr(trace, read)().weights
                    assert np.allclose(one, other, atol=1e-10), (method, step, read)
