"""Control flow, fusion regions and host calls of the graph level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from ..base import FormattedOp, describe, integer, text, to_ints
from ..dtypes import itemsize, size, tensor
from ..host_text import OpenTextAttr
from .interface import Casting, GraphOp, element_of, shape_of
from .schedules import to_schedules

AXES = "axes"
"""Attribute of an op in a fusion: the domain's axis of each dimension of its result (of its operand, for a
reduction); -1 for a dimension of size 1 without one."""


def axes_of(op: Operation) -> tuple[int, ...] | None:
    """The axes that an op in a fusion has as `AXES`; None where it has none."""
    named = op.attributes.get(AXES)
    return to_ints(named) if isinstance(named, DenseArrayBase) else None


def besides_axes(op: Operation) -> dict[str, Attribute]:
    """The attributes of an op but its `AXES`, which another fusion gives it anew."""
    return {name: value for name, value in op.attributes.items() if name != AXES}


FUSION_KINDS = ("vector", "cube", "mix", "move", "index", "scalar")
"""What a fusion becomes: loops on vector cores; a contraction; a contraction with a vector epilogue; data
movement by DMA alone; indexed access; arithmetic on single numbers, which the host does between launches."""


@irdl_op_definition
class YieldOp(FormattedOp):
    """Ends a region of the graph level with its results."""

    name = "graph.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())


class RegionOp(GraphOp):
    TAKES_QUANTIZED: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "what goes in and out of its regions keeps its type"

    def infer(self) -> Sequence[Attribute]:
        return list(self.result_types)

    def yielded(self, region: int) -> YieldOp:
        last = self.regions[region].block.last_op
        if not isinstance(last, YieldOp):
            raise self.error(f"region {region} must end with graph.yield")
        return last

    def check_yield(self, region: int, expected: Sequence[Attribute]) -> None:
        got = [v.type for v in self.yielded(region).values]
        if got != list(expected):
            given, wanted = (", ".join(map(str, types)) or "nothing" for types in (got, expected))
            raise self.error(f"region {region} yields {given} where {wanted} is expected")

    def flops(self) -> int:
        return sum(
            op.flops() for region in self.regions for op in region.block.ops if isinstance(op, GraphOp)
        )


@irdl_op_definition
class FusionOp(RegionOp):
    """Ops that become one kernel. The region is closed: everything comes in through `inputs`."""

    name = "graph.fusion"
    inputs = var_operand_def()
    outputs = var_result_def()
    kind = prop_def(StringAttr)
    domain = prop_def(DenseArrayBase)
    """Extents of the iteration axes that the ops' `axes` attributes refer to."""
    schedule = opt_prop_def(Attribute)
    """How its kernel is cut: a schedule of schedules.py, or one for each launch where it takes several."""
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    @property
    def on_host(self) -> bool:
        """Whether the host runs it: no kernel, and operands and results are numbers in the host's memory."""
        return text(self.kind) == "scalar"

    def verify_(self) -> None:
        if text(self.kind) not in FUSION_KINDS:
            raise self.error(f"kind {text(self.kind)!r} is not one of {', '.join(FUSION_KINDS)}")
        if self.on_host and any(shape_of(v) for v in (*self.operands, *self.results)):
            raise self.error("of kind 'scalar' takes and gives tensors of rank 0")
        if [a.type for a in self.body.block.args] != [v.type for v in self.inputs]:
            raise self.error("block arguments must have the inputs' types")
        self.check_yield(0, self.result_types)
        try:
            to_schedules(self.schedule)
        except VerifyException as error:
            raise self.error(str(error)) from error
        axes = len(to_ints(self.domain))
        for op in self.body.block.ops:
            named = axes_of(op)
            if named is not None and not all(-1 <= a < axes for a in named):
                raise self.error(
                    f"has a domain of {axes} dimension{'s' * (axes != 1)}, and {describe(op)} names the axes "
                    f"{list(named)} of it"
                )


