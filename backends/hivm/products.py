"""Finds products: an inner loop over parts of the summed dimension is what the macro `mma_tile` does by itself.

The macro (Ascend/AscendNPU-IR, lib/Template/lib/Cube/LocalMmad.cpp) takes a product of tiles in l1 in parts: of the
summed dimension as many elements as half of l0a or l0b holds for the larger side, whole fractals. Each part waits for
M -> MTE1, is loaded to l0a and l0b, which take turns at two addresses, handed over by a flag of the macro, multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import integer, to_ints
from ...dialects.dtypes import size
from ...dialects.hivm.tiling import before, block_of, counted_side, loader_of, macro_part
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
from ...dialects.npu.types import FRACTAL_ROWS
from ...dialects.shapes import transposes
from ...machine import Machine
from .errors import NotInHivm

CUBE_PAIRS = (("M", "MTE1"), ("MTE1", "M"))
"""The pipes between which the macro has flags of its own."""


@dataclass(frozen=True)
class ProductOperand:
    """What a product takes of a tile in l1. rows, columns: of the tile; summed, other: where it begins along the summed
    dimension and along the other one; transposed: whether the tile has the rows of the product as its columns; by_rows:
    whether the tile's rows are the other dimension."""

    load: LoadL0Op
    rows: int
    columns: int
    summed: Expr
    other: Expr
    transposed: bool
    by_rows: bool


@dataclass
class Product:
    """A product of two tiles in l1.

    mmad: the instruction that stands for it; loop: that over its parts, None where there is but one; bias: the load of
    what its sums begin with; parts: how many, `k` elements of the summed dimension together; fresh: an expression that
    is 0 where the sums begin anew; note: how its parts differ from the macro's, empty where they do not; inside: ops
    that the macro does itself.
    """

    mmad: MmadOp
    loop: ForOp | None
    left: ProductOperand
    right: ProductOperand
    bias: LoadRowOp | None
    m: int
    k: int
    n: int
    parts: int
    fresh: Expr
    note: str
    inside: set[Operation] = field(default_factory=set)
    counter: Expr | None = None
    """What our flags M -> MTE1 count the parts before it by; None where it has none."""
    event: int = -1
    """The first of its two events M -> MTE1; -1 where the macro takes its own."""


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
    step = buffer(mmad.a).shape[1]
    index = loop.body.block.args[0] if loop is not None else None
    parts = _trips(loop) if loop is not None else 1
    left_part, right_part = (
        _part_of(left, not transposes(left), index, step),
        _part_of(right, transposes(right), index, step),
    )
    kind = buffer(left.source)
    whole_left, whole_right = _side(left_part, kind, m), _side(right_part, buffer(right.source), n)
    part = macro_part(whole_left, whole_right, kind, machine)
    if not part:
        raise NotInHivm(
            mmad, f"multiplies {whole_left} x {whole_right}, for which HIVM's product has no room in l0"
        )
    note = ""
    if part < step or (part != step and parts > 1):
        note = f"takes {step} of a summed dimension of {parts * step} at once, and HIVM's product {part}"
    (row,) = mmad.linear()
    fresh = row if index is None else row.substitute({index: 0})
    if index is not None and dict(row.terms).get(index, 0) < 1:
        raise NotInHivm(mmad, "begins its sums anew for each part")
    made = Product(mmad, loop, left_part, right_part, bias, m, parts * step, n, parts, fresh, note)
    _take_flags(made, block, index)
    return made


def _loader(mmad: MmadOp, operand: SSAValue) -> LoadL0Op:
    """The load that fills an operand of a product, the last one before it."""
    found = loader_of(mmad, operand)
    if found is not None:
        return found
    raise NotInHivm(
        mmad, "takes an operand that stays in l0 for several products, which HIVM's product loads itself"
    )


def _row_loader(mmad: MmadOp) -> LoadRowOp | None:
    if mmad.bias is None:
        return None
    for op in before(mmad):
        if isinstance(op, LoadRowOp) and op.dest is mmad.bias:
            return op
    raise NotInHivm(
        mmad, "takes a bias that stays in bt for several products, which HIVM's product loads itself"
    )


