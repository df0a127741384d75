"""Finds products that the vendor's library computes as we do: where an inner loop over parts of the summed dimension is
what its macro `mma_tile` does by itself.

The macro (Ascend/AscendNPU-IR, lib/Template/lib/Cube/LocalMmad.cpp) takes a product of tiles in l1 in parts: of the
summed dimension as many elements as half of l0a or l0b holds for the larger side, whole fractals. Each part waits for
M -> MTE1, is loaded to l0a and l0b, which take turns at two addresses, handed over by a flag of the macro, multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import integer, to_ints
from ...dialects.dtypes import itemsize
from ...dialects.npu import (
    BufferType,
    LoadL0Op,
    LoadRowOp,
    MmadOp,
    PipeBarrierOp,
    SetFlagOp,
    SlotOp,
    SyncOp,
    WaitFlagOp,
    buffer,
)
from ...dialects.npu.structure import SectionOp
from ...machine import Machine
from .errors import NotInHivm

CUBE_PAIRS = (("M", "MTE1"), ("MTE1", "M"))
"""The pipes between which the macro has flags of its own."""


@dataclass
class Product:
    """A product of two tiles in l1.

    mmad: the instruction that stands for it; loop: that over its parts, None where there is but one; left, right: the
    loads of its operands; bias: that of what its sums begin with; parts: how many, each of `step` of the summed
    dimension; fresh: an expression that is 0 where the sums begin anew; inside: ops that the macro does itself.
    """

    mmad: MmadOp
    loop: ForOp | None
    left: LoadL0Op
    right: LoadL0Op
    bias: LoadRowOp | None
    m: int
    k: int
    n: int
    parts: int
    fresh: Expr
    inside: set[Operation] = field(default_factory=set)
    counter: Expr | None = None
    """What our flags M -> MTE1 count the parts before it by; None where it has none."""
    event: int = -1
    """The first of its two events M -> MTE1; -1 where the macro takes its own."""


def macro_part(m: int, n: int, k: int, dtype: BufferType, machine: Machine) -> int:
    """Elements of the summed dimension of a part as the macro takes them, no more than there are; 0 where half of l0a
    has no room for a fractal of the larger side."""
    width = itemsize(dtype.element)
    half = min(machine.spaces["l0a"].bytes, machine.spaces["l0b"].bytes) // 2
    fractal = 32 // width
    side = -(-max(m, n) // 16) * 16
    part = half // width // side // fractal * fractal
    return min(part, k)


def products_of(section: SectionOp, machine: Machine) -> list[Product]:
    """The products of a section. Raises NotInHivm for one that the macro does not compute as we do."""
    found = [_product(op, machine) for op in section.body.walk() if isinstance(op, MmadOp)]
    _share_events(section, found)
    return found


def _product(mmad: MmadOp, machine: Machine) -> Product:
    if mmad.index is not None:
        raise NotInHivm(mmad, "multiplies by a sparse matrix, which HIVM does not")
    if mmad.unit_flag is not None:
        raise NotInHivm(mmad, "has a unit flag: compile with hivm=True, which has none")
    left, right = _loader(mmad, mmad.a), _loader(mmad, mmad.b)
    bias = _row_loader(mmad)
    block = mmad.parent
    assert block is not None
    given = [left, right, *([bias] if bias is not None else [])]
    if any(op.parent is not block for op in given):
        raise NotInHivm(
            mmad, "takes an operand that stays in l0 for several products, which HIVM's product loads itself"
        )
    for op in given[:2]:
        _check_plain(op)
    m, n = buffer(mmad.acc).shape
    loop = _part_loop(mmad, block, given)
    whole_left, whole_right = buffer(left.source), buffer(right.source)
    turned = _turned(left), _turned(right)
    step = buffer(mmad.a).shape[1]
    rows_a, k_a = _matrix(whole_left, turned[0])
    k_b, columns_b = _matrix(whole_right, turned[1])
    index = loop.body.block.args[0] if loop is not None else None
    parts = _trips(loop) if loop is not None else 1
    _check_places(left, turned[0], 1, index, step)
    _check_places(right, turned[1], 0, index, step)
    if rows_a != m or columns_b != n:
        raise NotInHivm(
            mmad, f"multiplies a part of {m} x {n} of tiles of {rows_a} x {k_a} and {k_b} x {columns_b} in l1"
        )
    if k_a != k_b or k_a != parts * step:
        raise NotInHivm(mmad, f"multiplies {parts} parts of {step} of a summed dimension of {k_a} and {k_b}")
    part = macro_part(m, n, k_a, whole_left, machine)
    if part != step:
        raise NotInHivm(
            mmad,
            f"takes {step} of a summed dimension of {k_a} at once; HIVM's product of {m} x {n} takes {part or 'none'}",
        )
    (row,) = mmad.linear()
    fresh = row if index is None else row.substitute({index: 0})
    if index is not None and dict(row.terms).get(index, 0) < 1:
        raise NotInHivm(mmad, "begins its sums anew for each part")
    made = Product(mmad, loop, left, right, bias, m, k_a, n, parts, fresh)
    _take_flags(made, block, index)
    return made


def _loader(mmad: MmadOp, operand: SSAValue) -> LoadL0Op:
    """The load that fills an operand of a product, the last one before it."""
    for op in _before(mmad):
        if isinstance(op, LoadL0Op) and op.dest is operand:
            return op
    raise NotInHivm(
        mmad, "takes an operand that stays in l0 for several products, which HIVM's product loads itself"
    )


def _row_loader(mmad: MmadOp) -> LoadRowOp | None:
    if mmad.bias is None:
        return None
    for op in _before(mmad):
        if isinstance(op, LoadRowOp) and op.dest is mmad.bias:
            return op
    raise NotInHivm(
        mmad, "takes a bias that stays in bt for several products, which HIVM's product loads itself"
    )


def _before(op: Operation) -> Iterator[Operation]:
    at = op.prev_op
    while at is not None:
        yield at
        at = at.prev_op


def _check_plain(op: LoadL0Op) -> None:
    box = op.source_box()
    if any(n != 1 for n in (*box.window, *box.steps)):
        raise NotInHivm(op, "makes the rows of a product of windows of an image, which HIVM 1.2 does not")
    users = [u for u in op.dest.uses if not isinstance(u.operation, SyncOp)]
    if len({u.operation for u in users}) > 2:
        raise NotInHivm(op, "fills a matrix of l0 that several products take")


def _turned(op: LoadL0Op) -> bool:
    return op.transpose is not None and bool(integer(op.transpose))


def _matrix(kind: BufferType, turned: bool) -> tuple[int, int]:
    """Rows and columns of a tile in l1, as the product has them."""
    rows = 1
    for n in kind.shape[:-1]:
        rows *= n
    return (kind.shape[-1], rows) if turned else (rows, kind.shape[-1])


def _check_places(op: LoadL0Op, turned: bool, summed: int, index: SSAValue | None, step: int) -> None:
    """The box of a load must be all of its tile, or the parts of the summed dimension one after the other."""
    kind, sizes = buffer(op.source), to_ints(op.sizes)
    last = len(kind.shape) - 1
    dim = last if (summed == 1) != turned else None
    moving = [d for d in range(len(sizes)) if sizes[d] != kind.shape[d]]
    if dim is None and moving:
        dim = moving[0]
    for d, (place, n) in enumerate(zip(op.linear(), sizes, strict=True)):
        wanted: Expr = Expr() if d != dim or index is None else Expr.of(index, step)
        if place != wanted and not (n == kind.shape[d] and place == Expr()):
            raise NotInHivm(
                op, "takes a part of a tile in l1 that is not one of the parts of the summed dimension"
            )
        if d != dim and n != kind.shape[d]:
            raise NotInHivm(
                op, "takes a part of a tile in l1 that is not one of the parts of the summed dimension"
            )


def _trips(loop: ForOp) -> int:
    bound = loop.ub.owner
    if isinstance(bound, ConstantOp) and isinstance(bound.value, IntegerAttr):
        return bound.value.value.data
    raise NotInHivm(loop, "has open bounds: export a version for given sizes")


def _part_loop(mmad: MmadOp, block: Block, given: list[LoadL0Op | LoadRowOp]) -> ForOp | None:
    """The loop around a product that has nothing else in it, over which the loads move."""
    loop = block.parent_op()
    if not isinstance(loop, ForOp):
        return None
    index = loop.body.block.args[0]
    if not all(any(index in place.variables for place in op.linear()) for op in given[:2]):
        return None
    for op in block.ops:
        own = isinstance(op, SlotOp | YieldOp) or op is mmad or op in given
        if not own and not _is_macros(op):
            raise NotInHivm(op, "stands in the loop over the parts of a product, which HIVM has as one op")
    return loop


def _is_macros(op: Operation) -> bool:
    if isinstance(op, SyncOp):
        return (op.source_pipe(), op.target_pipe()) in CUBE_PAIRS
    return isinstance(op, PipeBarrierOp) and op.pipes()[0] in ("M", "MTE1")


def _take_flags(made: Product, block: Block, index: SSAValue | None) -> None:
    """The flags and barriers of a product's block that the macro has itself."""
    made.inside = {made.mmad, made.left, made.right, *([made.bias] if made.bias is not None else [])}
    if made.loop is not None:
        ours = [op for op in block.ops if _is_macros(op)]
    else:
        ours = _around(made, block)
    made.inside.update(ours)
    waits = [op for op in ours if isinstance(op, WaitFlagOp) and op.source_pipe() == "M"]
    sets = [op for op in ours if isinstance(op, SetFlagOp) and op.source_pipe() == "M"]
    if len(waits) == len(sets) == 1 and waits[0].linear() == sets[0].linear():
        (counter,) = waits[0].linear()
        if integer(waits[0].slots) == 2:
            made.counter = counter if index is None else counter.substitute({index: 0})
            made.event = integer(waits[0].event)
            if index is not None and dict(counter.terms).get(index) != 1:
                made.event = -1


