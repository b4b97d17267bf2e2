"""Evaluation: matrices against their definition, paired differences, certificates."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

import semicyclic as sc
from semicyclic.method import evaluate, train
from semicyclic.method.evaluate import by_block
from semicyclic.method.model import Pluralistic
from semicyclic.theory import certificate
from semicyclic.types import Array
from tests.method.random_streams import LOSSES, case, seeds, trained

LOGISTIC = sc.loss.logistic
CLASSIFICATION = [sc.metrics.accuracy, sc.metrics.log_loss]
REGRESSION = [sc.metrics.absolute_error, sc.metrics.squared_error, sc.metrics.pinball(0.3)]


def measured(model: sc.Pluralistic, rows: sc.Rows, block: int, measure: sc.metrics.Metric) -> float:
    """One cell, by the model's own predictions."""
    score = model.score(rows, block=block).astype(float)
    y = np.asarray(rows.labels, dtype=float)
    weight = None if rows.weight is None else rows.weight.astype(float)
    if measure.name == "accuracy":
        return float(np.average(model.predict(rows, block=block) == rows.labels, weights=weight))
    if measure.name == "log_loss":
        p = model.predict_proba(rows, block=block).astype(float)
        return float(np.average(-np.log(p[np.arange(len(p)), y.astype(int)]), weights=weight))
    if measure.name == "auc":
        return float(roc_auc_score(y, score, sample_weight=weight))
    miss = y - score
    error = {
        "absolute_error": np.abs(miss),
        "squared_error": miss**2,
        "pinball(0.3)": np.where(miss > 0, 0.3 * miss, -0.7 * miss),
    }[measure.name]
    return float(np.average(error, weights=weight))


@pytest.mark.filterwarnings("ignore:.*never visited")
@given(
    seed=seeds,
    loss=st.sampled_from(list(LOSSES)),
    weighted=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=60, deadline=None)
def test_every_cell_is_the_measure_of_one_model_on_one_block(
    seed: int, loss: str, weighted: bool, dtype: type
) -> None:
    made = case(seed, loss=loss, weighted=weighted, dtype=dtype)
    run = trained(made)
    models = [run.mean(), run.last(), run.consensus()]
    chosen = CLASSIFICATION if LOSSES[loss].classes else REGRESSION
    if loss == "hinge":
        chosen = [sc.metrics.accuracy]
    if LOSSES[loss].classes == 2:
        chosen = [*chosen, sc.metrics.auc]
    block = made.problem.block
    for measure in chosen:
        for model, found in zip(models, sc.matrices(models, made.rows, metric=measure), strict=True):
            for j in range(made.blocks):
                own = made.rows[np.flatnonzero(block == j)]
                empty = len(own) == 0 or (own.weight is not None and own.weight.sum() == 0)
                if measure.name == "auc" and not empty:
                    held = np.ones(len(own)) if own.weight is None else own.weight
                    assert own.labels is not None
                    empty = len(np.unique(own.labels[held > 0])) < 2
                for i in range(made.blocks):
                    if empty:
                        assert np.isnan(found.values[i, j])
                    else:
                        expected = measured(model, own, i, measure)
                        assert found.values[i, j] == pytest.approx(expected, rel=1e-4, abs=2e-6), measure.name


