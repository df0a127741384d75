"""graph-to-tile: each fusion becomes a kernel and a launch; equal fusions share one kernel. A fusion whose values do
not fit on chip together is split (halves.py).

Before:  %r = graph.fusion %x, %w {kind = "cube"} { ... graph.contract ... }
After:   %r = tile.launch @contract_0 %x, %w
         tile.kernel @contract_0 { ^bb0(%i: index, %x: !npu.gm<...>, ...): tile.section {core = "cube"} { ... } }

In a program with host calls, launches that depend on the host are then ordered last (launch_order.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from ...dialects import tile as ops
from ...dialects.base import describe, integer, ints, text, to_ints
from ...dialects.graph import (
    ConcatOp,
    ContractOp,
    ConvOp,
    CumulateOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    FusionOp,
    GatherOp,
    GraphOp,
    ReduceOp,
    ReduceWindowOp,
    ScatterOp,
    SelectAndScatterOp,
    SortOp,
    YieldOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ...support.rules import Rules
from ..access import splat_of
from ..base import TargetPass
from ..errors import PassError, TooLarge
from ..pins import Pins, Schedule, parse_pins
from .contract import lower_contract
from .cumulate import lower_cumulate
from .gather import lower_gather
from .halves import cut_in_two
from .launch_order import estimate, order_launches
from .moves import Start, lower_copy
from .scatter import lower_scatter
from .selecting import lower_select_and_scatter
from .sort import lower_sort
from .vector import lower_vector
from .windows import lower_window


@dataclass(frozen=True)
class GraphToTilePass(TargetPass):
    """Lowers fusions to tile kernels for a target."""

    name = "graph-to-tile"
    schedule: str = ""
    """Pinned choices, as `parse_pins` of pins.py reads them."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        lowering = Lowering(module, machine, parse_pins(self.schedule))
        for func in list(module.ops):
            if isinstance(func, FuncOp) and func.body.blocks:
                lowering.block(func.body.block)
        lowering.check_names()
        order_launches(module, lowering.costs, machine)


def fingerprint(fusion: FusionOp) -> tuple[tuple, tuple]:
    """What makes two fusions the same kernel, not names or places: kind, domain, ops and wiring; and properties and
    types, whose hashes would take longer than all else."""
    block = fusion.body.block
    numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
    shape: list[Any] = [text(fusion.kind), to_ints(fusion.domain)]
    details: list[Any] = [a.type for a in block.args]
    for op in block.ops:
        shape += (op.name, tuple(numbers[v] for v in op.operands))
        details += (op.properties, op.attributes, op.result_types)
        for r in op.results:
            numbers[r] = len(numbers)
    return tuple(shape), tuple(details)


