"""Block edges as users write them: a number of equal parts, start times, or pairs."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from semicyclic.schedule.timestamps import to_microseconds
from semicyclic.schedule.timezones import SECOND

Edge = float | str | timedelta
Edges = Sequence[Edge] | Sequence[tuple[Edge, Edge]] | Mapping[str, tuple[Edge, Edge]]
Blocks = tuple[tuple[int, ...], tuple[str, ...]]

DAY = 86_400 * SECOND
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def build(period: int, blocks: int | None, edges: Edges | None) -> Blocks:
    """Return the starts of blocks, in microseconds into the period, and their labels."""
    if period <= 0:
        raise ValueError("the period must be positive")
    if (blocks is None) == (edges is None):
        raise ValueError("give either blocks=, for equal blocks, or edges=")
    if blocks is not None:
        if blocks != int(blocks) or not 1 <= blocks <= 10**6:
            raise ValueError(f"blocks={blocks!r}: must be a whole number from 1 to a million")
        blocks = int(blocks)
        starts = [index * period // blocks for index in range(blocks)]
        return tuple(starts), _labels(starts, period)
    assert edges is not None
    if len(edges) == 0:
        raise ValueError("edges is empty: a schedule needs at least one block")
    if isinstance(edges, Mapping):
        return _from_pairs(period, list(edges.values()), tuple(map(str, edges)))
    if isinstance(edges[0], tuple | list):
        return _from_pairs(period, list(edges), None)
    starts = [_offset(edge, period) for edge in list(edges)]  # type: ignore[arg-type]
    if any(b <= a for a, b in pairwise(starts)):
        raise ValueError(f"edges={list(edges)!r}: starts must increase and lie within the period")
    return tuple(starts), _labels(starts, period)


def _from_pairs(period: int, pairs: list[Any], labels: tuple[str, ...] | None) -> Blocks:
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"edges={pairs!r}: each block is a pair (start, end)")
    spans = [(_offset(start, period), _offset(end, period)) for start, end in pairs]
    order = sorted(range(len(spans)), key=lambda index: spans[index][0])
    for here, after in zip(order, [*order[1:], *order[:1]], strict=True):
        end, start = spans[here][1], spans[after][0]
        if end != start:
            # Where a block's end lies beyond the next one's start, going round from its own start.
            length = (end - spans[here][0]) % period or period
            room = (start - spans[here][0]) % period
            fault = "overlap" if length > room else "leave a gap"
            raise ValueError(
                f"edges: block {pairs[here]!r} and block {pairs[after]!r} {fault}: each block "
                "must end where the next begins"
            )
    starts = [start for start, _ in spans]
    return tuple(starts), labels or _labels(starts, period)


def _offset(edge: Edge, period: int) -> int:
    """Convert an edge (hours, a timedelta, "06:30" or "Sat 08:00") to microseconds into the period."""
    if isinstance(edge, timedelta):
        ticks = to_microseconds(edge)
    elif isinstance(edge, str):
        ticks = _parse(edge)
    else:
        ticks = round(edge * 3600 * SECOND)
    if not 0 <= ticks <= period:
        raise ValueError(f"edge {edge!r} lies outside the period of {_clock(period)}")
    return ticks % period


def _parse(edge: str) -> int:
    try:
        *name, clock = edge.split()
        days = WEEKDAYS.index(name[0].lower()) if name else 0
        parts = [int(part) for part in clock.split(":")]
        hours, minutes, seconds = [*parts, 0, 0][: max(3, len(parts))]
        if not (0 <= minutes < 60 and 0 <= seconds < 60 and hours >= 0):
            raise ValueError
    except ValueError:
        raise ValueError(f"edge {edge!r}: write it as '06:30' or, in a week, 'Sat 08:00'") from None
    return days * DAY + (hours * 3600 + minutes * 60 + seconds) * SECOND


def _clock(ticks: int) -> str:
    seconds, rest = divmod(ticks, SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or rest:
        text += f":{seconds % 60:02}" + (f".{rest:06}" if rest else "")
    return text


def _label(ticks: int, period: int) -> str:
    if period == 7 * DAY:
        days, rest = divmod(ticks, DAY)
        return f"{WEEKDAYS[days % 7].title()} {_clock(rest)}"
    return _clock(ticks)


def _labels(starts: list[int], period: int) -> tuple[str, ...]:
    """Label each block by its start and end."""
    order = sorted(starts)
    following = dict(zip(order, [*order[1:], order[0] or period], strict=True))
    return tuple(f"{_label(start, period)}-{_label(following[start], period)}" for start in starts)
