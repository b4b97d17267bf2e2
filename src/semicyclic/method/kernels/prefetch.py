"""Prefetch instruction.

Rows in random order lie anywhere in memory: loading them a few rows ahead hides the latency.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:  # pragma: no cover - runs inside the compiler
    """Begin to load array[index] into the cache; an index outside the array does no harm."""
    del typingctx, index

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        held = make_array(signature.args[0])(context, builder, args[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        place = builder.bitcast(builder.gep(held.data, [args[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        # To be read, to be kept in all caches, data and not code.
        builder.call(ask, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build
