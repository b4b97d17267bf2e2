"""`Rows`: checked features and labels, with the time or block of each row."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from semicyclic.method import kernels
from semicyclic.schedule.numbered import AnySchedule, as_schedule
from semicyclic.schedule.schedule import Located, Schedule
from semicyclic.schedule.timestamps import instants
from semicyclic.types import Array

# Below this many values NumPy checks sooner than Numba loads.
MANY = 1 << 16
# Columns of `Rows` with one entry per row, and all its arrays.
ROW_COLUMNS = ("labels", "weight", "when", "block", "cycle")
ROW_ARRAYS = ("indptr", "indices", "values", *ROW_COLUMNS)
TIMES = "rows with times need a Schedule, such as Schedule.daily(6)"


class Encoding(Protocol):
    """How the rows of a table become features. It travels with rows and runs to the model."""

    def to_json(self) -> Any:
        """Return a JSON value that is stored with the model."""

    def rows(self, table: Any, schedule: AnySchedule | None) -> "Rows":
        """Return the rows of a table, or the row of one dict, with their blocks in `schedule`.

        schedule: None to leave out the blocks, which then need no times.
        """

    def check_same(self, other: "Encoding") -> None:
        """Raise if rows of another encoding are not what a model with this one was trained on."""


class SparseRows(NamedTuple):
    """CSR matrix that `Rows` accepts, without SciPy: row r has the columns indices[indptr[r]:indptr[r+1]]."""

    indptr: Array
    indices: Array
    data: Array
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def tocsr(self) -> "SparseRows":
        return self


class Rows:
    """Examples in order of arrival: features, and optionally labels, times or blocks, and weights.

    Parameters
    ----------
    X : array or SciPy sparse matrix of shape [n, d]
        Features, kept as CSR in `dtype`. Arrays that fit are shared with the caller, not copied.
    y : sequence of length n, optional
        Labels: two or more classes of any type, or numbers. Leave it out for rows to predict.
    when : sequence of length n, optional
        Time of each row, as `Schedule.locate` accepts it.
    zone : str, optional
        Time zone of naive times.
    ambiguous, missing : str
        Rules for local hours that occur twice or are skipped; see `Schedule.locate`.
    block, cycle : sequences of int, optional
        Instead of `when`: the block of each row, from 0, and its cycle. Without cycles a new one begins
        wherever the block number falls.
    weight : sequence of float, optional
        Weight of each row, at least 0; 1 by default.
    intercept : bool
        Whether models get a constant column in addition to the features.
    unsorted : {"refuse", "sort"}
        What to do with labelled rows whose times decrease. Rows to predict may be in any order.
    dtype : NumPy dtype, optional
        float32 (default) or float64. Training computes in the same precision.

    Raises
    ------
    ValueError
        If lengths differ, values are not finite, times decrease, or labels are missing.
    """

    def __init__(
        self,
        X: Any,
        y: npt.ArrayLike | None = None,
        *,
        when: object = None,
        zone: str | None = None,
        ambiguous: str = "earlier",
        missing: str = "shift",
        block: npt.ArrayLike | None = None,
        cycle: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        intercept: bool = True,
        unsorted: str = "refuse",
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        kind = np.dtype(dtype)
        if kind not in (np.float32, np.float64):
            raise ValueError(f"dtype={dtype!r}: choose float32 or float64")
        self.indptr, self.indices, self.values, self.width = _features(X, kind)
        # How `read` made the features, which is passed on to the model.
        self.features: Encoding | None = None
        n = len(self.indptr) - 1
        if n == 0:
            raise ValueError("there are no rows: X is empty")
        _check(self.indptr, self.indices, self.values, self.width)
        self.labels = None if y is None else _column("y", y, n)
        self.weight = None if weight is None else _weights(_column("weight", weight, n), kind)
        self.intercept = bool(intercept)
        if when is not None and block is not None:
            raise ValueError("give either when= or block=, not both")
        self.when = None
        if when is not None:
            ticks = instants(when, zone=zone, ambiguous=ambiguous, missing=missing)
            self.when = _column("when", ticks, n)
        self.block = None if block is None else _whole("block", block, n)
        self.cycle = None if cycle is None else _whole("cycle", cycle, n)
        if cycle is not None and block is None:
            raise ValueError("cycle= goes with block=; with when= the cycle follows from the schedule")
        if unsorted not in ("refuse", "sort"):
            raise ValueError(f"unsorted={unsorted!r}: choose 'refuse' or 'sort'")
        # Rows to predict may be in any order; predictions keep it.
        times = np.zeros(0) if self.when is None or self.labels is None else self.when
        if (back := np.flatnonzero(np.diff(times) < 0)).size:
            if unsorted == "refuse":
                raise ValueError(
                    f"row {back[0] + 1} is earlier than the row before it: sort the rows by time, "
                    "or say unsorted='sort'"
                )
            vars(self).update(vars(self[np.argsort(times, kind="stable")]))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __repr__(self) -> str:
        cells = len(self.values) / max(len(self), 1)
        return f"Rows({len(self):,} x {self.width:,}, {cells:.1f} values a row)"

    def __getitem__(self, index: slice | Array) -> "Rows":
        """Select rows by an array of row numbers, in that order, or by a slice, which shares memory."""
        if isinstance(index, slice) and index.step in (None, 1):
            low, high, _ = index.indices(len(self))
            return self._piece(low, max(low, high))
        chosen = _row_numbers(index, len(self))
        if chosen.ndim != 1:
            raise TypeError(f"rows[{index!r}]: choose rows by a slice or an array, such as rows[5:6]")
        part = with_fields(self)
        if len(chosen) < MANY:
            lengths = self.indptr[chosen + 1] - self.indptr[chosen]
            part.indptr = np.r_[0, np.cumsum(lengths)].astype(np.int64)
            cells = np.arange(part.indptr[-1]) + np.repeat(self.indptr[chosen] - part.indptr[:-1], lengths)
            part.indices, part.values = self.indices[cells], self.values[cells]
        else:
            part.indptr = np.empty(len(chosen) + 1, np.int64)
            kernels.batching.begin_rows(self.indptr, chosen, part.indptr)
            size = int(part.indptr[-1])
            part.indices, part.values = np.empty(size, self.indices.dtype), np.empty(size, self.values.dtype)
            copied = part.indptr, part.indices, part.values
            kernels.batching.copy_rows(
                self.indptr, self.indices, self.values, chosen, copied, (0, len(chosen))
            )
        for name in ROW_COLUMNS:
            column = getattr(self, name)
            setattr(part, name, None if column is None else column[chosen])
        return part

    def _piece(self, low: int, high: int) -> "Rows":
        """Return rows low..high-1; their arrays share memory with these."""
        begin = self.indptr[low : high + 1]
        cells = slice(begin[0], begin[-1])
        columns = {name: getattr(self, name) for name in ROW_COLUMNS}
        return with_fields(
            self,
            indptr=begin - begin[0],
            indices=self.indices[cells],
            values=self.values[cells],
            **{name: None if column is None else column[low:high] for name, column in columns.items()},
        )

    def with_blocks(self, block: npt.ArrayLike, cycle: npt.ArrayLike | None = None) -> "Rows":
        """Return the same rows with other blocks and cycles, ignoring their times.

        Parameters
        ----------
        block, cycle : sequences of int
            As in `Rows`.

        Returns
        -------
        Rows
        """
        cycles = None if cycle is None else _whole("cycle", cycle, len(self))
        return with_fields(self, when=None, block=_whole("block", block, len(self)), cycle=cycles)

    def place(self, schedule: AnySchedule | int) -> Located:
        """Return the cycle and the block of each row.

        Parameters
        ----------
        schedule : Schedule, Numbered or int
            An int m is a schedule of m numbered blocks.

        Returns
        -------
        Located
            The arrays (cycle, block).
        """
        located_by = as_schedule(schedule)
        if self.when is not None:
            if not isinstance(located_by, Schedule):
                raise ValueError(TIMES)  # one block would do for the blocks, not for the cycles
            return located_by.place(self.when)
        block = self.blocks_in(located_by)
        if self.cycle is not None:
            return Located(self.cycle, block)
        return Located(np.r_[0, np.cumsum(np.diff(block) < 0)], block)

    def blocks_in(self, schedule: AnySchedule | int) -> Array:
        """Return the block of each row.

        Parameters
        ----------
        schedule : Schedule, Numbered or int

        Returns
        -------
        array of shape [n]
        """
        located_by = as_schedule(schedule)
        if self.block is None:
            if self.when is None:
                raise ValueError("these rows have neither when= nor block=: give one of them")
            if isinstance(located_by, Schedule):
                return located_by.place(self.when).block
            if located_by.blocks > 1:
                raise ValueError(TIMES)
            return np.zeros(len(self), np.int64)  # there is one block, whatever the clock
        if len(self) and (self.block.min() < 0 or self.block.max() >= located_by.blocks):
            row = int(((self.block < 0) | (self.block >= located_by.blocks)).argmax())
            raise ValueError(
                f"row {row} is in block {self.block[row]}: there are 0 to {located_by.blocks - 1}"
            )
        return self.block


def _row_numbers(index: slice | Array, n: int) -> Array:
    numbers = isinstance(index, np.ndarray) and index.dtype == np.int64 and len(index) > 0
    if numbers and index.min() >= 0 and index.max() < n:  # type: ignore[union-attr]
        return index  # type: ignore[return-value]  # as it would become, and there may be millions
    return np.arange(n)[index]


def count_features(rows: Rows) -> int:
    """Return the number of features that occur in the rows."""
    return len(np.unique(rows.indices))


def with_fields(rows: Rows, **fields: Any) -> Rows:
    """Return the same rows with other attributes, which must be valid already."""
    changed = object.__new__(Rows)
    vars(changed).update(vars(rows), **fields)
    return changed


def copy_rows(rows: Rows) -> Rows:
    """Return the same rows with arrays of their own."""
    arrays = {name: getattr(rows, name) for name in ROW_ARRAYS}
    return with_fields(
        rows, **{name: None if array is None else array.copy() for name, array in arrays.items()}
    )


def rows_to_arrays(rows: Rows, prefix: str) -> dict[str, Array]:
    """Return the arrays of rows by name, for a checkpoint."""
    named = {f"{prefix}{name}": getattr(rows, name) for name in ROW_ARRAYS}
    return {name: array for name, array in named.items() if array is not None}


def rows_from_arrays(arrays: Mapping[str, Array], prefix: str, *, width: int, intercept: bool) -> Rows:
    """Return the rows of `rows_to_arrays`."""
    rows = object.__new__(Rows)
    vars(rows).update({name: arrays.get(f"{prefix}{name}") for name in ROW_ARRAYS})
    vars(rows).update(width=width, intercept=intercept, features=None)
    return rows


def encoded_rows(
    indptr: Array, indices: Array, values: Array, width: int, *, block: Array | None = None
) -> Rows:
    """Return rows to predict from CSR arrays that are valid already; there may be none."""
    rows = object.__new__(Rows)
    vars(rows).update(dict.fromkeys(ROW_COLUMNS))
    vars(rows).update(indptr=indptr, indices=indices, values=values, width=width, block=block)
    vars(rows).update(intercept=True, features=None)
    return rows


def join(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.width != first.width or part.intercept != first.intercept for part in parts):
        raise ValueError("parts of one stream must have the same columns and intercept")
    whole = with_fields(first)
    ends = np.cumsum([0, *(part.indptr[-1] for part in parts[:-1])])
    begins = [part.indptr[1:] + end for part, end in zip(parts, ends, strict=True)]
    whole.indptr = np.concatenate([first.indptr[:1], *begins])
    for name in ("indices", "values", *ROW_COLUMNS):
        columns = [getattr(part, name) for part in parts]
        if name == "weight" and any(column is not None for column in columns):
            ones = [np.ones(len(part), first.values.dtype) for part in parts]
            columns = [one if column is None else column for one, column in zip(ones, columns, strict=True)]
        missing = [column is None for column in columns]
        if any(missing) != all(missing):
            raise ValueError(f"some parts of the stream have {name} and some have none")
        setattr(whole, name, None if all(missing) else np.concatenate(columns))
    return whole


def _features(X: Any, kind: np.dtype[Any]) -> tuple[Array, Array, Array, int]:
    """Return the CSR arrays of dense or sparse features, sharing the caller's arrays where they fit."""
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        if len(X.shape) != 2 or X.data.dtype.kind not in "biuf":
            raise ValueError(f"X is a sparse {X.shape} of {X.data.dtype}: it must be a table of real numbers")
        values = np.ascontiguousarray(X.data, dtype=kind)
        return X.indptr.astype(np.int64), np.ascontiguousarray(X.indices), values, int(X.shape[1])
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    dense = np.asarray(X)
    if dense.ndim != 2:
        raise ValueError(f"X has shape {dense.shape}: it must be a table [rows, columns]")
    if dense.dtype == object:
        # A table of several kinds of numbers, such as a data frame's.
        try:
            dense = dense.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("X holds objects that are not numbers: features must be numbers") from None
    if dense.dtype.kind not in "biuf":
        raise ValueError(f"X holds {dense.dtype}: features must be numbers")
    held = dense != 0
    indptr = np.r_[0, np.cumsum(held.sum(axis=1))]
    column = np.broadcast_to(np.arange(dense.shape[1], dtype=np.int32), dense.shape)[held]
    return indptr.astype(np.int64), column, dense[held].astype(kind), dense.shape[1]


