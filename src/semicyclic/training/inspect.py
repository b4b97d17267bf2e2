"""Description of a model: its schedule, losses, and the features that differ between blocks."""

from typing import Any

import numpy as np

from semicyclic.method.model import Pluralistic
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.features import Features


def describe_model(model: Pluralistic, *, top: int = 10) -> dict[str, Any]:
    """All that `semicyclic inspect` shows, as a JSON value."""
    blocks, outputs, width = model.shape
    schedule = model.schedule
    labels = list(schedule.labels) if isinstance(schedule, Schedule) else [str(i) for i in range(blocks)]
    provenance = model.provenance if isinstance(model.provenance, dict) else {}
    progressive = provenance.get("progressive")
    found = {
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
        columns = Features.from_json(model.features).columns
        found["features"] = {"when": columns.clock.to_json(), "kinds": columns.kinds, "label": columns.label}
    return found


def differences(model: Pluralistic, labels: list[str], top: int) -> list[dict[str, Any]]:
    """The features whose weights differ most between blocks: where most and least, and by how much."""
    blocks, outputs, width = model.shape
    if blocks == 1:
        return []
    low = np.full((outputs, width), np.inf)
    high = np.full((outputs, width), -np.inf)
    least, most = np.zeros((outputs, width), int), np.zeros((outputs, width), int)
    for block in range(blocks):
        weights = model.block_weights(block)
        least = np.where(weights < low, block, least)
        most = np.where(weights > high, block, most)
        low, high = np.minimum(low, weights), np.maximum(high, weights)
    apart = (high - low).ravel()
    title = _titles(model)
    chosen = [int(at) for at in np.argsort(-apart, kind="stable")[:top] if apart[at] > 0]
    return [
        {
            "feature": title(at % width),
            **({"class": model.classes[at // width]} if outputs > 1 else {}),
            "difference": float(apart[at]),
            "highest": {"block": labels[int(most.flat[at])], "weight": float(high.flat[at])},
            "lowest": {"block": labels[int(least.flat[at])], "weight": float(low.flat[at])},
        }
        for at in chosen
    ]


def _titles(model: Pluralistic) -> Any:
    """How columns are called."""
    width = model.shape[2]
    if model.features is None:
        return lambda column: "(intercept)" if column == width - 1 else f"column {column}"
    features = Features.from_json(model.features)
    names = {int(column): str(name) for column, name in model.features.get("names", {}).items()}

    def title(column: int) -> str:
        if column == width - 1:
            return "(intercept)"
        return features.title(names.get(column, f"column {column}"))

    return title
