"""Products: each becomes one `mmadL1`, whose macro loads l0, multiplies and orders both by itself."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1, i64
from xdsl.dialects.scf import ForOp
from xdsl.ir import Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import integer
from ...dialects.hivm.cube import MmadL1Op
from ...dialects.npu import LoadL0Op, LoadRowOp, MmadOp, NpuOp, SetFlagOp, buffer
from ...dialects.npu.structure import SectionOp
from ...machine import Machine
from .building import made
from .emitter import Emitter, Number, element_of, memref
from .errors import NotInHivm
from .memory import Memory
from .moves import MoveRules, fractals
from .products import Product, products_of

NONE = -1
"""In the place of an event that a product does not have."""


class CubeRules:
    """Adds products to a function."""

    def __init__(
        self, emit: Emitter, memory: Memory, moves: MoveRules, machine: Machine, section: SectionOp
    ) -> None:
        self.emit, self.memory, self.moves = emit, memory, moves
        found = products_of(section, machine)
        self.products = {p.mmad: p for p in found}
        self.loops = {p.loop: p for p in found if p.loop is not None}
        self.inside = {op for p in found for op in p.inside}
        self.deferred: list[SetFlagOp] = []

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
        at = op.prev_op
        while at is not None:
            if isinstance(at, MmadOp):
                return False
            if isinstance(at, LoadL0Op | LoadRowOp) and at in self.inside:
                self.deferred.append(op)
                return True
            at = at.prev_op
        return False

    def __call__(self, op: NpuOp) -> None:
        raise NotInHivm(op, "has no counterpart in HIVM")

    def _add(self, product: Product) -> None:
        emit, memory = self.emit, self.memory
        tiles = []
        for load in (product.left, product.right):
            kind = buffer(load.source)
            rows = 1
            for n in kind.shape[:-1]:
                rows *= n
            tiles.append(
                memory.cast(load.source, fractals((rows, kind.shape[-1]), kind.dtype(), "cbuf"), load)
            )
        acc = buffer(product.mmad.acc)
        sums = memory.cast(product.mmad.acc, fractals(acc.shape, acc.dtype(), "cc"), product.mmad)
        bias = None
        if product.bias is not None:
            row = buffer(product.bias.source)
            if (
                any(place.terms or place.constant for place in product.bias.linear())
                or row.shape[-1] != product.n
            ):
                raise NotInHivm(product.bias, "takes a part of a row in l1 as a bias")
            bias = memory.cast(
                product.bias.source, memref([product.n], element_of(row.dtype()), "cbuf"), product.bias
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
                a_transpose=_is_turned(product.left),
                b_transpose=_is_turned(product.right),
                sync_related_args=self._events(product),
            )
        )

    def _summed(self, product: Product) -> Number:
        """Elements of the summed dimension that lie inside the tensors: others are not there, and count as 0."""
        found: Number = product.k
        for load, along_rows in (
            (product.left, _is_turned(product.left)),
            (product.right, not _is_turned(product.right)),
        ):
            valid = self.moves.valid.get(load.source)
            if valid is None:
                raise NotInHivm(
                    load, "reads a tile of l1 that is filled under another name, or not by a load"
                )
            count = valid[0 if along_rows else 1]
            if not isinstance(count, int):
                found = self.emit.least(count, found)
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


def _is_turned(op: LoadL0Op) -> bool:
    return op.transpose is not None and bool(integer(op.transpose))
