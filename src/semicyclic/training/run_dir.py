"""Run directory: its lock, its files, and the state of a run in its checkpoint."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semicyclic.auto.portfolio import Portfolio
from semicyclic.method.run import Run
from semicyclic.store.atomic import lock, remove_partial_files
from semicyclic.store.checkpoint import Arrays, read_checkpoint, restore_run, run_arrays, write_checkpoint
from semicyclic.store.model_file import Unreadable
from semicyclic.tables.features import FeatureNames, Features
from semicyclic.tables.labels import Labels
from semicyclic.tables.sources import ReadPosition
from semicyclic.tables.watermark import LateCounts, WaitingRows, Watermark
from semicyclic.training.config import AUTO, TrainConfig, differences
from semicyclic.training.delayed_loss import DelayedLoss
from semicyclic.training.reader import ReaderState, RowCounts

CHECKPOINT, MODEL, RESULTS, VISITS, LOCK = (
    "checkpoint.safetensors",
    "model.safetensors",
    "results.json",
    "visits.csv",
    "lock",
)


@contextmanager
def lock_run_dir(folder: Path) -> Iterator[None]:
    """Nobody else works in the folder meanwhile."""
    file = lock(folder / LOCK)
    if file is None:
        raise ValueError(f"--out {folder}: another run is working in this folder")
    with file:
        for name in (CHECKPOINT, MODEL, RESULTS, VISITS):
            remove_partial_files(folder / name)
        try:
            yield
        finally:
            if not holds_run(folder):
                (folder / LOCK).unlink(missing_ok=True)


def holds_run(folder: Path) -> bool:
    """Whether there is something of a run in the folder."""
    return any((folder / name).exists() for name in (CHECKPOINT, MODEL, RESULTS))


class TrainState(NamedTuple):
    """All that a run is made of between two chunks, beside its candidates: what a checkpoint holds."""

    reading: ReaderState
    run: Run
    scored: DelayedLoss


def write_state(
    folder: Path, job: TrainConfig, state: TrainState, names: FeatureNames, portfolio: Portfolio | None
) -> None:
    """Put all that a run is made of to disk."""
    reading, run, scored = state
    arrays = run_arrays(run)
    if portfolio is not None:
        arrays |= {f"portfolio.{name}": array for name, array in portfolio.arrays().items()}
    arrays |= {f"scored.{name}": array for name, array in scored._asdict().items()}
    for name, held in (("queue", reading.queue), ("held", reading.order.held)):
        if held is not None and len(held):
            arrays[name] = np.frombuffer(_serialize_rows(held), np.uint8)
    about = {
        "job": job.to_json(),
        "features": reading.features.to_json(),
        "labels": reading.labels.to_json(),
        "newest": reading.order.newest,
        "late": vars(reading.late),
        "scored": reading.scored,
        "counts": list(reading.counts),
        "mark": reading.mark.to_json(),
        "first": reading.first,
        # In the order in which they were found, which `named` counts.
        "names": list(islice(names.names.items(), reading.named)),
        "examples": list(reading.examples),
    }
    write_checkpoint(folder / CHECKPOINT, arrays, about)


def read_state(folder: Path, job: TrainConfig) -> tuple[TrainState, FeatureNames, Portfolio | None]:
    """What `write_state` wrote, of a run that was told the same."""
    arrays, about = read_checkpoint(folder / CHECKPOINT)
    with _readable(folder / CHECKPOINT):
        now = json.loads(json.dumps(job.to_json()))
        other = differences(about["job"], now)
        if other:
            raise ValueError(
                f"--resume: the run in {folder} was started with another {other[0].replace('_', ' ')} "
                f"({about['job'].get(other[0])!r}, now {now.get(other[0])!r}): give the same, or "
                "another --out"
            )
        state, names = _state(arrays, about, job)
        return state, names, _portfolio(arrays, state.reading, job)


def read_log(folder: Path) -> tuple[TrainConfig, TrainState, FeatureNames]:
    """The run of a folder with what it was told; without its candidates."""
    arrays, about = read_checkpoint(folder / CHECKPOINT)
    with _readable(folder / CHECKPOINT):
        job = TrainConfig.from_json(about["job"])
        return (job, *_state(arrays, about, job))


def read_run(folder: Path) -> Run:
    """The run of a folder."""
    return read_log(folder)[1].run


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """One kind of error for a checkpoint that lacks something or holds something else."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, pa.ArrowInvalid, OverflowError) as error:
        raise Unreadable(
            f"{path}: not a checkpoint of this kind, or a damaged one ({error!r:.200})"
        ) from None


def _portfolio(arrays: Arrays, reading: ReaderState, job: TrainConfig) -> Portfolio | None:
    if job.method != AUTO:
        return None
    portfolio = job.portfolio(reading.features.width, reading.labels.loss)
    own = {name: array for name, array in arrays.items() if name.startswith("portfolio.")}
    portfolio.restore({name.removeprefix("portfolio."): array for name, array in own.items()})
    return portfolio


def _state(arrays: Arrays, about: dict[str, Any], job: TrainConfig) -> tuple[TrainState, FeatureNames]:
    features, labels = Features.from_json(about["features"]), Labels.from_json(about["labels"])
    late = LateCounts(**about["late"])
    order = Watermark(
        job.lateness, job.late, int(about["newest"]), _deserialize_rows(arrays.get("held")), late
    )
    names = FeatureNames(np.zeros(features.width, bool))
    for column, name in about["names"]:
        names.names[int(column)] = str(name)
        names.seen[int(column)] = True
    reading = ReaderState(
        features,
        labels,
        order,
        _deserialize_rows(arrays.get("queue")),
        int(about["scored"]),
        RowCounts(*map(int, about["counts"])),
        ReadPosition.from_json(about["mark"]),
        int(about["first"]),
        len(names.names),
        tuple(map(str, about["examples"])),
    )
    run = restore_run(job.first_run(features.width, labels.loss), arrays)
    scored = DelayedLoss(*(arrays[f"scored.{name}"].copy() for name in DelayedLoss._fields))
    return TrainState(reading, run, scored), names


def _serialize_rows(held: WaitingRows) -> bytes:
    """Rows as bytes: Arrow's own format, the columns of `Held` beside the features."""
    table = held.table
    for name, column in held.arrays().items():
        table = table.append_column(f"\0{name}", pa.array(column))
    buffer = io.BytesIO()
    # One batch of contiguous columns: the same rows give the same bytes, however they were cut.
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(pa.Table.from_batches([_whole(table)]))
    return buffer.getvalue()


def _whole(table: Any) -> Any:
    columns = [table.column(name) for name in table.column_names]
    arrays = [
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns
    ]
    copied = [pa.concat_arrays([array, array.slice(0, 0)]) for array in arrays]
    return pa.record_batch(copied, schema=table.schema)


def _deserialize_rows(data: Any) -> WaitingRows | None:
    if data is None:
        return None
    table = pa.ipc.open_stream(pa.py_buffer(data.tobytes())).read_all().combine_chunks()
    own = [name for name in table.column_names if name.startswith("\0")]
    arrays = {name[1:]: table.column(name).to_numpy() for name in own}
    return WaitingRows(table.drop_columns(own), **arrays)


def load_run(folder: str | PathLike[str]) -> Run:
    """The run that `semicyclic train` has left in a folder, as of its last checkpoint: for any read-out.

    Its labels are codes of classes (or numbers scaled), and rows that waited for others are not in it;
    the model file has the names, and all that was learnt.
    """

    return read_run(Path(folder))
