"""Report of `demo`: terminal table, HTML page and figures."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.table import Table

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
    Picture,
    finish_figure,
    legend,
    new_figure,
)
from semicyclic.types import Results

SHORT = {
    "consensus_last": "one model, last",
    "consensus": "one model, mean",
    "iid": "one model, i.i.d.",
    "hour": "block as a feature",
    "separate": "separate chains",
    "pluralistic": "pluralistic mean",
    "hedged": "hedged",
    "single": "one chain, last",
}
LOOKS = {
    "consensus_last": (RED, "x"),
    "consensus": (FAINT, "s"),
    "iid": (BLUE, "D"),
    "hour": (BROWN, "v"),
    "separate": (ORANGE, "^"),
    "pluralistic": (GREEN, "o"),
    "hedged": (VIOLET, "P"),
    "single": (RED, "x"),
}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def summary(results: Results) -> Table:
    """Return a terminal table with the scores of both experiments."""
    table = Table(title="Log loss of late arrivals (lower is better)")
    table.add_column("approach", no_wrap=True)
    table.add_column("as the paper has it", justify="right", no_wrap=True)
    table.add_column("in the order of time", justify="right", no_wrap=True)
    paper, calendar = results["paper"]["weighted"], results["calendar"]["all"]
    pairs = [("consensus_last", "single"), *((name, name) for name in ("consensus", "iid", "hour"))]
    pairs += [(name, name) for name in ("separate", "pluralistic", "hedged")]
    for paper_name, calendar_name in pairs:
        second = f"{calendar[calendar_name]:.4f}" if calendar_name in calendar else "-"
        table.add_row(SHORT[paper_name], f"{np.mean(paper[paper_name]):.4f}", second)
    return table


def draw_demo(results: Results) -> list[Picture]:
    """Draw every figure of the demo."""
    return [_draw_rhythm(results), _draw_blocks(results), _draw_year(results)]


def _draw_rhythm(results: Results) -> Picture:
    """Draw the share of late flights by hour."""
    data = results["data"]
    rows, late = np.array(data["by_hour"]["rows"]), np.array(data["by_hour"]["late"])
    shown = rows >= 100
    with new_figure(3.0) as (figure, axes):
        hours = np.arange(24)
        axes.bar(hours[shown] + 0.5, 100 * late[shown], 0.86, color=BLUE)
        for start in data["starts"]:
            axes.axvline(start, color=FAINT, linestyle=":", linewidth=1)
        axes.axhline(100 * data["late"], color=RED, linewidth=1.2, label=f"all flights: {data['late']:.0%}")
        axes.set(xlabel="hour of scheduled departure, New York", ylabel="late arrivals, %", xlim=(4, 24))
        axes.set_xticks(range(4, 25, 2))
        axes.grid(axis="x", visible=False)
        legend(axes)
        return finish_figure(
            figure,
            "rhythm",
            "Flights are late in the evening",
            f"The share of flights that arrive more than 15 minutes late, by hour; dotted: where the "
            f"{len(data['labels'])} blocks begin. {data['rows']:,} flights of {data['days']} days; "
            "hours with fewer "
            "than 100 are left out.",
        )


def _draw_blocks(results: Results) -> Picture:
    """Draw each approach's log loss by block, minus that of the i.i.d. model, on shuffled rows."""
    paper, labels = results["paper"], results["data"]["labels"]
    with new_figure(3.9) as (figure, axes):
        x = np.arange(len(labels))
        ideal = np.array(paper["by_block"]["iid"])
        for name, values in paper["by_block"].items():
            colour, marker = LOOKS[name]
            axes.plot(
                x,
                np.array(values) - ideal,
                marker=marker,
                markersize=5,
                linewidth=1.1,
                color=colour,
                label=SHORT[name],
            )
        axes.set_xticks(x, [label.replace("-", "-\n") for label in labels])
        axes.set(xlabel="block of the day", ylabel="log loss minus that of the i.i.d. model")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=3)
        count = paper["settings"]["repetitions"]
        return finish_figure(
            figure,
            "paper",
            "As the paper has it: shuffled within blocks",
            f"Mean of {count} repetitions, each with its own tenth held out. One model for all hours, "
            "however it is "
            "trained, must be wrong somewhere: too gloomy in the morning, too hopeful at night. Below "
            "zero: better "
            "than one model on shuffled rows.",
        )


