"""Faults that no order of instructions shows: a kernel that asks for what the machine does not have.

What a machine has is written down here once more, apart from the checker: a split chip has cube and vector cores and
drains accumulators through the fixpipe, a fused one has one kind of core and copies them to ub; vector units have no
arithmetic on bf16, f64 and i4; a launch has at most 65,535 blocks.
"""

from __future__ import annotations

from typing import Any

from mutation import Random, every, pick, section_of
from xdsl.dialects.builtin import FloatAttr, StringAttr, UnitAttr, f32
from xdsl.ir import Attribute, Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer_attr, ints, text, to_ints
from tilewright.dialects.dtypes import element_type
from tilewright.dialects.npu import BufferType, GmType, structure
from tilewright.dialects.npu.vector import ElementwiseVectorOp
from tilewright.machine import Machine

LACKING = ("f64", "i4")
"""Types that no engine of the chips under test has."""

ON_ANY_TYPE = ("convert", "select", "bitcast")
"""Scalar functions that move elements and have every type."""


def wrong_core(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A section runs on another kind of core."""
    section = pick(rng, every(kernel, structure.SectionOp))
    if section is None:
        return None
    old = text(section.core)
    new = rng.choice([c for c in ("cube", "vector", "fused") if c != old])
    section.properties["core"] = StringAttr(new)
    return f"a section for {new} instead of {old} cores"


def wrong_kind(kernel: Any, rng: Random, machine: Machine) -> str | None:
    """A kernel of one kind of core says it is one of the other."""
    kinds = {"cube": "vector", "vector": "cube"}
    old = text(kernel.kind)
    if machine.fused or old not in kinds:
        return None
    kernel.properties["kind"] = StringAttr(kinds[old])
    return f"kind {kinds[old]} instead of {old}"


def wrong_units(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A section runs on more cores of a block than there are."""
    section = pick(rng, every(kernel, structure.SectionOp))
    if section is None:
        return None
    most = machine.vector_cores // machine.cube_cores if text(section.core) == "vector" else 1
    units = most + rng.randint(1, 4)
    section.properties["units"] = integer_attr(units)
    return f"{units} units"


def wrong_grid(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A grid has more blocks than a launch can have."""
    grid = list(to_ints(kernel.properties["grid"]))
    if not grid:
        return None
    grid[rng.randrange(len(grid))] = rng.choice((65_536, 1 << 31, 8_000_000_000))
    kernel.properties["grid"] = ints(grid)
    return f"grid {grid}"


def _retyped(kernel: Operation, old: Attribute, new: Attribute) -> None:
    """Replaces an element type everywhere in a kernel."""
    for op in kernel.walk():
        blocks = [b for r in op.regions for b in r.blocks]
        for value in (*op.results, *(a for b in blocks for a in b.args)):
            kind = value.type
            if isinstance(kind, BufferType) and kind.element == old:
                value._type = BufferType.of(kind.shape, new, kind.space, kind.slots)
            elif isinstance(kind, GmType) and kind.element == old:
                value._type = GmType.of(kind.shape, new, kind.strides, kind.offset)


def wrong_element(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """All values of one type in a kernel are of a type that no engine has."""
    alloc = pick(rng, every(kernel, ops.AllocOp))
    if alloc is None:
        return None
    kind, new = alloc.result.type, rng.choice(LACKING)
    _retyped(kernel, kind.element, element_type(new))
    return f"{new} instead of {kind.element}"


def wrong_engine_element(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """Arithmetic of the vector unit is in bf16, which is stored and converted there and nothing else."""
    f16 = element_type("f16")
    found = [
        op
        for op in every(kernel, ElementwiseVectorOp)
        if op.FUNCTION.name not in ON_ANY_TYPE and all(v.type.element == f16 for v in op.main_operands())
    ]
    op = pick(rng, found)
    if op is None:
        return None
    _retyped(kernel, f16, element_type("bf16"))
    return f"{op.name} in bf16"


def wrong_space(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A buffer lies in a memory of the other kind of core."""
    if machine.fused:
        return None
    alloc = pick(rng, [a for a in every(kernel, ops.AllocOp) if a.result.type.space in ("ub", "l1")])
    if alloc is None:
        return None
    kind = alloc.result.type
    space = "l1" if kind.space == "ub" else "ub"
    alloc.result._type = BufferType.of(kind.shape, kind.element, space, kind.slots)
    return f"a buffer in {space} instead of {kind.space}"


def wrong_move(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """An accumulator leaves the cube by the way of the other generation."""
    product = pick(rng, every(kernel, ops.MmadOp))
    if product is None:
        return None
    acc = product.acc
    block = product.parent
    assert block is not None
    offsets, sizes = ints([0] * len(acc.type.shape)), ints(acc.type.shape)
    if machine.fused:
        outputs = [a for a in kernel.regions[0].block.args if isinstance(a.type, GmType)]
        view = outputs[-1]
        rank = len(view.type.shape)
        box = [1] * (rank - 2) + list(acc.type.shape) if rank >= 2 else None
        if box is None:
            return None
        new = ops.FixpipeOp.create(
            operands=[acc, view], properties={"offsets": ints([0] * rank), "sizes": ints(box)}
        )
    else:
        room = ops.AllocOp.create(
            result_types=[BufferType.of(acc.type.shape, acc.type.element, "ub")],
            properties={"address": integer_attr(0)},
        )
        first = section_of(product).regions[0].block
        assert first.first_op is not None
        first.insert_op_before(room, first.first_op)
        new = ops.CopyL0cOp.create(
            operands=[acc, room.result], properties={"offsets": offsets, "sizes": sizes}
        )
        block.insert_op_after(new, product)
        return f"{new.name} of an accumulator"
    block.insert_op_after(new, product)
    return f"{new.name} of an accumulator"


def wrong_drain(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """An accumulator is scaled by a number that the fixpipe has not, or moved by one that is too large."""
    drain = pick(rng, every(kernel, ops.FixpipeOp))
    if drain is None:
        return None
    if len(drain.main_operands()) > 2:  # with a factor, or without its word
        drain.properties["factor"] = FloatAttr(0.5, f32)
        return "a factor besides those of columns"
    if rng.random() < 0.5:
        drain.properties["factor"] = FloatAttr(0.3, f32)
        return "a factor of 0.3"
    drain.properties["factor"], drain.properties["zero"] = FloatAttr(0.5, f32), integer_attr(1000)
    return "a zero point of 1000"


def wrong_rounding(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """What is rounded to odd, and then to even, is rounded from f32 to integers of 8 bits at once."""
    found = [op for op in every(kernel, ops.VRoundToOp) if text(op.mode) == "even"]
    last = pick(rng, found)
    odd = [op for op in every(kernel, ops.VRoundToOp) if text(op.mode) == "odd"]
    first = next((op for op in odd if last is not None and op.source.type.shape == last.dest.type.shape), None)
    if last is None or first is None:
        return None
    kind = first.source.type
    wide = ops.AllocOp.create(result_types=[kind], properties={"address": integer_attr(0)})
    place = section_of(last).regions[0].block
    assert place.first_op is not None
    place.insert_op_before(wide, place.first_op)
    last.operands = [wide.result, last.dest]
    return f"{kind.element} rounded to {last.dest.type.element} at once"


def wrong_row(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """What the columns of a product have beside the cube is of another type, or in the memory of the other ones."""
    alloc = pick(rng, [a for a in every(kernel, ops.AllocOp) if a.result.type.space in ("bt", "fb")])
    if alloc is None:
        return None
    kind = alloc.result.type
    if rng.random() < 0.5:
        space = "bt" if kind.space == "fb" else "fb"
        alloc.result._type = BufferType.of(kind.shape, kind.element, space, kind.slots)
        return f"a row in {space} instead of {kind.space}"
    _retyped(kernel, kind.element, element_type("i16"))
    return f"rows of i16 instead of {kind.element}"


def wrong_unit_flag(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A product has a unit flag on a machine without them."""
    op = None if machine.unit_flags else pick(rng, every(kernel, ops.MmadOp, ops.FixpipeOp))
    if op is None:
        return None
    op.properties["unit_flag"] = UnitAttr()
    return f"a unit flag of {op.name}"


MACHINE_MUTATIONS = (
    wrong_core,
    wrong_kind,
    wrong_units,
    wrong_grid,
    wrong_element,
    wrong_engine_element,
    wrong_space,
    wrong_move,
    wrong_drain,
    wrong_rounding,
    wrong_row,
    wrong_unit_flag,
)
