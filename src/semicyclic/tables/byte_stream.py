"""Byte stream of a growing file, cut at record boundaries."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from semicyclic.tables.kernels.records import record_end

# Bytes per read.
READ_BYTES = 4 << 20
# A longer record means that a quote never closes.
MAX_RECORD_BYTES = 64 << 20
# Bytes at the start of a file, and before a read position, that identify it (see `formats._fingerprint`).
HEAD_BYTES, TAIL_BYTES = 1 << 16, 1 << 12
# Called at the end of the input; returns whether to try reading again.
Wait = Callable[[], bool]


class RecordBlock(NamedTuple):
    """Complete records.

    data: their bytes. offset: position in the stream after them. tail: the last bytes before `offset`.
    """

    data: bytes
    offset: int
    tail: bytes


class ByteStream:
    """Reader of a file, or of standard input, that may grow while it is read.

    head: the first bytes of the stream. tail: the last bytes read. size: number of bytes read so far.
    """

    def __init__(self, path: Path | None, stdin: IO[bytes] | None = None) -> None:
        self.path = path
        self.name = "standard input" if path is None else str(path)
        self.zipped = path is not None and path.suffix == ".gz"
        if path is None:
            # Unbuffered: a thread blocked in a buffered read cannot be abandoned.
            self.file: Any = stdin or open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
        else:
            self.file = gzip.open(path, "rb") if self.zipped else open(path, "rb")  # noqa: SIM115
        self.head = self.tail = b""
        self.size = 0

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.path is not None:
            self.file.close()

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; returns no bytes at the current end of the input."""
        try:
            data = bytes(self.file.read1(size) if hasattr(self.file, "read1") else self.file.read(size))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self.name}: a damaged gzip file ({error})") from None
        if not data and self.path is not None and not self.zipped:
            current_size = self.path.stat().st_size
            if current_size < self.size:
                raise ValueError(f"{self.name}: the file shrank to {current_size:,} bytes while it was read")
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
        self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self.size += len(data)
        return data

    def skip(self, offset: int) -> None:
        """Move forward to the offset that an earlier run reached."""
        plain = self.path is not None and not self.zipped
        if plain:
            assert self.path is not None
            size = self.path.stat().st_size
            if size < offset:
                raise ValueError(
                    f"{self.name}: the file shrank: it has {size:,} bytes, but {offset:,} were read before"
                )
            if offset - TAIL_BYTES > self.size:
                self.file.seek(offset - TAIL_BYTES)
                self.size, self.tail = offset - TAIL_BYTES, b""
        while self.size < offset:
            if not self.read(min(READ_BYTES, offset - self.size)):
                raise ValueError(f"{self.name}: the file ends before byte {offset:,}, which was read before")


def blocks(
    stream: ByteStream, before: bytes, rest: bytes, wait: Wait, *, delimiter: int = 44, quoted: bool = True
) -> Iterator[RecordBlock]:
    """Yield blocks of complete records; the last record of a file needs no newline.

    before, rest: bytes already read from the stream; `rest` still has to be split, `before` precedes it.
    wait: called at the end of the input. While it returns True, an incomplete last record is held back
        until its remaining bytes arrive.
    delimiter: byte between cells. quoted: whether quotes may enclose newlines.
    """
    tail = before[-TAIL_BYTES:]
    while True:
        end = int(record_end(np.frombuffer(rest, np.uint8), 0, delimiter, quoted))
        if end:
            tail = (tail + rest[max(end - TAIL_BYTES, 0) : end])[-TAIL_BYTES:]
            yield RecordBlock(rest[:end], stream.size - len(rest) + end, tail)
            rest = rest[end:]
        elif len(rest) > MAX_RECORD_BYTES:
            raise ValueError(
                f"no record ends within {MAX_RECORD_BYTES >> 20} MB after byte {stream.size - len(rest):,}: "
                "a quote is opened there that never closes"
            )
        new = stream.read(READ_BYTES)
        while not new:
            if not wait():
                if rest.strip(b"\r\n"):
                    yield RecordBlock(rest, stream.size, (tail + rest)[-TAIL_BYTES:])
                return
            new = stream.read(READ_BYTES)
        rest += new
