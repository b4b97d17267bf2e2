"""Training and models, shown on a terminal; in a pipe without progress."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from semicyclic.data.labels import class_name
from semicyclic.show import terminal

if TYPE_CHECKING:
    from semicyclic.stream.training import News

Results = Mapping[str, Any]


TITLES = {
    "trained": "Progressive loss of the chain",
    "model": "Progressive loss of its chain",
    "forward": "Loss of the models of the last midnight",
    "progressive": "Progressive loss",
}


def _most(chosen: Results) -> str:
    """The candidates that weigh most over all blocks."""
    total: dict[str, float] = {}
    for block in chosen["blocks"].values():
        for each in block["candidates"]:
            total[each["name"]] = total.get(each["name"], 0.0) + each["weight"] * block["rows"]
    return "; ".join(sorted(total, key=lambda name: -total[name])[:3])


@contextmanager
def progress(console: Console) -> Iterator[Callable[["News"], None]]:
    """Rows a second, progressive loss and the block that the stream is in."""
    with terminal.progress(console) as tell:

        def news(now: "News") -> None:
            words = [now.what]
            if now.rows:
                words = [f"{now.rows:,} rows", f"{now.rows / max(now.seconds, 1e-9):,.0f}/s"]
                if isfinite(now.loss):
                    words.append(f"loss {now.loss:.4f}")
                words.append(f"block {now.block}" if now.block else now.what)
            tell(now.share, "  ".join(words))

        yield news


def trained(console: Console, results: Results, out: Path, seconds: float) -> None:
    """What a run has done, and what was decided for the user."""
    job, rows, memory = results["job"], results["rows"], results["memory"]
    zone = job["zone"]
    kinds: dict[str, list[str]] = {}
    for name, kind in results["columns"]["kinds"].items():
        kinds.setdefault(kind, []).append(name)
    for name, why in results["columns"]["ignored"].items():
        kinds.setdefault(f"left out ({why})", []).append(name)

    def say(text: str) -> None:
        # Names of columns may look like markup.
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    table = Table(title=TITLES["trained" if results["chosen"] is None else results["chosen"]["by"]])
    table.add_column(f"block ({zone})", no_wrap=True)
    for head in (_asked(results["chosen"]), "loss", "± 95 %"):
        table.add_column(head, justify="right", no_wrap=True)
    _losses(table, results["blocks"], results["progressive"])
    console.print(table)
    when = "when it came, by what was known then" if job["label_delay"] else "before it was learnt from"
    if results["chosen"] is None:
        say(
            f"loss: {results['loss']}, every row scored {when}. It is that of the chain while it learns, "
            f"which follows the last rows; the model that is saved is its {job['read_out']}"
        )
    else:
        say(
            f"loss: {results['loss']}, every row scored {when}. The model that is saved mixes "
            f"{results['chosen']['candidates']} candidates, in each block by what they lost there and "
            f"lately: most weight has now {_most(results['chosen'])}"
        )
    for kind in sorted(kinds):
        say(f"{kind}: {', '.join(kinds[kind])}")
    if results["classes"]:
        say(f"classes: {', '.join(class_name(each) for each in results['classes'])}")
    when = results["columns"]["when"]
    say(f"times: {' and '.join(when['columns'])}, {_form(when)}; {_span(results, zone)}")
    size = memory["bytes"] / 1e6
    say(
        f"memory up to {size:,.0f} MB: room for {memory['columns']:,} columns, "
        f"{memory['record_bytes'] / 1e6:,.0f} MB "
        "of visits kept, "
        f"up to {memory['waiting_bytes'] / 1e6:,.0f} MB of rows that wait"
    )
    say(_counted(rows))
    for example in results["refused_examples"]:
        say(f"  refused: {example}")
    if rows["late_refused"] or rows["late_used"]:
        late = rows["late_refused"] + rows["late_used"]
        say(
            f"late rows: {late:,}, the latest by {length(results['latest_by'])}: a --lateness of that would "
            "take them in at their place"
        )
    speed = rows["used"] / max(seconds, 1e-9)
    say(f"{seconds:.1f} s, {speed:,.0f} rows/s. Look at it: semicyclic inspect {out}")


def model(console: Console, path: Path, found: Results) -> None:
    """A model for a person."""
    provenance = found["provenance"] if isinstance(found["provenance"], dict) else {}
    zone = found["schedule"]["zone"] if isinstance(found["schedule"], dict) else ""
    chosen = provenance.get("chosen")

    def say(text: str) -> None:
        # Names of columns may look like markup.
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    say(
        f"{path}: {len(found['blocks'])} blocks, {found['columns']:,} columns, loss {found['loss']}"
        + (
            f", classes {', '.join(class_name(each) for each in found['classes'])}"
            if found["classes"]
            else ""
        )
    )
    if found["progressive"] is not None:
        table = Table(title=TITLES["model" if chosen is None else chosen["by"]])
        table.add_column(f"block ({zone})" if zone else "block", no_wrap=True)
        for head in (_asked(chosen), "loss", "± 95 %"):
            table.add_column(head, justify="right", no_wrap=True)
        _losses(table, found["progressive"].get("blocks", found["blocks"]), found["progressive"])
        console.print(table)
    else:
        say("blocks: " + ", ".join(found["blocks"]))
    if found["never_visited"]:
        say(f"never visited, and given the mean of all: {_some(found['never_visited'])}")
    if chosen is not None:
        table = Table(title=f"What was chosen, of {chosen['candidates']} candidates")
        table.add_column("in", no_wrap=True)
        table.add_column("candidates with the most weight, and their loss there")
        for label, block in chosen["blocks"].items():
            if block["rows"]:
                parts = [
                    f"{each['name']} {each['weight']:.0%} ({each['loss']:.4f})"
                    for each in block["candidates"]
                ]
                table.add_row(label, escape("; ".join(parts)))
        console.print(table)
    if found["differences"]:
        table = Table(title="What differs most between blocks")
        for head in ("feature", "highest in", "weight", "lowest in", "weight"):
            table.add_column(head, justify="right" if head == "weight" else "left")
        for each in found["differences"]:
            high, low = each["highest"], each["lowest"]
            name = each["feature"] + (f" ({class_name(each['class'])})" if "class" in each else "")
            table.add_row(
                escape(name), high["block"], f"{high['weight']:+.4f}", low["block"], f"{low['weight']:+.4f}"
            )
        console.print(table)
    if found["features"] is not None:
        kinds: dict[str, list[str]] = {}
        for name, kind in found["features"]["kinds"].items():
            kinds.setdefault(kind, []).append(name)
        for kind in sorted(kinds):
            say(f"{kind}: {', '.join(kinds[kind])}")
        when = found["features"]["when"]
        say(f"times: {' and '.join(when['columns'])}, {_form(when)}; label: {found['features']['label']}")
    if "rows" in provenance:
        rows = provenance["rows"]
        if isinstance(rows, dict):
            say(_counted(rows))
        if "first" in provenance:
            how = "" if chosen is not None else f", read out as {provenance['read_out']}"
            say(f"learnt by {provenance['method']}{how}; {_span(provenance, zone)}")
    if "semicyclic" in provenance:
        say(f"written by semicyclic {provenance['semicyclic']}")


def _asked(chosen: Results | None) -> str:
    """Of a long stream not all rows are asked, where candidates are compared."""
    return "rows" if chosen is None else "rows asked"


def _some(names: list[str], most: int = 8) -> str:
    """A list that may be long."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _losses(table: Table, blocks: list[str], progressive: Results) -> None:
    rows = progressive["rows"]
    for block, count, loss, margin in zip(
        blocks, rows, progressive["by_block"], progressive["margin"], strict=True
    ):
        table.add_row(
            block,
            f"{count:,}",
            "-" if loss is None else f"{loss:.4f}",
            "-" if margin is None else f"{margin:.4f}",
        )
    table.add_section()
    whole = progressive["all"]
    table.add_row("all", f"{sum(rows):,}", "-" if whole is None else f"{whole:.4f}", "")


