"""The chain equals its definition."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method import train
from semicyclic.method.run import Run
from tests.method import oracle
from tests.method.random_streams import KINDS, LOSSES, WIDTHS, Case, case, seeds, trained


def check_against_oracle(made: Case, run: Run, *, tolerance: float, near: float) -> None:
    """Means, lasts and losses of every block, and of all, as the definition has them."""
    steps, kink = oracle.run(made.problem)
    if kink <= near or not any(step.weight > 0 for step in steps):
        return  # rounding decides which way such a stream goes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # blocks never visited
        mean, last = run.mean().weights, run.last().weights
        consensus, final = run.consensus().weights[0], run.consensus_last().weights[0]
    progressive = run.progressive()
    for block in range(made.blocks):
        own = [step for step in steps if step.block == block]
        if own:
            close(last[block], own[-1].after, tolerance)
        if not any(step.weight > 0 for step in own):
            close(mean[block], oracle.mean_of(steps), tolerance)
            continue
        close(mean[block], oracle.mean_of(own), tolerance)
        rows = made.problem.block == block
        share = np.ones(len(rows)) if made.problem.weight is None else made.problem.weight
        expected = sum(sum(step.losses) for step in own) / share[rows].sum()
        close(progressive[block], expected, tolerance)
    close(consensus, oracle.mean_of(steps), tolerance)
    close(final, steps[-1].after, tolerance)


def close(found: Any, expected: Any, tolerance: float) -> None:
    scale = max(1.0, float(np.max(np.abs(expected))))
    assert np.max(np.abs(found - expected)) <= tolerance * scale


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("loss", LOSSES)
@given(seed=seeds, batch_size=st.integers(1, 7), weighted=st.booleans(), intercept=st.booleans())
@settings(max_examples=12, deadline=None)
def test_the_single_chain_equals_its_definition_for_every_loss(
    width: str, loss: str, seed: int, batch_size: int, weighted: bool, intercept: bool
) -> None:
    made = case(seed, width=width, loss=loss, batch_size=batch_size, weighted=weighted, intercept=intercept)
    check_against_oracle(made, trained(made), tolerance=1e-12, near=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["sgd", "dual", "adagrad", "normalized"])
@given(seed=seeds, batch_size=st.integers(1, 7), weighted=st.booleans())
@settings(max_examples=8, deadline=None)
def test_every_basis_and_rule_equals_its_definition(
    width: str, kind: str, rule: str, seed: int, batch_size: int, weighted: bool
) -> None:
    made = case(seed, width=width, kind=kind, rule=rule, batch_size=batch_size, weighted=weighted)
    check_against_oracle(made, trained(made), tolerance=1e-12, near=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["sgd", "dual"])
@given(seed=seeds, batch_size=st.integers(1, 4), radius=st.sampled_from([0.01, 0.1, 1.0]))
@settings(max_examples=8, deadline=None)
def test_projected_chains_equal_their_definition(
    width: str, kind: str, rule: str, seed: int, batch_size: int, radius: float
) -> None:
    made = case(seed, width=width, kind=kind, rule=rule, batch_size=batch_size, radius=radius)
    run = trained(made)
    check_against_oracle(made, run, tolerance=1e-12, near=1e-4)
    if kind in ("single", "separate"):
        assert np.linalg.norm(run.last().weights, axis=(1, 2)).max() <= radius * (1 + 1e-12)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["sgd", "adagrad", "normalized"])
@given(
    seed=seeds, l2=st.sampled_from([1e-3, 0.1, 1.0]), loss=st.sampled_from(["softmax", "squared", "hinge"])
)
@settings(max_examples=8, deadline=None)
def test_chains_with_a_penalty_equal_their_definition(
    width: str, kind: str, rule: str, seed: int, l2: float, loss: str
) -> None:
    # Constant steps cannot shrink several vectors of a chain and keep their intercepts.
    intercept = rule != "sgd" or kind in ("single", "separate")
    radius = 0.5 if rule == "sgd" and seed % 2 else float("inf")
    made = case(seed, width=width, kind=kind, rule=rule, loss=loss, l2=l2, intercept=intercept, radius=radius)
    check_against_oracle(made, trained(made), tolerance=1e-12, near=1e-4)


@pytest.mark.parametrize("step", [0.4, sc.step.adagrad(0.4)], ids=["constant", "adaptive"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_full_gradients_with_a_penalty_end_in_the_regularized_optimum(loss: str, step: Any) -> None:
    """Ridge and logistic regression, as scikit-learn solves them."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(4)
    n, l2, cycles = 40, 0.05, 4000
    X = rng.normal(size=(n, 3))
    y = X @ [1.0, -2.0, 0.0] + 3.0 + rng.normal(size=n)
    if loss == "logistic":
        y = (y > 3.0).astype(float)
        exact = linear_model.LogisticRegression(C=1 / (n * l2), tol=1e-10).fit(X, y)
    else:
        exact = linear_model.Ridge(alpha=n * l2).fit(X, y)
    block, cycle = np.zeros(n * cycles, int), np.repeat(np.arange(cycles), n)
    rows = sc.Rows(np.tile(X, (cycles, 1)), np.tile(y, cycles), block=block, cycle=cycle, dtype=np.float64)
    run = train.pluralistic(rows, 1, loss=LOSSES[loss], step_size=step, batch_size=n, l2=l2)
    weights = run.last().weights[0, 0]
    np.testing.assert_allclose(weights[:-1], exact.coef_.ravel(), atol=1e-4)
    np.testing.assert_allclose(weights[-1], np.ravel(exact.intercept_)[0], atol=1e-4)


