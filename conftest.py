"""Run the Python examples of README.md and docs as tests, each page from top to bottom."""

import os
import tempfile
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# The compiled code of tests is kept here, and `make clean` removes it. This must come before Numba is
# imported (so `filterwarnings` names none of its classes).
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parent / ".numba_cache"))


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