def _counted(rows: Mapping[str, int]) -> str:
    words = [f"rows: {rows['read']:,} read, {rows['used']:,} used"]
    for name, what in (
        ("refused", "refused"),
        ("late_refused", "late and refused"),
        ("late_used", "late and used all the same"),
        ("without_label", "without a label"),
        ("waiting", "waiting for their labels or the rows to come"),
        ("shifted", "moved out of an hour that the clock skipped"),
    ):
        if rows[name]:
            words.append(f"{rows[name]:,} {what}")
    return ", ".join(words)


def _span(results: Results, zone: str) -> str:
    return f"from {moment(results['first'], zone)} to {moment(results['last'], zone)} ({zone})"


def moment(ticks: int, zone: str) -> str:
    """A time for people, in a zone."""
    try:
        return datetime.fromtimestamp(ticks / 1e6, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return str(ticks)


def _form(when: Mapping[str, Any]) -> str:
    epochs = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    if when["form"] in epochs:
        return f"{epochs[when['form']]} since 1970"
    return {"local": f"local time of {when['zone']}", "zoned": "with their zone"}.get(
        when["form"], f"{when['form']} in {when['zone']}"
    )


def length(ticks: int) -> str:
    """A length of time for people."""
    seconds = ticks / 1e6
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:g}s"
