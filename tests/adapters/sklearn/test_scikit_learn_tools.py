"""The tools around estimators: through each of them the block of a row must reach prediction.

The rows of the first half of a day have labels opposite to those of the second. Who knows the time scores
above .9; who does not, near .5.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.inspection import permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    TimeSeriesSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import semicyclic as sc
from semicyclic import CycleSplit, SemiCyclicClassifier, SemiCyclicRegressor

N, DAYS = 3000, 10
COLUMNS = ["a", "b", "c"]
RIGHT, CHANCE = 0.9, 0.1


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, Any]:
    """A frame with its time, columns of very different sizes, and words for labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    seconds = 1_700_000_000 + DAYS * 86_400 * np.arange(N) // N
    half = (seconds // 43_200) % 2
    y = np.where((X[:, 0] > 0) == (half == 0), "yes", "no")
    frame = pd.DataFrame(X * [1, 100, 0.01] + [0, 500, 0], columns=COLUMNS)
    return frame.assign(when=pd.to_datetime(seconds, unit="s"), city=np.array(["x", "y"])[half * 0]), y


def estimator(**more: Any) -> SemiCyclicClassifier:
    return SemiCyclicClassifier(
        **{"time_column": "when", "schedule": "daily:2", "missing": "consensus", "random_state": 0, **more}
    )


def prepared(output: str | None = "pandas") -> ColumnTransformer:
    """Features scaled and encoded, the time passed through."""
    steps = ColumnTransformer(
        [
            ("numbers", StandardScaler(), COLUMNS),
            ("words", OneHotEncoder(sparse_output=False), ["city"]),
            ("time", "passthrough", ["when"]),
        ],
        verbose_feature_names_out=False,
    )
    return steps if output is None else steps.set_output(transform=output)


def withheld(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with their times unknown."""
    return frame.assign(when=pd.NaT)


def halves(data: tuple[pd.DataFrame, Any]) -> tuple[Any, Any, Any, Any]:
    X, y = data
    return X[: N // 2], y[: N // 2], X[N // 2 :], y[N // 2 :]


def scores(model: Any, X: pd.DataFrame, y: Any) -> tuple[float, float]:
    """With the time, and without."""
    return model.score(X, y), model.score(withheld(X), y)


def check(pair: tuple[float, float]) -> None:
    assert pair[0] > RIGHT
    assert abs(pair[1] - 0.5) < CHANCE


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_pipeline_with_named_columns(data: Any, output: str) -> None:
    X, y, X_test, y_test = halves(data)
    model = make_pipeline(prepared(output), estimator()).fit(X, y)
    check(scores(model, X_test, y_test))
    names = list(model[-1].get_feature_names_out())
    assert {*COLUMNS, "city_x"} <= set(names)
    assert list(model[-1].feature_names_in_) == [*COLUMNS, "city_x", "when"]
    assert model.score(X_test.drop(columns="city").assign(city="x"), y_test) > RIGHT


def test_pipeline_with_columns_by_position(data: Any) -> None:
    """A transformer that gives an array: the time in epoch seconds, among floats or in a sparse matrix."""
    X, y, X_test, y_test = halves(data)
    epoch = [part.assign(when=part["when"].astype("datetime64[s]").astype(np.int64)) for part in (X, X_test)]
    sparse = prepared(None).set_params(sparse_threshold=1.0, words__sparse_output=True)
    for steps, at in ((prepared(None), 4), (sparse, -1)):
        model = make_pipeline(steps, estimator(time_column=at)).fit(epoch[0], y)
        check((model.score(epoch[1], y_test), model.score(epoch[1].assign(when=np.nan), y_test)))


def test_a_scaler_over_the_time_is_noticed(data: Any) -> None:
    X, y = data
    table = np.c_[X[COLUMNS].to_numpy(), X["when"].astype("datetime64[s]").astype(np.int64)]
    model = make_pipeline(StandardScaler(), estimator(time_column=3))
    with pytest.raises(ValueError, match=r"exclude the column from scaling"):
        model.fit(table, y)


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", "neg_log_loss", "balanced_accuracy"])
def test_grid_search_with_named_scorers(data: Any, scoring: str) -> None:
    X, y, X_test, y_test = halves(data)
    # Method auto tells hours apart whatever the schedule.
    model = make_pipeline(prepared(), estimator(method="hedged"))
    grid = {
        "semicyclicclassifier__schedule": ["daily:1", "daily:2"],
        "semicyclicclassifier__batch_size": [1, 8],
    }
    search = GridSearchCV(model, grid, scoring=scoring, cv=CycleSplit(2, time_column="when")).fit(X, y)
    assert search.best_params_["semicyclicclassifier__schedule"] == "daily:2"
    found = search.cv_results_["mean_test_score"]
    one = np.array(
        [each["semicyclicclassifier__schedule"] == "daily:1" for each in search.cv_results_["params"]]
    )
    if scoring != "neg_log_loss":
        assert found[~one].min() > RIGHT
        assert np.abs(found[one] - 0.5).max() < 2 * CHANCE
    check(scores(search.best_estimator_, X_test, y_test))


def test_halving_grid_search(data: Any) -> None:
    """It draws rows at random: fit sorts them by time."""
    X, y, X_test, y_test = halves(data)
    model = make_pipeline(prepared(), estimator())
    grid = {"semicyclicclassifier__schedule": ["daily:1", "daily:2", "daily:4"]}
    search = HalvingGridSearchCV(model, grid, scoring="roc_auc", random_state=0, min_resources=300).fit(X, y)
    assert search.best_params_["semicyclicclassifier__schedule"] != "daily:1"
    check(scores(search.best_estimator_, X_test, y_test))


@pytest.mark.parametrize("cv", [TimeSeriesSplit(3), CycleSplit(3, time_column="when", gap="6h"), 3])
def test_cross_validation(data: Any, cv: Any) -> None:
    X, y = data
    model = make_pipeline(prepared(), estimator())
    assert cross_val_score(model, X, y, cv=cv).min() > RIGHT
    assert cross_val_score(model, X, y, cv=cv, scoring="f1_macro", n_jobs=2).min() > RIGHT
    kept = cross_validate(model, X, y, cv=cv, return_estimator=True)["estimator"]
    for each in kept:
        check(scores(each, X, y))
    if cv == 3:
        assert (cross_val_predict(model, X, y) == y).mean() > RIGHT


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(data: Any, method: str) -> None:
    X, y, X_test, y_test = halves(data)
    model = CalibratedClassifierCV(make_pipeline(prepared(), estimator()), method=method, cv=3).fit(X, y)
    check(scores(model, X_test, y_test))
    hinge = CalibratedClassifierCV(make_pipeline(prepared(), estimator(loss="hinge")), cv=3).fit(X, y)
    check(scores(hinge, X_test, y_test))


def test_permutation_importance_sees_the_time(data: Any) -> None:
    X, y, X_test, y_test = halves(data)
    model = make_pipeline(prepared(), estimator()).fit(X, y)
    found = permutation_importance(model, X_test, y_test, n_repeats=3, random_state=0).importances_mean
    by_name = dict(zip(X.columns, found, strict=True))
    assert by_name["when"] > 0.3
    assert by_name["a"] > 0.3
    assert max(by_name["b"], by_name["c"], by_name["city"]) < 0.05


def test_voting(data: Any) -> None:
    X, y, X_test, y_test = halves(data)
    members = [
        ("one", make_pipeline(prepared(), estimator())),
        ("two", make_pipeline(prepared(), estimator(method="hedged", passes=2))),
    ]
    for voting in ("hard", "soft"):
        check(scores(VotingClassifier(members, voting=voting).fit(X, y), X_test, y_test))


def test_clone_and_looks(data: Any) -> None:
    X, y, X_test, y_test = halves(data)
    model = estimator(schedule=sc.Schedule.daily(2), step_size=sc.step.adagrad(0.3))
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not twin.__sklearn_is_fitted__()
    pipeline = Pipeline([("prepare", prepared()), ("model", twin)])
    shown = pipeline._repr_html_()
    assert "SemiCyclicClassifier" in shown
    assert "time_column" in shown
    assert repr(estimator()).startswith("SemiCyclicClassifier(")
    check(scores(clone(pipeline).fit(X, y), X_test, y_test))


def test_a_transformed_target(data: Any) -> None:
    X, _, X_test, _ = halves(data)
    half = (X["when"].dt.hour >= 12).to_numpy(), (X_test["when"].dt.hour >= 12).to_numpy()
    y, y_test = (
        np.where(own, -1, 1) * part["a"] * 1000 + 5000 for own, part in zip(half, (X, X_test), strict=True)
    )
    inner = SemiCyclicRegressor(time_column="when", schedule="daily:2", missing="consensus", random_state=0)
    model = TransformedTargetRegressor(make_pipeline(prepared(), inner), transformer=StandardScaler()).fit(
        X, y
    )
    assert model.score(X_test, y_test) > RIGHT
    assert model.score(withheld(X_test), y_test) < 2 * CHANCE


def test_without_leave_a_missing_time_is_refused_through_all_tools(data: Any) -> None:
    X, y, X_test, y_test = halves(data)
    model = make_pipeline(prepared(), estimator(missing="raise")).fit(X, y)
    with pytest.raises(ValueError, match="row 0 has no time, and there are 2 blocks"):
        model.score(withheld(X_test), y_test)


def test_metadata_can_be_routed_where_no_column_tells(data: Any) -> None:
    from sklearn import config_context

    X, y, X_test, y_test = halves(data)
    with config_context(enable_metadata_routing=True):
        plain = SemiCyclicClassifier(schedule="daily:2", random_state=0)
        plain.set_fit_request(when=True).set_score_request(when=True).set_predict_request(when=True)
        model = make_pipeline(StandardScaler(), plain).fit(X[COLUMNS], y, when=X["when"])
        assert model.score(X_test[COLUMNS], y_test, when=X_test["when"]) > RIGHT
        assert (model.predict(X_test[COLUMNS], when=X_test["when"]) == y_test).mean() > RIGHT


@pytest.mark.parametrize("zone", ["Europe/Paris", None])
def test_a_passed_through_datetime_column_is_the_time(zone: str | None) -> None:
    """`remainder="passthrough"` gives an array of objects, or a frame, with the times among the numbers."""
    rng = np.random.default_rng(0)
    when = pd.date_range("2026-03-01", periods=3000, freq="7min", tz=zone)
    X = pd.DataFrame({"a": rng.normal(50, 10, 3000), "when": when})
    y = (X["a"] > 50) == (when.hour < 12)
    forms: list[tuple[str, Any]] = [("pandas", "remainder__when"), ("polars", "remainder__when")]
    for output, column in [*forms, *([("default", -1)] if zone else [])]:
        scaler = ColumnTransformer([("scaled", StandardScaler(), ["a"])], remainder="passthrough")
        model = SemiCyclicClassifier(time_column=column, schedule="daily:2", random_state=0)
        pipeline = make_pipeline(scaler.set_output(transform=output), model).fit(X[:2000], y[:2000])
        assert pipeline.score(X[2000:], y[2000:]) > RIGHT, output
