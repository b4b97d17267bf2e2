"""Report of `federate`: terminal table, HTML page and figures."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from semicyclic.reports.html import page
from semicyclic.reports.output_files import write_report
from semicyclic.reports.plot import (
    BLUE,
    BROWN,
    COLOURS,
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
    "fedavg_last": "FedAvg, current model",
    "fedavg_average": "FedAvg, mean of all rounds",
    "fedavg_block_last": "FedAvg, last model of each block",
    "fedavg_block_before": "FedAvg, model of the block before",
    "pluralistic": "pluralistic means",
    "separate": "separate chains",
    "hedged": "hedged chains",
    "best": "best by block (default)",
    "uniform": "always available (ideal)",
}
LOOKS = {
    "fedavg_last": RED,
    "fedavg_average": ORANGE,
    "fedavg_block_last": RED,
    "fedavg_block_before": RED,
    "best": GREEN,
    "pluralistic": GREEN,
    "separate": VIOLET,
    "hedged": BROWN,
    "uniform": BLUE,
}
# Descriptions of the reasons for which replies were rejected.
REASONS = {
    "failed": "the client failed",
    "not finite": "values that are not finite",
    "shape": "arrays of another shape",
    "names": "other names than the model's",
    "count": "an absurd number of examples",
    "profile": "an availability that is none",
    "records": "other records than expected",
    "unreadable": "arrays that cannot be read",
    "type": "arrays that are not numbers",
    "too large": "values larger than any model's",
    "loss": "no loss that could be believed",
}


def write(out: Path, results: Results) -> None:
    """Write the figures, then report.html, then results.json."""
    pictures = [
        _draw_availability(results),
        _draw_final(results),
        _draw_days(results),
        _draw_matrix(results),
    ]
    text = page(
        "federate.html",
        results=results,
        pictures={picture.name: picture for picture in pictures},
        said=sentences(results),
        names=SHORT,
        lost=describe_losses(results),
        asked=describe_fleet(results),
    )
    write_report(out, results, pictures, text)


def describe_fleet(results: Results) -> str:
    """Describe the devices, the schedule of rounds and the number of repetitions in words."""
    population, settings = results["population"], results["settings"]
    devices = {"flights": "routes of flights", "tweets": "groups of tweets"}.get(
        population["name"], "devices"
    )
    return (
        f"{population['devices']:,} {devices} with {population['rows']:,} rows; "
        f"availability: {settings['availability']}. Each of {settings['repetitions']} repetition(s) has "
        f"{settings['days']} days of {len(results['blocks'])} blocks ({results['zone']}) with "
        f"{settings['rounds_per_block']} rounds each; a round asks up to {settings['invited']} devices that "
        f"are there and goes on with the first {settings['per_round']} replies."
    )


def print_report(console: Console, results: Results, out: Path, seconds: float) -> None:
    """Print the table and the findings to the terminal."""
    steps = list(results["local_steps"])
    table = Table(title=f"Accuracy, mean over blocks and {results['settings']['repetitions']} repetition(s)")
    table.add_column("", no_wrap=True)
    for number in steps:
        table.add_column(f"{number} local step{'s' if number != '1' else ''}", justify="right", no_wrap=True)
        table.add_column("step size", justify="right", no_wrap=True)
    for key, name in SHORT.items():
        cells = []
        for number in steps:
            part = results["local_steps"][number]
            score = part["accuracy"][key]
            spread = f" ± {score['std']:.4f}" if results["settings"]["repetitions"] > 1 else ""
            cells += [f"{score['mean']:.4f}{spread}", f"{part['step_sizes'][key]:.2g}"]
        table.add_row(name, *cells)
    texts = sentences(results)
    console.print(texts[0], highlight=False, soft_wrap=True, markup=False)
    console.print(table)
    for text in texts[1:]:
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{seconds:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True, markup=False
    )


def sentences(results: Results) -> list[str]:
    """Return the findings in words; differences that are not significant are reported as such."""
    repetitions = results["settings"]["repetitions"]
    texts = []
    for number, part in results["local_steps"].items():
        baseline = SHORT[part["baseline"]]
        texts.append(
            f"With {number} local step{'s' if number != '1' else ''} the default, a model for each block "
            "chosen by what devices report, is "
            f"{_difference_text(part['gain'], repetitions, f'the best tuned baseline ({baseline})')}."
        )
    for number, part in results["local_steps"].items():
        comparisons = [
            _difference_text(part["differences"][key], repetitions, SHORT[key])
            for key in ("fedavg_last", "fedavg_average", "fedavg_block_last", "uniform")
        ]
        texts.append(
            f"With {number} local step{'s' if number != '1' else ''} pluralistic means are "
            f"{'; '.join(comparisons)}."
        )
    sizes = results["settings"]["step_sizes"][next(iter(results["local_steps"]))]
    if len(sizes) > 1:
        grid = ", ".join(f"{size:.2g}" for size in sizes)
        texts.append(
            f"Every approach has the step size of {grid} that is best for it on rows for validation."
        )
    if repetitions == 1:
        texts.append("There is one repetition, so how much these differences vary is not known.")
    if results["never_trained"]:
        labels = ", ".join(results["blocks"][block] for block in results["never_trained"])
        texts.append(
            f"No device took part in {labels}, in some repetition at least: there the mean of all rounds "
            "replaces the model of the block."
        )
    soft, hard = (results["membership"][key]["mean"] for key in ("soft", "hard"))
    if results["soft"] > 0.01:
        texts.append(
            f"A device that mixes the blocks' models by its own availability is right in {soft:.2%} of "
            f"cases; one that takes the model of the block in which it is there most, in {hard:.2%}."
        )
    return texts


def _difference_text(difference: Results, repetitions: int, other: str) -> str:
    """Say better or worse if the difference is significant over the repetitions (Student's t)."""
    mean = difference["mean"]
    if repetitions > 1 and not difference["clear"]:
        return f"not clearly different from {other} ({mean:+.4f})"
    word = "better" if mean > 0 else "worse"
    if repetitions == 1:
        return f"{word} than {other} by {abs(mean):.4f}"
    times = difference["better_in"] if mean > 0 else repetitions - difference["better_in"]
    return f"{word} than {other} by {abs(mean):.4f}, in {times} of {repetitions} repetitions"


def describe_losses(results: Results) -> list[tuple[str, int]]:
    """Return the numbers of lost rounds, missing replies and rejected replies, each with a description."""
    lost = results["lost"]
    lines = [
        ("rounds without a step", lost["rounds_without_a_step"]),
        ("devices asked beyond those that a round waited for, or that never replied", lost["no_reply"]),
    ]
    lines += [(f"replies not used: {REASONS.get(key, key)}", n) for key, n in lost["rejected"].items()]
    return lines


# ------------------------------------------------------------------------------------- figures


def _draw_availability(results: Results) -> Picture:
    """Draw the share of available devices by half hour, and the replies used by block."""
    curve = np.array(results["availability"])
    labels = [label.split("-")[0] for label in results["blocks"]]
    with new_figure(5.2, rows=2) as (figure, (top, bottom)):
        hours = np.arange(len(curve) + 1) / 2
        groups = [np.array(shares) for shares in results["availability_by_home"] if shares is not None]
        for number, group in enumerate(groups):
            name = "those at home in one block" if number == 0 else None
            colour = COLOURS[number % len(COLOURS)]
            top.step(
                hours, 100 * np.r_[group, group[-1]], where="post", color=colour, linewidth=0.8, label=name
            )
        top.step(hours, 100 * np.r_[curve, curve[-1]], where="post", color=BLUE, label="all devices")
        top.set(xlim=(0, 24), ylabel="available, %", xlabel=f"hour of the day ({results['zone']})")
        top.set_ylim(0, max(105 * max(shares.max() for shares in [curve, *groups]), 1))
        legend(top, 2)
        top.get_legend().set_bbox_to_anchor((0.5, -0.3))
        top.set_xticks(range(0, 25, 4))
        bottom.bar(range(len(labels)), results["participation"], color=GREEN, width=0.7)
        bottom.set(ylabel="replies used", xlabel="block, by its beginning")
        step = max(1, len(labels) // 8)
        bottom.set_xticks(range(0, len(labels), step), labels[::step])
        bottom.grid(axis="x", visible=False)
        return finish_figure(
            figure,
            "availability",
            "Who is there, and who takes part",
            "Above: the share of devices that are available, by the half hour: of all, and of those whose "
            "home hour is in the same block; first repetition. Below: replies that were learned from in each "
            "block, mean over repetitions.",
        )


def _draw_final(results: Results) -> Picture:
    """Draw the final accuracy of every approach, by the number of local steps."""
    steps = list(results["local_steps"])
    with new_figure(3.4) as (figure, axes):
        for row, key in enumerate(SHORT):
            for j, number in enumerate(steps):
                score = results["local_steps"][number]["accuracy"][key]
                y = row + 0.22 * (j - (len(steps) - 1) / 2)
                axes.errorbar(
                    score["mean"],
                    y,
                    xerr=score["std"],
                    fmt="osD^v"[j % 5],
                    color=LOOKS[key],
                    capsize=2,
                    markersize=5,
                )
        axes.set_yticks(range(len(SHORT)), SHORT.values())
        axes.invert_yaxis()
        axes.set(xlabel="accuracy, mean over blocks")
        axes.locator_params(axis="x", nbins=6)
        marks = dict(
            zip(("circles", "squares", "diamonds", "triangles", "triangles down"), steps, strict=False)
        )
        legend_text = ", ".join(f"{mark}: {number} local step(s)" for mark, number in marks.items())
        spread = (
            " Bars are one standard deviation over repetitions."
            if results["settings"]["repetitions"] > 1
            else ""
        )
        return finish_figure(
            figure,
            "approaches",
            "All approaches in the end",
            f"Each block's model on rows of devices that are available in that block; {legend_text}.{spread}",
        )


def _draw_days(results: Results) -> Picture:
    """Draw the accuracy day by day: mean over blocks, and in each block."""
    over = {key: np.array(values) for key, values in results["over_days"].items()}
    days = 1 + np.arange(len(next(iter(over.values()))))
    with new_figure(6.0, rows=2) as (figure, (top, bottom)):
        for key, values in over.items():
            top.plot(days, values.mean(axis=1), color=LOOKS[key], marker="o", markersize=3, label=SHORT[key])
        ideal = results["accuracy"]["uniform"]["mean"]
        top.axhline(ideal, color=BLUE, linestyle=":", label=SHORT["uniform"])
        top.set(ylabel="accuracy, all blocks", xlabel="day")
        legend(top, 2)
        top.get_legend().set_bbox_to_anchor((0.5, -0.24))
        for key in ("fedavg_last", "pluralistic"):
            values = over[key]
            bottom.fill_between(
                days, values.min(axis=1), values.max(axis=1), color=LOOKS[key], alpha=0.2, linewidth=0
            )
            for i in range(values.shape[1]):
                bottom.plot(
                    days, values[:, i], color=LOOKS[key], linewidth=0.8, label=SHORT[key] if i == 0 else None
                )
        for i, label in enumerate(results["blocks"]):
            bottom.annotate(
                label.split("-")[0],
                (days[-1], over["pluralistic"][-1, i]),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=6.5,
                color=LOOKS["pluralistic"],
            )
        bottom.set(ylabel="accuracy, each block", xlabel="day")
        legend(bottom, 2)
        bottom.get_legend().set_bbox_to_anchor((0.5, -0.24))
        for axes in (top, bottom):
            axes.set_xticks(days[:: max(1, len(days) // 10)])
        return finish_figure(
            figure,
            "days",
            "Day by day",
            "Above: at the end of each day, mean over blocks. Below: a line for every block, for the current "
            "model of Federated Averaging (mean over the blocks at whose end it is taken) and for the "
            "blocks' own models, which are named. Mean over repetitions.",
        )


def _draw_matrix(results: Results) -> Picture:
    """Draw the accuracy of the model after one block on the devices of another block."""
    table = np.array(results["matrix"])
    labels = [label.split("-")[0] for label in results["blocks"]]
    m = len(labels)
    with new_figure(4.6) as (figure, axes):
        image = axes.imshow(table, cmap="viridis")
        step = max(1, m // 8)
        axes.set_xticks(range(0, m, step), labels[::step])
        axes.set_yticks(range(0, m, step), labels[::step])
        axes.set(xlabel="used in the block that begins at", ylabel="as after the block that begins at")
        axes.grid(visible=False)
        if m <= 8:
            middle = (table.min() + table.max()) / 2
            for i in range(m):
                for j in range(m):
                    ink = "#fdfdfb" if table[i, j] < middle else "#101014"
                    axes.text(j, i, f"{table[i, j]:.2f}"[1:], ha="center", va="center", fontsize=8, color=ink)
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.set_label("accuracy")
        bar.outline.set_edgecolor(FAINT)
        return finish_figure(
            figure,
            "matrix",
            "One model, used at other hours",
            "The model of Federated Averaging as it was at the end of one block (rows of the picture), on "
            "the devices that are there in another (columns). The diagonal is what it was trained on last.",
        )
