"""Files to models and to predictions, against scikit-learn; memory; what checkpoints cost."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.timing import Figure, at_least, at_most, no_goal, note, peer_timed, timed
from semicyclic.method.loss import by_name
from semicyclic.schedule.schedule import Schedule
from semicyclic.store.model_file import load
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.sources import Sources
from semicyclic.tables.writers import open_writer
from semicyclic.training.config import TrainConfig
from semicyclic.training.predict import predict_batches
from semicyclic.training.train_files import FileTraining
from semicyclic.training.what_if import ModelRequest, model_for
from semicyclic.training.what_if import open_run as opened_log

ROWS, DAYS = 5_000_000, 30
NUMBERS = [f"n{k}" for k in range(6)]
CATEGORIES = [f"c{k}" for k in range(6)]
CHUNK = 1 << 16
# One chain, as scikit-learn has one.
JOB = TrainConfig(ColumnRequest(("when",), "y"), Schedule.daily(6), method="pluralistic")


def _table(rows: int, seed: int = 0) -> Any:
    """6 numbers, 6 categories of 50 to 300 values, 8 words of 20,000; a label that follows the clock."""
    rng = np.random.default_rng(seed)
    first = 1_700_006_400
    when = np.sort(rng.integers(first, first + DAYS * 86_400, rows))
    held: dict[str, Any] = {name: rng.normal(size=rows) for name in NUMBERS}
    for k, name in enumerate(CATEGORIES):
        values = pa.array([f"value{v}" for v in range(50 * (k + 1))])
        held[name] = values.take(pa.array(rng.integers(0, len(values), rows)))
    words = pa.array([f"word{v}" for v in range(20_000)])
    tokens = rng.zipf(1.5, size=(8, rows)) % len(words)
    held["text"] = pc.binary_join_element_wise(*(words.take(pa.array(own)) for own in tokens), " ")
    sign = np.where(when // 3600 % 24 < 12, 1.0, -1.0)
    score = held["n0"] + 0.5 * held["n1"] ** 2 + sign * held["n2"] + tokens[0] % 3 - 1.5
    held["when"] = when
    held["y"] = pa.array(["no", "yes"]).take(pa.array((score + rng.normal(size=rows) > 0).astype(np.int64)))
    return pa.table(held)


@cache
def _folder() -> Path:
    """Four months in four files; the first is the one of the other benchmarks."""
    folder = Path(tempfile.mkdtemp(prefix="semicyclic-bench-"))
    table = _table(ROWS)
    at = table.column_names.index("when")
    for month in range(4):
        moved = pc.add(table.column("when"), month * DAYS * 86_400)
        pq.write_table(
            table.set_column(at, "when", moved), folder / f"{month}.parquet", row_group_size=200_000
        )
    return folder


def clean() -> None:
    """Remove the files."""
    if _folder.cache_info().currsize:
        shutil.rmtree(_folder(), ignore_errors=True)
        _folder.cache_clear()


@contextmanager
def _room() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def _train(
    files: list[Path], *, job: TrainConfig = JOB, checkpoints: bool = True, out: Path | None = None
) -> None:
    with _room() as place:
        FileTraining(job, Sources([*files]), out or place, lambda _: None, checkpoints=checkpoints).go(
            resume=False
        )


class Pipeline:
    """The same columns by FeatureHasher and HashingVectorizer, in chunks."""

    def __init__(self) -> None:
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier

        self.hasher = FeatureHasher(2**18, input_type="pair", alternate_sign=False)
        self.words = HashingVectorizer(n_features=2**18, alternate_sign=False)
        self.model = SGDClassifier(
            loss="log_loss", penalty=None, shuffle=False, average=True, learning_rate="constant", eta0=0.1
        )

    def features(self, batch: Any) -> Any:
        import scipy.sparse

        columns = batch.to_pydict()
        rows = (
            [
                *zip(NUMBERS, cells[:6], strict=True),
                *((f"{k}={v}", 1) for k, v in zip(CATEGORIES, cells[6:], strict=True)),
            ]
            for cells in zip(*(columns[name] for name in NUMBERS + CATEGORIES), strict=True)
        )
        hashed = self.hasher.transform(rows)
        return scipy.sparse.hstack([hashed, self.words.transform(columns["text"])], format="csr")

    def fit(self, path: Path) -> None:
        for batch in pq.ParquetFile(path).iter_batches(CHUNK):
            labels = batch.column("y").to_numpy(zero_copy_only=False)
            self.model.partial_fit(self.features(batch), labels, classes=["no", "yes"])

    def predict(self, path: Path, out: Path) -> None:
        writer = None
        for batch in pq.ParquetFile(path).iter_batches(CHUNK):
            chance = self.model.predict_proba(self.features(batch))[:, 1]
            table = pa.Table.from_batches([batch]).append_column("probability", pa.array(chance))
            texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
            writer = writer or pq.ParquetWriter(out, table.schema, use_dictionary=texts)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def stream_train() -> list[Figure]:
    """5 M rows, file to model."""
    path = _folder() / "0.parquet"
    _train([path])  # compiles
    timed("train", lambda: _train([path]))
    theirs = peer_timed(lambda: Pipeline().fit(path))
    ours = timed("train", lambda: _train([path]))
    return [
        at_least("scikit-learn / semicyclic train", theirs / ours, 10.0),
        no_goal("rows a second", ROWS / ours),
    ]


def auto() -> list[Figure]:
    """The same 5 M rows with all candidates, against one fixed chain, taking turns."""
    path = _folder() / "0.parquet"
    everything = replace(JOB, method="auto")
    with _room() as place:
        pq.write_table(_table(20_000), place / "few.parquet")
        for job in (JOB, everything):
            _train([place / "few.parquet"], job=job)  # compiles
    for _ in range(2):
        one = timed("one chain", lambda: _train([path]))
        all_of_them = timed("auto", lambda: _train([path], job=everything))
    count = everything.portfolio(1 << 12, by_name("logistic")).form.size
    return [
        at_most("auto / one chain", all_of_them / one, 6.0),
        at_least("candidates", count, 40),
        no_goal("rows a second", ROWS / all_of_them),
    ]


def auto_memory() -> list[Figure]:
    """Peak memory of `train --method auto` on 5 M rows, for several limits."""
    found = []
    for limit in (0.5, 1.0):
        with _room() as place:
            words = ["train", str(_folder() / "0.parquet"), "--when", "when", "--label", "y"]
            words += ["--method", "auto", "--memory", f"{limit}GB", "--out", str(place / "out")]
            peak = note(f"--memory {limit}GB, GB", _peak(words))
            found.append(at_most(f"peak / --memory {limit}GB", peak / limit, 1.0))
    return found


def what_if() -> list[Figure]:
    """A year of hourly visits: read the log, six models of other blocks and read-outs."""
    job = replace(JOB, schedule=Schedule.daily(24), bits=12, memory=4 * 10**9)
    with _room() as place:
        rng = np.random.default_rng(0)
        count = 8760 * 20
        table = pa.table(
            {
                "when": 1_672_531_200 + np.sort(rng.integers(0, 365 * 86_400, count)),
                "a": rng.normal(size=count),
                "c": pa.array([f"v{k}" for k in range(300)]).take(pa.array(rng.integers(0, 300, count))),
                "y": pa.array(["no", "yes"]).take(pa.array(rng.integers(0, 2, count))),
            }
        )
        pq.write_table(table, place / "rows.parquet")
        (place / "run").mkdir()
        FileTraining(job, Sources([place / "rows.parquet"]), place / "run", lambda _: None).go(resume=False)
        wanted = [ModelRequest(blocks, how) for blocks in (24, 6, 1) for how in ("tail", "fading")]

        def six() -> None:
            log = opened_log(place / "run")
            for each in wanted:
                model_for(log, each)

        seconds = timed("six models", six, repeats=3)
        cycles = float(opened_log(place / "run").cycles)
        return [at_most("seconds for six models", seconds, 2.0), no_goal("cycles kept", cycles)]


def _peak(words: list[str]) -> float:
    """The peak memory of a command, in GB."""
    # A process of its own starts it: one that is forked from here would inherit our peak.
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=-3); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [sys.executable, "-c", code, sys.executable, "-m", "semicyclic", *words]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) / 1e6


def stream_memory() -> list[Figure]:
    """Peak memory of the command, of 5 and of 20 M rows."""
    peaks = []
    for months in (1, 4):
        with _room() as place:
            files = [str(_folder() / f"{month}.parquet") for month in range(months)]
            words = ["train", *files, "--when", "when", "--label", "y", "--method", "hedged"]
            peak = _peak([*words, "--out", str(place / "out")])
            rows = json.loads((place / "out" / "results.json").read_text())["rows"]
            if rows["used"] != months * ROWS:
                raise RuntimeError(f"not all rows were used: {rows}")
            peaks.append(note(f"{5 * months} M rows, GB", peak))
    return [
        at_most("peak of 20 M rows, GB", peaks[1], 1.0),
        at_most("peak of 20 M rows / peak of 5 M rows", peaks[1] / peaks[0], 1.1),
    ]


def checkpoint() -> list[Figure]:
    """Training with checkpoints against without, taking turns."""
    path = _folder() / "0.parquet"
    _train([path])
    for _ in range(3):
        kept = timed("with checkpoints", partial(_train, [path]))
        free = timed("without", partial(_train, [path], checkpoints=False))
    return [at_most("with checkpoints / without", kept / free, 1.05)]


def predict() -> list[Figure]:
    """A million rows of a file answered, and written with their answers."""
    with _room() as place:
        small = place / "rows.parquet"
        pq.write_table(_table(1_000_000, seed=1), small, row_group_size=200_000)
        (place / "run").mkdir()
        _train([small], out=place / "run")
        model = load(place / "run" / "model.safetensors")
        pipeline = Pipeline()
        for batch in pq.ParquetFile(small).iter_batches(CHUNK):
            pipeline.model.partial_fit(
                pipeline.features(batch),
                batch.column("y").to_numpy(zero_copy_only=False),
                classes=["no", "yes"],
            )
            break

        def ours() -> None:
            with open_writer(place / "a.parquet", "parquet", sys.stdout.buffer) as writer:
                for answered in predict_batches(model, Sources([small]), skip=False):
                    writer.write(answered.table, answered.added, answered.lines)

        ours()
        timed("predict", ours)
        theirs = peer_timed(lambda: pipeline.predict(small, place / "b.parquet"))
        seconds = timed("predict", ours)
        return [
            at_least("scikit-learn / semicyclic predict", theirs / seconds, 10.0),
            no_goal("rows a second", 1_000_000 / seconds),
        ]
