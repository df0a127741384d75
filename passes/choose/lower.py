"""graph-to-tile: each fusion becomes a kernel and a launch, cut as its schedule says; equal fusions share one kernel.

Before:  %r = graph.fusion %x, %w {kind = "cube", schedule = #graph.cube_schedule<...>} { ... graph.contract ... }
After:   %r = tile.launch @contract_0 %x, %w
         tile.kernel @contract_0 { ^bb0(%i: index, %x: !npu.gm<...>, ...): tile.section {core = "cube"} { ... } }

A schedule is obeyed or refused: graph-schedule makes the choices. In a program with host calls, launches that depend on
the host are then ordered last (launch_order.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.dialects.builtin import FloatAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialects import tile as ops
from ...dialects.base import describe, ints
from ...dialects.graph import FusionOp, GraphOp
from ...dialects.graph.schedules import (
    Schedule,
    all_complete,
    bands_of,
    parts_of_sums,
    stream_of,
    to_schedules,
)
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..base import TargetPass
from ..errors import PassError
from ..forms.fingerprint import fingerprint
from ..instantiation import at_example
from ..lower.chains.attention import AttentionKernel
from ..lower.chains.attention_parts import is_chained
from ..lower.chains.row_attention import RowAttentionKernel
from ..lower.chains.row_attention_parts import parts_combined
from ..lower.recomputed import nested_in
from ..lower.scheduled import ScheduledKernel
from ..order.independent_order import FEW_BYTES, order_independent
from ..order.launch_order import MICROSECONDS, order_launches
from ..plans import note_fingerprint, note_plan
from ..rewriting import inline_for
from .epilogue_fusion import is_for_split_sums
from .launches import LaunchPlan, banded, launches_of
from .names import KernelNames, Memo
from .stream import cut_fusion
from .sums_in_parts import give_pieces, named_in, part_named


@dataclass(frozen=True)
class GraphToTilePass(TargetPass):
    """Lowers fusions to tile kernels for a target. memory_limit: where there is one, each kernel says for tile-fit how
    long a launch of it takes."""

    name = "graph-to-tile"
    memory_limit: int | None = None

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        lowering = Lowering(module, machine)
        for func in list(module.ops):
            if isinstance(func, FuncOp) and func.body.blocks:
                lowering.block(func.body.block)
        order_launches(module, lowering.microseconds, machine)
        for block in lowering.split_in:
            order_independent(block, FEW_BYTES)
        if self.memory_limit is not None:
            for built in dict.fromkeys(lowering.launched.values()):
                built.op.attributes[MICROSECONDS] = FloatAttr(built.microseconds, 64)


@dataclass(eq=False)
class Built:
    """A kernel, and how long a launch of it takes by the analytic bound, in microseconds, once that is asked for."""

    op: ops.KernelOp
    symbol: SymbolRefAttr
    kernel: ScheduledKernel
    schedule: Schedule
    known: float | None = None

    @property
    def microseconds(self) -> float:
        if self.known is None:
            with choosing():  # it only orders launches
                self.known = self.kernel.bound(self.schedule)
        return self.known


class Lowering:
    """Lowers all fusions of a module, keeping one kernel for equal ones."""

    def __init__(self, module: ModuleOp, machine: Machine):
        self.module = module
        self.machine = machine
        self.names: KernelNames[Built] = KernelNames()
        self.readers: Memo[str] = Memo()
        """The first kernel of each launch, with or without rows that it makes itself."""
        self.launched: dict[Operation, Built] = {}
        """The kernel of each launch."""
        self.split_in: dict[Block, None] = {}
        """Blocks of which a fusion became several launches, one behind the other, here or in graph-schedule."""

    def microseconds(self, op: Operation) -> float | None:
        """How long a launch takes by the analytic bound; None for another op."""
        built = self.launched.get(op)
        return None if built is None else built.microseconds

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            if not isinstance(op, FusionOp):
                for region in op.regions:
                    for inner in region.blocks:
                        self.block(inner)
            if isinstance(op, FusionOp):
                if not op.on_host:
                    self.fusion(op)
            elif isinstance(op, GraphOp) and op.KERNEL:
                raise PassError(f"{describe(op)} is not in a fusion: run graph-fuse before graph-to-tile")

    def fusion(self, fusion: FusionOp, part_of: str = "") -> None:
        """Replaces a fusion by its launches. `part_of`: the kernel of whose split sums it is a part."""
        part_of = part_of or part_named(fusion)
        if fusion.parent is not None and (part_of or nested_in(fusion)):
            self.split_in[fusion.parent] = None
        schedules = to_schedules(fusion.schedule)
        if not all_complete(schedules):
            lacks = "not all of its schedule is chosen" if schedules else "has no schedule"
            raise PassError(f"{describe(fusion)} {lacks}: run graph-schedule before graph-to-tile")
        parts = parts_of_sums(schedules)
        if parts is not None:
            (self.split_keys if is_chained(fusion) else self.split)(fusion, schedules, parts)
            return
        bands = bands_of(schedules)
        if bands is not None and bands > 1:
            (plan,) = launches_of(fusion, self.machine)
            kernel = plan.kernel(plan.stem, None)
            assert isinstance(kernel, AttentionKernel)
            self.launches(fusion, banded(fusion, kernel.bands(plan.stem, bands), self.machine), schedules)
            return
        if is_for_split_sums(fusion):
            raise PassError(f"{describe(fusion)} is for split sums, and its schedule has no split_k")
        self.launches(fusion, launches_of(fusion, self.machine), schedules, part_of)

    def launches(
        self,
        fusion: FusionOp,
        launches: Sequence[LaunchPlan],
        schedules: Sequence[Schedule],
        part_of: str = "",
    ) -> None:
        """Replaces a fusion by these launches, with a schedule for each."""
        if len(schedules) != len(launches):
            raise PassError(
                f"{describe(fusion)} takes {len(launches)} launch{'es' * (len(launches) != 1)}, and has "
                f"{len(schedules)} schedule{'s' * (len(schedules) != 1)}"
            )
        results: list[SSAValue] = []
        for plan, schedule in zip(launches, schedules, strict=True):
            begins = results if plan.goes_on else plan.begins
            built = self.kernel(plan, schedule, part_of)
            if len(launches) == 1:
                note_fingerprint(built.symbol.string_value(), lambda: fingerprint(at_example(fusion), self.machine))
            results = self.launch(fusion, plan, built, begins)
        self.replace(fusion, results)

    @staticmethod
    def replace(fusion: FusionOp, results: Sequence[SSAValue]) -> None:
        """Takes a fusion away, in the place of whose results these are."""
        for old, new in zip(fusion.results, results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        fusion.detach()
        fusion.operands = ()  # what is inside names nothing outside, and need not be taken apart

    def kernel(self, plan: LaunchPlan, schedule: Schedule, part_of: str) -> Built:
        """The kernel of a launch with a schedule, built where there is none yet. Raises PassError."""
        key, details = (part_of, plan.key), (plan.details, schedule)
        found = self.names.find(key, details)
        if found is None:
            name = self.named(plan, schedule, part_of)
            kernel = plan.kernel(name, schedule)
            kernel.check(name, schedule)
            op = kernel.build(name, schedule)
            note_plan(name, partial(kernel.plan_with, schedule))
            found = Built(op, SymbolRefAttr(name), kernel, schedule)
            self.names.give(name, key, details, found)
            self.module.body.block.add_op(op)
        return found

    def named(self, plan: LaunchPlan, schedule: Schedule, part_of: str) -> str:
        """The name of the next kernel. One that makes rows itself has the name of its reader, as graph-schedule knows
        it, and the next ones of the same reader are numbered behind that."""
        like = plan.reader or plan
        key, details = (part_of, like.key), (like.details[1:], schedule)
        taken = self.readers.find(key, details)
        if taken is not None:
            return self.names.next(f"{taken}_rows")
        name = self.names.next(f"{part_of}_{plan.stem}" if part_of else plan.stem)
        return self.readers.keep(key, details, name)

    def launch(
        self,
        fusion: FusionOp,
        plan: LaunchPlan,
        built: Built,
        begins: Sequence[SSAValue] = (),
        types: Sequence[Attribute] = (),
    ) -> list[SSAValue]:
        """A launch in front of its fusion, with results of these types, or those that the fusion has."""
        types = types or (list(fusion.result_types) if plan.result is None else [plan.result])
        operands = [*plan.operands, *begins]
        first = len(plan.operands)
        starts = [*range(first, first + len(begins))] if begins else [-1] * len(types)
        op = ops.LaunchOp.create(
            operands=operands,
            result_types=types,
            properties={"callee": built.symbol, "inits": ints(starts)},
            location=fusion.location,
        )
        block = fusion.parent
        assert block is not None
        block.insert_op_before(op, fusion)
        self.launched[op] = built
        return list(op.results)

    def split(self, fusion: FusionOp, schedules: tuple[Schedule, ...], parts: int) -> None:
        """Lowers a contraction whose sums are cut into parts: a kernel for the parts, and those behind it."""
        stem = launches_of(fusion, self.machine)[0].stem
        block = cut_fusion(fusion, stem, parts, stream_of(schedules), self.machine)
        self.pieces(fusion, block, fusion.inputs, [s.whole() for s in schedules], stem)

    def split_keys(self, fusion: FusionOp, schedules: tuple[Schedule, ...], parts: int) -> None:
        """Lowers attention whose keys are cut into parts: a kernel for the parts, and those that combine them."""
        (plan,) = launches_of(fusion, self.machine)
        built = self.kernel(plan, schedules[0], "")
        kernel = built.kernel
        assert isinstance(kernel, RowAttentionKernel)
        given = self.launch(fusion, plan, built, (), kernel.part_types(parts))
        block = parts_combined(fusion, kernel.at, kernel.outer, parts, self.machine)
        self.pieces(fusion, block, given, list(schedules[1:]), plan.stem)

    def pieces(
        self, fusion: FusionOp, block: Block, given: Sequence[SSAValue], left: list[Schedule], stem: str
    ) -> None:
        """Lowers a block of fusions in the place of one, with the schedules that are left for them; `given` are its
        arguments."""
        fusions = give_pieces(fusion, block, left, self.machine)
        assert fusion.parent is not None
        self.split_in[fusion.parent] = None
        inline_for(fusion, block, given)
        for op in fusions:
            self.fusion(op, part_of=named_in(op, stem))
        fusion.detach()
        fusion.operands = ()
