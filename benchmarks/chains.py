"""Benchmarks of SGD chains: against scikit-learn, against C, and as m and d grow."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks.streams import Stream, stream
from benchmarks.timing import Figure, Peer, at_least, at_most, best_of, no_goal, note
from semicyclic.method import train
from semicyclic.method.batches import Packed, pack
from semicyclic.method.loss import logistic
from semicyclic.method.rows import Rows
from semicyclic.method.step import adagrad

STEP = 0.9
REPEATS = 9


def _sklearn(data: Stream, *, average: bool) -> Peer:
    """One pass of scikit-learn with its fastest settings: given order, no penalty."""

    def fit() -> object:
        model = SGDClassifier(loss="log_loss", penalty=None, shuffle=False, average=average)
        return model.partial_fit(data.X, data.y, classes=[0, 1])

    return Peer(fit)


def _pack_stream(data: Stream, blocks: int, cycles: int) -> Packed:
    """Pack the stream for training."""
    return pack(data.rows(blocks, cycles), blocks, loss=logistic)


def chain() -> list[Figure]:
    """One chain on packed rows, against scikit-learn's partial_fit."""
    data = stream()
    rows = _pack_stream(data, 6, 10)
    time = best_of(
        REPEATS,
        sklearn=_sklearn(data, average=False),
        chain=lambda: train.consensus(rows, step_size=STEP),
    )
    return [at_least("scikit-learn / chain", time["sklearn"] / time["chain"], 5.0)]


def chain_packed() -> list[Figure]:
    """The same from CSR, including validation and packing."""
    data = stream()
    time = best_of(
        REPEATS,
        sklearn=_sklearn(data, average=False),
        chain=lambda: train.consensus(_pack_stream(data, 6, 10), step_size=STEP),
    )
    return [at_least("scikit-learn / (packing + chain)", time["sklearn"] / time["chain"], 1.5)]


def chain_c() -> list[Figure]:
    """One chain against the same loops and layout in C, and against C with -ffast-math (no goal)."""
    rows = _pack_stream(stream(), 6, 10)
    jobs: dict[str, Callable[[], object] | Peer] = {"chain": lambda: train.consensus(rows, step_size=STEP)}
    with tempfile.TemporaryDirectory() as folder:
        weights: dict[str, Any] = {}
        for name, flags in (("c", ()), ("c_fast_math", ("-ffast-math",))):
            jobs[name] = Peer(_compile_c(rows, Path(folder) / f"{name}.so", flags, weights, name))
        time = best_of(REPEATS, **jobs)
    last = train.consensus(rows, step_size=STEP).last().weights[0, 0]
    assert not weights or np.allclose(weights["c"], last, atol=1e-3), "C and the chain do not do the same"
    return [
        at_most("chain / C", time["chain"] / time["c"], 1.2),
        no_goal("chain / C with -ffast-math", time["chain"] / time["c_fast_math"]),
    ]


def c_seconds() -> float:
    """Return the time of the chain in C, as a measure of the machine."""
    rows = _pack_stream(stream(), 6, 10)
    with tempfile.TemporaryDirectory() as folder:
        run = _compile_c(rows, Path(folder) / "c.so", (), {}, "c")
        return best_of(REPEATS, c=Peer(run))["c"]


