"""Metrics of many candidates, compared with scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from semicyclic.evaluation.scores import ScoreSums
from semicyclic.method import loss as losses


def test_measures_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(size=(500, 3, 1)).astype(np.float32)
    y = np.where(rng.random(500) < 1 / (1 + np.exp(-score[:, 0, 0])), 1.0, -1.0)
    tally = ScoreSums.none(4, 5, 3, losses.logistic)
    block, cycle = rng.integers(0, 4, 500), rng.integers(0, 5, 500)
    for part in (slice(0, 123), slice(123, 500)):
        tally.add(losses.logistic, score[part], y[part], block[part], cycle[part])
    for k, found in enumerate(tally.overall((1.0, 1.0))):
        s = score[:, k, 0].astype(float)
        assert found["log_loss"] == pytest.approx(log_loss(y > 0, 1 / (1 + np.exp(-s))), rel=1e-5)
        assert found["accuracy"] == pytest.approx(accuracy_score(y > 0, s > 0))
        assert found["auc"] == pytest.approx(roc_auc_score(y > 0, s), abs=2e-4)
    scores = rng.normal(size=(400, 2, 3)).astype(np.float32)
    code = rng.integers(0, 3, 400).astype(float)
    tally = ScoreSums.none(1, 2, 2, losses.softmax(3))
    tally.add(losses.softmax(3), scores, code, np.zeros(400, int), rng.integers(0, 2, 400))
    for k, found in enumerate(tally.overall((1.0, 1.0))):
        chance = losses.softmax(3).link(scores[:, k].astype(float))
        assert found["log_loss"] == pytest.approx(log_loss(code, chance), rel=1e-5)
        assert found["accuracy"] == pytest.approx((chance.argmax(axis=1) == code).mean())
        assert found["auc"] == pytest.approx(roc_auc_score(code, chance, multi_class="ovr"), abs=2e-3)
    tally = ScoreSums.none(1, 2, 2, losses.squared)
    tally.add(losses.squared, scores[:, :, :1], code, np.zeros(400, int), rng.integers(0, 2, 400))
    for k, found in enumerate(tally.overall((9.0, 3.0))):
        miss = scores[:, k, 0].astype(float) - code
        assert found["mse"] == pytest.approx(9 * (miss**2).mean())
        assert found["mae"] == pytest.approx(3 * np.abs(miss).mean())


def test_margins_cover_the_mean_when_days_differ() -> None:
    """Losses that are higher on some days: 95 % intervals over cycles hold the true mean about as often."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        day = rng.normal(0, 0.3, 40)
        tally = ScoreSums.none(1, 40, 1, losses.squared)
        cycle = np.repeat(np.arange(40), 20)
        miss = np.sqrt(np.maximum(1 + day[cycle] + rng.normal(0, 0.1, 800), 0))
        tally.add(
            losses.squared, miss[:, None, None].astype(np.float32), np.zeros(800), np.zeros(800, int), cycle
        )
        mean = tally.overall((1.0, 1.0))[0]["mse"]
        hits += abs(mean - 1.0) < tally.margins(1.0)[0]
    assert 270 <= hits <= 296
