"""Models as files: exact, small, in parts; and whatever is wrong with one is said."""

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

import semicyclic as sc
from semicyclic.method.delta_weights import DENSE, DIFFERENT, SPARSE, DeltaWeights, frames_of
from semicyclic.store import model_file, sealed
from semicyclic.tables.encoding import TableEncoding
from semicyclic.types import Array

SCHEDULE = sc.Schedule.daily(
    edges={"night": ("22:00", "06:00"), "day": ("06:00", "22:00")}, zone="Europe/Paris"
)


def walked(
    seed: int, blocks: int, outputs: int, columns: int, changes: int, dtype: type = np.float32
) -> Array:
    """Weights of neighboring blocks that differ in a few cells."""
    rng = np.random.default_rng(seed)
    weights: Array = np.zeros((blocks, outputs, columns + 1), dtype)
    flat = weights.reshape(blocks, -1)
    flat[0] = rng.normal(size=flat.shape[1]) * (rng.random(flat.shape[1]) < rng.random())
    for block in range(1, blocks):
        flat[block] = flat[block - 1]
        own = rng.integers(0, flat.shape[1], int(rng.integers(0, changes + 1)))
        flat[block, own] = np.where(rng.random(len(own)) < 0.2, -0.0, rng.normal(size=len(own)))
    return weights


def model_of(weights: Array, **more: Any) -> sc.Pluralistic:
    outputs = weights.shape[1]
    loss = sc.loss.logistic if outputs == 1 else sc.loss.softmax(outputs)
    classes = ("no", "yes") if outputs == 1 else tuple(range(outputs))
    return sc.Pluralistic(weights, sc.Numbered(len(weights)), loss, classes, **more)


