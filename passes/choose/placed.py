"""Has kernels store what they make where a concatenation has it, so that it need not be copied there.

Before:  %x = fusion of a product ; %y = fusion of the vector cores ; %r = concat %x, %y : two copies
After:   %x and %y store into one tensor, the second behind the first, and there is nothing to copy
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from xdsl.ir import Block, Operation, OpResult, SSAValue

from ...dialects.base import integer, text
from ...dialects.graph import ConcatOp, FusionOp
from ...dialects.graph.interface import shape_of
from ...dialects.graph.schedules import all_complete, bands_of, parts_of_sums, to_schedules
from ...machine import Machine
from ..errors import PassError
from ..instantiation import has_open_sizes
from ..lower.axes import behind_merges, is_member
from ..lower.chains.attention_parts import is_chained
from ..lower.cube.contract import ContractKernel
from ..lower.vector import VectorKernel
from .epilogue_fusion import is_for_split_sums
from .launches import launches_of, outside
from .stream import placed

KERNELS = (ContractKernel, VectorKernel)
"""Kernels that store by strides, and so into a part of a tensor as well."""


def concatenation(fusion: FusionOp) -> ConcatOp | None:
    """The op of a fusion that copies the parts of a concatenation, each by a launch; None of another fusion."""
    first = fusion.body.block.first_op
    return first if text(fusion.kind) == "move" and isinstance(first, ConcatOp) else None


def place_parts(block: Block, machine: Machine) -> dict[FusionOp, frozenset[int]]:
    """Has the kernels of a block store parts of concatenations where these have them, each into what the one before it
    left. The fusion of a concatenation then takes that tensor as one more input, the last one. Gives those fusions, and
    the numbers of the parts that are in place."""
    found: dict[FusionOp, frozenset[int]] = {}
    position: dict[Operation, int] = {op: i for i, op in enumerate(block.ops)}
    for fusion in [op for op in block.ops if isinstance(op, FusionOp)]:
        op = concatenation(fusion)
        if op is None or has_open_sizes(fusion):
            continue
        dim, extent, at = integer(op.dim), shape_of(op.result)[integer(op.dim)], 0
        places: dict[int, tuple[OpResult, int]] = {}
        values = [outside(fusion, part) for part in op.parts]
        for number, (part, value) in enumerate(zip(op.parts, values, strict=True)):
            # a kernel stores what it makes once: a part at two places is copied to both
            once = values.count(value) == 1
            if once and isinstance(value, OpResult) and _may_be_placed(value, block, dim, at, extent, machine):
                places[number] = value, at
            at += shape_of(part)[dim]
        if places:
            base = _placed_in_order(places, position, dim, extent)
            fusion.operands = [*fusion.operands, base]
            fusion.body.block.insert_arg(base.type, len(fusion.body.block.args))
            found[fusion] = frozenset(places)
    return found


def _placed_in_order(
    places: Mapping[int, tuple[OpResult, int]], position: Mapping[Operation, int], dim: int, extent: int
) -> SSAValue:
    """Has each part be stored into what the one before it left, in the order of the block; what the last one leaves."""
    base: SSAValue | None = None
    for value, start in sorted(places.values(), key=lambda place: position[place[0].op]):
        base = placed(value, dim, start, extent, base)
    assert base is not None
    return base


def _may_be_placed(
    value: OpResult, block: Block, dim: int, start: int, extent: int, machine: Machine
) -> bool:
    """Whether a kernel makes a value for a concatenation alone, and may store it with the strides that it has there."""
    fusion = value.op
    if not isinstance(fusion, FusionOp) or fusion.parent is not block or fusion.on_host:
        return False
    schedules = to_schedules(fusion.schedule)
    cut = parts_of_sums(schedules) is not None or bands_of(schedules) is not None
    if cut or len(schedules) != 1 or not all_complete(schedules) or not value.has_one_use():
        return False
    if len(fusion.results) != 1 or has_open_sizes(fusion) or is_chained(fusion) or is_for_split_sums(fusion):
        return False
    if 0 in shape_of(value) or not is_member(behind_merges(fusion.yielded(0).values[0])[0]):
        return False
    copied = fusion.clone()
    try:
        with suppress(PassError):
            placed(copied.results[0], dim, start, extent, None)
            (plan,) = launches_of(copied, machine)
            kernel = plan.kernel(plan.stem, schedules[0])
            if type(kernel) in KERNELS:
                kernel.check(plan.stem, schedules[0])
                return True
        return False
    finally:
        copied.erase()
