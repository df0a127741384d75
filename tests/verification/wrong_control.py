"""More wrong passes (see wrong_passes.py): loops, numbers of the host, calls, sorts, scatters, and the plan of device
memory of a program with calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from wrong_passes import ALLOCATE, NPU, PLAN, SIMPLIFY, TILE_, Case, every, replace_by, same_types, swap
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import CallOp, FuncOp

from tilewright.dialects import tile
from tilewright.dialects.base import encode, integer, ints, text, to_ints
from tilewright.dialects.graph import ELEMENTWISE as GRAPH
from tilewright.dialects.graph import (
    ConstantOp,
    DataAttr,
    DynamicSliceOp,
    ElementwiseOp,
    FusionOp,
    WhileOp,
    YieldOp,
)
from tilewright.dialects.graph.interface import shape_of
from tilewright.dialects.npu import buffer
from tilewright.dialects.npu import structure as host
from tilewright.dialects.npu.cumulate import VCumulateOp
from tilewright.dialects.npu.scatter import VScatterOp
from tilewright.dialects.npu.sorting import VSortOp

SCHEDULE = "npu-schedule-host"

# -- loops and numbers --------------------------------------------------------------------------------------


def hoisted_variant(module: ModuleOp) -> None:
    """What a round computes from a value that it carries is taken from the first round."""
    for loop in every(module, WhileOp):
        for arg, first in zip(loop.body.block.args, loop.inits, strict=True):
            if shape_of(arg):
                for use in list(arg.uses):
                    if isinstance(use.operation, ElementwiseOp):
                        use.operation.operands[use.index] = first


def carried_dropped(module: ModuleOp) -> None:
    """A carried value is taken for one that no round changes."""
    for loop in every(module, WhileOp):
        end = loop.yielded(1)
        for i, arg in enumerate(loop.body.block.args):
            if shape_of(arg):
                end.operands[i] = arg


def hoisted_operand(module: ModuleOp) -> None:
    """What is moved in front of a loop is computed there from another tensor."""
    for loop in every(module, WhileOp):
        before = loop.prev_op
        while before is not None and not (isinstance(before, ElementwiseOp) and shape_of(before.results[0])):
            before = before.prev_op
        if before is not None:
            replace_by(before.results[0], before.operands[0])


def waits_forgotten(module: ModuleOp) -> None:
    """Streams do not wait for each other."""
    for op in every(module, host.WaitEventOp):
        op.detach()


def records_early(module: ModuleOp) -> None:
    """An event is recorded before the command that it should follow."""
    for op in every(module, host.RecordEventOp):
        before = op.prev_op
        if isinstance(before, host.LaunchOp):
            op.detach()
            before.parent.insert_op_before(op, before)


def numbers(module: ModuleOp) -> list[Any]:
    return [f for f in every(module, FusionOp) if text(f.kind) == "scalar"]


def number_off_by_one(module: ModuleOp) -> None:
    """The host computes with constants that are one too large."""
    for fusion in numbers(module):
        for op in every(fusion, ConstantOp):
            array = op.value.data.array()
            if array.dtype.kind == "i":
                op.properties["value"] = DataAttr.of((array + 1).astype(array.dtype))


def number_of_the_round_before(module: ModuleOp) -> None:
    """What goes by a number that the host computes goes by the one that it is computed from."""
    for fusion in numbers(module):
        old = fusion.inputs[0] if fusion.inputs else None
        for result in fusion.results:
            if old is None or old.type != result.type:
                continue
            for use in list(result.uses):
                if not isinstance(use.operation, YieldOp):
                    use.operation.operands[use.index] = old


def branches_swapped(module: ModuleOp) -> None:
    for op in every(module, host.BranchOp):
        first, second = op.branches[0], op.branches[1]
        a, b = first.detach_block(first.block), second.detach_block(second.block)
        first.add_block(b)
        second.add_block(a)


# -- calls --------------------------------------------------------------------------------------------------


def call_arguments_swapped(module: ModuleOp) -> None:
    for op in every(module, CallOp, host.CallOp):
        pair = same_types(list(op.inputs() if isinstance(op, host.CallOp) else op.operands))
        if pair is not None:
            swap(op, *pair)


def frames_of_callers(module: ModuleOp) -> None:
    """A function that is called works in the memory of its callers."""
    entry = next(f for f in every(module, FuncOp) if "npu.arena_bytes" in f.attributes)
    made = [integer(op.address) for op in entry.walk() if isinstance(op, host.GmAllocOp)]
    for func in every(module, FuncOp):
        if "npu.frame" in func.attributes:
            start, end = to_ints(func.attributes["npu.frame"])
            by = start - min(made)
            for op in every(func, host.GmAllocOp):
                op.properties["address"] = IntegerAttr(integer(op.address) - by, i64)
            func.attributes["npu.frame"] = ints([start - by, end - by])


def tensors_of_a_frame_overlap(module: ModuleOp) -> None:
    """All tensors of a function that is called lie at the start of its frame."""
    for func in every(module, FuncOp):
        if "npu.frame" in func.attributes:
            for op in every(func, host.GmAllocOp):
                op.properties["address"] = IntegerAttr(to_ints(func.attributes["npu.frame"])[0], i64)


# -- sorts, scatters, cumulations ---------------------------------------------------------------------------


def order_reversed(module: ModuleOp) -> None:
    for op in every(module, tile.SortOp, VSortOp):
        op.properties["descending"] = ints([1 - d for d in to_ints(op.descending)])


def scatter_off_by_one(module: ModuleOp) -> None:
    """Rows go one further than their index says."""
    for op in every(module, tile.ScatterOp, VScatterOp):
        op.properties["offsets"] = encode([at + 1 for at in op.linear()], op.index_operands())


def scatter_sets(module: ModuleOp) -> None:
    """Updates replace what they should be added to."""
    for op in every(module, tile.ScatterOp, VScatterOp):
        op.properties["kind"] = StringAttr("set")


def cumulation_reversed(module: ModuleOp) -> None:
    for op in every(module, tile.CumulateOp, VCumulateOp):
        op.properties["reverse"] = IntegerAttr(1 - integer(op.reverse), op.reverse.type)


def work_over_result(module: ModuleOp) -> None:
    """What a sort works in lies over what it sorts."""
    for op in every(module, VSortOp):
        source, work = op.sources()[0].owner, op.destinations()[-1].owner
        while not hasattr(source, "address"):
            source = source.source.owner
        while not hasattr(work, "address"):
            work = work.source.owner
        assert buffer(op.sources()[0]).space == "ub"
        work.properties["address"] = source.properties["address"]


def strip_behind(module: ModuleOp) -> None:
    """Each strip is read one row too far."""
    for op in every(module, DynamicSliceOp):
        kind, block = op.starts[0].type, op.parent
        one = ConstantOp.create(properties={"value": DataAttr.of(np.asarray(1, np.int32))}, result_types=[kind])
        more = GRAPH["add"].create(operands=[op.starts[0], one.results[0]], result_types=[kind])
        block.insert_ops_before([one, more], op)
        op.operands[1] = more.results[0]


def strips_not_added(module: ModuleOp) -> None:
    """What is added up over strips is that of the last one."""
    for loop in every(module, WhileOp):
        for op in list(loop.body.block.ops):
            if isinstance(op, GRAPH["add"]) and shape_of(op.results[0]):
                replace_by(op.results[0], op.operands[1])


STRIPS, HOIST, PARTITION = "graph-strips", "graph-hoist", "graph-partition"

MORE = (
    Case("strips-one-row-too-far", STRIPS, "quadratic", strip_behind, ("graph.contract",)),
    Case("strips-forget-sums", STRIPS, "quadratic", strips_not_added, ("graph.contract",)),
    Case("hoist-takes-what-varies", HOIST, "rounds", hoisted_variant, ("graph.mul",), reproduced=False),
    Case("hoist-drops-carried", HOIST, "rounds", carried_dropped, ("graph.mul",), reproduced=False),
    Case("hoist-forgets-an-op", HOIST, "rounds", hoisted_operand, ("graph.contract",), reproduced=False),
    Case(
        "partition-number-off-by-one",
        PARTITION,
        "slices",
        number_off_by_one,
        ("graph.add",),
        reproduced=False,
    ),
    Case(
        "partition-number-before",
        PARTITION,
        "slices",
        number_of_the_round_before,
        ("graph.dynamic_slice",),
        reproduced=False,
    ),
    Case("npu-swaps-branches", NPU, "choice", branches_swapped, ("npu.launch",), reproduced=False),
    Case(
        "simplify-swaps-call-arguments",
        SIMPLIFY,
        "calls",
        call_arguments_swapped,
        ("graph.sin",),
        reproduced=False,
    ),
    Case("npu-swaps-call-arguments", NPU, "calls", call_arguments_swapped, ("npu.launch",), reproduced=False),
    Case("plan-frame-over-callers", PLAN, "calls", frames_of_callers, ("npu.launch",), reproduced=False),
    Case("plan-frame-overlaps", PLAN, "calls", tensors_of_a_frame_overlap, ("npu.launch",), reproduced=False),
    Case("schedule-forgets-waits", SCHEDULE, "hosted", waits_forgotten, ("graph.host",), "hazard"),
    Case("schedule-records-early", SCHEDULE, "hosted", records_early, ("graph.host",), "hazard"),
    Case("tile-sorts-backwards", TILE_, "ordered", order_reversed, ("graph.sort",)),
    Case("npu-sorts-backwards", NPU, "ordered", order_reversed, ("graph.sort",)),
    Case("allocate-sorts-over-itself", ALLOCATE, "ordered", work_over_result, ("graph.sort",)),
    Case("tile-scatter-off-by-one", TILE_, "scattered", scatter_off_by_one, ("graph.scatter",)),
    Case("npu-scatter-sets", NPU, "scattered", scatter_sets, ("graph.scatter",)),
    Case("npu-cumulates-backwards", NPU, "running", cumulation_reversed, ("graph.cumulate",)),
)
"""Wrong values inside loops, branches and functions are blamed, but not cut out: they have no reproducer."""
