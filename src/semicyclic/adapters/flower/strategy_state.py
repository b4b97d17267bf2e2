"""Serialization of a Flower strategy's state (momentum, moments, clipping norm) as arrays and JSON.

Flower's strategies keep their state in attributes. Numbers, strings, arrays, random generators, and lists or
dictionaries of these are serialized, including those of nested strategies. Functions and other objects are
not: after a restart they are as constructed.
"""

from math import isfinite
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.fedopt import FedOpt

from semicyclic.adapters.flower.serialization import decode, record
from semicyclic.types import Array


class NotSerializable(Exception):
    """A value that cannot be serialized."""


JsonState = dict[str, Any]


def dump(strategy: Strategy) -> tuple[JsonState, dict[str, Array]]:
    """Return the attributes of a strategy: JSON values, and the arrays that they refer to by name."""
    arrays: dict[str, Array] = {}
    return _serialize_strategy(strategy, "", arrays), arrays


def changes_since(now: JsonState, fresh: JsonState) -> JsonState:
    """Return the part of a dump that differs from a new strategy: a resumed run may change settings."""
    changed: JsonState = {}
    for name, value in now.items():
        nested = isinstance(value, dict) and value.get("is") == "strategy"
        if nested and isinstance(fresh.get(name), dict):
            inside = changes_since(value["of"], fresh[name].get("of", {}))
            if inside:
                changed[name] = {"is": "strategy", "of": inside}
        elif value != fresh.get(name, ...) or _names_arrays(value):
            changed[name] = value
    return changed


def unserializable_attributes(strategy: Strategy, path: str = "") -> list[str]:
    """Return the attributes that cannot be serialized, except callables, which do not change."""
    names = []
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            names += unserializable_attributes(value, f"{path}{name}.")
            continue
        try:
            _serialize(value, "", {})
        except NotSerializable:
            if not callable(value):
                names.append(f"{path}{name}")
    return names


def classes(strategy: Strategy) -> str:
    """Return the class names of a strategy and its nested strategies, outermost first: "A of B"."""
    inside = [classes(value) for value in vars(strategy).values() if isinstance(value, Strategy)]
    return " of ".join([type(strategy).__name__, *inside])


def carries_state(strategy: Strategy) -> bool:
    """Return whether a Flower strategy carries momentum or adaptive state from round to round."""
    nested = [value for value in vars(strategy).values() if isinstance(value, Strategy)]
    momentum = getattr(strategy, "server_momentum", 0.0) != 0.0
    return momentum or isinstance(strategy, FedOpt) or any(map(carries_state, nested))


def innermost_of(strategy: Strategy) -> Strategy:
    """Return the innermost of nested strategies, which wraps no other."""
    for value in vars(strategy).values():
        if isinstance(value, Strategy):
            return innermost_of(value)
    return strategy


def load(strategy: Strategy, state: JsonState, arrays: dict[str, Array]) -> None:
    """Restore the attributes that `dump` returned."""
    for name, value in state.items():
        if isinstance(value, dict) and value.get("is") == "strategy":
            load(getattr(strategy, name), value["of"], arrays)
        else:
            setattr(strategy, name, _deserialize(value, arrays))


def _names_arrays(value: Any) -> bool:
    """Return whether a serialized value refers to arrays."""
    if isinstance(value, list):
        return any(map(_names_arrays, value))
    if not isinstance(value, dict):
        return False
    return value.get("is") in ("array", "bytes", "record") or _names_arrays(value.get("of"))


def _serialize_strategy(strategy: Strategy, path: str, arrays: dict[str, Array]) -> JsonState:
    """Return the serializable attributes of a strategy; put their arrays into `arrays`."""
    state: JsonState = {}
    for name, value in vars(strategy).items():
        try:
            state[name] = _serialize(value, f"{path}{name}", arrays)
        except NotSerializable:
            continue
    return state


def _serialize(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return an attribute as a JSON value; put its arrays into `arrays`, named from `path`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return {"is": "float", "of": str(value)}  # JSON has no number for it
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Strategy):
        return {"is": "strategy", "of": _serialize_strategy(value, f"{path}.", arrays)}
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"is": "array", "of": path}
    if isinstance(value, bytes):
        arrays[path] = np.frombuffer(value, np.uint8)
        return {"is": "bytes", "of": path}
    if isinstance(value, ArrayRecord):
        for name, array in value.items():
            arrays[f"{path}/{name}"] = decode(array)
        # A list, to preserve the order, which some strategies rely on.
        return {"is": "record", "of": [[name, f"{path}/{name}"] for name in value]}
    if isinstance(value, np.random.Generator):
        return {
            "is": "generator",
            "of": [type(value.bit_generator).__name__, _to_plain(value.bit_generator.state)],
        }
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        pairs = [[key, _serialize(item, f"{path}/{key}", arrays)] for key, item in value.items()]
        return {"is": "dict", "of": pairs}
    if isinstance(value, list | tuple | set):
        type_name = type(value).__name__ if type(value) in (list, tuple, set) else "list"
        items = sorted(value, key=repr) if isinstance(value, set) else value
        serialized = [_serialize(item, f"{path}/{i}", arrays) for i, item in enumerate(items)]
        return {"is": type_name, "of": serialized}
    raise NotSerializable


def _deserialize(value: Any, arrays: dict[str, Array]) -> Any:
    """Return the attribute that `_serialize` turned into `value`."""
    if not isinstance(value, dict):
        return value
    type_name, of = value["is"], value["of"]
    if type_name == "array":
        return arrays[of]
    if type_name == "float":
        return float(of)
    if type_name == "bytes":
        return arrays[of].tobytes()
    if type_name == "record":
        return record({name: arrays[path] for name, path in of})
    if type_name == "dict":
        return {key: _deserialize(item, arrays) for key, item in of}
    if type_name == "generator":
        source = getattr(np.random, of[0])()
        source.state = of[1]
        return np.random.Generator(source)
    return {"list": list, "tuple": tuple, "set": set}[type_name](_deserialize(item, arrays) for item in of)


def _to_plain(value: Any) -> Any:
    """Convert the state of a generator to JSON values."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
