"""Checkpoints: the state of a run in one safetensors file."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semicyclic.method.arrays import ChainState, Records
from semicyclic.method.hedge import HedgeState
from semicyclic.method.log import DroppedRecords
from semicyclic.method.loss_stats import LossStats
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.store.atomic import write_tensors
from semicyclic.store.model_file import Unreadable
from semicyclic.types import Array

Arrays = dict[str, Array]

# Metadata key and format version.
KEY, VERSION = "semicyclic-run", 5
# Fields of the pending `Rows` and of the `DroppedRecords` that are stored as arrays.
ROW_FIELDS = ("indptr", "indices", "values", "labels", "block", "cycle")
PAST_FIELDS = ("mean", "last", "weight", "cycle", "loss", "rows", "order")


def write_checkpoint(path: Path, arrays: Arrays, about: dict[str, Any]) -> None:
    """Write arrays and their JSON description `about` atomically."""
    text = json.dumps(about, allow_nan=False, sort_keys=True, separators=(",", ":"))
    # Sorted by name, so that the order does not depend on how safetensors sorts tensors.
    ordered = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    head = {"version": VERSION, "digest": _digest(text, ordered), "about": text}
    write_tensors(path, ordered, {KEY: json.dumps(head, sort_keys=True)})


def read_checkpoint(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read the arrays and the description of a checkpoint; raises `Unreadable` for any other file."""
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
                    f"{path}: a checkpoint in format {head['version']!r}, but this version reads {VERSION}: "
                    "resume with the version that wrote it, or start again in another folder"
                )
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        if head["digest"] != _digest(head["about"], dict(sorted(arrays.items()))):
            raise Unreadable(f"{path}: the checkpoint was altered or damaged: the digest does not match")
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
    """Return the state of a run and its log as named arrays."""
    log = run.log
    arrays = {f"state.{name}": array for name, array in run.state._asdict().items()}
    arrays |= {"start": log.start, "latest": np.array([run.latest])}
    if run.hedge_state is not None:
        arrays |= {
            f"hedge.{name}": array for name, array in run.hedge_state._asdict().items() if name != "rule"
        }
    if log.past is not None:
        arrays |= {f"past.{name}": getattr(log.past, name) for name in PAST_FIELDS}
        arrays |= {f"past.tally.{name}": array for name, array in log.past.tally._asdict().items()}
        arrays["past.records"] = np.array([log.past.records])
    if run.pending is not None:
        arrays |= {f"pending.{name}": getattr(run.pending, name) for name in ROW_FIELDS}
    return arrays | _page_arrays(log.pages)


def _page_arrays(pages: list[Records]) -> Arrays:
    """Concatenate the records of a log, one array per field, with the sizes of the pages."""
    sizes = [(len(page.cycle), len(page.lists), len(page.changes)) for page in pages]
    fields = zip(Records._fields, zip(*pages, strict=True), strict=bool(pages))
    arrays = {f"records.{name}": np.concatenate(parts) for name, parts in fields}
    return arrays | {"pages": np.array(sizes, np.int64).reshape(-1, 3)}


def _restore_pages(arrays: Arrays) -> Iterator[Records]:
    """Restore the pages from `_page_arrays`."""
    ends = np.cumsum(arrays["pages"], axis=0)
    for low, high in zip(ends - arrays["pages"], ends, strict=True):
        # Two fields are flat lists with separate lengths; the others have one entry per record.
        size_column = {"lists": 1, "changes": 2}
        yield Records._make(
            arrays[f"records.{name}"][low[size_column.get(name, 0)] : high[size_column.get(name, 0)]].copy()
            for name in Records._fields
        )


def restore_run(run: Run, arrays: Arrays) -> Run:
    """Restore a run from its arrays; `run` is a new run with the same settings and no training."""
    log = replace(run.log, start=_copy_matching(arrays["start"], run.log.start), past=None)
    state = ChainState(
        *(_copy_matching(arrays[f"state.{name}"], getattr(run.state, name)) for name in ChainState._fields)
    )
    hedge_state = run.hedge_state
    if hedge_state is not None:
        names = HedgeState._fields[1:]
        hedge_state = HedgeState(
            hedge_state.rule,
            *(_copy_matching(arrays[f"hedge.{name}"], getattr(hedge_state, name)) for name in names),
        )
    if "past.records" in arrays:
        tally = LossStats(*(arrays[f"past.tally.{name}"].copy() for name in LossStats._fields))
        past = {name: arrays[f"past.{name}"].copy() for name in PAST_FIELDS}
        log.past = DroppedRecords(**past, records=int(arrays["past.records"][0]), tally=tally)
    log.pages = list(_restore_pages(arrays))
    log.size = sum(page.nbytes for page in log.pages)
    pending = None
    if "pending.indptr" in arrays:
        pending = object.__new__(Rows)
        fields = {name: arrays[f"pending.{name}"] for name in ROW_FIELDS}
        width = run.state.vectors.shape[1] - 1
        vars(pending).update(fields, width=width, intercept=True, weight=None, when=None, features=None)
    latest = int(arrays["latest"][0])
    return replace(run, log=log, state=state, hedge_state=hedge_state, pending=pending, latest=latest)


def _copy_matching(array: Array, pattern: Array) -> Array:
    if array.shape != pattern.shape or array.dtype != pattern.dtype:
        raise Unreadable("the checkpoint belongs to a run with arrays of other shapes or types")
    return array.copy()
