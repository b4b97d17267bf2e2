"""Parsers of durations, sizes and schedules."""

import re

import pytest

import semicyclic as sc
from semicyclic import specs


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("0", 0),
        ("10min", 600),
        ("1.5h", 5400),
        ("1h30min", 5400),
        ("2d", 172_800),
        (" 30 s", 30),
        ("1w", 604_800),
    ],
)
def test_lengths_of_time(text: str, ticks: int) -> None:
    assert specs.parse_duration("x", text) == ticks * 1_000_000


@pytest.mark.parametrize("text", ["10", "min", "5 parsecs", "1h-3min", "1000000000d", "\u00b2s"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="x"):
        specs.parse_duration("x", text)


def test_sizes_and_schedules() -> None:
    assert specs.parse_size("m", "1GB") == 10**9
    assert specs.parse_size("m", "1.5 MiB") == 3 * 2**19
    assert specs.parse_schedule("schedule", "daily:6", "UTC") == sc.Schedule.daily(6)
    assert specs.parse_schedule("schedule", "weekly:7", "Asia/Tokyo") == sc.Schedule.weekly(
        7, zone="Asia/Tokyo"
    )
    assert specs.parse_schedule("schedule", "daily:6,13:30,22", "UTC") == sc.Schedule.daily(
        edges=["06:00", "13:30", "22:00"]
    )
    assert specs.parse_schedule("schedule", "weekly:Mon 08:00,Sat 08:00", "UTC").blocks == 2
    assert specs.parse_schedule("schedule", "every:90min:3", "UTC") == sc.Schedule.every(5400, 3)


@pytest.mark.parametrize(
    "text",
    [
        "mean",
        "last",
        "last-cycle",
        "tail",
        "fading",
        "tail:5",
        "fading:7.5",
        "polynomial",
        "polynomial:2",
        "fading:0.25",
        "tail:1000000",
        "fading:7.1234567",
    ],
)
def test_a_read_out_is_written_as_it_is_read(text: str) -> None:
    assert str(specs.parse_read_out("read_out", text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tail:",
        "tail:0",
        "tail:-1",
        "tail:1.5",
        "tail:x",
        "fading:0",
        "fading:nan",
        "mean:3",
        "tail:" + "9" * 400,
        "tail: 5",
        "tail:+5",
        "tail:1_0",
        "fading:inf",
    ],
)
def test_what_is_no_read_out_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"read_out={text!r}: write mean, last")):
        specs.parse_read_out("read_out", text)


def test_steps_are_read_as_values() -> None:
    assert specs.parse_step("step_size", "adaptive") == sc.step.adagrad(0.2)
    assert specs.parse_step("step_size", "adaptive:.5") == sc.step.adagrad(0.5)
    assert specs.parse_step("step_size", "normalized") == sc.step.normalized()
    assert specs.parse_step("step_size", "normalized:.5") == sc.step.normalized(0.5)
    assert specs.parse_step("step_size", ".25") == sc.step.constant(0.25)
    for text in ("", "adaptive:x", "adaptive:0", "normalized:-1", "-1", "fast", "inf"):
        with pytest.raises(ValueError, match="step_size="):
            specs.parse_step("step_size", text)
