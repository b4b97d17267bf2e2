"""`semicyclic inspect`: show a model."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, store, training
from semicyclic.cli.options import model_path


def inspect(
    model: Annotated[Path, Parameter(help="A model file, or the folder of a run.")],
    /,
    *,
    top: Annotated[int, Parameter(help="How many features that differ between blocks.")] = 10,
    json_: Annotated[
        bool, Parameter(name="--json", negative=(), help="For programs: all of it as JSON.")
    ] = False,
) -> None:
    """Show a model: its schedule, its loss in every block, what differs between blocks, where it comes from.

    Example: semicyclic inspect late --top 5
    """

    if top < 0:
        raise ValueError(f"--top {top}: must be 0 or more")
    path = model_path(model)
    found = training.inspect.describe_model(store.model_file.load(path), top=top)
    if json_:
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        reports.inspect.print_model(Console(), path, found)
