"""Differences between neighboring blocks' weights, compared bit by bit."""

from typing import Any

from semicyclic.jit import jit

# Number of cells compared at a time across all blocks: they stay in the cache.
STRETCH = 4096


@jit
def count_changes(bits: Any, by_cell: Any, changed: Any, held: Any) -> Any:
    """changed[i]: in how many cells block i differs from block i - 1; held[i]: how many are not 0.

    bits: [m, cells]. by_cell: whether the blocks of a cell lie side by side in memory.
    """
    blocks, cells = bits.shape
    if by_cell:
        for j in range(cells):
            for i in range(blocks):
                held[i] += bits[i, j] != 0
                if i > 0:
                    changed[i] += bits[i, j] != bits[i - 1, j]
        return
    for low in range(0, cells, STRETCH):
        for i in range(blocks):
            for j in range(low, min(low + STRETCH, cells)):
                held[i] += bits[i, j] != 0
                if i > 0:
                    changed[i] += bits[i, j] != bits[i - 1, j]


@jit
def list_changes(bits: Any, by_cell: Any, kind: Any, first: Any, column: Any, value: Any) -> Any:
    """Fill the list of changes: of block i at first[i]:first[i+1], by ascending cell.

    kind[i]: 0 where block i lists its differences from block i - 1, 1 where it lists all its
    cells that are not 0, 2 where it lists nothing.
    """
    blocks, cells = bits.shape
    at = first[:-1].copy()
    stretch = 1 if by_cell else STRETCH
    for low in range(0, cells, stretch):
        for i in range(blocks):
            if kind[i] == 2:
                continue
            for j in range(low, min(low + stretch, cells)):
                before = bits[i, j] * 0 if kind[i] == 1 else bits[i - 1, j]
                if bits[i, j] != before:
                    column[at[i]] = j
                    value[at[i]] = bits[i, j]
                    at[i] += 1
