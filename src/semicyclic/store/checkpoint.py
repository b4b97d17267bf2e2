"""Checkpoints: the state of a run in one safetensors file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semicyclic.method.arrays import ChainState, Records
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.hedge import HedgeState
from semicyclic.method.log import DroppedRecords
from semicyclic.method.loss_stats import LossStats
from semicyclic.method.rows import rows_from_arrays, rows_to_arrays
from semicyclic.method.run import Run
from semicyclic.store.sealed import Arrays, FileFormat, Unreadable, read_sealed, write_sealed
from semicyclic.types import Array

FORMAT = FileFormat(
    "semicyclic-run",
    "about",
    version=7,
    oldest=7,
    what="a checkpoint of semicyclic",
    remedy="resume with the version that wrote it, or start again in another folder",
)
# Fields of the `DroppedRecords` that are stored as arrays.
PAST_FIELDS = ("mean", "last", "weight", "cycle", "loss", "rows", "order")


def write_checkpoint(path: Path, arrays: Arrays, about: dict[str, Any]) -> None:
    """Write arrays and their JSON description `about` atomically."""
    write_sealed(path, FORMAT, arrays, about)


def read_checkpoint(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read the arrays and the description of a checkpoint; raises `Unreadable` for any other file."""
    return read_sealed(path, FORMAT)


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
    if run.scale is not None:
        arrays |= {"scale.mean_square": run.scale.mean_square, "scale.count": run.scale.count}
    if run.pending is not None:
        arrays |= rows_to_arrays(run.pending, "pending.")
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
        pending = rows_from_arrays(arrays, "pending.", width=run.state.vectors.shape[1] - 1, intercept=True)
    scale = run.scale
    if scale is not None:
        scale = ColumnScale(
            _copy_matching(arrays["scale.mean_square"], scale.mean_square),
            _copy_matching(arrays["scale.count"], scale.count),
        )
    latest = int(arrays["latest"][0])
    restored = replace(run, log=log, state=state, hedge_state=hedge_state, scale=scale)
    return replace(restored, pending=pending, latest=latest)


def _copy_matching(array: Array, pattern: Array) -> Array:
    if array.shape != pattern.shape or array.dtype != pattern.dtype:
        raise Unreadable("the checkpoint belongs to a run with arrays of other shapes or types")
    return array.copy()