def same_bits(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


sizes = {
    "seed": st.integers(0, 10_000),
    "blocks": st.integers(1, 12),
    "outputs": st.sampled_from([1, 3]),
    "columns": st.integers(1, 40),
    "changes": st.integers(0, 30),
}


@given(**sizes, dtype=st.sampled_from([np.float32, np.float64]), turned=st.booleans())
@settings(max_examples=80, deadline=None)
def test_frames_give_back_every_bit(
    seed: int, blocks: int, outputs: int, columns: int, changes: int, dtype: type, turned: bool
) -> None:
    weights = walked(seed, blocks, outputs, columns, changes, dtype)
    # As read-outs of a trace lie in memory: the blocks of a cell side by side.
    given_ = np.ascontiguousarray(weights.transpose(1, 2, 0)).transpose(2, 0, 1) if turned else weights
    frames = frames_of(given_)
    assert same_bits(frames.table(), weights)
    for block in range(blocks):
        assert same_bits(frames.block(block), weights[block])
        assert same_bits(frames.alone(block).table()[0], weights[block])
    some = np.random.default_rng(seed).integers(0, blocks, 5)
    for block, found in frames.walk(some):
        assert same_bits(np.array(found), weights[block])


@given(**sizes)
@settings(max_examples=60, deadline=None)
def test_frames_are_never_larger_than_the_table_and_changes_never_outweigh_their_block(
    seed: int, blocks: int, outputs: int, columns: int, changes: int
) -> None:
    frames = frames_of(walked(seed, blocks, outputs, columns, changes))
    dense = blocks * outputs * (columns + 1) * 4
    assert frames.nbytes - frames.kind.nbytes - frames.first.nbytes <= dense
    for block in range(blocks):
        key, _ = frames.group(block)
        alone = min(outputs * (columns + 1) * 4, 8 * int((frames.block(block).view(np.uint32) != 0).sum()))
        assert 8 * (frames.first[block + 1] - frames.first[key + 1]) <= alone


@given(**sizes, dtype=st.sampled_from([None, "float16", "float32"]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_loaded_is_what_was_saved(
    tmp_path: Path, seed: int, blocks: int, outputs: int, columns: int, changes: int, dtype: str | None
) -> None:
    weights = walked(seed, blocks, outputs, columns, changes)
    path = tmp_path / "model.safetensors"
    sc.save(model_of(weights, features=TableEncoding({"hash": 7})), path, dtype=dtype)
    loaded = sc.load(path)
    expected = weights.astype(dtype or np.float32).astype(np.float32)
    assert same_bits(loaded.weights, expected)
    assert loaded.features == TableEncoding({"hash": 7})
    for block in range(blocks):
        one = sc.load(path, block=block)
        assert one.blocks == 1
        assert same_bits(one.weights[0], expected[block])
        assert one.provenance == {"block": block, "of": None}
    again = tmp_path / "again.safetensors"
    sc.save(loaded, again)
    assert again.read_bytes() == path.read_bytes()


def trained_model(*, equal: bool) -> sc.Pluralistic:
    """Means of a run with few touched columns, on a calendar of equal or of unequal visits."""
    rng = np.random.default_rng(0)
    n, d, m = 2_400, 4_000, 24
    block = np.arange(n) // 10 % m if equal else np.sort(rng.integers(0, 10 * m, n)) % m
    X = np.zeros((n, d), np.float32)
    X[np.arange(n)[:, None], rng.integers(0, d, (n, 3))] = 1
    return sc.train.pluralistic(sc.Rows(X, rng.integers(0, 2, n), block=block), m, batch_size=5).mean()


def test_equal_visits_make_a_small_file_and_unequal_ones_a_dense_table(tmp_path: Path) -> None:
    size = {}
    for equal in (True, False):
        model = trained_model(equal=equal)
        path = tmp_path / f"{equal}.safetensors"
        sc.save(model, path)
        size[equal] = path.stat().st_size / model.weights.nbytes
        loaded = sc.load(path)
        assert same_bits(loaded.weights, np.ascontiguousarray(model.weights))
        assert isinstance(loaded.held, DeltaWeights) == equal
        kinds = frames_of(model.weights).kind
        assert (kinds == DIFFERENT).sum() >= 12 if equal else (kinds == DENSE).all()
    assert size[True] < 0.5
    assert 1.0 <= size[False] < 1.05


def test_a_model_that_is_mostly_nothing_has_no_dense_frame(tmp_path: Path) -> None:
    weights = np.zeros((3, 1, 10_001), np.float32)
    weights[:, 0, 5] = 1.0
    weights[2, 0, 9_000] = 2.0
    assert frames_of(weights).kind.tolist() == [SPARSE, DIFFERENT, DIFFERENT]
    path = tmp_path / "model.safetensors"
    sc.save(model_of(weights), path)
    assert path.stat().st_size < 2_000
    assert same_bits(sc.load(path).weights, weights)


def test_all_that_a_model_has_is_in_the_file(tmp_path: Path) -> None:
    model = sc.Pluralistic(
        np.ones((2, 1, 3)),
        SCHEDULE,
        sc.loss.quantile(0.9),
        fallback=(1,),
        features=TableEncoding({"columns": ["a", "ü"], "scale": [1.5, None]}),
        provenance={"rows": 3},
    )
    path = tmp_path / "model.safetensors"
    sc.save(model, path)
    loaded = sc.load(path)
    assert loaded.schedule == SCHEDULE
    assert loaded.loss == model.loss
    assert (loaded.fallback, loaded.features, loaded.provenance) == (
        model.fallback,
        model.features,
        model.provenance,
    )
    assert sc.load(path, block=1).fallback == (0,)
    assert sc.load(path, block=0).fallback == ()
    # And it is a plain safetensors file, whose description is JSON.
    with safe_open(path, framework="numpy") as file:
        assert json.loads(file.metadata()["semicyclic"])["model"]["loss"] == "quantile(0.9)"


def test_a_read_out_says_where_it_comes_from() -> None:
    rows = sc.Rows(np.eye(4), [0, 1, 0, 1], block=[0, 0, 1, 1])
    model = sc.train.pluralistic(rows, 2, batch_size=1).tail(1)
    assert model.provenance["read_out"] == "tail(1)"
    assert model.provenance["rows"] == 4
    json.dumps(model.provenance, allow_nan=False)


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_loaded_model_answers_like_the_one_saved(tmp_path: Path, dtype: str | None) -> None:
    model = trained_model(equal=True)
    path = tmp_path / "model.safetensors"
    sc.save(model, path, dtype=dtype)
    loaded = sc.load(path)
    rng = np.random.default_rng(1)
    X = (rng.random((50, 4_000)) < 0.01).astype(np.float32)
    block = rng.integers(0, 24, 50)
    rows = sc.Rows(X, rng.integers(0, 2, 50), block=block)
    tolerance = 2e-3 if dtype else 1e-6
    assert np.allclose(loaded.predict_proba(rows), model.predict_proba(rows), atol=tolerance)
    share = rng.dirichlet(np.ones(24), 50)
    assert np.allclose(
        loaded.score(rows, membership=share), model.score(rows, membership=share), atol=tolerance
    )
    assert np.allclose(loaded.mixture(share[0]), model.mixture(share[0]), atol=tolerance)
    found, expected = sc.matrix(loaded, rows), sc.matrix(model, rows)
    assert np.allclose(found.values, expected.values, atol=0.2 if dtype else 1e-6, equal_nan=True)
    one = sc.load(path, block=7)
    assert np.allclose(one.score(rows, block=0), model.score(rows, block=7), atol=tolerance)
    timed = sc.Rows(X, when=np.arange(50))
    assert np.allclose(one.score(timed), model.score(rows, block=7), atol=tolerance)


def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match=r"a weight of 1e\+06 is too large for float16: save it as float32"):
        sc.save(model_of(np.full((2, 1, 2), 1e6, np.float32)), path, dtype="float16")
    assert list(tmp_path.iterdir()) == []


NOT_SAVED: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "dtype": (lambda p: sc.save(model_of(np.ones((1, 1, 2))), p, dtype="int8"), ValueError, "choose float32"),
    "model": (lambda p: sc.save(np.ones(3), p), TypeError, "read it out of a run"),  # type: ignore[arg-type]
    "nan": (lambda p: sc.save(model_of(np.full((1, 1, 2), np.nan)), p), ValueError, "not finite"),
    "features": (
        lambda p: sc.save(model_of(np.ones((1, 1, 2)), features=TableEncoding({1, 2})), p),
        ValueError,
        "must be JSON values",
    ),
}


@pytest.mark.parametrize(("call", "kind", "sentence"), NOT_SAVED.values(), ids=NOT_SAVED)
def test_what_cannot_be_saved_leaves_the_old_file_as_it_was(
    tmp_path: Path, call: Callable[[Path], object], kind: type[Exception], sentence: str
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(kind, match=sentence):
        call(path)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["model.safetensors"]


# ------------------------------------------------------------------- what is wrong is said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with dense and sparse key frames and differences."""
    weights = walked(3, 12, 1, 300, 60)
    weights[8:] = np.random.default_rng(0).normal(size=(4, 1, 301))
    weights[10:] = weights[9]
    weights[11, 0, :9] = 0
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    sc.save(replace(model_of(weights), features=TableEncoding({"a": [1, 2]})), path)
    assert set(frames_of(weights).kind.tolist()) >= {DIFFERENT, DENSE}
    return path


def answer(path: Path, block: int | None) -> Array | None:
    """The weights, or None where the file was refused in the one way it may be."""
    size, refusal = path.stat().st_size, ""
    tracemalloc.start()
    try:
        found = sc.load(path, block=block)
    except sc.Unreadable as error:
        refusal = str(error)
        return None
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= 2 * size + 200_000, (peak, size)
        assert refusal == "" or (str(path) in refusal and len(refusal) < 600)
    return found.weights


@given(
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
    near_the_front=st.booleans(),
    block=st.sampled_from([None, 0, 5, 11]),
)
@settings(max_examples=300, deadline=None)
def test_flipped_bytes_give_an_error_or_the_same_model(
    whole: Path, flips: list[tuple[float, int]], near_the_front: bool, block: int | None
) -> None:
    data = bytearray(whole.read_bytes())
    front = 8 + int.from_bytes(data[:8], "little")
    for at, mask in flips:
        data[int(at * (front if near_the_front else len(data)))] ^= mask
    broken = whole.with_name("flipped")
    broken.write_bytes(data)
    found = answer(broken, block)
    if found is not None:
        expected = sc.load(whole, block=block)
        assert same_bits(found, expected.weights)
        assert sc.load(broken, block=block).features == TableEncoding({"a": [1, 2]})


@given(cut=st.floats(0, 1, exclude_max=True), block=st.sampled_from([None, 0, 11]))
@settings(max_examples=100, deadline=None)
def test_a_file_that_was_cut_is_refused(whole: Path, cut: float, block: int | None) -> None:
    data = whole.read_bytes()
    broken = whole.with_name("cut")
    broken.write_bytes(data[: int(cut * len(data))])
    assert answer(broken, block) is None


@given(more=st.binary(min_size=1, max_size=64), front=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_file_that_was_extended_is_refused(whole: Path, more: bytes, front: bool) -> None:
    data = whole.read_bytes()
    broken = whole.with_name("extended")
    broken.write_bytes(more + data if front else data + more)
    assert answer(broken, None) is None


@given(data=st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_other_bytes_are_refused(whole: Path, data: bytes) -> None:
    broken = whole.with_name("bytes")
    broken.write_bytes(data)
    assert answer(broken, None) is None


def test_every_byte_of_the_tables_is_guarded(whole: Path) -> None:
    data = whole.read_bytes()
    front = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:front])
    broken = whole.with_name("table")
    for name in ("kind", "first"):
        low, high = header[name]["data_offsets"]
        for at in range(front + low, front + high):
            broken.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(sc.Unreadable):
                sc.load(broken)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"[1,2]", b"[1,3]"), (b"logistic", b"absolute"), (b'\\"no\\"', b'\\"na\\"'), (b"nowhere", b"nowhere")],
    ids=["features", "loss", "classes", "nothing"],
)
def test_what_is_said_of_a_model_is_guarded(whole: Path, old: bytes, new: bytes) -> None:
    data = whole.read_bytes()
    broken = whole.with_name("said")
    broken.write_bytes(data.replace(old, new, 1))
    if old == new:
        sc.load(broken)
        return
    assert old in data
    with pytest.raises(sc.Unreadable, match="its description was altered or damaged"):
        sc.load(broken)


