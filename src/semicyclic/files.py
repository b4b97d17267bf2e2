"""Files, from Python: rows read from them, and runs that the command line has left in a folder."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from semicyclic.method.rows import Rows
from semicyclic.method.run import Run

INSTALL = "reading files needs pyarrow, which is not installed: pip install 'semicyclic[files]'"


def read(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    when: str | tuple[str, str] | None = None,
    label: str | None = None,
    zone: str = "UTC",
    like: Any = None,
    number: Sequence[str] = (),
    category: Sequence[str] = (),
    text: Sequence[str] = (),
    ignore: Sequence[str] = (),
    when_format: str | None = None,
    bins: int = 16,
    bits: int | None = None,
    bad: str = "stop",
    format: str | None = None,
    encoding: str = "utf-8",
) -> Rows:
    """Rows of CSV, JSON lines or Parquet files, sorted by time.

    when: the column with the time, or two, a date and an hour. zone: that of times which name none.
    label: the column to learn. Rows without one are left out.
    like: a model or rows: make the same features as they have, to predict or to go on learning.
    number, category, text, ignore: what columns are, where their cells do not tell.
    bins: quantile bins of a number, beside its scaled value; 1 for none.
    bits: 2^bits hashed columns; unless given, a column for every feature in the files.
    bad: "stop" at a row that cannot be read, or "skip" it.
    """
    check_installed()
    from semicyclic.data.columns import Wish
    from semicyclic.data.inmemory import Asked, read_files
    from semicyclic.data.parse import Options

    if bad not in ("stop", "skip"):
        raise ValueError(f"bad={bad!r}: choose 'stop' or 'skip'")
    wish, known = None, None
    if like is not None:
        known = getattr(like, "features", None)
        if known is None:
            raise ValueError("like= has no features: it must be a model or rows that come from a file")
    elif when is None:
        raise ValueError("say which column has the time: when='...'")
    else:
        names = (when,) if isinstance(when, str) else tuple(when)
        kinds = tuple(number), tuple(category), tuple(text), tuple(ignore)
        wish = Wish(names, label, zone, when_format, *kinds)
    given = [files] if isinstance(files, str | PathLike) else list(files)
    options = Options(format, encoding, tuple(ignore))
    asked = Asked(wish, known, label, bins, bits, bad == "skip", options)
    return read_files([fspath(each) for each in given], asked)


def load_run(folder: str | PathLike[str]) -> Run:
    """The run that `semicyclic train` has left in a folder, as of its last checkpoint: for any read-out.

    Its labels are codes of classes (or numbers scaled), and rows that waited for others are not in it;
    the model file has the names, and all that was learnt.
    """
    check_installed()
    from semicyclic.stream.folder import read_run

    return read_run(Path(folder))


def check_installed() -> None:
    """Say what to install where it is missing."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError(INSTALL) from None
