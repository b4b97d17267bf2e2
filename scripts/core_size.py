"""Count the code that `train.pluralistic(...).mean()` imports and runs, and the lines of source and tests.

    python scripts/core_size.py [ROOT]

ROOT is a checkout, by default this one. The imported modules are those that the method loads, without
modules that the package's root loads for other names. A module counts as run if one of its functions was
called from Python or compiled; all lines of its file are counted.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROBE = """
import json, sys, types

called = set()

def record_call(frame, event, arg):
    if event == "call" and frame.f_code.co_name != "<module>":
        called.add(frame.f_code.co_filename)

# Replace the package root with an empty module.
root = types.ModuleType("semicyclic")
root.__path__ = [sys.argv[1]]
sys.modules["semicyclic"] = root
import numpy as np
from semicyclic.method import train
from semicyclic.method.rows import Rows

sys.setprofile(record_call)
rows = Rows(np.eye(4), [0, 1, 0, 1], block=[0, 0, 1, 1])
train.pluralistic(rows, 2, batch_size=1).mean()
sys.setprofile(None)
from numba.core.dispatcher import Dispatcher

modules = [module for name, module in sys.modules.items() if name.startswith("semicyclic.")]
for module in modules:
    for value in vars(module).values():
        if isinstance(value, Dispatcher) and value.signatures:
            called.add(value.py_func.__code__.co_filename)
files = {module.__file__ for module in modules}
print(json.dumps({"imported": sorted(files), "run": sorted(files & called)}))
"""


def lines(paths: list[Path]) -> int:
    """Total number of lines."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def main(root: Path) -> None:
    """Run the probe and print all counts."""
    source = root / "src"
    command = [sys.executable, "-c", PROBE, str(source / "semicyclic")]
    # Use an empty Numba cache: functions loaded from a cache would not count as compiled.
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for name, files in json.loads(done.stdout).items():
        paths = [Path(file) for file in files]
        print(f"{name}: {len(paths)} modules, {lines(paths):,} lines")
    for folder in ("src", "tests", "benchmarks"):
        paths = sorted((root / folder).rglob("*.py"))
        print(f"{folder}: {len(paths)} files, {lines(paths):,} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
