"""`BlockModels`: one set of named arrays per block, and the schedule that selects among them."""

import json
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
from semicyclic.store.atomic import write_tensors
from semicyclic.types import Array

FORMAT = "semicyclic-block-models"


@dataclass(frozen=True, eq=False)
class BlockModels:
    """(w^1..w^m) of any network: `models[i]` are the named arrays of block i.

    fallback: the blocks that were never visited; they hold the mean of all.
    read_out: how they were read: "mean", "last", "tail:2", "best".
    chosen: for "best", which model each block has: its chain, read-out and block, as in "shared/last/0".
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
        """The model of a block for `torch.nn.Module.load_state_dict`: tensors of its own."""
        import torch

        return {name: torch.from_numpy(np.array(value)) for name, value in self.models[block].items()}

    def record(self, block: int) -> ArrayRecord:
        """The model of a block as Flower's record."""
        return record({name: np.array(value) for name, value in self.models[block].items()})

    def arrays(self, block: int) -> dict[str, Array]:
        """The named arrays of a block, as copies that may be changed."""
        return {name: np.array(value) for name, value in self.models[block].items()}

    def at(self, when: object, **naive: Any) -> Mapping[str, Array]:
        """The model in force at a moment: an aware datetime, or epoch seconds."""
        found = self.schedule.locate([when], **naive)
        return self.models[int(found.block[0])]

    def personal(self, profile: npt.ArrayLike) -> dict[str, Array]:
        """The model for a client that is there in block i with probability profile[i]: sum_i a(i) w^i.

        It keeps the guarantee (SPEC G2) where the loss is convex in the arrays; for a network, average the
        predictions of the blocks' models instead, or draw a block.
        """
        share = distribution(profile, len(self.models))
        found: dict[str, Array] = {}
        for name, first in self.models[0].items():
            mixed = sum(share[i] * self.models[i][name].astype(np.float64) for i in np.flatnonzero(share))
            found[name] = as_type(np.asarray(mixed), first.dtype)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write all of it into one safetensors file, whole or not at all; arrays are named `block/name`."""
        told = {
            "format": FORMAT,
            "schedule": self.schedule.to_json(),
            "fallback": list(self.fallback),
            "read_out": self.read_out,
            "chosen": list(self.chosen),
            "names": list(self.models[0]),
        }
        tensors = {
            f"{block}/{name}": np.ascontiguousarray(value).reshape(value.shape)
            for block, model in enumerate(self.models)
            for name, value in model.items()
        }
        write_tensors(Path(path), tensors, {"semicyclic": json.dumps(told)})

    @staticmethod
    def load(path: str | PathLike[str]) -> "BlockModels":
        """What `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as file:
                told = json.loads((file.metadata() or {}).get("semicyclic", "null"))
                if not isinstance(told, dict) or told.get("format") != FORMAT:
                    raise ValueError(f"{path}: not a file of block models")
                schedule = Schedule.from_json(told["schedule"])
                models = tuple(
                    {name: file.get_tensor(f"{block}/{name}") for name in told["names"]}
                    for block in range(schedule.blocks)
                )
        except SafetensorError as error:
            raise ValueError(f"{path}: not a file of block models: {error}") from None
        chosen = tuple(told.get("chosen", ()))
        return BlockModels(schedule, models, tuple(told["fallback"]), told["read_out"], chosen)


def distribution(profile: npt.ArrayLike, blocks: int) -> Array:
    """A client's availability as a distribution over blocks, checked and summing to one."""
    share = np.asarray(profile, dtype=np.float64)
    if share.shape != (blocks,):
        raise ValueError(f"a profile has {share.size} numbers: it needs {blocks}, one for each block")
    if not np.isfinite(share).all() or (share < 0).any():
        raise ValueError("a profile holds numbers that are negative or not finite")
    if abs(share.sum() - 1.0) > 1e-3:
        raise ValueError(f"a profile sums to {share.sum():.6g}: it must be a distribution over blocks")
    # What is next to nothing is nothing, or it would be lost in a sum and be neither.
    share = np.where(share < 1e-9, 0.0, share)
    return np.asarray(share / share.sum())


def uniform(blocks: int) -> Array:
    """A client that is there in every block alike."""
    return np.full(blocks, 1.0 / blocks)


__all__: Sequence[str] = ["BlockModels", "distribution", "uniform"]
