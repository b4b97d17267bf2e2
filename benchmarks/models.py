"""Evaluating many models, and keeping them in a file."""

import numpy as np

from benchmarks.streams import stream
from benchmarks.timing import Figure, at_least, beside, best_of
from semicyclic.method.evaluate import matrices
from semicyclic.method.loss import logistic
from semicyclic.method.measure import log_loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows

ROWS = 160_000


def matrix() -> list[Figure]:
    """60 models (ten days of six) on 160,000 rows, measured by block, against one SciPy product.

    The product gives scores only; the matrix has every block's accuracy as well.
    """
    data = stream()
    X, y = data.X[:ROWS], data.y[:ROWS]
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(10, 6, 1, X.shape[1] + 1)).astype(np.float32)
    models = [Pluralistic(each, 6, logistic, (0, 1)) for each in weights]
    rows = Rows(X, y, block=np.arange(ROWS) * 6 // ROWS)
    together = np.ascontiguousarray(weights.reshape(60, -1)[:, :-1].T)
    scores = X @ together + weights.reshape(60, -1)[:, -1]
    hits = (scores > 0) == (y[:, None] > 0)
    own = [hits[np.arange(ROWS) * 6 // ROWS == block].mean(axis=0) for block in range(6)]
    found = np.stack([each.values for each in matrices(models, rows)]).reshape(60, 6)
    assert np.allclose(found, np.array(own).T, atol=1e-4), "SciPy and the matrix do not agree"
    time = best_of(
        9,
        scipy=lambda: X @ together,
        matrix=lambda: matrices(models, rows),
        losses=lambda: matrices(models, rows, measure=log_loss),
        separately=lambda: [X @ each for each in together.T],
    )
    return [
        at_least("one SciPy product / matrix", time["scipy"] / time["matrix"], 5.0),
        beside("one SciPy product / matrix of log losses", time["scipy"] / time["losses"]),
        beside("60 SciPy products / matrix", time["separately"] / time["matrix"]),
    ]