def test_a_file_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return call

    # Once before: a kernel that is compiled now is put into its cache by os.replace too.
    sc.save(model_of(np.ones((1, 1, 2))), tmp_path / "model.safetensors")
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    sc.save(model_of(np.ones((1, 1, 2))), tmp_path / "model.safetensors")
    assert calls == ["fsync", "replace", "fsync"]  # the file, then its name


@pytest.mark.parametrize("kind", [int, ">f4", np.float16, np.longdouble, bool])
def test_weights_of_any_kind_of_number_can_be_saved_and_used(tmp_path: Path, kind: Any) -> None:
    model = model_of(np.ones((2, 1, 3)).astype(kind), fallback=(np.int64(1),))
    path = tmp_path / "model.safetensors"
    sc.save(model, path)
    assert same_bits(sc.load(path).weights, model.weights)
    assert model.weights.dtype in (np.float32, np.float64)
    model.score(sc.Rows([[1.0, 2.0]], block=[0]))


def test_numbers_of_numpy_do_not_keep_a_model_from_being_saved(tmp_path: Path) -> None:
    rows = sc.Rows(np.eye(4), [0, 1, 0, 1], block=[0, 0, 1, 1])
    run = sc.train.pluralistic(rows, 2, batch_size=np.int64(2))  # type: ignore[arg-type]
    path = tmp_path / "model.safetensors"
    sc.save(run.mean(through=run.progressive_visits().cycle[0]), path)
    sc.save(sc.load(path, block=np.int64(1)), path)  # type: ignore[arg-type]
    assert sc.load(path).provenance["block"] == 1
    with pytest.raises(TypeError, match=r"block=1\.5: must be a whole number"):
        sc.load(path, block=1.5)  # type: ignore[arg-type]