def _around(made: Product, block: Block) -> list[Operation]:
    """Flags M -> MTE1 before the loads of a product and behind it, and MTE1 -> M between them."""
    first = next(op for op in block.ops if op in (made.left, made.right, made.bias))
    found: list[Operation] = []
    for op in _before(first):
        if isinstance(op, WaitFlagOp) and (op.source_pipe(), op.target_pipe()) == ("M", "MTE1"):
            found.append(op)
        elif isinstance(op, SetFlagOp) and (op.source_pipe(), op.target_pipe()) == ("M", "MTE1"):
            break
    at: Operation | None = first
    while at is not None and at is not made.mmad:
        if isinstance(at, SyncOp) and (at.source_pipe(), at.target_pipe()) in CUBE_PAIRS:
            found.append(at)
        at = at.next_op
    while at is not None:
        if isinstance(at, SetFlagOp) and (at.source_pipe(), at.target_pipe()) == ("M", "MTE1"):
            found.append(at)
            break
        if isinstance(at, LoadL0Op | MmadOp | ForOp) and at is not made.mmad:
            break
        at = at.next_op
    return found


def _share_events(section: SectionOp, products: list[Product]) -> None:
    """Lets products keep our flags M -> MTE1 where all of them have two events, the same, in the turns of the macro;
    else the macro takes its own, and ours go."""
    flags = [
        op
        for op in section.body.walk()
        if isinstance(op, SyncOp) and (op.source_pipe(), op.target_pipe()) == ("M", "MTE1")
    ]
    events = {p.event for p in products}
    keeps = len(events) == 1 and -1 not in events and all(_takes_turns(p) for p in products)
    keeps = keeps and all(integer(op.properties["slots"]) == 2 for op in flags)
    keeps = keeps and {integer(op.properties["event"]) for op in flags} == events
    if keeps:
        return
    handed = [
        op
        for op in section.body.walk()
        if isinstance(op, SyncOp) and (op.source_pipe(), op.target_pipe()) in CUBE_PAIRS
    ]
    for product in products:
        product.event, product.counter = -1, None
        product.inside.update(handed)


def _takes_turns(product: Product) -> bool:
    """Whether the macro's turn, (kloop_db_cond x parts + part) modulo 2, can be that of our flags."""
    if product.counter is None:
        return False
    if product.parts % 2:
        return True
    return product.counter.constant % 2 == 0 and all(c % 2 == 0 for _, c in product.counter.terms)