def _draw_year(results: Results) -> Picture:
    """Draw each approach's log loss by month, on rows in time order."""
    calendar = results["calendar"]
    with new_figure(3.9) as (figure, axes):
        x = np.arange(12)
        for name, values in calendar["by_month"].items():
            colour, marker = LOOKS[name]
            axes.plot(x, values, marker=marker, markersize=4, linewidth=1.1, color=colour, label=SHORT[name])
        axes.set_xticks(x, MONTHS)
        axes.set(xlabel="month of 2013", ylabel="log loss of the day after")
        legend(axes, 3)
        return finish_figure(
            figure,
            "calendar",
            "In the order of time: tomorrow's flights",
            "Every day is scored by what was learned until the day before, then learned from; means by "
            "month. Bad "
            "weeks come together, so what the last days taught is worth more than a year's mean.",
        )


def write(out: Path, results: Results, commands: tuple[str, str]) -> None:
    """Write the figures, then report.html, then results.json.

    commands: to train and to predict with other data, for the reader to copy.
    """
    pictures = draw_demo(results)
    text = page(
        "demo.html",
        results=results,
        pictures={picture.name: picture for picture in pictures},
        short=SHORT,
        said=findings(results),
        commands=commands,
        mean=lambda values: float(np.mean(values)),
    )
    write_report(out, results, pictures, text)


def findings(results: Results) -> dict[str, str]:
    """Return the findings in words; differences that are not significant are reported as ties."""
    paper, calendar = results["paper"], results["calendar"]
    score = {name: float(np.mean(values)) for name, values in paper["weighted"].items()}
    return {
        "paper": _paper_text(score, paper["differences"]),
        "calendar": _calendar_text(calendar["all"], calendar["differences"]),
        "hour": _hour_feature_text(score, paper["differences"], calendar),
    }


def _compare_text(gap: Results, name: str) -> str:
    """Compare the pluralistic mean with another approach; a difference that is not clear is a tie."""
    if not gap["clear"]:
        return f"about as well as {name} ({gap['mean']:+.4f} ± {gap['standard_error']:.4f})"
    word = "better" if gap["mean"] < 0 else "worse"
    return f"{word} than {name} by {abs(gap['mean']):.4f} ± {gap['standard_error']:.4f}"


def _paper_text(score: Mapping[str, float], gaps: Mapping[str, Results]) -> str:
    parts = [
        _compare_text(gaps["iid"], "the i.i.d. ideal, one model on shuffled rows"),
        _compare_text(gaps["consensus"], "the mean of all iterates"),
        _compare_text(gaps["consensus_last"], "the chain as it stands at the end of some block"),
        _compare_text(gaps["separate"], "separate chains"),
    ]
    return f"One chain, averaged per block, scores {score['pluralistic']:.4f}: " + "; ".join(parts) + "."


def _calendar_text(score: Mapping[str, float], gaps: Mapping[str, Results]) -> str:
    best = min(score, key=lambda name: score[name])
    parts = [_compare_text(gaps[name], SHORT[name]) for name in ("single", "separate", "hour", "hedged")]
    words = f"Here the pluralistic mean scores {score['pluralistic']:.4f}, " + "; ".join(parts) + ". "
    if best == "pluralistic":
        return words + "It is the best of them in this order too."
    near = [name for name in score if score[name] < score[best] + 0.0005]
    return words + f"Best for tomorrow: {' and '.join(SHORT[name] for name in near)}, {score[best]:.4f}."


def _hour_feature_text(score: Mapping[str, float], gaps: Mapping[str, Results], calendar: Results) -> str:
    first = (
        f"As a feature the block can shift a prediction up or down, no more: {score['hour']:.4f} in "
        "the paper's "
        "order. The pluralistic mean, in which every weight may differ by block, does "
        f"{_compare_text(gaps['hour'], 'it')}. "
    )
    gap = calendar["differences"]["hour"]
    second = (
        f"In the order of time the feature scores {calendar['all']['hour']:.4f}; the pluralistic mean does "
    )
    return (
        first
        + second
        + _compare_text(gap, "it")
        + ". "
        + (
            "So the feature is the baseline to beat, and here it is not beaten by an average over the year."
            if gap["clear"] and gap["mean"] > 0
            else "So the feature alone does not replace a model for every block here."
        )
    )