def _check(indptr: Array, indices: Array, values: Array, width: int) -> None:
    if len(values) >= MANY:
        inside, finite = kernels.batching.faults(indices, values, width)
    else:
        inside = len(indices) == 0 or bool(indices.min() >= 0 and indices.max() < width)
        finite = bool(np.isfinite(values).all())
    if not inside:
        at = int(((indices < 0) | (indices >= width)).argmax())
        raise ValueError(f"{_cell(indptr, at)} has column {indices[at]}: X has {width} columns")
    if not finite:
        at = int((~np.isfinite(values)).argmax())
        raise ValueError(f"{_cell(indptr, at)}, column {indices[at]} is {values[at]}: it must be finite")


def _cell(indptr: Array, at: int) -> str:
    return f"row {int(np.searchsorted(indptr, at, side='right')) - 1}"


def _column(name: str, values: npt.ArrayLike, n: int) -> Array:
    column = np.asarray(values)
    if column.shape != (n,):
        raise ValueError(f"{name} has shape {column.shape}: X has {n} rows, so it must be ({n},)")
    return column


def _whole(name: str, values: npt.ArrayLike, n: int) -> Array:
    column = _column(name, values, n)
    if column.dtype.kind not in "biu":
        raise ValueError(f"{name} holds {column.dtype}: it must be whole numbers")
    return column.astype(np.int64, copy=False)


def _weights(weight: Array, kind: np.dtype[Any]) -> Array:
    if weight.dtype.kind not in "biuf":
        raise ValueError(f"weight holds {weight.dtype}: it must be numbers")
    fine = np.isfinite(weight) & (weight >= 0)
    if not fine.all():
        row = int((~fine).argmax())
        raise ValueError(f"weight of row {row} is {weight[row]}: it must be finite and 0 or more")
    return weight.astype(kind)
