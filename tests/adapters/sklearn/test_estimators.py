"""The estimators by themselves: scikit-learn's own checks, and the laws that tie them to the method."""

import copy
import pickle
import warnings
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_class_weight_classifiers, parametrize_with_checks

import semicyclic as sc
from semicyclic import SemiCyclicClassifier, SemiCyclicRegressor
from semicyclic.datasets import flights

START = 1_700_000_000
METHODS = ["pluralistic", "separate", "residual", "hedged", "consensus"]
STEPS = "SGD takes a step for each row: a row that comes twice is two steps, a weight of two one longer step"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": STEPS,
    "check_sample_weight_equivalence_on_sparse_data": STEPS,
}


def stream(n: int = 600, columns: int = 4, seed: int = 0, classes: int = 2) -> tuple[Any, Any, Any]:
    """Rows ten minutes apart whose labels turn around at noon."""
    rng = np.random.default_rng(seed)
    when = START + 600.0 * np.arange(n)
    X = np.round(rng.normal(size=(n, columns)), 3)
    side = np.where((when // 3600) % 24 < 12, 1.0, -1.0)
    y = (np.digitize(side * X[:, 0], [0.0] if classes == 2 else [-0.5, 0.5])).astype(int)
    return X, y, when


@pytest.mark.filterwarnings("ignore:the rows have no times", "ignore:.*has values around")
@parametrize_with_checks(
    [SemiCyclicClassifier(), SemiCyclicRegressor()], expected_failed_checks=lambda _: EXPECTED
)
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    """All of them; the one for arrays of other libraries skips itself, as no such support is claimed."""
    check(estimator)


@pytest.mark.filterwarnings("ignore:the rows have no times", "ignore:.*has values around")
def test_of_the_other_methods_some_passes_are_needed_for_few_rows() -> None:
    """One pass over 50 rows is too short for weights of 1000 and .0001."""
    estimator = SemiCyclicClassifier(method="hedged", passes=50)
    check_class_weight_classifiers("SemiCyclicClassifier", estimator)


# ------------------------------------------------------------------------------ equal to the method


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_an_estimator_is_the_method_on_the_same_rows(method: str, classes: int) -> None:
    X, y, when = stream(classes=classes)
    weight = 0.5 + np.random.default_rng(1).random(len(y))
    schedule, l2 = sc.Schedule.daily(6), 0.0 if method == "residual" else 0.01
    estimator = SemiCyclicClassifier(
        time_column=4, method=method, step_size=0.3, batch_size=7, l2=l2, shuffle_within_blocks=False
    ).fit(np.c_[X, when], y, weight)
    loss = sc.loss.logistic if classes == 2 else sc.loss.softmax(3)
    rows = sc.Rows(X, y, when=when, weight=weight, dtype=np.float64)
    run = getattr(sc.train, method)(rows, schedule, loss=loss, step_size=0.3, batch_size=7, l2=l2)
    model = run.mean()
    np.testing.assert_allclose(estimator.coef_, model.weights[:, :, :-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(estimator.intercept_, model.weights[:, :, -1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(estimator.progressive_loss_, run.progressive(), atol=1e-12)
    chance = estimator.predict_proba(np.c_[X, when])
    np.testing.assert_allclose(chance, model.predict_proba(rows), atol=1e-12)
    assert (estimator.predict(np.c_[X, when]) == model.predict(rows)).all()
    np.testing.assert_allclose(estimator.decision_function(np.c_[X, when]), model.score(rows), atol=1e-12)
    np.testing.assert_allclose(estimator.matrix_.values, sc.matrix(model, rows).values, atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_units_of_columns_do_not_matter(method: str, form: Any) -> None:
    """A power of two changes no bit of a probability, and a million the loss by less than 1e-5."""
    X, y, when = stream(1440)
    # The batch model of "auto" takes columns of a sparse matrix as they are, unless they are large or small.
    passes = 1 if form is not np.asarray else "auto"
    chances = [
        SemiCyclicClassifier(method=method, passes=passes, random_state=0)
        .fit(form(X * [factor, 1, 1, 1]), y, when=when)
        .predict_proba(form(X * [factor, 1, 1, 1]), when=when)
        for factor in (1.0, 2.0**20, 1e6)
    ]
    np.testing.assert_array_equal(chances[0], chances[1])
    assert log_loss(y, chances[2]) == pytest.approx(log_loss(y, chances[0]), abs=1e-5)


@pytest.mark.parametrize("loss", ["squared", "absolute", "quantile(0.9)"])
def test_a_regressor_is_the_method_on_the_same_rows(loss: str) -> None:
    X, _, when = stream()
    y = X[:, 0] - 0.5 * X[:, 1] + 0.25
    how: dict[str, Any] = {"method": "hedged", "shuffle_within_blocks": False}
    estimator = SemiCyclicRegressor(loss=loss, fit_intercept=False, **how)
    estimator.fit(X, y, when=when)
    rows = sc.Rows(X, y, when=when, dtype=np.float64, intercept=False)
    chosen = {"squared": sc.loss.squared, "absolute": sc.loss.absolute}.get(loss, sc.loss.quantile(0.9))
    step = sc.step.normalized()
    model = sc.train.hedged(rows, sc.Schedule.daily(6), loss=chosen, step_size=step, batch_size=4).mean()
    np.testing.assert_allclose(estimator.predict(X, when=when), model.predict(rows), rtol=0, atol=1e-12)
    assert not estimator.intercept_.any()


@pytest.mark.parametrize(("average", "read"), [("mean", "mean"), ("last", "last"), ("tail", None), (2, None)])
def test_read_outs_are_those_of_the_run(average: Any, read: str | None) -> None:
    X, y, when = stream(1440)
    estimator = SemiCyclicClassifier(average=average, shuffle_within_blocks=False, method="pluralistic")
    estimator.fit(X, y, when=when)
    rows = sc.Rows(X, y, when=when, dtype=np.float64)
    step = sc.step.normalized()
    run = sc.train.pluralistic(rows, sc.Schedule.daily(6), step_size=step, batch_size=4)
    days = len(np.unique(rows.place(sc.Schedule.daily(6)).cycle))
    model = getattr(run, read)() if read else run.tail(days // 2 if average == "tail" else 2)
    np.testing.assert_allclose(estimator.coef_, model.weights[:, :, :-1], rtol=0, atol=1e-12)


def test_passes_are_the_method_on_rows_that_come_again() -> None:
    X, y, when = stream(300)
    how: dict[str, Any] = {"method": "hedged", "passes": 3, "shuffle_within_blocks": False}
    estimator = SemiCyclicClassifier(average=2, **how).fit(X, y, when=when)
    days = 864_000.0
    again = np.concatenate([when, when + days, when + 2 * days])
    rows = sc.Rows(np.tile(X, (3, 1)), np.tile(y, 3), when=again, dtype=np.float64)
    step = sc.step.normalized()
    model = sc.train.hedged(rows, sc.Schedule.daily(6), step_size=step, batch_size=4).tail(2)
    np.testing.assert_allclose(estimator.coef_, model.weights[:, :, :-1], rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*have no rows")
@pytest.mark.parametrize("where", ["when", "blocks"])
@pytest.mark.parametrize("method", [*METHODS, "auto"])
@given(cuts=st.lists(st.integers(1, 199), max_size=6), weighted=st.booleans())
@settings(max_examples=8, deadline=None)
def test_partial_fit_in_any_chunks_is_one_fit(
    method: str, where: str, cuts: list[int], weighted: bool
) -> None:
    """And the estimator answers as well after every chunk as a fit of the rows until then."""
    X, y, when = stream(200, classes=3)
    weight = np.linspace(0.5, 2.0, 200) if weighted else None
    place = when if where == "when" else np.repeat([0, 1, 2, 1, 2, 0, 2], 30)[:200]
    plain = SemiCyclicClassifier(method=method, passes=1, shuffle_within_blocks=False, batch_size=8)
    plain.set_params(schedule="daily:3" if where == "when" else 3)
    whole = copy.deepcopy(plain).fit(X, y, weight, **{where: place})
    bounds = [0, *sorted(set(cuts)), 200]
    for low, high in pairwise(bounds):
        own = None if weight is None else weight[low:high]
        plain.partial_fit(X[low:high], y[low:high], [0, 1, 2], own, **{where: place[low:high]})
        if high == bounds[1] and len(np.unique(y[:high])) == 3:
            early = copy.deepcopy(plain).fit(X[:high], y[:high], None if weight is None else weight[:high],
                                             **{where: place[:high]})  # fmt: skip
            np.testing.assert_allclose(plain.coef_, early.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(plain.coef_, whole.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(plain.intercept_, whole.intercept_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(plain.progressive_loss_, whole.progressive_loss_, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------- shuffling


def test_shuffling_stays_within_blocks() -> None:
    """Each block still learns from its own rows, as often, in visits of the same length."""
    X, y, when = stream(1000)
    kwargs: dict[str, Any] = {
        "time_column": 4,
        "schedule": "daily:4",
        "method": "separate",
        "average": "last",
    }
    table = np.c_[X, when]
    one = SemiCyclicClassifier(random_state=0, **kwargs).fit(table, y)
    same = SemiCyclicClassifier(random_state=0, **kwargs).fit(table, y)
    other = SemiCyclicClassifier(random_state=1, **kwargs).fit(table, y)
    plain = SemiCyclicClassifier(shuffle_within_blocks=False, **kwargs).fit(table, y)
    assert (one.coef_ == same.coef_).all()
    assert (one.coef_ != other.coef_).any(axis=(1, 2)).all()
    assert (one.coef_ != plain.coef_).any(axis=(1, 2)).all()
    # Labels of one block turned around move that block's model and no other.
    turned = np.where(np.isin(sc.Schedule.daily(4).locate(when).block, [2]), 1 - y, y)
    moved = SemiCyclicClassifier(random_state=0, **kwargs).fit(table, turned)
    np.testing.assert_allclose(moved.coef_[2], -one.coef_[2], atol=1e-12)
    assert (moved.coef_[[0, 1, 3]] == one.coef_[[0, 1, 3]]).all()
    learner: Any = one._fitted.learner
    assert (np.diff(learner.run.log.table().cycle) >= 0).all()


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_may_be_given_in_any_order(shuffle: bool) -> None:
    X, y, when = stream(500)
    mixed = np.random.default_rng(3).permutation(500)
    estimator = SemiCyclicClassifier(shuffle_within_blocks=shuffle, random_state=0)
    one = copy.deepcopy(estimator).fit(X, y, when=when)
    two = copy.deepcopy(estimator).fit(X[mixed], y[mixed], when=when[mixed])
    assert (one.coef_ == two.coef_).all()


# ------------------------------------------------------------------------------------- what comes in


def forms(X: Any, when: Any) -> dict[str, tuple[Any, str | int]]:
    """The same table in every form, and what its time column is called there."""
    zoned = pd.to_datetime(when, unit="s", utc=True)
    frame = pd.DataFrame(X, columns=list("abcd"))
    naive = zoned.tz_localize(None)
    objects = np.c_[X, np.zeros(len(X))].astype(object)
    objects[:, 4] = [datetime(1970, 1, 1) + timedelta(seconds=each) for each in when]
    polars = pl.DataFrame(X, schema=list("abcd"))
    return {
        "array": (np.c_[X, when], 4),
        "array, from behind": (np.c_[X, when], -1),
        "array, in front": (np.c_[when, X], 0),
        "list": (np.c_[X, when].tolist(), 4),
        "csr": (scipy.sparse.csr_matrix(np.c_[X, when]), 4),
        "csr array": (scipy.sparse.csr_array(np.c_[X[:, :2], when, X[:, 2:]]), 2),
        "csc": (scipy.sparse.csc_matrix(np.c_[X, when]), 4),
        "objects": (objects, 4),
        "pandas, zoned": (frame.assign(when=zoned.tz_convert("Asia/Tokyo")), "when"),
        "pandas, naive": (frame.assign(when=naive), "when"),
        "pandas, milliseconds": (frame.assign(when=naive.astype("datetime64[ms]")), "when"),
        "pandas, int64": (frame.assign(when=when.astype(np.int64)), "when"),
        "pandas, Int64": (frame.assign(when=pd.array(when.astype(np.int64), dtype="Int64")), "when"),
        "pandas, position": (frame.assign(when=naive), 4),
        "polars, naive": (polars.with_columns(when=pl.Series(naive.to_numpy())), "when"),
        "polars, zoned": (
            polars.with_columns(when=pl.Series(naive.to_numpy()).dt.replace_time_zone("UTC")),
            "when",
        ),
        "polars, float": (polars.with_columns(when=pl.Series(when)), "when"),
    }


@pytest.mark.parametrize("form", list(forms(np.zeros((2, 4)), np.array([0.0, 1.0]))))
def test_all_forms_of_a_table_are_the_same(form: str) -> None:
    X, y, when = stream()
    X[np.random.default_rng(0).random(X.shape) < 0.3] = 0.0
    plain = SemiCyclicClassifier(random_state=0).fit(X, y, when=when)
    table, column = forms(X, when)[form]
    estimator = SemiCyclicClassifier(time_column=column, zone="UTC", random_state=0).fit(table, y)
    assert estimator.n_features_in_ == 5
    if hasattr(table, "columns"):
        # A frame is encoded as by `train`; however its times are given, it is the same.
        frame = pd.DataFrame(X, columns=list("abcd"))
        plain = SemiCyclicClassifier(zone="UTC", random_state=0).fit(frame, y, when=when)
        assert list(estimator.feature_names_in_) == [*"abcd", "when"]
        assert {*"abcd", "a?", "d~3"} <= set(estimator.get_feature_names_out())
        features: Any = frame
    else:
        assert len(estimator.get_feature_names_out()) == 4
        features = X
    np.testing.assert_allclose(estimator.coef_, plain.coef_, atol=1e-12)
    probability = plain.predict_proba(features, when=when)
    np.testing.assert_allclose(estimator.predict_proba(table), probability, atol=1e-12)
    assert estimator.score(table, y) == plain.score(features, y, when=when)


def test_a_schedule_is_in_its_zone() -> None:
    """Naive times are read in the zone given, or else in the schedule's."""
    X, y, when = stream()
    table = pd.DataFrame(X).assign(when=pd.to_datetime(when, unit="s")).rename(columns=str)
    tokyo = table.assign(when=table["when"].dt.tz_localize("Asia/Tokyo"))
    one = SemiCyclicClassifier(time_column="when", schedule="daily:6", zone="Asia/Tokyo", random_state=0)
    two = SemiCyclicClassifier(
        time_column="when", schedule=sc.Schedule.daily(6, zone="Asia/Tokyo"), random_state=0
    )
    three = SemiCyclicClassifier(time_column="when", random_state=0, zone="UTC")
    found = [one.fit(table, y).coef_, two.fit(table, y).coef_, one.fit(tokyo, y).coef_]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert (found[0] != three.fit(tokyo, y).coef_).any()
    assert one.schedule_ == two.schedule_


@pytest.mark.parametrize("kind", ["pandas", "polars", "objects"])
def test_times_that_name_a_zone_are_cut_by_its_clock(kind: str) -> None:
    """Unless a zone is given; and times without one are then read by the same clock."""
    X, y, when = stream()
    tokyo = pd.Series(pd.to_datetime(when, unit="s", utc=True).tz_convert("Asia/Tokyo"))
    values: Any = tokyo
    if kind == "polars":
        values = pl.Series(tokyo.dt.tz_localize(None).to_numpy()).dt.replace_time_zone("Asia/Tokyo")
    elif kind == "objects":
        values = np.array(
            [each.to_pydatetime().replace(tzinfo=ZoneInfo("Asia/Tokyo")) for each in tokyo], object
        )
    told = SemiCyclicClassifier(random_state=0, zone="Asia/Tokyo").fit(X, y, when=tokyo)
    named = SemiCyclicClassifier(random_state=0).fit(X, y, when=values)
    assert named.schedule_ == told.schedule_ == sc.Schedule.daily(6, zone="Asia/Tokyo")
    assert (named.coef_ == told.coef_).all()
    assert (named.predict(X, when=tokyo.dt.tz_localize(None)) == told.predict(X, when=values)).all()
    given = SemiCyclicClassifier(random_state=0, schedule=sc.Schedule.daily(6)).fit(X, y, when=values)
    assert given.schedule_ == sc.Schedule.daily(6, zone="UTC")
    offset = SemiCyclicClassifier(random_state=0).fit(X, y, when=tokyo.dt.tz_convert("+09:30"))
    assert offset.schedule_ == sc.Schedule.daily(6, zone="UTC")


def test_single_precision_stays_single() -> None:
    X, y, when = stream()
    estimator = SemiCyclicClassifier(random_state=0).fit(X.astype(np.float32), y, when=when)
    assert estimator.coef_.dtype == np.float32
    assert estimator.predict_proba(X.astype(np.float32), when=when).dtype == np.float32


@pytest.mark.parametrize("names", [["day", "night"], [0, 1], [0.0, 1.0], [False, True]])
def test_blocks_are_numbers_or_names(names: list[Any]) -> None:
    X, y, when = stream()
    half = ((when // 3600) % 24 >= 12).astype(int)
    rest = pd.DataFrame(X).rename(columns=str)
    plain = SemiCyclicClassifier(schedule=2, random_state=0).fit(rest, y, blocks=half)
    table = rest.assign(block=np.array(names)[half])
    estimator = SemiCyclicClassifier(block_column="block", random_state=0).fit(table, y)
    assert (estimator.coef_ == plain.coef_).all()
    assert estimator.score(table, y) == plain.score(rest, y, blocks=half) > 0.9
    assert estimator.predict(table.drop(columns="block").assign(block=names[1])).shape == y.shape
    assert (plain.predict(rest, blocks=1) == plain.predict(rest, blocks=np.ones(len(X), int))).all()
    assert list(estimator.score_by_block(table, y)) == (names if isinstance(names[0], str) else [0, 1])


def test_weights_of_classes_are_weights_of_rows() -> None:
    X, y, when = stream()
    y = np.where(X[:, 1] > 1.0, 1, y * (X[:, 2] > 0.5))
    by_class = SemiCyclicClassifier(class_weight={0: 0.5, 1: 3.0}, random_state=0).fit(X, y, when=when)
    by_row = SemiCyclicClassifier(random_state=0).fit(X, y, np.where(y == 1, 3.0, 0.5), when=when)
    plain = SemiCyclicClassifier(random_state=0).fit(X, y, when=when)
    balanced = SemiCyclicClassifier(class_weight="balanced", random_state=0).fit(X, y, when=when)
    share = len(y) / (2 * np.bincount(y))
    by_share = SemiCyclicClassifier(random_state=0).fit(X, y, share[y], when=when)
    assert (by_class.coef_ == by_row.coef_).all()
    np.testing.assert_allclose(balanced.coef_, by_share.coef_, atol=1e-12)
    assert by_class.predict(X, when=when).mean() > plain.predict(X, when=when).mean()


# ------------------------------------------------------------------------------------ what comes out


def test_attributes_belong_together() -> None:
    X, y, when = stream(classes=3)
    words = np.array(["low", "middle", "high"])[y]
    estimator = SemiCyclicClassifier(schedule="daily:2", time_column=4, method="pluralistic", random_state=0)
    table = np.c_[X, when]
    estimator.fit(table, words)
    assert list(estimator.classes_) == ["high", "low", "middle"]
    assert estimator.coef_.shape == (2, 3, 4)
    assert estimator.intercept_.shape == (2, 3)
    assert list(estimator.blocks_) == ["00:00-12:00", "12:00-24:00"]
    chance = estimator.predict_proba(table)
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(chance), estimator.predict_log_proba(table))
    assert (estimator.classes_[chance.argmax(axis=1)] == estimator.predict(table)).all()
    rows = sc.Rows(X, when=when, dtype=np.float64)
    half = sc.Schedule.daily(2).locate(when).block
    for block, model in enumerate(estimator.models_):
        own = half == block
        alone = model.predict_proba(sc.Rows(X[own], block=np.zeros(own.sum(), int), dtype=np.float64))
        np.testing.assert_allclose(alone, chance[own], atol=1e-12)
    model = estimator.to_model()
    assert (model.predict(rows) == estimator.predict(table)).all()
    assert model.provenance["columns"] == ["x0", "x1", "x2", "x3"]
    by_block = estimator.score_by_block(table, words)
    matrix = estimator.score_matrix(table, words)
    np.testing.assert_allclose(list(by_block.values()), matrix.diagonal)
    assert matrix.labels == tuple(by_block)
    assert estimator.score(table, words) == pytest.approx(matrix.pluralistic_by_share)


def test_a_model_can_be_saved_and_served(tmp_path: Any) -> None:
    X, y, when = stream()
    estimator = SemiCyclicClassifier(random_state=0).fit(X, y, when=when)
    sc.save(estimator.to_model(), tmp_path / "m.safetensors")
    served = sc.load(tmp_path / "m.safetensors")
    rows = sc.Rows(X, when=when, dtype=np.float64)
    np.testing.assert_allclose(served.predict_proba(rows), estimator.predict_proba(X, when=when), atol=1e-6)
    assert (served.predict(rows) == estimator.predict(X, when=when)).mean() > 0.99


@pytest.mark.parametrize("average", ["mean", "last", "tail"])
@pytest.mark.parametrize("method", METHODS)
def test_copies_answer_and_go_on_like_the_original(method: str, average: str) -> None:
    X, y, when = stream(400)
    estimator = SemiCyclicClassifier(method=method, average=average, schedule="daily:3")
    estimator.partial_fit(X[:333], y[:333], [0, 1], when=when[:333])
    for twin in (copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
        np.testing.assert_allclose(twin.coef_, estimator.coef_, atol=1e-12)
        twin.partial_fit(X[333:], y[333:], when=when[333:])
        more = copy.deepcopy(estimator).partial_fit(X[333:], y[333:], when=when[333:])
        np.testing.assert_allclose(twin.coef_, more.coef_, atol=1e-12)
        np.testing.assert_allclose(twin.progressive_loss_, more.progressive_loss_, atol=1e-12)


def test_a_pickle_is_small() -> None:
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((40_000, 1000), density=0.01, format="csr", rng=rng)
    y = rng.integers(0, 2, 40_000)
    estimator = SemiCyclicClassifier(method="hedged").fit(X, y, when=START + 60.0 * np.arange(40_000))
    vectors = 7 * 1001 * 8
    before = estimator.predict_proba(X[:100], when=START + 60.0 * np.arange(100))
    sample = estimator._fitted.sample
    held = sample.values.nbytes + sample.indices.nbytes + 40 * len(sample)
    assert len(pickle.dumps(estimator)) < held + 20 * vectors
    twin = pickle.loads(pickle.dumps(estimator))
    assert (twin.predict_proba(X[:100], when=START + 60.0 * np.arange(100)) == before).all()


def test_a_block_without_rows_answers_by_the_consensus() -> None:
    X, y, when = stream()
    night = (when // 3600) % 24 < 20
    estimator = SemiCyclicClassifier(missing="consensus", random_state=0, batch_size=1)
    with pytest.warns(
        UserWarning, match=r"1 of 6 blocks have no rows \(20:00-24:00\).*Times run from 2023-11-15"
    ):
        estimator.fit(X[night], y[night], when=when[night])
    model = estimator.to_model()
    assert {model.schedule.labels[block][4:] for block in model.fallback} == {
        f"{hour}:00" for hour in range(20, 24)
    }
    assert len(model.fallback) == 4 * 7
    # Such a block has what all blocks share: weights, but none of its own.
    assert np.isfinite(estimator.coef_).all()
    assert np.abs(estimator.coef_[5]).max() > 0
    single = SemiCyclicClassifier(missing="consensus", random_state=0, batch_size=1, method="pluralistic")
    with pytest.warns(UserWarning, match="they predict by what the other blocks share"):
        single.fit(X[night], y[night], when=when[night])
    np.testing.assert_allclose(single.decision_function(X, blocks=5), single.decision_function(X), atol=1e-12)
    assert single.to_model().fallback == (5,)


def test_the_model_of_auto_may_be_finer_than_the_schedule() -> None:
    """Hours and weekdays are told apart; attributes by block are means over its own, weighted by rows."""
    X, y, when = stream()
    estimator = SemiCyclicClassifier(schedule="daily:2", random_state=0).fit(X, y, when=when)
    model = estimator.to_model()
    assert (model.blocks, estimator.coef_.shape[0], len(estimator.blocks_)) == (168, 2, 2)
    rows = sc.Rows(X, when=when, dtype=np.float64)
    assert (model.predict(rows) == estimator.predict(X, when=when)).all()
    fine = model.schedule.place((when * 1_000_000).astype(np.int64)).block  # type: ignore[union-attr]
    for block in range(2):
        inside = fine % 24 // 12 == block
        own = np.bincount(fine[inside], minlength=168) / inside.sum()
        np.testing.assert_allclose(estimator.coef_[block], np.tensordot(own, model.weights, axes=1)[:, :-1])


def test_the_consensus_is_the_mean_of_the_models_by_their_rows() -> None:
    X, y, when = stream()
    estimator = SemiCyclicClassifier(missing="consensus", random_state=0).fit(X, y, when=when)
    block = sc.Schedule.daily(6).locate(when).block
    share = np.bincount(block) / len(block)
    weights = np.tensordot(share, estimator.coef_[:, 0], 1)
    told = X @ weights + share @ estimator.intercept_[:, 0]
    np.testing.assert_allclose(estimator.decision_function(X), told, atol=1e-12)
    # For rows of which the time is missing, and for those only.
    some = when.copy()
    some[::3] = np.nan
    mixed = estimator.decision_function(X, when=some)
    np.testing.assert_allclose(mixed[::3], told[::3], atol=1e-12)
    full = estimator.decision_function(X, when=when)
    np.testing.assert_allclose(mixed[1::3], full[1::3], atol=1e-12)
    # A step a row, and it is the mean of the chain.
    one = SemiCyclicClassifier(
        method="pluralistic", missing="consensus", shuffle_within_blocks=False, batch_size=1
    )
    rows = sc.Rows(X, y, when=when, dtype=np.float64)
    step = sc.step.normalized()
    run = sc.train.pluralistic(rows, sc.Schedule.daily(6), step_size=step, batch_size=1)
    np.testing.assert_allclose(
        one.fit(X, y, when=when).decision_function(X), run.consensus().score(rows), atol=1e-12
    )


# ----------------------------------------------------------------------------------- the default step


def problems() -> dict[str, tuple[Any, Any, Any, int]]:
    """Five of scikit-learn's own data sets: features, labels, blocks, passes (to a thousand rows a block)."""
    rng = np.random.default_rng(0)
    out: dict[str, tuple[Any, Any, Any, int]] = {}
    X, y = datasets.load_digits(return_X_y=True)
    out["digits"] = X, y, np.zeros(len(y), int), 1
    X, y = datasets.load_breast_cancer(return_X_y=True)
    out["breast cancer"] = X, y, np.zeros(len(y), int), 4
    X, y = datasets.make_classification(12_000, 20, n_informative=8, flip_y=0.05, random_state=0)
    block = rng.integers(0, 6, len(y))
    out["classification"] = X, np.where(rng.random(len(y)) < 0.08 * block, 1, y), block, 1
    X, y = datasets.make_moons(8_000, noise=0.25, random_state=0)
    out["moons"] = X, y, rng.integers(0, 4, len(y)), 1
    X, y = datasets.make_blobs(8_000, centers=3, n_features=10, cluster_std=6, random_state=1)
    out["blobs"] = X, y, rng.integers(0, 4, len(y)), 1
    return out


SIX: list[Any] = [sc.step.normalized(rate) for rate in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)]
SIX_CONSTANT: list[Any] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]


@pytest.mark.parametrize("name", ["digits", "breast cancer", "classification", "moons", "blobs"])
def test_the_default_step_is_about_the_best(name: str) -> None:
    """Within 5 % of the log loss of the best of twelve steps, wherever a block has a thousand rows."""
    # A test set of few rows says little: then the mean over five splits.
    splits = 5 if name == "breast cancer" else 1
    losses = np.mean([losses_of_steps(name, split) for split in range(splits)], axis=0)
    assert losses[0] < 1.05 * losses[1:].min()


def losses_of_steps(name: str, split: int) -> list[float]:
    """Log losses of the default step, six normalized and six constant ones."""
    X, y, block, passes = problems()[name]
    X, X_test, y, y_test, block, block_test = train_test_split(X, y, block, test_size=0.3, random_state=split)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    # Ten cycles, each through all blocks.
    cycle = np.empty(len(y), int)
    for each in np.unique(block):
        own = np.flatnonzero(block == each)
        cycle[own] = np.arange(len(own)) * 10 // len(own)
    order = np.lexsort((block, cycle))

    def loss(step: Any) -> float:
        model = SemiCyclicClassifier(method="hedged", step_size=step, passes=passes, random_state=0)
        model.fit(X[order], y[order], blocks=block[order])
        return float(log_loss(y_test, model.predict_proba(X_test, blocks=block_test)))

    return [loss(step) for step in ["normalized", *SIX, *SIX_CONSTANT]]


def test_the_default_step_is_about_the_best_on_flights() -> None:
    """Learnt until September 2013 and judged on the months after it."""
    data = pd.read_parquet(flights.data_path()).dropna().sort_values("when", kind="stable")
    y = data.pop("late").to_numpy(bool)
    words, numbers = ["carrier", "origin", "dest"], list(data.columns[4:])
    cells = scipy.sparse.hstack(
        [OneHotEncoder().fit_transform(data[words]), StandardScaler().fit_transform(data[numbers])], "csr"
    )
    old = int(0.75 * len(y))

    def loss(step: Any) -> float:
        model = SemiCyclicClassifier(method="hedged", step_size=step, random_state=0, zone="America/New_York")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*have no rows")
            model.fit(cells[:old], y[:old], when=data["when"][:old])
        return float(log_loss(y[old:], model.predict_proba(cells[old:], when=data["when"][old:])))

    best = min(loss(step) for step in SIX + SIX_CONSTANT)
    assert loss("normalized") < 1.05 * best


# ------------------------------------------------------------------------------------------- refusals


def refusal(match: str, call: Any, error: Any = ValueError) -> None:
    with pytest.raises(error, match=match):
        call()


def test_what_cannot_be_done_is_refused_with_the_remedy() -> None:
    X, y, when = stream(200)
    table = np.c_[X, when]
    fitted = SemiCyclicClassifier(time_column=4, schedule="daily:2", random_state=0).fit(table, y)
    make = SemiCyclicClassifier
    refusal("X has 4 features.*expecting 5", lambda: fitted.predict(X))
    frame = pd.DataFrame(table, columns=[*"abcd", "t"])
    named = make(time_column="t", schedule="daily:2").fit(frame, y)
    refusal(
        "the rows have no time or block.*missing='consensus'",
        lambda: named.predict(frame[list("abcd")]),
    )
    refusal("no column 't'.*its columns are a, b, d, c", lambda: named.predict(frame[list("abdc")]))
    refusal("verbose_feature_names_out=False", lambda: named.predict(frame.rename(columns={"t": "time__t"})))
    held = frame.assign(t=pd.to_datetime(frame["t"], unit="s"))
    refusal("column 't' has times: set time_column='t'", lambda: make().fit(held, y))
    for more in (held.assign(u=held["t"]), pl.from_pandas(held.assign(u=held["t"]))):
        with pytest.warns(UserWarning, match=r"not used: 'u' \(a time\)"):
            make(time_column="t").fit(more, y)
    refusal("to_model", lambda: sc.save(named, "x"), TypeError)
    refusal("some labels are missing", lambda: make().fit(X, np.array(["a", None] * 100, object), when=when))
    refusal("which scikit-learn calls log_loss", lambda: make(loss="log_loss").fit(X, y, when=when))
    refusal("no column 't'", lambda: named.predict(frame[list("abc")]))
    refusal("should match those that were passed", lambda: named.predict(frame[["b", "a", "c", "d", "t"]]))
    refusal("leave out when=", lambda: fitted.predict(table, when=when))
    refusal("expecting 5 features", lambda: fitted.predict(X[:, :2]))
    refusal("128 s apart.*float64", lambda: make(time_column=4).fit(table.astype(np.float32), y))
    scaled = (table - table.mean(axis=0)) / table.std(axis=0)
    refusal("a time is.*exclude the column from scaling", lambda: make(time_column=4).fit(scaled, y))
    refusal("divided by 1000", lambda: make().fit(X, y, when=when * 1000))
    refusal("not both", lambda: make(time_column=4, block_column=3).fit(table, y))
    refusal("not both", lambda: make().fit(X, y, when=when, blocks=y))
    refusal("no column 'when'", lambda: make(time_column="when").fit(pd.DataFrame(X).rename(columns=str), y))
    refusal("without names", lambda: make(time_column="when").fit(table, y))
    refusal("6 blocks, and the rows have no time", lambda: make(schedule="daily:6").fit(X, y))
    refusal("write 'daily:6'", lambda: make(schedule=6).fit(X, y, when=when))
    refusal("schedule='daily:0'", lambda: make(schedule="daily:0").fit(X, y, when=when))
    for wrong in (when / 60, when / 86_400, when % 86_400 // 3600, np.where(when == when[9], 0.0, when)):
        refusal("a time is .* above 1,000,000,000", lambda wrong=wrong: make().fit(X, y, when=wrong))
    refusal("a time is 5,", lambda: make(random_state=0).fit(X, y, when=when).predict(X[:1], when=[5]))
    refusal("column is 4.0: give its name", lambda: make(time_column=4.0).fit(table, y))  # type: ignore[arg-type]
    refusal("column is a Series", lambda: make(time_column=frame["a"]).fit(table, y))
    refusal("column is True", lambda: make(time_column=True).fit(table, y))
    refusal("zone", lambda: make(zone="Paris").fit(X, y, when=when))
    refusal("names of blocks go with", lambda: make(schedule=["a", "b"]).fit(X, y, when=when))
    refusal("all of them different", lambda: make(schedule=["a", "a"]).fit(X, y, blocks=["a"] * 200))
    refusal("several kinds", lambda: make().fit(X, y, blocks=np.array(["a", 1] * 100, object)))
    refusal("some rows have no block", lambda: make().fit(X, y, blocks=np.array(["a", None] * 100, object)))
    refusal(
        "row 1 has no block",
        lambda: make(schedule=2).fit(X, y, blocks=np.where(np.arange(200) == 1, np.nan, 0)),
    )
    refusal("not a column of values", lambda: make().fit(X, y, when=table))
    refusal("not a column of values", lambda: make().fit(X, y, when=when[0]))
    refusal("several kinds", lambda: make().fit(X, np.array(["a", 1] * 100, object), when=when))
    refusal(
        "a regressor learns numbers",
        lambda: SemiCyclicRegressor().fit(X, np.array(["a", "b"] * 100), when=when),
    )
    refusal(
        "loss='quantile': choose one of 'squared'",
        lambda: SemiCyclicRegressor(loss="quantile").fit(X, y, when=when),
    )
    refusal("schedule=3.5", lambda: make(schedule=3.5).fit(X, y, when=when))
    refusal("choose one of auto, pluralistic", lambda: make(method="best").fit(X, y))
    refusal("average='all'", lambda: make(average="all").fit(X, y))
    refusal("missing='guess'", lambda: make(missing="guess").fit(X, y))
    refusal("step_size='fast'", lambda: make(step_size="fast").fit(X, y, when=when))
    for passes in (0, 2.0, None, True):
        refusal(f"passes={passes}", lambda passes=passes: make(passes=passes).fit(X, y))
    refusal("method=", lambda: make(method=["hedged"]).fit(X, y))  # type: ignore[arg-type]
    refusal("batch_size=0", lambda: make(batch_size=0).fit(X, y, when=when))
    refusal("choose 'logistic' .* or 'hinge'", lambda: make(loss="squared").fit(X, y, when=when))
    refusal("use loss='logistic'", lambda: make(loss="hinge").fit(X, np.arange(200) % 3, when=when))
    refusal("one class", lambda: make().fit(X, np.zeros(200), when=when))
    refusal("choose one of 'squared'", lambda: SemiCyclicRegressor(loss="logistic").fit(X, y, when=when))
    hole = when.copy()
    hole[7] = np.nan
    refusal("row 7 has no time", lambda: make().fit(X, y, when=hole))
    refusal("row 7 has no time", lambda: make().fit(X, y, when=when).predict(X, when=hole))
    refusal("199 values, X has 200 rows", lambda: make().fit(X, y, when=when[1:]))
    refusal("datetimes first", lambda: make().fit(X, y, when=np.array(["2024-01-01"] * 200)))
    refusal("nothing to learn from", lambda: make(time_column=0).fit(when[:, None], y))
    numbered = make(random_state=0).fit(X, y, blocks=np.arange(200) % 3)
    refusal(
        "row 0 is in block 3: the blocks are 0, 1, 2; schedule=m makes", lambda: numbered.predict(X, blocks=3)
    )
    refusal("give blocks=", lambda: numbered.predict(X, when=when))
    refusal("counted from 0", lambda: make().fit(X, y, blocks=np.arange(200) - 1))
    refusal("no attribute 'predict_proba'", lambda: make(loss="hinge").predict_proba, AttributeError)
    refusal("not fitted yet", lambda: make().coef_, NotFittedError)
    refusal("not fitted yet", lambda: make().get_feature_names_out(), NotFittedError)
    refusal("has 2 names, X had 4", lambda: numbered.get_feature_names_out(["a", "b"]))
    refusal("no attribute 'nonsense'", lambda: sc.nonsense, AttributeError)  # type: ignore[attr-defined]


def test_partial_fit_refuses_what_would_not_be_one_stream() -> None:
    X, y, when = stream(200)
    make = SemiCyclicClassifier
    refusal("classes must be passed", lambda: make().partial_fit(X, y, when=when))
    refusal("set schedule=m.*a list of their names", lambda: make().partial_fit(X, y, [0, 1], blocks=y))
    estimator = make().partial_fit(X[50:150], y[50:150], [0, 1], when=when[50:150])
    before = estimator.coef_.copy()
    refusal("goes by time", lambda: estimator.partial_fit(X[:50], y[:50], when=when[:50]))
    refusal("goes by time", lambda: estimator.partial_fit(X[148:], y[148:], when=when[148:]))
    refusal("goes by time", lambda: estimator.partial_fit(X[[199, 10]], y[[199, 10]], when=when[[199, 10]]))
    fitted = make().fit(X, y, when=when)
    refusal("goes by time", lambda: fitted.partial_fit(X[:50], y[:50], when=when[:50]))
    for name, value in {
        "batch_size": 9,
        "method": "separate",
        "schedule": "daily:3",
        "average": "last",
    }.items():
        changed = copy.deepcopy(estimator).set_params(**{name: value})
        refusal(f"{name} was .* when this stream began", lambda: changed.partial_fit(X, y, when=when + 1e6))  # noqa: B023
    refusal("neither time nor block", lambda: estimator.partial_fit(X, y))
    refusal("not those of the first", lambda: estimator.partial_fit(X, y, [0, 1, 2], when=when + 1e6))
    refusal("unknown label 2", lambda: estimator.partial_fit(X, y + 1, when=when + 1e6))
    refusal("give a dictionary", lambda: make(class_weight="balanced").partial_fit(X, y, [0, 1], when=when))
    assert (estimator.coef_ == before).all()


def test_a_call_that_fails_leaves_the_estimator_as_it_was() -> None:
    X, y, when = stream(400)
    estimator = SemiCyclicClassifier(schedule="daily:2", random_state=0).fit(X, y, when=when)
    before = estimator.predict_proba(X, when=when)
    refusal("divided by 1000", lambda: estimator.fit(X[:, :2], y + 5, when=when * 1000))
    assert (estimator.predict_proba(X, when=when) == before).all()
    assert estimator.classes_.tolist() == [0, 1]
    empty = SemiCyclicClassifier()
    refusal("set schedule=m", lambda: empty.partial_fit(X, y, [0, 1], blocks=y))
    assert not hasattr(empty, "classes_")
    assert not hasattr(empty, "n_features_in_")
    # In the midst of learning as well.
    z = X[:, 0]
    steps: dict[str, Any] = {"step_size": 0.05, "batch_size": 1, "schedule": "daily:2", "method": "hedged"}
    whole = SemiCyclicRegressor(**steps).partial_fit(X, z, when=when)
    stream_ = SemiCyclicRegressor(**steps).partial_fit(X[:200], z[:200], when=when[:200])
    bad = X[200:].copy()
    bad[100:] *= 1e100
    refusal("diverged", lambda: stream_.partial_fit(bad, z[200:], when=when[200:]), sc.Diverged)
    stream_.partial_fit(X[200:], z[200:], when=when[200:])
    np.testing.assert_allclose(stream_.coef_, whole.coef_, rtol=0, atol=1e-12)


def test_rows_of_one_time_and_rows_within_a_chunk_keep_their_order() -> None:
    X, y, when = stream(300)
    when = np.floor(when / 7200) * 7200  # twelve rows of the same time
    settings_: dict[str, Any] = {"shuffle_within_blocks": False, "schedule": "daily:2"}
    whole = SemiCyclicClassifier(**settings_).fit(X, y, when=when)
    chunks = SemiCyclicClassifier(**settings_)
    for low in range(0, 300, 30):
        # Within a chunk, times in any order; rows of one time as they are.
        own = low + np.argsort(-when[low : low + 30], kind="stable")
        chunks.partial_fit(X[own], y[own], [0, 1], when=when[own])
    np.testing.assert_allclose(chunks.coef_, whole.coef_, rtol=0, atol=1e-12)
    mixed = np.argsort(pd.Series(when).groupby(when).cumcount(), kind="stable")  # rows of one time far apart
    again = SemiCyclicClassifier(**settings_).fit(X[mixed], y[mixed], when=when[mixed])
    assert (again.coef_ == whole.coef_).all()


def test_many_small_chunks_do_not_pile_up() -> None:
    X, y, when = stream(400)
    how: Any = {"schedule": "daily:2", "shuffle_within_blocks": False, "method": "pluralistic"}
    estimator = SemiCyclicClassifier(**how)
    for row in range(400):
        estimator.partial_fit(X[row : row + 1], y[row : row + 1], [0, 1], when=when[row : row + 1])
    learner: Any = estimator._fitted.learner
    assert len(learner.run.log.pages) < 200
    whole = SemiCyclicClassifier(**how).fit(X, y, when=when)
    np.testing.assert_allclose(estimator.coef_, whole.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(estimator.progressive_loss_, whole.progressive_loss_, rtol=0, atol=1e-12)


def test_what_was_fitted_answers_whatever_is_set_afterwards() -> None:
    X, y, when = stream(300)
    estimator = SemiCyclicClassifier(loss="hinge", random_state=0).fit(X, y, when=when)
    estimator.set_params(loss="logistic")
    refusal("no attribute 'predict_proba'", lambda: estimator.predict_proba, AttributeError)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_withheld_column_is_told_by_the_names_of_the_others() -> None:
    X, y, when = stream()
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.insert(2, "t", pd.to_datetime(when, unit="s"))
    by_name = SemiCyclicClassifier(time_column="t", missing="consensus", random_state=0).fit(frame, y)
    by_place = SemiCyclicClassifier(time_column=2, missing="consensus", random_state=0).fit(frame, y)
    rest = frame[list("abcd")]
    told = by_name.decision_function(frame.assign(t=pd.NaT))
    assert (by_name.decision_function(rest) == told).all()
    assert (by_place.decision_function(rest) == told).all()
    full = by_name.decision_function(frame)
    assert (by_name.decision_function(rest, when=frame["t"]) == full).all()
    for odd in (frame[list("dcba")], frame[["a", "b", "t", "c"]], X, np.c_[X[:, 1:], when]):
        with pytest.raises(ValueError, match=r"X has no column 't'|should match|expecting 5|without names"):
            by_name.decision_function(odd)
        with pytest.raises(ValueError, match=r"should match|expecting 5"):
            by_place.decision_function(odd)


def test_blocks_that_there_are_not_are_refused_even_with_leave() -> None:
    X, y, when = stream()
    half = (when // 43_200 % 2).astype(int)
    estimator = SemiCyclicClassifier(schedule=2, missing="consensus", random_state=0).fit(X, y, blocks=half)
    refusal("in block 7", lambda: estimator.predict(X, blocks=7))
    refusal("in block '1'", lambda: estimator.predict(X, blocks=half.astype(str)))
    some = np.where(np.arange(600) % 5 == 0, np.nan, half)
    mixed = estimator.decision_function(X, blocks=some)
    assert (mixed[::5] == estimator.decision_function(X)[::5]).all()
    assert (mixed[1::5] == estimator.decision_function(X, blocks=half)[1::5]).all()
    objects = np.array([None if np.isnan(each) else int(each) for each in some], object)
    assert (estimator.decision_function(X, blocks=objects) == mixed).all()
    one = SemiCyclicClassifier(schedule="daily:1").fit(X, y, when=when)
    refusal("3 values, X has 600", lambda: one.predict(X, when=when[:3]))
    refusal("not a column of values", lambda: one.predict(X, when="noon"))
    assert (one.predict(X, when=np.full(600, np.nan)) == one.predict(X)).all()


def test_blocks_may_be_named_beforehand() -> None:
    X, y, when = stream()
    named = np.array(["day", "night"])[(when // 43_200 % 2).astype(int)]
    whole = SemiCyclicClassifier(shuffle_within_blocks=False).fit(X, y, blocks=named)
    parts = SemiCyclicClassifier(schedule=["day", "night"])
    for low in range(0, 600, 55):
        parts.partial_fit(X[low : low + 55], y[low : low + 55], [0, 1], blocks=named[low : low + 55])
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=0, atol=1e-12)
    refusal("in block 'noon': the blocks are day, night$", lambda: parts.predict(X, blocks="noon"))


def test_missing_times_are_seen_in_every_form() -> None:
    X, y, when = stream(60)
    estimator = SemiCyclicClassifier(schedule="daily:2", missing="consensus").fit(X, y, when=when)
    hole = when.copy()
    hole[5] = np.nan
    told = estimator.decision_function(X, when=hole)
    stamps = pd.to_datetime(pd.Series(hole), unit="s")
    for values in (
        pl.Series(hole),
        pl.Series([None if np.isnan(each) else each for each in hole]),
        stamps,
        stamps.dt.tz_localize("UTC"),
        stamps.to_numpy(),
        stamps.astype(object).to_numpy(),
        np.array([None if np.isnan(each) else float(each) for each in hole], object),
        np.array([float(each) for each in hole], object),
    ):
        assert (estimator.decision_function(X, when=values) == told).all()


def test_a_sparse_time_may_be_stored_in_pieces() -> None:
    X, y, when = stream(60)
    cells = np.concatenate([np.r_[X[row], when[row] / 2, when[row] / 2] for row in range(60)])
    pieces = scipy.sparse.csr_matrix(
        (cells, np.tile([0, 1, 2, 3, 4, 4], 60), np.arange(0, 361, 6)), shape=(60, 5)
    )
    estimator = SemiCyclicClassifier(time_column=4, schedule="daily:2", random_state=0)
    one = estimator.fit(scipy.sparse.csr_matrix(np.c_[X, when]), y).coef_
    np.testing.assert_allclose(estimator.fit(pieces, y).coef_, one, atol=1e-12)


def test_a_zone_beside_a_schedule_is_that_of_the_times() -> None:
    X, y, when = stream()
    schedule = sc.Schedule.daily(6, zone="UTC")
    tokyo = pd.Series(pd.to_datetime(when, unit="s"))
    one = SemiCyclicClassifier(schedule=schedule, zone="Asia/Tokyo", random_state=0).fit(X, y, when=tokyo)
    two = SemiCyclicClassifier(schedule=schedule, random_state=0).fit(
        X, y, when=tokyo.dt.tz_localize("Asia/Tokyo")
    )
    assert (one.coef_ == two.coef_).all()
    assert (
        one.coef_ != SemiCyclicClassifier(schedule=schedule, random_state=0).fit(X, y, when=tokyo).coef_
    ).any()


def test_a_generator_may_be_given() -> None:
    X, y, when = stream()
    coefs = [
        SemiCyclicClassifier(method="hedged", random_state=np.random.RandomState(seed))
        .fit(X, y, when=when)
        .coef_
        for seed in (0, 0, 1)
    ]
    assert (coefs[0] == coefs[1]).all()
    assert (coefs[0] != coefs[2]).any()


def test_rows_of_no_weight_are_no_rows() -> None:
    X, y, when = stream()
    half = when // 43_200 % 2
    with pytest.warns(UserWarning, match=r"1 of 2 blocks have no rows \(00:00-12:00\)"):
        estimator = SemiCyclicClassifier(schedule="daily:2").fit(X, y, half, when=when)
    weight = np.linspace(0.1, 2, 600)
    estimator = SemiCyclicClassifier(schedule="daily:2", random_state=0).fit(X, y, when=when)
    hits = estimator.predict(X, when=when) == y
    for block, score in enumerate(estimator.score_by_block(X, y, weight, when=when).values()):
        own = half == block
        assert score == pytest.approx(np.average(hits[own], weights=weight[own]))


def test_the_matrix_is_of_rows_from_the_whole_stream() -> None:
    X, y, when = stream(70_000)
    y[:60_000] = 1 - y[:60_000]
    estimator = SemiCyclicClassifier(schedule="daily:2", random_state=0).fit(X, y, when=when)
    sample = estimator._fitted.sample
    assert len(sample) < len(X)
    whole = estimator.score_matrix(X, y, when=when)
    np.testing.assert_allclose(estimator.matrix_.values, whole.values, atol=0.02)
    unknown = np.where(np.arange(70_000) == 3, np.nan, when)
    lenient = SemiCyclicClassifier(schedule="daily:2", missing="consensus").fit(X, y, when=when)
    refusal("block of every row", lambda: lenient.score_matrix(X, y, when=unknown))


def test_a_block_for_every_minute_is_answered_at_once() -> None:
    """Every minute has a model, and none of them needs the rows again."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    when = START + 60.0 * np.arange(20_000)
    estimator = SemiCyclicClassifier(schedule="daily:1440").fit(X, X[:, 0] > 0, when=when)
    assert estimator.score(X, X[:, 0] > 0, when=when) > 0.9
    assert len(estimator.models_) == 1440


def test_what_may_be_a_mistake_is_said() -> None:
    X, y, when = stream(200)
    with pytest.warns(UserWarning, match="the rows have no times or blocks.*time_column=") as heard:
        SemiCyclicClassifier().fit(X, y)
    assert heard[0].filename == __file__  # where the estimator was used
    with pytest.warns(UserWarning, match="the rows have no times or blocks"):
        SemiCyclicClassifier().partial_fit(X, y, [0, 1])
    adaptive: dict[str, Any] = {"method": "hedged", "step_size": "adaptive"}
    with pytest.warns(UserWarning, match=r"column 'x2' has values around 1,0.*\"normalized\""):
        SemiCyclicClassifier(time_column=-1, **adaptive).fit(np.c_[X * [1, 1, 1000, 1], when], y)
    with pytest.warns(UserWarning, match=r"around 0.1 \(as TF-IDF has.*\"normalized\""):
        SemiCyclicClassifier(**adaptive).fit(X / 10, y, when=when)
    with pytest.warns(UserWarning, match="y has values around 5.*TransformedTargetRegressor"):
        SemiCyclicRegressor(method="hedged").fit(X, 500.0 + y, when=when)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SemiCyclicClassifier(method="consensus").fit(X, y)
        SemiCyclicClassifier(schedule="daily:2").fit(X, y, when=when)
        for method in ("auto", "hedged"):
            SemiCyclicClassifier(method=method).fit(X * [1, 1e-3, 1000, 1], y, when=when)


def test_rows_without_weight_give_finite_models() -> None:
    X, _, when = stream(200)
    estimator = SemiCyclicClassifier(schedule="daily:2", class_weight={0: 0.0, 1: 1.0})
    estimator.partial_fit(X[:50], np.zeros(50, int), [0, 1], when=when[:50])
    assert np.isfinite(estimator.decision_function(X[50:60], when=when[50:60])).all()


def frame_of_all_kinds(n: int = 3000) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(1)
    when = pd.date_range("2026-03-01", periods=n, freq="5min", tz="Europe/Paris")
    kind = rng.choice(np.array(["a", "b", None], dtype=object), n)
    frame = pd.DataFrame(
        {
            "n": np.where(rng.random(n) < 0.1, np.nan, rng.normal(100, 20, n)),
            "kind": kind,
            "level": pd.Categorical(rng.choice(["low", "high"], n)),
            "note": [f"{rng.choice(['rain', 'sun'])} over the city number {k}" for k in range(n)],
            "flag": rng.random(n) < 0.5,
            "seen": when - pd.Timedelta("1h"),
            "when": when.strftime("%Y-%m-%d %H:%M:%S%z"),
        }
    )
    return frame, np.where((kind == "a") == (when.hour < 12), "yes", "no")


@pytest.mark.filterwarnings("ignore:columns that are not used")
def test_a_frame_of_all_kinds_of_columns_is_encoded() -> None:
    """Strings, gaps, categories, texts, booleans, times as strings; pandas, Polars, Arrow and dicts alike."""
    frame, y = frame_of_all_kinds()
    estimator = SemiCyclicClassifier(
        time_column="when", zone="Europe/Paris", schedule="daily:2", random_state=0
    )
    estimator.fit(frame[:2000], y[:2000])
    assert estimator.score(frame[2000:], y[2000:]) > 0.9
    names = set(estimator.get_feature_names_out())
    assert {"n", "n?", "n~3", "kind=a", "kind?", "level=low", "note:rain", "flag=true"} <= names
    assert not any(name.startswith(("seen", "when")) for name in names)
    expected = estimator.predict_proba(frame[2000:])
    for form in (pl.from_pandas(frame[2000:]), frame[2000:].to_dict("records")):
        assert (estimator.predict_proba(form) == expected).all()
    model = estimator.to_model()
    np.testing.assert_allclose(model.predict_proba(frame[2000:]), expected, atol=1e-6)
    assert model.predict(frame.iloc[0].to_dict()) in ("yes", "no")
    with pytest.warns(UserWarning, match=r"columns that are not used: 'seen' \(a time\)"):
        estimator.fit(frame[:500], y[:500])


@pytest.mark.filterwarnings("ignore:columns that are not used")
def test_types_of_columns_can_be_given() -> None:
    frame, y = frame_of_all_kinds(600)
    settings: dict[str, Any] = {"time_column": "when", "method": "pluralistic", "ignore": ["seen", "note"]}
    estimator = SemiCyclicClassifier(**settings, category=["n"], bits=10).fit(frame, y)
    assert estimator.coef_.shape == (6, 1, 1 << 10)
    estimator = SemiCyclicClassifier(**settings, text=["kind"], bins=1).fit(frame, y)
    assert {"kind:a", "n"} <= set(estimator.get_feature_names_out())
    assert not any("~" in name or "note" in name for name in estimator.get_feature_names_out())
    for wrong, message in (
        ({"bins": 0}, "bins=0"),
        ({"bits": 30}, "bits=30: must be from 4 to 24"),
        ({"memory": "1MB"}, "must be at least 64MB"),
        ({"number": "n"}, "give a list of column names"),
        ({"number": ["n"], "text": ["n"]}, "named twice"),
        ({"number": ["x"]}, "no column 'x'"),
    ):
        refusal(message, lambda wrong=wrong: SemiCyclicClassifier(**{**settings, **wrong}).fit(frame, y))


@pytest.mark.filterwarnings("ignore:columns that are not used")
def test_partial_fit_of_frames_meets_new_values() -> None:
    frame, y = frame_of_all_kinds()
    stream = SemiCyclicClassifier(
        time_column="when", zone="Europe/Paris", schedule="daily:2", method="separate"
    )
    for first in range(0, 3000, 500):
        part = frame[first : first + 500].assign(kind=lambda rows, k=first: rows["kind"].fillna(f"new{k}"))
        stream.partial_fit(part, y[first : first + 500], classes=["no", "yes"])
    assert stream.score(frame[2500:], y[2500:]) > 0.8
    with pytest.raises(ValueError, match="feature names should match"):
        stream.partial_fit(frame.drop(columns="n"), y)


@pytest.mark.filterwarnings("ignore:columns that are not used")
def test_a_regressor_standardizes_the_labels_of_frames() -> None:
    frame, y = frame_of_all_kinds()
    cost = 1000.0 + 50 * (y == "yes")
    estimator = SemiCyclicRegressor(
        time_column="when", zone="Europe/Paris", schedule="daily:2", random_state=0
    )
    estimator.fit(frame[:2000], cost[:2000])
    assert estimator.score(frame[2000:], cost[2000:]) > 0.8
    assert abs(float(estimator.predict(frame[2000:]).mean()) - 1025) < 15
    assert 0 < estimator.progressive_loss_.mean() < 50**2 / 2
    assert (
        abs(estimator.to_model().predict(frame.iloc[2500].to_dict()) - estimator.predict(frame[2500:2501])[0])
        < 1e-2
    )


@pytest.mark.filterwarnings("ignore:the rows have no times")
@pytest.mark.parametrize("method", ["pluralistic", "auto"])
@pytest.mark.parametrize("where", ["blocks", "nowhere"])
def test_the_size_of_chunks_does_not_change_the_model(
    method: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fit` trains on chunks of rows, whether or not they have cycles."""
    X, y, _ = stream(600)
    how: dict[str, Any] = {"blocks": np.arange(600) // 7 % 3} if where == "blocks" else {}
    settings: dict[str, Any] = {"method": method, "passes": 1, "shuffle_within_blocks": False}
    whole = SemiCyclicClassifier(**settings).fit(X, y, **how)
    monkeypatch.setattr("semicyclic.training.reader.CHUNK_ROWS", 50)
    parts = SemiCyclicClassifier(**settings).fit(X, y, **how)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=0, atol=1e-12)
