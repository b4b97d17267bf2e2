"""Benchmarks against scikit-learn, end to end: the estimators, and predictions for one row."""

import warnings
from typing import Any

import numpy as np

from benchmarks.streams import ROWS, calendar, stream
from benchmarks.timing import Figure, Peer, at_least, at_most, best_of, no_goal

BLOCKS = 6
HOURS, PREDICTED_ROWS = 24, 1_000_000


def sk_fit() -> list[Figure]:
    """One pass over 1.44 M rows in six blocks, against SGDClassifier with averaging.

    The goal applies to the paper's chain, with a constant step size and minibatches of 128. The estimator's
    defaults, which are meant for fewer rows, are measured too, without a goal.
    """
    from sklearn.linear_model import SGDClassifier

    from semicyclic import SemiCyclicClassifier

    data = stream()
    _, block = calendar(BLOCKS, 10)

    def theirs(loss: str) -> Any:
        settings: dict[str, Any] = {"max_iter": 1, "shuffle": False, "penalty": None, "average": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one pass does not converge
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


def predict_one() -> list[Figure]:
    """One flight as a dict, against scikit-learn's pipeline on a data frame of one row."""
    import pandas as pd
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    import semicyclic as sc
    from semicyclic.datasets.flights import data_path

    flights = pd.read_parquet(data_path())[:50_000].dropna()
    flights["when"] = flights["when"].astype("datetime64[us]")
    X, y = flights.drop(columns=["late", "when"]), flights["late"].astype(bool)
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude=np.number)),
        (StandardScaler(), make_column_selector(dtype_include=np.number)),
    )
    pipeline = make_pipeline(encoder, SGDClassifier(loss="log_loss", random_state=0)).fit(X, y)
    model = sc.fit(flights, when="when", label="late", zone="America/New_York", memory="256MB")
    frames = [X[row : row + 1] for row in range(200)]
    dicts = [
        {**row, "when": str(row["when"])} for row in flights[:2000].drop(columns="late").to_dict("records")
    ]

    def ours() -> None:
        for row in dicts:
            model.predict_proba(row)

    def theirs() -> None:
        for frame in frames:
            pipeline.predict_proba(frame)

    ours()
    times = best_of(5, theirs=Peer(theirs), ours=ours)
    one = times["ours"] / len(dicts)
    return [
        at_least("pipeline on a frame of one row / one dict", times["theirs"] / len(frames) / one, 10.0),
        at_most("milliseconds for one dict", one * 1e3, 0.2),
        no_goal("milliseconds for a frame of one row, scikit-learn", times["theirs"] / len(frames) * 1e3),
    ]


def sk_predict() -> list[Figure]:
    """Probabilities of a million rows in 24 blocks, against 24 classifiers, one per block."""
    from sklearn.linear_model import SGDClassifier

    from semicyclic import SemiCyclicClassifier

    data = stream()
    hour = np.random.default_rng(0).integers(0, HOURS, ROWS)
    X, blocks = data.X[:PREDICTED_ROWS], hour[:PREDICTED_ROWS]
    ours = SemiCyclicClassifier(schedule=HOURS).fit(data.X[::16], data.y[::16], blocks=hour[::16])
    theirs = []
    for block in range(HOURS):
        rows = np.flatnonzero(hour == block)[:3000]
        theirs.append(SGDClassifier(loss="log_loss", max_iter=20, tol=None).fit(data.X[rows], data.y[rows]))

    def predict_by_block() -> Any:
        out = np.empty((PREDICTED_ROWS, 2))
        for block, model in enumerate(theirs):
            rows = blocks == block
            out[rows] = model.predict_proba(X[rows])
        return out

    times = best_of(5, theirs=Peer(predict_by_block), ours=lambda: ours.predict_proba(X, blocks=blocks))
    return [at_least("24 SGDClassifiers / one estimator", times["theirs"] / times["ours"], 3.0)]