def test_many_key_frames_are_read_in_time() -> None:
    """Linear in their number: forty thousand took seconds when it was quadratic."""
    weights = np.random.default_rng(0).normal(size=(40_000, 1, 2)).astype(np.float32)
    frames = frames_of(weights)
    began = time.perf_counter()
    assert sum(1 for _ in model_file._groups(frames)) == 40_000
    groups = time.perf_counter() - began
    began = time.perf_counter()
    sum(1 for _ in model_file._groups(frames_of(weights[:4_000])))
    assert groups < 60 * max(time.perf_counter() - began, 0.01)


def test_damage_elsewhere_does_not_keep_a_block_from_being_loaded(whole: Path) -> None:
    """One block is read without the rest: what is not its own may be damaged."""
    data = bytearray(whole.read_bytes())
    front = 8 + int.from_bytes(data[:8], "little")
    dense = json.loads(data[8:front])["dense"]["data_offsets"]
    data[front + dense[1] - 1] ^= 1  # the last dense frame
    broken = whole.with_name("elsewhere")
    broken.write_bytes(data)
    assert same_bits(sc.load(broken, block=0).weights, sc.load(whole, block=0).weights)
    for block in (None, 11):
        with pytest.raises(sc.Unreadable, match="a group of blocks was altered or damaged"):
            sc.load(broken, block=block)


