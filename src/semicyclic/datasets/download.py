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

READ_BYTES = 1 << 18
# Give up if the server sends nothing for this long.
TIMEOUT_SECONDS = 60.0


class Archive(NamedTuple):
    """Zip file to download: URL, size in bytes, SHA-256 checksum, and the member to extract."""

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
    """Download, verify and extract the archive's member to `folder`, unless it exists; return its path.

    The file is renamed into place only when it is complete, so an existing file is complete.
    progress: called with the share of the archive downloaded so far.
    """
    wanted = folder / archive.member
    if wanted.exists():
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        packed, unpacked = Path(temporary) / "archive.zip", Path(temporary) / "unpacked"
        _download(archive, packed, progress)
        try:
            with (
                zipfile.ZipFile(packed) as file,
                file.open(archive.member) as source,
                unpacked.open("wb") as out,
            ):
                while part := source.read(READ_BYTES):
                    out.write(part)
                out.flush()
                os.fsync(out.fileno())
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"{archive.address} is not the expected archive: {error}") from None
        os.replace(unpacked, wanted)
    return wanted


def _download(archive: Archive, path: Path, progress: Callable[[float], None]) -> None:
    checksum, size = hashlib.sha256(), 0
    try:
        with (
            urllib.request.urlopen(archive.address, timeout=TIMEOUT_SECONDS) as response,
            path.open("wb") as out,
        ):
            while part := response.read(READ_BYTES):
                size += len(part)
                if size > archive.size:
                    raise ValueError(f"{archive.address} sends more than the {archive.size:,} bytes expected")
                checksum.update(part)
                out.write(part)
                progress(size / archive.size)
    except urllib.error.HTTPError as error:
        raise ValueError(f"{archive.address} returned {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ValueError(f"{archive.address} cannot be fetched: {reason}") from None
    if size != archive.size:
        raise ValueError(f"{archive.address} sent {size:,} of {archive.size:,} bytes: try again")
    if checksum.hexdigest() != archive.sha256:
        raise ValueError(f"{archive.address} sent other bytes than expected: SHA-256 {checksum.hexdigest()}")
