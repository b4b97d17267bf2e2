"""Run directory: its lock file, its output files, and the checkpoint of the run."""

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
    """Hold the lock file of a run directory, and remove leftovers of interrupted writes.

    Raise if another process holds the lock.
    """
    file = lock(folder / LOCK)
    if file is None:
        raise ValueError(f"out={str(folder)!r}: another run is working in this folder")
    with file:
        for name in (CHECKPOINT, MODEL, RESULTS, VISITS):
            remove_partial_files(folder / name)
        try:
            yield
        finally:
            if not holds_run(folder):
                (folder / LOCK).unlink(missing_ok=True)


def holds_run(folder: Path) -> bool:
    """Return whether the folder contains output of a run."""
    return any((folder / name).exists() for name in (CHECKPOINT, MODEL, RESULTS))


class TrainState(NamedTuple):
    """State of a run between two chunks, without the candidates; a checkpoint stores both."""

    reading: ReaderState
    run: Run
    scored: DelayedLoss


def write_state(
    folder: Path, config: TrainConfig, state: TrainState, names: FeatureNames, portfolio: Portfolio | None
) -> None:
    """Write the checkpoint of a run."""
    reading, run, scored = state
    arrays = run_arrays(run)
    if portfolio is not None:
        arrays |= {f"portfolio.{name}": array for name, array in portfolio.arrays().items()}
    arrays |= {f"scored.{name}": array for name, array in scored._asdict().items()}
    for name, rows in (("queue", reading.queue), ("buffered", reading.watermark.buffered)):
        if rows is not None and len(rows):
            arrays[name] = np.frombuffer(_serialize_rows(rows), np.uint8)
    about = {
        "config": config.to_json(),
        "features": reading.features.to_json(),
        "labels": reading.labels.to_json(),
        "newest": reading.watermark.newest,
        "late": vars(reading.late),
        "scored": reading.scored,
        "counts": list(reading.counts),
        "position": reading.position.to_json(),
        "first": reading.first,
        # In order of discovery: the first `names_known` names belong to this state.
        "names": list(islice(names.names.items(), reading.names_known)),
        "examples": list(reading.examples),
    }
    write_checkpoint(folder / CHECKPOINT, arrays, about)


def read_state(folder: Path, config: TrainConfig) -> tuple[TrainState, FeatureNames, Portfolio | None]:
    """Read the checkpoint of a run. Raise if its settings differ from `config`."""
    arrays, about = read_checkpoint(folder / CHECKPOINT)
    with _readable(folder / CHECKPOINT):
        now = json.loads(json.dumps(config.to_json()))
        before = about["config"]
        other = differences(before, now)
        if other:
            raise ValueError(
                f"resume=True: the run in {folder} was started with another {other[0].replace('_', ' ')} "
                f"({before.get(other[0])!r}, now {now.get(other[0])!r}): give the same, or "
                "another out="
            )
        state, names = _restore_state(arrays, about, config)
        return state, names, _restore_portfolio(arrays, state.reading, config)


def read_log(folder: Path) -> tuple[TrainConfig, TrainState, FeatureNames]:
    """Read a run with its settings, without its candidates."""
    arrays, about = read_checkpoint(folder / CHECKPOINT)
    with _readable(folder / CHECKPOINT):
        config = TrainConfig.from_json(about["config"])
        return (config, *_restore_state(arrays, about, config))


def read_run(folder: Path) -> Run:
    """Read the run of a folder."""
    return read_log(folder)[1].run


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise `Unreadable` if the checkpoint lacks an entry or has one of the wrong type."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, pa.ArrowInvalid, OverflowError) as error:
        raise Unreadable(
            f"{path}: not a checkpoint of a training run, or a damaged one ({error!r:.200})"
        ) from None


def _restore_portfolio(arrays: Arrays, reading: ReaderState, config: TrainConfig) -> Portfolio | None:
    if config.method != AUTO:
        return None
    portfolio = config.portfolio(reading.features.width, reading.labels.loss)
    prefix = "portfolio."
    parts = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    portfolio.restore({name.removeprefix(prefix): array for name, array in parts.items()})
    return portfolio


def _restore_state(
    arrays: Arrays, about: dict[str, Any], config: TrainConfig
) -> tuple[TrainState, FeatureNames]:
    features, labels = Features.from_json(about["features"]), Labels.from_json(about["labels"])
    late = LateCounts(**about["late"])
    watermark = Watermark(
        config.lateness, config.late, int(about["newest"]), _deserialize_rows(arrays.get("buffered")), late
    )
    names = FeatureNames(np.zeros(features.width, bool))
    for column, name in about["names"]:
        names.names[int(column)] = str(name)
        names.seen[int(column)] = True
    reading = ReaderState(
        features,
        labels,
        watermark,
        _deserialize_rows(arrays.get("queue")),
        int(about["scored"]),
        RowCounts(*map(int, about["counts"])),
        ReadPosition.from_json(about["position"]),
        int(about["first"]),
        len(names.names),
        tuple(map(str, about["examples"])),
    )
    run = restore_run(config.first_run(features.width, labels.loss), arrays)
    scored = DelayedLoss(*(arrays[f"scored.{name}"].copy() for name in DelayedLoss._fields))
    return TrainState(reading, run, scored), names


def _serialize_rows(rows: WaitingRows) -> bytes:
    """Serialize rows as an Arrow IPC stream: features, and times and labels as columns prefixed with NUL."""
    table = rows.table
    for name, column in rows.arrays().items():
        table = table.append_column(f"\0{name}", pa.array(column))
    buffer = io.BytesIO()
    # One batch of contiguous columns: the same rows give the same bytes, however they arrived.
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(pa.Table.from_batches([_contiguous_batch(table)]))
    return buffer.getvalue()


def _contiguous_batch(table: Any) -> Any:
    """Copy a table into one record batch without chunks or offsets."""
    columns = [table.column(name) for name in table.column_names]
    arrays = [
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns
    ]
    copied = [pa.concat_arrays([array, array.slice(0, 0)]) for array in arrays]
    return pa.record_batch(copied, schema=table.schema)


def _deserialize_rows(data: Any) -> WaitingRows | None:
    """Read the rows that `_serialize_rows` wrote; None if there are none."""
    if data is None:
        return None
    table = pa.ipc.open_stream(pa.py_buffer(data.tobytes())).read_all().combine_chunks()
    prefixed = [name for name in table.column_names if name.startswith("\0")]
    arrays = {name[1:]: table.column(name).to_numpy() for name in prefixed}
    return WaitingRows(table.drop_columns(prefixed), **arrays)


def load_run(folder: str | PathLike[str]) -> Run:
    """Load the run of a `semicyclic train` folder, as of its last checkpoint, to compute any read-out.

    Labels of the run are class codes, or scaled numbers. Rows that were still waiting for others at the
    checkpoint are not included. The model file has the class names and includes all rows.

    Parameters
    ----------
    folder : str or path-like
        The folder given to `semicyclic train` as its output.

    Returns
    -------
    Run

    Raises
    ------
    Unreadable
        If the checkpoint is damaged or is not that of a training run.
    FileNotFoundError
        If the folder has no checkpoint.
    """
    return read_run(Path(folder))
