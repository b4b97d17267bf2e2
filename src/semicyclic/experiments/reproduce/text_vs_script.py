"""Differences between the paper's text and its authors' script, and the variant that a run used."""

from typing import Any, NamedTuple

from semicyclic.experiments.reproduce.protocol import SKEWS, Protocol


class TextScriptChoice(NamedTuple):
    """One detail in which text and script differ, with the text's, the script's and this run's variant."""

    what: str
    text: str
    script: str
    here: str


def choices(protocol: Protocol, *, paper_steps: bool) -> list[dict[str, Any]]:
    """Return all differences, for a report.

    paper_steps: whether the run uses the paper's step sizes.
    """
    skews = {"rate": "as the text", "drop": "as the script", "none": "no skew"}
    starts = "as the script" if protocol.random_start else "as the text"
    wraps = (
        "as the script" if protocol.wraps else "as the text; rows short of a minibatch wait for the next day"
    )
    if protocol.passes > 1:
        wraps += f", but {protocol.passes} passes"
    cut = "as the script" if protocol.cuts_tests else "as the text"
    loss = "softmax, as the script" if protocol.loss.outputs > 1 else "logistic, as the text"
    loss += ", with the paper's steps" if paper_steps else ", with other steps"
    differences = [
        TextScriptChoice(
            "first iterate",
            "zero, as in the theorems",
            "N(0, 1) for every weight: most of the slow rise of its curves is forgetting it",
            starts,
        ),
        TextScriptChoice(
            "model and step",
            "logistic regression, learning rate 0.464 (1.0 for per-component)",
            "softmax with two columns of weights, in which the same learning rate is twice the logistic step",
            loss,
        ),
        TextScriptChoice(
            "label skew between midnight and noon",
            "the rate of positives is interpolated: 2/3, 5/9, 4/9, 1/3, ...",
            "the share dropped is interpolated: 2/3, 6/11, 5/11, 1/3, ... if a block was balanced before",
            skews[SKEWS[protocol.skew]],
        ),
        TextScriptChoice(
            "rows per block and day",
            "each component divided over the days, one pass; nothing is said of a minibatch that is not full",
            "the same number for every block, in whole minibatches; blocks the skew made small are read "
            "again",
            wraps,
        ),
        TextScriptChoice(
            "test rows",
            "all",
            "an incomplete last minibatch of each block is left out",
            cut,
        ),
        TextScriptChoice(
            "the i.i.d. ideal",
            "trained on the complete shuffled set; Appendix B: without skew",
            "trained and tested without skew, while all others are tested on skewed data",
            "both: 'iid' on the same skewed data as the others, 'iid_unskewed' as there",
        ),
        TextScriptChoice(
            "which iterate after a block",
            "the one before the block's last step",
            "the one after it",
            "as the script: one step of many",
        ),
        TextScriptChoice(
            "randomness",
            "ten repetitions",
            "only the first iterate is seeded, not split, skew and order",
            "all of it from one seed",
        ),
    ]
    return [choice._asdict() for choice in differences]
