"""Parts of products as the vendor's macro takes them: as many of the summed dimension as half of l0 holds.

Before:  scf.for %p = 0 to 4 { load_l0 %a at [0, %p * 32] ...; mmad }     (l0: 32 of 128 at once, two slots)
After:   scf.for %p = 0 to 2 { load_l0 %a at [0, %p * 64] ...; mmad }
"""

from __future__ import annotations

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from ....dialects.affine import Expr
from ....dialects.base import INDEX, encode, ints, to_ints
from ....dialects.hivm.tiling import counted_side, loader_of, macro_part
from ....dialects.npu import BufferType, LoadL0Op, MmadOp, SlotOp, buffer, buffer_users, whole_buffer
from ....dialects.npu.structure import SectionOp
from ....dialects.shapes import transposes
from ....machine import Machine


def retile_products(section: SectionOp, machine: Machine) -> bool:
    """Gives the loops over parts of products in a section the parts of the macro, where these divide all; whether there
    was such a loop."""
    products = [op for op in section.body.walk() if isinstance(op, MmadOp)]
    return sum(_retiled(op, section.body.block, machine) for op in products) > 0


def _retiled(mmad: MmadOp, top: Block, machine: Machine) -> bool:
    block = mmad.parent
    assert block is not None
    loads = [loader_of(mmad, v) for v in (mmad.a, mmad.b)]
    if any(load is None or load.parent is not block for load in loads) or mmad.bias is not None:
        return False
    left, right = loads
    assert left is not None and right is not None
    step = buffer(mmad.a).shape[1]
    loop = block.parent_op()
    if not isinstance(loop, ForOp) or not _is_over_parts(loop, block, mmad, left, right):
        return False
    index, bound = loop.body.block.args[0], loop.ub.owner
    if not isinstance(bound, ConstantOp) or not isinstance(bound.value, IntegerAttr):
        return False
    parts = bound.value.value.data
    m, n = buffer(mmad.acc).shape
    part = macro_part(
        counted_side(buffer(left.source), not transposes(left), m),
        counted_side(buffer(right.source), transposes(right), n),
        buffer(left.source),
        machine,
    )
    whole = parts * step
    wanted = min(part, whole)
    if not wanted or wanted == step or whole % wanted:
        return False
    if any(_products(whole_buffer(v)) > 1 for v in (mmad.a, mmad.b)):
        return False
    slots = [v.owner for v in (mmad.a, mmad.b) if isinstance(v.owner, SlotOp)]
    counters = [_counter(slot, index, parts, whole // wanted) for slot in slots]
    if any(counter is None for counter in counters):
        return False
    _resize(left, 1, index, step, wanted)
    _resize(right, 0, index, step, wanted)
    for slot, counter in zip(slots, counters, strict=True):
        assert counter is not None
        slot.properties["offsets"] = encode([counter], slot.indices)
    made = ConstantOp(IntegerAttr(whole // wanted, INDEX))
    first = top.first_op
    assert first is not None
    top.insert_op_before(made, first)
    loop.operands[1] = made.result
    return True


def _is_over_parts(loop: ForOp, block: Block, mmad: MmadOp, left: LoadL0Op, right: LoadL0Op) -> bool:
    """Whether a loop has nothing but a product and the loads of its operands."""
    own = (mmad, left, right)
    if not all(isinstance(op, SlotOp | YieldOp) or op in own for op in block.ops):
        return False
    index = loop.body.block.args[0]
    step = buffer(mmad.a).shape[1]
    for op in (left, right):
        box = op.source_box()
        moved = [dict(place.terms).get(index, 0) for place in op.linear()]
        if (
            any(n != 1 for n in (*box.window, *box.steps))
            or sorted(moved)[-1] != step
            or sum(map(bool, moved)) != 1
        ):
            return False
    return dict(mmad.linear()[0].terms).get(index, 0) == 1


def _products(alloc: SSAValue) -> int:
    """How many products use a buffer."""
    return sum(isinstance(op, MmadOp) for op in buffer_users(alloc))


def _counter(slot: SlotOp, index: SSAValue, parts: int, wanted: int) -> Expr | None:
    """A counter of parts where there are `wanted` of them in the place of `parts`; None where it counts otherwise."""
    (counter,) = slot.linear()
    terms = dict(counter.terms)
    if terms.pop(index, 0) != 1 or counter.constant % parts or any(c % parts for c in terms.values()):
        return None
    rest = {v: c // parts * wanted for v, c in terms.items()}
    return Expr(counter.constant // parts * wanted, {index: 1, **rest})


def _resize(load: LoadL0Op, dim: int, index: SSAValue, step: int, wanted: int) -> None:
    """Lets a load fill so many of the summed dimension, dimension `dim` of its matrix, in buffers that hold them."""
    shape = list(buffer(load.dest).shape)
    shape[dim] = wanted
    whole = whole_buffer(load.dest)
    kind = buffer(whole)
    if whole is not load.dest:
        Rewriter.replace_value_with_new_type(load.dest, BufferType.of(shape, kind.element, kind.space))
    Rewriter.replace_value_with_new_type(whole, BufferType.of(shape, kind.element, kind.space, kind.slots))
    places, sizes = list(load.linear()), list(to_ints(load.sizes))
    at = next(d for d, place in enumerate(places) if index in place.variables)
    sizes[at] = wanted
    places[at] = places[at] + Expr.of(index, wanted - step)
    load.properties |= {"sizes": ints(sizes), "offsets": encode(places, load.index_operands())}
