"""Byte stream of a growing file, cut at record boundaries."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from semicyclic.tables.kernels.records import record_end

BLOCK = 4 << 20
# A record longer than this is a quote that never closes, not a record.
LONGEST = 64 << 20
HEAD, TAIL = 1 << 16, 1 << 12
# What to do at the end of what there is: whether to look again.
Wait = Callable[[], bool]


class RecordBlock(NamedTuple):
    """Whole records, how many bytes of the stream end with them, and the last of these."""

    data: bytes
    offset: int
    tail: bytes


class ByteStream:
    """The bytes of a file, or of standard input, from the beginning; it may grow meanwhile.

    head, tail: the first bytes, and the last that were read; size: how many were.
    """

    def __init__(self, path: Path | None, stdin: IO[bytes] | None = None) -> None:
        self.path = path
        self.name = "standard input" if path is None else str(path)
        self.zipped = path is not None and path.suffix == ".gz"
        if path is None:
            # Unbuffered: a thread that waits inside a buffer cannot be left behind.
            self.file: Any = stdin or open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
        else:
            self.file = gzip.open(path, "rb") if self.zipped else open(path, "rb")  # noqa: SIM115
        self.head = self.tail = b""
        self.size = 0

    def close(self) -> None:
        """Let go of the file; standard input stays open."""
        if self.path is not None:
            self.file.close()

    def read(self, size: int) -> bytes:
        """Up to so many bytes; none where there are no more for now."""
        try:
            data = bytes(self.file.read1(size) if hasattr(self.file, "read1") else self.file.read(size))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self.name}: a damaged gzip file ({error})") from None
        if not data and self.path is not None and not self.zipped:
            now = self.path.stat().st_size
            if now < self.size:
                raise ValueError(f"{self.name}: the file shrank to {now:,} bytes while it was read")
        if len(self.head) < HEAD:
            self.head += data[: HEAD - len(self.head)]
        self.tail = (self.tail + data[-TAIL:])[-TAIL:]
        self.size += len(data)
        return data

    def skip(self, offset: int) -> None:
        """Go on to a place where an earlier run stood."""
        plain = self.path is not None and not self.zipped
        if plain:
            assert self.path is not None
            size = self.path.stat().st_size
            if size < offset:
                raise ValueError(
                    f"{self.name}: it has {size:,} bytes, and {offset:,} were read before: the file shrank"
                )
            if offset - TAIL > self.size:
                self.file.seek(offset - TAIL)
                self.size, self.tail = offset - TAIL, b""
        while self.size < offset:
            if not self.read(min(BLOCK, offset - self.size)):
                raise ValueError(f"{self.name}: it ends before the {offset:,} bytes that were read before")


def blocks(
    stream: ByteStream, before: bytes, rest: bytes, wait: Wait, *, delimiter: int = 44, quoted: bool = True
) -> Iterator[RecordBlock]:
    """Whole records block by block; at the end of a file the last one needs no newline.

    rest: bytes that were read and not used; before: those ahead of them. wait: asked at the end of
        what there is; a stream that is looked at again may end in half a record, which waits for its
        other half.
    """
    tail = before[-TAIL:]
    while True:
        end = int(record_end(np.frombuffer(rest, np.uint8), 0, delimiter, quoted))
        if end:
            tail = (tail + rest[max(end - TAIL, 0) : end])[-TAIL:]
            yield RecordBlock(rest[:end], stream.size - len(rest) + end, tail)
            rest = rest[end:]
        elif len(rest) > LONGEST:
            raise ValueError(
                f"no record ends within {LONGEST >> 20} MB after byte {stream.size - len(rest):,}: "
                "a quote is opened there that never closes"
            )
        new = stream.read(BLOCK)
        while not new:
            if not wait():
                if rest.strip(b"\r\n"):
                    yield RecordBlock(rest, stream.size, (tail + rest)[-TAIL:])
                return
            new = stream.read(BLOCK)
        rest += new
