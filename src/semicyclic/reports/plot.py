"""Figures: style, and reproducible SVG and PNG output."""

import importlib.util
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ink and paper are colours found nowhere else, so that a page can put its own in their place.
INK, PAPER, FAINT = "#1d1d21", "#fefefe", "#8a8a93"
BLUE, ORANGE, GREEN, RED, VIOLET, BROWN = "#3a86c8", "#d9822b", "#2f9e72", "#d1495b", "#8e6bbf", "#a3734c"
# For many lines beside those of the house: none of these is blue or green.
COLOURS = (RED, ORANGE, VIOLET, BROWN, "#c4679a", "#7a7f3a", FAINT)
# Narrow enough to be read on a telephone without turning it.
WIDTH = 5.0
STYLE: Any = {
    "svg.hashsalt": "semicyclic",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
}
MISSING = "figures and reports need matplotlib and jinja2: install them with pip install 'semicyclic[report]'"


def check_installed() -> None:
    """Say what to install, before any work is done."""
    if any(importlib.util.find_spec(name) is None for name in ("matplotlib", "jinja2")):
        raise ValueError(MISSING)


@contextmanager
def new_figure(
    height: float, *, rows: int = 1, columns: int = 1, **how: Any
) -> "Iterator[tuple[Figure, Any]]":
    """A figure and its axes in the house's style, whatever the user's own settings are."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots(rows, columns, **how)


def set_title(figure: "Figure", title: str) -> None:
    """A title of the whole figure, at its left edge."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)


def svg(figure: "Figure") -> bytes:
    """The figure as SVG, without a date, its title in words as well."""
    out = io.BytesIO()
    title = figure.get_suptitle()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "semicyclic", "Title": title})
    return out.getvalue()


def png(figure: "Figure") -> bytes:
    """The figure as PNG, sharp enough to be shown on a screen."""
    out = io.BytesIO()
    title = figure.get_suptitle()
    figure.savefig(out, format="png", dpi=200, metadata={"Software": "semicyclic", "Title": title})
    return out.getvalue()


def inline(picture: bytes, title: str) -> str:
    """An SVG to stand in a page: in the page's colours and at its width."""
    text = picture.decode("utf-8")
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace(PAPER, "none")
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{title}">{rest}'


def legend(axes: "Axes", columns: int = 2, **how: Any) -> None:
    """Below the axes, where it hides nothing."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, **how)


class Picture(NamedTuple):
    """A figure in both formats, and what is said beneath it."""

    name: str
    title: str
    caption: str
    svg: bytes
    png: bytes


def finish_figure(figure: "Figure", name: str, title: str, caption: str) -> Picture:
    """A figure that is drawn, under its title."""
    set_title(figure, title)
    return Picture(name, title, caption, svg(figure), png(figure))
