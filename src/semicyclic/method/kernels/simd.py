"""Dot products of a row with many models at once, kept in SIMD registers, as an LLVM intrinsic.

Numba cannot keep an array of sums in registers during a loop: the array might overlap the weights, so it is
written back at every cell. This one loop is therefore written as LLVM vector instructions. It makes the
evaluation of many models, and the training of many candidates, fast.
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
LONG, SHORT = ir.IntType(64), ir.IntType(32)
# Allow fused multiply-add.
CONTRACT = ("contract",)


def data_pointer(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the data pointer of an array."""
    return make_array(array_type)(context, builder, array).data


def load(builder: Any, pointer: Any, at: Any, count: int) -> Any:
    """Load `count` consecutive numbers from index `at`."""
    number = pointer.type.pointee
    address = builder.bitcast(builder.gep(pointer, [at]), ir.VectorType(number, count).as_pointer())
    vector = builder.load(address)
    vector.align = _size(number)
    return vector


def store(builder: Any, value: Any, pointer: Any, at: Any) -> None:
    """Store a vector of numbers from index `at`."""
    address = builder.bitcast(builder.gep(pointer, [at]), value.type.as_pointer())
    builder.store(value, address).align = _size(pointer.type.pointee)


def broadcast(builder: Any, number: Any, count: int) -> Any:
    """Return a vector with `count` copies of a number."""
    undefined = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    first = builder.insert_element(undefined, number, SHORT(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(SHORT, count), [0] * count))


def load_cell(builder: Any, columns: Any, values: Any, p: Any) -> Any:
    """Load the column (as a 64-bit integer) and the value of cell p."""
    column = builder.load(builder.gep(columns, [p]))
    if column.type.width < 64:
        column = builder.zext(column, LONG)
    return column, builder.load(builder.gep(values, [p]))


def _size(number: Any) -> int:
    return 8 if isinstance(number, ir.DoubleType) else 4


def dot(lanes: int) -> Any:  # pragma: no cover - runs inside the compiler
    """Return a function that multiplies a row with `lanes` neighboring vectors of a table.

    The function sets out[q] = table[start + q] + sum over cells first..last-1 of
    value * table[base + column * stride + q], for q from 0 to lanes - 1; the first term is 0 if start < 0.
    Arrays are contiguous, and `table` is indexed as if it were flat.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def dot_product(
        typingctx: Any,
        table: Any,
        start: Any,
        base: Any,
        stride: Any,
        columns: Any,
        values: Any,
        first: Any,
        last: Any,
        out: Any,
    ) -> Any:
        del typingctx, start, base, stride, first, last

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            weights, column_data, value_data, to = (
                data_pointer(context, builder, signature.args[k], args[k]) for k in (0, 4, 5, 8)
            )
            _, begin, origin, step, _, _, low, high, _ = args
            number = context.get_value_type(signature.args[0].dtype)
            count = VECTOR // _size(number)
            zero = ir.Constant(ir.VectorType(number, count), [0.0] * count)
            parts = [LONG(k) for k in range(0, lanes, count)]
            sums = [cgutils.alloca_once_value(builder, zero) for _ in parts]
            with builder.if_then(builder.icmp_signed(">=", begin, LONG(0))):
                for total, part in zip(sums, parts, strict=True):
                    builder.store(load(builder, weights, builder.add(begin, part), count), total)
            with cgutils.for_range_slice(builder, low, high, LONG(1), intp=LONG) as (p, _):
                column, x = load_cell(builder, column_data, value_data, p)
                at = builder.add(origin, builder.mul(column, step))
                xs = broadcast(builder, x, count)
                for total, part in zip(sums, parts, strict=True):
                    product = builder.fmul(
                        xs, load(builder, weights, builder.add(at, part), count), flags=CONTRACT
                    )
                    builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
            for total, part in zip(sums, parts, strict=True):
                store(builder, builder.load(total), to, part)
            return context.get_dummy_value()

        int64 = types.int64
        whole = table, int64, int64, int64, columns, values, int64, int64, out
        return types.void(*whole), build

    return dot_product


dot64 = dot(LANES)
