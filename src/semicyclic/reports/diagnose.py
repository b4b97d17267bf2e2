"""Report of `diagnose`: verdict in words, HTML page and figures."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from semicyclic.reports.html import page
from semicyclic.reports.output_files import write_report
from semicyclic.reports.plot import (
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    RED,
    VIOLET,
    Picture,
    finish_figure,
    new_figure,
)
from semicyclic.types import Results

# Explanation of each regime, and the advice for it.
MEANING = {
    "none": "one model does for all hours",
    "label_skew": "how frequent labels are follows the clock; what features say about them does not",
    "opposite": "features say in some blocks the opposite of what they say in others",
    "orthogonal": "every block has a model of its own, unrelated to the others'",
    "one_odd": "one stretch of the day has a model of its own, and the rest share one",
    "smooth": "the model changes like a wave over the day",
    "weekly": "weekdays differ, and hours within them do not",
    "drift": "the relation to learn changes over time, not with the clock",
    "mixed": "several rhythms at once, or a common model with differences by the hour",
}
ADVICE = {
    "none": "Train one model. The hour need not be known to it.",
    "label_skew": "The hour as a feature is all that is needed; a common model with residuals does the same.",
    "opposite": "One model for all must be wrong somewhere. Train a model for each block.",
    "orthogonal": "One model for all must be wrong somewhere. Train a model for each block.",
    "one_odd": "The odd stretch would pull one chain about. Hedge between one chain and separate ones.",
    "smooth": "A model for each block with a common part, or weights that are waves.",
    "weekly": "Blocks of the week, not of the day.",
    "drift": "One model that is kept up to date. Old rows mislead it: prefer what is recent to all.",
    "mixed": "A common model and a small difference for each block.",
}
MEASURES = {"log_loss": "log loss", "mse": "MSE"}


def write(out: Path, results: Results, suggested: str) -> None:
    """Write the figures, then report.html, then results.json."""
    pictures = [
        _draw_labels(results),
        _draw_block_counts(results),
        _draw_model_similarity(results),
        _draw_costs(results),
    ]
    text = page(
        "diagnose.html",
        results=results,
        pictures=pictures,
        said=sentences(results, suggested),
        lines=lines(results),
        meaning=MEANING,
    )
    write_report(out, results, pictures, text)


def print_report(console: Console, results: Results, suggested: str, out: Path, seconds: float) -> None:
    """Print the verdict to the terminal."""
    for text in sentences(results, suggested):
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    end = f"{seconds:.1f} s. Open {out / 'report.html'}"
    console.print(end, highlight=False, soft_wrap=True, markup=False)


def sentences(results: Results, suggested: str) -> list[str]:
    """Return the verdict, its evidence, the advice, the costs and the value of the recent past, in words.

    suggested: the settings that follow from the verdict, as the reader would write them.
    """
    verdict = results["verdict"]
    regime = verdict["regime"]
    texts = [
        f"Verdict: {regime.replace('_', ' ')} - {MEANING[regime]}. Two thirds of the days alone say the same "
        f"in {verdict['confidence']:.0%} of 20 draws.",
        _evidence_text(results),
        f"{ADVICE[regime]} Suggested: {suggested}.",
        _cost_text(results),
        _recent_past_text(results),
    ]
    return [text for text in texts if text]


def _evidence_text(results: Results) -> str:
    """List, for hour, weekday and time, the significant changes and their size in nats per row."""
    parts = []
    names = {"hours": "the hour", "weekdays": "the weekday", "time": "the passing of time"}
    level = "how frequent labels are" if results["task"] == "classification" else "how high labels are"
    for key, name in names.items():
        tests = results["rhythms"][key]
        changes = []
        for test, description in (("intercept", level), ("weights", "what features say")):
            if tests[test]["is_there"]:
                changes.append(f"{description} ({tests[test]['nats_a_row']:.4f} nats a row)")
        if changes:
            parts.append(f"{name} changes {' and '.join(changes)}")
        elif tests["parts"] < 2:
            parts.append(f"of {name} there is too little to tell")
        else:
            parts.append(f"{name} changes nothing that is more than chance")
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _cost_text(results: Results) -> str:
    """Compare the losses of the automatic choice, one model and the hour as a feature."""
    costs = results["costs"]
    measure = MEASURES[costs["measure"]]
    auto = costs["auto"]
    text = f"Over the last rows, by models of the last midnight ({measure}): automatic choice {auto:.4f}"
    single_model = costs["best"]["single, one model"]
    if costs["last_iterate"] is not None:
        text += f"; one chain as it stood at midnight {costs['last_iterate']:.4f}"
        text += f", its mean {costs['mean_of_all']:.4f}"
    if single_model is not None:
        text += f"; the best one model of all {single_model[costs['measure']]:.4f}"
    hour_feature = costs["baselines"].get("SGD with hour and weekday")
    if hour_feature is not None:
        text += f"; hour and weekday as features {hour_feature:.4f}"
    gain = costs["gains"].get("one SGD model")
    if gain is None or single_model is None:
        return text + "."
    excess = costs["last_iterate"] - auto
    if gain["margin"] is not None and gain["mean"] > gain["margin"]:
        return text + f". So a cyclic last iterate costs {excess:.4f} here."
    return text + ". So the last iterate costs nothing that is sure."


def _recent_past_text(results: Results) -> str:
    """Describe the correlation of residuals with those of the row before and of the day before."""
    past = results["recent_past"]
    if max(abs(past["row_before"]), abs(past["day_before"])) < 0.05:
        return "What a model by the hour did not foresee says nothing of the next row, nor of the next day."
    return (
        f"What a model by the hour did not foresee goes on: from row to row the correlation is "
        f"{past['row_before']:+.2f}, from day to day {past['day_before']:+.2f}. So models that learn while "
        "they serve gain, and a feature of what happened last would too."
    )


def lines(results: Results) -> list[dict[str, Any]]:
    """Return one table line per test."""
    names = {"hours": "hours of the day", "weekdays": "weekdays", "time": "stretches of time"}
    table = []
    for key, name in names.items():
        for test, description in (("intercept", "level of labels"), ("weights", "weights of features")):
            tests = results["rhythms"][key]
            table.append({"cut": name, "what": description, "parts": tests["parts"], **tests[test]})
    return table


# ------------------------------------------------------------------------------------- figures


def _draw_labels(results: Results) -> Picture:
    """Draw the label rates, or means, by hour, weekday and stretch of time."""
    multiclass = "rates" in results["labels"]["hours"][0]
    classification = results["task"] == "classification"
    with new_figure(5.4, rows=3) as (figure, panels):
        splits = (
            ("hours", f"hour ({results['zone']})"),
            ("weekdays", "weekday"),
            ("time", "stretch of time, from"),
        )
        for axes, (key, label) in zip(panels, splits, strict=True):
            parts_of_rows = results["labels"][key]
            x = np.arange(len(parts_of_rows))
            if multiclass:
                bottom = np.zeros(len(parts_of_rows))
                colours = (BLUE, GREEN, ORANGE, RED, VIOLET, FAINT)
                for number in range(len(parts_of_rows[0]["rates"])):
                    share = np.array([100 * part["rates"][number] for part in parts_of_rows])
                    axes.bar(x, share, 0.86, bottom=bottom, color=colours[number % 6])
                    bottom += share
            else:
                scale = 100 if classification else 1
                rate = scale * np.array([part["rate"] for part in parts_of_rows])
                low, high = scale * np.array([part["interval"] for part in parts_of_rows]).T
                axes.errorbar(
                    x, rate, [rate - low, high - rate], fmt="o", markersize=3, color=BLUE, linewidth=1
                )
            step = max(1, len(parts_of_rows) // 12)
            axes.set_xticks(x[::step], [_tick_label(part["part"]) for part in parts_of_rows[::step]])
            axes.set_xlabel(label)
        unit = "%" if classification else results["label"]
        panels[1].set_ylabel(f"{results['label']}, {unit}" if classification else unit)
        what = "shares of the classes" if multiclass else ("rate" if classification else "mean")
        return finish_figure(
            figure,
            "labels",
            "Labels by the clock, the week and time",
            f"The {what} of {results['label']} by part of the rows, with 95 % intervals (rows taken as "
            "independent). Differences here alone are what the hour as a feature can learn.",
        )


def _tick_label(part: str) -> str:
    """Return the hour, the weekday, or the first day of a stretch of time."""
    return part.removesuffix(":00") if ":" in part else part


def _draw_block_counts(results: Results) -> Picture:
    """Draw the possible gain of models per block against the number of blocks."""
    gains = results["block_counts"]
    with new_figure(2.8) as (figure, axes):
        x = np.arange(len(gains))
        axes.bar(x, [1000 * gain["nats_a_row"] for gain in gains], 0.7, color=GREEN)
        axes.set_xticks(x, [str(gain["blocks"]) for gain in gains])
        axes.set(xlabel="blocks a day", ylabel="nats per 1,000 rows")
        axes.grid(axis="x", visible=False)
        return finish_figure(
            figure,
            "counts",
            "How much blocks have of their own",
            "What models by block would gain over one model if they were known, beyond chance, for several "
            "numbers of equal blocks; 0 where it is not more than chance.",
        )


def _draw_model_similarity(results: Results) -> Picture:
    """Draw the cosines between the weights of the blocks' models."""
    models = results["models"]
    blocks = models["blocks"]
    table = np.array([[np.nan if cosine is None else cosine for cosine in row] for row in models["cosines"]])
    with new_figure(4.6) as (figure, axes):
        image = axes.imshow(table, cmap="RdBu", vmin=-1, vmax=1)
        step = max(1, len(blocks) // 8)
        names = blocks[::step]
        axes.set_xticks(range(0, len(blocks), step), [name.split(":")[0] for name in names])
        axes.set_yticks(range(0, len(blocks), step), names)
        axes.grid(visible=False)
        axes.set(xlabel=f"block ({results['zone']})")
        figure.colorbar(image, ax=axes, shrink=0.8).set_label("cosine between the blocks' own weights")
        return finish_figure(
            figure,
            "models",
            "How alike the blocks' models are",
            f"Blue: they say the same; white: unrelated; red: the opposite. On the "
            f"{results['columns_looked_at']} columns that vary most; empty where rows are few.",
        )


def _draw_costs(results: Results) -> Picture:
    """Draw the losses of the automatic choice, the best candidate of each kind of chain and the baselines."""
    costs = results["costs"]
    measure = costs["measure"]
    bars = {"automatic choice": costs["auto"]}
    for chain, scores in costs["best"].items():
        if scores is not None:
            bars[f"best {chain}"] = scores[measure]
    bars |= costs["baselines"]
    # Some baselines are so far off that the other bars could not be distinguished: cut long bars off.
    max_length = 2.0 * costs["auto"] if costs["auto"] > 0 else max(bars.values())
    with new_figure(0.8 + 0.27 * len(bars)) as (figure, axes):
        y = np.arange(len(bars))
        colours = [BLUE if name in ("automatic choice",) else FAINT for name in bars]
        axes.barh(y, [min(value, max_length) for value in bars.values()], 0.7, color=colours)
        for position, value in zip(y, bars.values(), strict=True):
            axes.text(min(value, max_length), position, f" {value:.4g}", va="center", fontsize=7.5)
        axes.set_yticks(y, list(bars))
        axes.invert_yaxis()
        axes.set(xlabel=f"{MEASURES[measure]}, lower is better")
        axes.set_xlim(0, 1.15 * min(max(bars.values()), max_length))
        axes.grid(axis="y", visible=False)
        return finish_figure(
            figure,
            "costs",
            "What it costs to do otherwise",
            "Walking forward over the last rows, by models frozen at local midnight. Of each kind of chain "
            "the best step and read-out, known only afterwards; the automatic choice does not know them. "
            "Bars are cut off at twice its length.",
        )
