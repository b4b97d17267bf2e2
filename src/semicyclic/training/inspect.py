"""Description of a model: its schedule, losses, and the features that differ between blocks."""

from typing import Any

import numpy as np

from semicyclic.method.model import Pluralistic
from semicyclic.schedule.schedule import Schedule
from semicyclic.store.json_codec import to_json
from semicyclic.tables.encoding import TableEncoding


def describe_model(model: Pluralistic, *, top: int = 10) -> dict[str, Any]:
    """Return the contents of `semicyclic inspect` as a JSON value. top: maximum number of features listed."""
    blocks, outputs, width = model.shape
    schedule = model.schedule
    labels = list(schedule.labels) if isinstance(schedule, Schedule) else [str(i) for i in range(blocks)]
    provenance = model.provenance if isinstance(model.provenance, dict) else {}
    progressive = provenance.get("progressive")
    description = {
        "schedule": schedule.to_json() if isinstance(schedule, Schedule) else schedule,
        "blocks": labels,
        "loss": model.loss.name,
        "classes": list(model.classes),
        "columns": width - 1,
        "outputs": outputs,
        "never_visited": [labels[block] for block in model.fallback],
        "progressive": progressive if isinstance(progressive, dict) else None,
        "provenance": model.provenance,
        "features": None,
        "differences": differences(model, labels, top),
    }
    if model.features is not None:
        columns = _encoding(model).features.columns
        description["features"] = {
            "when": to_json(columns.when),
            "kinds": columns.kinds,
            "label": columns.label,
        }
    return description


def differences(model: Pluralistic, labels: list[str], top: int) -> list[dict[str, Any]]:
    """Features whose weights differ most between blocks, each with its lowest and highest weight."""
    blocks, outputs, width = model.shape
    if blocks == 1:
        return []
    low = np.full((outputs, width), np.inf)
    high = np.full((outputs, width), -np.inf)
    lowest, highest = np.zeros((outputs, width), int), np.zeros((outputs, width), int)
    for block in range(blocks):
        weights = model.block_weights(block)
        lowest = np.where(weights < low, block, lowest)
        highest = np.where(weights > high, block, highest)
        low, high = np.minimum(low, weights), np.maximum(high, weights)
    gap = (high - low).ravel()
    title = _column_titles(model)
    chosen = [int(at) for at in np.argsort(-gap, kind="stable")[:top] if gap[at] > 0]
    return [
        {
            "feature": title(at % width),
            **({"class": model.classes[at // width]} if outputs > 1 else {}),
            "difference": float(gap[at]),
            "highest": {"block": labels[int(highest.flat[at])], "weight": float(high.flat[at])},
            "lowest": {"block": labels[int(lowest.flat[at])], "weight": float(low.flat[at])},
        }
        for at in chosen
    ]


def _encoding(model: Pluralistic) -> TableEncoding:
    assert isinstance(model.features, TableEncoding)
    return model.features


def _column_titles(model: Pluralistic) -> Any:
    """Return a function from a column number to its display name."""
    width = model.shape[2]
    if model.features is None:
        return lambda column: "(intercept)" if column == width - 1 else f"column {column}"
    encoding = _encoding(model)

    def title(column: int) -> str:
        if column == width - 1:
            return "(intercept)"
        return encoding.features.title(encoding.names.get(column, f"column {column}"))

    return title
