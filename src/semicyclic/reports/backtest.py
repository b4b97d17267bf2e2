"""Report of `backtest`: terminal table, page and figures."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from semicyclic.reports.format import format_duration, format_time
from semicyclic.reports.html import page
from semicyclic.reports.output_files import write_report
from semicyclic.reports.plot import BLUE, COLOURS, FAINT, GREEN, Picture, finish_figure, legend, new_figure
from semicyclic.types import Results

QUESTIONS = {
    "progressive": "learning while serving",
    "walk_forward": "models of the last midnight",
}
HOUR, SINGLE, APART = "SGD with hour and weekday", "one SGD model", "one model per block"
# A heat map has so many candidates beside the choice and the baselines.
SHOWN = 6
CHAINS = 8


def write(out: Path, results: Results) -> None:
    """Figures, report and results; the results last."""
    pictures = [_gains(results), _heat(results), _choice(results)]
    text = page(
        "backtest.html",
        results=results,
        pictures={picture.name: picture for picture in pictures},
        lines=lines(results),
        said=sentences(results),
        questions=QUESTIONS,
        asked=describe_settings(results),
        measures=measures(results),
        heads=HEADS,
    )
    write_report(out, results, pictures, text)


HEADS = {"log_loss": "log loss", "auc": "AUC", "accuracy": "accuracy", "mse": "MSE", "mae": "MAE"}


def measures(results: Results) -> list[str]:
    """The first is the one that was minimised."""
    return ["log_loss", "auc", "accuracy"] if results["task"] == "classification" else ["mse", "mae"]


def describe_settings(results: Results) -> str:
    """What the walk forward was told."""
    frozen = "at local midnight" if results["freeze"] == "day" else "when a visit to a block began"
    delay = results["label_delay"]
    late = f" Labels are known {format_duration(delay)} after their rows." if delay else ""
    return (
        f"Models that walk forward were frozen {frozen}. The first {results['warm_up']:,} of "
        f"{results['rows']:,} rows were learnt from and not scored.{late}"
    )


def lines(results: Results) -> list[dict[str, Any]]:
    """The choice, the best candidate and the baselines, side by side."""
    found = []
    names = ["auto", "best", *results["walk_forward"]["baselines"]]
    for name in names:
        line: dict[str, Any] = {"name": name}
        for key in QUESTIONS:
            held = results[key]
            own = {"auto": "auto", "best": held["best"]}.get(name, name)
            scores = held["auto"] if name == "auto" else {**held["baselines"], **held["candidates"]}[own]
            line[key] = {"scores": scores, "interval": held["intervals"].get(own), "own": own}
        found.append(line)
    return found


def print_report(console: Console, results: Results, out: Path, seconds: float) -> None:
    """The table and the answer on a terminal."""
    first = measures(results)[0]
    table = Table(title=f"{HEADS[first]} of {results['label']} (lower is better)")
    table.add_column("", no_wrap=True)
    for words_ in QUESTIONS.values():
        table.add_column(words_, justify="right", no_wrap=True)
    for line in lines(results):
        cells = []
        for key in QUESTIONS:
            held = line[key]["interval"]
            margin = f" ± {(held[1] - held[0]) / 2:.4g}" if held else ""
            cells.append(f"{line[key]['scores'][first]:.4f}{margin}")
        table.add_row(
            {"auto": "automatic choice", "best": "best candidate, in hindsight"}.get(
                line["name"], line["name"]
            ),
            *cells,
        )
    console.print(table)
    for text in sentences(results):
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    if results["not_installed"]:
        missing = " and ".join(results["not_installed"])
        console.print(f"not installed, so not compared: {missing}", highlight=False, soft_wrap=True)
    console.print(
        f"{seconds:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True, markup=False
    )


def sentences(results: Results) -> list[str]:
    """What the numbers say, as far as they say it."""
    found = []
    first = measures(results)[0]
    for key, what in QUESTIONS.items():
        held = results[key]
        own, best = held["auto"][first], held["candidates"][held["best"]][first]
        found.append(
            f"{what.capitalize()}, the automatic choice has {own:.4f}: {_ratio(own, best)} the best of "
            f"{len(held['candidates'])} candidates in hindsight ({held['best']}, {best:.4f})."
        )
    gains = results["walk_forward"]["gains"]
    parts = [_than(gains[name], name) for name in (SINGLE, APART) if name in gains]
    if parts:
        found.append("Walking forward it is " + "; ".join(parts) + ".")
    if HOUR in gains:
        found.append(_hour(results, gains[HOUR]))
    simple = [name for name in ("running rate", "previous label", "constant per block") if name in gains]
    worse = [name for name in simple if gains[name]["mean"] < 0]
    if worse:
        found.append(
            f"Mind: {' and '.join(worse)} would have been better than any of this; the features say little "
            "that lasts."
        )
    return found


def _ratio(own: float, best: float) -> str:
    if best <= 0:
        return f"{own - best:+.4f} beside"
    return f"{own / best:.3f} times"


def _than(gain: Results, name: str) -> str:
    if gain["margin"] is None or abs(gain["mean"]) <= gain["margin"]:
        return f"about as good as {name} ({gain['mean']:+.4f})"
    word = "better" if gain["mean"] > 0 else "worse"
    return f"{word} than {name} by {abs(gain['mean']):.4f} ± {gain['margin']:.4f}"


def _hour(results: Results, gain: Results) -> str:
    """Why not just add the hour as a feature?"""
    first = measures(results)[0]
    held = results["walk_forward"]
    own = {k: v[first] for k, v in held["candidates"].items() if k.startswith("block as a feature")}
    best = min(own, key=lambda name: own[name])
    text = (
        "Why not just add the hour and the weekday as features? With the step that one would try first that "
        f"has {held['baselines'][HOUR][first]:.4f}; the choice is {_than(gain, 'that')}. With the best of "
        f"{len(own)} steps and read-outs, known only afterwards, it has {own[best]:.4f} ({best})"
    )
    gap = own[best] - held["auto"][first]
    if gap > 0:
        return f"{text}: the choice has {gap:.4f} less."
    return f"{text}, {-gap:.4f} less than the choice. If you want one simple model, do that."


# ------------------------------------------------------------------------------------- figures


def _gains(results: Results) -> Picture:
    """Cumulative gain over baselines, walking forward."""
    held = results["walk_forward"]
    rows = np.cumsum(held["rows_by_cycle"])
    used = rows > 0
    shown = (SINGLE, HOUR, APART, "constant per block", "LightGBM", "Vowpal Wabbit")
    with new_figure(3.4) as (figure, axes):
        at = np.arange(used.sum())
        for number, name in enumerate(name for name in shown if name in held["gain_by_cycle"]):
            total = np.cumsum(held["gain_by_cycle"][name])[used]
            axes.plot(at, total, color=[*COLOURS[:3], FAINT, BLUE, GREEN][number % 6], label=f"over {name}")
        axes.axhline(0, color=FAINT, linewidth=0.8)
        axes.set(xlabel="cycles scored", ylabel="loss saved, summed over rows")
        legend(axes, 1)
        return finish_figure(
            figure,
            "gain",
            "What the choice saved, walking forward",
            "Losses of each baseline minus those of the automatic choice, added up from cycle to cycle. A "
            "line that rises throughout was worse throughout; one that turns shows when that changed.",
        )


def _heat(results: Results) -> Picture:
    """Every block's loss, by candidate, beside the best of the block."""
    held = results["walk_forward"]
    first = measures(results)[0]
    by = held["by_block"]
    order = sorted(held["candidates"], key=lambda name: held["candidates"][name][first])
    kinds: dict[str, str] = {}
    for name in order:
        kinds.setdefault(name.rsplit(", ", 2)[0], name)
    chosen = list(kinds.values())[:SHOWN]
    names = ["auto", *chosen, *held["baselines"]]
    table = np.array(
        [
            [
                (block["auto"] if name == "auto" else {**block["candidates"], **block["baselines"]}[name])[
                    first
                ]
                for block in by.values()
            ]
            for name in names
        ]
    )
    least = np.array([min(each[first] for each in block["candidates"].values()) for block in by.values()])
    spread = np.maximum(np.abs(least), 1e-12)
    excess = 100 * (table / spread - least / spread)
    with new_figure(1.4 + 0.3 * len(names)) as (figure, axes):
        image = axes.imshow(excess, aspect="auto", cmap="viridis_r", vmin=-2, vmax=20)
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
        labels = list(by)
        step = max(1, len(labels) // 8)
        shown = [_start(label) for label in labels[::step]]
        axes.set_xticks(range(0, len(labels), step), shown, rotation=45 if max(map(len, shown)) > 5 else 0)
        axes.grid(visible=False)
        axes.set(xlabel=f"block ({results['zone']})")
        bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, pad=0.02)
        bar.set_label(f"{HEADS[first]} above the block's best candidate, %")
        return finish_figure(
            figure,
            "blocks",
            "Where each is right and wrong",
            "For every block the loss compared with the candidate that was best there in hindsight, walking "
            "forward; the darkest is 20 % and more. Of each kind of chain the best is shown.",
        )


