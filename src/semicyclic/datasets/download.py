"""Download of archives: on request only, verified by checksum, with atomic rename."""

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

BLOCK = 1 << 18
# Seconds without a byte after which a server is taken to be gone.
PATIENCE = 60.0


class Archive(NamedTuple):
    """A zip file somewhere, what it must be like, and the file wanted from it."""

    address: str
    size: int
    sha256: str
    member: str


SENTIMENT140 = Archive(
    "http://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
    81_363_704,
    "004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
    "training.1600000.processed.noemoticon.csv",
)


def fetch(archive: Archive, folder: Path, *, progress: Callable[[float], None] = lambda _: None) -> Path:
    """The wanted file in `folder`: fetched, checked and unpacked, unless it is there already.

    The file takes its name only when it is whole, so one that is there is whole.
    """
    wanted = folder / archive.member
    if wanted.exists():
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as place:
        packed, unpacked = Path(place) / "archive.zip", Path(place) / "unpacked"
        _load(archive, packed, progress)
        try:
            with (
                zipfile.ZipFile(packed) as file,
                file.open(archive.member) as source,
                unpacked.open("wb") as out,
            ):
                while part := source.read(BLOCK):
                    out.write(part)
                out.flush()
                os.fsync(out.fileno())
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"{archive.address} is not the archive expected: {error}") from None
        os.replace(unpacked, wanted)
    return wanted


def _load(archive: Archive, path: Path, progress: Callable[[float], None]) -> None:
    found, size = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(archive.address, timeout=PATIENCE) as answer, path.open("wb") as out:
            while part := answer.read(BLOCK):
                size += len(part)
                if size > archive.size:
                    raise ValueError(f"{archive.address} sends more than the {archive.size:,} bytes expected")
                found.update(part)
                out.write(part)
                progress(size / archive.size)
    except urllib.error.HTTPError as error:
        raise ValueError(f"{archive.address} answers {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ValueError(f"{archive.address} cannot be fetched: {reason}") from None
    if size != archive.size:
        raise ValueError(f"{archive.address} sent {size:,} of {archive.size:,} bytes: try again")
    if found.hexdigest() != archive.sha256:
        raise ValueError(f"{archive.address} sent other bytes than expected: SHA-256 {found.hexdigest()}")
