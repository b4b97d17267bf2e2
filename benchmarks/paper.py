"""Benchmarks of the paper's experiment: reading its data, running its protocol, and the command."""

import csv
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tests.datasets.tweet_csv import csv_bytes, csv_parts

from benchmarks.timing import Figure, Peer, at_least, at_most, best_of, no_goal, note
from semicyclic.datasets import sentiment140, synthetic_tweets
from semicyclic.experiments.reproduce import protocol
from semicyclic.experiments.reproduce.approaches import CLASSES
from semicyclic.experiments.reproduce.repetition import PAPER
from semicyclic.method import metrics, train
from semicyclic.method.batches import RowOrder, pack
from semicyclic.method.evaluate import by_block
from semicyclic.method.loss import logistic
from semicyclic.method.rows import Rows, SparseRows

ROWS = 200_000


def _squeeze(text: str) -> str:
    """Shorten runs of three or more equal characters to two."""
    out, before, repeats = "", "", 0
    for sign in text:
        repeats = repeats + 1 if sign == before else 0
        if repeats < 2:
            out += sign
        before = sign
    return out


def _read_in_plain_python(path: Path) -> list[tuple[bool, int, list[int]]]:
    """Read the rows with csv, re.findall and dicts: label, hour and word numbers of each."""
    rows: list[tuple[bool, str, str]] = []
    counts: dict[str, int] = {}
    with path.open(encoding="latin-1", newline="") as file:
        for target, _, when, _, _, text in csv.reader(file):
            text = _squeeze(text.replace("http://", "URI ").replace("https://", "URI "))
            rows.append((target == "4", when, text))
            for word in re.findall(r"[\w']+|[.,!?;]", text):
                counts[word] = counts.get(word, 0) + 1
    chosen = sorted(counts.items(), key=lambda pair: pair[1], reverse=True)[:1024]
    number = {word: k for k, (word, _) in enumerate(chosen)}
    out = []
    for positive, when, text in rows:
        words = [number[word] for word in re.findall(r"[\w']+|[.,!?;]", text) if word in number]
        out.append((positive, int(when[11:13]), words))
    return out


