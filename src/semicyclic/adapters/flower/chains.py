"""`Chains`: the chains that a federated run trains, and `ChainModel`: the current model of one chain."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from flwr.app import ArrayRecord

from semicyclic.adapters.flower.serialization import decode
from semicyclic.types import Array

# Name of the chain that all blocks share. The chain of a single block is named by the block's number.
SHARED = "shared"


class Chains(Enum):
    """Chains of models that a run trains.

    Attributes
    ----------
    SHARED
        One chain for all blocks, with one mean per block.
    SEPARATE
        One chain per block.
    HEDGED
        A shared chain and one chain per block, with a hedge between them. Every client trains both.
    SPLIT
        Like HEDGED, but every client trains one of the two chains.
    """

    SHARED = "one chain for all blocks, averaged for each"
    SEPARATE = "a chain for every block"
    HEDGED = "both, hedged for each block; every client trains both"
    SPLIT = "both, hedged for each block; every client trains one of them"

    @property
    def is_hedged(self) -> bool:
        """True if each block has both the shared chain and its own, with a hedge between them."""
        return self in (Chains.HEDGED, Chains.SPLIT)

    def names(self, blocks: int) -> list[str]:
        """Return the names of all chains of a run with `blocks` blocks."""
        shared = [] if self is Chains.SEPARATE else [SHARED]
        return shared if self is Chains.SHARED else [*shared, *map(str, range(blocks))]

    def moving(self, block: int) -> tuple[tuple[str, str], ...]:
        """Return (kind, name) of each chain that a round of `block` updates; kind is "shared" or "own"."""
        shared, own = ("shared", SHARED), ("own", str(block))
        return {Chains.SHARED: (shared,), Chains.SEPARATE: (own,)}.get(self, (shared, own))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of model sequences that are averaged; the last one is the default read-out."""
        kinds = {Chains.SHARED: ("shared",), Chains.SEPARATE: ("own",)}
        return kinds.get(self, ("shared", "own", "hedged"))


class ChainModel(NamedTuple):
    """Model of a chain: the record sent to clients, and its arrays, which share the record's bytes."""

    record: ArrayRecord
    values: Mapping[str, Array]

    @staticmethod
    def of(arrays: ArrayRecord) -> "ChainModel":
        """Return the model of a record, decoded without copying."""
        return ChainModel(arrays, {name: decode(array) for name, array in arrays.items()})
