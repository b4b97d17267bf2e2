"""Normalized steps: the units of a column do not matter."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method import train
from semicyclic.method.batches import pack
from semicyclic.method.chain import normalize_columns
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.rows import Rows, SparseRows
from semicyclic.types import Array
from tests.method.random_streams import case, seeds, trained

METHODS = ("pluralistic", "separate", "residual", "hedged", "consensus")
BITS = np.array([20.0, 0.0, -20.0, 3.0, 0.0])


def table(n: int, seed: int) -> tuple[Array, Array, Array]:
    """Features, some of them zero, labels and blocks."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) * (rng.random((n, 5)) < 0.7)
    block = np.sort(rng.integers(0, 12, n)) % 3
    y = rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0] * np.where(block == 1, -1, 1)))
    return X.astype(np.float32), y, block


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=seeds, batch_size=st.integers(1, 5))
@settings(max_examples=8, deadline=None)
def test_a_power_of_two_changes_no_bit_of_a_prediction(
    method: str, dtype: Any, seed: int, batch_size: int
) -> None:
    X, y, block = table(80, seed)
    runs = []
    for factor in (np.ones(5), 2.0**BITS):
        rows = Rows(X * factor, y, block=block, dtype=dtype)
        how = {"step_size": sc.step.normalized(), "batch_size": batch_size}
        run = getattr(train, method)(rows, 3, **how)
        runs.append((run.progressive(), run.mean().score(rows), run.last().score(rows), run.mean().weights))
    for one, other in zip(runs[0][:3], runs[1][:3], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(runs[0][3][..., :-1], runs[1][3][..., :-1] * 2.0**BITS)


@pytest.mark.parametrize("method", METHODS)
def test_any_factor_changes_the_loss_by_rounding_only(method: str) -> None:
    X, y, block = table(3000, 7)
    losses = [
        getattr(train, method)(
            Rows(X * [factor, 1, 1, 1, 1], y, block=block), 3, step_size=sc.step.normalized(), batch_size=1
        ).progressive_loss()
        for factor in (1.0, 1e6, 1e-6)
    ]
    assert losses[1:] == pytest.approx(losses[:1] * 2, abs=1e-5)
    plain = [
        getattr(train, method)(
            Rows(X * [factor, 1, 1, 1, 1], y, block=block), 3, step_size=sc.step.adagrad(0.2), batch_size=1
        ).progressive_loss()
        for factor in (1.0, 1e6)
    ]
    assert plain[1] > plain[0] + 0.1


@given(seed=seeds, parts=st.lists(st.integers(1, 60), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_rows_are_normalized_as_defined_however_they_are_cut(seed: int, parts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    X = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.5) * [1e3, 1, 1e-3, 1]
    weight = rng.integers(0, 3, n).astype(float)
    expected, last = normalize_columns(X, weight)
    rows, scale, done = Rows(X, np.zeros(n), weight=weight, dtype=np.float64), ColumnScale.empty(4), 0
    for size in [*parts, n]:
        part = rows[done : done + size]
        if len(part):
            normalized = scale.normalize(part)
            dense = np.zeros((len(part), 4))
            dense[np.repeat(np.arange(len(part)), np.diff(part.indptr)), part.indices] = normalized.values
            np.testing.assert_allclose(dense, expected[done : done + size], rtol=1e-12)
        done += size
    factors = scale.factors(np.float64)
    np.testing.assert_allclose(factors[:-1][last > 0], 1 / last[last > 0], rtol=1e-12)
    assert (factors[:-1][last == 0] == 0).all()
    assert factors[-1] == 1


def test_stated_zeros_do_not_count() -> None:
    """A sparse table may state some of its zeros."""
    X = np.array([[0.0, 2.0], [3.0, 0.0]])
    stated = SparseRows(np.array([0, 2, 4]), np.array([0, 1, 0, 1]), X.ravel(), 2)
    left_out = SparseRows(np.array([0, 1, 2]), np.array([1, 0]), np.array([2.0, 3.0]), 2)
    for form in (stated, left_out):
        scale = ColumnScale.empty(2)
        scale.normalize(Rows(form))
        np.testing.assert_array_equal(scale.mean_square, [9.0, 4.0])


@pytest.mark.parametrize("kind", ["single", "separate", "residual"])
@pytest.mark.parametrize("cut", [1, 17, 59])
def test_a_run_may_be_cut_anywhere(kind: str, cut: int) -> None:
    made = case(5, rule="normalized", kind=kind)
    whole = trained(made)
    how = {"classes": (0.0, 1.0), "final": False, **made.settings}
    first = train.chain(made.rows[:cut], made.blocks, made.basis, **how)
    run = train.extend(first, made.rows[cut:])
    for name in ("mean", "last"):
        np.testing.assert_allclose(
            getattr(run, name)().weights, getattr(whole, name)().weights, rtol=0, atol=1e-12
        )


def test_a_random_iterate_is_on_the_features_as_they_are() -> None:
    X, y, block = table(300, 3)
    models = [
        train.pluralistic(
            Rows(X * factor, y, block=block),
            3,
            step_size=sc.step.normalized(),
            reservoir=np.random.default_rng(0),
        ).random()
        for factor in (np.ones(5), 2.0**BITS)
    ]
    np.testing.assert_array_equal(models[0].weights[..., :-1], models[1].weights[..., :-1] * 2.0**BITS)


def test_huge_and_tiny_values_leave_finite_models() -> None:
    X = np.array([[1e200, 1e-200], [-1e200, 2e-200], [1e300, 0.0]])
    run = train.pluralistic(
        Rows(X, [0, 1, 1], block=[0, 0, 0], dtype=np.float64),
        1,
        step_size=sc.step.normalized(),
        batch_size=1,
    )
    assert np.isfinite(run.mean().weights).all()
    assert np.isfinite(run.progressive()).all()


def test_what_normalized_steps_cannot_do_is_refused() -> None:
    X, y, block = table(50, 0)
    rows, step = Rows(X, y, block=block), sc.step.normalized()
    mixed: Any = [sc.basis.single, (sc.basis.separate, 0.5)]
    with pytest.raises(ValueError, match="give all of them such steps"):
        train.hedged(rows, 3, chains=mixed, step_size=step)
    with pytest.raises(ValueError, match="leave out initial_weights"):
        train.pluralistic(rows, 3, step_size=step, initial_weights=np.zeros((1, 6)))
    with pytest.raises(ValueError, match="normalize=False, which must be True"):
        train.pluralistic(pack(rows, 3, loss=sc.loss.logistic), step_size=step)
    packed = pack(rows, 3, loss=sc.loss.logistic, normalize=True)
    with pytest.raises(
        ValueError, match=r"normalize=True, which must be True for step\.normalized and False"
    ):
        train.pluralistic(packed, step_size=0.5)
    np.testing.assert_array_equal(
        train.pluralistic(packed, step_size=step).mean().weights,
        train.pluralistic(rows, 3, step_size=step).mean().weights,
    )


def test_a_run_is_not_changed_by_the_runs_that_continue_it() -> None:
    """Nor are packed rows by the runs that begin with them."""
    X, y, block = table(120, 5)
    rows, step = Rows(X, y, block=block), sc.step.normalized()
    packed = pack(rows, 3, loss=sc.loss.logistic, normalize=True)
    first = train.pluralistic(packed, step_size=step)
    before = first.mean().weights.copy()
    more = Rows(100 * X, y, block=block)
    extended = [train.extend(first, more).last().weights for _ in range(2)]
    np.testing.assert_array_equal(extended[0], extended[1])
    np.testing.assert_array_equal(first.mean().weights, before)
    np.testing.assert_array_equal(train.pluralistic(packed, step_size=step).mean().weights, before)
