"""The launches of a fusion: one for most, one for each part of a concatenation, several where sums are split.

graph-schedule and graph-to-tile walk the same launches, so that what one decides is what the other builds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ...dialects.base import integer, text, to_ints
from ...dialects.graph import (
    AttentionSchedule,
    ConcatOp,
    ContractOp,
    ConvOp,
    CubeSchedule,
    CumulateOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    FusionOp,
    GatherOp,
    GraphOp,
    PlaceOp,
    ReduceOp,
    ReduceWindowOp,
    RowAttentionSchedule,
    ScatterOp,
    SelectAndScatterOp,
    SortOp,
    VectorSchedule,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.schedules import Schedule
from ...dialects.open_sizes import certain
from ...machine import Machine
from ...support.rules import Rules
from ..forms.access import splat_of
from ..forms.attention import Attention
from ..forms.back_to_back import stays_on_cube
from ..forms.chained import Chained
from ..forms.fingerprint import structure
from ..lower.axes import begun_as, read_by
from ..lower.chains.attention import AttentionKernel
from ..lower.chains.attention_choice import Band
from ..lower.chains.attention_parts import chained_in, is_chained
from ..lower.chains.back_to_back import BackToBackKernel
from ..lower.chains.chain import ChainKernel
from ..lower.chains.row_attention import RowAttentionKernel
from ..lower.cube.contract import ContractKernel
from ..lower.cube.contraction_axes import made_operand, product_in
from ..lower.cube.pooled import PooledKernel
from ..lower.cube.pooling import pooling_in
from ..lower.cube.prologue import PrologueKernel
from ..lower.cube.spreading import is_spread, why_not_spread
from ..lower.cube.vector_product import VectorProductKernel
from ..lower.indexed.cumulate import CumulateKernel
from ..lower.indexed.gather_elements import gather_kernel
from ..lower.indexed.moves import BoxCopy, CopyKernel, Start
from ..lower.indexed.scatter import ScatterKernel
from ..lower.indexed.selecting import SelectAndScatterKernel
from ..lower.indexed.sort import SortKernel
from ..lower.indexed.windows import WindowKernel
from ..lower.recomputed import RecomputingKernel, inputs_of, nested_in
from ..lower.scheduled import ScheduledKernel, as_attention, as_cube, as_row_attention, as_vector, cannot_obey
from ..lower.vector import VectorKernel


@dataclass(frozen=True)
class LaunchPlan:
    """One launch of a fusion.

    stem: what the kernel is named after. key, details: launches for which both are equal have one kernel; only `key` is
    hashed. kernel: the kernel for what is asked of it; its name is for errors. choices: the kind of its schedules.
    obeys_all: whether pins for all kernels are for it too. operands: what the launch reads, in order.
    result: its one result where it makes one tensor of several launches; None where it makes all of the fusion's.
    begins: the tensors that its results begin as, if any; `goes_on`: these are the results of the launch before it.
    reader: of a kernel that makes rows itself, the launch of what reads them.
    """

    stem: str
    key: tuple
    details: tuple
    kernel: Callable[[str, Schedule | None], ScheduledKernel]
    operands: Sequence[SSAValue]
    choices: type[Schedule] = VectorSchedule
    obeys_all: bool = False
    result: Attribute | None = None
    begins: Sequence[SSAValue] = ()
    goes_on: bool = False
    reader: LaunchPlan | None = None


def launches_of(fusion: FusionOp, machine: Machine) -> list[LaunchPlan]:
    """The launches of a fusion for a kernel or copies, in order."""
    if nested := nested_in(fusion):
        return [_recomputing(fusion, nested, machine)]
    if text(fusion.kind) in ("move", "index"):
        special = next((op for op in fusion.body.block.ops if _is_copy(op)), None)
        if special is not None:
            return COPIES[type(special)](fusion, special, machine)
    key, details = structure(fusion)
    shaping = shaping_op(fusion)
    cube = isinstance(shaping, ContractOp | ConvOp)
    chained = chained_in(fusion, machine) if is_chained(fusion) else None
    is_decode = chained is not None and chained.is_decode

    def kernel(name: str, asked: Schedule | None) -> ScheduledKernel:
        if is_decode:
            return RowAttentionKernel(fusion, machine, as_row_attention(name, asked))
        if chained is not None:
            return kind_of_chain(chained, machine)(fusion, machine, as_attention(name, asked))
        if shaping is None:
            cls = VectorProductKernel if is_spread(fusion) else VectorKernel
            return cls(fusion, machine, as_vector(name, asked))
        return KERNELS[type(shaping)](shaping, fusion, machine, name, asked)

    own = RowAttentionSchedule if is_decode else AttentionSchedule
    choices = own if chained is not None else CubeSchedule if cube else VectorSchedule
    operands = [fusion.inputs[a.index] for a in read_by(fusion.body.block)]
    obeys_all = cube or shaping is None
    return [LaunchPlan(stem_of(fusion), key, details, kernel, operands, choices, obeys_all, begins=begun_as(fusion))]


def _recomputing(fusion: FusionOp, nested: Sequence[FusionOp], machine: Machine) -> LaunchPlan:
    """The launch of a fusion that makes rows itself which the last of the fusions inside it reads."""
    *makers, reader = nested
    (plan,), (key, details) = launches_of(reader, machine), structure(fusion)

    def kernel(name: str, asked: Schedule | None) -> ScheduledKernel:
        return RecomputingKernel(fusion, machine, plan.kernel(name, asked), plan.operands)

    return replace(
        plan,
        key=("recomputing", key),
        details=details,
        kernel=kernel,
        operands=[outside(fusion, v) for v in inputs_of(makers, plan.operands)],
        begins=[outside(fusion, v) for v in plan.begins],
        reader=plan,
    )


def kind_of_chain(chained: Chained, machine: Machine) -> type[ChainKernel | BackToBackKernel]:
    """The kernel of chained products of many rows."""
    if isinstance(chained, Attention):
        return AttentionKernel
    return BackToBackKernel if stays_on_cube(chained, machine) else ChainKernel


def banded(fusion: FusionOp, bands: Sequence[Band], machine: Machine) -> list[LaunchPlan]:
    """The launches of attention whose rows are cut into bands: one for each, in one tensor."""
    (plan,) = launches_of(fusion, machine)

    def of(band: Band) -> LaunchPlan:
        return replace(
            plan,
            stem=plan.stem if band.number == 0 else f"{plan.stem}_band",
            key=(plan.key, band),
            kernel=lambda name, asked: AttentionKernel(fusion, machine, as_attention(name, asked), band),
            result=fusion.result_types[0],
            goes_on=band.number > 0,
        )

    return [of(band) for band in bands]


# -- kernels by the op that gives a fusion its class --------------------------------------------------------------

Maker = Callable[[Any, FusionOp, Machine, str, Schedule | None], ScheduledKernel]


def _contraction(
    op: Operation, fusion: FusionOp, machine: Machine, name: str, asked: Schedule | None
) -> ScheduledKernel:
    if isinstance(asked, VectorSchedule) and isinstance(op, ContractOp):
        why = why_not_spread(fusion, machine)
        if why is not None:
            raise cannot_obey(name, f"the vector cores do not compute it, as {why}")
        return VectorProductKernel(fusion, machine, asked)
    kind = ContractKernel if pooling_in(fusion) is None else PooledKernel
    if made_operand(fusion) is not None:
        kind = PrologueKernel
    return kind(fusion, machine, as_cube(name, asked))


def _box(cls: Callable[..., ScheduledKernel]) -> Maker:
    return lambda op, fusion, machine, name, asked: cls(op, fusion, machine, as_vector(name, asked))


KERNELS: Rules[Maker] = Rules(
    GraphOp,
    "scheduled_kernel",
    {
        ContractOp: _contraction,
        ConvOp: _contraction,
        ReduceWindowOp: _box(WindowKernel),
        GatherOp: _box(gather_kernel),
        CumulateOp: _box(CumulateKernel),
        ScatterOp: _box(ScatterKernel),
        SelectAndScatterOp: _box(SelectAndScatterKernel),
        SortOp: _box(SortKernel),
    },
)
"""The kernel of a fusion by the op that gives it its class; without one it is a vector kernel."""


def shaping_op(fusion: FusionOp) -> Operation | None:
    """The op that gives a fusion its class: its product, which may read slices at their places; None for a vector
    kernel."""
    product = product_in(fusion)
    if product is not None:
        return product
    return next((op for op in fusion.body.block.ops if KERNELS.of(type(op)) is not None), None)


def stem_of(fusion: FusionOp) -> str:
    """A readable stem for the kernel's name: the op that shapes it."""
    if is_chained(fusion):
        return "attention" if any(isinstance(op, ReduceOp) for op in fusion.body.block.ops) else "chain"
    body = fusion.body.block
    shaping = shaping_op(fusion) or next((op for op in body.ops if isinstance(op, ReduceOp)), None)
    if shaping is not None:
        return shaping.name.split(".")[1]
    if text(fusion.kind) == "move":
        return "move"
    named = [o for o in body.ops if "axes" in o.attributes]
    return named[-1].name.split(".")[1] if named else "generate"


