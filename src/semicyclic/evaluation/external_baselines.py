"""External baselines: LightGBM, retrained periodically, and Vowpal Wabbit, online.

Both get the columns as they were read, with hour and weekday; both answer by what was known, as the
candidates do. Each has a small grid, of which a backtest shows every member: nobody chose for them.
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

# LightGBM is trained anew so often, on everything known by then.
WEEK = 7 * DAY
LEAVES, RATES = (15, 63), (0.2, 0.5)
LEAST = 200
MODULES = {"LightGBM": "lightgbm", "Vowpal Wabbit": "vowpalwabbit"}
NUMBER = "number"


def external_baselines(
    table: Any, kinds: Mapping[str, str], schedule: Schedule
) -> tuple[dict[str, Peer], list[str]]:
    """Those that are installed, and the names of those that are not."""
    missing = [name for name, module in MODULES.items() if util.find_spec(module) is None]
    found: dict[str, Peer] = {}
    if "LightGBM" not in missing:
        for leaves in LEAVES:
            found[f"LightGBM, {leaves} leaves"] = _lightgbm(table, kinds, schedule, leaves)
    if "Vowpal Wabbit" not in missing:
        for rate in RATES:
            found[f"Vowpal Wabbit, rate {rate:g}"] = _vowpal_wabbit(table, kinds, schedule, rate)
    return found, missing


def _clock(stream: LabelledStream, schedule: Schedule) -> tuple[Array, Array]:
    """The hour and the weekday of every row."""
    day, within = np.divmod(to_wall(schedule.zone, stream.ticks), DAY)
    return within * 24 // DAY, (day + 3) % 7


def _lightgbm(table: Any, kinds: Mapping[str, str], schedule: Schedule, leaves: int) -> Peer:
    # Trained once a week, it answers the same whether models are frozen at midnight or learn on.
    held: list[Array] = []

    def answer(stream: LabelledStream, known: Array) -> Array:
        if held:
            return held[0]
        boost = import_module("lightgbm")
        X = np.column_stack([*_numbers(table, kinds), *_clock(stream, schedule)]).astype(np.float32)
        y = _codes(stream)
        how = {
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
        for each in np.unique(week):
            rows = np.flatnonzero(week == each)
            # All of a week by what was known when its first row came, less the last day: so that it could
            # have been trained in the night before.
            learnt = int(np.searchsorted(stream.clock, stream.clock[rows[0]] - DAY)) if len(known) else 0
            learnt = min(learnt, int(known[rows[0]]))
            if learnt < LEAST or (stream.loss.classes and len(np.unique(y[:learnt])) < stream.loss.classes):
                scores[rows] = _before(stream.loss, y[:learnt])
                continue
            model = boost.train(how, boost.Dataset(X[:learnt], y[:learnt]), num_boost_round=100)
            found = model.predict(X[rows], raw_score=True)
            scores[rows] = found.reshape(len(rows), -1)
        held.append(scores)
        return scores

    return answer


def _objective(loss: Loss) -> dict[str, Any]:
    if loss.code == LOGISTIC:
        return {"objective": "binary"}
    if loss.code == SOFTMAX:
        return {"objective": "multiclass", "num_class": loss.classes}
    return {"objective": "regression"}


def _before(loss: Loss, y: Array) -> Array:
    """An answer where there is too little to learn from."""
    if loss.classes == 0:
        return np.array([y.mean() if len(y) else 0.0])
    share = np.log(np.bincount(y.astype(np.int64), minlength=loss.classes) + 0.5)
    return np.asarray(share if loss.outputs > 1 else share[1:] - share[:1])


def _codes(stream: LabelledStream) -> Array:
    if stream.loss.code == LOGISTIC:
        return (stream.target > 0).astype(float)
    return stream.target


def _numbers(table: Any, kinds: Mapping[str, str]) -> list[Array]:
    """Columns as numbers: categories as codes in the order in which they come."""
    import pyarrow.compute as pc

    found = []
    for name, kind in kinds.items():
        column = table.column(name).combine_chunks()
        if kind == NUMBER:
            found.append(pc.cast(column, "float64").to_numpy(zero_copy_only=False))
        else:
            codes = pc.dictionary_encode(pc.cast(column, "string"))
            found.append(pc.fill_null(codes.indices, -1).to_numpy(zero_copy_only=False))
    return found


def _vowpal_wabbit(table: Any, kinds: Mapping[str, str], schedule: Schedule, rate: float) -> Peer:
    def answer(stream: LabelledStream, known: Array) -> Array:
        wabbit = import_module("vowpalwabbit")
        several = stream.loss.code == SOFTMAX
        what = "squared" if stream.loss.classes == 0 else "logistic"
        classes = f" --oaa {stream.loss.classes} --probabilities" if several else ""
        model = wabbit.Workspace(f"--loss_function {what}{classes} -q fh -b 20 -l {rate} --quiet")
        lines = _lines(table, kinds, *_clock(stream, schedule))
        y = stream.target
        scores = np.zeros((len(y), stream.loss.outputs))
        learnt = 0
        for row in range(len(y)):
            while learnt < known[row]:
                label = int(y[learnt]) + 1 if several else f"{y[learnt]:g}"
                model.learn(f"{label} {lines[learnt]}")
                learnt += 1
            if several:
                chance = np.maximum(np.asarray(model.predict(lines[row])), 1e-6)
                scores[row] = np.log(chance)
            else:
                scores[row] = model.predict(lines[row])
        model.finish()
        return scores

    return answer


def _lines(table: Any, kinds: Mapping[str, str], hour: Array, weekday: Array) -> list[str]:
    """Rows as Vowpal Wabbit reads them; features in one namespace, the clock in another, to be crossed."""
    columns = {name: table.column(name).to_pylist() for name in kinds}
    scales = {}
    for name, kind in kinds.items():
        if kind == NUMBER:
            held = np.array([value for value in columns[name][:5000] if value is not None], float)
            scales[name] = (held.mean() if len(held) else 0.0, (held.std() if len(held) else 1.0) or 1.0)
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
                    cells.append(f"c{number}_{_plain(word)}")
        lines.append(f"|f {' '.join(cells)} |h h{hour[row]} d{weekday[row]}")
    return lines


def _plain(word: str) -> str:
    return word.replace(":", "_").replace("|", "_")
