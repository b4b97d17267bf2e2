"""External baselines: LightGBM, retrained weekly, and Vowpal Wabbit, trained online.

Both use the columns of the input table plus hour and weekday, and only the labels known at each row, as the
candidates do. Each runs with a small grid of hyperparameters. A backtest reports every member of the grid, so
no selection favors or harms them.
"""

from collections.abc import Callable, Mapping
from importlib import import_module, util
from typing import Any

import numpy as np

from semicyclic.evaluation.backtest import LabelledStream
from semicyclic.method.loss import LOGISTIC, SOFTMAX, Loss
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array

Peer = Callable[[LabelledStream, Array], Array]

# LightGBM is retrained at this interval on all labels known, in microseconds.
WEEK = 7 * DAY
# Grids: leaves of LightGBM's trees, and learning rates of Vowpal Wabbit.
LEAVES, LEARNING_RATES = (15, 63), (0.2, 0.5)
# With fewer labels, LightGBM is replaced by a constant.
MIN_TRAINING_ROWS = 200
MODULES = {"LightGBM": "lightgbm", "Vowpal Wabbit": "vowpalwabbit"}
NUMBER = "number"


def external_baselines(
    table: Any, kinds: Mapping[str, str], schedule: Schedule
) -> tuple[dict[str, Peer], list[str]]:
    """Return the installed baselines by name, and the names of the libraries that are missing.

    table: the input as an Arrow table. kinds: its feature columns, each with its kind (NUMBER or a category).
    """
    missing = [name for name, module in MODULES.items() if util.find_spec(module) is None]
    installed: dict[str, Peer] = {}
    if "LightGBM" not in missing:
        for leaves in LEAVES:
            installed[f"LightGBM, {leaves} leaves"] = _lightgbm(table, kinds, schedule, leaves)
    if "Vowpal Wabbit" not in missing:
        for rate in LEARNING_RATES:
            installed[f"Vowpal Wabbit, rate {rate:g}"] = _vowpal_wabbit(table, kinds, schedule, rate)
    return installed, missing


def _hour_and_weekday(stream: LabelledStream, schedule: Schedule) -> tuple[Array, Array]:
    """Return the local hour (0 to 23) and weekday (0 is Monday) of every row."""
    day, within = np.divmod(to_wall(schedule.zone, stream.ticks), DAY)
    return within * 24 // DAY, (day + 3) % 7


def _lightgbm(table: Any, kinds: Mapping[str, str], schedule: Schedule, leaves: int) -> Peer:
    """Return the LightGBM baseline. kinds: type of each column, as in `external_baselines`."""
    # Since models change once a week, predictions are the same under both protocols: computed once.
    cached: list[Array] = []

    def predict(stream: LabelledStream, known: Array) -> Array:
        if cached:
            return cached[0]
        boost = import_module("lightgbm")
        X = np.column_stack([*_numeric_columns(table, kinds), *_hour_and_weekday(stream, schedule)]).astype(
            np.float32
        )
        y = _targets(stream)
        params = {
            **_objective(stream.loss),
            "num_leaves": leaves,
            "learning_rate": 0.1,
            "verbosity": -1,
            "num_threads": 2,
            "seed": 0,
            "deterministic": True,
        }
        scores = np.zeros((len(y), stream.loss.outputs))
        week = stream.clock // WEEK
        for number in np.unique(week):
            rows = np.flatnonzero(week == number)
            # One model per week, from the labels known when its first row arrived, less the last day, so that
            # it could have been trained during the night before.
            usable = int(np.searchsorted(stream.clock, stream.clock[rows[0]] - DAY)) if len(known) else 0
            usable = min(usable, int(known[rows[0]]))
            train = slice(usable)
            classes = stream.loss.classes
            missing_class = classes > 0 and len(np.unique(y[train])) < classes
            if usable < MIN_TRAINING_ROWS or missing_class:
                scores[rows] = _constant_scores(stream.loss, y[train])
                continue
            model = boost.train(params, boost.Dataset(X[train], y[train]), num_boost_round=100)
            raw = model.predict(X[rows], raw_score=True)
            scores[rows] = raw.reshape(len(rows), -1)
        cached.append(scores)
        return scores

    return predict


