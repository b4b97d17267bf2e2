"""`semicyclic inspect`: show a model."""

import json
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, training
from semicyclic.cli.options import ModelFile


def inspect(
    model: ModelFile,
    /,
    *,
    top: Annotated[
        int, Parameter(help="Number of features to show, those that differ most between blocks.")
    ] = 10,
    json_: Annotated[
        bool, Parameter(name="--json", negative=(), help="Print the complete description as JSON.")
    ] = False,
) -> None:
    """Show a model's blocks, losses, features and origin.

    Prints a table with the loss of every block. A second table lists the features whose weights differ most
    between blocks. The last lines show the columns and the training rows, as far as the file records them.

    Example: semicyclic inspect late --top 5
    """

    if top < 0:
        raise ValueError(f"--top {top}: must be 0 or more")
    description = training.inspect.describe_model(training.open_model.load(model), top=top)
    if json_:
        print(json.dumps(description, indent=1, allow_nan=False))
    else:
        reports.inspect.print_model(Console(), training.open_model.model_path(model), description)
