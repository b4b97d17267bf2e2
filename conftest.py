"""Run the Python examples of README.md and docs as tests, each page from top to bottom."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# This must come before Numba is imported (so `filterwarnings` names none of its classes).
# Numba looks only at a kernel's own file to see whether its compiled code is stale, not at the
# files it calls: so tests keep theirs by the contents of all.
_root = Path(__file__).parent
_sources = b"".join(path.read_bytes() for path in sorted(_root.glob("src/semicyclic/**/*.py")))
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(_root / ".numba_cache" / hashlib.sha256(_sources).hexdigest()[:16])
)


def _enter(namespace: dict[str, Any]) -> None:
    """A page's examples run in a folder of their own: some write files."""
    namespace["_home"], namespace["_folder"] = Path.cwd(), tempfile.TemporaryDirectory()
    os.chdir(namespace["_folder"].name)


def _leave(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["*.md"], setup=_enter, teardown=_leave
).pytest()
