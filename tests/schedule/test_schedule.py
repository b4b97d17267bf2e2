"""Schedules: total, periodic in wall time, and right across both daylight-saving changes."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.schedule import schedule as module
from semicyclic.schedule import timezones as zones
from semicyclic.schedule.block_edges import DAY, Edge
from semicyclic.schedule.numbered import Numbered, as_schedule
from semicyclic.schedule.schedule import MANY
from semicyclic.specs import parse_schedule

Schedule = sc.Schedule
ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/St_Johns",
]
MONDAY = date(1970, 1, 5)
instants = st.datetimes(datetime(1925, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


def slowly(schedule: Schedule, instant: datetime) -> tuple[int, int]:
    """(cycle, block) by Python's own calendar, one moment at a time."""
    local = instant.astimezone(ZoneInfo(schedule.zone)).replace(tzinfo=None)
    days = (local.date() - date(1970, 1, 1)).days
    inside = (local - datetime.combine(local.date(), datetime.min.time())) // timedelta(microseconds=1)
    if schedule.period == DAY:
        cycle = days
    else:
        cycle = (days + 3) // 7
        inside += local.weekday() * DAY
    order = sorted(range(schedule.blocks), key=lambda i: schedule.starts[i])
    begun = [i for i in order if schedule.starts[i] <= inside]
    return cycle, begun[-1] if begun else order[-1]


schedules = st.builds(
    lambda kind, blocks, edges, zone: (
        getattr(Schedule, kind)(blocks, zone=zone)
        if blocks
        else getattr(Schedule, kind)(edges=sorted(edges), zone=zone)
    ),
    st.sampled_from(["daily", "weekly"]),
    st.sampled_from([0, 1, 2, 6, 7, 24, 1440]),
    st.sets(st.integers(0, 23), min_size=1, max_size=5),
    st.sampled_from(ZONES),
)


@given(schedules, st.lists(instants, min_size=1, max_size=20))
@settings(max_examples=150, deadline=None)
def test_locate_is_total_and_agrees_with_the_calendar(schedule: Schedule, moments: list[datetime]) -> None:
    cycle, block = schedule.locate(moments)
    assert list(zip(cycle, block, strict=True)) == [slowly(schedule, each) for each in moments]


