"""The output directory of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_dir(out: Path) -> Iterator[None]:
    """Create the output folder before any work starts; on failure remove it if it is new and still empty."""
    existed = out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"--out {out}: this is a file, and a folder is needed") from None
    except OSError as error:
        raise ValueError(f"--out {out}: the folder cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        if not existed and not any(out.iterdir()):
            out.rmdir()
        raise
