"""`BlockModels`: one set of named arrays per block, and the schedule that selects among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord

from semicyclic.adapters.flower.averages import as_type
from semicyclic.adapters.flower.serialization import record
from semicyclic.schedule.schedule import Schedule
from semicyclic.store.sealed import FileFormat, open_sealed, write_sealed
from semicyclic.types import Array

FORMAT = FileFormat("semicyclic-block-models", "about", version=1, oldest=1, what="a file of block models")


@dataclass(frozen=True, eq=False)
class BlockModels:
    """Models (w^1..w^m) of a run: the named arrays of one network per block.

    Parameters
    ----------
    schedule : Schedule
        Schedule with m blocks.
    models : tuple of mapping from str to ndarray
        `models[i]` holds the named arrays of block i.
    fallback : tuple of int, default ()
        Blocks that were never visited. For "mean" and "tail" they hold the mean over all blocks, for "last"
        the current model.
    read_out : str, default "mean"
        Read-out that produced the models: "mean", "last", "tail:2", "best".
    chosen : tuple of str, default ()
        For "best", the candidate of each block as chain, read-out and block: "shared/last/0".

    Raises
    ------
    ValueError
        If the number of models is not the number of blocks.
    """

    schedule: Schedule
    models: tuple[Mapping[str, Array], ...]
    fallback: tuple[int, ...] = ()
    read_out: str = "mean"
    chosen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.models) != self.schedule.blocks:
            raise ValueError(f"{len(self.models)} models for a schedule of {self.schedule.blocks} blocks")

    def state_dict(self, block: int) -> dict[str, Any]:
        """Return the model of a block for `torch.nn.Module.load_state_dict`.

        Returns
        -------
        dict from str to torch.Tensor
            Copies of the block's arrays.
        """
        import torch

        return {name: torch.from_numpy(np.array(value)) for name, value in self.models[block].items()}

    def record(self, block: int) -> ArrayRecord:
        """Return a copy of a block's model as a Flower `ArrayRecord`."""
        return record({name: np.array(value) for name, value in self.models[block].items()})

    def arrays(self, block: int) -> dict[str, Array]:
        """Return copies of a block's named arrays, which the caller may modify."""
        return {name: np.array(value) for name, value in self.models[block].items()}

    def at(self, when: object, **naive: Any) -> Mapping[str, Array]:
        """Return the model of the block that contains a time.

        Parameters
        ----------
        when : datetime or float
            Time zone aware datetime, or seconds since the epoch.
        **naive
            Options of `Schedule.locate` for times without a zone.

        Returns
        -------
        mapping from str to ndarray
            The block's arrays, not copied.
        """
        located = self.schedule.locate([when], **naive)
        return self.models[int(located.block[0])]

    def personal(self, profile: npt.ArrayLike) -> dict[str, Array]:
        """Return the model of one client, weighted by its availability: sum_i a(i) w^i.

        The guarantee (docs/math.md#soft-prediction) holds if the loss is convex in the arrays. For a neural
        network, average the predictions of the blocks' models instead, or draw a block.

        Parameters
        ----------
        profile : array-like of shape (m,)
            Probability a(i) that the client is available in block i.

        Returns
        -------
        dict from str to ndarray
            Weighted mean of the blocks' arrays, in their dtypes.

        Raises
        ------
        ValueError
            If `profile` is not a distribution over the m blocks.
        """
        share = distribution(profile, len(self.models))
        mixture: dict[str, Array] = {}
        for name, first in self.models[0].items():
            mixed = sum(share[i] * self.models[i][name].astype(np.float64) for i in np.flatnonzero(share))
            mixture[name] = as_type(np.asarray(mixed), first.dtype)
        return mixture

    def save(self, path: str | PathLike[str]) -> None:
        """Write models and schedule atomically to the safetensors file `path`, arrays as `block/name`."""
        about = {
            "schedule": self.schedule.to_json(),
            "fallback": list(self.fallback),
            "read_out": self.read_out,
            "chosen": list(self.chosen),
            "names": list(self.models[0]),
        }
        models = enumerate(self.models)
        tensors = {f"{block}/{name}": value for block, model in models for name, value in model.items()}
        write_sealed(Path(path), FORMAT, tensors, about)

    @staticmethod
    def load(path: str | PathLike[str]) -> "BlockModels":
        """Read the file `path` that `save` wrote.

        Raises
        ------
        Unreadable
            If the file is damaged or does not hold block models.
        FileNotFoundError
            If the file does not exist.
        """
        with open_sealed(path, FORMAT) as sealed:
            about = sealed.about
            schedule = Schedule.from_json(about["schedule"])
            models = tuple(
                {name: sealed.tensor(f"{block}/{name}") for name in about["names"]}
                for block in range(schedule.blocks)
            )
            fallback, chosen = tuple(about["fallback"]), tuple(about["chosen"])
            return BlockModels(schedule, models, fallback, about["read_out"], chosen)


def distribution(profile: npt.ArrayLike, blocks: int) -> Array:
    """Return a client's availability, shape (blocks,), normalized to sum 1; raise if not a distribution."""
    share = np.asarray(profile, dtype=np.float64)
    if share.shape != (blocks,):
        raise ValueError(f"a profile has {share.size} numbers: it needs {blocks}, one for each block")
    if not np.isfinite(share).all() or (share < 0).any():
        raise ValueError("a profile holds numbers that are negative or not finite")
    if abs(share.sum() - 1.0) > 1e-3:
        raise ValueError(f"a profile sums to {share.sum():.6g}: it must be a distribution over blocks")
    # Set tiny values to zero: they would be lost in a sum and yet count as positive.
    share = np.where(share < 1e-9, 0.0, share)
    return np.asarray(share / share.sum())


def uniform(blocks: int) -> Array:
    """Return the availability of a client that is equally available in every block."""
    return np.full(blocks, 1.0 / blocks)


__all__: Sequence[str] = ["BlockModels", "distribution", "uniform"]
