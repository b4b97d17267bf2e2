"""The estimators against scikit-learn's own, everything from `fit` to the answer included."""

import warnings
from typing import Any

import numpy as np

from benchmarks.streams import ROWS, calendar, stream
from benchmarks.timing import Figure, Peer, at_least, best_of, no_goal

BLOCKS = 6
HOURS, ASKED = 24, 1_000_000


def sk_fit() -> list[Figure]:
    """One pass over 1.44 M rows in six blocks, against SGDClassifier with its average.

    The goal is for the paper's chain, a constant step for 128 rows; beside it the estimator's defaults,
    which are made for fewer rows.
    """
    from sklearn.linear_model import SGDClassifier

    from semicyclic import SemiCyclicClassifier

    data = stream()
    _, block = calendar(BLOCKS, 10)

    def theirs(loss: str) -> Any:
        settings: dict[str, Any] = {"max_iter": 1, "shuffle": False, "penalty": None, "average": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that one pass may not be enough
            return SGDClassifier(loss=loss, **settings).fit(data.X, data.y)

    def ours(**settings: Any) -> Any:
        model = SemiCyclicClassifier(schedule=BLOCKS, shuffle_within_blocks=False, **settings)
        return model.fit(data.X, data.y, blocks=block).coef_

    times = best_of(
        5,
        theirs=Peer(lambda: theirs("log_loss")),
        hinge=Peer(lambda: theirs("hinge")),
        paper=lambda: ours(method="pluralistic", step_size=0.5, batch_size=128),
        adaptive=lambda: ours(method="pluralistic"),
        default=ours,
    )
    return [
        at_least(
            "SGDClassifier / pluralistic, the paper's step and batch", times["theirs"] / times["paper"], 1.5
        ),
        no_goal("SGDClassifier / pluralistic, adaptive, batch 4", times["theirs"] / times["adaptive"]),
        no_goal("SGDClassifier / the default, hedged", times["theirs"] / times["default"]),
        no_goal("SGDClassifier with its hinge / the paper's step and batch", times["hinge"] / times["paper"]),
    ]


def sk_predict() -> list[Figure]:
    """Chances of a million rows in 24 blocks, against 24 classifiers used block by block."""
    from sklearn.linear_model import SGDClassifier

    from semicyclic import SemiCyclicClassifier

    data = stream()
    hour = np.random.default_rng(0).integers(0, HOURS, ROWS)
    X, asked = data.X[:ASKED], hour[:ASKED]
    ours = SemiCyclicClassifier(schedule=HOURS).fit(data.X[::16], data.y[::16], blocks=hour[::16])
    theirs = []
    for each in range(HOURS):
        own = np.flatnonzero(hour == each)[:3000]
        theirs.append(SGDClassifier(loss="log_loss", max_iter=20, tol=None).fit(data.X[own], data.y[own]))

    def one_by_one() -> Any:
        out = np.empty((ASKED, 2))
        for each, model in enumerate(theirs):
            own = asked == each
            out[own] = model.predict_proba(X[own])
        return out

    times = best_of(5, theirs=Peer(one_by_one), ours=lambda: ours.predict_proba(X, blocks=asked))
    return [at_least("24 SGDClassifiers / one estimator", times["theirs"] / times["ours"], 3.0)]