def crafted(path: Path, change: Callable[[dict[str, Any], dict[str, Array], dict[str, Any]], None]) -> Path:
    """A file whose digests are right and whose contents are not."""
    frames = frames_of(walked(3, 4, 1, 30, 5))
    tensors = {name: np.ascontiguousarray(getattr(frames, name)) for name in model_file.TENSOR_NAMES}
    head: dict[str, Any] = {"version": model_file.FORMAT.version}
    about = model_file._describe(model_of(frames.table()), frames)
    change(about, tensors, head)
    about["digests"] = {name: sealed.digest(tensors[name]) for name in ("kind", "first") if name in tensors}
    layout = {name: (each.dtype.name, each.shape) for name, each in tensors.items()}
    head["model"] = about
    head["digest"] = sealed._head_digest(head["version"], about, layout)
    text = head.get("text", json.dumps({name: head[name] for name in ("version", "digest", "model")}))
    save_file(tensors, path, metadata={head.get("key", model_file.FORMAT.key): text})
    return path


Change = Callable[[dict[str, Any], dict[str, Array], dict[str, Any]], Any]
CRAFTED: dict[str, tuple[Change, str]] = {
    "newer": (lambda a, t, h: h.update(version=2), r"written in format 2 by a newer semicyclic.*upgrade"),
    "no version": (lambda a, t, h: h.update(version="?"), "format version '[?]' is unknown"),
    "another format": (lambda a, t, h: h.update(key="pt"), "not a semicyclic model"),
    "no json": (lambda a, t, h: h.update(text="{"), "damaged, or not a semicyclic model"),
    "deep json": (lambda a, t, h: h.update(text="[" * 100_000), "damaged, or not a semicyclic model"),
    "a list": (lambda a, t, h: h.update(text="[]"), "damaged, or not a semicyclic model"),
    "no shape": (lambda a, t, h: a.pop("shape"), "damaged, or not a semicyclic model"),
    "absurd shape": (lambda a, t, h: a.update(shape=[2**60, 1, 31]), r"its shape \[.*\] is not blocks"),
    "huge shape": (lambda a, t, h: a.update(shape=[2**40, 1, 31]), "blocks for another schedule"),
    "text shape": (lambda a, t, h: a.update(shape=["4", 1, 31]), r"its shape \[.*\] is not blocks"),
    "wide shape": (lambda a, t, h: a.update(shape=[4, 1, 2**40]), "wrong shape|do not fit|group of blocks"),
    "other blocks": (lambda a, t, h: a.update(schedule=5), "weights of 4 blocks for another schedule"),
    "schedule": (lambda a, t, h: a.update(schedule={"period": 1}), "not a schedule"),
    "loss": (lambda a, t, h: a.update(loss="__import__('os')"), "unknown loss"),
    "outputs": (lambda a, t, h: a.update(loss="softmax(3)"), "do not go with loss softmax"),
    "classes": (lambda a, t, h: a.update(classes=[1, 2, 3]), "3 classes do not go with loss logistic"),
    "fallback": (lambda a, t, h: a.update(fallback=[4]), "names blocks that it does not have"),
    "tensors": (lambda a, t, h: t.pop("dense"), "it should hold kind, first"),
    "more tensors": (lambda a, t, h: t.update(code=np.ones(3)), "but holds code, column"),
    "no groups": (lambda a, t, h: a.update(groups=[]), "one digest for each key frame"),
    "text classes": (lambda a, t, h: a.update(classes="ab"), "not a list of texts or numbers"),
    "odd classes": (lambda a, t, h: a.update(classes=[["x"], {"y": 1}]), "not a list of texts or numbers"),
    "twin classes": (lambda a, t, h: a.update(classes=["x", "x"]), "do not go with loss"),
    "no classes": (lambda a, t, h: a.update(loss="squared"), "do not go with loss squared"),
    "long zone": (
        lambda a, t, h: a.update(schedule={**sc.Schedule.daily(4).to_json(), "zone": "x" * 5000}),
        "^.{1,600}$",
    ),
    "kind": (lambda a, t, h: t.update(kind=np.full(4, 9, np.uint8)), "wrong shape|do not fit"),
    "first kind": (
        lambda a, t, h: t.update(kind=np.zeros(4, np.uint8), dense=np.zeros((0, 31), np.float32)),
        "builds on nothing",
    ),
    "lengths": (lambda a, t, h: t.update(first=t["first"][::-1].copy()), "lists have the wrong length"),
    "far list": (lambda a, t, h: t.update(first=t["first"] + 10**12), "lists have the wrong length"),
    "columns": (lambda a, t, h: t.update(column=t["column"] + np.uint32(31)), "do not fit together"),
    "precision": (
        lambda a, t, h: t.update(value=t["value"].astype(np.int32), dense=t["dense"].astype(np.int32)),
        "its weights are int32",
    ),
    "signed columns": (
        lambda a, t, h: t.update(column=t["column"].astype(np.int64)),
        "its columns are int64",
    ),
    "tables": (lambda a, t, h: t.update(first=t["first"].astype(np.uint64)), "tables have the wrong shape"),
}


