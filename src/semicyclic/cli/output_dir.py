"""The output directory of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_dir(out: Path) -> Iterator[None]:
    """The folder for what is written, there before any work is done; gone again if nothing came of it."""
    known = out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"--out {out}: this is a file, and a folder is needed") from None
    except OSError as error:
        raise ValueError(f"--out {out}: the folder cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        if not known and not any(out.iterdir()):
            out.rmdir()
        raise
