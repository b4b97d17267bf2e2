"""`sc.fit`: the same model from a data frame, dicts, files and rows as from `semicyclic train`."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import semicyclic as sc
from semicyclic.cli.main import main
from semicyclic.datasets.flights import data_path
from tests.tables.small_tables import rows_of, write_csv

Table = dict[str, Any]
ZONE = "America/New_York"


def forms(table: pa.Table) -> dict[str, Any]:
    """The same table in every form that `fit` and the estimators take."""
    frame = table.to_pandas()
    return {
        "arrow": table,
        "pandas": frame,
        "pandas, objects": frame.astype(object),
        "polars": pl.from_arrow(table),
        "dicts": table.to_pylist(),
    }


def flights() -> tuple[pa.Table, str, str]:
    rows = pq.read_table(data_path())
    return rows.slice(0, 12_000), "when", "late"


def mixed() -> tuple[pa.Table, str, str]:
    """Numbers with gaps, categories, booleans, texts; a typed category column; a further time."""
    rows = rows_of(3000, days=9.0)
    table = pa.Table.from_pylist(rows)
    when = pa.array([datetime.fromtimestamp(row["at"], UTC) for row in rows])
    other = pa.array([datetime.fromtimestamp(row["at"] + 3600, UTC) for row in rows])
    group = pa.array(["uvw"[row["at"] % 3] for row in rows]).dictionary_encode()
    table = table.drop_columns(["at"]).append_column("at", when).append_column("group", group)
    return table.append_column("seen", other), "at", "y"


TABLES = {"flights": flights, "mixed": mixed}
# Explicit settings, the same for all three: hashed columns or one for each feature.
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("auto", {"memory": "256MB"}),
    ("auto", {"bits": 12, "memory": "256MB"}),
    ("pluralistic", {"step_size": 0.3, "batch_size": 8, "memory": "256MB"}),
    ("hedged", {"bits": 12, "batch_size": 4, "memory": "256MB", "bins": 4}),
    ("separate", {"batch_size": 16, "memory": "256MB", "read_out": "last"}),
    ("residual", {"batch_size": 16, "memory": "256MB", "read_out": "tail:3"}),
]


def tensors(model: sc.Pluralistic) -> list[Any]:
    return [model.weights, np.array(model.fallback), np.array(model.schedule.labels)]


def assert_same(one: sc.Pluralistic, other: sc.Pluralistic) -> None:
    for first, second in zip(tensors(one), tensors(other), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings("ignore:columns that are not used", "ignore:.*have no rows")
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *SETTINGS[2:3],
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [*SETTINGS[:2], *SETTINGS[3:]]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_form_and_every_way_gives_the_same_tensors(
    name: str, method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """CSV, Parquet, pandas, Polars, dicts; `semicyclic train`, `sc.fit`, the estimator."""
    table, when, label = TABLES[name]()
    csv, parquet = tmp_path / "rows.csv", tmp_path / "rows.parquet"
    arrow_csv.write_csv(_plain_categories(table), csv)
    pq.write_table(table, parquet)
    columns: dict[str, Any] = {
        "when": when,
        "label": label,
        "zone": ZONE,
        "schedule": "daily:4",
        "method": method,
    }
    first_pass = [] if "bits" in settings else ["--first-pass"]
    if method == "auto":
        settings = {**settings, "horizon": "7d"}
    options = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    reference = sc.fit(table, **columns, **settings)
    for path in (csv, parquet):
        words = [word for key, value in columns.items() for word in (f"--{key}", value)]
        out = str(tmp_path / path.suffix[1:])
        with pytest.raises(SystemExit, match="0"):
            main(["train", str(path), *words, *options, *first_pass, "--out", out])
        assert_same(sc.load(out), reference)
        assert_same(sc.fit(path, **columns, **settings), reference)
    of_estimator = dict(settings)
    average = of_estimator.pop("read_out", "mean")
    for form, rows in forms(table).items():
        assert_same(sc.fit(rows, **columns, **settings), reference)
        estimator = sc.SemiCyclicClassifier(
            time_column=when, zone=ZONE, schedule="daily:4", method=method, average=average,
            shuffle_within_blocks=False, passes=1, **{"batch_size": 16, **of_estimator},
        )  # fmt: skip
        known = table.column(label).is_valid()
        features, labels = _without_unlabelled(rows, form, known, label)
        assert_same(estimator.fit(features, labels).to_model(), reference)


def _plain_categories(table: pa.Table) -> pa.Table:
    """Dictionary columns as strings: CSV has no other."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
    return table