def test_a_penalty_that_a_chain_cannot_have_is_refused() -> None:
    made = case(3, kind="residual")
    with pytest.raises(ValueError, match="needs chains of one vector"):
        trained(made, l2=0.1)
    with pytest.raises(ValueError, match="l2=-1: the strength"):
        trained(made, l2=-1)
    made = case(3, rule="dual")
    with pytest.raises(ValueError, match="dual averaging has no l2="):
        trained(made, l2=0.1)
    made = case(3)
    with pytest.raises(ValueError, match=r"times the step size .* must be below 1"):
        trained(made, l2=100.0)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rule", ["sgd", "dual", "adagrad", "normalized"])
@given(seed=seeds, kind=st.sampled_from(KINDS), loss=st.sampled_from(["softmax", "squared"]))
@settings(max_examples=8, deadline=None)
def test_several_scores_a_row_go_with_every_basis_and_rule(
    width: str, rule: str, seed: int, kind: str, loss: str
) -> None:
    made = case(seed, width=width, kind=kind, rule=rule, loss=loss)
    check_against_oracle(made, trained(made), tolerance=1e-12, near=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
@given(
    seed=seeds,
    loss=st.sampled_from(sorted(LOSSES)),
    kind=st.sampled_from(KINDS),
    rule=st.sampled_from(["sgd", "dual"]),
    radius=st.sampled_from([float("inf"), 0.1]),
)
@settings(max_examples=30, deadline=None)
def test_single_precision_is_near_the_definition(
    width: str, seed: int, loss: str, kind: str, rule: str, radius: float
) -> None:
    made = case(seed, width=width, loss=loss, kind=kind, rule=rule, radius=radius, dtype=np.float32)
    check_against_oracle(made, trained(made), tolerance=1e-4, near=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=seeds, kind=st.sampled_from(KINDS))
@settings(max_examples=15, deadline=None)
def test_adaptive_steps_in_single_precision_are_near_the_definition(width: str, seed: int, kind: str) -> None:
    made = case(seed, width=width, kind=kind, rule="adagrad", dtype=np.float32)
    check_against_oracle(made, trained(made), tolerance=1e-4, near=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=seeds, kind=st.sampled_from(["single", "separate", "residual"]))
@settings(max_examples=10, deadline=None)
def test_importance_weights_multiply_the_gradient_and_not_the_average(
    width: str, seed: int, kind: str
) -> None:
    made = case(seed, width=width, kind=kind)
    counts = np.zeros(made.blocks)
    for rows in oracle.steps_of(made.problem):
        counts[made.problem.block[rows[0]]] += 1
    target = np.random.default_rng(seed).dirichlet(np.ones(made.blocks)) * (counts > 0)
    target /= target.sum()
    share = counts / counts.sum()
    # A chain of one block has nothing to weigh.
    block_weights = np.divide(target, share, out=np.ones_like(share), where=share > 0)
    made.problem.block_weights = [1.0] * made.blocks if kind == "separate" else block_weights.tolist()
    check_against_oracle(made, trained(made, objective_shares=target), tolerance=1e-12, near=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_start_is_where_every_block_begins(width: str) -> None:
    for kind in ("single", "separate", "residual"):
        made = case(5, width=width, kind=kind, loss="softmax")
        start = np.random.default_rng(1).normal(size=(3, made.problem.X.shape[1] + 1))
        vectors = np.zeros((made.basis.vectors, *start.shape))
        vectors[np.unique(made.basis.active[:, 0])] = start
        steps, _ = oracle.run(made.problem, vectors)
        run = trained(made, initial_weights=start)
        for block in np.unique(made.problem.block):
            own = [step for step in steps if step.block == block]
            close(run.mean().weights[block], oracle.mean_of(own), 1e-12)
            close(run.last().weights[block], own[-1].after, 1e-12)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_subgradient_at_a_kink_is_zero(width: str) -> None:
    """Zero weights on zero labels: absolute and quantile losses do not move at all."""
    for loss in ("absolute", "quantile"):
        made = case(0, width=width, loss=loss)
        labels = made.rows.labels
        assert labels is not None
        labels[:] = 0
        made.problem.target[:] = 0
        assert not trained(made).last().weights.any()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_long_run_that_is_projected_at_every_step_does_not_drift(width: str) -> None:
    made = case(3, width=width, radius=0.05, batch_size=1, n=4000)
    check_against_oracle(made, trained(made), tolerance=1e-12, near=1e-4)


def test_every_chain_may_have_a_start_of_its_own() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    block = np.tile(np.repeat([0, 1], 5), 4)
    starts = rng.normal(size=(2, 1, 4))
    both = train.separate(sc.Rows(X, y, block=block), 2, initial_weights=starts, batch_size=2)
    for i in range(2):
        own = block == i
        rows = sc.Rows(X[own], y[own], block=np.zeros(20, int), cycle=np.repeat(np.arange(4), 5))
        alone = train.separate(rows, 1, initial_weights=starts[i], batch_size=2, classes=(0, 1))
        assert np.allclose(both.last().weights[i], alone.last().weights[0], atol=1e-6)
        assert np.allclose(both.mean().weights[i], alone.mean().weights[0], atol=1e-6)
    with pytest.raises(ValueError, match=r"initial_weights has shape \(3, 1, 4\)"):
        train.separate(sc.Rows(X, y, block=block), 2, initial_weights=rng.normal(size=(3, 1, 4)))
