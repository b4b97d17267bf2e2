"""Report of the hard instances: HTML page and figures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from semicyclic.reports.html import page
from semicyclic.reports.output_files import write_report
from semicyclic.reports.plot import (
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    RED,
    VIOLET,
    Picture,
    finish_figure,
    legend,
    new_figure,
    png,
    set_title,
    svg,
)
from semicyclic.types import Results

KINDS = {"lipschitz": "Lipschitz instance (Theorem 1)", "smooth": "smooth instance (Theorem 2)"}


def draw_hard(results: Results) -> list[Picture]:
    """Draw the excess against K and n for both instances, phi, and the cases of Section 4."""
    pictures = []
    for kind, words in KINDS.items():
        for what, label in (("steps", "n, steps a block"), ("cycles", "K, cycles")):
            pictures.append(_draw_excess(results, kind, what, label, words))
    return [*pictures, _draw_phi(results), _draw_section4(results)]


def _draw_excess(results: Results, instance: str, what: str, label: str, words: str) -> Picture:
    """Draw the excess in units of the lower bound, so that the bound itself is the line at 1.

    instance: a key of KINDS; `words` is its description.
    what: quantity on the x axis, "steps" or "cycles"; `label` is its description.
    """
    part, settings = results[f"{instance}_against_{what}"], results["settings"]
    x, excess = part["at"], {key: np.array(value) for key, value in part["excess"].items()}
    bound = excess["lower bound"]
    fixed = f"K = {settings['cycles']}" if what == "steps" else f"n = {settings['steps']}"
    title = f"Excess against {'n' if what == 'steps' else 'K'}, {words}"
    with new_figure(3.9) as (figure, axes):
        marks = "ov^s*Dx"
        for k, name in enumerate(results["methods"]):
            axes.plot(
                x,
                excess[name] / bound,
                color=COLOURS[k % 7],
                marker=marks[k % 7],
                markersize=3.5,
                linewidth=1,
                label=name,
            )
        axes.plot(
            x, excess["i.i.d. average"] / bound, color=BLUE, marker="o", markersize=4, label="i.i.d. average"
        )
        pluralistic = excess["pluralistic average, step of Theorem 3"] / bound
        axes.plot(x, pluralistic, color=GREEN, marker="o", markersize=4, label="pluralistic, Theorem 3")
        best = excess["pluralistic average"] / bound
        axes.plot(x, best, color=GREEN, linestyle=":", label="pluralistic, best step")
        axes.axhline(1.0, color=INK, linestyle="--", linewidth=1.2, label="lower bound")
        axes.axhline(0.0, color=FAINT, linewidth=1)
        axes.set_xscale("log")
        axes.minorticks_off()
        ticks = _separated_ticks(x)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set(xlabel=label, ylabel="excess / lower bound", ylim=(-3.0, None))
        legend(axes, 3)
        end = "n" if what == "steps" else "K"
        caption = (
            f"m = 2, {fixed}, B = {settings['radius']:g}; every method at the best of a grid of steps. "
            f"At 1 the "
            "bound that one model on cyclic data cannot pass, at 0 the best single model. One chain averaged "
            f"per block, at the largest {end}: {pluralistic[-1]:+.2f} at the step of Theorem 3 and "
            f"{best[-1]:+.2f} at its "
            "best step (dotted; below -3 not drawn). Minimising every block fully, not drawn, ends at "
            f"{part['excess']['each block minimised'][-1] / bound[-1]:.0f}."
        )
        return finish_figure(figure, f"{instance}-{what}", title, caption)


def _separated_ticks(values: Sequence[int]) -> list[int]:
    """Return the values whose labels do not overlap on a logarithmic axis; the last is always among them."""
    kept = [values[-1]]
    for value in reversed(values):
        if value * 1.7 <= kept[0]:
            kept.insert(0, value)
    return kept


def _draw_phi(results: Results) -> Picture:
    """Draw the link function phi of both theorems, near zero and over its flat part."""
    part = results["phi"]
    z, phi, a, gamma = np.array(part["z"]), np.array(part["phi"]), part["a"], part["gamma"]
    title = "The link function of both theorems"
    with new_figure(2.9, columns=2) as (figure, panes):
        for axes, reach in zip(panes, (2 * gamma, 1.6 * a), strict=True):
            inside = np.abs(z) <= reach * 1.0001
            axes.plot(z[inside], phi[inside], color=BLUE)
            axes.set_xlim(-reach, reach)
            axes.set(xlabel="z")
            axes.ticklabel_format(axis="both", style="sci", scilimits=(-2, 3))
            axes.locator_params(axis="x", nbins=5)
        for position in (-gamma, gamma):
            panes[0].axvline(position, color=FAINT, linestyle=":", linewidth=1)
        for position in (-a / 2, a / 2):
            panes[1].axvline(position, color=FAINT, linestyle=":", linewidth=1)
        panes[0].set_ylabel("phi(z)")
        panes[0].set_title("straight beyond gamma", fontsize=9, fontweight="normal", y=1.06)
        panes[1].set_title("flat up to a/2", fontsize=9, fontweight="normal", y=1.06)
        set_title(figure, title)
        caption = (
            f"a = {a:.4g}, gamma = {gamma:.4g}. The flat part is what hides the next direction from a "
            f"method that has "
            "not yet moved: two directions come to light in each cycle, and there are 4K."
        )
        return Picture("phi", title, caption, svg(figure), png(figure))


def _draw_section4(results: Results) -> Picture:
    """Draw the excess against the number of blocks for identical, orthogonal and opposite blocks."""
    part = results["section4"]
    looks = {
        "consensus average": (RED, "x"),
        "pluralistic average": (GREEN, "o"),
        "separate average": (ORANGE, "s"),
        "hedged by AdaHedge": (VIOLET, "^"),
    }
    title = "Section 4: identical, orthogonal and opposite blocks"
    with new_figure(3.3, columns=3, sharey=True) as (figure, panes):
        for axes, (case, readers) in zip(panes, part["cases"].items(), strict=True):
            for reader, values in readers.items():
                colour, mark = looks[reader]
                axes.errorbar(
                    part["blocks"],
                    values["mean"],
                    values["standard_error"],
                    color=colour,
                    marker=mark,
                    markersize=4,
                    label=reader,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.minorticks_off()
            axes.set_xticks(part["blocks"], [str(m) for m in part["blocks"]])
            axes.set_xlabel("m, blocks")
            axes.set_title(case, fontsize=9, fontweight="normal")
        panes[0].set_ylabel("excess")
        handles, labels = panes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        set_title(figure, title)
        caption = (
            f"Excess over every block's own solution: K = {part['cycles']}, n = {part['steps']}, absolute "
            f"loss, mean and "
            "standard error of ten draws. Alike, the single chain wins by about sqrt(m); opposite, "
            "separate chains do; "
            "orthogonal, with the norm B/sqrt(m) each, the two are the same, and lie on one another, as "
            "consensus "
            "and pluralistic averages do where blocks are opposite. The hedge does not need to know which."
        )
        return Picture("section4", title, caption, svg(figure), png(figure))


def check_claims(results: Results) -> dict[str, bool]:
    """Return which of the report's claims hold for these results.

    above: no method for one model on cyclic data falls below the lower bound.
    below: at the largest n, the i.i.d. and the pluralistic average are below the lower bound.
    """
    experiments = [
        results[f"{kind}_against_{what}"]["excess"] for kind in KINDS for what in ("steps", "cycles")
    ]
    against_steps = [results[f"{kind}_against_steps"]["excess"] for kind in KINDS]
    unbounded = ("i.i.d. average", "pluralistic average")
    return {
        "above": all(
            value >= bound
            for excess in experiments
            for name in results["methods"]
            for value, bound in zip(excess[name], excess["lower bound"], strict=True)
        ),
        "below": all(
            excess[name][-1] < excess["lower bound"][-1] for excess in against_steps for name in unbounded
        ),
    }


def write(out: Path, results: Results) -> None:
    """Write the figures, then report.html, then results.json."""
    pictures, claims = draw_hard(results), check_claims(results)
    text = page("lower_bounds.html", results=results, pictures=pictures, kinds=KINDS, **claims)
    write_report(out, results, pictures, text)
