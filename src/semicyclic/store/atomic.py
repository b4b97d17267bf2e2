"""Atomic writes, checksums and file locks."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from semicyclic.types import Array


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A name to write a file under; in the end, in one step, it is put in its place, or else removed."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent} to save it in")
    # Beside the target, so that putting it in its place cannot be half done.
    name = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        yield name
        with open(name, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(name, target)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    sync_dir(target.parent)


def write_tensors(target: Path, tensors: dict[str, Array], metadata: dict[str, str]) -> None:
    """Write a safetensors file, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic_path(target) as name:
        name.touch()
        mode = name.stat().st_mode
        try:
            save_file(tensors, name, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{target}: it cannot be written: {error}") from None
        # Its own choice is a file that only its owner may read.
        name.chmod(mode)


def lock(path: Path) -> IO[str] | None:
    """An open file that nobody else can lock until it is closed; None if somebody has.

    The system lets go of it when a process dies.
    """
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def write_text(target: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with atomic_path(target) as name:
        name.write_text(text, encoding="utf-8", newline="")


def sync_dir(folder: Path) -> None:
    """Make sure that a new name outlives a power cut, where the system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def remove_partial_files(target: Path) -> None:
    """Remove what a killed process has left half written beside a file."""
    for left in target.parent.glob(f".{target.name}.*"):
        left.unlink(missing_ok=True)
