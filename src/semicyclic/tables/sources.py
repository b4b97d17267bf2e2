"""`Sources`: files, directories and standard input, read in order from any position."""

import codecs
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from semicyclic.tables.formats import FilePosition, TableBatch, check_fingerprint, format_by_name, open_table
from semicyclic.tables.text_formats import FormatOptions

STDIN = "-"
DEFAULT_OPTIONS = FormatOptions()


@dataclass(frozen=True)
class ReadPosition:
    """Read position in the entire input: position in every file opened so far, and its fingerprint there."""

    places: tuple[FilePosition, ...] = ()
    prints: tuple[str, ...] = ()


class SourceBatch(NamedTuple):
    """A batch of rows from the file with index `file`, and the read position after it (`position`)."""

    batch: TableBatch
    file: int
    position: ReadPosition


class Source(Protocol):
    """Rows in batches: files, or a table in memory."""

    @property
    def can_reread(self) -> bool:
        """Whether the rows can be read several times."""

    def name(self, file: int) -> str:
        """Return the name of a file, or of the table, for messages."""

    def parts(self, mark: ReadPosition) -> Iterator[SourceBatch]:
        """Yield all batches from a read position on."""


@dataclass
class Sources:
    """Files, folders and standard input ("-"), read one after another; a folder's files sorted by name.

    follow: at the end of the input, wait for new rows of the last file or of standard input, and for new
        files in a folder. pause: seconds between two checks for new data.
    files: the files found so far; None is standard input.
    """

    given: Sequence[str | Path]
    options: FormatOptions = DEFAULT_OPTIONS
    follow: bool = False
    pause: float = 0.2
    stdin: IO[bytes] | None = None
    files: list[Path | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.options.encoding)
        except LookupError:
            raise ValueError(f"encoding={self.options.encoding!r}: there is no such encoding") from None
        self.files = self._list_files()
        if not self.files:
            raise ValueError(f"{', '.join(map(str, self.given))}: there are no files to read")

    @property
    def can_reread(self) -> bool:
        """True unless it reads standard input, or follows a growing file."""
        return not self.follow and None not in self.files

    def name(self, file: int) -> str:
        """Return the name of a file for messages."""
        path = self.files[file]
        return "standard input" if path is None else path.name

    def parts(self, mark: ReadPosition) -> Iterator[SourceBatch]:
        """Yield all batches from a read position on."""
        if len(mark.places) > len(self.files):
            raise ValueError(
                f"{len(mark.places)} files were read before, but the input now has only {len(self.files)}"
            )
        for path, reached, fingerprint in zip(self.files, mark.places[:-1], mark.prints, strict=False):
            if path is not None and fingerprint:
                check_fingerprint(path, reached, fingerprint, self.options)
        before = ReadPosition(mark.places[:-1], mark.prints[:-1])
        position = mark.places[-1] if mark.places else FilePosition()
        known: str | None = mark.prints[-1] if mark.prints else None
        file = len(before.places)
        while file < len(self.files):
            here = ReadPosition((*before.places, position), (*before.prints, known or ""))
            wait = partial(self._wait, file)
            for batch in open_table(
                self.files[file], position, known, self.options, wait=wait, stdin=self.stdin
            ):
                here = ReadPosition((*before.places, batch.place), (*before.prints, batch.fingerprint))
                yield SourceBatch(batch, file, here)
            while file + 1 == len(self.files) and self._wait(file):
                pass
            before, file, position, known = here, file + 1, FilePosition(), None

    def _wait(self, file: int) -> bool:
        """Pause, then return whether to check the ended file again; False if a later file exists."""
        if not self.follow or file + 1 < len(self.files):
            return False
        time.sleep(self.pause)
        current_files = self._list_files()
        if current_files[: len(self.files)] != self.files:
            raise ValueError(
                "the input folder changed: files already read must stay, and new ones must sort after them"
            )
        self.files = current_files
        # Rows appended to this file in the meantime are read before the next file begins.
        return True

    def _list_files(self) -> list[Path | None]:
        files: list[Path | None] = []
        for given in self.given:
            path = Path(given)
            if str(given) == STDIN:
                files.append(None)
            elif path.is_dir():
                entries = [
                    entry
                    for entry in path.iterdir()
                    if entry.is_file() and not entry.name.startswith((".", "_"))
                ]
                readable = [entry for entry in entries if self.options.format or format_by_name(entry)]
                readable.sort(key=lambda entry: entry.name)
                files.extend(readable)
            elif path.is_file():
                files.append(path)
            else:
                raise FileNotFoundError(f"{path}: there is no such file or folder")
        if files.count(None) > 1:
            raise ValueError("standard input can be read once only: give '-' once")
        return files