def test_more_models_than_fit_one_pass_and_rows_in_many_parts() -> None:
    rng = np.random.default_rng(0)
    n, m, d = 9_000, 7, 5
    rows = sc.Rows(rng.normal(size=(n, d)), rng.integers(0, 2, n), block=np.arange(n) % m)
    models = [
        sc.Pluralistic(rng.normal(size=(m, 1, d + 1)).astype(np.float32), sc.Numbered(m), LOGISTIC, (0, 1))
        for _ in range(23)
    ]
    calls: list[tuple[int, int]] = []
    found = sc.matrices(models, rows, progress=lambda done, of: calls.append((done, of)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    for model, each in zip(models, found, strict=True):
        own = model.predict(rows) == rows.labels
        diagonal = [own[np.arange(n) % m == j].mean() for j in range(m)]
        assert np.allclose(each.diagonal, diagonal)
        assert each.pluralistic == pytest.approx(np.mean(diagonal))


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = sc.Rows(rng.normal(size=(20_000, 5)), rng.integers(0, 2, 20_000), block=np.arange(20_000) % 3)
    model = train.pluralistic(rows, 3).mean()
    found = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        found.append(sc.matrix(model, rows, metric=sc.metrics.log_loss).values)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_means_are_unweighted_as_in_the_paper_with_those_by_share_beside_them() -> None:
    values = np.array([[0.9, 0.5], [0.3, 0.7]])
    made = evaluate.Matrix(values, np.array([0.75, 0.25]), sc.metrics.accuracy, ("a", "b"))
    assert made.pluralistic == pytest.approx(0.8)
    assert made.pluralistic_by_share == pytest.approx(0.75 * 0.9 + 0.25 * 0.7)
    assert made.consensus == pytest.approx(0.6)
    weighed = 0.5625 * 0.9 + 0.1875 * (0.5 + 0.3) + 0.0625 * 0.7
    assert made.consensus_by_share == pytest.approx(weighed)
    assert "pluralistic (diagonal) 0.8000, by share 0.8500" in str(made)


def test_a_matrix_of_a_run_is_that_of_its_mean_and_says_what_it_left_out() -> None:
    made = case(3)
    rows = made.rows[np.flatnonzero(made.problem.block != 0)]
    run = trained(made)
    found = sc.matrix(run, rows)
    assert np.array_equal(found.values, sc.matrix(run.mean(), rows).values, equal_nan=True)
    assert np.isnan(found.values[:, 0]).all()
    assert np.isfinite(found.pluralistic)
    assert "left out, having no rows to be measured on: 0" in str(found)


def test_a_score_of_exactly_zero_is_the_first_class() -> None:
    model = sc.Pluralistic(np.zeros((1, 1, 2)), sc.Numbered(1), sc.loss.logistic, ("no", "yes"))
    rows = sc.Rows(np.ones((4, 1)), ["no", "no", "no", "yes"], block=[0] * 4)
    assert sc.matrix(model, rows).values[0, 0] == 0.75


def test_equal_scores_of_several_classes_are_the_first_of_them() -> None:
    model = sc.Pluralistic(np.zeros((1, 3, 2)), sc.Numbered(1), sc.loss.softmax(3), (0, 1, 2))
    rows = sc.Rows(np.ones((4, 1)), [0, 1, 2, 2], block=[0] * 4)
    assert sc.matrix(model, rows).values[0, 0] == 0.25
    assert (model.predict(rows) == 0).all()


def test_models_of_different_schedules_are_not_evaluated_together() -> None:
    weights = np.zeros((4, 1, 2))
    models = [
        sc.Pluralistic(weights, sc.Schedule.daily(4, zone=zone), sc.loss.logistic, (0, 1))
        for zone in ("UTC", "Asia/Tokyo")
    ]
    with pytest.raises(ValueError, match="the same loss, classes, schedule and columns"):
        sc.matrices(models, sc.Rows([[1.0]], [1], when=[0]))


def test_the_area_counts_ties_half() -> None:
    score = np.array([0.0, 1.0, 1.0, 2.0])
    positive = np.array([False, True, False, True])
    assert evaluate.area(score, positive, np.ones(4)) == pytest.approx(0.875)


MADE = case(3)
MODEL = trained(MADE).mean()
REGRESSED = trained(case(3, loss="squared")).mean()
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "none": (lambda: sc.matrices([], MADE.rows), "no models"),
    "unlike": (lambda: sc.matrices([MODEL, REGRESSED], MADE.rows), "must have the same loss"),
    "regression": (
        lambda: sc.matrix(MODEL, MADE.rows, metric=sc.metrics.squared_error),
        "squared_error has no meaning for loss logistic: use accuracy",
    ),
    "classification": (
        lambda: sc.matrix(REGRESSED, MADE.rows, metric=sc.metrics.auc),
        "auc has no meaning for loss squared: use absolute_error",
    ),
    "columns": (lambda: sc.matrix(MODEL, sc.Rows(np.ones((1, 9)), [1.0], block=[0])), "rows have 9 columns"),
    "labels": (lambda: sc.matrix(MODEL, sc.Rows(MADE.problem.X, block=MADE.problem.block)), "no labels"),
    "level": (lambda: sc.metrics.pinball(1.0), "level=1.0"),
    "pairs": (lambda: sc.paired_difference([1.0, 2.0], [1.0]), "give one for each repetition"),
    "one pair": (lambda: sc.paired_difference([1.0], [1.0]), "at least two"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_measured_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_what_is_not_a_model_is_refused() -> None:
    with pytest.raises(TypeError, match="such as run"):
        sc.matrices([np.ones(3)], MADE.rows)  # type: ignore[list-item]
    for loss, measure in (("softmax", sc.metrics.auc), ("hinge", sc.metrics.log_loss)):
        with pytest.raises(ValueError, match=r"auc needs two classes|needs probabilities"):
            sc.matrix(trained(case(3, loss=loss)), case(3, loss=loss).rows, metric=measure)


@pytest.mark.parametrize("count", [2, 3, 5, 10, 15, 1000])
def test_a_difference_is_significant_beyond_students_t(count: int) -> None:
    """At 95 %, and never below two standard errors."""
    needed = max(float(scipy.stats.t.ppf(0.975, min(count, 15) - 1)), 2.0)
    for sign in (-1.0, 1.0):
        assert sc.Difference(sign * 1.001 * needed, 1.0, count).is_significant
        assert not sc.Difference(sign * 0.999 * needed, 1.0, count).is_significant
    assert not sc.Difference(0.0, 0.0, count).is_significant


def test_paired_differences_cancel_what_repetitions_share() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(size=200)
    one, other = luck + 0.3 + 0.01 * rng.normal(size=200), luck
    found = sc.paired_difference(one, other)
    assert found.mean == pytest.approx(0.3, abs=0.005)
    assert found.error == pytest.approx(0.01 / np.sqrt(200), rel=0.2)
    assert str(sc.paired_difference([2.0, 4.0], [1.0, 1.0])) == "+2.0000 +- 1.0000 (2 repetitions)"


def test_log_loss_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    rows = sc.Rows(rng.normal(size=(500, 4)), rng.integers(0, 2, 500), block=[0] * 500)
    model = train.consensus(rows, 1).mean()
    found = sc.matrix(model, rows, metric=sc.metrics.log_loss).values[0, 0]
    assert found == pytest.approx(log_loss(rows.labels, model.predict_proba(rows)), abs=1e-6)


# ------------------------------------------------------------------- progressive losses


@pytest.mark.filterwarnings("ignore:.*never visited")
@given(seed=seeds, method=st.sampled_from([train.pluralistic, train.separate, train.hedged]))
@settings(max_examples=20, deadline=None)
def test_progressive_losses_by_visit_add_up_to_those_by_block(seed: int, method: Any) -> None:
    made = case(seed, radius=0.2)
    run = method(made.rows, made.blocks, **made.settings)
    found = run.progressive_visits()
    bounds = sc.visits(made.problem.cycle, made.problem.block)
    assert np.array_equal(found.cycle, bounds.cycle)
    assert np.array_equal(found.block, bounds.block)
    assert np.allclose(found.rows, np.diff(bounds.start))
    for block in range(made.blocks):
        own = found.block == block
        if own.any():
            mean = np.average(found.loss[own], weights=found.rows[own])
            assert mean == pytest.approx(run.progressive()[block])


# -------------------------------------------------------------------------- certificates


def bounded_stream(seed: int, n: int = 600) -> tuple[sc.Rows, Callable[[Array], float]]:
    """Rows of norm 1 with absolute loss in [0, 2], and the true risk by block of some weights."""
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(n // 20) % 3, 20)
    X = np.eye(3)[rng.integers(0, 3, n)]
    chance = np.array([0.2, 0.5, 0.9])[block]
    y = np.where(rng.random(n) < chance, 1.0, -1.0)

    def risk(weights: Array) -> float:
        w = weights[:, 0, :3]
        p = np.array([0.2, 0.5, 0.9])[:, None]
        return float((p * np.abs(w - 1) + (1 - p) * np.abs(w + 1)).mean(axis=1).mean())

    return sc.Rows(X, y, block=block, intercept=False, dtype=np.float64), risk


SETTINGS: dict[str, Any] = {"loss": sc.loss.absolute, "radius": 1.0, "batch_size": 1, "step_size": 0.05}


@pytest.mark.parametrize("method", [train.pluralistic, train.separate, train.hedged])
@pytest.mark.parametrize("any_time", [False, True])
def test_a_certificate_holds_as_often_as_it_says(method: Any, any_time: bool) -> None:
    failed = 0
    for seed in range(60):
        rows, risk = bounded_stream(seed)
        run = method(rows, 3, **SETTINGS)
        found = sc.certificate(run, span=2.0, delta=0.2, any_time=any_time)
        failed += risk(run.mean().weights) > found.bound
        assert found.mean == pytest.approx(run.progressive_loss())
    assert failed <= 60 * 0.2


def test_the_margin_is_hoeffdings_with_all_its_conditions() -> None:
    rows, _ = bounded_stream(0)
    run = train.pluralistic(rows, 3, **SETTINGS)
    found = sc.certificate(run, span=2.0, delta=0.05, candidates=4)
    assert found.bound - found.mean == pytest.approx(2 * np.sqrt(np.log(4 / 0.05) / (2 * 600)))
    assert np.allclose(found.block_bound - found.block_mean, 2 * np.sqrt(np.log(12 / 0.05) / 400))
    assert np.allclose(found.block_mean, run.progressive())
    printed = str(found)
    for part in (
        "lies in [0, 2] (iterates were projected)",
        "does not drift",
        "fixed beforehand",
        "4 candidates",
    ):
        assert part in printed
    anytime = sc.certificate(
        train.pluralistic(rows, 3, loss=sc.loss.absolute, step_size=0.01), span=3.0, any_time=True
    )
    assert "this is your claim" in str(anytime)
    assert "after any step" in str(anytime)


@given(seed=seeds, batch_size=st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_the_tally_of_a_run_is_that_of_its_steps(seed: int, batch_size: int) -> None:
    from tests.method import oracle

    for rule, kind in (("sgd", "single"), ("adagrad", "single"), ("sgd", "residual")):
        made = case(seed, batch_size=batch_size, rule=rule, kind=kind)
        steps, _ = oracle.run(made.problem)
        tally = trained(made).log.tally()
        for block in range(made.blocks):
            own = [float(np.mean(step.losses)) for step in steps if step.block == block]
            before = [np.mean(own[:t]) if t else 0.0 for t in range(len(own))]
            assert tally.steps[block] == len(own)
            assert tally.total[block] == pytest.approx(sum(own))
            assert tally.most[block] == pytest.approx(max(own, default=0.0))
            assert tally.spread[block] == pytest.approx(
                sum((x - c) ** 2 for x, c in zip(own, before, strict=True))
            )


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.5, 0.1, 0.01])
def test_the_confidence_sequence_holds_at_all_times_at_once(chance: float) -> None:
    """Bernoulli losses, looked at after every one of 20,000 steps; the means also drift a little."""
    rng = np.random.default_rng(0)
    T, delta, failed, repeats = 20_000, 0.1, 0, 400
    p = chance * (1 + 0.5 * np.sin(np.arange(T) / 500))
    t = np.arange(1, T + 1)
    truth = np.cumsum(p) / t
    for _ in range(repeats):
        x = (rng.random(T) < p).astype(float)
        mean = np.cumsum(x) / t
        before = np.r_[0.0, mean[:-1]]
        spread = np.cumsum((x - before) ** 2)
        margin = stitched(t, spread, delta)
        failed += bool((truth > mean + margin).any())
    assert failed <= repeats * delta
    # It is not vacuous either: within three times the best fixed-time bound at the end.
    assert margin[-1] <= 3 * np.sqrt(2 * p.mean() * np.log(1 / delta) / T) + 20 / T


def stitched(t: Array, spread: Array, delta: float) -> Array:
    return np.array(
        [
            certificate._stitched_boundary(float(n), float(v), 1.0, delta)
            for n, v in zip(t, spread, strict=True)
        ]
    )


def test_the_stitched_boundary_is_the_published_formula() -> None:
    for v, delta in ((1.0, 0.05), (1e4, 0.01)):
        level = 1.4 * np.log(np.log2(2 * v)) + np.log(certificate.ZETA / delta)
        k1, k2 = (2**0.25 + 2**-0.25) / np.sqrt(2), (np.sqrt(2) + 1) / 2
        expected = (np.sqrt(k1**2 * v * level + k2**2 * level**2) + k2 * level) / 500
        assert certificate._stitched_boundary(500, v, 1.0, delta) == pytest.approx(expected)
        # Losses in other units are bounded in those units.
        assert certificate._stitched_boundary(500, 49 * v, 7.0, delta) == pytest.approx(7 * expected)


def test_the_any_time_margin_of_a_block_knows_its_own_spread() -> None:
    found, tally = sc.certificate(RUN, span=2.0, any_time=True), RUN.log.tally()
    for block in range(3):
        extra = certificate._stitched_boundary(
            float(tally.steps[block]), float(tally.spread[block]), 2.0, 0.05 / 3
        )
        assert found.block_bound[block] - found.block_mean[block] == pytest.approx(extra)


def test_the_stitched_boundary_spends_its_error_as_zeta_says() -> None:
    assert scipy.special.zeta(certificate.POWER) == pytest.approx(certificate.ZETA, rel=1e-12)


WEIGHED = sc.Rows([[1.0], [2.0]], [0, 1], block=[0, 1], weight=[1.0, 2.0])
RUN = train.pluralistic(bounded_stream(0)[0], 3, **SETTINGS)
NO_CERTIFICATE: dict[str, tuple[Callable[[], object], str]] = {
    "span": (lambda: sc.certificate(RUN, span=0.0), "span=0.0"),
    "beyond": (lambda: sc.certificate(RUN, span=0.5), r"a step had a loss of .*, beyond span=0.5"),
    "delta": (lambda: sc.certificate(RUN, span=2.0, delta=1.0), "delta=1.0"),
    "candidates": (lambda: sc.certificate(RUN, span=2.0, candidates=0), "candidates=0"),
    "weights": (
        lambda: sc.certificate(train.pluralistic(WEIGHED, 2, batch_size=1), span=9.0),
        "rows with weights have no certificate",
    ),
    "even weights": (
        lambda: sc.certificate(
            train.pluralistic(sc.Rows(np.ones((2, 1)), [0, 1], block=[0, 0], weight=[0.2, 1.8]), 1), span=9.0
        ),
        "rows with weights have no certificate",
    ),
    "view": (lambda: sc.certificate(RUN.coarser(1, groups=[0, 0, 0]), span=2.0), "its own blocks"),
    "consensus": (
        lambda: sc.certificate(train.consensus(bounded_stream(0)[0], 3, **SETTINGS), span=2.0),
        "its own blocks",
    ),
}


@pytest.mark.parametrize(("call", "sentence"), NO_CERTIFICATE.values(), ids=NO_CERTIFICATE)
def test_what_cannot_be_certified_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("outputs", [1, 3])
def test_any_weights_are_measured_on_every_block(outputs: int) -> None:
    """`by_block` is a matrix whose models need not be one for each block."""
    rng = np.random.default_rng(outputs)
    loss = sc.loss.logistic if outputs == 1 else sc.loss.softmax(3)
    classes = tuple(range(max(outputs, 2)))
    rows = sc.Rows(
        rng.normal(size=(300, 4)), rng.integers(0, len(classes), 300), block=rng.integers(0, 3, 300)
    )
    weights = rng.normal(size=(90, outputs, 5)).astype(np.float32)
    for how in (sc.metrics.accuracy, sc.metrics.log_loss):
        found = by_block(weights, rows, 3, loss=loss, classes=classes, metric=how)
        models = [Pluralistic(weights[k : k + 3], sc.Numbered(3), loss, classes) for k in range(0, 90, 3)]
        expected = np.concatenate([each.values for each in sc.matrices(models, rows, metric=how)])
        assert np.allclose(found, expected, atol=1e-12)
    with pytest.raises(ValueError, match="for auc use matrices"):
        by_block(weights[:, :1], rows, 3, loss=sc.loss.logistic, classes=(0, 1), metric=sc.metrics.auc)