def ingest() -> list[Figure]:
    """Reading 200,000 rows from a file into bags of words, against plain Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(csv_bytes(synthetic_tweets.make(ROWS, vocabulary=2**16)))
        tweets, expected = sentiment140.read_file(path), _read_in_plain_python(path)
        assert [int(words) for words in np.diff(tweets.start)] == [
            len(set(words)) for _, _, words in expected
        ]
        assert tweets.positive.tolist() == [positive for positive, _, _ in expected]
        seconds = best_of(
            3, ours=lambda: sentiment140.read_file(path), python=Peer(lambda: _read_in_plain_python(path))
        )
    return [
        at_least("plain Python / ingest", seconds["python"] / seconds["ours"], 15.0),
        no_goal("ingest, thousand rows a second", ROWS / seconds["ours"] / 1000),
    ]


# Reads VmHWM, the peak resident set size of the process: getrusage would include the parent's memory.
READ = """
import sys
from pathlib import Path
from semicyclic.datasets.sentiment140 import read_file
rows = len(read_file(Path(sys.argv[1])))
status = Path("/proc/self/status").read_text().split()
print(rows, status[status.index("VmHWM:") + 1])
"""


def ingest_memory() -> list[Figure]:
    """Peak memory of a process that reads 1.6 million rows, including Python and Numba."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("wb") as file:
            for part in csv_parts(synthetic_tweets.make(vocabulary=2**16)):
                file.write(part.tobytes())
        size = path.stat().st_size
        done = subprocess.run(
            [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
        )
    rows, peak = map(int, done.stdout.split())
    assert rows == synthetic_tweets.ROWS
    return [at_most("peak memory, GB", note("GB", 1024 * peak / 1e9), 1.0), no_goal("file, GB", size / 1e9)]


class _Once:
    """One repetition of the paper's four approaches: consensus, per-component, pluralistic, i.i.d."""

    def __init__(self, data: sentiment140.Tweets) -> None:
        self.how = protocol.text()
        self.block = self.how.block_of(data.second)
        self.rows = Rows(SparseRows(data.start, data.words, data.counts, len(data.vocabulary)), data.positive)
        self.batches = {"train": 0, "test": 0}

    def __call__(self) -> dict[str, float]:
        """Split, skew, order, train and test, with all 60 x 6 evaluations; return the final accuracies."""
        how, rng = self.how, np.random.default_rng(0)
        labels = self.rows.labels
        assert labels is not None
        parts = protocol.split(len(self.rows), rng)
        kept = protocol.apply_skew(how, parts.train, labels, self.block, rng)
        order = protocol.cyclic(how, kept, self.block, len(parts.train), rng)
        tested, tested_block = protocol.tests(
            how, protocol.apply_skew(how, parts.test, labels, self.block, rng), self.block
        )
        test = self.rows[tested].with_blocks(tested_block)
        with ThreadPoolExecutor(2) as pool:
            cyclic = pool.submit(self._cyclic, order, test)
            ideal = pool.submit(self._ideal, protocol.shuffle_visits(order, rng), test)
            return {**cyclic.result(), **ideal.result()}

    def _cyclic(self, order: RowOrder, test: Rows) -> dict[str, float]:
        packed = self._pack(order)
        single = train.pluralistic(packed, step_size=PAPER.single)
        separate = train.separate(packed, step_size=PAPER.separate)
        single_table, separate_table = self._accuracy(single, test), self._accuracy(separate, test)
        steps = int(packed.steps.sum())
        self.batches = {"train": 3 * steps, "test": 3 * 60 * -(-len(test) // self.how.batch_size)}
        return {
            "consensus": float(single_table[-1].mean()),
            "pluralistic": float(np.diagonal(single_table[-1]).mean()),
            "per_component": float(np.diagonal(separate_table[-1]).mean()),
        }

    def _ideal(self, order: RowOrder, test: Rows) -> dict[str, float]:
        run = train.pluralistic(self._pack(order), step_size=PAPER.single)
        return {"iid": float(self._accuracy(run, test)[-1].mean())}

    def _pack(self, order: RowOrder) -> Any:
        size = self.how.batch_size
        return pack(self.rows, self.how.blocks, loss=logistic, batch_size=size, classes=CLASSES, order=order)

    def _accuracy(self, run: Any, test: Rows) -> Any:
        """[10, 6, 6] accuracy on every block after every block of every day."""
        weights = np.concatenate([run.last(through=day).weights for day in range(10)])
        cells = by_block(weights, test, 6, loss=logistic, classes=CLASSES, metric=metrics.accuracy)
        return cells.reshape(10, 6, 6)


def _run_minibatch(lists: list[list[int]], labels: Any, w: Any, *, learns: bool) -> int:
    """Process a minibatch like the authors' script: dense bags of words, built row by row, and softmax.

    Trains `w` in place if `learns`; otherwise returns the number of correct predictions.
    """
    bags = np.zeros((len(lists), 1024))
    for i, words in enumerate(lists):
        for word in words:
            if bags[i, word] < 4:
                bags[i, word] += 1
    score = bags @ w[:-1] + w[-1]
    if not learns:
        return int((score.argmax(axis=1) == labels.argmax(axis=1)).sum())
    share = np.exp(score - score.max(axis=1, keepdims=True))
    slope = (share / share.sum(axis=1, keepdims=True) - labels) / len(lists)
    w[:-1] -= 0.464 * (bags.T @ slope)
    w[-1] -= 0.464 * slope.sum(axis=0)
    return 0


def protocol_once() -> list[Figure]:
    """One repetition at full size, against the authors' loop, extrapolated from 300 minibatches."""
    data = synthetic_tweets.make()
    once = _Once(data)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(data))[: 300 * 128]
    words = [
        np.repeat(data.words[a:b], data.counts[a:b]).tolist()
        for a, b in zip(data.start[chosen], data.start[chosen + 1], strict=True)
    ]
    labels = np.eye(2)[data.positive[chosen].astype(int)]
    w = np.zeros((1025, 2))

    def loop(*, learns: bool) -> None:
        for k in range(0, len(words), 128):
            _run_minibatch(words[k : k + 128], labels[k : k + 128], w, learns=learns)

    seconds = best_of(
        5, ours=once, train=Peer(lambda: loop(learns=True)), test=Peer(lambda: loop(learns=False))
    )
    authors_seconds = sum(seconds[name] / 300 * once.batches[name] for name in ("train", "test"))
    scores = once()
    assert scores["pluralistic"] > scores["iid"] > scores["consensus"]
    return [
        at_least("the authors' loop in NumPy / ours", authors_seconds / seconds["ours"], 300.0),
        no_goal("the authors' loop, seconds (extrapolated)", authors_seconds),
        no_goal("ours, seconds", seconds["ours"]),
    ]


def reproduce() -> list[Figure]:
    """The complete command at full size: generating the stand-in data, ten repetitions, figures, report."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for number in range(2):  # the first may still compile
            started = time.perf_counter()
            out = Path(folder) / str(number)
            command = [sys.executable, "-m", "semicyclic.cli.main", "reproduce", "--out", str(out)]
            subprocess.run(command, capture_output=True, check=True)
            seconds.append(time.perf_counter() - started)
        timings = json.loads((out / "results.json").read_text())["seconds"]
    return [
        at_most("the whole command, seconds", note("command", seconds[-1]), 45.0),
        no_goal("the first time, seconds", seconds[0]),
        no_goal("making and reading the stand-in, seconds", timings["ingest"]),
    ]