def _check_plain(op: LoadL0Op) -> None:
    box = op.source_box()
    if any(n != 1 for n in (*box.window, *box.steps)):
        raise NotInHivm(op, "makes the rows of a product of windows of an image, which HIVM 1.2 does not")
    users = [u for u in op.dest.uses if not isinstance(u.operation, SyncOp)]
    if len({u.operation for u in users}) > 2:
        raise NotInHivm(op, "fills a matrix of l0 that several products take")


def _part_of(op: LoadL0Op, by_rows: bool, index: SSAValue | None, step: int) -> ProductOperand:
    """What a load takes of its tile: parts of the summed dimension, one after the other, from some place on. by_rows:
    whether the rows of the tile are the other dimension."""
    kind, sizes, places = buffer(op.source), to_ints(op.sizes), op.linear()
    rows = size(kind.shape[:-1])
    if (
        any(n != whole for n, whole in zip(sizes[1:-1], kind.shape[1:-1], strict=True))
        and rows != kind.shape[-2]
    ):
        raise NotInHivm(op, "takes a part of a tile in l1 that is no matrix of it")
    at = Expr()
    for place, n in zip(places[:-1], kind.shape[:-1], strict=True):
        at = at * n + place
    along = {"rows": at, "columns": places[-1]}
    summed = along["columns" if by_rows else "rows"]
    other = along["rows" if by_rows else "columns"]
    if index is not None:
        if dict(summed.terms).get(index) != step or index in other.variables:
            raise NotInHivm(
                op, "moves along its tile in l1 otherwise than by the parts of the summed dimension"
            )
        summed = summed.substitute({index: 0})
    return ProductOperand(op, rows, kind.shape[-1], summed, other, transposes(op), by_rows)


def _side(part: ProductOperand, kind: BufferType, wanted: int) -> int:
    """Rows or columns that the macro is told of: all of the tile where they are its rows, else those that are used,
    from a whole block on. Raises NotInHivm."""
    counted = counted_side(kind, part.by_rows, wanted)
    if part.by_rows:
        if part.transposed and not (
            part.other == Expr() and -(-wanted // FRACTAL_ROWS) * FRACTAL_ROWS == counted
        ):
            raise NotInHivm(
                part.load, "takes a part of the rows of a tile in l1 that is transposed, which HIVM 1.2 does not"
            )
        return counted
    block = block_of(kind)
    if part.other.constant % block or any(c % block for _, c in part.other.terms):
        raise NotInHivm(part.load, "takes columns of a tile in l1 that begin within a block of 32 bytes")
    return counted


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
        return op.pipes() in CUBE_PAIRS
    return isinstance(op, PipeBarrierOp) and op.pipes()[0] in ("M", "MTE1")


def _take_flags(made: Product, block: Block, index: SSAValue | None) -> None:
    """The flags and barriers of a product's block that the macro has itself."""
    made.inside = {
        made.mmad,
        made.left.load,
        made.right.load,
        *([made.bias] if made.bias is not None else []),
    }
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
    first = next(op for op in block.ops if op in (made.left.load, made.right.load, made.bias))
    found: list[Operation] = []
    for op in before(first):
        if isinstance(op, WaitFlagOp) and op.pipes() == ("M", "MTE1"):
            found.append(op)
        elif isinstance(op, SetFlagOp) and op.pipes() == ("M", "MTE1"):
            break
    at: Operation | None = first
    while at is not None and at is not made.mmad:
        if isinstance(at, SyncOp) and at.pipes() in CUBE_PAIRS:
            found.append(at)
        at = at.next_op
    while at is not None:
        if isinstance(at, SetFlagOp) and at.pipes() == ("M", "MTE1"):
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
        if isinstance(op, SyncOp) and op.pipes() == ("M", "MTE1")
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
        if isinstance(op, SyncOp) and op.pipes() in CUBE_PAIRS
    ]
    for product in products:
        product.event, product.counter = -1, None
        product.inside.update(handed)


def _takes_turns(product: Product) -> bool:
    """Whether the macro's turn, (kloop_db_cond x parts + part) modulo 2, can be that of our flags."""
    if product.counter is None or product.note:
        return False
    if product.parts % 2:
        return True
    return product.counter.constant % 2 == 0 and all(c % 2 == 0 for _, c in product.counter.terms)
