"""Compiling: it is announced once it takes long, and its results are kept until a kernel changes."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from semicyclic.jit import source_digest

PACKAGE = Path(__file__).parents[1] / "src" / "semicyclic"

CODE = """
import numpy as np
import semicyclic as sc

rows = sc.Rows(np.eye(4), [0, 1, 0, 1], when=[0, 40_000, 86_400, 130_000])
sc.train.pluralistic(rows, sc.Schedule.daily(2), batch_size=1).mean()
"""


def run(cache: Path, seconds: float) -> str:
    code = f"import semicyclic.jit\nsemicyclic.jit.NOTICE_SECONDS = {seconds}\n{CODE}"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr


def test_compiling_is_announced_and_loading_is_not(tmp_path: Path) -> None:
    first = run(tmp_path, 0.05)
    assert first.startswith("compiling: the first use on this machine takes some seconds")
    assert len(first.splitlines()) == 1
    # The second process finds the compiled code in the cache.
    assert run(tmp_path, 0.05) == ""
    assert "compiling" not in run(tmp_path / "other", 1e9)


LOSS = """
import numpy as np
import semicyclic as sc

rows = sc.Rows(np.eye(4), [0, 1, 0, 1], when=[0, 40_000, 86_400, 130_000])
print(sc.train.pluralistic(rows, sc.Schedule.daily(2), batch_size=1).progressive_loss())
"""


def loss_of(package: Path, cache: Path) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-c", LOSS]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def copy_of_package(folder: Path) -> Path:
    copied = folder / "semicyclic"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    return copied


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.slow
def test_a_changed_function_is_not_called_as_it_was_compiled_into_another(tmp_path: Path) -> None:
    """Numba itself looks only at the file of the function that was called."""
    package, cache = copy_of_package(tmp_path), tmp_path / "cache"
    before = loss_of(package, cache)
    value = "value[r] = log_one_plus(small) + (zero if margin > zero else -margin)"
    change(
        package / "method" / "kernels" / "losses.py", value, value.replace("= ", "= (one + one) * (") + ")"
    )
    assert loss_of(package, cache) == pytest.approx(2 * before)


def test_compiled_code_survives_changes_of_other_modules(tmp_path: Path) -> None:
    package = copy_of_package(tmp_path)
    before = source_digest(package)
    for unrelated in ("cli/train.py", "training/config.py", "reports/html.py", "tables/formats.py"):
        with (package / unrelated).open("a") as file:
            file.write("# more")
    assert source_digest(package) == before == source_digest(PACKAGE)
    for used in ("method/kernels/visit.py", "method/hedge.py", "method/loss.py", "jit.py"):
        with (package / used).open("a") as file:
            file.write("# more")
        assert source_digest(package) != before
        before = source_digest(package)


@pytest.mark.slow
def test_several_processes_may_compile_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        losses = list(pool.map(lambda _: loss_of(PACKAGE, tmp_path), range(3)))
    assert len(set(losses)) == 1
    assert len([*tmp_path.glob("semicyclic/*")]) == 1
