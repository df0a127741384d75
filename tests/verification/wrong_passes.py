"""Passes that miscompile on purpose: each is a real stage of the pipeline followed by one realistic mistake.

A mistake looks at the structure of the IR alone, so it strikes a small program as it strikes a large one. `CASES` lists
them with the model they are tried on and with what a correct blame names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.arith import ConstantOp as IndexConstantOp
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr, f16, f64, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from tilewright.dialects import npu, tile
from tilewright.dialects.affine import Expr
from tilewright.dialects.base import INDEX, encode, integer, ints, text, to_ints
from tilewright.dialects.dtypes import tensor
from tilewright.dialects.graph import ELEMENTWISE as GRAPH
from tilewright.dialects.graph import (
    ConstantOp,
    ContractOp,
    DataAttr,
    FusionOp,
    PadOp,
    ReduceOp,
    SliceOp,
    TransposeOp,
)
from tilewright.dialects.graph.interface import shape_of
from tilewright.dialects.npu import NpuOp, buffer
from tilewright.dialects.npu import structure as host
from tilewright.dialects.tile import ELEMENTWISE as TILE
from tilewright.passes.pipeline import PIPELINE, PassChoices, Stage, make_pass, pinned

Mistake = Callable[[ModuleOp], None]

ASKED = {
    "graph-precision": PassChoices(precision="mixed_float16"),
    "graph-winograd": PassChoices(winograd="2"),
    "graph-strips": PassChoices(strips=4096),
    "tile-fit": PassChoices(memory_limit=2**30),
    "npu-hivm": PassChoices(hivm=True),
}
"""What is asked for where a pass only runs then."""


def corrupted(stage: str, mistake: Mistake) -> tuple[Stage, ...]:
    """The pipeline with `mistake` at the end of one stage."""
    stages = pinned(PIPELINE, ASKED.get(stage, PassChoices()))
    real = next(s for s in stages if s.name == stage)

    @dataclass(frozen=True)
    class Wrong(ModulePass):
        name = stage
        target: str | None = None

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            make_pass(real, self.target).apply(ctx, op)
            mistake(op)

    return tuple(replace(s, implementation=Wrong) if s is real else s for s in stages)


# -- helpers ------------------------------------------------------------------------------------------------


def every(module: ModuleOp, *kinds: Any) -> Iterator[Any]:
    yield from [op for op in module.walk() if isinstance(op, kinds)]


def swap(op: Operation, first: int = 0, second: int = 1) -> None:
    a, b = op.operands[first], op.operands[second]
    if a.type == b.type:
        op.operands[first], op.operands[second] = b, a


def replace_by(value: SSAValue, other: SSAValue) -> None:
    for use in list(value.uses):
        use.operation.operands[use.index] = other


def swapped(cls: Any) -> Mistake:
    def mistake(module: ModuleOp) -> None:
        for op in every(module, cls):
            swap(op)

    return mistake


def renamed(old: Any, new: Any) -> Mistake:
    """One op becomes another of the same form."""

    def mistake(module: ModuleOp) -> None:
        for op in every(module, old):
            made = new.create(
                operands=list(op.operands),
                result_types=[r.type for r in op.results],
                attributes=dict(op.attributes),
                location=op.location,
            )
            op.parent.insert_op_before(made, op)
            for a, b in zip(op.results, made.results, strict=True):
                b.name_hint = a.name_hint
                a.replace_all_uses_with(b)
            op.detach()
            op.erase()

    return mistake


def of_kind(cls: Any, old: str, new: str) -> Mistake:
    """A reduction of another kind."""

    def mistake(module: ModuleOp) -> None:
        for op in every(module, cls):
            if text(op.kind) == old:
                op.properties["kind"] = StringAttr(new)

    return mistake


def dropped(cls: Any) -> Mistake:
    """An op is forgotten: its users see its operand."""

    def mistake(module: ModuleOp) -> None:
        for op in every(module, cls):
            if op.operands[0].type == op.results[0].type:
                replace_by(op.results[0], op.operands[0])

    return mistake


def shifted(cls: Any, dim: int = -1, by: int = 1) -> Mistake:
    """A box starts `by` elements too far along a dimension."""

    def mistake(module: ModuleOp) -> None:
        for op in every(module, cls):
            starts = list(op.linear())
            if starts:
                starts[dim] += by
                op.properties["offsets"] = encode(starts, op.index_operands())

    return mistake


# -- graph level --------------------------------------------------------------------------------------------


def slice_off_by_one(module: ModuleOp) -> None:
    for op in every(module, SliceOp):
        starts, limits = list(to_ints(op.starts)), list(to_ints(op.limits))
        for d, n in enumerate(shape_of(op.x)):
            if limits[d] < n:
                starts[d], limits[d] = starts[d] + 1, limits[d] + 1
        op.properties["starts"], op.properties["limits"] = ints(starts), ints(limits)


def constant_rounded(module: ModuleOp) -> None:
    """Constants lose all but their leading digit."""
    for op in every(module, ConstantOp):
        array = op.value.data.array()
        if array.dtype == np.float32 and array.size == 1:
            op.properties["value"] = DataAttr.of(
                np.asarray(float(f"{float(array.reshape(())):.0e}"), np.float32).reshape(array.shape)
            )


def pad_with_one(module: ModuleOp) -> None:
    for op in every(module, PadOp):
        one = ConstantOp.create(
            result_types=[op.value.type], properties={"value": DataAttr.of(np.ones((), np.float32))}
        )
        op.parent.insert_op_before(one, op)
        op.operands[1] = one.result


def transposed_operand(module: ModuleOp) -> None:
    """A contraction reads its square right operand transposed."""
    for op in every(module, ContractOp):
        shape, rhs = shape_of(op.rhs), to_ints(op.rhs_contract)
        if len(shape) == 2 and shape[0] == shape[1] and len(rhs) == 1:
            op.properties["rhs_contract"] = ints([1 - rhs[0]])


def identity_transpose(module: ModuleOp) -> None:
    """A transpose of a square is taken for a copy."""
    for op in every(module, TransposeOp):
        if op.x.type == op.result.type:
            replace_by(op.result, op.x)


def epilogue_dropped(module: ModuleOp) -> None:
    """A kernel stores what its last op should still work on."""
    for fusion in every(module, FusionOp):
        end = fusion.body.block.last_op
        for i, v in enumerate(end.operands):
            owner = v.owner
            if isinstance(owner, GRAPH["max"]) and owner.operands[0].type == v.type:
                end.operands[i] = owner.operands[0]


def recomputed_wrongly(module: ModuleOp) -> None:
    """exp inside a kernel is computed again, from the wrong side of the subtraction."""
    for fusion in every(module, FusionOp):
        for op in fusion.body.block.ops:
            if isinstance(op, GRAPH["exp"]) and isinstance(op.operands[0].owner, GRAPH["sub"]):
                op.operands[0] = op.operands[0].owner.operands[1]


def rounded_inside(module: ModuleOp) -> None:
    """A kernel keeps an intermediate value in f16."""
    for fusion in every(module, FusionOp):
        block = fusion.body.block
        for op in list(block.ops):
            if isinstance(op, GRAPH["mul"]) and str(op.results[0].type).endswith("f32>"):
                x, kind = op.results[0], op.results[0].type
                uses = list(x.uses)
                down = GRAPH["convert"].create(
                    operands=[x], result_types=[tensor(shape_of(x), f16)], attributes=dict(op.attributes)
                )
                up = GRAPH["convert"].create(
                    operands=[down.results[0]], result_types=[kind], attributes=dict(op.attributes)
                )
                block.insert_op_after(down, op)
                block.insert_op_after(up, down)
                for use in uses:
                    use.operation.operands[use.index] = up.results[0]


def inputs_swapped(module: ModuleOp) -> None:
    """A kernel gets its first two inputs of one type in the wrong order."""
    for fusion in every(module, FusionOp):
        pair = same_types(list(fusion.inputs))
        if pair is not None:
            swap(fusion, *pair)


def same_types(values: Sequence[SSAValue]) -> tuple[int, int] | None:
    for i, v in enumerate(values):
        for j in range(i + 1, len(values)):
            if values[j].type == v.type and values[j] is not v:
                return i, j
    return None


# -- tile level ---------------------------------------------------------------------------------------------


def fill_one(module: ModuleOp) -> None:
    for op in every(module, tile.LoadOp):
        op.properties["fill"] = FloatAttr(1.0, f64)


def accumulation_lost(module: ModuleOp) -> None:
    """Every step of a product starts from zero."""
    for op in every(module, tile.MmaOp):
        op.operands = list(op.main_operands())
        op.properties["offsets"] = encode([Expr()], [])


def last_tile_skipped(module: ModuleOp) -> None:
    """Grids are one core short along their first axis."""
    for kernel in every(module, tile.KernelOp):
        grid = list(to_ints(kernel.grid))
        for a, n in enumerate(grid):
            if n > 1:
                grid[a] -= 1
                break
        kernel.properties["grid"] = ints(grid)


def last_step_skipped(module: ModuleOp) -> None:
    """Loops that add up a product end one step early."""
    for loop in every(module, scf.ForOp):
        bound = loop.ub.owner
        adds_up = any(isinstance(op, tile.MmaOp) for op in loop.walk()) and loop.results
        if adds_up and isinstance(bound, IndexConstantOp) and integer(bound.value) > 1:
            fewer = IndexConstantOp(IntegerAttr(integer(bound.value) - 1, INDEX))
            loop.parent.insert_op_before(fewer, loop)
            loop.operands[1] = fewer.result


def launch_arguments_swapped(module: ModuleOp) -> None:
    for op in every(module, tile.LaunchOp):
        pair = same_types(list(op.arguments))
        if pair is not None:
            swap(op, *pair)


def view_transposed(module: ModuleOp) -> None:
    """A view of a square has its strides exchanged."""
    for op in every(module, tile.ViewOp, npu.ViewOp):
        kind = op.result.type
        if len(kind.shape) == 2 and kind.shape[0] == kind.shape[1]:
            new = type(kind).of(kind.shape, kind.element, kind.strides[::-1], kind.offset)
            object.__setattr__(op.result, "_type", new)


def mask_short(module: ModuleOp) -> None:
    """The valid part of a row ends one element early."""
    for op in every(module, tile.MaskOp):
        bounds = list(to_ints(op.bounds))
        bounds[-1] -= 1
        op.properties["bounds"] = ints(bounds)


# -- npu level ----------------------------------------------------------------------------------------------


def slot_behind(module: ModuleOp) -> None:
    """Consumers read the slot that is filled next."""
    for slot in every(module, npu.SlotOp):
        readers = [u for u in slot.result.uses if u.operation.operands[u.index] in _reads(u.operation)]
        if not readers:
            continue
        (counter,) = slot.linear()
        late = npu.SlotOp.create(
            operands=list(slot.operands),
            result_types=[slot.result.type],
            properties={"offsets": encode([counter + 1], slot.indices)},
        )
        slot.parent.insert_op_after(late, slot)
        for use in readers:
            if use.operation not in (slot, late) and not isinstance(use.operation, npu.MmadOp):
                use.operation.operands[use.index] = late.result


def _reads(op: Operation) -> Sequence[SSAValue]:
    return op.reads() if isinstance(op, NpuOp) else ()


def accumulator_kept(module: ModuleOp) -> None:
    """A product adds to what the accumulator held before."""
    for op in every(module, npu.MmadOp):
        op.properties["offsets"] = encode([at + 1 for at in op.linear()], op.index_operands())


def host_arguments_swapped(module: ModuleOp) -> None:
    for op in every(module, host.LaunchOp):
        pair = same_types(list(op.inputs()))
        if pair is not None:
            swap(op, *pair)


def output_reused(module: ModuleOp) -> None:
    """A launch writes over a tensor that is still needed."""
    for func in every(module, FuncOp):
        launches = [op for op in func.body.block.ops if isinstance(op, host.LaunchOp)]
        for i, op in enumerate(launches):
            for earlier in launches[:i]:
                for old in earlier.written():
                    new = op.written()[0]
                    needed = any(old in later.inputs() for later in launches[i + 1 :])
                    if needed and old.type == new.type and old not in op.operands:
                        replace_by(new, old)
                        return


def copy_forgotten(module: ModuleOp) -> None:
    """A tensor that is updated in place does not get its old contents first."""
    for op in every(module, host.CopyOp):
        op.detach()
        op.erase()


def allocs(section: Operation, space: str) -> list[npu.AllocOp]:
    return [op for op in section.walk() if isinstance(op, npu.AllocOp) and buffer(op.result).space == space]


def overlapping(space: str, by: int = 0) -> Mistake:
    """All buffers of a space begin at one address, or `by` bytes too early."""

    def mistake(module: ModuleOp) -> None:
        for section in every(module, host.SectionOp):
            for op in allocs(section, space)[1:]:
                at = 0 if not by else max(integer(op.address) - by, 0)
                op.properties["address"] = IntegerAttr(at, i64)

    return mistake


def slots_lost(module: ModuleOp) -> None:
    """Buffers are placed as if each had one slot."""
    for section in every(module, host.SectionOp):
        for space in ("l1", "l0a", "l0b", "ub"):
            at = 0
            for op in allocs(section, space):
                op.properties["address"] = IntegerAttr(at, i64)
                at += buffer(op.result).slot_bytes


def stored_early(module: ModuleOp) -> None:
    """A store goes before the instruction that makes what it stores."""
    for op in every(module, npu.StoreNdOp, npu.FixpipeOp):
        source = op.source
        makers = [
            u.operation
            for u in source.uses
            if u.operation.parent is op.parent and isinstance(u.operation, NpuOp)
        ]
        makers = [m for m in makers if source in m.writes()]
        if makers:
            op.detach()
            makers[0].parent.insert_op_before(op, makers[0])


def flag_dropped(module: ModuleOp) -> None:
    for op in every(module, npu.SetFlagOp):
        op.detach()
        op.erase()


def flag_retargeted(module: ModuleOp) -> None:
    """Waits look at the next event."""
    for op in every(module, npu.WaitFlagOp):
        op.properties["event"] = IntegerAttr((integer(op.event) + 1) % 8, i64)


def arena_overlap(module: ModuleOp) -> None:
    """Tensors of the program all lie at the address of the first."""
    for func in every(module, FuncOp):
        made = [op for op in func.walk() if isinstance(op, host.GmAllocOp)]
        for op in made[1:]:
            op.properties["address"] = made[0].properties["address"]


def argument_overlap(module: ModuleOp) -> None:
    """Results are placed over the first argument."""
    for func in every(module, FuncOp):
        addresses = to_ints(func.attributes["npu.addresses"])
        made = [op for op in func.walk() if isinstance(op, host.GmAllocOp)]
        for op in made[:-1]:
            op.properties["address"] = IntegerAttr(addresses[0], i64)


def arguments_apart(module: ModuleOp) -> None:
    """Arguments are expected one after the other without padding to the alignment."""
    for func in every(module, FuncOp):
        old = to_ints(func.attributes["npu.addresses"])
        func.attributes["npu.addresses"] = ints([0 if i == 1 else a for i, a in enumerate(old)])


def result_order(module: ModuleOp) -> None:
    for op in every(module, ReturnOp):
        pair = same_types(list(op.operands))
        if pair is not None:
            swap(op, *pair)


# -- the list -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """name; stage that is corrupted; model of `models.py`; ops that a correct blame may name; whether the culprit can
    be cut out of the program."""

    name: str
    stage: str
    model: str
    mistake: Mistake
    ops: tuple[str, ...]
    kind: str = "wrong value"
    reproduced: bool = True


PRECISION, QUANTIZED = "graph-precision", "graph-quantized"
COMPLEX, SIMPLIFY, FUSE, SCHEDULE = "graph-complex", "graph-simplify", "graph-fuse", "graph-schedule"
TILE_, NPU = "graph-to-tile", "tile-to-npu"
HIVM, ALLOCATE, SYNC, PLAN = "npu-hivm", "npu-allocate", "npu-synchronize", "npu-plan-memory"

CASES = (
    Case("precision-max-for-min", PRECISION, "layers", renamed(GRAPH["max"], GRAPH["min"]), ("graph.max",)),
    Case("precision-swaps-sub", PRECISION, "softmax", swapped(GRAPH["sub"]), ("graph.sub",)),
    Case("precision-transposes-operand", PRECISION, "square", transposed_operand, ("graph.contract",)),
    Case("quantized-swaps-sub", QUANTIZED, "quantized", swapped(GRAPH["sub"]), ("graph.dequantize",)),
    Case("complex-swaps-sub", COMPLEX, "turned", swapped(GRAPH["sub"]), ("graph.sub", "graph.real")),
    Case("simplify-swaps-sub", SIMPLIFY, "softmax", swapped(GRAPH["sub"]), ("graph.sub",)),
    Case("simplify-swaps-div", SIMPLIFY, "softmax", swapped(GRAPH["div"]), ("graph.div",)),
    Case("simplify-max-for-min", SIMPLIFY, "mlp", renamed(GRAPH["max"], GRAPH["min"]), ("graph.max",)),
    Case("simplify-sums-maximum", SIMPLIFY, "softmax", of_kind(ReduceOp, "sum", "max"), ("graph.reduce",)),
    Case("simplify-slice-off-by-one", SIMPLIFY, "moves", slice_off_by_one, ("graph.slice",)),
    Case("simplify-rounds-constants", SIMPLIFY, "norm", constant_rounded, ("graph.constant",)),
    Case("simplify-pads-with-one", SIMPLIFY, "moves", pad_with_one, ("graph.pad",)),
    Case(
        "simplify-drops-transpose", SIMPLIFY, "square", identity_transpose, ("graph.transpose", "graph.add")
    ),
    Case("simplify-le-for-lt", SIMPLIFY, "causal", renamed(GRAPH["ge"], GRAPH["gt"]), ("graph.ge",)),
    Case("fuse-drops-epilogue", FUSE, "mlp", epilogue_dropped, ("graph.max",)),
    Case("fuse-recomputes-wrongly", FUSE, "softmax", recomputed_wrongly, ("graph.exp",)),
    Case("fuse-rounds-to-f16", FUSE, "norm", rounded_inside, ("graph.mul", "graph.add")),
    Case("fuse-swaps-inputs", FUSE, "apart", inputs_swapped, ("graph.sub", "graph.fusion")),
    Case("fuse-transposes-operand", FUSE, "square", transposed_operand, ("graph.contract",)),
    Case("schedule-swaps-inputs", SCHEDULE, "apart", inputs_swapped, ("graph.sub", "graph.fusion")),
    Case("tile-swaps-sub", TILE_, "softmax", swapped(TILE["sub"]), ("graph.sub",)),
    Case("tile-turns-views", TILE_, "square", view_transposed, ("graph.transpose",)),
    Case("tile-sums-maximum", TILE_, "softmax", of_kind(tile.ReduceOp, "sum", "max"), ("graph.reduce",)),
    Case(
        "tile-load-off-by-one", TILE_, "apart", shifted(tile.LoadOp), ("graph.sub", "graph.mul", "graph.exp")
    ),
    Case(
        "tile-store-off-by-one",
        TILE_,
        "apart",
        shifted(tile.StoreOp, by=1),
        ("graph.sub", "graph.mul", "graph.exp"),
    ),
    Case("tile-fills-with-one", TILE_, "deep", fill_one, ("graph.contract",)),
    Case("tile-loses-accumulation", TILE_, "deep", accumulation_lost, ("graph.contract",)),
    Case("tile-skips-last-core", TILE_, "apart", last_tile_skipped, ("graph.sub", "graph.mul", "graph.exp")),
    Case("tile-skips-last-step", TILE_, "deep", last_step_skipped, ("graph.contract",)),
    Case("tile-swaps-launch-arguments", TILE_, "apart", launch_arguments_swapped, ("tile.launch",)),
    Case("tile-mask-short", TILE_, "long", mask_short, ("graph.reduce",)),
    Case("fit-swaps-launch-arguments", "tile-fit", "apart", launch_arguments_swapped, ("tile.launch",)),
    Case("recomputed-reads-off-by-one", TILE_, "token", shifted(tile.ExtractOp), ("graph.contract",)),
    Case("winograd-swaps-sub", "graph-winograd", "window", swapped(GRAPH["sub"]), ("graph.sub", "graph.conv")),
    Case("tile-drops-exp", TILE_, "softmax", dropped(TILE["exp"]), ("graph.exp",)),
    Case("npu-reads-next-slot", NPU, "deep", slot_behind, ("graph.contract",)),
    Case("npu-keeps-accumulator", NPU, "wide", accumulator_kept, ("graph.contract",)),
    Case("npu-swaps-launch-arguments", NPU, "apart", host_arguments_swapped, ("npu.launch",)),
    Case("npu-reuses-live-output", NPU, "chain", output_reused, ("npu.launch",)),
    Case("npu-forgets-copy", NPU, "update", copy_forgotten, ("npu.launch",)),
    Case("npu-swaps-results", NPU, "apart", result_order, ("func.return",)),
    Case("npu-load-off-by-one", NPU, "apart", shifted(npu.LoadNdOp), ("graph.sub", "graph.mul", "graph.exp")),
    Case("hivm-swaps-sub", HIVM, "softmax", swapped(npu.ELEMENTWISE["sub"]), ("graph.sub",)),
    Case("allocate-overlaps-ub", ALLOCATE, "apart", overlapping("ub"), ("graph.sub", "graph.mul")),
    Case("allocate-512-bytes-early", ALLOCATE, "apart", overlapping("ub", 512), ("graph.sub", "graph.mul")),
    Case("allocate-forgets-slots", ALLOCATE, "deep", slots_lost, ("graph.contract",)),
    Case("synchronize-stores-early", SYNC, "apart", stored_early, ("graph.sub", "graph.mul", "graph.exp")),
    Case(
        "synchronize-drops-set",
        SYNC,
        "apart",
        flag_dropped,
        ("graph.sub", "graph.mul", "graph.exp"),
        "hazard",
    ),
    Case(
        "synchronize-wrong-event",
        SYNC,
        "apart",
        flag_retargeted,
        ("graph.sub", "graph.mul", "graph.exp"),
        "hazard",
    ),
    Case("plan-overlaps-tensors", PLAN, "chain", arena_overlap, ("npu.launch",)),
    Case("plan-overlaps-argument", PLAN, "chain", argument_overlap, ("npu.launch",)),
    Case("plan-misplaces-argument", PLAN, "apart", arguments_apart, ("npu.launch",)),
)