# -- copies -------------------------------------------------------------------------------------------------------


def _copy(
    fusion: FusionOp,
    stem: str,
    copy: BoxCopy,
    machine: Machine,
    operands: Sequence[SSAValue],
    result: Attribute,
    begins: Sequence[SSAValue] = (),
    goes_on: bool = False,
) -> LaunchPlan:
    def kernel(name: str, asked: Schedule | None) -> ScheduledKernel:
        return CopyKernel(copy, fusion, machine, as_vector(name, asked))

    return LaunchPlan(stem, ("copy", copy), (), kernel, operands, result=result, begins=begins, goes_on=goes_on)


def outside(fusion: FusionOp, value: SSAValue) -> SSAValue:
    """The operand of `fusion` behind a block argument of its body."""
    assert isinstance(value, BlockArgument)
    return fusion.inputs[value.index]


def _starts(
    fusion: FusionOp, values: Sequence[SSAValue], highest: Sequence[int]
) -> tuple[tuple[Start, ...], list[SSAValue]]:
    """Starts of a dynamic box, clamped to [0, highest]: constants folded, others as scalar inputs from 1 on."""
    starts: list[Start] = []
    scalars: list[SSAValue] = []
    for value, high in zip(values, highest, strict=True):
        known = splat_of(value)
        if certain(high, "==", 0):
            starts.append(0)
        elif known is not None:
            starts.append(min(max(int(known), 0), high))
        else:
            outer = outside(fusion, value)
            if outer not in scalars:
                scalars.append(outer)
            starts.append((1 + scalars.index(outer), 0, high))
    return tuple(starts), scalars


