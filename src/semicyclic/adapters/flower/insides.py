"""What a strategy remembers from round to round, as arrays and JSON: momentum, moments, a clipping norm.

Flower's strategies keep their state in attributes. Numbers, words, arrays and lists or dictionaries of them
are kept, as are those of strategies inside; functions and other objects stay as they were made.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.coding import decode, record

NDArray = npt.NDArray[Any]


class Unknown(Exception):
    """A value that cannot be kept."""


def dump(strategy: Strategy) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """The attributes of a strategy: a value for JSON, and the arrays it names."""
    arrays: dict[str, NDArray] = {}
    return _strategy(strategy, "", arrays), arrays


def load(strategy: Strategy, told: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    """Put attributes back that `dump` took."""
    for name, value in told.items():
        if isinstance(value, dict) and value.get("is") == "strategy":
            load(getattr(strategy, name), value["of"], arrays)
        else:
            setattr(strategy, name, _made(value, arrays))


def _strategy(strategy: Strategy, path: str, arrays: dict[str, NDArray]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(strategy).items():
        try:
            found[name] = _told(value, f"{path}{name}", arrays)
        except Unknown:
            continue
    return found


def _told(value: Any, path: str, arrays: dict[str, NDArray]) -> Any:
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
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs = [[key, _told(each, f"{path}/{key}", arrays)] for key, each in value.items()]
        return {"is": "dict", "of": pairs}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"is": kind, "of": [_told(each, f"{path}/{i}", arrays) for i, each in enumerate(value)]}
    raise Unknown


def _made(told: Any, arrays: dict[str, NDArray]) -> Any:
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
        return {key: _made(each, arrays) for key, each in of}
    made = [_made(each, arrays) for each in of]
    return made if kind == "list" else tuple(made)