def _without_unlabelled(rows: Any, form: str, known: Any, label: str) -> tuple[Any, Any]:
    """Features and labels of the rows that have a label: scikit-learn takes no others."""
    mask = known.to_numpy()
    if form == "dicts":
        kept = [row for row, keep in zip(rows, mask, strict=True) if keep]
        labels = np.array([row[label] for row in kept])
        return [{name: cell for name, cell in row.items() if name != label} for row in kept], labels
    if form == "arrow":
        kept = rows.filter(known)
        return kept.drop_columns([label]), np.array(kept.column(label).to_pylist())
    if form == "polars":
        kept = rows.filter(pl.Series(mask))
        return kept.drop(label), kept[label].to_numpy()
    kept = rows[mask]
    return kept.drop(columns=label), np.array(kept[label].tolist())


def small(n: int = 2000) -> pd.DataFrame:
    """A frame with strings and gaps whose label depends on the hour."""
    rng = np.random.default_rng(0)
    when = pd.date_range("2026-03-01", periods=n, freq="11min", tz="Europe/Paris")
    x = rng.normal(size=n)
    city = rng.choice(np.array(["Rome", "Oslo", None], dtype=object), n)
    late = (x > 0) == (when.hour < 12)
    return pd.DataFrame(
        {"when": when, "x": np.where(rng.random(n) < 0.1, np.nan, x), "city": city, "late": late}
    )


def test_a_model_predicts_for_tables_rows_and_dicts_alike() -> None:
    frame = small()
    model = sc.fit(frame[:1500], when="when", label="late", zone="Europe/Paris", schedule="daily:2")
    new = frame[1500:].drop(columns="late")
    expected = model.predict_proba(new)
    assert ((expected[:, 1] > 0.5) == frame["late"][1500:].to_numpy()).mean() > 0.8
    assert expected.shape == (500, 2)
    np.testing.assert_array_equal(
        model.predict(new), model.classes_of(expected) if False else expected[:, 1] > 0.5
    )
    for form in (pl.from_pandas(new), pa.Table.from_pandas(new), new.to_dict("records")):
        np.testing.assert_array_equal(model.predict_proba(form), expected)
    # Order, further columns and an index make no difference; a table without rows has no answers.
    shuffled = new.sample(frac=1.0, random_state=0)[["city", "when", "x"]].assign(late=None, more=1)
    np.testing.assert_array_equal(model.predict_proba(shuffled), expected[shuffled.index - 1500])
    assert model.predict_proba(new[:0]).shape == (0, 2)
    assert model.predict(new[:0]).shape == (0,)
    for number, row in enumerate(new.to_dict("records")[:200]):
        one = model.predict_proba(row)
        np.testing.assert_array_equal(one, expected[number])
        assert model.predict(row) is bool(one[1] > 0.5)
        assert model.score(row) == model.score(new[number : number + 1])[0]
        as_text = {**row, "when": str(row["when"])}
        np.testing.assert_array_equal(model.predict_proba(as_text), expected[number])
    rows = sc.read(new, like=model)
    np.testing.assert_array_equal(model.predict_proba(rows), expected)


def test_blocks_may_be_given_instead_of_times() -> None:
    frame = small()
    schedule = sc.Schedule.daily(2, zone="Europe/Paris")
    model = sc.fit(frame, when="when", label="late", method="pluralistic", schedule=schedule)
    bare = frame.drop(columns=["when", "late"])
    for block in range(2):
        inside = (frame["when"].dt.hour >= 12).to_numpy() == block
        np.testing.assert_array_equal(
            model.predict_proba(bare[inside], block=block), model.predict_proba(frame[inside])
        )
    row = bare.to_dict("records")[0]
    half = model.predict_proba(row, membership=[0.5, 0.5])
    assert half.shape == (2,)
    with pytest.raises(ValueError, match="missing: 'when', which the model was trained on"):
        model.predict(bare)
    with pytest.raises(ValueError, match="missing: 'when'"):
        model.predict(row)


def test_regression_and_several_classes_answer_in_the_labels_units() -> None:
    frame = small()
    price = frame.assign(late=100.0 + 10 * frame["x"].fillna(0))
    numbers = sc.fit(price, when="when", label="late", method="consensus", schedule="daily:1")
    assert abs(numbers.predict(price) - price["late"]).mean() < 3
    assert isinstance(numbers.predict(price.to_dict("records")[0]), float)
    words = frame.assign(late=frame["city"].fillna("none"))
    classes = sc.fit(words, when="when", label="late", method="pluralistic")
    assert classes.classes == ("Oslo", "Rome", "none")
    row = words.to_dict("records")[0]
    assert classes.predict(row) == classes.predict(words[:1])[0]
    np.testing.assert_array_equal(classes.predict_proba(row), classes.predict_proba(words[:1])[0])


