"""From files to a model in use: the same bytes however rows arrive, and whatever happens to the process."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import semicyclic as sc
from semicyclic import specs
from semicyclic.method.average import ReadOut
from semicyclic.method.batches import encode
from semicyclic.method.loss import logistic
from semicyclic.store.checkpoint import FORMAT, read_checkpoint, write_checkpoint
from semicyclic.tables import byte_stream
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.sources import Sources
from semicyclic.tables.text_formats import FormatOptions
from semicyclic.tables.watermark import LatePolicy
from semicyclic.training import reader, train_files
from semicyclic.training.config import TrainConfig
from semicyclic.training.open_model import MODEL
from semicyclic.training.run_dir import (
    CHECKPOINT,
    RESULTS,
    VISITS,
    lock_run_dir,
    read_log,
    write_state,
)
from semicyclic.training.train_files import FileTraining, TrainProgress
from semicyclic.training.what_if import open_run
from tests.tables.small_tables import Row, rows_of, write, write_csv

SCHEDULE = sc.Schedule.daily(6, zone="UTC")
JOB = TrainConfig(
    ColumnRequest(("at",), "y"), SCHEDULE, method="pluralistic", bits=10, sample_rows=300, bins=4
)
FILES = (CHECKPOINT, MODEL, RESULTS, VISITS)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks of few rows: what a long stream has, in a short one."""
    monkeypatch.setattr(reader, "CHUNK_ROWS", 64)
    monkeypatch.setattr(reader, "MAX_LATE_SHARE", 0.7)


def run(out: Path, files: list[Any], job: TrainConfig = JOB, *, resume: bool = False, **how: Any) -> Any:
    """Train in a folder, checkpoints and models at every chunk."""
    out.mkdir(exist_ok=True)
    options = how.pop("options", FormatOptions(batch=50))
    tell = how.pop("tell", lambda news: None)
    with lock_run_dir(out):
        return FileTraining(job, Sources(files, options), out, tell, save_seconds=0.0, **how).go(
            resume=resume
        )


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def weights(folder: Path) -> Any:
    return sc.load(folder / MODEL).weights


# ---------------------------------------------------------------- the same rows, the same bytes


