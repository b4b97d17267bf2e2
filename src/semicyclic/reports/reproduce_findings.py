"""Findings of `reproduce` in sentences, computed from the results."""

from collections.abc import Mapping
from typing import Any

from semicyclic.types import Results


def _last(results: Results, key: str, measure: str = "accuracy") -> float:
    """Return the mean score of an approach on the last day."""
    return float(results[measure][key]["mean"][-1])


def _difference(results: Results, one: str, other: str) -> Mapping[str, Any]:
    """Return the entry for the paired difference in accuracy on the last day, `one` minus `other`."""
    for entry in results["differences"]["accuracy"]:
        if (entry["of"], entry["over"]) == (one, other):
            return dict(entry)
    raise KeyError((one, other))


def _gap(results: Results, one: str, other: str) -> str:
    """Return a difference with its standard error in words, and whether it is clear."""
    difference = _difference(results, one, other)
    if difference["standard_error"] is None:
        return f"{difference['mean']:+.4f}, of one repetition only"
    clear = "" if difference["clear"] else f", not clear from {_repetitions_text(results)}"
    return f"{difference['mean']:+.4f} with a standard error of {difference['standard_error']:.4f}{clear}"


def _verdict(results: Results, one: str, other: str) -> int:
    """Return the sign of a difference, or 0 if it is not clear."""
    difference = _difference(results, one, other)
    return 0 if not difference["clear"] else 1 if difference["mean"] > 0 else -1


def _repetitions_text(results: Results) -> str:
    """Return the number of repetitions in words."""
    count = results["settings"]["repetitions"]
    return f"{count} repetition{'s' if count != 1 else ''}"


def reading(results: Results) -> list[tuple[str, str]]:
    """Return (heading, paragraph) pairs; each heading is a question that readers ask."""
    paragraphs = [
        _consensus_paragraph(results),
        _pluralistic_paragraph(results),
        _average_paragraph(results),
        _hour_feature_paragraph(results),
        _separate_paragraph(results),
    ]
    paragraphs.append(("What these figures do not say", _limits_text(results)))
    return paragraphs


def _consensus_paragraph(results: Results) -> tuple[str, str]:
    """Compare the single chain on cyclic data with that on shuffled data."""
    last, mean = _last(results, "consensus"), _last(results, "consensus_average")
    ideal, ideal_mean = _last(results, "iid"), _last(results, "iid_average")
    text = (
        f"Served at a random hour, the last iterate of the one chain is right {last:.4f} of the time, and "
        f"that of "
        f"shuffled data {ideal:.4f} (consensus over i.i.d.: {-(ideal - last):+.4f}). Averaged over all "
        f"iterates they "
        f"reach {mean:.4f} and {ideal_mean:.4f}. "
    )
    if _verdict(results, "iid", "consensus") <= 0:
        text += (
            f"{_repetitions_text(results).capitalize()} of these data show no clear deficit of the consensus."
        )
    elif ideal_mean - mean < 0.5 * (ideal - last):
        text += (
            "So here the deficit of the consensus is mostly an effect of the last iterate, which leans "
            "towards the block seen last; the mean over all blocks does not. The theorems' lower bound is "
            "for worse data than this: `semicyclic theory` can run its hard instances."
        )
    else:
        text += "So averaging mends only a part of the consensus's deficit here."
    return "Does the rhythm hurt one model?", text


def _pluralistic_paragraph(results: Results) -> tuple[str, str]:
    """Compare the pluralistic models with consensus and the i.i.d. ideal."""
    text = (
        f"A model for each block, from the same chain: pluralistic over consensus "
        f"{_gap(results, 'pluralistic', 'consensus')}; over the i.i.d. ideal "
        f"{_gap(results, 'pluralistic', 'iid')}. "
    )
    if _verdict(results, "pluralistic", "iid") > 0:
        text += "It can pass the ideal because that has to serve every hour with one model."
    if results["settings"]["skew"] == "none":
        text += " No skew was added: pluralism can gain no more than what the data have by themselves."
    return "Does one model for each block help?", text


