"""`Chains`: which chains a federated run has, and `ChainModel`, the current model of one."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from flwr.app import ArrayRecord

from semicyclic.adapters.flower.serialization import decode
from semicyclic.types import Array

# The chain that all blocks share; a block's own chain is called by its number.
SHARED = "shared"


class Chains(Enum):
    """Which chains a run has."""

    SHARED = "one chain for all blocks, averaged for each"
    SEPARATE = "a chain for every block"
    HEDGED = "both, hedged for each block; every client trains both"
    SPLIT = "both, hedged for each block; every client trains one of them"

    @property
    def is_hedged(self) -> bool:
        """Whether a block has the shared chain and its own, with a hedge between them."""
        return self in (Chains.HEDGED, Chains.SPLIT)

    def names(self, blocks: int) -> list[str]:
        """All chains of a run."""
        shared = [] if self is Chains.SEPARATE else [SHARED]
        return shared if self is Chains.SHARED else [*shared, *map(str, range(blocks))]

    def moving(self, block: int) -> tuple[tuple[str, str], ...]:
        """The chains that move in a round of a block: what kind each is of, and its name."""
        shared, own = ("shared", SHARED), ("own", str(block))
        return {Chains.SHARED: (shared,), Chains.SEPARATE: (own,)}.get(self, (shared, own))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The sequences of models that are averaged; the last one is what to deploy."""
        kinds = {Chains.SHARED: ("shared",), Chains.SEPARATE: ("own",)}
        return kinds.get(self, ("shared", "own", "hedged"))


class ChainModel(NamedTuple):
    """A chain's model as it is sent, and its arrays, which share the same bytes."""

    record: ArrayRecord
    values: Mapping[str, Array]

    @staticmethod
    def of(arrays: ArrayRecord) -> "ChainModel":
        return ChainModel(arrays, {name: decode(array) for name, array in arrays.items()})
