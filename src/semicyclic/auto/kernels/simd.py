"""SIMD loops over eight lanes, as LLVM intrinsics; a portfolio spends most of its time in these."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from semicyclic.method.kernels.simd import (
    CONTRACT,
    LONG,
    broadcast,
    data_pointer,
    dot,
    load,
    load_cell,
    store,
)

LANES, HALF = 8, 4
dot8 = dot(LANES)


@intrinsic  # type: ignore[untyped-decorator]
def move8(
    typingctx: Any,
    vectors: Any,
    squares: Any,
    lag: Any,
    offsets: Any,
    cells: Any,
    move: Any,
    rates: Any,
    mass: Any,
) -> Any:  # pragma: no cover - runs inside the compiler
    """Step eight lanes of one vector: the first four by SGD with constant steps, the others by AdaGrad.

    offsets: index of the first lane in vectors, squares and lag, and the distance of columns in squares (in
        the others it is twice that).
    cells: (columns, values, first, last).
    move: [8], times a cell's value: the step in the constant lanes, the gradient in the AdaGrad lanes.
    rates: [8], the last four are AdaGrad's; the first is added to the squares to avoid 0 / 0.
    mass: the change of each weight times this is added to lag.
    """
    del typingctx, offsets, mass

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weight_data, square_data, lag_data, step, rate = (
            data_pointer(context, builder, signature.args[k], args[k]) for k in (0, 1, 2, 5, 6)
        )
        first_weight, first_square, first_lag, stride = cgutils.unpack_tuple(builder, args[3])
        columns, values, low, high = cgutils.unpack_tuple(builder, args[4])
        column_data = data_pointer(context, builder, signature.args[4][0], columns)
        value_data = data_pointer(context, builder, signature.args[4][1], values)
        plain, slope = load(builder, step, LONG(0), HALF), load(builder, step, LONG(HALF), HALF)
        speed = load(builder, rate, LONG(HALF), HALF)
        tiny = broadcast(builder, builder.load(rate), HALF)
        mass_vector = broadcast(builder, args[7], HALF)
        vector = ir.VectorType(ir.FloatType(), HALF)
        root = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.sqrt.v{HALF}f32"
        )
        with cgutils.for_range_slice(builder, low, high, LONG(1), intp=LONG) as (p, _):
            column, number = load_cell(builder, column_data, value_data, p)
            x = broadcast(builder, number, HALF)
            narrow = builder.mul(column, stride)
            wide = builder.mul(narrow, LONG(2))
            in_weights, in_lag = builder.add(first_weight, wide), builder.add(first_lag, wide)
            in_squares = builder.add(first_square, narrow)
            change = builder.fmul(plain, x)
            gradient = builder.fmul(slope, x)
            square = builder.fadd(
                load(builder, square_data, in_squares, HALF),
                builder.fmul(gradient, gradient, flags=CONTRACT),
                flags=CONTRACT,
            )
            store(builder, square, square_data, in_squares)
            length = builder.call(root, [builder.fadd(square, tiny)])
            adapted = builder.fneg(builder.fdiv(builder.fmul(speed, gradient), length))
            for moved, half in ((change, 0), (adapted, HALF)):
                here, there = builder.add(in_weights, LONG(half)), builder.add(in_lag, LONG(half))
                old = load(builder, weight_data, here, HALF)
                store(builder, builder.fadd(old, moved), weight_data, here)
                weighted = builder.fmul(mass_vector, moved, flags=CONTRACT)
                old_lag = load(builder, lag_data, there, HALF)
                store(builder, builder.fadd(old_lag, weighted, flags=CONTRACT), lag_data, there)
        return context.get_dummy_value()

    int64 = types.int64
    four = types.UniTuple(int64, 4)
    row = types.Tuple((cells[0], cells[1], int64, int64))
    return types.void(vectors, squares, lag, four, row, move, rates, types.float32), build