def _compile_c(
    rows: Packed, library: Path, flags: tuple[str, ...], weights: dict[str, Any], name: str
) -> Callable[[], object]:
    """Compile chain.c and return a job that runs it and stores the final weights in `weights[name]`."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise SystemExit("chain-c needs gcc")
    source = Path(__file__).with_name("chain.c")
    command = [
        compiler,
        "-O3",
        "-march=native",
        *flags,
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(library),
        "-lm",
    ]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).chain
    function.restype = ctypes.c_double
    layout, width = rows.layout, rows.width + 1

    def run() -> object:
        w, sums = np.zeros(width, np.float32), np.zeros(width)
        tables: list[Any] = [np.empty((len(layout.block), width), np.float32) for _ in range(2)]
        arrays = [layout.columns, layout.values, layout.starts, layout.targets, layout.steps, layout.visits]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        sizes = [ctypes.c_int64(len(layout.block)), ctypes.c_int64(width), ctypes.c_double(STEP)]
        out = [ctypes.c_void_p(array.ctypes.data) for array in (w, sums, *tables)]
        weights[name] = w
        return function(*pointers, *sizes, *out)

    return run


def pluralistic() -> list[Figure]:
    """Pluralistic means, m=6, against scikit-learn with average=True and against the chain without means."""
    data = stream()
    rows = _pack_stream(data, 6, 10)
    time = best_of(
        REPEATS,
        sklearn=_sklearn(data, average=True),
        plain=lambda: train.consensus(rows, step_size=STEP),
        pluralistic=lambda: train.pluralistic(rows, step_size=STEP).mean(),
    )
    return [
        at_least("scikit-learn average=True / pluralistic", time["sklearn"] / time["pluralistic"], 4.5),
        at_most("pluralistic / plain", time["pluralistic"] / time["plain"], 1.25),
    ]


def growth_m() -> list[Figure]:
    """1440 blocks against 6, including the read-out of all means."""
    few, many = (_pack_stream(stream(), blocks, 10) for blocks in (6, 1440))
    time = best_of(
        REPEATS,
        few=lambda: train.pluralistic(few, step_size=STEP).mean(),
        many=lambda: train.pluralistic(many, step_size=STEP).mean(),
    )
    return [at_most("m=1440 / m=6", time["many"] / time["few"], 1.3)]


def growth_d() -> list[Figure]:
    """2^20 hashed columns against 1024, m=24, including the read-out of all 24 means.

    Measured twice: on packed rows (wide ones are also packed by column, which read-outs need), and from CSR
    including packing.
    """
    small, large = stream(), stream(2**20)
    figures = []
    for cycles in (10, 100):
        narrow, wide = _pack_stream(small, 24, cycles), _pack_stream(large, 24, cycles)

        def pack_and_train(data: Stream, cycles: int = cycles) -> object:
            return train.pluralistic(_pack_stream(data, 24, cycles), step_size=STEP).mean()

        def train_packed(rows: Packed) -> object:
            return train.pluralistic(rows, step_size=STEP).mean()

        time = best_of(
            5,
            narrow=lambda narrow=narrow: train_packed(narrow),  # type: ignore[misc]
            wide=lambda wide=wide: train_packed(wide),  # type: ignore[misc]
            narrow_whole=lambda: pack_and_train(small),
            wide_whole=lambda: pack_and_train(large),
        )
        for name, seconds in time.items():
            note(f"{name}, K={cycles}", seconds)
        figures += [
            at_most(f"d=2^20 / d=1024, K={cycles}, packed", time["wide"] / time["narrow"], 4.0),
            at_most(
                f"d=2^20 / d=1024, K={cycles}, packing included",
                time["wide_whole"] / time["narrow_whole"],
                4.0,
            ),
        ]
    return figures


def hedged() -> list[Figure]:
    """Single and separate chains with AdaHedge per minibatch, including the read-out of all means."""
    data = stream()
    rows = _pack_stream(data, 6, 10)
    time = best_of(
        REPEATS,
        sklearn=_sklearn(data, average=True),
        plain=lambda: train.consensus(rows, step_size=STEP),
        hedged=lambda: train.hedged(rows, step_size=STEP).mean(),
    )
    return [
        at_least("scikit-learn average=True / hedged", time["sklearn"] / time["hedged"], 2.0),
        at_most("hedged / plain", time["hedged"] / time["plain"], 2.3),
    ]


def readout() -> list[Figure]:
    """Training with the read-out of all means, against training alone, on 360,000 rows.

    Two shapes with large read-outs: 1440 blocks, and adaptive steps with 2^18 columns.
    """
    many = _pack_quarter(stream(), 1440)
    wide = _pack_quarter(stream(2**18), 6)
    adaptive = adagrad(0.2)
    time = best_of(
        REPEATS,
        many=lambda: train.pluralistic(many, step_size=STEP),
        many_mean=lambda: train.pluralistic(many, step_size=STEP).mean(),
        wide=lambda: train.pluralistic(wide, step_size=adaptive),
        wide_mean=lambda: train.pluralistic(wide, step_size=adaptive).mean(),
    )
    return [
        at_most("(train + mean) / train, m=1440", time["many_mean"] / time["many"], 1.6),
        at_most("(train + mean) / train, AdaGrad, d=2^18", time["wide_mean"] / time["wide"], 3.0),
    ]


def _pack_quarter(data: Stream, blocks: int) -> Packed:
    """Pack a quarter of the stream, in ten cycles."""
    count = len(data.y) // 4
    cycle, block = np.divmod(np.arange(count) * (blocks * 10) // count, blocks)
    return pack(Rows(data.X[:count], data.y[:count], block=block, cycle=cycle), blocks, loss=logistic)
