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
    """Atomic write: yields a temporary path, renamed over `target` on success and removed on failure."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: the folder {target.parent} does not exist: create it first")
    # In the same folder as the target, so that the rename is atomic.
    temporary = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_dir(target.parent)


def write_tensors(target: Path, tensors: dict[str, Array], metadata: dict[str, str]) -> None:
    """Write a safetensors file atomically."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic_path(target) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{target}: the file cannot be written: {error}") from None
        # safetensors creates files that only the owner may read.
        temporary.chmod(mode)


def lock(path: Path) -> IO[str] | None:
    """Lock a file; returns the open file, or None if another process holds the lock.

    Closing the file releases the lock, and so does the operating system when the process ends.
    """
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def write_text(target: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_bytes(target: Path, data: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(data)


def sync_dir(folder: Path) -> None:
    """Flush a folder to disk, so that a rename survives a power failure; ignored if unsupported."""
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
    """Remove temporary files that a killed process left next to a file."""
    for leftover in target.parent.glob(f".{target.name}.*"):
        leftover.unlink(missing_ok=True)
