"""State of a Flower strategy (momentum, moments, clipping norm) as arrays and JSON.

Flower's strategies keep their state in attributes. Numbers, words, arrays and lists or dictionaries of them
are kept, as are those of strategies inside; functions and other objects stay as they were made.
"""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.fedopt import FedOpt

from semicyclic.adapters.flower.serialization import decode, record
from semicyclic.types import Array


class NotSerializable(Exception):
    """A value that cannot be kept."""


Told = dict[str, Any]


def dump(strategy: Strategy) -> tuple[Told, dict[str, Array]]:
    """The attributes of a strategy: a value for JSON, and the arrays it names."""
    arrays: dict[str, Array] = {}
    return _strategy(strategy, "", arrays), arrays


def changes_since(now: Told, fresh: Told) -> Told:
    """What of a dump is not as the strategy was made: settings may be others when a run goes on."""
    found: Told = {}
    for name, value in now.items():
        nested = isinstance(value, dict) and value.get("is") == "strategy"
        if nested and isinstance(fresh.get(name), dict):
            inside = changes_since(value["of"], fresh[name].get("of", {}))
            if inside:
                found[name] = {"is": "strategy", "of": inside}
        elif value != fresh.get(name, ...) or _names_arrays(value):
            found[name] = value
    return found


def unkept(strategy: Strategy, path: str = "") -> list[str]:
    """The attributes that cannot be kept, functions and classes excepted: they do not change."""
    found = []
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            found += unkept(value, f"{path}{name}.")
            continue
        try:
            _serialize(value, "", {})
        except NotSerializable:
            if not callable(value):
                found.append(f"{path}{name}")
    return found


def classes(strategy: Strategy) -> str:
    """The names of a strategy and of those inside it, from the outermost in."""
    inside = [classes(value) for value in vars(strategy).values() if isinstance(value, Strategy)]
    return " of ".join([type(strategy).__name__, *inside])


def carries_state(strategy: Strategy) -> bool:
    """Whether a strategy of Flower's carries momentum or adaptive state from round to round."""
    inside = [each for each in vars(strategy).values() if isinstance(each, Strategy)]
    momentum = getattr(strategy, "server_momentum", 0.0) != 0.0
    return momentum or isinstance(strategy, FedOpt) or any(map(carries_state, inside))


def innermost_of(strategy: Strategy) -> Strategy:
    """The strategy that is wrapped by no other."""
    for value in vars(strategy).values():
        if isinstance(value, Strategy):
            return innermost_of(value)
    return strategy


def load(strategy: Strategy, told: Told, arrays: dict[str, Array]) -> None:
    """Put attributes back that `dump` took."""
    for name, value in told.items():
        if isinstance(value, dict) and value.get("is") == "strategy":
            load(getattr(strategy, name), value["of"], arrays)
        else:
            setattr(strategy, name, _deserialize(value, arrays))


def _names_arrays(told: Any) -> bool:
    if isinstance(told, list):
        return any(map(_names_arrays, told))
    if not isinstance(told, dict):
        return False
    return told.get("is") in ("array", "bytes", "record") or _names_arrays(told.get("of"))


def _strategy(strategy: Strategy, path: str, arrays: dict[str, Array]) -> Told:
    found: Told = {}
    for name, value in vars(strategy).items():
        try:
            found[name] = _serialize(value, f"{path}{name}", arrays)
        except NotSerializable:
            continue
    return found


def _serialize(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Strategy):
        return {"is": "strategy", "of": _strategy(value, f"{path}.", arrays)}
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"is": "array", "of": path}
    if isinstance(value, bytes):
        arrays[path] = np.frombuffer(value, np.uint8)
        return {"is": "bytes", "of": path}
    if isinstance(value, ArrayRecord):
        for name, each in value.items():
            arrays[f"{path}/{name}"] = decode(each)
        # A list, since the order counts: some strategies go by it.
        return {"is": "record", "of": [[name, f"{path}/{name}"] for name in value]}
    if isinstance(value, np.random.Generator):
        return {
            "is": "generator",
            "of": [type(value.bit_generator).__name__, _plain(value.bit_generator.state)],
        }
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        pairs = [[key, _serialize(each, f"{path}/{key}", arrays)] for key, each in value.items()]
        return {"is": "dict", "of": pairs}
    if isinstance(value, list | tuple | set):
        kind = type(value).__name__ if type(value) in (list, tuple, set) else "list"
        items = sorted(value, key=repr) if isinstance(value, set) else value
        return {"is": kind, "of": [_serialize(each, f"{path}/{i}", arrays) for i, each in enumerate(items)]}
    raise NotSerializable


def _deserialize(told: Any, arrays: dict[str, Array]) -> Any:
    if not isinstance(told, dict):
        return told
    kind, of = told["is"], told["of"]
    if kind == "array":
        return arrays[of]
    if kind == "bytes":
        return arrays[of].tobytes()
    if kind == "record":
        return record({name: arrays[path] for name, path in of})
    if kind == "dict":
        return {key: _deserialize(each, arrays) for key, each in of}
    if kind == "generator":
        source = getattr(np.random, of[0])()
        source.state = of[1]
        return np.random.Generator(source)
    return {"list": list, "tuple": tuple, "set": set}[kind](_deserialize(each, arrays) for each in of)


def _plain(value: Any) -> Any:
    """The state of a generator as JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
