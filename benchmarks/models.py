"""Benchmarks of evaluating many models, and of model files."""

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

from benchmarks.streams import stream
from benchmarks.timing import Figure, Peer, at_least, at_most, best_of, no_goal, note
from semicyclic import load, save
from semicyclic.method import train
from semicyclic.method.evaluate import matrices
from semicyclic.method.loss import logistic
from semicyclic.method.metrics import log_loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.schedule.numbered import Numbered

ROWS = 160_000


def matrix() -> list[Figure]:
    """Accuracy by block of 60 models (ten days of six) on 160,000 rows, against one SciPy product.

    The product computes scores only; the matrix includes every block's accuracy as well.
    """
    data = stream()
    X, y = data.X[:ROWS], data.y[:ROWS]
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(10, 6, 1, X.shape[1] + 1)).astype(np.float32)
    models = [Pluralistic(day, Numbered(6), logistic, (0, 1)) for day in weights]
    rows = Rows(X, y, block=np.arange(ROWS) * 6 // ROWS)
    stacked = np.ascontiguousarray(weights.reshape(60, -1)[:, :-1].T)
    scores = X @ stacked + weights.reshape(60, -1)[:, -1]
    hits = (scores > 0) == (y[:, None] > 0)
    expected = [hits[np.arange(ROWS) * 6 // ROWS == block].mean(axis=0) for block in range(6)]
    measured = np.stack([day.values for day in matrices(models, rows)]).reshape(60, 6)
    assert np.allclose(measured, np.array(expected).T, atol=1e-4), "SciPy and the matrix do not agree"
    time = best_of(
        9,
        scipy=Peer(lambda: X @ stacked),
        matrix=lambda: matrices(models, rows),
        losses=lambda: matrices(models, rows, metric=log_loss),
        separately=Peer(lambda: [X @ model for model in stacked.T]),
    )
    return [
        at_least("one SciPy product / matrix", time["scipy"] / time["matrix"], 5.0),
        no_goal("one SciPy product / matrix of log losses", time["scipy"] / time["losses"]),
        no_goal("60 SciPy products / matrix", time["separately"] / time["matrix"]),
    ]


def file() -> list[Figure]:
    """File of 1440 blocks x 2^20 columns after a run with a million non-zero updates in equal visits."""
    blocks, cycles, rows_per_visit, cells_per_row, columns = 1440, 10, 7, 10, 2**20
    rng = np.random.default_rng(0)
    n = blocks * cycles * rows_per_visit
    cells = np.ones(n * cells_per_row, np.float32)
    column = rng.integers(0, columns, n * cells_per_row, dtype=np.int32)
    X = scipy.sparse.csr_matrix(
        (cells, column, np.arange(0, n * cells_per_row + 1, cells_per_row)), shape=(n, columns)
    )
    cycle, block = np.divmod(np.arange(n) // rows_per_visit, blocks)
    rows = Rows(X, rng.integers(0, 2, n), block=block, cycle=cycle)
    model = train.pluralistic(rows, blocks, step_size=0.5).mean()
    dense = blocks * (columns + 1) * 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save(model, path)
        size = path.stat().st_size
        note("file, GB", size / 1e9)
        for i in (0, 719, blocks - 1):
            assert np.array_equal(load(path, block=i).block_weights(0), model.block_weights(i))
        next_block = iter(np.random.default_rng(1).permutation(blocks).tolist())
        time = best_of(
            20, block=lambda: load(path, block=next(next_block)).block_weights(0), whole=lambda: load(path)
        )
    return [
        at_most("file / dense float32", size / dense, 1 / 20),
        at_most("one block loaded, ms", 1000 * time["block"], 50.0),
        no_goal("file, MB", size / 1e6),
        no_goal("all frames loaded, ms", 1000 * time["whole"]),
    ]
