"""Run directory: its lock file, its output files, and the checkpoint of the run."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semicyclic.method.loss import Loss
from semicyclic.method.run import Run
from semicyclic.store.atomic import lock, remove_partial_files
from semicyclic.store.checkpoint import read_checkpoint, write_checkpoint
from semicyclic.store.json_codec import from_json, to_json
from semicyclic.store.sealed import Arrays, Unreadable
from semicyclic.tables.features import FeatureNames, Features
from semicyclic.tables.labels import Labels
from semicyclic.tables.sources import ReadPosition
from semicyclic.tables.watermark import LateCounts, WaitingRows, Watermark
from semicyclic.training.config import TrainConfig, differences
from semicyclic.training.learner import ChainLearner, LoggedAutoLearner
from semicyclic.training.open_model import MODEL
from semicyclic.training.reader import ReaderState, RowCounts, new_logged_learner

CHECKPOINT, RESULTS, VISITS, LOCK = "checkpoint.safetensors", "results.json", "visits.csv", "lock"


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
    """State of a run between two chunks.

    names: features found so far; the first `reading.names_known` of them belong to this state.
    """

    reading: ReaderState
    learner: ChainLearner | LoggedAutoLearner
    names: FeatureNames


def write_state(folder: Path, config: TrainConfig, state: TrainState) -> None:
    """Write the checkpoint of a run."""
    reading, learner, names = state
    arrays = learner.arrays()
    for name, rows in (("chunk", reading.queue), ("buffered", reading.watermark.buffered)):
        if rows is not None and len(rows):
            arrays[name] = np.frombuffer(_serialize_rows(rows), np.uint8)
    about = {
        "config": config.to_json(),
        "features": reading.features.to_json(),
        "labels": to_json(reading.labels),
        "newest": reading.watermark.newest,
        "late": to_json(reading.late),
        "counts": to_json(reading.counts),
        "position": to_json(reading.position),
        "first": reading.first,
        # In order of discovery.
        "names": list(islice(names.names.items(), reading.names_known)),
        "examples": list(reading.examples),
    }
    write_checkpoint(folder / CHECKPOINT, arrays, about)


def read_state(folder: Path, config: TrainConfig) -> TrainState:
    """Read the checkpoint of a run. Raise if its settings differ from `config`."""
    arrays, about = read_checkpoint(folder / CHECKPOINT)
    with _readable(folder / CHECKPOINT):
        now, before = config.to_json(), dict(about["config"])
        other = differences(before, now)
    if other:
        raise ValueError(
            f"resume=True: the run in {folder} was started with another {other[0].replace('_', ' ')} "
            f"({before.get(other[0])!r}, now {now.get(other[0])!r}): give the same, or another out="
        )
    with _readable(folder / CHECKPOINT):
        return _restore_state(arrays, about, config, partial(new_logged_learner, config))


class LoggedRun(NamedTuple):
    """The chain of a run with its log, its settings, the state of its reader, and feature names."""

    config: TrainConfig
    reading: ReaderState
    chain: ChainLearner
    names: FeatureNames


def read_log(folder: Path) -> LoggedRun:
    """Read a run without its candidates."""
    arrays, about = read_checkpoint(folder / CHECKPOINT)
    with _readable(folder / CHECKPOINT):
        config = TrainConfig.from_json(about["config"])
        reading, chain, names = _restore_state(
            arrays, about, config, lambda features, loss: config.chain_learner(features.width, loss)
        )
        assert isinstance(chain, ChainLearner)
        return LoggedRun(config, reading, chain, names)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise `Unreadable` if the checkpoint lacks an entry or has one of the wrong type."""
    try:
        yield
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unreadable(
            f"{path}: not a checkpoint of a training run, or a damaged one ({error!r:.200})"
        ) from None


def _restore_state(
    arrays: Arrays,
    about: dict[str, Any],
    config: TrainConfig,
    new_learner: Callable[[Features, Loss], ChainLearner | LoggedAutoLearner],
) -> TrainState:
    """Restore the state of a checkpoint. new_learner: makes an untrained learner."""
    features, labels = Features.from_json(about["features"]), from_json(about["labels"], Labels)
    late = from_json(about["late"], LateCounts)
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
        _deserialize_rows(arrays.get("chunk")),
        from_json(about["counts"], RowCounts),
        from_json(about["position"], ReadPosition),
        int(about["first"]),
        len(names.names),
        tuple(map(str, about["examples"])),
    )
    learner = new_learner(features, labels.loss)
    learner.restore(arrays)
    return TrainState(reading, learner, names)


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
    return read_log(Path(folder)).chain.run
