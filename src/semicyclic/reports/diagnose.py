"""Report of `diagnose`: verdict in words, page and figures."""

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

MEANING = {
    "none": "one model does for all hours",
    "label_skew": "how frequent labels are follows the clock; what features say about them does not",
    "opposite": "features say in some blocks the opposite of what they say in others",
    "orthogonal": "every block has a model of its own, unrelated to the others'",
    "one_odd": "one stretch of the day has a model of its own, and the rest share one",
    "smooth": "the model changes like a wave over the day",
    "weekly": "weekdays differ, and hours within them do not",
    "drift": "what is to be learnt changes as time goes by, and not with the clock",
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


def write(out: Path, results: Results) -> None:
    """Figures, report and results; the results last."""
    pictures = [_labels(results), _counts(results), _models(results), _costs(results)]
    text = page(
        "diagnose.html",
        results=results,
        pictures=pictures,
        said=sentences(results),
        lines=lines(results),
        meaning=MEANING,
    )
    write_report(out, results, pictures, text)


def print_report(console: Console, results: Results, out: Path, seconds: float) -> None:
    """The verdict on a terminal."""
    for text in sentences(results):
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    end = f"{seconds:.1f} s. Open {out / 'report.html'}"
    console.print(end, highlight=False, soft_wrap=True, markup=False)


def sentences(results: Results) -> list[str]:
    """The verdict, what it rests on, and what to do."""
    verdict = results["verdict"]
    regime = verdict["regime"]
    found = [
        f"Verdict: {regime.replace('_', ' ')} - {MEANING[regime]}. Two thirds of the days alone say the same "
        f"in {verdict['confidence']:.0%} of 20 draws.",
        _rests(results),
        f"{ADVICE[regime]} Suggested: {_suggestion(verdict)}; or --method auto, which tries all of them.",
        _cost(results),
        _past(results),
    ]
    return [text for text in found if text]


def _suggestion(verdict: Results) -> str:
    text = f"--method {verdict['method']}"
    if verdict["period"] is not None and verdict["blocks"] > 1:
        text += f" --schedule {verdict['period']}:{verdict['blocks']}"
    return text


def _rests(results: Results) -> str:
    parts = []
    names = {"hours": "the hour", "weekdays": "the weekday", "time": "the passing of time"}
    level = "how frequent labels are" if results["task"] == "classification" else "how high labels are"
    for key, name in names.items():
        held = results["rhythms"][key]
        own = []
        for what, called in (("intercept", level), ("weights", "what features say")):
            if held[what]["is_there"]:
                own.append(f"{called} ({held[what]['nats_a_row']:.4f} nats a row)")
        if own:
            parts.append(f"{name} changes {' and '.join(own)}")
        elif held["parts"] < 2:
            parts.append(f"of {name} there is too little to tell")
        else:
            parts.append(f"{name} changes nothing that is more than chance")
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _cost(results: Results) -> str:
    held = results["costs"]
    measure = MEASURES[held["measure"]]
    auto = held["auto"]
    text = f"Over the last rows, by models of the last midnight ({measure}): automatic choice {auto:.4f}"
    one = held["best"]["single, one model"]
    if held["last_iterate"] is not None:
        text += f"; one chain as it stood at midnight {held['last_iterate']:.4f}"
        text += f", its mean {held['mean_of_all']:.4f}"
    if one is not None:
        text += f"; the best one model of all {one[held['measure']]:.4f}"
    feature = held["baselines"].get("SGD with hour and weekday")
    if feature is not None:
        text += f"; hour and weekday as features {feature:.4f}"
    gain = held["gains"].get("one SGD model")
    if gain is None or one is None:
        return text + "."
    worse = held["last_iterate"] - auto
    if gain["margin"] is not None and gain["mean"] > gain["margin"]:
        return text + f". So a cyclic last iterate costs {worse:.4f} here."
    return text + ". So the last iterate costs nothing that is sure."


def _past(results: Results) -> str:
    past = results["recent_past"]
    if max(abs(past["row_before"]), abs(past["day_before"])) < 0.05:
        return "What a model by the hour did not foresee says nothing of the next row, nor of the next day."
    return (
        f"What a model by the hour did not foresee goes on: from row to row the correlation is "
        f"{past['row_before']:+.2f}, from day to day {past['day_before']:+.2f}. So models that learn while "
        "they serve gain, and a feature of what happened last would too."
    )


def lines(results: Results) -> list[dict[str, Any]]:
    """The tests, one by one."""
    names = {"hours": "hours of the day", "weekdays": "weekdays", "time": "stretches of time"}
    found = []
    for key, name in names.items():
        for what, called in (("intercept", "level of labels"), ("weights", "weights of features")):
            held = results["rhythms"][key]
            found.append({"cut": name, "what": called, "parts": held["parts"], **held[what]})
    return found


# ------------------------------------------------------------------------------------- figures


def _labels(results: Results) -> Picture:
    several = "rates" in results["labels"]["hours"][0]
    two = results["task"] == "classification"
    with new_figure(5.4, rows=3) as (figure, panels):
        parts = (
            ("hours", f"hour ({results['zone']})"),
            ("weekdays", "weekday"),
            ("time", "stretch of time, from"),
        )
        for axes, (key, label) in zip(panels, parts, strict=True):
            held = results["labels"][key]
            at = np.arange(len(held))
            if several:
                bottom = np.zeros(len(held))
                colours = (BLUE, GREEN, ORANGE, RED, VIOLET, FAINT)
                for number in range(len(held[0]["rates"])):
                    share = np.array([100 * each["rates"][number] for each in held])
                    axes.bar(at, share, 0.86, bottom=bottom, color=colours[number % 6])
                    bottom += share
            else:
                scale = 100 if two else 1
                rate = scale * np.array([each["rate"] for each in held])
                low, high = scale * np.array([each["interval"] for each in held]).T
                axes.errorbar(
                    at, rate, [rate - low, high - rate], fmt="o", markersize=3, color=BLUE, linewidth=1
                )
            step = max(1, len(held) // 12)
            axes.set_xticks(at[::step], [_tick(each["part"]) for each in held[::step]])
            axes.set_xlabel(label)
        unit = "%" if two else results["label"]
        panels[1].set_ylabel(f"{results['label']}, {unit}" if two else unit)
        what = "shares of the classes" if several else ("rate" if two else "mean")
        return finish_figure(
            figure,
            "labels",
            "Labels by the clock, the week and time",
            f"The {what} of {results['label']} by part of the rows, with 95 % intervals (rows taken as "
            "independent). Differences here alone are what the hour as a feature can learn.",
        )


def _tick(part: str) -> str:
    """An hour, a weekday, or the day on which a stretch begins."""
    return part.removesuffix(":00") if ":" in part else part


def _counts(results: Results) -> Picture:
    held = results["block_counts"]
    with new_figure(2.8) as (figure, axes):
        at = np.arange(len(held))
        axes.bar(at, [1000 * each["nats_a_row"] for each in held], 0.7, color=GREEN)
        axes.set_xticks(at, [str(each["blocks"]) for each in held])
        axes.set(xlabel="blocks a day", ylabel="nats per 1,000 rows")
        axes.grid(axis="x", visible=False)
        return finish_figure(
            figure,
            "counts",
            "How much blocks have of their own",
            "What models by block would gain over one model if they were known, beyond chance, for several "
            "numbers of equal blocks; 0 where it is not more than chance.",
        )


def _models(results: Results) -> Picture:
    held = results["models"]
    table = np.array([[np.nan if each is None else each for each in row] for row in held["cosines"]])
    with new_figure(4.6) as (figure, axes):
        image = axes.imshow(table, cmap="RdBu", vmin=-1, vmax=1)
        step = max(1, len(held["blocks"]) // 8)
        names = held["blocks"][::step]
        axes.set_xticks(range(0, len(held["blocks"]), step), [name.split(":")[0] for name in names])
        axes.set_yticks(range(0, len(held["blocks"]), step), names)
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


def _costs(results: Results) -> Picture:
    held = results["costs"]
    measure = held["measure"]
    bars = {"automatic choice": held["auto"]}
    for kind, found in held["best"].items():
        if found is not None:
            bars[f"best {kind}"] = found[measure]
    bars |= held["baselines"]
    # Some baselines are so far off that nothing else could be told apart.
    most = 2.0 * held["auto"] if held["auto"] > 0 else max(bars.values())
    with new_figure(0.8 + 0.27 * len(bars)) as (figure, axes):
        at = np.arange(len(bars))
        colours = [BLUE if name in ("automatic choice",) else FAINT for name in bars]
        axes.barh(at, [min(value, most) for value in bars.values()], 0.7, color=colours)
        for place, value in zip(at, bars.values(), strict=True):
            axes.text(min(value, most), place, f" {value:.4g}", va="center", fontsize=7.5)
        axes.set_yticks(at, list(bars))
        axes.invert_yaxis()
        axes.set(xlabel=f"{MEASURES[measure]}, lower is better")
        axes.set_xlim(0, 1.15 * min(max(bars.values()), most))
        axes.grid(axis="y", visible=False)
        return finish_figure(
            figure,
            "costs",
            "What it costs to do otherwise",
            "Walking forward over the last rows, by models frozen at local midnight. Of each kind of chain "
            "the best step and read-out, known only afterwards; the automatic choice was not told. Bars are "
            "cut off at twice its length.",
        )
