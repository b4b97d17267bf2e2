"""Reports: one page that stands alone, made from results and figures."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from semicyclic.show.drawing import inline
from semicyclic.show.figures import NAMES, Picture
from semicyclic.show.reading import reading


def page(template: str, **values: Any) -> str:
    """Fill a template of this package; all text is escaped, figures excepted."""
    from jinja2 import Environment, FunctionLoader
    from markupsafe import Markup

    folder = resources.files("semicyclic.show") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["signed"] = lambda value: f"{value:+.4f}".replace("-0.0000", "+0.0000")
    environment.filters["figure"] = lambda picture: Markup(inline(picture.svg, picture.title))
    return environment.get_template(template).render(**values)


def reproduce_page(results: Mapping[str, Any], pictures: Sequence[Picture]) -> str:
    """The report of `semicyclic reproduce`."""
    order = sorted(results["accuracy"], key=lambda key: -results["accuracy"][key]["mean"][-1])
    chain = results["matrices"].get("single_chain", [[0.0]])
    low = min(min(row) for row in chain)
    high = max(max(row) for row in chain)
    return page(
        "reproduce.html",
        results=results,
        pictures=pictures,
        names=NAMES,
        order=order,
        reading=reading(results),
        chain=chain,
        depth=lambda value: round(100 * (value - low) / (high - low or 1)),
    )
