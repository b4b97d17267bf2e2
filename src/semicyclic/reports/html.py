"""Self-contained HTML pages from templates."""

from importlib import resources
from typing import Any

from semicyclic.reports.plot import inline


def page(template: str, **values: Any) -> str:
    """Render a template of this package; everything except figures is escaped."""
    from jinja2 import Environment, FunctionLoader
    from markupsafe import Markup

    folder = resources.files("semicyclic.reports") / "templates"
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
