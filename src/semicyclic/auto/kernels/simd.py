"""SIMD loops over eight lanes, as LLVM intrinsics.

Numba cannot prove that the array of sums does not overlap the weights, so it neither keeps the sums in
registers nor vectorizes over neighboring lanes. A portfolio spends most of its time in these two loops.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

LANES, HALF = 8, 4
FLOAT_BYTES = 4
FLOAT, LONG, SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
# Allow fused multiply-add.
CONTRACT = ("contract",)


def _data_pointer(context: Any, builder: Any, signature: Any, args: Any, number: int) -> Any:
    """Return the data pointer of an array argument."""
    return make_array(signature.args[number])(context, builder, args[number]).data


def _load(builder: Any, pointer: Any, at: Any, count: int) -> Any:
    """Load `count` consecutive floats from index `at`."""
    address = builder.bitcast(builder.gep(pointer, [at]), ir.VectorType(FLOAT, count).as_pointer())
    vector = builder.load(address)
    vector.align = FLOAT_BYTES
    return vector


def _store(builder: Any, value: Any, pointer: Any, at: Any) -> None:
    """Store a vector of floats from index `at`."""
    address = builder.bitcast(builder.gep(pointer, [at]), value.type.as_pointer())
    builder.store(value, address).align = FLOAT_BYTES


def _broadcast(builder: Any, number: Any, count: int) -> Any:
    """Return a vector with `count` copies of a number."""
    undefined = ir.Constant(ir.VectorType(FLOAT, count), ir.Undefined)
    first = builder.insert_element(undefined, number, SHORT(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(SHORT, count), [0] * count))


def _cell(builder: Any, columns: Any, values: Any, p: Any) -> Any:
    """Load the column (as a 64-bit integer) and the value of cell p."""
    column = builder.load(builder.gep(columns, [p]))
    if column.type.width < 64:
        column = builder.zext(column, LONG)
    return column, builder.load(builder.gep(values, [p]))


@intrinsic  # type: ignore[untyped-decorator]
def dot8(
    typingctx: Any,
    table: Any,
    base: Any,
    stride: Any,
    columns: Any,
    values: Any,
    first: Any,
    last: Any,
    out: Any,
) -> Any:  # pragma: no cover - runs inside the compiler
    """Set out[q] to the sum over cells of table[base + column * stride + q] * value, for q from 0 to 7."""
    del typingctx, base, stride, first, last

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights, column_data, value_data, to = (
            _data_pointer(context, builder, signature, args, k) for k in (0, 3, 4, 7)
        )
        _, start, step, _, _, low, high, _ = args
        vector = ir.VectorType(FLOAT, LANES)
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))
        with cgutils.for_range_slice(builder, low, high, LONG(1), intp=LONG) as (p, _):
            column, x = _cell(builder, column_data, value_data, p)
            at = builder.add(start, builder.mul(column, step))
            lanes = _load(builder, weights, at, LANES)
            product = builder.fmul(_broadcast(builder, x, LANES), lanes, flags=CONTRACT)
            builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
        _store(builder, builder.load(total), to, LONG(0))
        return context.get_dummy_value()

    int64 = types.int64
    return types.void(table, int64, int64, columns, values, int64, int64, out), build


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
            _data_pointer(context, builder, signature, args, k) for k in (0, 1, 2, 5, 6)
        )
        first_weight, first_square, first_lag, stride = cgutils.unpack_tuple(builder, args[3])
        columns, values, low, high = cgutils.unpack_tuple(builder, args[4])
        column_data = make_array(signature.args[4][0])(context, builder, columns).data
        value_data = make_array(signature.args[4][1])(context, builder, values).data
        plain, slope = _load(builder, step, LONG(0), HALF), _load(builder, step, LONG(HALF), HALF)
        speed = _load(builder, rate, LONG(HALF), HALF)
        tiny = _broadcast(builder, builder.load(rate), HALF)
        mass_vector = _broadcast(builder, args[7], HALF)
        vector = ir.VectorType(FLOAT, HALF)
        root = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.sqrt.v{HALF}f32"
        )
        with cgutils.for_range_slice(builder, low, high, LONG(1), intp=LONG) as (p, _):
            column, number = _cell(builder, column_data, value_data, p)
            x = _broadcast(builder, number, HALF)
            narrow = builder.mul(column, stride)
            wide = builder.mul(narrow, LONG(2))
            in_weights, in_lag = builder.add(first_weight, wide), builder.add(first_lag, wide)
            in_squares = builder.add(first_square, narrow)
            change = builder.fmul(plain, x)
            gradient = builder.fmul(slope, x)
            square = builder.fadd(
                _load(builder, square_data, in_squares, HALF),
                builder.fmul(gradient, gradient, flags=CONTRACT),
                flags=CONTRACT,
            )
            _store(builder, square, square_data, in_squares)
            length = builder.call(root, [builder.fadd(square, tiny)])
            adapted = builder.fneg(builder.fdiv(builder.fmul(speed, gradient), length))
            for moved, half in ((change, 0), (adapted, HALF)):
                here, there = builder.add(in_weights, LONG(half)), builder.add(in_lag, LONG(half))
                old = _load(builder, weight_data, here, HALF)
                _store(builder, builder.fadd(old, moved), weight_data, here)
                weighted = builder.fmul(mass_vector, moved, flags=CONTRACT)
                old_lag = _load(builder, lag_data, there, HALF)
                _store(builder, builder.fadd(old_lag, weighted, flags=CONTRACT), lag_data, there)
        return context.get_dummy_value()

    int64 = types.int64
    four = types.UniTuple(int64, 4)
    row = types.Tuple((cells[0], cells[1], int64, int64))
    return types.void(vectors, squares, lag, four, row, move, rates, types.float32), build
