"""Dot products of a row with 64 models, kept in SIMD registers.

Numba cannot keep an array of sums in registers during a loop: the array might overlap the weights, so it is
written back at every cell. This one loop is therefore written as LLVM vector instructions. It makes the
evaluation of many models fast.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

# Number of models scored at a time.
LANES = 64
# Bytes of a vector; the machine's own may be wider or narrower.
VECTOR = 32


@intrinsic  # type: ignore[untyped-decorator]
def dot_lanes(
    typingctx: Any, weights: Any, indices: Any, values: Any, low: Any, high: Any, score: Any
) -> Any:  # pragma: no cover - runs inside the compiler
    """score[q] = weights[d, q] + sum over cells low..high-1 of values * weights[indices, q].

    weights: [d+1, LANES], the intercept last. All arrays contiguous.
    """
    del typingctx, low, high

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w, index, value, out = (
            make_array(signature.args[k])(context, builder, args[k]) for k in (0, 1, 2, 5)
        )
        number = context.get_value_type(signature.args[0].dtype)
        size = signature.args[0].dtype.bitwidth // 8
        vector = ir.VectorType(number, VECTOR // size)
        long, short = ir.IntType(64), ir.IntType(32)
        parts = range(LANES * size // VECTOR)

        def places(pointer: Any, at: Any) -> list[Any]:
            start = builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())
            return [builder.gep(start, [long(k)]) for k in parts]

        def load(pointer: Any) -> Any:
            found = builder.load(pointer)
            found.align = size
            return found

        sums = [cgutils.alloca_once(builder, vector) for _ in parts]
        last = builder.sub(cgutils.unpack_tuple(builder, w.shape)[0], long(1))
        for total, place in zip(sums, places(w.data, builder.mul(last, long(LANES))), strict=True):
            builder.store(load(place), total)
        with cgutils.for_range_slice(builder, args[3], args[4], long(1), intp=long) as (p, _):
            column = builder.load(builder.gep(index.data, [p]))
            if column.type.width < 64:
                column = builder.zext(column, long)
            none = ir.Constant(vector, ir.Undefined)
            x = builder.insert_element(none, builder.load(builder.gep(value.data, [p])), short(0))
            x = builder.shuffle_vector(
                x, none, ir.Constant(ir.VectorType(short, vector.count), [0] * vector.count)
            )
            for total, place in zip(sums, places(w.data, builder.mul(column, long(LANES))), strict=True):
                product = builder.fmul(x, load(place), flags=("contract",))
                builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        for total, place in zip(sums, places(out.data, long(0)), strict=True):
            builder.store(builder.load(total), place).align = size
        return context.get_dummy_value()

    return types.void(weights, indices, values, types.int64, types.int64, score), build