def _average_paragraph(results: Results) -> tuple[str, str]:
    """Compare the pluralistic average with the last iterate."""
    text = f"Pluralistic average over last iterate: {_gap(results, 'pluralistic_average', 'pluralistic')}. "
    if _verdict(results, "pluralistic_average", "pluralistic") < 0:
        text += (
            "The average trails here. It still remembers the first steps, and with few or small steps that "
            "weighs: use smaller minibatches, larger steps (averages want two to four times those of the "
            "last iterate), or the tail average."
        )
    tried = [steps[0] for steps in results["settings"]["step_sizes"]]
    if len(tried) == 1:
        text += (
            "Averages want larger steps than last iterates: with several step sizes, each approach uses its "
            "best."
        )
    else:
        at_grid_end = [
            key
            for key in ("pluralistic", "pluralistic_average")
            if results["step_sizes"][key][0] in (min(tried), max(tried))
        ]
        text += f"Each has the best of the steps {', '.join(f'{size:g}' for size in tried)}."
        if at_grid_end:
            text += " Some best ones lie at an end of that list: a wider one may do better."
    return "Average or last iterate?", text


def _hour_feature_paragraph(results: Results) -> tuple[str, str]:
    """Compare the pluralistic average with one model that has the block as a feature."""
    base = _last(results, "iid_average")
    hour, pluralistic = _last(results, "hour_feature"), _last(results, "pluralistic_average")
    text = (
        "An ordinary chain with the block as a feature learns how many rows of each block are positive, and "
        f"nothing else about the hour. It reaches {hour:.4f}, the pluralistic average {pluralistic:.4f}, the "
        f"i.i.d. "
        f"average, which does not know the hour, {base:.4f}. "
    )
    gains = _verdict(results, "pluralistic_average", "iid_average") > 0
    if gains and results["settings"]["blocks"] > 1:
        share = max((hour - base) / (pluralistic - base), 0)
        if share < 1:
            text += f"So {share:.0%} of the gain is knowing the block's share of positives. "
        else:
            text += "So the feature gains as much as the pluralistic average or more. "
        if share >= 0.5 and results["settings"]["skew"] != "none":
            text += "The skew changes nothing but that share, and the feature is a fair answer to it. "
    text += (
        "Where words change their meaning with the hour a feature cannot say so, and a model for each block "
        "can; a shared model with a residual for each block does both "
        f"({_last(results, 'residual'):.4f}). On log loss the feature has "
        f"{_last(results, 'hour_feature', 'log_loss'):.4f}, the pluralistic average "
        f"{_last(results, 'pluralistic_average', 'log_loss'):.4f}, the residual "
        f"{_last(results, 'residual', 'log_loss'):.4f}."
    )
    return "And why not just add the hour as a feature?", text


def _separate_paragraph(results: Results) -> tuple[str, str]:
    """Compare the pluralistic average with separate chains and hedges."""
    granularity = results["granularity"]
    first, last = granularity["blocks"][0], granularity["blocks"][-1]
    pluralistic = granularity["pluralistic_average"]["mean"]
    separate = granularity["per_component_average"]["mean"]
    text = (
        f"Pluralistic average over per-component average: "
        f"{_gap(results, 'pluralistic_average', 'per_component_average')}. From {first} to {last:,} "
        f"blocks the pluralistic average goes from {pluralistic[0]:.4f} to {pluralistic[-1]:.4f}, "
        f"separate chains from {separate[0]:.4f} to {separate[-1]:.4f}: each "
        "of them learns from its own block only (and a minibatch ends with its block, so finer blocks "
        "make more steps). A hedge between the two needs no choice: AdaHedge "
        f"{_last(results, 'hedged_adahedge'):.4f}, Prod {_last(results, 'hedged_prod'):.4f}. Prod needs a "
        f"ball to project "
        f"onto (radius {results['settings']['radius']:g}) and moves slowly. "
    )
    if not results["prod"]["rate_of_theorem_4"]:
        text += "Some block has too few steps for the rate of Theorem 4; Prod had the largest it may have."
    return "Or a chain for each block?", text


def _limits_text(results: Results) -> str:
    """Return the limitations of the experiment."""
    parts = []
    if results["data"]["stand_in"]:
        parts.append(
            "The data are a stand-in made by this package: its words are invented, and no figure here "
            "says anything "
            "about real tweets."
        )
    else:
        parts.append(
            "In Sentiment140 every row from 17 June 2009 on is negative, so its dates say more about the "
            "label than any hour does; the experiment uses the time of day alone."
        )
    parts.append(
        "Rows are shuffled inside each block before they are divided over the days, as in the paper: this "
        "is the "
        "setting of the theorems, not the order of a real stream, in which the world also drifts."
    )
    parts.append("Scores are means over blocks, each counting alike, whatever its size.")
    if len(results["settings"]["step_sizes"]) > 1:
        parts.append(
            "Each approach has the step with the best accuracy on the last day's test rows, as the paper "
            "chose "
            "its own: a little kind to every approach, and to all alike."
        )
    parts.append("Repetitions share their rows, so their spread is not that of fresh data.")
    return " ".join(parts)
