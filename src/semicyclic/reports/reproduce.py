"""Report of `reproduce`: HTML page and figures."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semicyclic.reports.html import page
from semicyclic.reports.output_files import write_report
from semicyclic.reports.plot import (
    BLUE,
    BROWN,
    FAINT,
    GREEN,
    ORANGE,
    RED,
    VIOLET,
    WIDTH,
    Picture,
    finish_figure,
    legend,
    new_figure,
)
from semicyclic.reports.reproduce_findings import reading
from semicyclic.types import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NAMES = {
    "iid": "i.i.d.",
    "iid_average": "i.i.d. average",
    "iid_unskewed": "i.i.d., no skew",
    "consensus": "consensus",
    "consensus_average": "consensus average",
    "per_component": "per-component",
    "per_component_average": "per-component average",
    "pluralistic": "pluralistic",
    "pluralistic_average": "pluralistic average",
    "pluralistic_tail": "pluralistic tail average",
    "hedged_prod": "hedged, Prod",
    "hedged_adahedge": "hedged, AdaHedge",
    "residual": "shared + residual",
    "hour_feature": "hour as a feature",
}
LOOKS = {
    "pluralistic": (GREEN, "-"),
    "per_component": (ORANGE, "-"),
    "iid": (BLUE, "-"),
    "iid_unskewed": (VIOLET, "--"),
    "consensus": (RED, "-"),
}


def draw_all(results: Results) -> list[Picture]:
    """Draw every figure of the experiment."""
    pictures = []
    for name, draw, title, caption in FIGURES:
        pictures.append(draw(results, name, title, caption))
    return pictures


def _stand_in_note(results: Results) -> str:
    """Return a note for titles if the data are synthetic."""
    return " (stand-in data)" if results["data"]["stand_in"] else ""


def _finish(figure: "Figure", results: Results, name: str, title: str, caption: str) -> Picture:
    """Render the figure; its title marks synthetic data, since figures are shared without the report."""
    return finish_figure(figure, name, title + _stand_in_note(results), caption)._replace(title=title)


def _draw_two_blocks(results: Results, name: str, title: str, caption: str) -> Picture:
    """Draw the accuracy of the single chain on two test blocks, midnight and noon, during training."""
    settings = results["settings"]
    K, m, labels = settings["cycles"], settings["blocks"], settings["block_labels"]
    days = 1 + (np.arange(K * m) + 1) / m
    looks = (("midnight", 0, BLUE), ("noon", m // 2, ORANGE))
    with new_figure(3.1) as (figure, axes):
        for word, block, colour in looks if m > 1 else looks[:1]:
            mean, std = (np.array(results["two_blocks"][word][key]) for key in ("mean", "std"))
            axes.plot(days, mean, color=colour, label=f"{word} block, {labels[block]}")
            axes.fill_between(days, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="day of training", ylabel="accuracy", xlim=(1, K + 1))
        axes.set_xticks(range(1, K + 1, max(K // 10, 1)))
        legend(axes)
        return _finish(figure, results, name, title, caption)


def _draw_approaches(results: Results, name: str, title: str, caption: str) -> Picture:
    """Draw the accuracy of the paper's approaches day by day."""
    scores = results["accuracy"]
    with new_figure(3.6) as (figure, axes):
        for k, (key, (colour, dash)) in enumerate(LOOKS.items()):
            mean, std = np.array(scores[key]["mean"]), np.array(scores[key]["std"])
            # Shift the error bars a little, so that they do not hide each other.
            days = 1 + np.arange(len(mean)) + 0.06 * (k - len(LOOKS) / 2)
            axes.errorbar(
                days, mean, std, color=colour, linestyle=dash, capsize=2, elinewidth=0.9, label=NAMES[key]
            )
        axes.set(xlabel="day", ylabel="accuracy")
        axes.set_xticks(range(1, len(mean) + 1, max(len(mean) // 10, 1)))
        legend(axes, 3)
        return _finish(figure, results, name, title, caption)


def _draw_final(results: Results, name: str, title: str, caption: str) -> Picture:
    """Draw every approach on the last day, best at the top; averages filled, last iterates open."""
    accuracy, loss = results["accuracy"], results["log_loss"]
    order = sorted(accuracy, key=lambda key: accuracy[key]["mean"][-1])
    last_iterates = {"iid", "iid_unskewed", "consensus", "per_component", "pluralistic"}
    with new_figure(4.1, columns=2, sharey=True) as (figure, panes):
        for axes, scores, label in zip(panes, (accuracy, loss), ("accuracy", "log loss"), strict=True):
            for row, key in enumerate(order):
                colour = GREEN if key.startswith("pluralistic") else BLUE if key.startswith("iid") else None
                colour = colour or (RED if key.startswith("consensus") else None)
                colour = colour or (ORANGE if key.startswith("per_component") else BROWN)
                fill = "none" if key in last_iterates else colour
                axes.errorbar(
                    scores[key]["mean"][-1],
                    row,
                    xerr=scores[key]["std"][-1],
                    fmt="o",
                    color=colour,
                    markerfacecolor=fill,
                    capsize=2,
                    markersize=5,
                )
            axes.set(xlabel=label)
            axes.locator_params(axis="x", nbins=4)
            axes.tick_params(axis="x", labelsize=8)
        panes[0].set_yticks(range(len(order)), [NAMES[key] for key in order])
        return _finish(figure, results, name, title, caption)


def _draw_labels(results: Results, name: str, title: str, caption: str) -> Picture:
    """Draw the numbers of positive and negative rows by block, before and after the skew."""
    labels = results["settings"]["block_labels"]
    m = len(labels)
    with new_figure(4.4, rows=2, sharex=True, sharey=True) as (figure, panes):
        for axes, (key, word) in zip(panes, (("raw", "as they are"), ("skewed", "as used")), strict=True):
            positive, negative = (np.array(results["labels"][key][side]) for side in ("positive", "negative"))
            x = np.arange(m)
            if m <= 48:
                axes.bar(x - 0.2, positive / 1000, 0.4, color=BLUE, label="positive")
                axes.bar(x + 0.2, negative / 1000, 0.4, color=ORANGE, label="negative")
            else:
                axes.plot(x, positive / 1000, color=BLUE, linewidth=0.9, label="positive")
                axes.plot(x, negative / 1000, color=ORANGE, linewidth=0.9, label="negative")
            axes.set(ylabel="rows, thousands", title=word)
            axes.margins(y=0.16)
            if m <= 12:
                for i, share in enumerate(positive / np.maximum(positive + negative, 1)):
                    top = max(positive[i], negative[i]) / 1000
                    axes.annotate(
                        f"{share:.2f}", (i, top), (0, 3), textcoords="offset points", ha="center", fontsize=8
                    )
            axes.grid(axis="x", visible=False)
        shown = np.unique(np.linspace(0, m - 1, min(m, 6)).round().astype(int))
        panes[1].set_xticks(shown, [labels[i].split("-")[0] for i in shown])
        panes[1].set_xlabel("beginning of the block, Pacific time")
        legend(panes[1])
        panes[1].get_legend().set_bbox_to_anchor((0.5, -0.32))
        return _finish(figure, results, name, title, caption)


def _draw_granularity(results: Results, name: str, title: str, caption: str) -> Picture:
    """Draw the accuracy against the number of blocks into which the day is divided."""
    part = results["granularity"]
    looks = {"pluralistic_average": (GREEN, "o"), "per_component_average": (ORANGE, "s")}
    with new_figure(3.1) as (figure, axes):
        for key, (colour, marker) in looks.items():
            axes.errorbar(
                part["blocks"],
                part[key]["mean"],
                part[key]["std"],
                color=colour,
                marker=marker,
                markersize=4,
                capsize=2,
                label=NAMES[key],
            )
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(part["blocks"], [f"{m:,}" for m in part["blocks"]])
        axes.set(xlabel="blocks the day is cut into, m", ylabel="accuracy")
        if part["blocks"][0] == 1:
            ideal = part["pluralistic_average"]["mean"][0]
            axes.axhline(ideal, color=FAINT, linestyle=":", label="i.i.d. average (m = 1)")
        legend(axes)
        first, last = part["steps"][0], part["steps"][-1]
        caption += (
            f" A minibatch ends with its block, so the chain makes {first:,} steps at m = "
            f"{part['blocks'][0]:,} and "
            f"{last:,} at m = {part['blocks'][-1]:,}: the bound of Theorem 3 depends on that number, not "
            f"on m. Steps: "
            f"{part['step_sizes'][0]:g}, and {part['step_sizes'][1]:g} for separate chains."
        )
        return _finish(figure, results, name, title, caption)


# A function that draws a figure from the results, its file name, title and caption.
Draw = Callable[[Results, str, str, str], Picture]
FIGURES: tuple[tuple[str, Draw, str, str], ...] = (
    (
        "figure1",
        _draw_two_blocks,
        "Figure 1. One chain through the days",
        "Accuracy on the midnight and on the noon test block, after every block of training; the band is one "
        "standard deviation over repetitions. The single chain follows whatever it saw last.",
    ),
    (
        "figure2",
        _draw_approaches,
        "Figure 2. The paper's approaches",
        "Last iterates, as the paper evaluates them; bars are one standard deviation. The paper's own i.i.d. "
        "ideal is both trained and tested on data without skew, the other one on the same data as the rest.",
    ),
    (
        "figure2-final",
        _draw_final,
        "All approaches on the last day",
        "Filled: averages, as the theorems have them. Open: last iterates. Bars are one standard "
        "deviation over "
        "repetitions, whose data differ: the table of paired differences tells approaches apart better.",
    ),
    (
        "figure3",
        _draw_labels,
        "Figure 3. Labels by block",
        "How many rows of each label a block has, and the share of positive ones, before and after the skew.",
    ),
    (
        "figure4",
        _draw_granularity,
        "Cutting the day ever finer",
        "The same data, the day cut into ever more blocks; all rows are divided over the days anew, so the "
        "experiment's own m differs a little from the table. Separate chains see ever less of them each.",
    ),
)
__all__ = ["FIGURES", "NAMES", "WIDTH", "Picture", "draw_all"]


def write(out: Path, results: Results, pictures: Sequence[Picture], commands: Mapping[str, str]) -> None:
    """Write the figures, then report.html and results.csv, then results.json.

    commands: for the reader to copy: `text` and `script` choose a protocol, `file` and `download` real data.
    """
    order = sorted(results["accuracy"], key=lambda key: -results["accuracy"][key]["mean"][-1])
    chain = results["matrices"].get("single_chain", [[0.0]])
    low = min(min(row) for row in chain)
    high = max(max(row) for row in chain)
    text = page(
        "reproduce.html",
        results=results,
        pictures=pictures,
        names=NAMES,
        order=order,
        reading=reading(results),
        chain=chain,
        commands=commands,
        depth=lambda value: round(100 * (value - low) / (high - low or 1)),
    )
    write_report(out, results, pictures, text, {"results.csv": _scores_csv(results["repetitions"])})


def _scores_csv(scores: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> str:
    """Return CSV with a line for every approach, repetition and day, and a column for every score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["approach", "repetition", "day", *scores])
    for approach, repetitions in scores["accuracy"].items():
        for number, days in enumerate(repetitions):
            for day in range(len(days)):
                values = (by_approach[approach][number][day] for by_approach in scores.values())
                writer.writerow([approach, number + 1, day + 1, *values])
    return text.getvalue()
