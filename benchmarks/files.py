"""Benchmarks of training and prediction on files against scikit-learn; memory; checkpoint overhead."""

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
from semicyclic import load
from semicyclic.method.average import ReadOut
from semicyclic.method.loss import by_name
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.sources import Sources
from semicyclic.tables.writers import open_writer
from semicyclic.training.config import TrainConfig
from semicyclic.training.predict import predict_batches
from semicyclic.training.train_files import FileTraining
from semicyclic.training.what_if import ModelRequest, cycles_of, model_for
from semicyclic.training.what_if import open_run as open_log

ROWS, DAYS = 5_000_000, 30
NUMBERS = [f"n{k}" for k in range(6)]
CATEGORIES = [f"c{k}" for k in range(6)]
CHUNK = 1 << 16
# One chain, like scikit-learn.
JOB = TrainConfig(ColumnRequest(("when",), "y"), Schedule.daily(6), method="pluralistic")


def _table(rows: int, seed: int = 0) -> Any:
    """Return a table with 6 numbers, 6 categories of 50 to 300 values, a text of 8 words, and a label.

    The vocabulary has 20,000 words. The label depends on the features and on the time of day.
    """
    rng = np.random.default_rng(seed)
    first = 1_700_006_400
    when = np.sort(rng.integers(first, first + DAYS * 86_400, rows))
    columns: dict[str, Any] = {name: rng.normal(size=rows) for name in NUMBERS}
    for k, name in enumerate(CATEGORIES):
        values = pa.array([f"value{v}" for v in range(50 * (k + 1))])
        columns[name] = values.take(pa.array(rng.integers(0, len(values), rows)))
    words = pa.array([f"word{v}" for v in range(20_000)])
    tokens = rng.zipf(1.5, size=(8, rows)) % len(words)
    columns["text"] = pc.binary_join_element_wise(*(words.take(pa.array(column)) for column in tokens), " ")
    sign = np.where(when // 3600 % 24 < 12, 1.0, -1.0)
    score = columns["n0"] + 0.5 * columns["n1"] ** 2 + sign * columns["n2"] + tokens[0] % 3 - 1.5
    columns["when"] = when
    columns["y"] = pa.array(["no", "yes"]).take(
        pa.array((score + rng.normal(size=rows) > 0).astype(np.int64))
    )
    return pa.table(columns)


@cache
def _folder() -> Path:
    """Folder with four months of data in four files; most benchmarks use only the first."""
    folder = Path(tempfile.mkdtemp(prefix="semicyclic-bench-"))
    table = _table(ROWS)
    at = table.column_names.index("when")
    for month in range(4):
        shifted = pc.add(table.column("when"), month * DAYS * 86_400)
        pq.write_table(
            table.set_column(at, "when", shifted), folder / f"{month}.parquet", row_group_size=200_000
        )
    return folder


def clean() -> None:
    """Remove the data files."""
    if _folder.cache_info().currsize:
        shutil.rmtree(_folder(), ignore_errors=True)
        _folder.cache_clear()


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _train(
    files: list[Path], *, job: TrainConfig = JOB, checkpoints: bool = True, out: Path | None = None
) -> None:
    """Train on files; the run goes to `out`, or to a temporary folder."""
    with _temporary_folder() as folder:
        FileTraining(job, Sources([*files]), out or folder, lambda _: None, checkpoints=checkpoints).go(
            resume=False
        )


class Pipeline:
    """The same task in scikit-learn: FeatureHasher, HashingVectorizer and SGDClassifier, in chunks."""

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
            probability = self.model.predict_proba(self.features(batch))[:, 1]
            table = pa.Table.from_batches([batch]).append_column("probability", pa.array(probability))
            texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
            writer = writer or pq.ParquetWriter(out, table.schema, use_dictionary=texts)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def stream_train() -> list[Figure]:
    """Training on a file of 5 M rows, from file to model."""
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
    """Training on the same 5 M rows with all candidates, against one fixed chain, in turns."""
    path = _folder() / "0.parquet"
    auto_job = replace(JOB, method="auto")
    with _temporary_folder() as folder:
        pq.write_table(_table(20_000), folder / "few.parquet")
        for job in (JOB, auto_job):
            _train([folder / "few.parquet"], job=job)  # compiles
    for _ in range(2):
        one = timed("one chain", lambda: _train([path]))
        all_candidates = timed("auto", lambda: _train([path], job=auto_job))
    count = auto_job.portfolio(1 << 12, 1 << 7, by_name("logistic")).candidate_set.size
    return [
        at_most("auto / one chain", all_candidates / one, 6.0),
        at_least("candidates", count, 40),
        no_goal("rows a second", ROWS / all_candidates),
    ]


def auto_memory() -> list[Figure]:
    """Peak memory of `train --method auto` on 5 M rows, for several memory limits."""
    figures = []
    for limit in (0.5, 1.0):
        with _temporary_folder() as folder:
            words = ["train", str(_folder() / "0.parquet"), "--when", "when", "--label", "y"]
            words += ["--method", "auto", "--memory", f"{limit}GB", "--out", str(folder / "out")]
            peak = note(f"--memory {limit}GB, GB", _peak_gigabytes(words))
            figures.append(at_most(f"peak / --memory {limit}GB", peak / limit, 1.0))
    return figures


def what_if() -> list[Figure]:
    """Reading the log of a year of hourly visits and deriving six models with other blocks and read-outs."""
    job = replace(JOB, schedule=Schedule.daily(24), bits=12, memory=4 * 10**9)
    with _temporary_folder() as folder:
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
        pq.write_table(table, folder / "rows.parquet")
        (folder / "run").mkdir()
        FileTraining(job, Sources([folder / "rows.parquet"]), folder / "run", lambda _: None).go(resume=False)
        requests = [ModelRequest(blocks, ReadOut(how)) for blocks in (24, 6, 1) for how in ("tail", "fading")]

        def derive_six_models() -> None:
            log = open_log(folder / "run")
            for request in requests:
                model_for(log, request)

        seconds = timed("six models", derive_six_models, repeats=3)
        cycles = float(len(cycles_of(open_log(folder / "run"))))
        return [at_most("seconds for six models", seconds, 2.0), no_goal("cycles kept", cycles)]


def _peak_gigabytes(words: list[str]) -> float:
    """Return the peak memory of a semicyclic command, in GB."""
    # Start it from an intermediate process: a direct fork would inherit our peak.
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=-3); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, sys.executable, "-m", "semicyclic", *words]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6


