"""Run the Python examples of README.md and docs as tests, and say how long tests have compiled."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
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


# Each page from top to bottom.
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["*.md"], setup=_enter, teardown=_leave
).pytest()


# Seconds of compilation in each process that ran tests.
compilation_seconds: list[float] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note how long this process has compiled."""
    if "numba" in sys.modules:
        from semicyclic.jit import watch_compilation

        seconds = watch_compilation().seconds
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["compilation_seconds"] = seconds
        else:
            compilation_seconds.append(seconds)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect what a worker has noted."""
    compilation_seconds.append(getattr(node, "workeroutput", {}).get("compilation_seconds", 0.0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how long tests have compiled, without the processes that they started."""
    terminalreporter.write_line(f"compilation in test processes: {sum(compilation_seconds):.0f} s")
