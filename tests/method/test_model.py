"""The model: it picks the block from the time, and can be asked for any other."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import semicyclic as sc

SCHEDULE = sc.Schedule.daily(edges={"night": (22, 6), "day": (6, 22)})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
X = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 0.0]])
ROWS = sc.Rows(X, when=[NOON, NOON + timedelta(hours=11), NOON + timedelta(hours=13)], dtype=np.float64)
WEIGHTS = np.array([[[1.0, 0.0, 0.5]], [[0.0, -1.0, 0.25]]])


def model(**change: Any) -> sc.Pluralistic:
    made = sc.Pluralistic(WEIGHTS.copy(), SCHEDULE, sc.loss.logistic, ("no", "yes"))
    return dataclasses.replace(made, **change)


def test_a_row_is_scored_by_the_block_of_its_time() -> None:
    assert np.allclose(model().score(ROWS), [-1.75, 3.5, 0.5])
    assert np.allclose(model().predict_proba(ROWS)[:, 1], 1 / (1 + np.exp([1.75, -3.5, -0.5])))
    assert model().predict(ROWS).tolist() == ["no", "yes", "yes"]


def test_a_block_may_be_named_for_all_rows_or_for_each() -> None:
    assert np.allclose(model().score(ROWS, block=1), [-1.75, 1.25, 0.25])
    assert np.allclose(model().score(ROWS, block=[0, 1, 1]), [1.5, 1.25, 0.25])
    with pytest.raises(ValueError, match="block 2: the model has blocks 0 to 1"):
        model().score(ROWS, block=2)
    with pytest.raises(ValueError, match="block -1"):
        model().score(ROWS, block=[0, -1, 1])


def test_a_distribution_over_blocks_mixes_the_models() -> None:
    """docs/math.md#soft-prediction: the score of the averaged model is the average of the scores."""
    share = np.array([0.25, 0.75])
    mixed = model().mixture(share)
    expected = np.hstack([X, np.ones((3, 1))]) @ mixed[0]
    assert np.allclose(model().score(ROWS, membership=share), expected)
    soft = SCHEDULE.membership([NOON] * 3, width=timedelta(hours=1))
    assert np.allclose(model().predict_proba(ROWS, membership=soft), model().predict_proba(ROWS, block=1))
    for bad in ([0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="membership of row 0 is not a distribution"):
            model().score(ROWS, membership=bad)
    with pytest.raises(ValueError, match="either block= or membership="):
        model().score(ROWS, membership=share, block=0)


def test_a_tie_is_the_first_class() -> None:
    zero = model(held=np.zeros((2, 1, 3)))
    assert zero.predict(ROWS).tolist() == ["no", "no", "no"]
    three = sc.Pluralistic(np.zeros((2, 3, 3)), SCHEDULE, sc.loss.softmax(3), ("a", "b", "c"))
    assert three.predict(ROWS).tolist() == ["a", "a", "a"]
    assert three.predict_proba(ROWS).shape == (3, 3)


def test_a_model_cannot_be_changed() -> None:
    made = model()
    with pytest.raises(ValueError, match="read-only"):
        made.weights[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.loss = sc.loss.hinge  # type: ignore[misc]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="rows have 1 columns, the model 2"):
        model().score(sc.Rows(X[:, :1], when=[1, 2, 3]))
    with pytest.raises(ValueError, match=r"weights have shape \(2, 1, 3\): they must be \[blocks, 3"):
        model(loss=sc.loss.softmax(3))
    with pytest.raises(ValueError, match="weights of 2 blocks for a schedule of 6"):
        model(schedule=sc.Schedule.daily(6))
    with pytest.raises(ValueError, match="predicts numbers, not classes: use predict"):
        model(loss=sc.loss.squared, classes=()).predict_proba(ROWS)
    with pytest.raises(ValueError, match="loss hinge has no probabilities"):
        model(loss=sc.loss.hinge).predict_proba(ROWS)


def test_a_model_shows_what_it_is() -> None:
    assert repr(model()) == "Pluralistic(2 blocks, 2 columns, 1 output(s), loss.logistic)"
    assert model().blocks == 2


def test_from_times_to_predictions() -> None:
    """The whole way: labels flip between night and day, and only the time tells."""
    rng = np.random.default_rng(0)
    when = np.sort(rng.integers(0, 20 * 86400, 4000))
    features = rng.normal(size=(4000, 3))
    block = SCHEDULE.locate(when).block
    y = (features[:, 0] > 0) ^ (block == 1)
    rows = sc.Rows(features, y, when=when)
    separate = sc.train.separate(rows, SCHEDULE, step_size=0.5, batch_size=8).mean()
    single = sc.train.consensus(rows, SCHEDULE, step_size=0.5, batch_size=8).mean()
    assert (separate.predict(rows) == y).mean() > 0.95
    assert 0.3 < (single.predict(rows) == y).mean() < 0.7
