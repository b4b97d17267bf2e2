"""JSON codec: dataclasses, named tuples and their fields to JSON values and back, checked by their types.

A dataclass becomes an object with the names of its fields as keys, a named tuple or tuple an array. Losses,
steps and read-outs have forms of their own, which is why this is not a library's codec: those write any
dataclass field by field. Fields that do not take part in comparisons are not stored.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from semicyclic.method.average import ReadOut
from semicyclic.method.loss import Loss, by_name
from semicyclic.method.step import Step
from semicyclic.specs import STEP_RULES, parse_read_out, step_rule

Value = TypeVar("Value")


def to_json(value: Any) -> Any:
    """Return a value as a JSON value."""
    form = FORMS.get(type(value))
    if form is not None:
        return form.encode(value)
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value) if field.compare}
    if isinstance(value, dict):
        return {str(name): to_json(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(part) for part in value]
    return value.value if isinstance(value, Enum) else value


def from_json(value: Any, kind: type[Value]) -> Value:
    """Return the value of a type that `to_json` returned as `value`; raise ValueError if it is another."""
    decoded: Value = _decode(value, kind)
    return decoded


def _decode(value: Any, kind: Any) -> Any:
    if kind is Any:
        return value
    if kind in FORMS:
        return FORMS[kind].decode(value)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and type(None) in arguments:
            return None
        return _decode(value, next(part for part in arguments if part is not type(None)))
    if origin is dict:
        return {name: _decode(part, arguments[1]) for name, part in _checked(value, dict).items()}
    if origin is tuple:
        return tuple(_decode(part, arguments[0]) for part in _checked(value, list))
    if is_dataclass(kind):
        return _decode_fields(_checked(value, dict), kind)
    if issubclass(kind, tuple):
        hints = get_type_hints(kind)
        parts = zip(_checked(value, list), hints.values(), strict=True)
        return kind(*(_decode(part, hint) for part, hint in parts))
    if issubclass(kind, Enum):
        return kind(value)
    return float(value) if kind is float and type(value) is int else _checked(value, kind)


def _decode_fields(value: dict[str, Any], kind: Any) -> Any:
    hints = get_type_hints(kind)
    stored = [field.name for field in fields(kind) if field.compare]
    if sorted(value) != sorted(stored):
        different = sorted(set(value) ^ set(stored))
        raise ValueError(f"{different[0]!r} is missing, or is not known")
    return kind(**{name: _decode(value[name], hints[name]) for name in stored})


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.100} is not of type {kind.__name__}")
    return value


class _Form(NamedTuple):
    """JSON form of a type."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _step_from_json(value: Any) -> Step:
    rule, size = value
    return STEP_RULES[rule](float(size))


FORMS: dict[Any, _Form] = {
    Loss: _Form(lambda loss: loss.name, by_name),
    ReadOut: _Form(str, lambda text: parse_read_out("read_out", text)),
    # Normalized, AdaGrad and constant steps, as `train` has them.
    Step: _Form(lambda step: [step_rule(step), step.size], _step_from_json),
}
