"""Vectors of eight lanes as LLVM intrinsics.

Numba cannot know that an array of sums does not overlap the weights, so it neither keeps the sums in
registers nor joins neighbouring lanes. These two loops are where a portfolio spends its time.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

LANES, HALF = 8, 4
SIZE = 4  # bytes of a single-precision number
FLOAT, LONG, SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
FAST = ("contract",)


def _data(context: Any, builder: Any, signature: Any, args: Any, number: int) -> Any:
    return make_array(signature.args[number])(context, builder, args[number]).data


def _load(builder: Any, pointer: Any, at: Any, count: int) -> Any:
    place = builder.bitcast(builder.gep(pointer, [at]), ir.VectorType(FLOAT, count).as_pointer())
    found = builder.load(place)
    found.align = SIZE
    return found


def _store(builder: Any, value: Any, pointer: Any, at: Any) -> None:
    place = builder.bitcast(builder.gep(pointer, [at]), value.type.as_pointer())
    builder.store(value, place).align = SIZE


def _spread(builder: Any, number: Any, count: int) -> Any:
    """A vector of equal numbers."""
    none = ir.Constant(ir.VectorType(FLOAT, count), ir.Undefined)
    first = builder.insert_element(none, number, SHORT(0))
    return builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(SHORT, count), [0] * count))


def _cell(builder: Any, columns: Any, values: Any, p: Any) -> Any:
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
    """out[q] = sum over cells of table[base + column * stride + q] * value, for eight neighbours q."""
    del typingctx, base, stride, first, last

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights, column_data, value_data, to = (
            _data(context, builder, signature, args, k) for k in (0, 3, 4, 7)
        )
        _, start, step, _, _, low, high, _ = args
        vector = ir.VectorType(FLOAT, LANES)
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))
        with cgutils.for_range_slice(builder, low, high, LONG(1), intp=LONG) as (p, _):
            column, x = _cell(builder, column_data, value_data, p)
            at = builder.add(start, builder.mul(column, step))
            product = builder.fmul(_spread(builder, x, LANES), _load(builder, weights, at, LANES), flags=FAST)
            builder.store(builder.fadd(builder.load(total), product, flags=FAST), total)
        _store(builder, builder.load(total), to, LONG(0))
        return context.get_dummy_value()

    whole = types.int64
    return types.void(table, whole, whole, columns, values, whole, whole, out), build


@intrinsic  # type: ignore[untyped-decorator]
def move8(
    typingctx: Any,
    vectors: Any,
    squares: Any,
    lag: Any,
    places: Any,
    cells: Any,
    move: Any,
    rates: Any,
    mass: Any,
) -> Any:  # pragma: no cover - runs inside the compiler
    """Eight lanes of one vector take a step: the first four along the slope, the others of AdaGrad.

    places: where the lanes begin in vectors, squares and lag, and how far columns are apart in squares (in
    the others twice as far). cells: (columns, values, first, last). move: what each lane's step is, times a
    cell's value. rates: [8], of which the last four are AdaGrad's, and the first is what keeps 0 / 0 at 0.
    mass: how much of a change is to be taken from the mean of the visit.
    """
    del typingctx, places, mass

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        held, beside, behind, step, rate = (
            _data(context, builder, signature, args, k) for k in (0, 1, 2, 5, 6)
        )
        at_held, at_beside, at_behind, stride = cgutils.unpack_tuple(builder, args[3])
        columns, values, low, high = cgutils.unpack_tuple(builder, args[4])
        column_data = make_array(signature.args[4][0])(context, builder, columns).data
        value_data = make_array(signature.args[4][1])(context, builder, values).data
        plain, slope = _load(builder, step, LONG(0), HALF), _load(builder, step, LONG(HALF), HALF)
        speed = _load(builder, rate, LONG(HALF), HALF)
        tiny = _spread(builder, builder.load(rate), HALF)
        weight = _spread(builder, args[7], HALF)
        vector = ir.VectorType(FLOAT, HALF)
        root = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.sqrt.v{HALF}f32"
        )
        with cgutils.for_range_slice(builder, low, high, LONG(1), intp=LONG) as (p, _):
            column, number = _cell(builder, column_data, value_data, p)
            x = _spread(builder, number, HALF)
            narrow = builder.mul(column, stride)
            wide = builder.mul(narrow, LONG(2))
            at, to = builder.add(at_held, wide), builder.add(at_behind, wide)
            other = builder.add(at_beside, narrow)
            change = builder.fmul(plain, x)
            gradient = builder.fmul(slope, x)
            square = builder.fadd(
                _load(builder, beside, other, HALF), builder.fmul(gradient, gradient, flags=FAST), flags=FAST
            )
            _store(builder, square, beside, other)
            length = builder.call(root, [builder.fadd(square, tiny)])
            adapted = builder.fneg(builder.fdiv(builder.fmul(speed, gradient), length))
            for moved, half in ((change, 0), (adapted, HALF)):
                here, there = builder.add(at, LONG(half)), builder.add(to, LONG(half))
                _store(builder, builder.fadd(_load(builder, held, here, HALF), moved), held, here)
                late = builder.fmul(weight, moved, flags=FAST)
                _store(
                    builder,
                    builder.fadd(_load(builder, behind, there, HALF), late, flags=FAST),
                    behind,
                    there,
                )
        return context.get_dummy_value()

    whole = types.int64
    four = types.UniTuple(whole, 4)
    row = types.Tuple((cells[0], cells[1], whole, whole))
    return types.void(vectors, squares, lag, four, row, move, rates, types.float32), build
