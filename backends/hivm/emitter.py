"""Builds the body of an HIVM function: constants, arithmetic on indices, and where npu values are in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    i64,
)
from xdsl.dialects.scf import ForOp
from xdsl.dialects.scf import YieldOp as ScfYieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialects.affine import Expr, Range
from ...dialects.dtypes import element_type, signed
from ...dialects.hivm.attributes import AddressSpace
from ...dialects.npu.types import row_strides

INDEX = IndexType()

Number = int | SSAValue
"""A size or an offset: known, or computed by the kernel."""


class FunctionEmitter:
    """The function that is being built. Ops go to the end of the innermost open block; constants to the top."""

    def __init__(self, arguments: Sequence[Attribute]) -> None:
        self.top = Block(arg_types=arguments)
        self.block = self.top
        self.last_constant: Operation | None = None
        self.indices: dict[SSAValue, Number] = {}
        """What stands for the index values of the npu kernel."""
        self.ranges: dict[SSAValue, Range] = {}
        """The least and the greatest value of each of them."""
        self._constants: dict[tuple[Any, Attribute], SSAValue] = {}
        self._known: list[dict[Any, SSAValue]] = [{}]

    # -- building ----------------------------------------------------------------------------------------------

    def add(self, op: Operation) -> Operation:
        self.block.add_op(op)
        return op

    def value(self, op: Operation) -> SSAValue:
        """The one result of an op that is added."""
        return self.add(op).results[0]

    def once(self, key: Any, op: Any) -> SSAValue:
        """The value that `op()` makes, or has made before in a block that is still open."""
        for known in self._known:
            if key in known:
                return known[key]
        made = self._known[-1][key] = op()
        return made

    @contextmanager
    def loop(self, index: SSAValue, first: int, last: int, step: int) -> Iterator[None]:
        """What is built within is the body of a loop over an index of the npu kernel."""
        trips = max(0, -(-(last - first) // step))
        self.ranges[index] = (first, first + max(trips - 1, 0) * step)
        with self._body(first, last, step) as self.indices[index]:
            yield

    @contextmanager
    def counted(self, count: Number) -> Iterator[SSAValue]:
        """What is built within is the body of a loop of its own; gives its counter."""
        with self._body(0, count, 1) as counter:
            yield counter

    @contextmanager
    def _body(self, first: int, last: Number, step: int) -> Iterator[SSAValue]:
        lower, upper, by = (self.index(n) for n in (first, last, step))
        body = Block(arg_types=[INDEX])
        self.add(ForOp(lower, upper, by, [], Region(body)))
        outer, self.block = self.block, body
        self._known.append({})
        yield body.args[0]
        self.add(ScfYieldOp())
        self._known.pop()
        self.block = outer

    # -- numbers -----------------------------------------------------------------------------------------------

    def constant(self, value: float, kind: Attribute) -> SSAValue:
        """A constant of the type, at the top of the function."""
        key = (repr(value), kind)
        found = self._constants.get(key)
        if found is None:
            if isinstance(kind, IntegerType | IndexType):
                op = arith.ConstantOp(IntegerAttr(int(value), kind))
            else:
                assert isinstance(kind, AnyFloat)
                op = arith.ConstantOp(FloatAttr(float(value), kind))
            if self.last_constant is not None:
                self.top.insert_op_after(op, self.last_constant)
            elif self.top.first_op is not None:
                self.top.insert_op_before(op, self.top.first_op)
            else:
                self.top.add_op(op)
            self.last_constant = op
            found = self._constants[key] = op.result
        return found

    def index(self, number: Number) -> SSAValue:
        return self.constant(number, INDEX) if isinstance(number, int) else number

    def _binary(self, kind: Callable[[SSAValue, SSAValue], Operation], a: SSAValue, b: SSAValue) -> SSAValue:
        return self.once((kind, a, b), lambda: self.value(kind(a, b)))

    def plus(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._binary(arith.AddiOp, self.index(a), self.index(b))

    def minus(self, a: Number, b: Number) -> Number:
        if isinstance(b, int):
            return self.plus(a, -b)
        return self._binary(arith.SubiOp, self.index(a), b)

    def times(self, a: Number, factor: int) -> Number:
        if isinstance(a, int):
            return a * factor
        return a if factor == 1 else self._binary(arith.MuliOp, a, self.index(factor))

    def over(self, a: Number, divisor: int) -> Number:
        """Quotient of a number that is not negative."""
        if isinstance(a, int):
            return a // divisor
        return a if divisor == 1 else self._binary(arith.DivSIOp, a, self.index(divisor))

    def modulo(self, a: Number, divisor: int) -> Number:
        """Remainder of a number that is not negative."""
        if isinstance(a, int):
            return a % divisor
        return 0 if divisor == 1 else self._binary(arith.RemSIOp, a, self.index(divisor))

    def largest(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self._binary(arith.MaxSIOp, self.index(a), self.index(b))

    def least(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self._binary(arith.MinSIOp, self.index(a), self.index(b))

    def linear(self, expr: Expr) -> Number:
        """What an expression over indices of the npu kernel is."""
        total: Number = 0
        for variable, coefficient in expr.terms:
            total = self.plus(total, self.times(self.indices[variable], coefficient))
        return self.plus(total, expr.constant)

    def span(self, expr: Expr) -> Range:
        """The least and the greatest value of an expression over indices of the npu kernel."""
        found: Any = expr.span(self.ranges)
        return found

    def as_i64(self, number: Number) -> SSAValue:
        if isinstance(number, int):
            return self.constant(number, i64)
        return self.once(("i64", number), lambda: self.value(arith.IndexCastOp(number, i64)))


# -- types -----------------------------------------------------------------------------------------------------


def element_of(dtype: str) -> Attribute:
    """The element type of a memref: those of unsigned integers have no sign there, as those of HIVM's own kernels."""
    return signed(element_type(dtype))


def element_in_memory(dtype: str) -> Attribute:
    """The element type of a device tensor, in which truths are bytes."""
    return element_of("i8" if dtype == "i1" else dtype)


def memref(
    shape: Sequence[int],
    element: Attribute,
    space: str,
    strides: Sequence[int] | None = None,
    offset: Number = 0,
) -> MemRefType:
    """The type of memory in a space: row-major, or with these strides and this offset, in elements; -1: open."""
    sizes = [DYNAMIC_INDEX if n == -1 else n for n in shape]
    layout: Attribute = NoneAttr()
    if strides is not None and (offset != 0 or -1 in shape or tuple(strides) != row_strides(shape)):
        layout = StridedLayoutAttr(list(strides), offset if isinstance(offset, int) else None)
    return MemRefType(element, sizes, layout, AddressSpace(space))