@given(schedules, st.lists(instants, min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_the_compiled_locate_equals_the_plain_one(schedule: Schedule, moments: list[datetime]) -> None:
    plain = schedule.locate(moments)
    many, module.MANY = module.MANY, 1
    try:
        compiled = schedule.locate(moments)
    finally:
        module.MANY = many
    assert np.array_equal(plain.cycle, compiled.cycle)
    assert np.array_equal(plain.block, compiled.block)


@given(st.sampled_from(ZONES[1:]), st.integers(1950, 2060))
@settings(max_examples=40, deadline=None)
def test_every_change_of_the_clock_is_found_to_the_second(zone: str, year: int) -> None:
    info = ZoneInfo(zone)
    first = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * zones.SECOND
    table = zones.changes(zone, first, first + 366 * DAY)
    for at, before, after in zip(table.at[1:], table.offset[:-1], table.offset[1:], strict=True):
        instant = zones.EPOCH + timedelta(microseconds=int(at))
        tick = timedelta(microseconds=1)
        assert instant.astimezone(info).utcoffset() == int(after) * tick
        assert (instant - timedelta(seconds=1)).astimezone(info).utcoffset() == int(before) * tick


@given(schedules, st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_blocks_are_periodic_in_wall_time(schedule: Schedule, seconds: int) -> None:
    wall = np.datetime64(0, "us") + np.timedelta64(seconds % 4_000_000_000, "s")
    later = wall + np.timedelta64(schedule.period, "us")
    fixed = Schedule(schedule.period, schedule.starts, schedule.labels, "UTC", schedule.origin)
    one, other = fixed.locate(wall, zone="UTC"), fixed.locate(later, zone="UTC")
    assert one.block[0] == other.block[0]
    assert one.cycle[0] + 1 == other.cycle[0]


def test_start_is_inclusive_and_end_exclusive() -> None:
    schedule = Schedule.daily(6)
    day = datetime(2026, 3, 1, tzinfo=UTC)
    moments = [day, day + timedelta(hours=4) - timedelta(microseconds=1), day + timedelta(hours=4)]
    assert schedule.locate(moments).block.tolist() == [0, 0, 1]
    assert schedule.labels[:2] == ("00:00-04:00", "04:00-08:00")
    assert schedule.labels[-1] == "20:00-24:00"


def test_a_block_may_cross_midnight_and_the_cycle_is_the_local_date() -> None:
    schedule = Schedule.daily(edges={"night": ("22:00", "06:00"), "day": ("06:00", "22:00")})
    evening = datetime(2026, 3, 1, 23, tzinfo=UTC)
    found = schedule.locate([evening, evening + timedelta(hours=2), evening + timedelta(hours=8)])
    assert found.block.tolist() == [0, 0, 1]
    assert np.diff(found.cycle).tolist() == [1, 0]


def test_edges_may_be_starts_pairs_or_labelled_and_of_several_kinds() -> None:
    mixed: list[Edge] = [0, "07:30", timedelta(hours=19)]
    starts = Schedule.daily(edges=mixed)
    both: list[tuple[Edge, Edge]] = [(0, "07:30"), ("07:30", 19), (19, 24)]
    pairs = Schedule.daily(edges=both)
    assert starts == pairs
    assert starts.labels == ("00:00-07:30", "07:30-19:00", "19:00-24:00")
    week = Schedule.weekly(edges={"week": ("Mon 06:00", "Sat 00:00"), "weekend": ("Sat 00:00", "Mon 06:00")})
    friday, monday = datetime(2026, 3, 6, 23, tzinfo=UTC), datetime(2026, 3, 9, 5, tzinfo=UTC)
    assert week.locate([friday, monday]).block.tolist() == [0, 1]
    assert Schedule.weekly(7).labels[0] == "Mon 00:00-Tue 00:00"
    assert Schedule.daily(edges=[6]).blocks == 1


def test_the_clock_goes_back_one_block_twice_in_one_cycle() -> None:
    schedule = Schedule.daily(24, zone="Europe/Berlin")
    start = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)  # 02:00 summer time
    hours = [start + timedelta(minutes=30 * k) for k in range(-2, 6)]
    found = schedule.locate(hours)
    assert found.block.tolist() == [1, 1, 2, 2, 2, 2, 3, 3]
    runs = sc.visits(*found)
    assert runs.block.tolist() == [1, 2, 3]
    assert len(set(found.cycle)) == 1
    # Blocks of half an hour: the second half is left and entered again, two visits each.
    halves = sc.visits(*Schedule.daily(48, zone="Europe/Berlin").locate(hours))
    assert halves.block.tolist() == [2, 3, 4, 5, 4, 5, 6, 7]


def test_the_clock_goes_forward_and_a_block_is_left_out() -> None:
    schedule = Schedule.daily(24, zone="America/New_York")
    start = datetime(2026, 3, 8, 6, 0, tzinfo=UTC)  # 01:00 winter time
    found = schedule.locate([start + timedelta(minutes=30 * k) for k in range(4)])
    assert found.block.tolist() == [1, 1, 3, 3]


def test_a_naive_time_needs_a_zone() -> None:
    schedule = Schedule.daily(24, zone="America/New_York")
    noon = np.array(["2026-07-01T12:00"], dtype="datetime64[us]")
    with pytest.raises(ValueError, match="say which zone they were written in"):
        schedule.locate(noon)
    with pytest.raises(ValueError, match="say which zone"):
        schedule.locate([datetime(2026, 7, 1, 12)])
    assert schedule.locate(noon, zone="UTC").block[0] == 8
    assert schedule.locate(noon, zone="America/New_York").block[0] == 12
    assert schedule.locate(noon, zone="Europe/Berlin").block[0] == 6


def test_an_ambiguous_or_missing_hour_follows_the_stated_rule() -> None:
    zone = "America/New_York"
    utc = Schedule.daily(24)
    twice = np.datetime64("2026-11-01T01:30")
    never = np.datetime64("2026-03-08T02:30")
    assert utc.locate(twice, zone=zone).block[0] == 5
    assert utc.locate(twice, zone=zone, ambiguous="later").block[0] == 6
    assert utc.locate(never, zone=zone).block[0] == 7
    assert Schedule.daily(24, zone=zone).locate(never, zone=zone).block[0] == 3
    with pytest.raises(ValueError, match=r"row 0: local time 2026-11-01T01:30.* happened twice in America"):
        utc.locate(twice, zone=zone, ambiguous="raise")
    with pytest.raises(ValueError, match="happened never in America/New_York"):
        utc.locate(never, zone=zone, missing="raise")
    for bad in ({"ambiguous": "x"}, {"missing": "x"}):
        with pytest.raises(ValueError, match="choose"):
            utc.locate(twice, zone=zone, **bad)


@given(st.sampled_from(ZONES), instants)
@settings(max_examples=150, deadline=None)
def test_naive_times_are_read_as_python_reads_them(zone: str, instant: datetime) -> None:
    info = ZoneInfo(zone)
    wall = instant.replace(tzinfo=None)
    for fold, rule in ((0, "earlier"), (1, "later")):
        there = wall.replace(tzinfo=info, fold=fold)
        # A missing hour does not come back as it was; Python shifts it by fold, we always forward.
        exists = there.astimezone(UTC).astimezone(info).replace(tzinfo=None) == wall
        if exists or fold == 0:
            found = sc.schedule.timestamps.instants(np.datetime64(wall), zone=zone, ambiguous=rule)
            assert found[0] == (there - zones.EPOCH) // timedelta(microseconds=1)


def test_times_may_be_epochs_aware_or_of_any_unit() -> None:
    schedule = Schedule.daily(24)
    moment = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
    seconds = moment.timestamp()
    for when in (
        moment,
        [moment.astimezone(ZoneInfo("Asia/Tokyo"))],
        int(seconds),
        np.array([seconds + 0.25]),
        np.array([int(seconds)], dtype=np.uint32),
    ):
        assert schedule.locate(when).block[0] == 12
    for unit in ("s", "ms", "us", "ns"):
        assert (
            schedule.locate(np.array([int(seconds)], "M8[s]").astype(f"M8[{unit}]"), zone="UTC").block[0]
            == 12
        )


def test_columns_of_pandas_and_polars_know_their_zone() -> None:
    schedule = Schedule.daily(24)
    tokyo = ZoneInfo("Asia/Tokyo")
    moments = [datetime(2026, 7, 1, 21, 30, tzinfo=tokyo), datetime(2026, 7, 2, 6, tzinfo=tokyo)]
    series = pd.Series(moments)
    for when in (
        series,
        pd.DatetimeIndex(moments),
        pl.Series(moments),
        series.astype("datetime64[ns, Asia/Tokyo]"),
    ):
        assert schedule.locate(when).block.tolist() == [12, 21]
    naive = series.dt.tz_localize(None)
    assert schedule.locate(naive, zone="Asia/Tokyo").block.tolist() == [12, 21]
    with pytest.raises(ValueError, match="say which zone"):
        schedule.locate(naive)
    with pytest.raises(ValueError, match="row 1: the time is missing"):
        schedule.locate(pd.Series([moments[0], None]))


NAIVE = datetime(2026, 1, 1)
BAD_TIMES: list[tuple[Any, str]] = [
    (np.array(["NaT"], "M8[us]"), "row 0: the time is missing"),
    ([1.0, np.nan], "row 1: nan is not a time"),
    ([1_700_000_000_000], "milliseconds must be divided by 1000"),
    (["2026-01-01"], "when has type str_"),
    ([NAIVE, NAIVE.replace(tzinfo=UTC)], "some of these times have a zone and some have none"),
    (np.zeros((2, 2)), "one time per row"),
    ([-9e11], "outside the years 2 to 9996"),
]


@pytest.mark.parametrize(("when", "sentence"), BAD_TIMES)
def test_what_is_not_a_time_is_refused(when: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Schedule.daily(6, zone="Europe/Berlin").locate(when)


BAD_SCHEDULES: list[tuple[dict[str, Any], str]] = [
    ({"blocks": 0}, "blocks=0: must be a whole number from 1"),
    ({}, "give either blocks=, for equal blocks, or edges="),
    ({"blocks": 2, "edges": [0, 12]}, "give either"),
    ({"edges": []}, "at least one block"),
    ({"edges": [6, 5]}, "starts must increase"),
    ({"edges": [0, 25]}, "edge 25 lies outside the period of 24:00"),
    ({"edges": ["06:99"]}, "write it as '06:30'"),
    ({"edges": [""]}, "write it as '06:30'"),
    ({"edges": [(0, 12), (11, 24)]}, r"\(0, 12\) and block \(11, 24\) overlap"),
    ({"edges": [(0, 12), (13, 24)]}, "leave a gap"),
    ({"edges": {"a": (0, 12), "b": (0, 12)}}, "overlap"),
    ({"edges": [(0, 12, 3)]}, "each block is a pair"),
    ({"blocks": 2, "zone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_SCHEDULES)
def test_a_wrong_schedule_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Schedule.daily(**arguments)


def test_any_period_counts_from_its_origin() -> None:
    shift = Schedule.every(timedelta(hours=8), 2, origin=datetime(2026, 3, 1, 6))
    start = datetime(2026, 3, 1, 6, tzinfo=UTC)
    found = shift.locate([start + timedelta(hours=h) for h in (-1, 0, 3, 4, 8)])
    assert found.cycle.tolist() == [-1, 0, 0, 0, 1]
    assert found.block.tolist() == [1, 0, 0, 1, 0]
    assert Schedule.every(3600, 4).period == 3600 * zones.SECOND
    with pytest.raises(ValueError, match="period"):
        Schedule.every(-1, edges=[0])


@given(schedules)
def test_a_schedule_survives_json(schedule: Schedule) -> None:
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


@pytest.mark.parametrize("change", [{"zone": None}, {"starts": 3}, {"labels": ["a"]}, {"starts": [-1, 5]}])
def test_what_is_not_a_schedule_is_refused(change: dict[str, Any]) -> None:
    value = {**Schedule.daily(2).to_json(), **change}
    with pytest.raises(ValueError, match=r"schedule|zone|labels|within"):
        Schedule.from_json(value)
    with pytest.raises(ValueError, match="not a schedule"):
        Schedule.from_json({})


@given(schedules, st.lists(instants, min_size=1, max_size=5), st.integers(1, 30 * 3600))
@settings(max_examples=60, deadline=None)
def test_soft_membership_is_the_share_of_a_window(
    schedule: Schedule, moments: list[datetime], seconds: int
) -> None:
    share = schedule.membership(moments, width=timedelta(seconds=seconds))
    assert share.shape == (len(moments), schedule.blocks)
    assert np.allclose(share.sum(axis=1), 1)
    assert (share >= 0).all()
    narrow = schedule.membership(moments, width=timedelta(microseconds=1))
    assert np.array_equal(narrow.argmax(axis=1), schedule.locate(moments).block)


def test_soft_membership_near_an_edge_is_shared_by_its_neighbors() -> None:
    schedule = Schedule.daily(edges={"night": (22, 6), "day": (6, 22)})
    edge = datetime(2026, 3, 1, 6, tzinfo=UTC)
    found = schedule.membership([edge, edge - timedelta(hours=1)], width=timedelta(hours=4))
    assert np.allclose(found, [[0.5, 0.5], [0.75, 0.25]])
    midnight = schedule.membership([datetime(2026, 3, 1, tzinfo=UTC)], width=timedelta(hours=4))
    assert np.allclose(midnight, [[1, 0]])
    with pytest.raises(ValueError, match="must be positive"):
        schedule.membership([edge], width=timedelta(0))


def test_visits_are_maximal_runs() -> None:
    runs = sc.visits([0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 0])
    assert runs.start.tolist() == [0, 1, 3, 4, 6]
    assert runs.cycle.tolist() == [0, 0, 1, 1]
    assert sc.visits([0, 1, 2], [0, 0, 0]).start.tolist() == [0, 1, 2, 3]
    assert sc.visits([], []).start.tolist() == [0]
    with pytest.raises(ValueError, match="one of each per row"):
        sc.visits([0, 1], [0])


def test_many_sorted_and_shuffled_moments_are_located_alike() -> None:
    rng = np.random.default_rng(0)
    ticks = np.sort(rng.integers(0, 2**51, module.MANY + 10))
    order = rng.permutation(len(ticks))
    schedule = Schedule.weekly(edges=["Mon 06:00", "Fri 18:00"], zone="Europe/Berlin")
    one, other = schedule.place(ticks), schedule.place(ticks[order])
    assert np.array_equal(one.cycle[order], other.cycle)
    assert np.array_equal(one.block[order], other.block)


def test_the_compiled_locate_is_right_at_the_very_instant_of_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = 1_772_953_200  # 8 March 2026, 07:00 UTC: 02:00 becomes 03:00 in New York
    schedule = Schedule.daily(24, zone="America/New_York")
    when = [change - 3 * 86_400, change - 1, change, change + 1]
    plain = schedule.locate(when).block.tolist()
    monkeypatch.setattr(module, "MANY", 1)
    assert schedule.locate(when).block.tolist() == plain == [2, 1, 3, 3]


@pytest.mark.parametrize("period", [timedelta(hours=7), timedelta(minutes=49), timedelta(microseconds=3)])
@pytest.mark.parametrize("blocks", [1, 3, 7])
def test_exact_multiples_of_odd_periods_begin_a_cycle(period: timedelta, blocks: int) -> None:
    """The compiled `locate` multiplies by the inverse of the period, which may round to the cycle before."""
    ticks = period // timedelta(microseconds=1)
    if ticks % blocks:
        blocks = 1
    schedule = Schedule.every(period, blocks)
    most = min(10**7, 100 * 366 * DAY // ticks)
    turns = np.r_[np.arange(-40_000, 40_000), np.random.default_rng(0).integers(-most // 10, most, 20_000)]
    width = ticks // blocks
    for offset in (0, -1, width, width - 1):
        instants = turns * ticks + offset
        assert len(instants) >= MANY  # located by compiled code
        cycle, block = schedule.place(instants)
        assert np.array_equal(cycle, instants // ticks)
        assert np.array_equal(block, instants % ticks // width)


def test_numbered_blocks_are_a_schedule_without_times() -> None:
    assert as_schedule(3) == Numbered(3)
    assert as_schedule(Numbered(3)) is not as_schedule(3)
    assert Numbered(2).labels == ("0", "1")
    assert Numbered(2).to_json() == 2
    for wrong in (0, -1, True, 2.0, "daily", None):
        with pytest.raises(ValueError, match="give a Schedule, or the number of blocks"):
            as_schedule(wrong)  # type: ignore[arg-type]


def test_a_year_has_blocks_that_begin_as_in_a_calendar() -> None:
    """Within two days, over leap years; the middle of a month is in its block."""
    months = sc.Schedule.yearly()
    assert months.labels[:3] == ("from 1 Jan", "from 31 Jan", "from 2 Mar")
    for year in range(1901, 2200):
        days = [datetime(year, month, 16, tzinfo=UTC) for month in range(1, 13)]
        found = months.locate(days)
        assert found.block.tolist() == list(range(12))
        assert (found.cycle == year - 2001).all()
    with pytest.raises(ValueError, match="a year has 1 to 365 blocks"):
        sc.Schedule.yearly(366)
    assert parse_schedule("schedule", "yearly:4", "Asia/Tokyo") == sc.Schedule.yearly(4, zone="Asia/Tokyo")
    assert len(set(sc.Schedule.yearly(365).labels)) == 365
