"""Rows at the door: what is taken, and what is refused naming row and column."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method import batches as packing
from semicyclic.method import rows as module
from semicyclic.method.batches import RowOrder
from semicyclic.method.rows import join
from tests.method import oracle
from tests.method.random_streams import case, seeds

GOOD = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])


def test_dense_and_sparse_features_are_the_same_rows() -> None:
    for X in (GOOD, GOOD.tolist(), scipy.sparse.csr_matrix(GOOD), scipy.sparse.coo_array(GOOD)):
        rows = sc.Rows(X, [0, 1, 0], block=[0, 0, 1])
        assert rows.values.tolist() == [1, 2, 3, 4]
        assert rows.indices.tolist() == [0, 1, 0, 1]
        assert rows.values.dtype == np.float32
    assert repr(rows) == "Rows(3 x 2, 1.3 values a row)"


def test_csr_in_single_precision_is_not_copied() -> None:
    X = scipy.sparse.csr_matrix(GOOD.astype(np.float32))
    assert sc.Rows(X, [0, 1, 0], block=[0, 0, 1]).values is X.data


BAD: list[tuple[dict[str, Any], str]] = [
    ({"X": GOOD[0]}, r"X has shape \(2,\): it must be a table"),
    ({"X": GOOD[:0], "y": [], "block": []}, "there are no rows"),
    ({"X": [["a", "b"]] * 3}, "features must be numbers"),
    ({"X": [[1, 0], [0, np.nan], [0, 0]]}, "row 1, column 1 is nan: it must be finite"),
    ({"X": scipy.sparse.csr_matrix([[0, 0], [0, 0], [np.inf, 0]])}, "row 2, column 0 is inf"),
    ({"y": [0, 1]}, r"y has shape \(2,\): X has 3 rows, so it must be \(3,\)"),
    ({"block": [0, 1]}, r"block has shape \(2,\)"),
    ({"block": [0.5, 1, 2]}, "block holds float64: it must be whole numbers"),
    ({"weight": [1, 1]}, "weight has shape"),
    ({"weight": [1, -1, 1]}, "weight of row 1 is -1: it must be finite and 0 or more"),
    ({"weight": [1, 1, np.nan]}, "weight of row 2 is nan"),
    ({"when": [3, 2, 1]}, "give either when= or block="),
    ({"block": None, "when": [1, 3, 2]}, "row 2 is earlier than the row before it"),
    ({"block": None, "when": [1, 3]}, r"when has shape \(2,\)"),
    ({"block": None, "cycle": [1, 3, 2]}, "cycle= goes with block="),
    ({"unsorted": "shuffle"}, "unsorted='shuffle': choose"),
    ({"dtype": np.int32}, "choose float32 or float64"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_bad_rows_are_refused_naming_the_place(change: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {"X": GOOD, "y": [0, 1, 0], "block": [0, 0, 1], **change}
    with pytest.raises(ValueError, match=sentence):
        sc.Rows(arguments.pop("X"), **arguments)


@pytest.mark.parametrize("many", [1, 1 << 16])
def test_a_column_out_of_range_is_refused(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", many)
    X = scipy.sparse.csr_matrix(GOOD)
    X.indices[2] = 7
    with pytest.raises(ValueError, match="row 2 has column 7: X has 2 columns"):
        sc.Rows(X, [0, 1, 0], block=[0, 0, 1])
    X.indices[2] = 0
    X.data[1] = np.nan
    with pytest.raises(ValueError, match="row 1, column 1 is nan"):
        sc.Rows(X, [0, 1, 0], block=[0, 0, 1])


def test_unsorted_times_are_sorted_stably_on_request() -> None:
    rows = sc.Rows(GOOD, [0, 1, 2], when=[5, 1, 5], unsorted="sort")
    assert rows.labels is not None
    assert rows.labels.tolist() == [1, 0, 2]
    assert rows.values.tolist() == [2, 1, 3, 4]


@given(seeds, st.lists(st.integers(0, 59), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_chosen_rows_are_those_rows(seed: int, chosen: list[int]) -> None:
    made = case(seed, weighted=True)
    part = made.rows[np.array(chosen)]
    dense = scipy.sparse.csr_matrix((part.values, part.indices, part.indptr), shape=(len(chosen), part.width))
    assert np.array_equal(dense.toarray(), made.problem.X[chosen])
    low, high = sorted((chosen[0], chosen[-1]))
    whole = join([made.rows[:low], made.rows[low:high], made.rows[high:]]) if 0 < low < high else made.rows
    assert np.array_equal(whole.values, made.rows.values)
    assert np.array_equal(whole.indptr, made.rows.indptr)


def test_parts_of_one_stream_must_fit_together() -> None:
    one = sc.Rows(GOOD, [0, 1, 0], when=[1, 2, 3])
    for other, sentence in (
        (sc.Rows(GOOD[:, :1], [0, 1, 0], when=[4, 5, 6]), "same columns"),
        (sc.Rows(GOOD, None, when=[4, 5, 6]), "some have none"),
    ):
        with pytest.raises(ValueError, match=sentence):
            join([one, other])
    schedule = sc.Schedule.daily(1)
    run = sc.train.pluralistic(one, schedule, batch_size=1)
    for other, sentence in (
        (sc.Rows(GOOD[:, :1], [0, 1, 0], when=[4, 5, 6]), "these rows have columns 1, those before had 2"),
        (sc.Rows(GOOD, [0, 1, 0], when=[4, 5, 6], dtype=np.float64), "have dtype float64"),
        (sc.Rows(GOOD, [0, 1, 0], when=[4, 5, 6], intercept=False), "have intercept False"),
        (sc.Rows(GOOD, [0, 1, 0], when=[2, 5, 6]), "begin before the rows ahead of them end"),
    ):
        for batch_size in (1, 2):
            with pytest.raises(ValueError, match=sentence):
                sc.train.pluralistic([one, other], schedule, batch_size=batch_size)
        with pytest.raises(ValueError, match=sentence):
            sc.train.extend(run, other)


def test_rows_to_predict_may_come_in_any_order_and_are_answered_in_it() -> None:
    when = np.array([5, 1, 3]) * 3600
    schedule = sc.Schedule.daily(24)
    model = sc.Pluralistic(np.arange(72.0).reshape(24, 1, 3), schedule, sc.loss.squared)
    found = model.predict(sc.Rows(GOOD, when=when, dtype=np.float64))
    one_by_one = [model.predict(sc.Rows(GOOD[[i]], when=when[[i]], dtype=np.float64))[0] for i in range(3)]
    assert np.allclose(found, one_by_one)


def test_features_of_several_kinds_of_numbers_are_taken_together() -> None:
    frame = pd.DataFrame({"a": [1.5, 0.0], "b": [True, False], "c": [3, 4]})
    rows = sc.Rows(frame, [0, 1], block=[0, 0])
    assert rows.values.tolist() == [1.5, 1, 3, 4]
    with pytest.raises(ValueError, match="not numbers"):
        sc.Rows(np.array([["a", 1]], dtype=object), [0], block=[0])
    with pytest.raises(TypeError, match=r"rows\[1\]: choose rows by a slice"):
        rows[1]  # type: ignore[index]


def test_rows_find_their_blocks_by_time_or_by_number() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    rows = sc.Rows(GOOD, when=[noon, noon + timedelta(hours=11), noon + timedelta(hours=13)])
    found = rows.place(sc.Schedule.daily(2))
    assert found.block.tolist() == [1, 1, 0]
    assert np.diff(found.cycle).tolist() == [0, 1]
    numbered = sc.Rows(GOOD, block=[1, 0, 1])
    assert numbered.place(2).cycle.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="row 0 is in block 1: there are 0 to 0"):
        numbered.place(1)
    with pytest.raises(ValueError, match="need a Schedule"):
        rows.place(2)
    with pytest.raises(ValueError, match="neither when= nor block="):
        sc.Rows(GOOD).place(2)


LABELS: list[tuple[Any, sc.loss.Loss, Any, str]] = [
    ([1, 1, 1], sc.loss.logistic, None, r"1 class\(es\) \(.*1\S*\), loss logistic needs 2: name them all"),
    ([0, 1, 2], sc.loss.logistic, None, "there are 3 classes, loss logistic takes 2: use loss.softmax"),
    ([0, 1, 2], sc.loss.softmax(3), (0, 1, 3), "row 2 has the unknown label .*2.*: the classes are 0, 1, 3"),
    (["a", "b", "c"], sc.loss.hinge, ("a", "b"), "row 2 has the unknown label"),
    ([0, 1, np.nan], sc.loss.logistic, None, "label of row 2 is nan"),
    ([0, 1, np.inf], sc.loss.squared, None, "label of row 2 is inf"),
    (["a", "b", "c"], sc.loss.squared, None, "loss squared needs numbers"),
    ([0, 1, 1], sc.loss.logistic, (0,), "check classes="),
    (None, sc.loss.logistic, None, "these rows have no labels"),
]


@pytest.mark.parametrize(("labels", "loss", "classes", "sentence"), LABELS)
def test_labels_a_loss_cannot_take_are_refused(
    labels: Any, loss: sc.loss.Loss, classes: Any, sentence: str
) -> None:
    rows = sc.Rows(GOOD, labels, block=[0, 0, 1])
    with pytest.raises(ValueError, match=sentence):
        sc.pack(rows, 2, loss=loss, classes=classes)


@pytest.mark.parametrize("labels", [["no", "yes", "no"], [False, True, False], [3, 7, 3], [0.5, 2.5, 0.5]])
def test_two_classes_of_any_kind_are_coded_in_order(labels: Any) -> None:
    target, classes = packing.encode(np.asarray(labels), sc.loss.logistic, None)
    assert target.tolist() == [-1, 1, -1]
    assert classes == tuple(sorted(set(labels)))
    turned, _ = packing.encode(np.asarray(labels), sc.loss.logistic, classes[::-1])
    assert turned.tolist() == [1, -1, 1]


@given(seeds, st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_minibatches_are_cut_from_visits_and_never_cross_them(seed: int, batch_size: int) -> None:
    made = case(seed, batch_size=batch_size)
    packed = sc.pack(made.rows, made.blocks, loss=sc.loss.logistic, batch_size=batch_size)
    expected = oracle.steps_of(made.problem)
    found = np.diff(packed.layout.steps)
    assert found.tolist() == [len(rows) for rows in expected]
    assert packed.steps.sum() == len(expected)
    # The same rows are in every step, whatever their order.
    for step, rows in enumerate(expected):
        span = range(int(packed.layout.steps[step]), int(packed.layout.steps[step + 1]))
        sums = [
            packed.layout.values[packed.layout.starts[r] : packed.layout.starts[r + 1]].sum() for r in span
        ]
        assert sorted(sums) == sorted(made.problem.X[rows].sum(axis=1))


def test_wide_rows_have_wider_column_numbers() -> None:
    for width, kind in ((2**16 - 1, np.uint16), (2**16, np.uint32)):
        X = scipy.sparse.csr_matrix(([1.0, 1.0], ([0, 1], [0, width - 1])), shape=(2, width))
        packed = sc.pack(sc.Rows(X, [0, 1], block=[0, 0]), 1, loss=sc.loss.logistic)
        assert packed.layout.lists.dtype == kind
        assert packed.layout.lists.tolist() == [0, width - 1, width]
        # Of a visit that touches few columns, cells have their positions in its list.
        assert packed.layout.columns.tolist() == [0, 1]


@pytest.mark.parametrize("size", [50, 80_000])
def test_packing_in_an_order_is_packing_the_rows_in_that_order(size: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(size, 6)) * (rng.random((size, 6)) < 0.4)
    rows = sc.Rows(X, rng.integers(0, 2, size), weight=rng.random(size))
    chosen = rng.integers(0, size, size + 7)
    cycle, block = np.divmod(np.arange(size + 7) * 12 // (size + 7), 4)
    order = RowOrder(chosen, cycle, block)
    one = sc.pack(rows, 4, loss=sc.loss.logistic, batch_size=5, order=order)
    other = sc.pack(rows[chosen].with_blocks(block, cycle), 4, loss=sc.loss.logistic, batch_size=5)
    for name in one.layout._fields:
        assert np.array_equal(getattr(one.layout, name), getattr(other.layout, name)), name
    assert one.steps.tolist() == other.steps.tolist()


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (([0], [0], []), "a row, a cycle and a block"),
        (([], [], []), "at least one"),
        (([3], [0], [0]), "rows that are not there: there are 0 to 2"),
        (([-1], [0], [0]), "rows that are not there"),
        (([0], [0], [2]), "blocks that are not there: there are 0 to 1"),
    ],
)
def test_an_order_names_rows_and_blocks_that_are_there(order: Any, sentence: str) -> None:
    rows = sc.Rows(np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match=sentence):
        sc.pack(rows, 2, loss=sc.loss.logistic, order=RowOrder(*(np.array(each, int) for each in order)))


def test_many_rows_are_taken_in_any_order_as_few_are() -> None:
    """From 65,536 rows on a compiled copy does what NumPy does for fewer."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(70_000, 3)) * (rng.random((70_000, 3)) < 0.5)
    rows = sc.Rows(X, np.arange(70_000), block=np.arange(70_000) % 5)
    chosen = rng.integers(-70_000, 70_000, 70_000)
    taken = rows[chosen]
    assert taken.labels is not None
    assert taken.block is not None
    assert np.array_equal(taken.labels, np.arange(70_000)[chosen])
    assert np.array_equal(taken.block, (np.arange(70_000) % 5)[chosen])
    for k in range(0, 70_000, 7001):
        one, cells = rows[chosen[k : k + 1]], slice(taken.indptr[k], taken.indptr[k + 1])
        assert np.array_equal(one.indices, taken.indices[cells])
        assert np.array_equal(one.values, taken.values[cells])
    moved = taken.with_blocks(np.zeros(70_000, int))
    assert moved.block is not None
    assert not moved.block.any()
    assert taken.block.any()
    with pytest.raises(ValueError, match="block"):
        taken.with_blocks([0, 1])
