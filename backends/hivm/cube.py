"""Products: each becomes one `mmadL1`, whose macro loads l0, multiplies and orders both by itself."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1, i64
from xdsl.dialects.scf import ForOp
from xdsl.ir import Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import describe
from ...dialects.dtypes import itemsize
from ...dialects.hivm.cube import MmadL1Op
from ...dialects.hivm.tiling import before, block_of
from ...dialects.npu import LoadL0Op, LoadRowOp, MmadOp, SetFlagOp, buffer
from ...dialects.npu.structure import SectionOp
from ...dialects.npu.types import FRACTAL_ROWS
from ...machine import Machine
from .building import made
from .emitter import FunctionEmitter, Number, element_of, memref
from .errors import NotInHivm
from .memory import FunctionMemory
from .moves import MoveRules, fractals
from .products import Product, ProductOperand, products_of

NONE = -1
"""In the place of an event that a product does not have."""


class CubeRules:
    """Adds products to a function."""

    def __init__(
        self, emit: FunctionEmitter, memory: FunctionMemory, moves: MoveRules, machine: Machine, section: SectionOp
    ) -> None:
        self.emit, self.memory, self.moves = emit, memory, moves
        found = products_of(section, machine)
        self.products = {p.mmad: p for p in found}
        self.loops = {p.loop: p for p in found if p.loop is not None}
        self.inside = {op for p in found for op in p.inside}
        self.deferred: list[SetFlagOp] = []

    def notes(self) -> list[str]:
        """How products differ from ours, a sentence each."""
        return [f"{describe(p.mmad)} {p.note}" for p in self.products.values() if p.note]

    def takes(self, op: Operation) -> bool:
        """Whether an op is a part of a product: adds the product where it ends."""
        if isinstance(op, ForOp):
            product = self.loops.get(op)
            if product is not None:
                self._add(product)
            return product is not None
        if isinstance(op, MmadOp):
            self._add(self.products[op])
            return True
        return op in self.inside

    def defers(self, op: Operation) -> bool:
        """Whether a flag of MTE1 must wait for the product whose loads it follows."""
        if not isinstance(op, SetFlagOp) or op.source_pipe() != "MTE1":
            return False
        for at in before(op):
            if isinstance(at, MmadOp):
                return False
            if isinstance(at, LoadL0Op | LoadRowOp) and at in self.inside:
                self.deferred.append(op)
                return True
        return False

    def _add(self, product: Product) -> None:
        emit, memory = self.emit, self.memory
        tiles = [self._tile(product.left, product.m), self._tile(product.right, product.n)]
        acc = buffer(product.mmad.acc)
        sums = memory.matrix(product.mmad.acc, fractals(acc.shape, acc.dtype(), "cc"), product.mmad)
        bias = None
        if product.bias is not None:
            row = buffer(product.bias.source)
            if (
                any(place.terms or place.constant for place in product.bias.linear())
                or row.shape[-1] != product.n
            ):
                raise NotInHivm(product.bias, "takes a part of a row in l1 as a bias")
            bias = memory.cast(
                product.bias.source,
                memref([1, 1, 1, product.n], element_of(row.dtype()), "cbuf"),
                product.bias,
            )
        sizes = [emit.index(n) for n in (product.m, self._summed(product), product.n)]
        emit.add(
            made(
                MmadL1Op,
                a=tiles[0],
                b=tiles[1],
                init_condition=self._begins(product),
                real_m=sizes[0],
                real_k=sizes[1],
                real_n=sizes[2],
                c=sums,
                per_channel_bias=bias,
                a_transpose=product.left.transposed,
                b_transpose=product.right.transposed,
                sync_related_args=self._events(product),
            )
        )

    def _tile(self, part: ProductOperand, wanted: int) -> SSAValue:
        """An operand in l1: its tile from the first fractal on that is taken. Only as many columns are told of as are
        wanted, but all rows, since they say how far columns are apart."""
        emit, load = self.emit, part.load
        kind = buffer(load.source)
        block, rows = block_of(kind), -(-part.rows // FRACTAL_ROWS) * FRACTAL_ROWS
        by_row, by_column = (part.other, part.summed) if part.by_rows else (part.summed, part.other)
        columns = part.columns if part.by_rows else wanted
        shape = fractals((part.rows, columns), kind.dtype(), "cbuf")
        if by_column.constant % block or any(c % block for _, c in by_column.terms):
            raise NotInHivm(load, "takes columns of a tile in l1 that begin within a block of 32 bytes")
        offset = emit.plus(emit.times(emit.linear(by_row), block), emit.times(emit.linear(by_column), rows))
        return self.memory.matrix(load.source, shape, load, emit.times(offset, itemsize(kind.element)))

    def _summed(self, product: Product) -> Number:
        """Elements of the summed dimension that lie inside the tensors: others are not there, and count as 0."""
        found: Number = product.k
        for part in (product.left, product.right):
            valid = self.moves.valid.get(part.load.source)
            if valid is None:
                raise NotInHivm(
                    part.load, "reads a tile of l1 that is filled under another name, or not by a load"
                )
            count, least = valid[1 if part.by_rows else 0]
            if isinstance(count, int):
                continue
            if least <= self.emit.span(part.summed)[1]:
                raise NotInHivm(part.load, "may have nothing of the summed dimension inside its tensor")
            found = self.emit.least(self.emit.minus(count, self.emit.linear(part.summed)), found)
        return found

    def _begins(self, product: Product) -> SSAValue:
        """Whether the sums begin anew."""
        emit = self.emit
        count = emit.linear(product.fresh)
        if isinstance(count, int):
            return emit.constant(count == 0, i1)
        return emit.once(("is 0", count), lambda: emit.value(arith.CmpiOp(count, emit.index(0), "eq")))

    def _events(self, product: Product) -> list[SSAValue]:
        """The events that a product waits for and sets itself, none for l1, and its turn."""
        emit = self.emit
        turn = emit.constant(0, i64)
        if product.counter is not None:
            counted = product.counter
            if product.parts % 2 == 0:
                counted = _halved(counted, product.parts)
            turn = emit.as_i64(emit.linear(counted))
        own = [product.event, product.event + 1] if product.event >= 0 else [NONE, NONE]
        return [*[emit.constant(NONE, i64)] * 4, turn, *(emit.constant(n, i64) for n in own)]


def _halved(counted: Expr, parts: int) -> Expr:
    """A counter of parts as one of products, where it is that; else any even one, whose turns are the same."""
    terms = dict(counted.terms)
    if counted.constant % parts == 0 and all(c % parts == 0 for c in terms.values()):
        return Expr(counted.constant // parts, {v: c // parts for v, c in terms.items()})
    return Expr()
