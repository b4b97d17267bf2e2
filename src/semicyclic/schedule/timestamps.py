"""Timestamps as users write them, converted to microseconds since 1970 UTC."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from semicyclic.schedule.timezones import EPOCH, SECOND, from_wall, zone_info
from semicyclic.types import Array


def instants(
    when: object, *, zone: str | None = None, ambiguous: str = "earlier", missing: str = "shift"
) -> Array:
    """Convert aware, epoch or (with `zone`) naive times to microseconds since 1970 UTC."""
    ticks, naive = _ticks(when)
    if not naive:
        return ticks
    if zone is None:
        raise ValueError(
            "these times are naive: say which zone they were written in, such as zone='UTC' or "
            "zone='America/New_York'"
        )
    zone_info(zone)
    return from_wall(zone, ticks, ambiguous=ambiguous, missing=missing).ticks


def _ticks(when: Any) -> tuple[Array, bool]:
    """Microseconds since 1970, and whether the times are naive."""
    zoned = _from_zoned_column(when)
    if zoned is not None:
        return zoned.astype("datetime64[us]").astype(np.int64), False
    array = np.atleast_1d(np.asarray(when))
    if array.ndim != 1:
        raise ValueError(f"when has shape {array.shape}: give one time per row")
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise ValueError(f"row {int(np.isnat(array).argmax())}: the time is missing (NaT)")
        return array.astype("datetime64[us]").astype(np.int64), True
    if array.dtype.kind in "iu":
        # Years beyond the calendar would wrap around in microseconds.
        _check_range(array)
        return array.astype(np.int64) * SECOND, False
    if array.dtype.kind == "f":
        _check_range(array)
        return np.round(array * SECOND).astype(np.int64), False
    if array.dtype == object and all(isinstance(each, datetime) for each in array):
        return _from_datetimes(array)
    if len(array) == 0:
        return np.zeros(0, np.int64), False
    raise ValueError(
        f"when has type {type(array[0]).__name__}: give datetimes, a datetime64 array or epoch seconds"
    )


def _from_zoned_column(when: Any) -> Array | None:
    """UTC times of a pandas or Polars column with a time zone; None for other columns."""
    dtype = getattr(when, "dtype", None)
    if getattr(dtype, "tz", None) is not None:
        times = when.to_numpy(dtype="datetime64[us]")
    elif getattr(dtype, "time_zone", None) is not None:
        times = when.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
    else:
        return None
    if np.isnat(times).any():
        raise ValueError(f"row {int(np.isnat(times).argmax())}: the time is missing (NaT)")
    return np.asarray(times)


def _check_range(seconds: Array) -> None:
    with np.errstate(invalid="ignore"):
        fine = np.isfinite(seconds) & (np.abs(seconds) < 1e12)
    if not fine.all():
        row = int((~fine).argmax())
        raise ValueError(
            f"row {row}: {seconds[row]} is not a time in epoch seconds (milliseconds must be divided by 1000)"
        )


def _from_datetimes(when: Iterable[datetime]) -> tuple[Array, bool]:
    aware = [each.utcoffset() is not None for each in when]
    if any(aware) != all(aware):
        raise ValueError("some of these times have a zone and some have none: make them alike")
    naive = not all(aware)
    start = EPOCH.replace(tzinfo=None) if naive else EPOCH
    return np.array([to_microseconds(each - start) for each in when], dtype=np.int64), naive


def to_microseconds(length: timedelta) -> int:
    """Convert a timedelta to microseconds."""
    return length // timedelta(microseconds=1)