@pytest.mark.parametrize("label", ["two", "boolean", "number", "many"])
def test_formats_splits_and_batches_do_not_change_a_bit(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(700, label=label)
    run(tmp_path / "first", [write(tmp_path, rows)])
    expected = (tmp_path / "first" / MODEL).read_bytes()
    model = sc.load(tmp_path / "first" / MODEL)
    assert model.loss.name == {"number": "squared", "many": "softmax(3)"}.get(label, "logistic")
    for form in ("jsonl", "parquet"):
        run(tmp_path / form, [write(tmp_path, rows, form)])
        assert (tmp_path / form / MODEL).read_bytes() == expected
    parts = [
        write(tmp_path, rows[:1], "jsonl", "a"),
        write(tmp_path, rows[1:333], "parquet", "b"),
        write(tmp_path, rows[333:], "csv", "c"),
    ]
    for number, (batch, block) in enumerate(((1, 100), (7, 1000), (1000, 10**6))):
        monkeypatch.setattr(byte_stream, "READ_BYTES", block)
        out = tmp_path / f"parts{number}"
        run(out, list(parts), options=FormatOptions(batch=batch))
        assert (out / MODEL).read_bytes() == expected
        assert (out / VISITS).read_bytes() == (tmp_path / "first" / VISITS).read_bytes()


def test_the_stream_learns_what_one_pass_in_memory_learns(tmp_path: Path) -> None:
    """With the same features, and by every method."""
    rows = rows_of(900)
    path = write(tmp_path, rows)
    known = sc.read(path, when="at", label="y", bits=10, bins=4)
    for method in sc.train.METHODS:
        l2 = 0.01 if method == "residual" else 0.0
        job = replace(JOB, method=method, sample_rows=1 << 14, l2=l2)
        run(tmp_path / method, [path], job)
        step = sc.step.normalized()
        made = getattr(sc.train, method)(known, SCHEDULE, step_size=step, batch_size=16, l2=l2)
        expected = made.mean().weights
        assert np.allclose(weights(tmp_path / method), expected, atol=2e-5)
        results = json.loads((tmp_path / method / RESULTS).read_text())
        assert np.isclose(results["progressive"]["all"], made.progressive_loss(), atol=1e-5)
        assert np.allclose(
            results["progressive"]["by_block"], made.progressive()[: SCHEDULE.blocks], atol=1e-5
        )


@pytest.mark.parametrize(
    ("read_out", "same"),
    [("last", lambda r: r.last()), ("tail:2", lambda r: r.tail(2)), ("fading:3", lambda r: r.fading(3.0))],
)
def test_other_read_outs_can_be_had(tmp_path: Path, read_out: str, same: Any) -> None:
    path = write(tmp_path, rows_of(900))
    run(
        tmp_path / "out",
        [path],
        replace(JOB, read_out=specs.parse_read_out("read_out", read_out), sample_rows=1 << 14),
    )
    known = sc.read(path, when="at", label="y", bits=10, bins=4)
    made = sc.train.pluralistic(known, SCHEDULE, step_size=sc.step.normalized(), batch_size=16)
    assert np.allclose(weights(tmp_path / "out"), same(made).weights, atol=2e-5)
    if read_out == "tail:2":
        # And from the checkpoint, which knows all but the unfilled minibatch and the open cycle.
        kept = sc.load_run(tmp_path / "out")
        assert kept.blocks == 6
        assert kept.last().shape == (6, 1, 1025)


def test_a_first_pass_gives_every_feature_a_column(tmp_path: Path) -> None:
    rows = rows_of(700)
    path = write(tmp_path, rows)
    results = run(tmp_path / "out", [path], replace(JOB, bits=None, first_pass=True))
    model = sc.load(tmp_path / "out" / MODEL)
    assert model.features is not None
    features = model.features.to_json()
    names = features["dictionary"]
    values = {row["note"].split()[-1].rstrip("!") for row in rows}
    assert results["memory"]["columns"] == len(names)
    assert {f"note:{value}" for value in values} <= set(names)
    edges = features["scales"]["z"][2]
    assert edges == sorted(np.quantile([row["z"] for row in rows], [0.25, 0.5, 0.75], method="higher"))
    # The same, resumed and in another format.
    run(tmp_path / "other", [write(tmp_path, rows, "parquet")], replace(JOB, bits=None, first_pass=True))
    assert (tmp_path / "other" / MODEL).read_bytes() == (tmp_path / "out" / MODEL).read_bytes()
    tight = replace(JOB, bits=4, first_pass=True)
    assert run(tmp_path / "tight", [path], tight)["memory"]["columns"] == 16
    followed = FileTraining(tight, Sources([path], follow=True), tmp_path / "tight", lambda news: None)
    with pytest.raises(ValueError, match="first_pass=True reads the input twice"):
        followed.go(resume=False)


def test_numbers_are_answered_in_their_own_units(tmp_path: Path) -> None:
    rows = rows_of(3000, label="number", days=20)
    path = write(tmp_path, rows)
    results = run(tmp_path / "out", [path], replace(JOB, bits=12))
    model = sc.load(tmp_path / "out" / MODEL)
    new = sc.read(path, like=model)
    truth = np.array([row["y"] for row in rows])
    guess = model.predict(new)
    assert abs(guess.mean() - truth.mean()) < 10
    assert np.mean((guess - truth) ** 2) < 0.95 * truth.var()
    # Half the squared error, which is what the loss is, in the labels' units.
    assert 0.2 * truth.var() < results["progressive"]["all"] < 0.6 * truth.var()


@pytest.mark.parametrize("method", ["pluralistic", "auto"])
def test_a_huber_loss_is_reported_in_the_units_of_the_labels(tmp_path: Path, method: str) -> None:
    # The threshold counts in units of the label's scale; a huge one makes it the squared loss.
    path = write(tmp_path, rows_of(600, label="number", days=20))
    job = replace(JOB, method=method)
    losses = {}
    for name in ("squared", "huber(1000000)", "huber(0.5)"):
        out = tmp_path / name
        losses[name] = run(out, [path], replace(job, loss=sc.loss.by_name(name)))["progressive"]["all"]
    assert losses["huber(1000000)"] == losses["squared"] > losses["huber(0.5)"]
    _, about = read_checkpoint(tmp_path / "huber(0.5)" / CHECKPOINT)
    assert sc.load(tmp_path / "huber(0.5)" / MODEL).loss == sc.loss.huber(0.5 * about["labels"]["scale"])


# -------------------------------------------------------------------- killed and resumed


class Killed(BaseException):
    """A process that ends here."""


def killed_at(count: int) -> Any:
    """Something to tell news to that ends everything at its count-th call."""
    left = [count]

    def tell(news: TrainProgress) -> None:  # noqa: ARG001
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return tell


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        replace(JOB, method="hedged", lateness=7_200_000_000),
        replace(JOB, method="separate", label_delay=20_000_000_000, late=LatePolicy.KEEP),
        replace(JOB, method="residual", step=sc.step.constant(0.1), memory=1 << 21, read_out=ReadOut("last")),
    ],
)
def test_a_run_stopped_after_any_chunk_ends_in_the_same_bytes(
    tmp_path: Path, job: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_files, "PROGRESS_SECONDS", 0.0)
    rows = rows_of(700)
    rng = np.random.default_rng(0)
    # Somewhat out of order, and sometimes by more than the lateness allows.
    order = np.argsort([row["at"] + rng.integers(0, 8000) for row in rows], kind="stable")
    path = write(tmp_path, [rows[k] for k in order])
    monkeypatch.setattr(byte_stream, "READ_BYTES", 1500)
    run(tmp_path / "whole", [path], job)
    expected = contents(tmp_path / "whole")
    resumed = 0
    for stop in range(2, 40, 4):
        out = tmp_path / f"stopped{stop}"
        try:
            run(out, [path], job, tell=killed_at(stop))
        except Killed:
            resumed += (out / CHECKPOINT).exists()
            # Once more, and somewhere else.
            try:
                run(out, [path], job, resume=True, tell=killed_at(stop // 2 + 2))
            except Killed:
                run(out, [path], job, resume=True)
        assert contents(out) == expected
    assert resumed >= 1


@pytest.mark.parametrize("first", [320, 200])
def test_a_run_that_has_ended_goes_on_when_rows_are_added(tmp_path: Path, first: int) -> None:
    """Also if features were first learned from fewer rows than they should be."""
    rows = rows_of(600)
    run(tmp_path / "whole", [write(tmp_path, rows)])
    grown = write_csv(tmp_path / "grown.csv", rows[:first])
    run(tmp_path / "out", [grown])
    write_csv(grown, rows[first:400], header=False, mode="a")
    run(tmp_path / "out", [grown], resume=True)
    more = write_csv(tmp_path / "more.csv", rows[400:])
    run(tmp_path / "out", [grown, more], resume=True)
    assert (tmp_path / "out" / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    before = contents(tmp_path / "out")
    run(tmp_path / "out", [grown, more], resume=True)
    assert contents(tmp_path / "out") == before


def test_resuming_needs_the_same_job_and_the_same_input(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(400))
    run(tmp_path / "out", [path])
    with pytest.raises(ValueError, match="started with another batch size"):
        run(tmp_path / "out", [path], replace(JOB, batch_size=8), resume=True)
    good = contents(tmp_path / "out")
    data = path.read_bytes()
    path.write_bytes(data[:5000])
    with pytest.raises(ValueError, match="the file shrank"):
        run(tmp_path / "out", [path], resume=True)
    path.write_bytes(b"At" + data[2:])
    with pytest.raises(ValueError, match="its bytes differ"):
        run(tmp_path / "out", [path], resume=True)
    assert contents(tmp_path / "out") == good


def test_checkpoints_that_are_damaged_foreign_or_older_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(300))
    out = tmp_path / "out"
    run(out, [path])
    state = out / CHECKPOINT
    good = state.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(good)
        if rng.random() < 0.3:
            broken = broken[: int(rng.integers(0, len(good)))]
        else:
            at = int(rng.integers(0, len(good)))
            broken[at] ^= 1 << int(rng.integers(0, 8))
        state.write_bytes(bytes(broken))
        with pytest.raises(sc.Unreadable):
            run(out, [path], resume=True)
    shutil.copy(out / MODEL, state)
    with pytest.raises(sc.Unreadable, match="not a checkpoint of semicyclic"):
        run(out, [path], resume=True)
    state.write_bytes(good)
    arrays, about = read_checkpoint(state)
    for missing in ("config", "position", "features"):
        write_checkpoint(state, arrays, {name: value for name, value in about.items() if name != missing})
        with pytest.raises(sc.Unreadable):
            run(out, [path], resume=True)
    for name in ("state.vectors", "pages", "records.changes", "start"):
        write_checkpoint(state, {key: value for key, value in arrays.items() if key != name}, about)
        with pytest.raises(sc.Unreadable):
            sc.load_run(out)
    state.write_bytes(good)
    older = good.replace(f'\\"version\\":{FORMAT.version}'.encode(), b'\\"version\\":0')
    assert older != good
    state.write_bytes(older)
    with pytest.raises(sc.Unreadable, match="a checkpoint of semicyclic in format 0"):
        run(out, [path], resume=True)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        lock_run_dir(tmp_path),
        pytest.raises(ValueError, match="another run is working in this folder"),
        lock_run_dir(tmp_path),
    ):
        pass


def test_a_full_disk_ends_a_run_and_leaves_the_last_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, rows_of(600))
    out = tmp_path / "out"
    calls = [0]

    def full(*arguments: Any) -> None:
        calls[0] += 1
        if calls[0] > 4:
            raise OSError(28, "No space left on device", str(out / CHECKPOINT))
        write_state(*arguments)

    monkeypatch.setattr(train_files, "write_state", full)
    with pytest.raises(OSError, match="No space left"):
        run(out, [path])
    assert sc.load(out / MODEL).blocks == 6
    monkeypatch.undo()
    monkeypatch.setattr(reader, "CHUNK_ROWS", 64)
    run(out, [path], resume=True)
    run(tmp_path / "whole", [path])
    assert contents(out) == contents(tmp_path / "whole")


