"""`Sources`: files, directories and standard input, read in order from any position."""

import codecs
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from semicyclic.tables.formats import FilePosition, TableBatch, check_fingerprint, format_by_name, open_table
from semicyclic.tables.text_formats import FormatOptions

STDIN = "-"
PLAIN = FormatOptions()


class ReadPosition(NamedTuple):
    """How far everything was read: of every file so far its place, and its fingerprint there."""

    places: tuple[FilePosition, ...] = ()
    prints: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"places": [list(place) for place in self.places], "prints": list(self.prints)}

    @staticmethod
    def from_json(value: Any) -> "ReadPosition":
        places = tuple(FilePosition(int(offset), int(row)) for offset, row in value["places"])
        return ReadPosition(places, tuple(map(str, value["prints"])))


class SourceBatch(NamedTuple):
    """Some rows of one of the files, and the mark after them."""

    batch: TableBatch
    file: int
    mark: ReadPosition


@dataclass
class Sources:
    """Files and folders, one after another; a folder's files in the order of their names.

    follow: at the end of what there is, wait for more: the last file's new rows, standard input's, a
        folder's new files.
    """

    given: Sequence[str | Path]
    options: FormatOptions = PLAIN
    follow: bool = False
    pause: float = 0.2
    stdin: IO[bytes] | None = None
    files: list[Path | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.options.encoding)
        except LookupError:
            raise ValueError(f"--encoding {self.options.encoding}: there is no such encoding") from None
        self.files = self._list_files()
        if not self.files:
            raise ValueError(f"{', '.join(map(str, self.given))}: there are no files to read")

    def name(self, file: int) -> str:
        """What a file is called."""
        path = self.files[file]
        return "standard input" if path is None else path.name

    def parts(self, mark: ReadPosition) -> Iterator[SourceBatch]:
        """Everything from a mark on."""
        if len(mark.places) > len(self.files):
            raise ValueError(
                f"{len(mark.places)} files were read before, and now there are {len(self.files)}"
            )
        for path, reached, fingerprint in zip(self.files, mark.places[:-1], mark.prints, strict=False):
            if path is not None and fingerprint:
                check_fingerprint(path, reached, fingerprint, self.options)
        before = ReadPosition(mark.places[:-1], mark.prints[:-1])
        place = mark.places[-1] if mark.places else FilePosition()
        known: str | None = mark.prints[-1] if mark.prints else None
        file = len(before.places)
        while file < len(self.files):
            here = ReadPosition((*before.places, place), (*before.prints, known or ""))
            wait = partial(self._wait, file)
            for batch in open_table(
                self.files[file], place, known, self.options, wait=wait, stdin=self.stdin
            ):
                here = ReadPosition((*before.places, batch.place), (*before.prints, batch.fingerprint))
                yield SourceBatch(batch, file, here)
            while file + 1 == len(self.files) and self._wait(file):
                pass
            before, file, place, known = here, file + 1, FilePosition(), None

    def _wait(self, file: int) -> bool:
        """Whether to look again at a file that has ended: not if another has begun."""
        if not self.follow or file + 1 < len(self.files):
            return False
        time.sleep(self.pause)
        now = self._list_files()
        if now[: len(self.files)] != self.files:
            raise ValueError("a file went, or a new one came before those already read: names must follow")
        self.files = now
        # What stands in the file by now is still read before the next begins.
        return True

    def _list_files(self) -> list[Path | None]:
        found: list[Path | None] = []
        for each in self.given:
            path = Path(each)
            if str(each) == STDIN:
                found.append(None)
            elif path.is_dir():
                inside = [
                    one for one in path.iterdir() if one.is_file() and not one.name.startswith((".", "_"))
                ]
                fit = [one for one in inside if self.options.format or format_by_name(one)]
                fit.sort(key=lambda one: one.name)
                found.extend(fit)
            elif path.is_file():
                found.append(path)
            else:
                raise FileNotFoundError(f"{path}: there is no such file or folder")
        if found.count(None) > 1:
            raise ValueError("standard input can be read once only: give '-' once")
        return found
