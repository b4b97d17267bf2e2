"""`load`: opens a model file, or the model of a run directory."""

from os import PathLike
from pathlib import Path

from semicyclic.method.model import Pluralistic
from semicyclic.store.model_file import read_model
from semicyclic.tables.encoding import TableEncoding

# Name of the model file in the output folder of a run.
MODEL = "model.safetensors"


def load(path: str | PathLike[str], *, block: int | None = None) -> Pluralistic:
    """Open a model file that `save` wrote, or the model of a `semicyclic train` folder.

    Parameters
    ----------
    path : path
        The model file, or the folder.
    block : int, optional
        Read only this block, as a model with a single block. Of the weights, only those of the blocks that
        share its key frame are read and verified.

    Returns
    -------
    Pluralistic
        The model. One that was trained from a table predicts for tables, and for single rows as dicts.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or the folder has no model yet.
    Unreadable
        If the file is damaged, or not a model of a supported version.
    IndexError
        If the model does not have the block.
    TypeError
        If `block` is not an integer.
    """
    return read_model(model_path(path), TableEncoding, block=block)


def model_path(path: str | PathLike[str]) -> Path:
    """Return the model file of a run directory, or the file itself."""
    file = Path(path)
    if not file.is_dir():
        return file
    if not (file / MODEL).is_file():
        raise FileNotFoundError(f"{file}: there is no model in this folder yet")
    return file / MODEL