# -------------------------------------------------------------------- late rows and labels


def broken_rows(tmp_path: Path) -> Path:
    rows: list[Row] = rows_of(400)
    for at, change in (
        (350, {"y": None}),
        (360, {"at": "nonsense", "y": None}),
        (370, {"x": "nonsense"}),
        (380, {"y": "maybe"}),
        (390, {"at": rows[390]["at"] - 90_000}),
    ):
        rows[at] = {**rows[at], **change}
    path = write_csv(tmp_path / "broken.csv", rows)
    with path.open("a") as file:
        file.write("only,three,cells\n")
    return path


def test_rows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    path = broken_rows(tmp_path)
    with pytest.raises(
        ValueError, match=r"broken\.csv, row 361: column 'at': 'nonsense' is no time in epoch s"
    ):
        run(tmp_path / "stop", [path])
    results = run(tmp_path / "skip", [path], replace(JOB, skip_errors=True))
    rows = results["rows"]
    assert rows == {
        "read": 401, "used": 395, "refused": 4, "late_dropped": 1, "late_kept": 0, "without_label": 1,
        "waiting": 0,
        "shifted": 0,
    }  # fmt: skip
    assert sum(results["progressive"]["rows"]) == 395
    assert len(results["refused_examples"]) == 3
    assert results["refused_examples"][1].startswith("broken.csv, row 371: column 'x': 'nonsense'")
    used = run(tmp_path / "use", [path], replace(JOB, skip_errors=True, late=LatePolicy.KEEP))
    assert used["rows"]["late_kept"] == 1
    assert used["rows"]["used"] == 396
    assert used["latest_by"] >= 89_000_000_000
    with pytest.raises(
        ValueError, match=r"a row of .* UTC comes after one of .* UTC: give a longer lateness="
    ):
        run(tmp_path / "late-stop", [path], replace(JOB, skip_errors=True, late=LatePolicy.STOP))