def stream_memory() -> list[Figure]:
    """Peak memory of `train` on 5 M and on 20 M rows."""
    peaks = []
    for months in (1, 4):
        with _temporary_folder() as folder:
            files = [str(_folder() / f"{month}.parquet") for month in range(months)]
            words = ["train", *files, "--when", "when", "--label", "y", "--method", "hedged"]
            peak = _peak_gigabytes([*words, "--out", str(folder / "out")])
            rows = json.loads((folder / "out" / "results.json").read_text())["rows"]
            if rows["used"] != months * ROWS:
                raise RuntimeError(f"not all rows were used: {rows}")
            peaks.append(note(f"{5 * months} M rows, GB", peak))
    return [
        at_most("peak of 20 M rows, GB", peaks[1], 1.0),
        at_most("peak of 20 M rows / peak of 5 M rows", peaks[1] / peaks[0], 1.1),
    ]


def checkpoint() -> list[Figure]:
    """Training with checkpoints against training without, in turns."""
    path = _folder() / "0.parquet"
    _train([path])
    for _ in range(3):
        with_checkpoints = timed("with checkpoints", partial(_train, [path]))
        without = timed("without", partial(_train, [path], checkpoints=False))
    return [at_most("with checkpoints / without", with_checkpoints / without, 1.05)]


def predict() -> list[Figure]:
    """Prediction for a file of a million rows, including the output file."""
    with _temporary_folder() as folder:
        small = folder / "rows.parquet"
        pq.write_table(_table(1_000_000, seed=1), small, row_group_size=200_000)
        (folder / "run").mkdir()
        _train([small], out=folder / "run")
        model = load(folder / "run" / "model.safetensors")
        pipeline = Pipeline()
        for batch in pq.ParquetFile(small).iter_batches(CHUNK):
            pipeline.model.partial_fit(
                pipeline.features(batch),
                batch.column("y").to_numpy(zero_copy_only=False),
                classes=["no", "yes"],
            )
            break

        def ours() -> None:
            with open_writer(folder / "a.parquet", "parquet", sys.stdout.buffer) as writer:
                for batch in predict_batches(model, Sources([small]), skip=False):
                    writer.write(batch.table, batch.added, batch.lines)

        ours()
        timed("predict", ours)
        theirs = peer_timed(lambda: pipeline.predict(small, folder / "b.parquet"))
        seconds = timed("predict", ours)
        return [
            at_least("scikit-learn / semicyclic predict", theirs / seconds, 10.0),
            no_goal("rows a second", 1_000_000 / seconds),
        ]
