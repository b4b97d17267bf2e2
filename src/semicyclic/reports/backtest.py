"""Report of `backtest`: terminal table, HTML page and figures."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from semicyclic.reports.format import format_duration, format_horizon, format_time
from semicyclic.reports.html import page
from semicyclic.reports.output_files import write_report
from semicyclic.reports.plot import BLUE, COLOURS, FAINT, GREEN, Picture, finish_figure, legend, new_figure
from semicyclic.types import Results

# Names of baselines in `results.json`.
HOUR_FEATURE, SINGLE_MODEL, MODEL_PER_BLOCK = (
    "SGD with hour and weekday",
    "one SGD model",
    "one model per block",
)
# Number of candidates in the heat map, in addition to the automatic choice and the baselines.
HEAT_MAP_CANDIDATES = 6


def write(out: Path, results: Results) -> None:
    """Write the figures, then report.html, then results.json."""
    pictures = [_draw_gains(results), _draw_heat_map(results), _draw_choice(results)]
    text = page(
        "backtest.html",
        results=results,
        pictures={picture.name: picture for picture in pictures},
        lines=lines(results),
        said=sentences(results),
        questions=questions(results),
        asked=describe_settings(results),
        measures=measures(results),
        heads=HEADS,
    )
    write_report(out, results, pictures, text)


HEADS = {"log_loss": "log loss", "auc": "AUC", "accuracy": "accuracy", "mse": "MSE", "mae": "MAE"}


def measures(results: Results) -> list[str]:
    """Return the names of the scores to show; the first is the minimized loss."""
    return ["log_loss", "auc", "accuracy"] if results["task"] == "classification" else ["mse", "mae"]


def questions(results: Results) -> dict[str, str]:
    """Return what each evaluation protocol evaluates, in words."""
    days = results["horizon"]
    frozen = "the last midnight" if days == 1 else f"up to {format_horizon(days)} ago"
    return {"progressive": "learning while serving", "walk_forward": f"models of {frozen}"}


def describe_settings(results: Results) -> str:
    """Describe the freeze time, the warm-up and the label delay in words."""
    frozen = "when a visit to a block began"
    if results["freeze"] == "day":
        frozen = f"at local midnight and used for {format_horizon(results['horizon'])}"
    delay = results["label_delay"]
    late = f" Labels are known {format_duration(delay)} after their rows." if delay else ""
    return (
        f"Models that walk forward were frozen {frozen}. The first {results['warm_up']:,} of "
        f"{results['rows']:,} rows were learned from and not scored.{late}"
    )


def lines(results: Results) -> list[dict[str, Any]]:
    """Return one table line each for the automatic choice, the best candidate and every baseline."""
    table = []
    names = ["auto", "best", *results["walk_forward"]["baselines"]]
    for name in names:
        line: dict[str, Any] = {"name": name}
        for key in questions(results):
            part = results[key]
            method = {"auto": "auto", "best": part["best"]}.get(name, name)
            scores = part["auto"] if name == "auto" else {**part["baselines"], **part["candidates"]}[method]
            line[key] = {"scores": scores, "interval": part["intervals"].get(method), "own": method}
        table.append(line)
    return table


def print_report(console: Console, results: Results, out: Path, seconds: float) -> None:
    """Print the table and the findings to the terminal."""
    first = measures(results)[0]
    table = Table(title=f"{HEADS[first]} of {results['label']} (lower is better)")
    table.add_column("", no_wrap=True)
    for heading in questions(results).values():
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines(results):
        cells = []
        for key in questions(results):
            interval = line[key]["interval"]
            margin = f" ± {(interval[1] - interval[0]) / 2:.4g}" if interval else ""
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
    """Return the findings in words; comparisons within the margin of error are reported as ties."""
    texts = []
    first = measures(results)[0]
    for key, what in questions(results).items():
        part = results[key]
        auto, best = part["auto"][first], part["candidates"][part["best"]][first]
        texts.append(
            f"{what.capitalize()}, the automatic choice has {auto:.4f}: {_ratio_text(auto, best)} the best "
            f"of {len(part['candidates'])} candidates in hindsight ({part['best']}, {best:.4f})."
        )
    gains = results["walk_forward"]["gains"]
    parts = [_gain_text(gains[name], name) for name in (SINGLE_MODEL, MODEL_PER_BLOCK) if name in gains]
    if parts:
        texts.append("Walking forward it is " + "; ".join(parts) + ".")
    if HOUR_FEATURE in gains:
        texts.append(_hour_feature_text(results, gains[HOUR_FEATURE]))
    simple = [name for name in ("running rate", "previous label", "constant per block") if name in gains]
    better = [name for name in simple if gains[name]["mean"] < 0]
    if better:
        texts.append(
            f"Mind: {' and '.join(better)} would have been better than any of this; the features say little "
            "that lasts."
        )
    return texts


def _ratio_text(loss: float, best: float) -> str:
    """Compare a loss with the best one: as a ratio, or as a difference if the best is not positive."""
    if best <= 0:
        return f"{loss - best:+.4f} from"
    return f"{loss / best:.3f} times"


def _gain_text(gain: Results, name: str) -> str:
    """Compare the automatic choice with a baseline in words."""
    if gain["margin"] is None or abs(gain["mean"]) <= gain["margin"]:
        return f"about as good as {name} ({gain['mean']:+.4f})"
    word = "better" if gain["mean"] > 0 else "worse"
    return f"{word} than {name} by {abs(gain['mean']):.4f} ± {gain['margin']:.4f}"


def _hour_feature_text(results: Results, gain: Results) -> str:
    """Compare the automatic choice with a model that has the hour and the weekday as features."""
    first = measures(results)[0]
    part = results["walk_forward"]
    losses = {
        name: scores[first]
        for name, scores in part["candidates"].items()
        if name.startswith("block as a feature")
    }
    best = min(losses, key=lambda name: losses[name])
    text = (
        "Why not just add the hour and the weekday as features? With the step that one would try first that "
        f"has {part['baselines'][HOUR_FEATURE][first]:.4f}; the choice is {_gain_text(gain, 'that')}. "
        f"With the best of {len(losses)} steps and read-outs, known only afterwards, it has "
        f"{losses[best]:.4f} ({best})"
    )
    gap = losses[best] - part["auto"][first]
    if gap > 0:
        return f"{text}: the choice has {gap:.4f} less."
    return f"{text}, {-gap:.4f} less than the choice. If you want one simple model, do that."


# ------------------------------------------------------------------------------------- figures


def _draw_gains(results: Results) -> Picture:
    """Draw the cumulative gain of the automatic choice over baselines, walking forward."""
    part = results["walk_forward"]
    rows = np.cumsum(part["rows_by_cycle"])
    scored = rows > 0
    shown = (SINGLE_MODEL, HOUR_FEATURE, MODEL_PER_BLOCK, "constant per block", "LightGBM", "Vowpal Wabbit")
    with new_figure(3.4) as (figure, axes):
        x = np.arange(scored.sum())
        for number, name in enumerate(name for name in shown if name in part["gain_by_cycle"]):
            total = np.cumsum(part["gain_by_cycle"][name])[scored]
            axes.plot(x, total, color=[*COLOURS[:3], FAINT, BLUE, GREEN][number % 6], label=f"over {name}")
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


def _draw_heat_map(results: Results) -> Picture:
    """Draw every method's loss by block, relative to the best candidate of the block."""
    part = results["walk_forward"]
    first = measures(results)[0]
    blocks = part["by_block"]
    order = sorted(part["candidates"], key=lambda name: part["candidates"][name][first])
    best_by_chain: dict[str, str] = {}
    for name in order:
        best_by_chain.setdefault(name.rsplit(", ", 2)[0], name)
    chosen = list(best_by_chain.values())[:HEAT_MAP_CANDIDATES]
    names = ["auto", *chosen, *part["baselines"]]
    table = np.array(
        [
            [
                (block["auto"] if name == "auto" else {**block["candidates"], **block["baselines"]}[name])[
                    first
                ]
                for block in blocks.values()
            ]
            for name in names
        ]
    )
    best = np.array(
        [min(scores[first] for scores in block["candidates"].values()) for block in blocks.values()]
    )
    scale = np.maximum(np.abs(best), 1e-12)
    excess_percent = 100 * (table / scale - best / scale)
    with new_figure(1.4 + 0.3 * len(names)) as (figure, axes):
        image = axes.imshow(excess_percent, aspect="auto", cmap="viridis_r", vmin=-2, vmax=20)
        axes.set_yticks(range(len(names)), [_short_name(name) for name in names])
        labels = list(blocks)
        step = max(1, len(labels) // 8)
        shown = [_start_of_block(label) for label in labels[::step]]
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


def _draw_choice(results: Results) -> Picture:
    """Draw the mixture weights of the kinds of chains and of the read-outs over time, walking forward."""
    choice = results["choice"]["walk_forward"]
    ticks = np.array(choice["at"])
    day = (ticks - ticks[0]) / 86_400e6
    with new_figure(5.6, rows=2) as (figure, (top, bottom)):
        for axes, what in ((top, "chains"), (bottom, "read_outs")):
            weights = choice[what]
            ranked = sorted(weights, key=lambda name: -float(np.sum(weights[name])))
            palette = [BLUE, GREEN, *COLOURS, "#b7c4cf", "#5b8c85", "#d8c99b"]
            axes.stackplot(
                day,
                [weights[name] for name in ranked],
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
            f"mean over blocks, from {format_time(int(ticks[0]), results['zone'])} to "
            f"{format_time(int(ticks[-1]), results['zone'])}.",
        )


def _short_name(name: str) -> str:
    """Return the name of a candidate without its step size."""
    if name == "auto":
        return "automatic choice"
    parts = name.rsplit(", ", 2)
    return f"{parts[0]}, {parts[2]}" if len(parts) == 3 else name


def _start_of_block(label: str) -> str:
    """Return the start time of a block, without minutes if they are zero."""
    return label.split("-")[0].removesuffix(":00")