@pytest.mark.parametrize(("change", "sentence"), CRAFTED.values(), ids=CRAFTED)
@pytest.mark.parametrize("block", [None, 1])
def test_a_file_made_to_deceive_is_refused(
    tmp_path: Path, change: Change, sentence: str, block: int | None
) -> None:
    path = crafted(tmp_path / "model.safetensors", change)
    tracemalloc.start()
    try:
        with pytest.raises(sc.Unreadable, match=sentence):
            sc.load(path, block=block)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_an_absurd_header_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for length in (2**63, 2**40, 10**8 + 1, 0):
        path.write_bytes(length.to_bytes(8, "little") + b"{}" * 50)
        with pytest.raises(sc.Unreadable, match="not a safetensors file"):
            sc.load(path)
    header = {"w": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(sc.Unreadable, match="not a safetensors file"):
        sc.load(path)


def test_what_is_not_there_is_said_to_be_not_there(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        sc.load(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no model in this folder yet"):
        sc.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        sc.save(model_of(np.ones((1, 1, 2))), tmp_path / "none" / "model.safetensors")
    with pytest.raises(IndexError, match="block 12: the model has blocks 0 to 11"):
        sc.load(whole, block=12)
    held = sc.load(whole).held
    assert isinstance(held, DeltaWeights)
    with pytest.raises(IndexError, match="block 12"):
        held.block(12)


def test_a_model_killed_while_being_saved_leaves_a_whole_file(tmp_path: Path) -> None:
    """Real kills at any moment: what is there is one of the models, never a part of one."""
    path = tmp_path / "model.safetensors"
    sc.save(model_of(np.zeros((4, 1, 100_001), np.float32)), path)
    code = (
        "import numpy as np, semicyclic as sc, sys\n"
        "for k in range(1, 10**6):\n"
        "    weights = np.full((4, 1, 100_001), k, np.float32)\n"
        f"    sc.save(sc.Pluralistic(weights, 4, sc.loss.logistic, (0, 1)), {str(path)!r})\n"
        "    print(k, flush=True)\n"
    )
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ})
        assert process.stdout is not None
        process.stdout.readline()  # the first is there
        time.sleep(float(rng.uniform(0.0, 0.5)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        weights = sc.load(path).weights
        assert (weights == weights.flat[0]).all()
        seen.add(float(weights.flat[0]))
    assert 0.0 not in seen