def test_lateness_puts_rows_back_in_their_place(tmp_path: Path) -> None:
    rows = rows_of(500)
    rng = np.random.default_rng(1)
    order = np.argsort([row["at"] + rng.integers(0, 3600) for row in rows], kind="stable")
    mixed = [rows[k] for k in order]
    ordered = sorted(mixed, key=lambda row: int(row["at"]))
    job = replace(JOB, sample_rows=1 << 14)
    run(tmp_path / "sorted", [write(tmp_path, ordered, name="sorted")], job)
    late = replace(job, lateness=3_600_000_000)
    results = run(tmp_path / "mixed", [write(tmp_path, mixed, name="mixed")], late)
    assert results["rows"]["late_dropped"] == 0
    assert np.array_equal(weights(tmp_path / "mixed"), weights(tmp_path / "sorted"))
    less = run(tmp_path / "less", [tmp_path / "mixed.csv"], replace(job, lateness=600_000_000))
    assert less["rows"]["late_dropped"] > 0
    assert less["rows"]["read"] == less["rows"]["used"] + less["rows"]["late_dropped"]


@pytest.mark.parametrize(("hourly", "lateness"), [(False, 0), (True, 0), (False, 86400)])
def test_a_label_is_learned_only_after_its_delay(tmp_path: Path, hourly: bool, lateness: int) -> None:
    """By definition: score each row by what was learned from visits whose labels had all come.

    hourly: many rows come at the very instant at which labels are due, which is too early to know them.
    lateness: waiting for late rows changes nothing if there are none.
    """
    rows = rows_of(400, days=3)
    if hourly:
        rows = [{**row, "at": row["at"] - row["at"] % 3600} for row in rows]
    path = write(tmp_path, rows)
    delay = 5 * 3600
    job = replace(JOB, sample_rows=1 << 14, label_delay=delay * 1_000_000, batch_size=4)
    job = replace(job, lateness=lateness * 1_000_000)
    results = run(tmp_path / "out", [path], job)
    known = sc.read(path, when="at", label="y", bits=10, bins=4)
    cycle, block = known.place(SCHEDULE)
    when = np.array([row["at"] for row in rows])
    visit = sc.visits(cycle, block)
    due = when[-1] - delay
    target, _ = encode(known.labels, logistic, ("no", "yes"))
    losses = np.zeros(len(rows))
    for row in range(len(rows)):
        # Visits are learned from whole: one whose next has begun, whose last label came before this row.
        seen = 0
        for v in range(len(visit.cycle)):
            last = int(visit.start[v + 1])
            if last < len(rows) and when[last - 1] + delay < when[row] and when[last] + delay < when[-1]:
                seen = last
        if when[row] == when[-1]:  # at the end of the input, visits need not be complete
            seen = int((when + delay < when[-1]).sum())
        score = 0.0
        if seen:
            made = sc.train.pluralistic(
                known[:seen], SCHEDULE, step_size=sc.step.normalized(), batch_size=4, final=False
            )
            score = float(made.consensus_last().score(known[row : row + 1])[0]) if made.log.pages else 0.0
        losses[row] = logistic.value(np.array([score]), target[row : row + 1])[0]
    rows_seen = np.array(results["progressive"]["rows"])
    assert rows_seen.sum() == len(rows)
    assert np.isclose(results["progressive"]["all"], losses.mean(), atol=1e-6)
    waiting = int((when >= due).sum())
    assert results["rows"]["waiting"] == waiting
    assert results["rows"]["used"] == len(rows) - waiting


