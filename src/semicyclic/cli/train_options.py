"""Conversion of the options of `semicyclic train` to a `TrainConfig`."""

from typing import Any

from semicyclic import method, schedule, specs, tables, training


def train_config(given: dict[str, Any]) -> "training.config.TrainConfig":
    """Check the options and return the settings of the run.

    given: option values by parameter name.
    """

    when = [name for names in given["when"] for name in names.split(",")]
    if len(when) not in (1, 2):
        raise ValueError(f"--when {' '.join(when)}: give one column, or two: a date and an hour")
    columns_by_kind = {kind: tuple(given[kind] or ()) for kind in ("number", "category", "text", "ignore")}
    all_columns = [name for names in columns_by_kind.values() for name in names]
    for name in all_columns:
        if all_columns.count(name) > 1:
            raise ValueError(
                f"column {name!r} is named twice among --number, --category, --text and --ignore"
            )
    if given["batch_size"] < 1:
        raise ValueError(f"--batch-size {given['batch_size']}: must be at least 1")
    if given["bins"] < 1 or given["bins"] > 1000:
        raise ValueError(f"--bins {given['bins']}: must be from 1 to 1000")
    if given["bits"] is not None and not 4 <= given["bits"] <= 24:
        raise ValueError(f"--bits {given['bits']}: must be from 4 to 24")
    try:
        schedule.timezones.zone_info(given["zone"])
    except ValueError as error:
        raise ValueError(f"--zone {given['zone']}: {error}") from None
    if given["when_format"] is not None and "%" not in given["when_format"]:
        raise ValueError(
            f"--when-format {given['when_format']}: write it with % signs, such as '%d.%m.%Y %H:%M'"
        )
    memory = specs.parse_size("--memory", given["memory"])
    if memory < 64 * 10**6:
        raise ValueError(f"--memory {given['memory']}: must be at least 64MB")
    if given["loss"] is not None:
        method.loss.by_name(given["loss"])
    step, read_out = _parse_step(given["step_size"]), _check_read_out(given["read_out"])
    if given["method"] == "auto":
        _check_auto_defaults(given)
    return training.config.TrainConfig(
        tables.columns.ColumnRequest(
            tuple(when), given["label"], given["zone"], given["when_format"], **columns_by_kind
        ),
        specs.parse_schedule("--schedule", given["schedule"], given["zone"]),
        method=given["method"],
        loss=given["loss"],
        classes=tuple(given["classes"] or ()),
        step=step,
        batch_size=given["batch_size"],
        lateness=specs.parse_duration("--lateness", given["lateness"]),
        late=tables.watermark.LatePolicy(given["late"]),
        skip=given["on_error"] == "skip",
        label_delay=specs.parse_duration("--label-delay", given["label_delay"]),
        memory=memory,
        bits=given["bits"],
        bins=given["bins"],
        first_pass=given["first_pass"],
        read_out=read_out,
    )


def _check_auto_defaults(given: dict[str, Any]) -> None:
    """Raise if an option is set that method `auto` tries many values of."""
    for name, default in (("step_size", "adaptive"), ("batch_size", 16), ("read_out", "mean")):
        if given[name] != default:
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} {given[name]}: --method auto tries many of these: name a method of which there "
                "is one, such as --method hedged"
            )


def _parse_step(text: str) -> tuple[str, float]:
    """Return ("adaptive", rate) or ("constant", step size)."""
    rule, _, rate = text.partition(":")
    try:
        step = ("adaptive", float(rate or 0.2)) if rule == "adaptive" else ("constant", float(text))
    except ValueError:
        raise ValueError(f"--step-size {text}: write adaptive, adaptive:.5 or a number such as .5") from None
    if not 0 < step[1] < 1e6:
        raise ValueError(f"--step-size {text}: must be positive")
    return step


def _check_read_out(text: str) -> str:
    """Return the read-out unchanged; raise if it is unknown or its number of cycles is not positive."""
    rule, _, cycles = text.partition(":")
    if (rule in ("mean", "last") and not cycles) or (
        rule == "tail" and cycles.isdecimal() and int(cycles) > 0
    ):
        return text
    try:
        if rule == "fading" and float(cycles) > 0:
            return text
    except ValueError:
        pass
    raise ValueError(f"--read-out {text}: write mean, last, tail:5 or fading:5")