@pytest.mark.parametrize("method", ["auto", "hedged", "separate"])
def test_rows_are_a_table_too(method: str) -> None:
    """Encoded rows give the weights of the table they come from."""
    frame = small(3000)
    settings: dict[str, Any] = {
        "zone": "Europe/Paris",
        "schedule": "daily:3",
        "method": method,
        "memory": "128MB",
    }
    rows = sc.read(frame, when="when", label="late", zone="Europe/Paris")
    assert_same(sc.fit(rows, **settings), sc.fit(frame, when="when", label="late", **settings))
    bare = sc.Rows(np.eye(4)[np.arange(400) % 4], np.arange(400) % 4 > 1, block=np.arange(400) // 50 % 2)
    assert (
        sc.fit(bare, schedule=sc.Schedule.daily(2), method=method).predict(bare).tolist()
        == [False, False, True, True] * 100
    )
    with pytest.raises(ValueError, match="leave out when= and label="):
        sc.fit(rows, when="when")
    with pytest.raises(ValueError, match="have no labels"):
        sc.fit(sc.read(frame, when="when", ignore=["late"]))


def test_rows_in_any_order_are_sorted() -> None:
    frame = small()
    settings: dict[str, Any] = {"when": "when", "label": "late", "method": "pluralistic"}
    assert_same(sc.fit(frame, **settings), sc.fit(frame.sample(frac=1.0, random_state=1), **settings))
    # Files are streams: unsorted ones are refused with the remedy.


def test_a_folder_of_a_run_is_opened_as_its_model(tmp_path: Path) -> None:
    rows = rows_of(600)
    path = write_csv(tmp_path / "rows.csv", rows)
    with pytest.raises(SystemExit, match="0"):
        main(
            [
                "train",
                str(path),
                "--when",
                "at",
                "--label",
                "y",
                "--method",
                "pluralistic",
                "--out",
                str(tmp_path / "run"),
            ]
        )
    model = sc.load(tmp_path / "run")
    assert_same(model, sc.load(tmp_path / "run" / "model.safetensors"))
    assert model.predict(rows[0]) in ("yes", "no")
    np.testing.assert_array_equal(model.predict(rows), model.predict(sc.read(path, like=model)))
    sc.save(model, tmp_path / "copy.safetensors")
    assert (tmp_path / "copy.safetensors").read_bytes() == (
        tmp_path / "run" / "model.safetensors"
    ).read_bytes()
    # One block of a model needs no time.
    one = sc.load(tmp_path / "run", block=2)
    row = {name: cell for name, cell in rows[0].items() if name != "at"}
    assert one.predict(row) in ("yes", "no")


FRAME = small(600)
ROW: dict[str, Any] = FRAME.drop(columns="late").iloc[3].to_dict()


def fit(frame: Any = FRAME, **settings: Any) -> sc.Pluralistic:
    return sc.fit(frame, **{"when": "when", "label": "late", **settings})


WRONG: dict[str, tuple[Any, str]] = {
    "no when": (lambda: fit(when=None), "when= is missing: give the name of the time column"),
    "no label": (lambda: fit(label=None), "label= is missing: give the name of the label column"),
    "no column": (lambda: fit(when="time"), "no column 'time': the columns are 'when', 'x'"),
    "label": (lambda: fit(label="lat"), "no column 'lat'"),
    "twice": (lambda: fit(number=["x"], text=["x"]), "named twice among number="),
    "a word": (lambda: fit(number="x"), "give a list of column names, such as"),
    "method": (lambda: fit(method="x"), "method='x': choose 'auto'"),
    "bins": (lambda: fit(bins=0), "bins=0: must be from 1 to 1000"),
    "memory": (lambda: fit(memory="1MB"), "memory='1MB': must be at least 64MB"),
    "auto": (lambda: fit(step_size=0.5), "step_size=0.5: method='auto' does not take it"),
    "l2 of auto": (lambda: fit(l2=0.5), "l2=0.5: method='auto' does not take it"),
    "l2": (lambda: fit(l2=-1, method="hedged"), "l2=-1: the strength of the penalty"),
    "step": (lambda: fit(method="separate", step_size=sc.step.paper()), "takes step.normalized"),
    "format": (lambda: fit(format="csv"), "format= and encoding= are for files"),
    "an array": (lambda: fit(np.eye(3)), "a table is a ndarray: give a data frame"),
    "read": (lambda: sc.read(3, when="when"), "a table is a int"),
    "classes": (lambda: fit(loss="softmax(3)"), "2 classes"),
    "a word in a number": (
        lambda: fit(FRAME.assign(x=["word", *range(599)])),
        r"table, row 0: column 'x': 'word' is not a number.*category=\['x'\]",
    ),
    "times by value": (lambda: fit(when=FRAME["when"]), "when= is not the name of a column"),
    "labels by value": (lambda: fit(label=FRAME["late"]), "label= is not the name of a column"),
    "no time left": (lambda: fit(ignore=["when"]), r"ignore=\['when', ...\]: this column is needed"),
    "no label left": (
        lambda: sc.read(FRAME, when="when", label="late", ignore=["late"]),
        "this column is needed",
    ),
    "classes as a word": (lambda: fit(classes="yes"), r"classes='yes': give a list of classes"),
    "format of files": (
        lambda: sc.read("a.csv", when="when", format="excel"),
        "format='excel': choose 'csv'",
    ),
    "hours as times": (
        lambda: fit(FRAME.assign(when=range(600))),
        "column 'when' has numbers around 299.5, too small for seconds since 1970",
    ),
    "days as numbers": (
        lambda: fit(FRAME.assign(when=20260101)),
        "column 'when' has numbers around 20260101, too small.*when_format=",
    ),
    "one of the rows lacks a column": (
        lambda: fit().predict([ROW, {"X" if name == "x" else name: cell for name, cell in ROW.items()}]),
        "row 1: missing: 'x', which the model was trained on; columns that the model does not know: 'X'",
    ),
    "a list in a number": (
        lambda: fit().predict([ROW | {"x": 1.5}, ROW | {"x": [1, 2]}]),
        r"row 1: column 'x': '\[1, 2\]' is not a number",
    ),
    "rows of another encoding": (
        lambda: fit().predict(sc.read(FRAME.assign(x=FRAME["x"] + 1), when="when", label="late")),
        "the rows have other features than the model was trained on: read them with like=model",
    ),
    "a series that is no row": (lambda: fit().predict(FRAME["x"]), "table is a Series: give a data frame"),
    "a series": (lambda: fit(FRAME["x"]), "table is a Series: give a data frame"),
    "a type that Arrow lacks": (lambda: fit(FRAME.assign(z=1j)), "column 'z' has type complex128"),
    "files to predict": (lambda: fit().predict("a.csv"), "table is a str: give a data frame"),
    "no zone": (lambda: fit(zone="Paris"), "unknown time zone 'Paris'"),
    "a model of rows": (
        lambda: sc.Pluralistic(np.ones((1, 1, 3)), sc.Numbered(1), sc.loss.logistic).predict(FRAME),
        "was not trained from a table",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_with_the_argument_and_the_remedy(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_row_of_a_frame_is_a_dict() -> None:
    model = fit()
    row = FRAME.iloc[3]
    assert model.predict(row) == model.predict(row.to_dict())
    np.testing.assert_array_equal(model.predict_proba(row), model.predict_proba(FRAME[3:4])[0])


def test_a_huge_integer_is_a_large_number_alone_or_among_others() -> None:
    model, huge = fit(), ROW | {"x": 10**400}
    np.testing.assert_array_equal(model.predict_proba([ROW | {"x": 0.5}, huge])[1], model.predict_proba(huge))


def test_rows_read_alike_are_predicted() -> None:
    """By `like=`, or with features that happen to be equal."""
    model = fit()
    like = sc.read(FRAME, label="late", like=model)
    again = sc.read(FRAME, when="when", label="late")
    np.testing.assert_array_equal(model.predict_proba(like), model.predict_proba(FRAME))
    np.testing.assert_array_equal(model.predict_proba(again), model.predict_proba(FRAME))


def test_naive_times_are_in_the_zone_of_the_schedule() -> None:
    schedule = sc.Schedule.daily(2, zone="Asia/Tokyo")
    own, named = (fit(schedule=schedule, method="separate", **zone) for zone in ({}, {"zone": "Asia/Tokyo"}))
    np.testing.assert_array_equal(own.weights, named.weights)
    assert own.features is not None
    assert own.features.to_json()["columns"]["when"]["zone"] == "Asia/Tokyo"


def test_columns_that_are_not_used_are_said(caplog: pytest.LogCaptureFixture) -> None:
    fit(FRAME.assign(other=FRAME["when"], pair=[[1, 2]] * 600), method="pluralistic")
    (message,) = (each.getMessage() for each in caplog.records if each.name == "semicyclic.training")
    assert message.startswith("columns that are not used: 'other' (a time), 'pair' (")


def test_fit_logs_what_it_does(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semicyclic.training.progress_log.LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "semicyclic.training"):
        fit(method="pluralistic")
    messages = [record.getMessage() for record in caplog.records if record.name == "semicyclic.training"]
    assert messages[0] == "fit: reading the first rows"
    assert any("rows, loss" in message for message in messages)
    assert messages[-1].startswith("fit: done, 600 rows (0 without a label")


def test_a_label_that_is_not_known_yet_is_not_learned() -> None:
    with pytest.raises(ValueError, match="no label is known yet"):
        fit(label_delay=timedelta(days=30), method="pluralistic")
    assert fit(label_delay="1h", method="pluralistic").blocks == 6
