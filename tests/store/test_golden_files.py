"""Model files of every format version that was ever written can still be read, with the same content.

A file of the folder `golden` is named CONTENT-VERSION: `table` is a model trained by `semicyclic train` from
CSV, `softmax` has delta-encoded weights in half precision. When the format changes, keep the old files and
add files of the new version.
"""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.csv as arrow_csv
import pytest

import semicyclic as sc
from semicyclic.store import model_file

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.safetensors"))


def version(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def test_every_version_has_its_files() -> None:
    wanted = {
        f"{content}-{number + 1}"
        for content in ("softmax", "table")
        for number in range(model_file.FORMAT.version)
    }
    assert {path.stem for path in FILES} == wanted


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("softmax-*.safetensors")), ids=lambda path: path.stem)
def test_old_files_have_the_content_they_had(path: Path) -> None:
    model, expected = sc.load(path), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    np.testing.assert_array_equal(model.weights, np.array(expected["weights"], model.weights.dtype))
    assert list(model.classes) == expected["classes"]
    assert list(model.fallback) == expected["fallback"]
    assert (None if model.features is None else model.features.to_json()) == expected["features"]
    assert model.provenance == expected["provenance"]
    assert (model.loss.name, model.blocks) == (expected["loss"], expected["blocks"])


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("table-*.safetensors")), ids=lambda path: path.stem)
def test_old_models_predict_for_tables_what_they_did(path: Path) -> None:
    model = sc.load(path)
    table = arrow_csv.read_csv(path.with_suffix(".csv"))
    rows = sc.read(path.with_suffix(".csv"), like=model, ignore=["block", "prediction", "probability"])
    labels = [model.schedule.labels[block] for block in rows.blocks_in(model.schedule)]
    assert labels == table["block"].to_pylist()
    assert model.predict(rows).tolist() == table["prediction"].to_pylist()
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], table["probability"].to_numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "path", [path for path in FILES if version(path) == model_file.FORMAT.version], ids=lambda path: path.stem
)
def test_the_current_format_writes_the_same_bytes(path: Path, tmp_path: Path) -> None:
    stored = re.search(rb'"value":\{"dtype":"F(\d\d)"', path.read_bytes())
    assert stored is not None
    model_file.save(sc.load(path), tmp_path / path.name, dtype=f"float{stored[1].decode()}")
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
