"""Losses: convex, with the slopes and constants they claim, in NumPy and compiled alike."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method.kernels.losses import decay, log_one_plus, slopes, softmax_slopes
from semicyclic.method.loss import Loss, by_name, sigmoid
from semicyclic.types import Array
from tests.method.random_streams import LOSSES

scores = st.floats(-60, 60)
ONE_SCORE = {name: loss for name, loss in LOSSES.items() if loss.outputs == 1}


def target_of(loss: Loss, number: float) -> Array:
    return np.array([np.sign(number) or 1.0 if loss.classes else number])


@pytest.mark.parametrize("loss", ONE_SCORE.values(), ids=ONE_SCORE)
@given(a=scores, b=scores, y=st.floats(-5, 5))
def test_the_slope_is_a_subgradient_and_bounded(loss: Loss, a: float, b: float, y: float) -> None:
    target = target_of(loss, y)
    one, other = np.array([a]), np.array([b])
    at, slope = loss.value(one, target), loss.slope(one, target)
    assert loss.value(other, target) >= at + slope * (other - one) - 1e-9 * (1 + abs(a) + abs(b)) ** 2
    assert abs(slope[0]) <= loss.lipschitz
    assert at >= 0


@given(st.lists(scores, min_size=3, max_size=3), st.lists(scores, min_size=3, max_size=3), st.integers(0, 2))
def test_softmax_has_a_subgradient_and_a_constant(a: list[float], b: list[float], y: int) -> None:
    loss, target = sc.loss.softmax(3), np.array([y])
    one, other = np.array([a]), np.array([b])
    slope = loss.slope(one, target)
    assert loss.value(other, target) >= loss.value(one, target) + (slope * (other - one)).sum() - 1e-9
    assert np.linalg.norm(slope) <= loss.lipschitz
    assert np.isclose(loss.link(one).sum(), 1)


@given(scores, st.sampled_from([-1.0, 1.0]))
def test_softmax_of_two_is_logistic_in_the_difference(s: float, y: float) -> None:
    two, code = np.array([[0.0, s]]), np.array([(y + 1) / 2])
    score, target = np.array([s]), np.array([y])
    assert np.isclose(sc.loss.softmax(2).value(two, code), sc.loss.logistic.value(score, target))
    assert np.isclose(sc.loss.softmax(2).slope(two, code)[0, 1], sc.loss.logistic.slope(score, target)[0])
    assert np.isclose(sc.loss.softmax(2).link(two)[0, 1], sc.loss.logistic.link(score)[0])


def test_the_slope_at_a_kink_is_zero() -> None:
    one = np.array([1.0])
    assert sc.loss.hinge.slope(one, one) == 0
    assert sc.loss.absolute.slope(one, one) == 0
    assert sc.loss.quantile(0.9).slope(one, one) == 0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@given(seed=st.integers(0, 999), size=st.sampled_from([0.1, 3.0, 80.0]))
@settings(max_examples=10, deadline=None)
def test_compiled_slopes_and_values_are_those_of_the_loss(
    kind: Any, loss: Loss, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    n = 9
    score = rng.normal(0, size, (n, loss.outputs)).astype(kind)
    value, slope = np.empty(n, kind), np.empty((n, loss.outputs), kind)
    if loss.outputs > 1:
        target = rng.integers(0, loss.classes, n).astype(kind)
        softmax_slopes(score, target, slope, value)
        flat = score
    else:
        target = (rng.choice([-1.0, 1.0], n) if loss.classes else rng.normal(size=n)).astype(kind)
        flat_slope = np.empty(n + 2, kind)
        padded = np.r_[target[:1], target]
        slopes(loss.code, loss.level, n, score[:, 0], 0, padded, 1, flat_slope, 2, value)
        slope[:, 0] = flat_slope[2:]
        flat = score[:, 0]
    precise, exact = flat.astype(float), target.astype(float)
    tolerance = 3e-7 if kind is np.float32 else 1e-12
    expected = loss.value(precise, exact)
    assert np.allclose(value, expected, rtol=tolerance, atol=tolerance)
    assert np.allclose(
        slope, loss.slope(precise, exact).reshape(n, -1), rtol=tolerance, atol=tolerance * size
    )


def test_the_polynomials_stand_for_exp_and_log() -> None:
    x = np.linspace(-100, 0, 7)
    assert np.array_equal(decay(x), np.exp(x))
    assert np.array_equal(log_one_plus(-x), np.log1p(-x))


def test_sigmoid_neither_overflows_nor_loses_its_tail() -> None:
    with np.errstate(all="raise"):
        assert sigmoid(np.array([-700.0, 0.0, 700.0])).tolist() == [np.exp(-700), 0.5, 1.0]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_loss_is_known_by_its_name(loss: Loss) -> None:
    assert by_name(loss.name) == loss
    assert hash(by_name(loss.name)) == hash(loss)
    assert repr(loss) == f"loss.{loss.name}"


@pytest.mark.parametrize("name", ["mystery", "quantile(2)", "quantile(x)", "softmax(1)", "huber(0)", "huber"])
def test_an_unknown_loss_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="loss"):
        by_name(name)


def test_huber_is_squared_near_zero_and_absolute_far_away() -> None:
    error = np.array([-3.0, -0.5, 0.0, 0.5, 3.0])
    zero, huber = np.zeros(5), sc.loss.huber(1.0)
    near = np.abs(error) <= 1
    np.testing.assert_allclose(huber.value(error, zero)[near], sc.loss.squared.value(error, zero)[near])
    np.testing.assert_allclose(huber.value(error, zero)[~near], np.abs(error[~near]) - 0.5)


@pytest.mark.parametrize("make", [sc.loss.huber, sc.loss.quantile])
def test_a_parameter_may_be_any_number(make: Any) -> None:
    for loss in (make(np.float64(0.25)), make(np.float32(0.25)), make(0.25)):
        assert by_name(loss.name) == loss == make(0.25)
    assert sc.loss.huber(1) == sc.loss.huber(1.0)


def test_a_huber_loss_scales_with_the_labels() -> None:
    error, zero = np.array([-3.0, 0.5, 2.0]), np.zeros(3)
    scaled = sc.loss.huber(1.0).scaled(10.0)
    np.testing.assert_allclose(scaled.value(10 * error, zero), 100 * sc.loss.huber(1.0).value(error, zero))
    assert sc.loss.absolute.scaled(10.0) == sc.loss.absolute
