"""`Labels`: the mapping from labels to training targets: class codes or standardized numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.method.loss import Loss, logistic, softmax, squared
from semicyclic.tables.arrow import texts
from semicyclic.tables.columns import BOOLEAN, CATEGORY
from semicyclic.types import Array

MAX_CLASSES = 1000


@dataclass(frozen=True)
class Labels:
    """Type and encoding of the labels.

    kind: column type of the label. classes: the classes in order of their codes; empty for regression.
    mean, scale: mean and standard deviation by which regression labels are standardized.
    """

    kind: str
    loss: Loss
    classes: tuple[Any, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    def codes(self, labels: Any) -> tuple[Array, Array]:
        """Return training targets (class codes or standardized numbers) and a mask of unknown classes."""
        if not self.classes:
            return self.standardize(labels), np.zeros(len(labels), bool)
        if self.kind == CATEGORY:
            index = pc.index_in(labels, value_set=pa.array([str(name) for name in self.classes]))
            codes = pc.fill_null(index, -1).to_numpy(zero_copy_only=False)
        else:
            order = np.argsort(np.array(self.classes, np.float64))
            known = np.array(self.classes, np.float64)[order]
            nearest = np.searchsorted(known, labels).clip(0, len(known) - 1)
            codes = np.where(known[nearest] == labels, order[nearest], -1)
        return codes.astype(np.float64), np.asarray(codes < 0)

    def standardize(self, labels: Array) -> Array:
        """Return regression labels as training targets."""
        return (labels - self.mean) / self.scale

    def new_classes(self, labels: Any, row: Array, unknown: Array) -> list[tuple[int, str]]:
        """Return faults, as (row number, message), for the rows whose class is unknown."""
        where = np.flatnonzero(unknown)
        values = labels[where].tolist() if isinstance(labels, np.ndarray) else labels.take(where).to_pylist()
        known = ", ".join(repr(name) for name in self.classes)
        what = f"is new, the classes are {known} (or classes=)"
        return [(int(row[at]), f"label {value!r} {what}") for at, value in zip(where, values, strict=True)]

    def loss_scale(self) -> float:
        """Return the factor that converts a loss of standardized labels to the original units."""
        return float(self.scale**self.loss.label_power)


def class_name(value: Any) -> str:
    """Return a class as text, with booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def learn_labels(labels: Any, kind: str, requested: Loss | None, classes: tuple[str, ...]) -> Labels:
    """Infer the label encoding from the stream's first rows and the user's loss, if any, and `classes`."""
    known = _parse_classes(classes, kind) if classes else _infer_classes(labels, kind)
    regression = requested is not None and requested.classes == 0
    if kind == CATEGORY and requested is not None and regression:
        raise ValueError(
            f"loss {requested.name} needs numbers as labels, but these are strings such as {known[0]!r}"
        )
    if regression or (
        requested is None and kind not in (CATEGORY, BOOLEAN) and len(known) > 2 and not classes
    ):
        return _regression_labels(labels, kind, requested or squared)
    if len(known) < 2:
        raise ValueError(
            f"all labels of the first {len(labels):,} rows are {known[0]!r}: name all classes "
            f"with classes=, or give loss='squared' if they are numbers"
        )
    if len(known) > MAX_CLASSES:
        raise ValueError(
            f"the label has more than {MAX_CLASSES:,} different values, the maximum number of classes"
        )
    if requested is not None and len(known) != requested.classes:
        raise ValueError(
            f"there are {len(known)} classes in the first rows, but loss {requested!r} "
            f"takes {requested.classes}"
        )
    return Labels(kind, requested or (logistic if len(known) == 2 else softmax(len(known))), known)


def _parse_classes(classes: tuple[str, ...], kind: str) -> tuple[Any, ...]:
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise ValueError(f"classes={list(classes)!r}: give two or more, all different")
    if kind == CATEGORY:
        return classes
    if kind == BOOLEAN:
        return False, True
    try:
        return tuple(_int_if_integral(float(name)) for name in classes)
    except ValueError:
        raise ValueError(f"classes={list(classes)!r}: the labels are numbers, so classes must be") from None


def _infer_classes(labels: Any, kind: str) -> tuple[Any, ...]:
    if kind == BOOLEAN:
        return False, True
    if kind == CATEGORY:
        present = labels.filter(pa.array(texts(labels).there))
        return tuple(sorted(pc.unique(present).to_pylist()))
    values = np.unique(labels)
    return tuple(_int_if_integral(value) for value in values[: MAX_CLASSES + 1].tolist())


def _int_if_integral(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _regression_labels(labels: Any, kind: str, loss: Loss) -> Labels:
    mean, scale = float(np.mean(labels)), float(np.std(labels))
    if not (np.isfinite(scale) and scale > 0):
        scale = 1.0
    return Labels(kind, loss, (), mean if np.isfinite(mean) else 0.0, scale)