@pytest.mark.parametrize("delay", [0, 5 * 3600])
def test_the_log_next_to_auto_is_that_of_a_chain(tmp_path: Path, delay: int) -> None:
    path = write(tmp_path, rows_of(400, days=3))
    job = replace(JOB, label_delay=delay * 1_000_000)
    for method in ("auto", "pluralistic"):
        run(tmp_path / method, [path], replace(job, method=method))
    auto, chain = (open_run(tmp_path / method).chain.run for method in ("auto", "pluralistic"))
    np.testing.assert_allclose(auto.mean().weights, chain.mean().weights, atol=1e-6)
    assert auto.progressive_loss() == pytest.approx(chain.progressive_loss(), abs=1e-6)


@pytest.mark.parametrize("method", ["pluralistic", "auto"])
def test_what_if_knows_the_labels_that_the_run_knew(tmp_path: Path, method: str) -> None:
    """Also if the last row is late: it arrives when the newest row has, whatever its own time."""
    rows = rows_of(400, days=6)
    rows.append({**rows[-1], "at": rows[200]["at"]})
    path = write(tmp_path, rows)
    job = replace(JOB, method=method, label_delay=86_400_000_000, late=LatePolicy.KEEP, sample_rows=1 << 14)
    results = run(tmp_path / "out", [path], job)
    chain = open_run(tmp_path / "out").chain
    _, trained = chain.run.loss_sums()
    assert trained.sum() == results["rows"]["used"]


def test_a_learner_and_its_copy_are_independent(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(400, days=6))
    run(tmp_path / "out", [path], replace(JOB, label_delay=86_400_000_000))
    chain = read_log(tmp_path / "out").chain
    before, other = len(chain.queue), chain.copy()
    assert before > 0
    other.end()
    assert len(chain.queue) == before


