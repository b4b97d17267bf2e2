"""`CycleSplit`: no test row is older than a training row."""

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.experimental import enable_halving_search_cv  # noqa: F401

from semicyclic import CycleSplit


@given(
    days=st.lists(st.integers(0, 11), min_size=40, max_size=80),
    splits=st.integers(1, 3),
    length=st.integers(1, 2),
    gap=st.integers(0, 2),
    most=st.none() | st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_nobody_is_judged_by_what_they_could_not_know(
    days: list[int], splits: int, length: int, gap: int, most: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cycle = np.array([*days, *range(12)])
    rng.shuffle(cycle)
    when = 1_700_006_400 + cycle * 86_400.0 + rng.integers(0, 86_400, len(cycle))
    X = np.c_[np.zeros(len(cycle)), when]
    kwargs: dict[str, Any] = {"test_cycles": length, "gap": gap, "max_train_cycles": most}
    by_time = CycleSplit(splits, time_column=1, **kwargs)
    folds = list(by_time.split(X))
    assert len(folds) == by_time.get_n_splits() == splits
    last = 12 - splits * length
    for train, test in folds:
        assert sorted(set(cycle[test])) == list(range(last, last + length))
        first = 0 if most is None else last - gap - most
        expected = [row for row in range(len(cycle)) if max(first, 0) <= cycle[row] < last - gap]
        assert train.tolist() == expected
        last += length
    grouped = CycleSplit(splits, **kwargs).split(X, groups=cycle)
    for one, two in zip(folds, grouped, strict=True):
        assert one[0].tolist() == two[0].tolist()
        assert one[1].tolist() == two[1].tolist()


@pytest.mark.parametrize("gap", ["6h", timedelta(hours=6), np.timedelta64(6, "h")])
def test_a_gap_of_hours_leaves_out_rows_whose_labels_come_too_late(gap: Any) -> None:
    when = pl.DataFrame({"x": np.zeros(96), "when": 1_700_006_400 + 3600 * np.arange(96)})
    for train, test in CycleSplit(2, time_column="when", gap=gap).split(when):
        assert test[0] - train[-1] == 6
        assert train[0] == 0
        assert len(test) == 24


def test_a_split_that_cannot_be_made_is_refused() -> None:
    X = np.c_[np.zeros(48), 1_700_006_400 + 3600.0 * np.arange(48)]
    for match, split in {
        "need at least 6 cycles: there are 2": CycleSplit(5, time_column=1),
        "give the cycles as groups=": CycleSplit(1),
        "leaves nothing to train on": CycleSplit(1, time_column=1, gap=1),
        "no column 7": CycleSplit(1, time_column=7),
        "gap=-1": CycleSplit(1, time_column=1, gap=-1),
        "gap=None": CycleSplit(1, time_column=1, gap=None),  # type: ignore[arg-type]
        "0 or more": CycleSplit(1, time_column=1, gap=timedelta(hours=-2)),
        "gap='6 parsecs'": CycleSplit(1, time_column=1, gap="6 parsecs"),
        "n_splits=0": CycleSplit(0, time_column=1),
        "test_cycles=1.5": CycleSplit(1, time_column=1, test_cycles=1.5),  # type: ignore[arg-type]
    }.items():
        with pytest.raises(ValueError, match=match):
            list(split.split(X))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3 has no time: leave it out"):
        list(CycleSplit(1, time_column=1).split(X))
    with pytest.raises(ValueError, match="not both"):
        list(CycleSplit(1, time_column=1).split(X, groups=np.arange(48)))
    with pytest.raises(ValueError, match="X has 48 rows"):
        list(CycleSplit(1).split(X, groups=np.arange(24)))
    with pytest.raises(ValueError, match="row 2 has no cycle"):
        list(CycleSplit(1).split(X, groups=np.where(np.arange(48) == 2, np.nan, 1.0)))
    days = np.datetime64("2026-03-01") + np.arange(48) // 12
    assert [len(train) for train, _ in CycleSplit(2, gap=1).split(X, groups=days)] == [12, 24]
    with pytest.raises(ValueError, match="a number of cycles"):
        list(CycleSplit(1, gap="6h").split(X, groups=np.arange(48) // 24))
