"""Install a built wheel into a new environment, and run the demo and one fit there.

python scripts/check_wheel.py DIST CONSTRAINTS
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_BYTES = 5 * 10**6
FIT = """
import semicyclic as sc
from semicyclic import SemiCyclicClassifier

days = [(d, h) for d in range(1, 29) for h in range(24)]
rows = [{"when": f"2026-03-{d:02d} {h:02d}:00", "rain": d % 3, "late": h > 12} for d, h in days]
model = sc.fit(rows, when="when", label="late")
assert model.predict({"when": "2026-03-29 18:00", "rain": 1})
features = [{"when": row["when"], "rain": row["rain"]} for row in rows]
late = SemiCyclicClassifier(time_column="when", random_state=0).fit(features, [row["late"] for row in rows])
print(sc.__file__, late.score(features, [row["late"] for row in rows]))
assert late.score(features, [row["late"] for row in rows]) > 0.9
"""


def main(dist: Path, constraints: Path) -> None:
    """Check the only wheel in a folder."""
    (wheel,) = dist.glob("*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    if size > MAX_BYTES:
        raise SystemExit(f"the wheel has {size:,} bytes, at most {MAX_BYTES:,} are allowed")
    with tempfile.TemporaryDirectory(prefix="semicyclic-wheel-") as folder:
        python = Path(folder) / "env" / "bin" / "python"
        # Neither the tree nor compiled code of earlier runs is to be found.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["NUMBA_CACHE_DIR"] = str(Path(folder) / "cache")

        def run(*command: str) -> None:
            start = time.perf_counter()
            subprocess.run(command, cwd=folder, env=environment, check=True)
            print(f"{time.perf_counter() - start:.1f} s", flush=True)

        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(sys.executable, "-m", "venv", "env")
        run(
            str(python), *pip, "--constraint", str(constraints.resolve()),
            f"{wheel.resolve()}[files,report,sklearn]",
        )  # fmt: skip
        run(str(python), "-m", "semicyclic", "demo", "--out", "demo")
        run(str(python), "-c", FIT)
        if not (Path(folder) / "demo" / "report.html").exists():
            raise SystemExit("the demo has left no report")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
