"""Counts of known labels are those of comparing every pair of times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semicyclic.schedule.label_delay import arrived_before_label, known_before

# Few different times, so that exact ties are common.
TIMES = st.lists(st.integers(0, 6), min_size=1, max_size=12).map(lambda times: np.array(sorted(times)))


@given(TIMES, st.lists(st.integers(-2, 12), max_size=6), st.integers(0, 4))
def test_labels_known_before_a_time_are_counted(arrival: np.ndarray, until: list[int], delay: int) -> None:
    expected = [sum(int(time) + delay < end for time in arrival) for end in until]
    assert known_before(arrival, np.array(until, np.int64), delay).tolist() == expected


@given(TIMES, st.data(), st.integers(0, 4))
def test_rows_that_arrive_before_a_label_is_known_are_counted(
    arrival: np.ndarray, data: st.DataObject, delay: int
) -> None:
    row = data.draw(st.integers(0, len(arrival) - 1))
    expected = sum(int(time) <= int(arrival[row]) + delay for time in arrival)
    assert arrived_before_label(arrival, row, delay) == expected


def test_a_row_never_knows_its_own_label() -> None:
    arrival = np.array([0, 5, 5, 5, 9])
    assert known_before(arrival, arrival, 0).tolist() == [0, 1, 1, 1, 4]
