"""Compiled code: without a cache folder, and with the same bits for any number of threads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse

import semicyclic as sc
from semicyclic.method import average, log, train
from semicyclic.method.kernels.readout import TILE_BITS

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
    for folder in (tmp_path / "semicyclic").rglob("kernels"):
        (folder / "__pycache__").write_text("in the way")
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
    n, d = 12_000, 400_000
    X = scipy.sparse.random(n, d, density=30 / d, random_state=rng, format="csr")
    rows = sc.Rows(X, rng.integers(0, 2, n), block=np.arange(n) * 48 // n % 12)
    found = []
    for cores in (1, threads):
        with mock.patch.object(os, "cpu_count", return_value=cores):
            packed = sc.pack(rows, 12, loss=sc.loss.logistic, batch_size=16)
            assert not packed.layout.dense
            run = train.pluralistic(packed, step_size=0.5)
            assert sum(page.changes.size for page in run.log.pages) * 12 >= log.MANY
            found.append([run.mean().weights.tobytes(), run.tail(2).weights.tobytes()])
    assert found[0] == found[1]


@pytest.mark.parametrize("step", [0.5, sc.step.adagrad(0.3), sc.step.dual_averaging(0.5)])
@pytest.mark.parametrize("method", ["pluralistic", "separate", "residual", "hedged"])
def test_both_ways_of_adding_up_records_give_the_same_models(method: str, step: Any) -> None:
    """Rare and frequent columns in three tiles, several pages, models in one portion and in many."""
    rng = np.random.default_rng(1)
    n, d, m = 2000, 20_000, 30
    zipf = 1 / np.arange(1, 501)
    columns = rng.permutation(d)[rng.choice(500, (n, 6), p=zipf / zipf.sum())]
    X = scipy.sparse.csr_matrix((np.ones(n * 6), (np.repeat(np.arange(n), 6), columns.ravel())), shape=(n, d))
    rows = sc.Rows(X, rng.integers(0, 2, n), block=np.arange(n) * 5 * m // n % m, dtype=np.float64)
    run = getattr(train, method)([rows[:900], rows[900:]], m, step_size=step, batch_size=4)
    assert len(run.log.pages) > 1
    table = run.log.table()
    for member in (run.member, average.one_model(m * run.log.experts)):
        for picks in (average.block_means(table, member), average.block_lasts(table, member)):
            walked = run.log._walk(picks, member.models)
            assert np.allclose(walked, run.log._sweep(picks, member.models), rtol=0, atol=1e-12)
            with mock.patch.object(log, "WEIGHTS", 1):
                assert np.allclose(walked, run.log._sweep(picks, member.models), rtol=0, atol=1e-12)


def test_rows_are_packed_by_the_columns_of_each_visit() -> None:
    """In either layout a cell's column is found from the list of its visit, and lists are ordered by tile."""
    rng = np.random.default_rng(2)
    for d, dense in ((40, True), (30_000, False), (70_000, False)):
        X = scipy.sparse.random(400, d, density=5 / d, random_state=rng, format="csr")
        rows = sc.Rows(X, rng.integers(0, 2, 400), block=np.arange(400) // 20)
        layout = sc.pack(rows, 20, loss=sc.loss.logistic).layout
        assert layout.dense == dense
        found = []
        for v in range(20):
            columns = layout.lists[layout.first[v] : layout.first[v + 1]].astype(int)
            assert columns[-1] == d
            assert (np.diff(columns >> TILE_BITS) >= 0).all()
            low, high = layout.starts[layout.steps[layout.visits[v : v + 2]]]
            own = layout.columns[low:high].astype(int)
            own = own if dense else columns[own]
            assert set(own) <= set(columns[:-1])
            assert dense or set(own) == set(columns[:-1])
            found.append(np.bincount(own, layout.values[low:high], d))
        expected = np.add.reduceat(X.toarray().astype(np.float32), np.arange(0, 400, 20), axis=0)
        assert np.allclose(found, expected, atol=1e-5)
