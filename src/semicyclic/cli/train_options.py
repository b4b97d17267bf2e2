"""From the options of `semicyclic train` to a `TrainConfig`."""

from typing import Any

from semicyclic import method, schedule, specs, tables, training


def train_config(told: dict[str, Any]) -> "training.config.TrainConfig":
    """The job that the options tell, by their names."""

    when = [name for each in told["when"] for name in each.split(",")]
    if len(when) not in (1, 2):
        raise ValueError(f"--when {' '.join(when)}: give one column, or two: a date and an hour")
    kinds = {kind: tuple(told[kind] or ()) for kind in ("number", "category", "text", "ignore")}
    twice = [name for names in kinds.values() for name in names]
    for name in twice:
        if twice.count(name) > 1:
            raise ValueError(
                f"column {name!r} is named twice among --number, --category, --text and --ignore"
            )
    if told["batch_size"] < 1:
        raise ValueError(f"--batch-size {told['batch_size']}: must be at least 1")
    if told["bins"] < 1 or told["bins"] > 1000:
        raise ValueError(f"--bins {told['bins']}: must be from 1 to 1000")
    if told["bits"] is not None and not 4 <= told["bits"] <= 24:
        raise ValueError(f"--bits {told['bits']}: must be from 4 to 24")
    try:
        schedule.timezones.zone_info(told["zone"])
    except ValueError as error:
        raise ValueError(f"--zone {told['zone']}: {error}") from None
    if told["when_format"] is not None and "%" not in told["when_format"]:
        raise ValueError(
            f"--when-format {told['when_format']}: write it with % signs, such as '%d.%m.%Y %H:%M'"
        )
    memory = specs.parse_size("--memory", told["memory"])
    if memory < 64 * 10**6:
        raise ValueError(f"--memory {told['memory']}: must be at least 64MB")
    if told["loss"] is not None:
        method.loss.by_name(told["loss"])
    step, read_out = _step(told["step_size"]), _read_out(told["read_out"])
    if told["method"] == "auto":
        _check_free(told)
    return training.config.TrainConfig(
        tables.columns.ColumnRequest(tuple(when), told["label"], told["zone"], told["when_format"], **kinds),
        specs.parse_schedule("--schedule", told["schedule"], told["zone"]),
        method=told["method"],
        loss=told["loss"],
        classes=tuple(told["classes"] or ()),
        step=step,
        batch_size=told["batch_size"],
        lateness=specs.parse_duration("--lateness", told["lateness"]),
        late=tables.watermark.LatePolicy(told["late"]),
        skip=told["on_error"] == "skip",
        label_delay=specs.parse_duration("--label-delay", told["label_delay"]),
        memory=memory,
        bits=told["bits"],
        bins=told["bins"],
        first_pass=told["first_pass"],
        read_out=read_out,
    )


def _check_free(told: dict[str, Any]) -> None:
    """What `auto` tries all of cannot be told as well."""
    for name, usual in (("step_size", "adaptive"), ("batch_size", 16), ("read_out", "mean")):
        if told[name] != usual:
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} {told[name]}: --method auto tries many of these: name a method of which there "
                "is one, such as --method hedged"
            )


def _step(text: str) -> tuple[str, float]:
    kind, _, rest = text.partition(":")
    try:
        found = ("adaptive", float(rest or 0.2)) if kind == "adaptive" else ("constant", float(text))
    except ValueError:
        raise ValueError(f"--step-size {text}: write adaptive, adaptive:.5 or a number such as .5") from None
    if not 0 < found[1] < 1e6:
        raise ValueError(f"--step-size {text}: must be positive")
    return found


def _read_out(text: str) -> str:
    kind, _, rest = text.partition(":")
    if (kind in ("mean", "last") and not rest) or (kind == "tail" and rest.isdecimal() and int(rest) > 0):
        return text
    try:
        if kind == "fading" and float(rest) > 0:
            return text
    except ValueError:
        pass
    raise ValueError(f"--read-out {text}: write mean, last, tail:5 or fading:5")
