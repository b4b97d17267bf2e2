"""Checkpoints: all that a run is made of, in one safetensors file. Loading never runs code."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.bets import Bets
from semicyclic.method.frames import DENSE, Frames
from semicyclic.method.readout import Kept, Past
from semicyclic.method.record import NUMBERS, Page, Running, State
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.tally import Tally
from semicyclic.store.modelfile import Unreadable
from semicyclic.store.safely import put

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

KEY, VERSION = "semicyclic-run", 2
FRAMES = ("kind", "first", "column", "value", "dense")
ROWS = ("indptr", "indices", "values", "labels", "block", "cycle")
PAST = ("mean", "last", "weight", "cycle", "loss", "rows", "order")


def write_checkpoint(path: Path, arrays: Arrays, about: dict[str, Any]) -> None:
    """Write arrays and what is to be known of them, whole or not at all."""
    text = json.dumps(about, allow_nan=False, sort_keys=True, separators=(",", ":"))
    # safetensors sorts tensors its own way: in the order of their names nothing is left to it.
    ordered = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    head = {"version": VERSION, "digest": _digest(text, ordered), "about": text}
    put(path, ordered, {KEY: json.dumps(head, sort_keys=True)})


def read_checkpoint(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """What `write_checkpoint` wrote; anything else is `Unreadable`."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise Unreadable(f"{path}: a safetensors file, but not a checkpoint of semicyclic")
            head = json.loads(text)
            if head["version"] != VERSION:
                raise Unreadable(
                    f"{path}: a checkpoint in format {head['version']!r}, and this version reads {VERSION}: "
                    "go on with the version that wrote it, or start again in another folder"
                )
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        if head["digest"] != _digest(head["about"], dict(sorted(arrays.items()))):
            raise Unreadable(f"{path}: the checkpoint was altered or damaged: the digest does not fit")
        return arrays, dict(json.loads(head["about"]))
    except Unreadable:
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{path}: not a checkpoint, or a damaged one ({str(error)[:200]})") from None


def _digest(text: str, arrays: Arrays) -> str:
    total = hashlib.sha256(text.encode())
    for name, array in arrays.items():
        total.update(f"{name} {array.dtype.name} {array.shape};".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


# --------------------------------------------------------------------------------- runs


def run_arrays(run: Run) -> Arrays:
    """The state of a run and its log, as arrays; only of runs that keep running means."""
    log = run.log
    if not log.tables or log.running is None:
        raise ValueError("only a run with running=True can be kept")
    arrays = {f"state.{name}": array for name, array in run.state._asdict().items()}
    arrays |= {f"running.{name}": array for name, array in log.running._asdict().items()}
    arrays["latest"] = np.array([run.latest])
    if run.bets is not None:
        arrays |= {f"bets.{name}": array for name, array in run.bets._asdict().items() if name != "rule"}
    if log.past is not None:
        arrays |= {f"past.{name}": getattr(log.past, name) for name in PAST}
        arrays |= {f"past.tally.{name}": array for name, array in log.past.tally._asdict().items()}
        arrays["past.count"] = np.array([log.past.count])
    if run.pending is not None:
        arrays |= {f"pending.{name}": getattr(run.pending, name) for name in ROWS}
    return arrays | _pages(log.pages)


def _pages(pages: list[Kept]) -> Arrays:
    """All pages of a log in a few arrays: every record's numbers, and its mean and end as frames."""
    films = [kept.filmed() for kept in pages]
    whole = np.zeros(0, np.int64)
    found = {
        "records": np.array([len(kept.cycle) for kept in pages], np.int64),
        "cells": np.array([len(film.column) for film in films], np.int64),
        "lean": np.array([kept.is_lean for kept in pages], bool),
        "visit": np.concatenate([whole, *(kept.page.visit for kept in pages)]),
        "cycle": np.concatenate([whole, *(kept.cycle for kept in pages)]),
        "block": np.concatenate([whole, *(kept.block for kept in pages)]),
        "numbers": np.concatenate(
            [np.zeros((NUMBERS, 0)), *(np.stack(kept.page[1 : 1 + NUMBERS]) for kept in pages)], axis=1
        ),
    }
    if films:
        found |= {name: np.concatenate([getattr(film, name) for film in films]) for name in FRAMES}
    return {f"pages.{name}": array for name, array in found.items()}


def _restored_pages(arrays: Arrays, shape: tuple[int, int]) -> Iterator[Kept]:
    """The pages that `_pages` made arrays of."""
    held = {name.removeprefix("pages."): array for name, array in arrays.items() if name.startswith("pages.")}
    at = cell = dense = 0
    for number, records in enumerate(held["records"].tolist()):
        own, frames = slice(at, at + records), slice(2 * at, 2 * (at + records))
        cells = int(held["cells"][number])
        kind = held["kind"][frames]
        keys = int((kind == DENSE).sum())
        film = Frames(
            kind,
            # Every film has one bound more than it has frames.
            held["first"][2 * at + number : 2 * (at + records) + number + 1],
            held["column"][cell : cell + cells],
            held["value"][cell : cell + cells],
            held["dense"][dense : dense + keys],
            (2 * records, *shape),
        )
        # As it was held then: so memory runs out when it would have.
        table = np.empty((0, 2, *shape), film.dtype)
        if not held["lean"][number]:
            table = film.table().reshape(records, 2, *shape)
        none = np.empty((0, shape[1]), table.dtype), np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
        numbers = held["numbers"][:, own]
        page = Page._make([held["visit"][own], *numbers, table[:, 0], table[:, 1], *none])
        yield Kept(page, held["cycle"][own], held["block"][own], film=film)
        at, cell, dense = at + records, cell + cells, dense + keys


def restored(run: Run, arrays: Arrays) -> Run:
    """A run as it was kept, made from one that has learnt nothing but is told the same."""
    log = replace(run.log, pages=[], past=None)
    state = State(*(_like(arrays[f"state.{name}"], getattr(run.state, name)) for name in State._fields))
    assert log.running is not None
    running = (_like(arrays[f"running.{name}"], getattr(log.running, name)) for name in Running._fields)
    log.running = Running(*running)
    bets = run.bets
    if bets is not None:
        names = Bets._fields[1:]
        bets = Bets(bets.rule, *(_like(arrays[f"bets.{name}"], getattr(bets, name)) for name in names))
    if "past.count" in arrays:
        tally = Tally(*(arrays[f"past.tally.{name}"].copy() for name in Tally._fields))
        held = {name: arrays[f"past.{name}"].copy() for name in PAST}
        log.past = Past(**held, count=int(arrays["past.count"][0]), tally=tally)
    shape = run.state.vectors.shape[1:]
    log.pages = list(_restored_pages(arrays, (shape[0], shape[1])))
    log.size = sum(kept.nbytes() for kept in log.pages)
    pending = None
    if "pending.indptr" in arrays:
        pending = object.__new__(Rows)
        held = {name: arrays[f"pending.{name}"] for name in ROWS}
        width = run.state.vectors.shape[1] - 1
        vars(pending).update(held, width=width, intercept=True, weight=None, when=None, features=None)
    latest = int(arrays["latest"][0])
    return replace(run, log=log, state=state, bets=bets, pending=pending, latest=latest)


def _like(array: Array, pattern: Array) -> Array:
    if array.shape != pattern.shape or array.dtype != pattern.dtype:
        raise Unreadable("the checkpoint is of a run of another shape")
    return array.copy()
