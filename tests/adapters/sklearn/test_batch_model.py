"""The model that is fitted to all rows at once, next to the candidates trained in one pass."""

import copy
import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from semicyclic import SemiCyclicClassifier, SemiCyclicRegressor

pytestmark = pytest.mark.filterwarnings("ignore:.*no times or blocks", "ignore:.*values around")
TWEETS = Path(__file__).parents[4] / "shared" / "data" / "sentiment140-sample.csv"
HOUR = 3600
MONDAY = 1_700_438_400


def share_of(estimator: Any) -> float:
    """Return the share of the batch model."""
    found: float = estimator.to_model().provenance["batch_share"]
    return found


def batch_of(estimator: Any) -> Any:
    """Return the batch model."""
    return estimator._fitted.ended.batch


def fine_blocks(estimator: Any, when: Any) -> Any:
    """Return the block of the model at some times."""
    return estimator.to_model().schedule.place(when * 1_000_000).block


def shop(weeks: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return features of very different scale, labels and times; labels follow hour and weekday too."""
    rng = np.random.default_rng(seed)
    when = MONDAY + HOUR * np.sort(rng.integers(0, weeks * 168, 60 * weeks))
    X = rng.normal(size=(len(when), 3))
    hour, weekday = when // HOUR % 24, (when - MONDAY) // HOUR // 24 % 7
    score = X @ [1.0, -1.0, 0.5] + np.sin(2 * np.pi * hour / 24) + 0.8 * (weekday >= 5)
    return 500 + X * [1.0, 1e3, 1e-3], rng.random(len(when)) < 1 / (1 + np.exp(-score)), when


def with_hour_and_weekday(X: Any, when: Any) -> Any:
    """Return standardized features with one-hot hours and weekdays."""
    marks = np.c_[when // HOUR % 24, (when - MONDAY) // HOUR // 24 % 7]
    return np.hstack([StandardScaler().fit_transform(X), OneHotEncoder().fit_transform(marks).toarray()])


def test_its_share_is_what_the_rows_after_each_fit_favour() -> None:
    """Of features of very different scale one pass learns little: then it is most of the model."""
    X, y, when = shop(20)
    estimator = SemiCyclicClassifier().fit(X, y, when=when)
    assert share_of(estimator) >= 0.7
    one_pass = SemiCyclicClassifier(passes=1).fit(X, y, when=when)
    assert "batch_share" not in one_pass.to_model().provenance
    whole, _, _ = shop(20)
    later = slice(-300, None)
    loss = [log_loss(y[later], each.predict_proba(whole[later], when=when[later]))
            for each in (estimator, one_pass)]  # fmt: skip
    assert loss[0] < loss[1] - 0.05


def test_it_is_logistic_regression_with_hour_and_weekday() -> None:
    X, y, when = shop(12)
    estimator = SemiCyclicClassifier().fit(X, y, when=when)
    fitted = batch_of(estimator)
    Z = with_hour_and_weekday(X, when)
    plain = LogisticRegression(max_iter=1000).fit(Z, y)
    fine = fine_blocks(estimator, when)
    score = (X * fitted.weights[fine, 0, :-1]).sum(axis=1) + fitted.weights[fine, 0, -1]
    np.testing.assert_allclose(score, plain.decision_function(Z), atol=0.05)


def test_it_is_ridge_regression_for_numbers_and_takes_weights() -> None:
    X, _, when = shop(12)
    rng = np.random.default_rng(1)
    y = StandardScaler().fit_transform(X) @ [0.3, 0.2, -0.5] + 0.1 * rng.normal(size=len(X))
    weight = rng.integers(0, 3, len(X)).astype(float)
    estimator = SemiCyclicRegressor().fit(X, y, weight, when=when)
    fitted = batch_of(estimator)
    Z = with_hour_and_weekday(X, when)
    plain = Ridge(1.0).fit(Z, y, weight)
    fine = fine_blocks(estimator, when)
    score = (X * fitted.weights[fine, 0, :-1]).sum(axis=1) + fitted.weights[fine, 0, -1]
    np.testing.assert_allclose(score, plain.predict(Z), atol=1e-6)
    assert share_of(estimator) > 0


def test_of_labels_of_pure_chance_it_learns_no_share_that_hurts() -> None:
    """Its share is chosen by rows that it was not fitted to: there a model of chance is no help."""
    rng = np.random.default_rng(3)
    when = MONDAY + HOUR * np.arange(1500)
    X, y = rng.normal(size=(1500, 40)), rng.random(1500) < 0.5
    estimator = SemiCyclicClassifier().fit(X, y, when=when)
    later = rng.normal(size=(1000, 40))
    loss = log_loss(
        rng.random(1000) < 0.5, estimator.predict_proba(later, when=when[-1] + HOUR * np.arange(1, 1001))
    )
    assert share_of(estimator) <= 0.5
    assert loss < np.log(2) + 0.02


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_scale_does_not_matter(form: Any) -> None:
    """Columns in other units: the same model. Sparse ones are scaled if they are large or small."""
    X, y, when = shop(12)
    X = X * (np.random.default_rng(0).random(X.shape) < 0.2) if form is not np.asarray else X
    scale = np.array([2.0**20, 1.0, 2.0**-10 if form is np.asarray else 4.0])
    one, other = (batch_of(SemiCyclicClassifier().fit(form(each), y, when=when)) for each in (X, X * scale))
    np.testing.assert_allclose(one.weights[:, :, :-1], other.weights[:, :, :-1] * scale, rtol=0.02, atol=1e-9)


def test_partial_fit_ends_it() -> None:
    X, y, when = shop(12)
    estimator = SemiCyclicClassifier().fit(X[:500], y[:500], when=when[:500])
    one_pass = SemiCyclicClassifier(passes=1).fit(X[:500], y[:500], when=when[:500])
    before = copy.deepcopy(estimator)
    for each in (estimator, one_pass):
        each.partial_fit(X[500:], y[500:], when=when[500:])
    np.testing.assert_array_equal(estimator.coef_, one_pass.coef_)
    assert share_of(before) > 0


def test_losses_without_such_a_model_and_rare_classes_do_without() -> None:
    X, y, when = shop(4)
    hinge = SemiCyclicClassifier(loss="hinge").fit(X, y, when=when)
    assert "batch_share" not in hinge.to_model().provenance
    quantile = SemiCyclicRegressor(loss="absolute").fit(X, y.astype(float), when=when)
    assert "batch_share" not in quantile.to_model().provenance
    classes = np.where(np.arange(len(y)) == len(y) - 1, 2, y.astype(int))
    rare = SemiCyclicClassifier().fit(X, classes, when=when)
    assert "batch_share" not in rare.to_model().provenance
    assert rare.predict_proba(X, when=when).shape == (len(y), 3)


def test_blocks_are_features_where_rows_have_no_times() -> None:
    rng = np.random.default_rng(0)
    block = rng.integers(0, 3, 3000)
    X = 100 + 50 * rng.normal(size=(3000, 2))
    y = rng.random(3000) < np.array([0.1, 0.5, 0.9])[block]
    estimator = SemiCyclicClassifier(schedule=3).fit(X, y, blocks=block)
    probability = estimator.predict_proba(X, blocks=block)[:, 1]
    for each, expected in enumerate((0.1, 0.5, 0.9)):
        assert probability[block == each].mean() == pytest.approx(expected, abs=0.05)


def losses(name: str, repeats: int, rows: int | None) -> tuple[float, float]:
    """Return the mean loss of the plain scikit-learn model and of the default estimator, cross-validated.

    Training rows are sorted by label: rows without times may come in any order.
    """
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    numbers = name == "diabetes"
    folds = RepeatedKFold if numbers else RepeatedStratifiedKFold
    found: list[list[float]] = []
    for train, test in folds(n_splits=5, n_repeats=repeats, random_state=0).split(X, y):
        train = np.random.default_rng(len(found)).permutation(train)[:rows]
        train = train[np.argsort(y[train], kind="stable")]
        if numbers:
            center, scale = y[train].mean(), y[train].std()
            plain = make_pipeline(StandardScaler(), Ridge(1.0)).fit(X[train], y[train])
            own = SemiCyclicRegressor(random_state=0).fit(X[train], (y[train] - center) / scale)
            predicted = plain.predict(X[test]), own.predict(X[test]) * scale + center
            found.append([((each - y[test]) ** 2).mean() for each in predicted])
        else:
            model = LogisticRegression(C=1.0, max_iter=5000)
            plain = make_pipeline(StandardScaler(), model).fit(X[train], y[train])
            own = SemiCyclicClassifier(random_state=0).fit(X[train], y[train])
            found.append([log_loss(y[test], each.predict_proba(X[test]), labels=np.unique(y))
                          for each in (plain, own)])  # fmt: skip
    plain_loss, own_loss = np.mean(found, axis=0).tolist()
    return plain_loss, own_loss


def check(name: str, repeats: int, rows: int | None, most: float) -> None:
    plain, own = losses(name, repeats, rows)
    print(f"{name}, {rows or 'all'} rows: {own:.4f}, plain {plain:.4f}")
    assert own <= max(most * plain, plain + 0.01)


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_features_of_any_scale_are_as_good_as_standardized_ones(name: str) -> None:
    check(name, 1, None, 1.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "most"),
    [
        *((name, None, 1.03) for name in ("iris", "wine", "breast_cancer", "digits", "diabetes")),
        *((name, 200, 1.05) for name in ("breast_cancer", "digits", "diabetes")),
        ("digits", 1000, 1.05),
    ],
)
def test_small_tables_are_learned_as_well_as_by_scikit_learn(
    name: str, rows: int | None, most: float
) -> None:
    """Ten times five folds."""
    check(name, 10, rows, most)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "most"), [(None, 1.03), (1000, 1.05), (200, 1.05)])
def test_tweets_are_learned_as_well_as_by_logistic_regression(rows: int | None, most: float) -> None:
    """Real tweets as unscaled TF-IDF, in the order of the file, which is that of the labels."""
    if not TWEETS.exists():
        pytest.skip("needs shared/data")
    with TWEETS.open(encoding="latin-1", newline="") as file:
        table = list(csv.reader(file))
    text, y = [row[-1] for row in table], np.array([row[0] == "4" for row in table])
    ratios = []
    for fold, (train, test) in enumerate(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y)):
        train = np.sort(np.random.default_rng(fold).permutation(train)[:rows])
        encoder = TfidfVectorizer(min_df=2).fit([text[k] for k in train])
        X, X_test = (encoder.transform([text[k] for k in part]) for part in (train, test))
        plain = LogisticRegression(C=1.0, max_iter=5000).fit(X, y[train])
        own = SemiCyclicClassifier(random_state=0).fit(X, y[train])
        losses = [log_loss(y[test], each.predict_proba(X_test)) for each in (own, plain)]
        ratios.append(losses[0] / losses[1])
    print(f"tweets, {rows or 'all'} rows: {np.mean(ratios):.4f} of the loss of LogisticRegression")
    assert np.mean(ratios) <= most
