"""The package from outside: what it exports, what it loads, what it says of itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import semicyclic as sc

ROOT = Path(__file__).parent.parent


def test_the_public_names_are_sorted_and_there() -> None:
    assert sc.__all__ == sorted(sc.__all__, key=lambda name: (name.islower(), name))
    for name in sc.__all__:
        assert getattr(sc, name) is not None


def test_importing_loads_nothing_heavy() -> None:
    heavy = ["numba", "polars", "matplotlib", "sklearn", "torch", "scipy", "pandas", "cyclopts", "rich"]
    code = f"import sys, semicyclic; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_contains_every_other_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        need for name, needs in extras.items() if name not in ("all", "peers", "test") for need in needs
    }
    assert wanted <= set(extras["all"])
    assert project["version"] == sc.__version__


def test_constraints_hold_no_addresses() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert "--" not in text


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"])
def test_the_house_has_its_papers(name: str) -> None:
    assert (ROOT / name).stat().st_size > 300