def _concat(fusion: FusionOp, op: ConcatOp, machine: Machine) -> list[LaunchPlan]:
    dim, at, found = integer(op.dim), 0, list[LaunchPlan]()
    for part in op.parts:
        if 0 not in shape_of(part):
            found.append(_part(fusion, op, part, dim, at, machine, goes_on=bool(found)))
        at += shape_of(part)[dim]
    return found


def _place(fusion: FusionOp, op: PlaceOp, machine: Machine) -> list[LaunchPlan]:
    begins = [] if op.base is None else [outside(fusion, op.base)]
    return [_part(fusion, op, op.x, integer(op.dim), integer(op.start), machine, begins)]


def _part(
    fusion: FusionOp,
    op: ConcatOp | PlaceOp,
    part: SSAValue,
    dim: int,
    start: int,
    machine: Machine,
    begins: Sequence[SSAValue] = (),
    goes_on: bool = False,
) -> LaunchPlan:
    """Copies a part of a tensor to its places, those of a dimension from `start` on."""
    out, box = shape_of(op.result), shape_of(part)
    rank = len(out)
    copy = BoxCopy(
        source=box,
        dest=out,
        box=box,
        element=element_of(part),
        scalars=(),
        source_starts=(0,) * rank,
        dest_starts=tuple(start if d == dim else 0 for d in range(rank)),
        dest_steps=(1,) * rank,
    )
    operands = [outside(fusion, part)]
    return _copy(fusion, "concat", copy, machine, operands, op.result.type, begins, goes_on)


def _dynamic_slice(fusion: FusionOp, op: DynamicSliceOp, machine: Machine) -> list[LaunchPlan]:
    source, box = shape_of(op.x), to_ints(op.sizes)
    starts, scalars = _starts(fusion, list(op.starts), [n - b for n, b in zip(source, box, strict=True)])
    copy = BoxCopy(
        source=source,
        dest=box,
        box=box,
        element=element_of(op.x),
        scalars=tuple(map(element_of, scalars)),
        source_starts=starts,
        dest_starts=(0,) * len(box),
        dest_steps=(1,) * len(box),
    )
    return [_copy(fusion, "slice", copy, machine, [outside(fusion, op.x), *scalars], op.result.type)]


def _update(fusion: FusionOp, op: DynamicUpdateSliceOp, machine: Machine) -> list[LaunchPlan]:
    dest, box = shape_of(op.x), shape_of(op.update)
    steps = to_ints(op.strides) if op.strides is not None else (1,) * len(box)
    reach = [(b - 1) * s + 1 for b, s in zip(box, steps, strict=True)]
    starts, scalars = _starts(fusion, list(op.starts), [n - r for n, r in zip(dest, reach, strict=True)])
    copy = BoxCopy(
        source=box,
        dest=dest,
        box=box,
        element=element_of(op.update),
        scalars=tuple(map(element_of, scalars)),
        source_starts=(0,) * len(box),
        dest_starts=starts,
        dest_steps=steps,
    )
    operands, begins = [outside(fusion, op.update), *scalars], [outside(fusion, op.x)]
    return [_copy(fusion, "update", copy, machine, operands, op.result.type, begins)]


COPIES: dict[type[Operation], Callable[[FusionOp, Any, Machine], list[LaunchPlan]]] = {
    ConcatOp: _concat,
    PlaceOp: _place,
    DynamicSliceOp: _dynamic_slice,
    DynamicUpdateSliceOp: _update,
}


def _is_copy(op: Operation) -> bool:
    """Whether an op of a fusion is done by copies: not where the kernel that makes a value puts it in its place."""
    return type(op) in COPIES and not (isinstance(op, PlaceOp) and isinstance(op.x.owner, Operation))
