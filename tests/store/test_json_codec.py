"""What is stored as JSON comes back as it was, and nothing else is taken for it."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method.average import ReadOut
from semicyclic.method.loss import Loss
from semicyclic.method.step import Step
from semicyclic.store.json_codec import from_json, to_json


class Point(NamedTuple):
    x: float
    name: str


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Drawing:
    points: tuple[Point, ...]
    sizes: dict[str, int]
    color: Color
    title: str | None
    loss: Loss
    step: Step
    read_out: ReadOut
    schedule: sc.Schedule
    other: tuple[Any, ...] = ()
    cache: list[int] = field(default_factory=list, compare=False)


drawings = st.builds(
    Drawing,
    st.lists(st.builds(Point, st.floats(allow_nan=False, allow_infinity=False), st.text())).map(tuple),
    st.dictionaries(st.text(), st.integers()),
    st.just(Color.RED),
    st.none() | st.text(),
    st.sampled_from([sc.loss.logistic, sc.loss.softmax(3), sc.loss.huber(0.5)]),
    st.sampled_from([sc.step.adagrad(0.2), sc.step.constant(0.1)]),
    st.sampled_from([ReadOut("mean"), ReadOut("tail", 5), ReadOut("fading", 2.5)]),
    st.sampled_from([sc.Schedule.daily(3), sc.Schedule.weekly(7, zone="Europe/Paris")]),
    st.lists(st.booleans() | st.text()).map(tuple),
)
DRAWING = Drawing(
    (Point(1.0, "a"),),
    {"b": 2},
    Color.RED,
    None,
    sc.loss.squared,
    sc.step.adagrad(0.2),
    ReadOut("tail"),
    sc.Schedule.daily(2),
)


@given(drawings)
def test_values_survive_a_round_trip(drawing: Drawing) -> None:
    text = json.dumps(to_json(drawing), allow_nan=False)
    assert from_json(json.loads(text), Drawing) == drawing


def test_keys_are_the_names_of_fields() -> None:
    value = to_json(DRAWING)
    assert value["points"] == [[1.0, "a"]]
    assert (value["color"], value["title"], value["loss"]) == ("red", None, "squared")
    assert (value["step"], value["read_out"]) == (["adaptive", 0.2], "tail")
    assert value["schedule"] == sc.Schedule.daily(2).to_json()
    assert "cache" not in value


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"title": 3}, "3 is not of type str"),
        ({"sizes": {"b": True}}, "True is not of type int"),
        ({"sizes": []}, "is not of type dict"),
        ({"points": [[1.0]]}, "zip"),
        ({"color": "blue"}, "'blue' is not a valid Color"),
        ({"loss": "none"}, "none"),
        ({"read_out": "tail:0"}, "tail:0"),
        ({"more": 1}, "'more' is missing, or is not known"),
    ],
)
def test_other_values_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        from_json({**to_json(DRAWING), **change}, Drawing)


def test_a_missing_key_is_named() -> None:
    value = to_json(DRAWING)
    del value["sizes"]
    with pytest.raises(ValueError, match="'sizes' is missing, or is not known"):
        from_json(value, Drawing)