def test_late_labels_do_not_see_how_files_are_cut(tmp_path: Path) -> None:
    """Many rows of the same time, exactly a delay apart."""
    rows = rows_of(400)
    for k, row in enumerate(rows):
        row["at"] = 1_700_000_000 + k // 80 * 3600
    job = replace(JOB, label_delay=3_600_000_000)
    run(tmp_path / "whole", [write(tmp_path, rows)], job)
    for cut in (81, 160, 199, 240, 321):
        parts = [write(tmp_path, rows[:cut], name=f"{cut}a"), write(tmp_path, rows[cut:], name=f"{cut}b")]
        run(tmp_path / str(cut), list(parts), job, options=FormatOptions(batch=7))
        assert (tmp_path / str(cut) / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()


@pytest.mark.parametrize("what", ["missing day", "repeated hour", "skipped hour", "one block", "one row"])
def test_odd_calendars(tmp_path: Path, what: str) -> None:
    rng = np.random.default_rng(0)
    zone = "America/New_York"
    times = {
        "missing day": ["2013-05-01 {:02d}:10", "2013-05-03 {:02d}:10"],
        "repeated hour": ["2013-11-03 {:02d}:10"],
        "skipped hour": ["2013-03-10 {:02d}:10"],
        "one block": ["2013-05-01 09:{:02d}"],
        "one row": [],
    }[what]
    rows = [
        {"at": pattern.format(hour), "x": float(rng.normal()), "y": int(rng.integers(0, 2))}
        for pattern in times
        for hour in range(24)
    ]
    if what == "one row":
        rows = [{"at": "2013-05-01 09:00", "x": 1.0, "y": 1}]
    job = TrainConfig(
        ColumnRequest(("at",), "y", zone),
        sc.Schedule.daily(24, zone=zone),
        method="hedged",
        bits=8,
        classes=("0", "1"),
    )
    results = run(tmp_path / "out", [write(tmp_path, rows)], job)
    assert results["rows"]["used"] == len(rows)
    assert results["rows"]["shifted"] == (1 if what == "skipped hour" else 0)
    visits = (tmp_path / "out" / VISITS).read_text().splitlines()[1:]
    model = sc.load(tmp_path / "out" / MODEL)
    if what == "missing day":
        assert len({line.split(",")[0] for line in visits}) == 2
        assert model.fallback == ()
    elif what == "skipped hour":
        # Two o'clock was moved to three: that block has two rows, and two o'clock's has none.
        assert model.fallback == (2,)
        assert [line.split(",")[2] for line in visits if ",03:00" in line] == ["2"]
    elif what == "repeated hour":
        assert model.fallback == ()
        assert len(visits) == 24
    elif what == "one block":
        assert len(model.fallback) == 23
    else:
        assert len(visits) == 1


@pytest.mark.parametrize(
    ("rows", "how", "sentence"),
    [
        ([{"at": 10**9 + 1, "y": "a"}], {}, "all labels of the first 1 rows are 'a': name all classes"),
        ([{"at": 10**9 + 1, "y": 5}], {}, "all labels of the first 1 rows are 5"),
        (
            [{"at": 10**9 + 1, "y": "a"}, {"at": 10**9 + 2, "y": "b"}],
            {"loss": sc.loss.squared},
            "needs numbers as labels",
        ),
        (
            [{"at": 10**9 + 1, "y": "a"}, {"at": 10**9 + 2, "y": "b"}],
            {"loss": sc.loss.softmax(3)},
            "there are 2 classes in the first rows",
        ),
        ([{"at": 10**9 + 1, "y": None}], {}, "none of the first 1 rows can be used"),
        ([{"at": "x", "y": 1}], {}, "rows.csv, row 1: column 'at': 'x' is not a time"),
        ([{"at": 10**9 + 1, "y": 1}], {"classes": ("a", "b")}, "the labels are numbers, so classes must be"),
        ([{"at": 10**9 + 1, "y": 1}], {"classes": ("1",)}, "give two or more, all different"),
        ([{"at": 10**9 + 1, "w": 1}], {}, "there is no column 'y': the columns are 'at', 'w'"),
    ],
)
def test_what_cannot_be_learned_says_why(
    tmp_path: Path, rows: list[Row], how: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=r"rows\.csv") as told:
        run(tmp_path / "out", [write(tmp_path, rows)], replace(JOB, **how))
    assert sentence in str(told.value)


def test_a_second_file_without_a_column_is_named(tmp_path: Path) -> None:
    rows = rows_of(400)
    first = write(tmp_path, rows[:300], name="a")
    second = write(tmp_path, [{k: v for k, v in row.items() if k != "z"} for row in rows[300:]], name="b")
    with pytest.raises(ValueError, match=r"b\.csv: there is no column 'z'"):
        run(tmp_path / "out", [first, second])


def test_a_file_in_no_order_is_not_lost_row_by_row(tmp_path: Path) -> None:
    rows = rows_of(400)
    rng = np.random.default_rng(0)
    path = write(tmp_path, [rows[k] for k in rng.permutation(400)])
    with pytest.raises(
        ValueError, match=r"rows\.csv: its rows are not in the order of time: 9\d% .* lateness='7d'"
    ):
        run(tmp_path / "out", [path])
    results = run(tmp_path / "out", [path], replace(JOB, lateness=6 * 86_400_000_000))
    assert results["rows"]["used"] == 400


def test_lists_are_left_out_and_decimal_commas_are_read(tmp_path: Path) -> None:
    lines = [json.dumps({"at": 10**9 + k, "x": [k], "z": {"a": k}, "y": k % 2}) for k in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    columns = run(tmp_path / "json", [tmp_path / "rows.jsonl"])["columns"]
    assert columns["kinds"] == {}
    assert set(columns["ignored"]) == {"x", "z"}
    text = "at;x;y\n" + "".join(f"{10**9 + k};{k},5;{k % 2}\n" for k in range(40))
    (tmp_path / "rows.csv").write_text(text)
    run(tmp_path / "csv", [tmp_path / "rows.csv"])
    features = sc.load(tmp_path / "csv").features
    assert features is not None
    assert features.to_json()["scales"]["x"][0] == 20.0


def test_rows_that_wait_are_bounded(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(2000))
    with pytest.raises(ValueError, match="choose a shorter lateness="):
        run(tmp_path / "out", [path], replace(JOB, lateness=10**15, memory=200_000, bits=4))


def test_memory_decides_what_is_kept() -> None:
    small, large = (replace(JOB, bits=None, memory=size).budget(1) for size in (10**8, 10**9))
    assert small.bits < large.bits == 18
    assert small.records < large.records
    many = replace(JOB, bits=None, schedule=sc.Schedule.daily(1440)).budget(1)
    assert many.bits < 14
    again = TrainConfig.from_json(json.loads(json.dumps(JOB.to_json())))
    assert again == JOB


# --------------------------------------------------------------------------- real processes


def command(path: Path, out: Path, *more: str) -> list[str]:
    words = ["train", str(path), "--when", "at", "--label", "y", "--out", str(out), "--save-every", "0s"]
    method = () if "--method" in more else ("--method", "pluralistic")
    return [sys.executable, "-m", "semicyclic", *words, *method, *more]


def kill_often(whole: Path, make: Any, times: int, seed: int, longest: float) -> None:
    """Start, kill at a random instant, again and again; then let it end: the same bytes."""
    rng = np.random.default_rng(seed)
    killed = 0
    while killed < times:
        process = subprocess.Popen(make(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, errors = process.communicate(timeout=float(rng.uniform(0.3, longest)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
            _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    done = subprocess.run(make(), capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(whole.parent / "killed") == contents(whole)


@pytest.mark.parametrize(
    ("times", "method"),
    [
        (3, "pluralistic"),
        (2, "auto"),
        pytest.param(40, "pluralistic", marks=pytest.mark.slow),
        pytest.param(12, "auto", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_instant_it_ends_in_the_same_bytes(tmp_path: Path, times: int, method: str) -> None:
    count, days = (40_000, 60) if method == "pluralistic" else (8_000, 20)
    path = write(tmp_path, rows_of(count, days=days))
    whole, how = tmp_path / "whole", ("--method", method)
    # Once before, or the time taken would be that of compiling.
    subprocess.run(command(path, tmp_path / "compiled", *how), check=True, capture_output=True)
    began = time.perf_counter()
    subprocess.run(command(path, whole, *how), check=True, capture_output=True)
    longest = time.perf_counter() - began
    kill_often(
        whole, lambda: command(path, tmp_path / "killed", *how, "--resume"), times, times, 0.9 * longest
    )


@pytest.mark.parametrize("times", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_following_a_growing_file_through_kills_gives_the_bytes_of_the_whole(
    tmp_path: Path, times: int
) -> None:
    rows = rows_of(30_000, days=60)
    whole = write(tmp_path, rows, name="rows")
    subprocess.run(command(whole, tmp_path / "whole"), check=True, capture_output=True)
    data = whole.read_bytes()
    (tmp_path / "grow").mkdir()
    growing = tmp_path / "grow" / "rows.csv"
    growing.write_bytes(data[:100])
    step = len(data) // 200

    def writer() -> None:
        for at in range(100, len(data), step):
            with growing.open("ab") as file:
                file.write(data[at : at + step])
            time.sleep(0.02)

    thread = threading.Thread(target=writer)
    thread.start()
    rng = np.random.default_rng(times)
    for _ in range(times):
        process = subprocess.Popen(
            command(growing, tmp_path / "killed", "--resume", "--follow"), stderr=subprocess.PIPE
        )
        time.sleep(float(rng.uniform(1.5, 4.0)))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
    thread.join()
    done = subprocess.run(
        command(growing, tmp_path / "killed", "--resume"), capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_follower_writes_a_model_when_a_cycle_ends_and_stops_when_asked(tmp_path: Path) -> None:
    rows = rows_of(20_000, days=5)
    path = write(tmp_path, rows)
    out = tmp_path / "out"
    process = subprocess.Popen(command(path, out, "--follow"), stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            if (out / MODEL).exists():
                break
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        assert sc.load(out / MODEL).blocks == 6
        time.sleep(1.0)
        process.terminate()
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped" in errors
    assert "--resume" in errors


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(50))
    # Not even the superuser may make a folder here.
    done = subprocess.run(command(path, Path("/proc/out")), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--out /proc/out: the folder cannot be made" in done.stderr


def test_parquet_types_of_every_kind_can_be_read(tmp_path: Path) -> None:
    """Categories as dictionaries, decimals, dates, large strings, nested columns that are left out."""
    import decimal

    import pyarrow as pa

    table = pa.table(
        {
            "at": pa.array([1_700_000_000 + k for k in range(40)], pa.timestamp("s", "Europe/Paris")),
            "d": pa.array(["a", "b"] * 20).dictionary_encode(),
            "m": pa.array([decimal.Decimal(f"{k}.5") for k in range(40)]),
            "l": pa.array([f"word number {k} in a text" for k in range(40)], pa.large_string()),
            "u": pa.array(range(40), pa.uint8()),
            "n": pa.array([[1]] * 40),
            "y": pa.array(["p", "q"] * 20).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    results = run(tmp_path / "out", [tmp_path / "rows.parquet"])
    assert results["columns"]["kinds"] == {"d": "category", "l": "text", "m": "number", "u": "number"}
    assert "n" in results["columns"]["ignored"]
    assert results["classes"] == ["p", "q"]


def odd_columns() -> dict[str, Any]:
    """A column of every type that a Parquet file may have and that is neither number nor text."""
    import pyarrow as pa

    return {
        "list": pa.array([[1], None]),
        "struct": pa.array([{"a": 1}, None]),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "binary": pa.array([b"\xff", None]),
        "large binary": pa.array([b"a", None], pa.large_binary()),
        "fixed binary": pa.array([b"ab", None], pa.binary(2)),
        "timestamp": pa.array([1, None], pa.timestamp("us")),
        "date": pa.array([1, None], pa.date32()),
        "time": pa.array([1, None], pa.time64("us")),
        "duration": pa.array([1, None], pa.duration("us")),
        "dictionary": pa.array([b"a", None]).dictionary_encode(),
    }


@pytest.mark.parametrize("name", list(odd_columns()))
@pytest.mark.parametrize("asked", ["number", "category", "text", "label", "time", "nothing"])
def test_a_type_that_cannot_be_read_is_refused_by_its_column(tmp_path: Path, name: str, asked: str) -> None:
    """Whatever it is asked to be, in the first file or only in the second; left out if nobody asks."""
    import pyarrow as pa

    odd = odd_columns()[name]
    plain = pa.table({"at": [10**9, 10**9 + 1], "x": ["a", "b"], "y": ["p", "q"]})
    column = {"label": "y", "time": "at"}.get(asked, "x")
    other = plain.set_column(plain.column_names.index(column), column, odd)
    pq.write_table(plain, tmp_path / "a.parquet")
    pq.write_table(other, tmp_path / "b.parquet")
    wish = ColumnRequest(("at",), "y")
    if asked in ("number", "category", "text"):
        wish = replace(wish, **{asked: ("x",)})  # type: ignore[arg-type]
    for number, files in enumerate((["b.parquet"], ["a.parquet", "b.parquet"])):
        job = replace(JOB, columns=wish, sample_rows=1 if number else 4, classes=("p", "q"), skip_errors=True)
        try:
            results = run(tmp_path / str(number), [tmp_path / each for each in files], job)
        except ValueError as error:
            assert f"column {column!r}" in str(error) or "none of the first" in str(error)  # noqa: PT017
            continue
        assert results["rows"]["read"] == 2 * len(files)
