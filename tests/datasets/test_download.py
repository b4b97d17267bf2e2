"""Fetching an archive, from a real server on this machine."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from semicyclic.datasets.download import SENTIMENT140, Archive, fetch

TEXT = b'"0","1","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","u","hello"\n' * 5000


def zipped(name: str = "wanted.csv") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("other.csv", b"not this")
        file.writestr(name, TEXT)
    return out.getvalue()


class Answers(BaseHTTPRequestHandler):
    """Whole, cut short, not there, or no archive."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        body = {"/whole.zip": zipped(), "/short.zip": zipped(), "/text.zip": b"x" * 100}.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path == "/short.zip" else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as held:
        thread = threading.Thread(target=held.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{held.server_port}"
        held.shutdown()
        thread.join()


def archive(address: str, body: bytes, member: str = "wanted.csv") -> Archive:
    return Archive(address, len(body), hashlib.sha256(body).hexdigest(), member)


def test_an_archive_is_fetched_checked_and_unpacked_once(server: str, tmp_path: Path) -> None:
    told: list[float] = []
    wanted = archive(f"{server}/whole.zip", zipped())
    path = fetch(wanted, tmp_path / "new", progress=told.append)
    assert path == tmp_path / "new" / "wanted.csv"
    assert path.read_bytes() == TEXT
    assert told[-1] == 1.0
    assert [each.name for each in path.parent.iterdir()] == ["wanted.csv"]
    before = Answers.asked
    assert fetch(wanted, tmp_path / "new") == path
    assert Answers.asked == before


def test_what_is_not_the_archive_is_refused_and_leaves_nothing(server: str, tmp_path: Path) -> None:
    whole = zipped()
    other = archive(f"{server}/whole.zip", whole)._replace(sha256="0" * 64)
    cases = {
        "sent other bytes than expected": other,
        "sends more than the 10 bytes expected": other._replace(size=10),
        "bytes: try again": archive(f"{server}/short.zip", whole),
        "returned 404": archive(f"{server}/none.zip", whole),
        "is not the expected archive": archive(f"{server}/text.zip", b"x" * 100),
        "There is no item named": archive(f"{server}/whole.zip", whole, "absent.csv"),
        "cannot be fetched": archive("http://127.0.0.1:9/whole.zip", whole),
    }
    for sentence, wanted in cases.items():
        with pytest.raises(ValueError, match=sentence):
            fetch(wanted, tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_the_original_is_named_by_its_size_and_hash() -> None:
    assert SENTIMENT140.member == "training.1600000.processed.noemoticon.csv"
    assert len(SENTIMENT140.sha256) == 64
