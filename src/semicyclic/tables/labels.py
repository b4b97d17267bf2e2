"""`Labels`: classes and their codes, or numbers with their mean and scale."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.method.loss import Loss, by_name, logistic, softmax, squared
from semicyclic.tables.arrow import texts
from semicyclic.tables.columns import BOOLEAN, CATEGORY
from semicyclic.types import Array

MOST_CLASSES = 1000


@dataclass(frozen=True)
class Labels:
    """What labels are: classes in the order of their codes; or numbers, of this mean and scale."""

    kind: str
    loss: Loss
    classes: tuple[Any, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "loss": self.loss.name,
            "classes": list(self.classes),
            "mean": self.mean,
            "scale": self.scale,
        }

    @staticmethod
    def from_json(value: Any) -> "Labels":
        mean, scale = float(value["mean"]), float(value["scale"])
        return Labels(str(value["kind"]), by_name(value["loss"]), tuple(value["classes"]), mean, scale)

    def codes(self, labels: Any) -> tuple[Array, Array]:
        """Labels as they are learnt from: codes of classes, or scaled numbers; and which are unknown."""
        if not self.classes:
            return (labels - self.mean) / self.scale, np.zeros(len(labels), bool)
        if self.kind == CATEGORY:
            found = pc.index_in(labels, value_set=pa.array([str(each) for each in self.classes]))
            codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
        else:
            order = np.argsort(np.array(self.classes, np.float64))
            known = np.array(self.classes, np.float64)[order]
            near = np.searchsorted(known, labels).clip(0, len(known) - 1)
            codes = np.where(known[near] == labels, order[near], -1)
        return codes.astype(np.float64), np.asarray(codes < 0)

    def new_classes(self, labels: Any, row: Array, unknown: Array) -> list[tuple[int, str]]:
        """What is wrong with rows whose class is not among those known."""
        where = np.flatnonzero(unknown)
        values = labels[where].tolist() if isinstance(labels, np.ndarray) else labels.take(where).to_pylist()
        known = ", ".join(repr(each) for each in self.classes)
        what = f"is new, the classes are {known}: name them all with --classes"
        return [(int(row[at]), f"label {value!r} {what}") for at, value in zip(where, values, strict=True)]

    def loss_scale(self) -> float:
        """By what a loss of scaled labels is multiplied to be one of the labels themselves."""
        return self.scale**2 if self.loss == squared else self.scale


def class_name(value: Any) -> str:
    """A class as people write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def learn_labels(labels: Any, kind: str, loss: str | None, classes: tuple[str, ...]) -> Labels:
    """What labels are, from the stream's first rows and what the user says."""
    said = _loss_by_name(loss)
    known = _parse_classes(classes, kind) if classes else _infer_classes(labels, kind)
    regression = said is not None and said.classes == 0
    if kind == CATEGORY and regression:
        raise ValueError(f"loss {loss} needs numbers as labels, and these are texts such as {known[0]!r}")
    if regression or (said is None and kind not in (CATEGORY, BOOLEAN) and len(known) > 2 and not classes):
        return _numbers(labels, kind, said or squared)
    if len(known) < 2:
        raise ValueError(
            f"all labels of the first {len(labels):,} rows are {known[0]!r}: name all classes "
            f"(--classes {known[0]} ...), or say --loss squared if they are numbers"
        )
    if len(known) > MOST_CLASSES:
        raise ValueError(
            f"the label has more than {MOST_CLASSES:,} different values: so many classes are not learnt"
        )
    if said is not None and len(known) != said.classes:
        raise ValueError(
            f"there are {len(known)} classes in the first rows, and loss {said!r} takes {said.classes}"
        )
    return Labels(kind, said or (logistic if len(known) == 2 else softmax(len(known))), known)


def _loss_by_name(loss: str | None) -> Loss | None:
    return None if loss is None else by_name(loss)


def _parse_classes(classes: tuple[str, ...], kind: str) -> tuple[Any, ...]:
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise ValueError(f"--classes {' '.join(classes)}: give two or more, all different")
    if kind == CATEGORY:
        return classes
    if kind == BOOLEAN:
        return False, True
    try:
        return tuple(_plain(float(each)) for each in classes)
    except ValueError:
        raise ValueError(
            f"--classes {' '.join(classes)}: the labels are numbers, so classes must be"
        ) from None


def _infer_classes(labels: Any, kind: str) -> tuple[Any, ...]:
    if kind == BOOLEAN:
        return False, True
    if kind == CATEGORY:
        present = labels.filter(pa.array(texts(labels).there))
        return tuple(sorted(pc.unique(present).to_pylist()))
    values = np.unique(labels)
    return tuple(_plain(value) for value in values[: MOST_CLASSES + 1].tolist())


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _numbers(labels: Any, kind: str, loss: Loss) -> Labels:
    mean, scale = float(np.mean(labels)), float(np.std(labels))
    if not (np.isfinite(scale) and scale > 0):
        scale = 1.0
    return Labels(kind, loss, (), mean if np.isfinite(mean) else 0.0, scale)
