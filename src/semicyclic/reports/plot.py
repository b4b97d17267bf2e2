"""Figure style, and reproducible SVG and PNG output."""

import importlib.util
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# No other element uses the colours INK and PAPER, so a page can replace them with its own (see `inline`).
INK, PAPER, FAINT = "#1d1d21", "#fefefe", "#8a8a93"
BLUE, ORANGE, GREEN, RED, VIOLET, BROWN = "#3a86c8", "#d9822b", "#2f9e72", "#d1495b", "#8e6bbf", "#a3734c"
# Colours for many lines: none is blue or green, which mark the main lines.
COLOURS = (RED, ORANGE, VIOLET, BROWN, "#c4679a", "#7a7f3a", FAINT)
# Width in inches, narrow enough for a phone in portrait orientation.
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
    """Raise if matplotlib or jinja2 is missing; commands call this before any work starts."""
    if any(importlib.util.find_spec(name) is None for name in ("matplotlib", "jinja2")):
        raise ValueError(MISSING)


@contextmanager
def new_figure(
    height: float, *, rows: int = 1, columns: int = 1, **options: Any
) -> "Iterator[tuple[Figure, Any]]":
    """Yield a figure and its axes in this package's style, independent of the user's matplotlib settings.

    height: inches. options: passed to `Figure.subplots`.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def set_title(figure: "Figure", title: str) -> None:
    """Set the title of the figure, aligned left."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)


def svg(figure: "Figure") -> bytes:
    """Return the figure as SVG, without a date and with its title as metadata."""
    out = io.BytesIO()
    title = figure.get_suptitle()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "semicyclic", "Title": title})
    return out.getvalue()


def png(figure: "Figure") -> bytes:
    """Return the figure as PNG at 200 dpi, with its title as metadata."""
    out = io.BytesIO()
    title = figure.get_suptitle()
    figure.savefig(out, format="png", dpi=200, metadata={"Software": "semicyclic", "Title": title})
    return out.getvalue()


def inline(picture: bytes, title: str) -> str:
    """Return the SVG element for an HTML page, in the page's colours and at its width."""
    text = picture.decode("utf-8")
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace(PAPER, "none")
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{title}">{rest}'


def legend(axes: "Axes", columns: int = 2, **options: Any) -> None:
    """Put the legend below the axes, where it hides nothing."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, **options)


class Picture(NamedTuple):
    """A figure in both formats, with its title and caption."""

    name: str
    title: str
    caption: str
    svg: bytes
    png: bytes


def finish_figure(figure: "Figure", name: str, title: str, caption: str) -> Picture:
    """Set the title of a finished figure and render it in both formats."""
    set_title(figure, title)
    return Picture(name, title, caption, svg(figure), png(figure))