def _objective(loss: Loss) -> dict[str, Any]:
    """Return LightGBM's parameters for a loss."""
    if loss.code == LOGISTIC:
        return {"objective": "binary"}
    if loss.code == SOFTMAX:
        return {"objective": "multiclass", "num_class": loss.classes}
    return {"objective": "regression"}


def _constant_scores(loss: Loss, y: Array) -> Array:
    """Return the constant prediction from a few labels, [C]."""
    if loss.classes == 0:
        return np.array([y.mean() if len(y) else 0.0])
    share = np.log(np.bincount(y.astype(np.int64), minlength=loss.classes) + 0.5)
    return np.asarray(share if loss.outputs > 1 else share[1:] - share[:1])


def _targets(stream: LabelledStream) -> Array:
    """Return the targets as LightGBM expects them: two classes as 0 and 1."""
    if stream.loss.code == LOGISTIC:
        return (stream.target > 0).astype(float)
    return stream.target


def _numeric_columns(table: Any, kinds: Mapping[str, str]) -> list[Array]:
    """Return the columns as numbers; categories become codes in order of appearance."""
    import pyarrow.compute as pc

    columns = []
    for name, kind in kinds.items():
        column = table.column(name).combine_chunks()
        if kind == NUMBER:
            columns.append(pc.cast(column, "float64").to_numpy(zero_copy_only=False))
        else:
            codes = pc.dictionary_encode(pc.cast(column, "string"))
            columns.append(pc.fill_null(codes.indices, -1).to_numpy(zero_copy_only=False))
    return columns


def _vowpal_wabbit(table: Any, kinds: Mapping[str, str], schedule: Schedule, rate: float) -> Peer:
    """Return the Vowpal Wabbit baseline with a learning rate."""

    def predict(stream: LabelledStream, known: Array) -> Array:
        wabbit = import_module("vowpalwabbit")
        several = stream.loss.code == SOFTMAX
        loss_name = "squared" if stream.loss.classes == 0 else "logistic"
        classes = f" --oaa {stream.loss.classes} --probabilities" if several else ""
        model = wabbit.Workspace(f"--loss_function {loss_name}{classes} -q fh -b 20 -l {rate} --quiet")
        lines = _lines(table, kinds, *_hour_and_weekday(stream, schedule))
        y = stream.target
        scores = np.zeros((len(y), stream.loss.outputs))
        trained = 0
        for row in range(len(y)):
            while trained < known[row]:
                label = int(y[trained]) + 1 if several else f"{y[trained]:g}"
                model.learn(f"{label} {lines[trained]}")
                trained += 1
            if several:
                probability = np.maximum(np.asarray(model.predict(lines[row])), 1e-6)
                scores[row] = np.log(probability)
            else:
                scores[row] = model.predict(lines[row])
        model.finish()
        return scores

    return predict


def _lines(table: Any, kinds: Mapping[str, str], hour: Array, weekday: Array) -> list[str]:
    """Return rows in Vowpal Wabbit's text format, with features in namespace f, hour and weekday in h."""
    columns = {name: table.column(name).to_pylist() for name in kinds}
    scales = {}
    for name, kind in kinds.items():
        if kind == NUMBER:
            first = np.array([value for value in columns[name][:5000] if value is not None], float)
            scales[name] = (first.mean() if len(first) else 0.0, (first.std() if len(first) else 1.0) or 1.0)
    lines = []
    for row in range(len(hour)):
        cells = []
        for number, (name, kind) in enumerate(kinds.items()):
            value = columns[name][row]
            if value is None:
                continue
            if kind == NUMBER:
                middle, scale = scales[name]
                cells.append(f"n{number}:{(float(value) - middle) / scale:.5g}")
            else:
                for word in str(value).split() or [""]:
                    cells.append(f"c{number}_{_escape(word)}")
        lines.append(f"|f {' '.join(cells)} |h h{hour[row]} d{weekday[row]}")
    return lines


def _escape(word: str) -> str:
    """Replace the characters that have a meaning in Vowpal Wabbit's format."""
    return word.replace(":", "_").replace("|", "_")
