"""Parsers of durations, sizes, schedules, read-outs and step sizes as users write them.

Each takes a string, as on the command line, or the value itself, as in Python.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from semicyclic.method.average import ReadOut
from semicyclic.method.step import RATE, Step, adagrad, constant, normalized
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timestamps import to_microseconds

SECONDS = {
    "us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86_400, "day": 86_400, "days": 86_400, "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip
BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
MOST = 400 * 366 * 86_400
# Read-outs: an example of their number, if they take one, and what they are.
READ_OUTS: dict[str, tuple[str | None, str]] = {
    "mean": (None, "mean of all iterates"),
    "last": (None, "last iterate"),
    "last-cycle": (None, "mean of the last cycle"),
    "tail": ("5", "mean of the last half of the cycles, or of the last 5"),
    "fading": ("7", "mean with weights that halve every 7 cycles"),
    "polynomial": ("3", "mean with weights that grow as the 3rd power of the step"),
}
# Step rules that have a name.
STEP_RULES: dict[str, Callable[[float], Step]] = {
    "normalized": normalized,
    "adaptive": adagrad,
    "constant": constant,
}


def parse_duration(name: str, text: str | timedelta) -> int:
    """Parse a duration, such as 10min, 1.5h, 1h30min or 0, to microseconds."""
    if isinstance(text, timedelta):
        if text < timedelta(0):
            raise ValueError(f"{name}={text!r}: must not be negative")
        return to_microseconds(text)
    if not isinstance(text, str):
        raise ValueError(f"{name}={text!r}: write a length of time, such as '2h', or give a timedelta")
    plain = text.strip().lower().replace(" ", "")
    if plain in ("0", ""):
        return 0
    parts = re.findall(r"([0-9]*\.?[0-9]+)([a-z]+)", plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise ValueError(f"{name}={text!r}: write a length of time, such as 30s, 10min, 2h or 1d")
    total = 0.0
    for number, unit in parts:
        if unit not in SECONDS:
            raise ValueError(f"{name}={text!r}: the unit {unit!r} is unknown: use s, min, h, d or w")
        total += float(number) * SECONDS[unit]
    if total > MOST:
        raise ValueError(f"{name}={text!r}: that is more than 400 years")
    return round(total * 1_000_000)


def parse_size(name: str, text: str | int) -> int:
    """Parse a size, such as 1GB, 512MB or a number, to bytes."""
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    if not isinstance(text, str):
        raise ValueError(f"{name}={text!r}: write a size, such as '1GB' or '512MB'")
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([a-z]*)", text.strip().lower())
    if not match or match[2] not in BYTES:
        raise ValueError(f"{name}={text!r}: write a size, such as 1GB or 512MB")
    return round(float(match[1]) * BYTES[match[2]])


def parse_schedule(name: str, text: str | Schedule, zone: str) -> Schedule:
    """Parse daily:6, daily:6,13:30,22, weekly:7, weekly:Mon 08:00,Sat 08:00, yearly:12 or every:90min:3."""
    if isinstance(text, Schedule):
        return text
    if not isinstance(text, str):
        raise ValueError(f"{name}={text!r}: give a Schedule, or write one, such as 'daily:6'")
    period_name, _, rest = text.partition(":")
    try:
        if period_name in ("daily", "weekly"):
            make = Schedule.daily if period_name == "daily" else Schedule.weekly
            return make(**_blocks(rest), zone=zone)
        if period_name == "yearly" and rest.isdecimal():
            return Schedule.yearly(int(rest), zone=zone)
        if period_name == "every":
            period, _, rest = rest.partition(":")
            ticks = parse_duration("period", period)
            return Schedule.every(timedelta(microseconds=ticks), **_blocks(rest), zone=zone)
    except ValueError as error:
        raise ValueError(f"{name}={text!r}: {error}") from None
    raise ValueError(
        f"{name}={text!r}: write daily:6, weekly:7, daily:06:00,13:30,22:00, yearly:12 or every:90min:3"
    )


def read_out_help() -> str:
    """Return all read-outs with their meaning, for help texts."""
    return ", ".join(
        f"{rule if example is None else f'{rule}, {rule}:{example}'} ({meaning})"
        for rule, (example, meaning) in READ_OUTS.items()
    )


def parse_read_out(name: str, text: str | ReadOut) -> ReadOut:
    """Parse a read-out, such as mean, tail, tail:5 or fading:7.5."""
    if isinstance(text, ReadOut):
        return text
    if not isinstance(text, str):
        raise ValueError(f"{name}={text!r}: write a read-out, such as 'mean' or 'tail:5'")
    rule, colon, number = text.partition(":")
    example, _ = READ_OUTS.get(rule, (None, ""))
    if rule in READ_OUTS and not colon:
        return ReadOut(rule)
    if rule == "tail" and number.isdecimal() and 0 < len(number.lstrip("0")) <= 9:
        return ReadOut(rule, int(number))
    is_number = re.fullmatch(r"[0-9]*\.?[0-9]+(e[+-]?[0-9]+)?", number)
    if rule != "tail" and example is not None and is_number and 0 < float(number) < 1e9:
        return ReadOut(rule, float(number))
    forms = [
        rule if example is None else f"{rule}, {rule}:{example}" for rule, (example, _) in READ_OUTS.items()
    ]
    raise ValueError(f"{name}={text!r}: write {', '.join(forms)}")


def parse_step(name: str, text: str | float | Step) -> Step:
    """Parse normalized or adaptive (AdaGrad), with a rate if another than .2, or a constant step size."""
    if isinstance(text, Step):
        return text
    is_number = isinstance(text, float | int | np.number) and not isinstance(text, bool)
    if not isinstance(text, str) and not is_number:
        raise ValueError(f"{name}={text!r}: give 'normalized', a number, or a rule of semicyclic.step")
    rule, colon, number = str(text).partition(":")
    if rule not in STEP_RULES or rule == "constant":
        rule, colon, number = "constant", ":", str(text)
    try:
        size = float(number) if colon else RATE
    except ValueError:
        raise ValueError(
            f"{name}={text!r}: write normalized, normalized:.5, adaptive, or a number such as .5"
        ) from None
    if not 0 < size < 1e6:
        raise ValueError(f"{name}={text!r}: must be positive")
    return STEP_RULES[rule](size)


def step_rule(step: Step) -> str | None:
    """Return the name of a step's rule in `STEP_RULES`; None if it has none."""
    return next((rule for rule, make in STEP_RULES.items() if make(step.size) == step), None)


def _blocks(text: str) -> dict[str, Any]:
    """Parse a number of equal blocks, or the starts of blocks."""
    if text.isdecimal():
        return {"blocks": int(text)}
    starts = [each.strip() for each in text.split(",") if each.strip()]
    if not starts:
        raise ValueError("say how many blocks, or where they start, such as daily:24")
    return {"edges": [int(each) if each.isdecimal() else each for each in starts]}