class Lowering:
    """Lowers all fusions of a module, keeping one kernel for each fingerprint."""

    def __init__(self, module: ModuleOp, machine: Machine, pins: Pins = None):
        self.module = module
        self.machine = machine
        self.pins = pins
        self.kernels: dict[tuple, list[tuple[tuple, ops.KernelOp]]] = {}
        """By what is hashed of what makes a kernel, the rest of it and the kernel."""
        self.names: dict[str, int] = {}
        self.costs: dict[Operation, float] = {}
        """Microseconds of launches, estimated."""
        self.estimates: dict[tuple[ops.KernelOp, tuple[int, ...]], float] = {}
        """The same for each kernel and what it starts with."""
        self.symbols: dict[ops.KernelOp, SymbolRefAttr] = {}

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            for region in op.regions:
                if not isinstance(op, FusionOp):
                    for inner in region.blocks:
                        self.block(inner)
            if isinstance(op, FusionOp) and op.on_host:
                continue
            if isinstance(op, FusionOp):
                self.fusion(op)
            elif isinstance(op, GraphOp) and op.KERNEL:
                raise PassError(f"{describe(op)} is not in a fusion: run graph-fuse before graph-to-tile")

    def check_names(self) -> None:
        """Every kernel that a schedule names exists. Raises PassError."""
        if self.pins is None or isinstance(self.pins, Schedule):
            return
        known = [text(kernel.sym_name) for alike in self.kernels.values() for _, kernel in alike]
        for name in self.pins:
            if name not in known:
                raise PassError(f"schedule: there is no kernel {name!r}; there are {', '.join(known)}")

    def kernel(
        self, key: tuple, stem: str, build: Callable[[str], ops.KernelOp], details: tuple = ()
    ) -> ops.KernelOp:
        """The kernel of this key and these details, built where there is none yet."""
        alike = self.kernels.setdefault(key, [])
        found = next((kernel for other, kernel in alike if other == details), None)
        if found is None:
            number = self.names.get(stem, 0)
            found = build(f"{stem}_{number}")
            alike.append((details, found))
            self.symbols[found] = SymbolRefAttr(text(found.sym_name))
            self.names[stem] = number + 1
            self.module.body.block.add_op(found)
        return found

    def fusion(self, fusion: FusionOp) -> None:
        body = fusion.body.block
        special = next((op for op in body.ops if type(op) in COPIES), None)
        if special is not None and text(fusion.kind) in ("move", "index"):
            results = COPIES[type(special)](self, fusion, special)
        else:
            shaping = shaping_op(fusion)
            build = partial(BUILDERS[type(shaping)], shaping) if shaping is not None else lower_vector
            try:
                key, details = fingerprint(fusion)
                kernel = self.kernel(
                    key, stem_of(fusion), lambda name: build(fusion, self.machine, name, self.pins), details
                )
            except TooLarge:
                halves = cut_in_two(fusion)
                if not halves:
                    raise
                for half in halves:
                    self.fusion(half)
                return
            results = self.launch(kernel, list(fusion.inputs), list(fusion.result_types), [-1], fusion)
        for old, new in zip(fusion.results, results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        fusion.detach()
        fusion.operands = ()  # what is inside names nothing outside, and need not be taken apart

    def launch(
        self,
        kernel: ops.KernelOp,
        operands: list[SSAValue],
        results: list[Attribute],
        inits: list[int],
        fusion: FusionOp,
    ) -> list[SSAValue]:
        starts = tuple(inits * len(results) if len(inits) == 1 else inits)
        op = ops.LaunchOp.create(
            operands=operands,
            result_types=results,
            properties={"callee": self.symbols[kernel], "inits": ints(starts)},
            location=fusion.location,
        )
        block = fusion.parent
        assert block is not None
        block.insert_op_before(op, fusion)
        if (kernel, starts) not in self.estimates:
            cores = math.prod(to_ints(kernel.grid))
            self.estimates[kernel, starts] = estimate(fusion, op, cores, self.machine)
        self.costs[op] = self.estimates[kernel, starts]
        return list(op.results)

    # -- copies ------------------------------------------------------------------------------------------------

    def copy(
        self,
        fusion: FusionOp,
        stem: str,
        source: SSAValue,
        dest_shape: tuple[int, ...],
        box: tuple[int, ...],
        source_starts: list[Start],
        dest_starts: list[Start],
        dest_steps: tuple[int, ...],
        scalars: list[SSAValue],
        init: SSAValue | None,
        result: Attribute,
    ) -> SSAValue:
        element = element_of(source)
        shapes = shape_of(source), dest_shape
        kinds = [element_of(s) for s in scalars]
        key = (
            "copy",
            *shapes,
            box,
            element,
            tuple(kinds),
            tuple(source_starts),
            tuple(dest_starts),
            dest_steps,
        )
        kernel = self.kernel(
            key,
            stem,
            lambda name: lower_copy(
                self.machine,
                name,
                box,
                *shapes,
                element,
                kinds,
                source_starts,
                dest_starts,
                dest_steps,
                fusion.location,
            ),
        )
        operands = [source, *scalars, *([init] if init is not None else [])]
        inits = [len(operands) - 1 if init is not None else -1]
        return self.launch(kernel, operands, [result], inits, fusion)[0]

    def outside(self, fusion: FusionOp, value: SSAValue) -> SSAValue:
        """The operand of `fusion` behind a block argument of its body."""
        assert isinstance(value, BlockArgument)
        return fusion.inputs[value.index]

    def starts(
        self, fusion: FusionOp, values: list[SSAValue], highest: list[int]
    ) -> tuple[list[Start], list[SSAValue]]:
        """Starts of a dynamic box, clamped to [0, highest]: constants folded, others as scalar inputs from 1 on."""
        starts: list[Start] = []
        scalars: list[SSAValue] = []
        for value, high in zip(values, highest, strict=True):
            known = splat_of(value)
            if high == 0:
                starts.append(0)
            elif known is not None:
                starts.append(min(max(int(known), 0), high))
            else:
                outer = self.outside(fusion, value)
                if outer not in scalars:
                    scalars.append(outer)
                starts.append((1 + scalars.index(outer), 0, high))
        return starts, scalars

    def concat(self, fusion: FusionOp, op: ConcatOp) -> list[SSAValue]:
        out, dim = shape_of(op.result), integer(op.dim)
        state: SSAValue | None = None
        at = 0
        for part in op.parts:
            box = shape_of(part)
            if 0 in box:
                continue
            starts: list[Start] = [at if d == dim else 0 for d in range(len(out))]
            zeros: list[Start] = [0] * len(out)
            state = self.copy(
                fusion,
                "concat",
                self.outside(fusion, part),
                out,
                box,
                zeros,
                starts,
                (1,) * len(out),
                [],
                state,
                op.result.type,
            )
            at += box[dim]
        assert state is not None
        return [state]

    def dynamic_slice(self, fusion: FusionOp, op: DynamicSliceOp) -> list[SSAValue]:
        source, box = shape_of(op.x), to_ints(op.sizes)
        starts, scalars = self.starts(
            fusion, list(op.starts), [n - b for n, b in zip(source, box, strict=True)]
        )
        zeros: list[Start] = [0] * len(box)
        x = self.outside(fusion, op.x)
        return [
            self.copy(
                fusion, "slice", x, box, box, starts, zeros, (1,) * len(box), scalars, None, op.result.type
            )
        ]

    def update(self, fusion: FusionOp, op: DynamicUpdateSliceOp) -> list[SSAValue]:
        dest, box = shape_of(op.x), shape_of(op.update)
        steps = to_ints(op.strides) if op.strides is not None else (1,) * len(box)
        reach = [(b - 1) * s + 1 for b, s in zip(box, steps, strict=True)]
        starts, scalars = self.starts(
            fusion, list(op.starts), [n - r for n, r in zip(dest, reach, strict=True)]
        )
        zeros: list[Start] = [0] * len(box)
        new, old = self.outside(fusion, op.update), self.outside(fusion, op.x)
        return [
            self.copy(fusion, "update", new, dest, box, zeros, starts, steps, scalars, old, op.result.type)
        ]


COPIES: dict[type[Operation], Callable[..., list[SSAValue]]] = {
    ConcatOp: Lowering.concat,
    DynamicSliceOp: Lowering.dynamic_slice,
    DynamicUpdateSliceOp: Lowering.update,
}

Builder = Callable[[Any, FusionOp, Machine, str, Pins], ops.KernelOp]


def _of_fusion(build: Callable[[FusionOp, Machine, str, Pins], ops.KernelOp]) -> Builder:
    return lambda op, *arguments: build(*arguments)


BUILDERS: Rules[Builder] = Rules(
    GraphOp,
    "build_kernel",
    {
        ContractOp: _of_fusion(lower_contract),
        ConvOp: _of_fusion(lower_contract),
        ReduceWindowOp: _of_fusion(lower_window),
        GatherOp: _of_fusion(lower_gather),
        CumulateOp: _of_fusion(lower_cumulate),
        ScatterOp: _of_fusion(lower_scatter),
        SelectAndScatterOp: _of_fusion(lower_select_and_scatter),
        SortOp: _of_fusion(lower_sort),
    },
)
"""The lowering of a fusion by the op that gives it its class; without one it is a vector kernel."""


def shaping_op(fusion: FusionOp) -> Operation | None:
    """The op that gives a fusion its class; None for a vector kernel."""
    return next((op for op in fusion.body.block.ops if BUILDERS.of(type(op)) is not None), None)


def stem_of(fusion: FusionOp) -> str:
    """A readable stem for the kernel's name: the op that shapes it."""
    body = fusion.body.block
    shaping = shaping_op(fusion) or next((op for op in body.ops if isinstance(op, ReduceOp)), None)
    if shaping is not None:
        return shaping.name.split(".")[1]
    if text(fusion.kind) == "move":
        return "move"
    named = [o for o in body.ops if "axes" in o.attributes]
    last = body.last_op
    if not isinstance(last, YieldOp):
        raise PassError(f"{describe(fusion)} must end with graph.yield")
    return named[-1].name.split(".")[1] if named else "generate"
