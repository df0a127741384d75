"""Has kernels store what they make where a concatenation has it, so that it need not be copied there.

Before:  %x = fusion of a product ; %y = fusion of the vector cores ; %r = fusion {concat %x, %y, %z} : three copies
After:   %p = fusion of a product, {place} ; %q = fusion of the vector cores, {place} behind what is in %p ;
         %r = fusion {place %z} behind what is in %q : one copy
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, OpResult, Region, SSAValue

from ...dialects.base import integer, text
from ...dialects.graph import ConcatOp, FusionOp, YieldOp
from ...dialects.graph.interface import shape_of
from ...dialects.graph.schedules import (
    Schedule,
    all_complete,
    bands_of,
    parts_of_sums,
    schedule_attr,
    to_schedules,
)
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


def place_parts(module: ModuleOp, machine: Machine) -> None:
    """Has kernels of a module whose schedules are chosen store parts of concatenations where these have them, each into
    what the one before it left. The other parts are copied behind those, each by a fusion of its own."""
    position = {op: i for i, op in enumerate(module.walk()) if isinstance(op, FusionOp)}
    for fusion in position:
        op, schedules = concatenation(fusion), to_schedules(fusion.schedule)
        if op is None or has_open_sizes(fusion) or not all_complete(schedules):
            continue
        parts = _parts(fusion, op)
        # a kernel stores what it makes once: a part at two places is copied to both
        many = Counter(part.value for part in parts)
        made = [p for p in parts if many[p.value] == 1 and _may_be_placed(p, fusion, machine)]
        if not made or len(parts) != len(schedules):
            continue
        base: SSAValue | None = None
        for part in sorted(made, key=lambda part: position[part.maker]):
            base = part.placed(part.value, base)
        assert base is not None
        for part, schedule in zip(parts, schedules, strict=True):
            if part not in made:
                base = _copied(part, fusion, base, schedule)
        base.name_hint = fusion.results[0].name_hint
        fusion.results[0].replace_all_uses_with(base)
        fusion.detach()
        fusion.erase()


@dataclass(frozen=True, eq=False)
class _Part:
    """A value that is a part of a concatenation: the places of dimension `dim` from `start` on, of `extent`."""

    value: SSAValue
    dim: int
    start: int
    extent: int

    @property
    def maker(self) -> FusionOp:
        """The fusion that gives it."""
        assert isinstance(self.value.owner, FusionOp)
        return self.value.owner

    def placed(self, value: SSAValue, base: SSAValue | None) -> SSAValue:
        """Has a fusion give its result as this part of a tensor whose other places are those of `base`."""
        return placed(value, self.dim, self.start, self.extent, base)


def _parts(fusion: FusionOp, op: ConcatOp) -> list[_Part]:
    """The parts of a concatenation that have elements, in order."""
    dim, extent, at = integer(op.dim), shape_of(op.result)[integer(op.dim)], 0
    found: list[_Part] = []
    for part in op.parts:
        if 0 not in shape_of(part):
            found.append(_Part(outside(fusion, part), dim, at, extent))
        at += shape_of(part)[dim]
    return found


def _copied(part: _Part, fusion: FusionOp, base: SSAValue, schedule: Schedule) -> SSAValue:
    """Copies a part into what is there, with a schedule, by a fusion in front of that of the concatenation."""
    assert fusion.parent is not None
    block = Block(arg_types=[part.value.type])
    block.add_op(YieldOp.create(operands=[block.args[0]], location=fusion.location))
    copy = FusionOp.create(
        operands=[part.value],
        result_types=[part.value.type],
        properties={
            "kind": StringAttr("move"),
            "domain": fusion.domain,
            "schedule": schedule_attr([schedule]),
        },
        regions=[Region(block)],
        location=fusion.location,
    )
    fusion.parent.insert_op_before(copy, fusion)
    return part.placed(copy.results[0], base)


def _may_be_placed(part: _Part, reader: FusionOp, machine: Machine) -> bool:
    """Whether a kernel makes a part for its concatenation alone, and may store it with the strides that it has
    there."""
    value, fusion = part.value, part.value.owner
    if not isinstance(value, OpResult) or not isinstance(fusion, FusionOp):
        return False
    if fusion.parent is not reader.parent or fusion.on_host:
        return False
    schedules = to_schedules(fusion.schedule)
    cut = parts_of_sums(schedules) is not None or bands_of(schedules) is not None
    if cut or len(schedules) != 1 or not all_complete(schedules) or not value.has_one_use():
        return False
    if len(fusion.results) != 1 or has_open_sizes(fusion) or is_chained(fusion) or is_for_split_sums(fusion):
        return False
    if not is_member(behind_merges(fusion.yielded(0).values[0])[0]):
        return False
    copied = fusion.clone()
    try:
        with suppress(PassError):
            part.placed(copied.results[0], None)
            (plan,) = launches_of(copied, machine)
            kernel = plan.kernel(plan.stem, schedules[0])
            if type(kernel) in KERNELS:
                kernel.check(plan.stem, schedules[0])
                return True
        return False
    finally:
        copied.erase()
