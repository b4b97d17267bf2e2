"""Documents say what the code does."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import semicyclic as sc
from semicyclic.cli.train import train

ROOT = Path(__file__).parent.parent


def defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def test_the_table_of_defaults_is_right() -> None:
    """docs/tables.md, the same model everywhere: defaults of `train`, `sc.fit` and the estimators."""
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`?[\w `]+`?) \| (.*) \| (.*) \| ?(.*?) ?\|$", text, flags=re.MULTILINE)
    names = {"read-out": "read_out", "step size": "step_size", "`horizon` of `auto`": "horizon"}
    estimator = defaults(sc.SemiCyclicClassifier) | {"read_out": defaults(sc.SemiCyclicClassifier)["average"]}
    compared = []
    columns = defaults(train)["columns"]
    of_train = {**defaults(train), "zone": "UTC", "bins": columns.bins}
    for title, *cells in rows:
        name = names.get(title, title.strip("`"))
        for cell, known in zip(cells, (of_train, defaults(sc.fit), estimator), strict=True):
            stated = re.match(r"`([^`]*)`", cell)
            if stated and name in known and "=" not in stated[1] and not stated[1].startswith("--"):
                assert ast.literal_eval(stated[1]) == known[name], (title, cell)
                compared.append((name, cell))
        assert name not in estimator or name == "shuffle_within_blocks" or cells[2], title
    assert len(compared) >= 26
    assert estimator["shuffle_within_blocks"] is True
    # No other shared setting has different defaults.
    shared = (defaults(train) | {"zone": "UTC"}).keys() & defaults(sc.fit).keys()
    different = {name for name in shared if of_train[name] != defaults(sc.fit)[name]}
    assert different == {"first_pass", "horizon", "zone"}