def _choice(results: Results) -> Picture:
    """The weight of kinds of chains and of read-outs over time, walking forward."""
    held = results["choice"]["walk_forward"]
    at = np.array(held["at"])
    day = (at - at[0]) / 86_400e6
    with new_figure(5.6, rows=2) as (figure, (top, bottom)):
        for axes, what in ((top, "chains"), (bottom, "read_outs")):
            ranked = sorted(held[what], key=lambda name: -float(np.sum(held[what][name])))
            palette = [BLUE, GREEN, *COLOURS, "#b7c4cf", "#5b8c85", "#d8c99b"]
            axes.stackplot(
                day,
                [held[what][name] for name in ranked],
                labels=ranked,
                colors=palette[: len(ranked)],
                linewidth=0,
            )
            axes.set(ylim=(0, 1), xlim=(day[0], max(day[-1], day[0] + 1e-9)), ylabel="weight")
            axes.set_xlabel("days since the first row")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=2, fontsize=7.5)
        return finish_figure(
            figure,
            "choice",
            "What was chosen, over time",
            "How the weight of the mixture is shared between kinds of chains (above) and read-outs (below), "
            f"mean over blocks, from {format_time(int(at[0]), results['zone'])} to "
            f"{format_time(int(at[-1]), results['zone'])}.",
        )


def _short(name: str) -> str:
    if name == "auto":
        return "automatic choice"
    parts = name.rsplit(", ", 2)
    return f"{parts[0]}, {parts[2]}" if len(parts) == 3 else name


def _start(label: str) -> str:
    """Where a block begins, as short as it can be told."""
    return label.split("-")[0].removesuffix(":00")
