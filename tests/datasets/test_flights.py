"""The flights of the demo."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from semicyclic import datasets


def test_blocks_are_cut_so_that_none_is_empty() -> None:
    by_hour = np.array([0] * 5 + [1, 25, 22, 26, 19, 16, 15, 17, 19, 21, 23, 22, 23, 21, 20, 16, 10, 2, 1])
    starts = datasets.flights.edges_of(by_hour, 6)
    assert starts[0] == 5
    assert starts == sorted(set(starts))
    with pytest.raises(ValueError, match="leave one with less than 1%"):
        datasets.flights.edges_of(np.array([0] * 20 + [1000, 1, 1000, 1]), 4)


def test_the_flights_are_what_they_are_said_to_be() -> None:
    path = Path(datasets.flights.data_path())
    assert path.stat().st_size < 4_000_000
    about = pq.ParquetFile(path)
    assert about.metadata.num_rows == 336_776
    assert b"CC0" in about.schema_arrow.metadata[b"source"]