@irdl_op_definition
class WhileOp(RegionOp):
    """Repeats `body` on the carried values while `condition` yields true.

    A counted loop has both `trip_count`, how often the body runs, and `counter`, the position of the carried
    i32 scalar that steps by one from its initial value. `host`: positions of carried numbers that stay in the
    host's memory (graph-partition decides).
    """

    name = "graph.while"
    KERNEL: ClassVar[bool] = False
    inits = var_operand_def()
    outputs = var_result_def()
    trip_count = opt_prop_def(IntegerAttr)
    counter = opt_prop_def(IntegerAttr)
    host = opt_prop_def(DenseArrayBase)
    condition = region_def("single_block")
    body = region_def("single_block")
    traits = traits_def(Pure())

    def verify_(self) -> None:
        types = [v.type for v in self.inits]
        if list(self.result_types) != types:
            raise self.error("results must have the types of the initial values")
        for region in (self.condition, self.body):
            if [a.type for a in region.block.args] != types:
                raise self.error("block arguments must have the types of the initial values")
        if [v.type for v in self.yielded(0).values] != [tensor([], i1)]:
            raise self.error("condition must yield one tensor<i1>")
        self.check_yield(1, types)
        check_host(self)


@irdl_op_definition
class CaseOp(RegionOp):
    """Runs branch `index` (the last one where it is out of range); branches see the values around them. `host`:
    positions of results that are numbers in the host's memory."""

    name = "graph.case"
    KERNEL: ClassVar[bool] = False
    index = operand_def()
    outputs = var_result_def()
    host = opt_prop_def(DenseArrayBase)
    branches = var_region_def("single_block")
    traits = traits_def(Pure())

    def steering(self) -> Sequence[SSAValue]:
        return [self.index]

    def verify_(self) -> None:
        if not self.branches:
            raise self.error("needs a branch")
        for i in range(len(self.branches)):
            self.check_yield(i, self.result_types)
        check_host(self)


def check_host(op: WhileOp | CaseOp) -> None:
    """`host` names results of rank 0. Raises VerifyException."""
    if any(not 0 <= i < len(op.results) or shape_of(op.results[i]) for i in to_ints(op.host)):
        raise op.error(f"host {list(to_ints(op.host))} must name results of rank 0")


@irdl_op_definition
class ToHostOp(GraphOp):
    """Reads a number of the device back to the host."""

    name = "graph.to_host"
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "the host reads it"
    KERNEL: ClassVar[bool] = False
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if shape_of(self.x):
            raise ValueError(f"reads {self.x.type}; it reads tensors of rank 0")
        return [self.x.type]


class ParkOp(GraphOp):
    """Moves a whole tensor between the memories of device and host. The values are the same."""

    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "it is moved as it is"
    KERNEL: ClassVar[bool] = False
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if not shape_of(self.x):
            raise ValueError(f"moves {self.x.type}; it moves tensors that have dimensions")
        return [self.x.type]


@irdl_op_definition
class OffloadOp(ParkOp):
    """Copies a tensor to the host's memory, where it waits for a graph.restore; nothing else takes it there. The
    device's memory is free behind it."""

    name = "graph.offload"

    def verify_(self) -> None:
        super().verify_()
        for use in self.result.uses:
            if not isinstance(use.operation, RestoreOp):
                raise self.error(f"is for graph.restore, and {describe(use.operation)} uses it")


@irdl_op_definition
class RestoreOp(ParkOp):
    """Copies what graph.offload brought to the host back to the device's memory."""

    name = "graph.restore"

    def verify_(self) -> None:
        super().verify_()
        if not isinstance(self.x.owner, OffloadOp):
            raise self.error("takes what a graph.offload brought to the host")


@irdl_op_definition
class HostOp(GraphOp):
    """A StableHLO op that no engine of the device runs: JAX runs `module` on the host, at a stated cost.

    `op` names it in reports; `module` is StableHLO text with one public function `main`, in which sizes stand where
    dimensions are open (`#graph.text`). `work`: bytes that the host reads and writes for it, where they are not just
    those of the operands and results.
    """

    name = "graph.host"
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "the host computes it"
    KERNEL: ClassVar[bool] = False
    WHOLE: ClassVar[bool] = True
    inputs = var_operand_def()
    outputs = var_result_def()
    op = prop_def(StringAttr)
    module = prop_def(StringAttr | OpenTextAttr)
    reasons = opt_prop_def(ArrayAttr)
    work = opt_prop_def(IntegerAttr)
    traits = traits_def(Pure())

    def host_bytes(self) -> int:
        """What the host reads and writes for this op, at least."""
        if self.work is not None:
            return integer(self.work)
        return sum(size(shape_of(v)) * itemsize(element_of(v)) for v in (*self.operands, *self.results))

    def infer(self) -> Sequence[Attribute]:
        return list(self.result_types)
