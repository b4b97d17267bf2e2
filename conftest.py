"""Run the Python examples of README.md and docs as tests, each page from top to bottom."""

import hashlib
import os
from pathlib import Path

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# Numba looks only at a kernel's own file to see whether its compiled code is stale, not at the
# files it calls: so tests keep theirs by the contents of all.
_root = Path(__file__).parent
_sources = b"".join(path.read_bytes() for path in sorted(_root.glob("src/semicyclic/method/*.py")))
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(_root / ".numba_cache" / hashlib.sha256(_sources).hexdigest()[:16])
)

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"]).pytest()
