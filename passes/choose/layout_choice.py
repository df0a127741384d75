"""Gives operands of products that are computed or given on every call another layout, where that takes less time.

Before:  %y = graph.fusion %x, %w {kind = "cube"} : (tensor<8192x4096xf16>, tensor<4096x8192xf16>)
After:   %t = graph.fusion %w {kind = "move"} : (tensor<4096x8192xf16>) -> tensor<8192x4096xf16>
         %y = graph.fusion %x, %t {kind = "cube"}, which reads %t transposed back

The layout is another order of the dimensions, and longer rows, which begin at lines of memory then. An operand that a
kernel of the same block computes may be stored so by that kernel, if all that read it take it so. A constant is made so
at compile time. Whether one of these pays, the oracle says: the time of all products that read the tensor, before and
after, and of what gives it the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from ...dialects.dtypes import dtype_name, itemsize, numbers_in, size
from ...dialects.graph import ConstantOp, DataAttr, FusionOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.schedules import Schedule
from ...machine import Machine
from ..decisions import Option
from ..forms.fingerprint import structure
from ..instantiation import has_open_sizes
from ..lower.scheduled import as_vector
from ..lower.vector import VectorKernel
from ..reasons import Reason, ReasonKind, asked_reasons
from .launches import launches_of
from .names import Memo
from .operand_layouts import (
    LAYOUTS,
    Layout,
    LayoutKinds,
    LayoutName,
    array_in_memory,
    copy_of,
    layouts,
    macs,
    may_read_in_layout,
    may_store_in_layout,
    multiplied,
    read_in_layout,
    relayout,
    store_in_layout,
    stored_type,
)
from .taken_plans import TakenPlans

BEYOND = 0.02
"""The share of what products take that has to be saved beyond what the new layout takes: less is within the error of
the bound."""

MOST_SAVED = 0.25
"""The share of what a product takes that transposing an operand of whole lines of memory may save: twice what it does
for large products (8192^3 in f16 on ascend-910b1: 3,351 us instead of 3,826). So small products need not be judged."""

NO_LAYOUT = "as it is"
"""The option of a tensor that gets no other layout."""

REFUSED: Mapping[LayoutName, ReasonKind] = {
    "transposed": "not transposed",
    "padded": "not padded",
}
"""What a reason is called for which a tensor does not get a layout."""

Estimate = Callable[[FusionOp], float]
"""Microseconds of a fusion with its best schedule, infinity where it has none."""


class LayoutJudge:
    """Says what fusions take that read or store tensors in other layouts, and what a kernel takes that gives one a
    layout. Equal ones are judged once. estimate: says what a fusion takes."""

    def __init__(self, machine: Machine, estimate: Estimate):
        self.machine, self._estimate = machine, estimate
        self._known: Memo[float] = Memo()
        self._relayouts: dict[tuple[TensorType, Layout], float] = {}
        self._copies: list[FusionOp] = []
        """Fusions that were judged: what is known of their schedules refers to them."""

    def microseconds(
        self,
        fusion: FusionOp,
        inputs: Mapping[int, Layout] | None = None,
        stored: Mapping[int, Layout] | None = None,
    ) -> float:
        """What a fusion takes that reads some inputs, and stores some results, in other layouts."""
        inputs, stored = inputs or {}, stored or {}
        key, details = structure(fusion)
        whole = key, tuple(sorted(inputs.items())), tuple(sorted(stored.items()))
        known = self._known.find(whole, details)
        if known is None:
            judged = fusion
            if inputs or stored:
                judged = copy_of(fusion, inputs, stored)
                self._copies.append(judged)
            known = self._known.keep(whole, details, self._estimate(judged))
        return known

    def relayout_microseconds(self, value: SSAValue, layout: Layout) -> float:
        """What a kernel takes that gives a tensor this layout: its copies side by side, or its bytes over HBM. What it
        reads is counted even where L2 still has it, what it stores where L2 has no room for both."""
        kind = value.type
        assert isinstance(kind, TensorType)
        if (kind, layout) not in self._relayouts:
            fusion = relayout(Block(arg_types=[kind]).args[0], layout)
            self._copies.append(fusion)
            (plan,) = launches_of(fusion, self.machine)
            kernel = plan.kernel(plan.stem, as_vector(plan.stem, plan.choices()))
            assert isinstance(kernel, VectorKernel)
            crossing = _bytes(value) * (1 if 2 * _bytes(value) <= self.machine.l2_bytes else 2)
            moved = self.machine.cycles_to_microseconds(crossing / self.machine.hbm_bytes_per_cycle)

            def takes(schedule: Schedule) -> float:
                launch = kernel.occupancy(schedule).launch_microseconds(self.machine)
                return launch + max(kernel.overlapped(schedule) - launch, moved)

            self._relayouts[kind, layout] = min(map(takes, kernel.candidates(plan.stem)))
        return self._relayouts[kind, layout]

    def most_saved(self, fusion: FusionOp, value: SSAValue) -> float:
        """Microseconds that a fusion with a matrix product may take less where an operand has another layout, at
        most."""
        now = self.microseconds(fusion)
        if not isfinite(now):
            return 0.0
        lines = shape_of(value)[-1] * itemsize(element_of(value)) % self.machine.gm_align == 0
        return min(now - self.floor(fusion), now * MOST_SAVED if lines else inf)

    def floor(self, fusion: FusionOp) -> float:
        """Microseconds that a fusion with a matrix product takes however its operands lie in memory: its launch, and
        behind it its multiplications on as many cubes, or what it reads over HBM."""
        product = multiplied(fusion)
        assert product is not None
        machine, kind = self.machine, dtype_name(element_of(product.lhs))
        rate = machine.cube[kind]
        cycles = macs(product) * numbers_in(kind) / (rate.m * rate.k * rate.n)
        read = sum(map(_bytes, fusion.inputs)) / machine.hbm_bytes_per_cycle
        return min(
            machine.launch_microseconds(cores) + machine.cycles_to_microseconds(max(cycles / cores, read))
            for cores in range(1, machine.cube_cores + 1)
        )


def _bytes(value: SSAValue) -> int:
    return size(shape_of(value)) * itemsize(element_of(value))


@dataclass(frozen=True)
class _Reading:
    """A fusion that reads a tensor in a layout, as its input `number`, and what it takes then, and takes now."""

    fusion: FusionOp
    number: int
    then: float
    now: float

    @property
    def saved(self) -> float:
        """Microseconds less than now."""
        return self.now - self.then if isfinite(self.now) and isfinite(self.then) else -inf


@dataclass(frozen=True)
class _Relayout:
    """How a tensor gets a layout: microseconds that all take, of which that takes `cost`; apply: does it; most: what
    might be saved at most; judged: whether the readings are known, which take less."""

    layout: Layout
    readings: Sequence[_Reading]
    cost: float
    apply: Callable[[], None]
    barrier: float
    """Microseconds: what is less may be lost again among the neighbours of a kernel, of which the bound knows
    nothing."""
    most: float
    judged: bool = True
    stored: bool = False
    """Whether the kernel that computes the tensor stores it so."""

    @property
    def saved(self) -> float:
        """Microseconds less than now, what the layout takes counted."""
        return sum(r.saved for r in self.readings) - self.cost

    @property
    def option(self) -> Option:
        """What it is among the ways of a tensor."""
        perm = " ".join(map(str, self.layout.perm))
        return Option(f"{perm}, rows of {self.layout.row}{', stored so' * self.stored}", -self.saved)

    @property
    def pays(self) -> bool:
        """Whether it saves more than the bound may be wrong by."""
        return bool(self.readings) and self.saved > max(BEYOND * sum(r.now for r in self.readings), self.barrier)


class LayoutChooser:
    """Gives operands of products other layouts, of these kinds, in blocks of fusions."""

    def __init__(self, judge: LayoutJudge, kinds: LayoutKinds, plans: TakenPlans | None = None):
        """plans: who is asked for decisions."""
        self.plans = plans
        self.judge, self.machine, self.kinds = judge, judge.machine, kinds
        self.barrier = self.machine.barrier_microseconds(self.machine.cube_cores)
        self.reasons = asked_reasons()
        self.given: dict[SSAValue, LayoutName] = {}
        """Tensors that have another layout: they keep it, as of what is behind their rows nothing may be read."""

    def block(self, block: Block) -> None:
        """Gives other layouts where that pays in a block and in the control flow of it. Fusions with open sizes, or
        schedules, stay."""
        for op in block.ops:
            if not isinstance(op, FusionOp):
                for region in op.regions:
                    for inner in region.blocks:
                        self.block(inner)
        tried: set[tuple[SSAValue, Layout]] = set()
        for fusion in [op for op in block.ops if isinstance(op, FusionOp)]:
            if multiplied(fusion) is None or not self._free(fusion):
                continue
            wished: dict[int, list[Layout]] = {}
            for number, layout in self._layouts(fusion):
                value = fusion.inputs[number]
                if (value, layout) not in tried and value not in self.given:
                    tried.add((value, layout))
                    wished.setdefault(number, []).append(layout)
            for number, found in wished.items():
                self._value(fusion, number, found)

    def _free(self, fusion: FusionOp) -> bool:
        return not fusion.on_host and fusion.schedule is None and not has_open_sizes(fusion)

    def _layouts(self, fusion: FusionOp) -> Iterator[tuple[int, Layout]]:
        return layouts(fusion, self.machine, self.kinds)

    def _value(self, first: FusionOp, number: int, found: Sequence[Layout]) -> None:
        """Gives an input of a product the best of some layouts, for the products that read it from that one on, if that
        pays."""
        value = first.inputs[number]
        wishing = self._wishing(value, first.parent)
        ways = [
            way for layout in found for way in self._ways(value, layout, wishing.get(layout, ()), first.parent)
        ]
        best = max(ways, key=lambda way: way.saved)
        taken = self._decided(ways, best if best.pays else None, first, number)
        if taken is not None:
            best = taken
            best.apply()
            self._note_given(first, value, best)
            return
        takes = f"{best.layout.verb} it takes {best.cost:.1f} us"
        if best.judged:
            self._note(first, value, best.layout, f"{takes}, and saves {sum(r.saved for r in best.readings):.1f}")
        else:
            self._note(first, value, best.layout, f"{takes}, and {best.most:.1f} is all that might be saved")

    def _decided(
        self, ways: Sequence[_Relayout], best: _Relayout | None, first: FusionOp, number: int
    ) -> _Relayout | None:
        """The way that a tensor gets, None for none: the best one, unless another is known to be better."""
        able = [way for way in ways if way.readings and isfinite(way.saved)]
        if self.plans is None or not able:
            return best
        default = NO_LAYOUT if best is None else best.option.name
        options = [Option(NO_LAYOUT, 0.0), *(way.option for way in able)]
        kind = LAYOUTS[(best or able[0]).layout.kind]
        said = self.plans.decided(kind, [first], lambda: options, default, f"input {number}")
        return None if said == NO_LAYOUT else next((way for way in able if way.option.name == said), best)

    def _ways(
        self, value: SSAValue, layout: Layout, wishing: Sequence[tuple[FusionOp, int]], block: Block | None
    ) -> list[_Relayout]:
        """The ways in which a tensor may get a layout for the products of a block that wish for it, at least one."""
        constant = value.owner if isinstance(value.owner, ConstantOp) else None
        stores = may_store_in_layout(value, self.machine) and value.owner.parent is block
        cost = 0.0 if constant is not None else self.judge.relayout_microseconds(value, layout)
        most = sum(self.judge.most_saved(fusion, value) for fusion, _ in wishing)
        least = cost
        if stores:  # a kernel that stores its result in another order may take less time itself
            least = -inf if layout == Layout(layout.perm) else self.barrier
        if most <= least:
            return [_Relayout(layout, (), cost, lambda: None, self.barrier, most, judged=False)]
        readings = [self._reading(fusion, number, layout) for fusion, number in wishing]
        readings = [r for r in readings if r.saved > 0]
        apart = partial(self._apart, value, layout, readings, constant)
        ways = [_Relayout(layout, readings, cost, apart, self.barrier, most)]
        if stores and (way := self._stored(value, layout, most)) is not None:
            ways.append(way)
        return ways

    def _wishing(self, value: SSAValue, block: Block | None) -> dict[Layout, list[tuple[FusionOp, int]]]:
        """For each layout the products of a block that would read a tensor in it, and as which input."""
        found: dict[Layout, list[tuple[FusionOp, int]]] = {}
        for use in value.uses:
            op = use.operation
            if isinstance(op, FusionOp) and op.parent is block and multiplied(op) is not None and self._free(op):
                for layout in dict.fromkeys(each for number, each in self._layouts(op) if number == use.index):
                    found.setdefault(layout, []).append((op, use.index))
        return found

    def _reading(self, fusion: FusionOp, number: int, layout: Layout) -> _Reading:
        judged = self.judge.microseconds
        return _Reading(fusion, number, judged(fusion, {number: layout}), judged(fusion))

    def _stored(self, value: SSAValue, layout: Layout, most: float) -> _Relayout | None:
        """The way in which the kernel that computes a tensor stores it so; None where something reads it that cannot
        read it so."""
        maker = value.owner
        assert isinstance(maker, FusionOp) and isinstance(value, OpResult)
        users = [(use.operation, use.index) for use in value.uses]
        if not self._free(maker):
            return None
        readings: list[_Reading] = []
        for op, number in users:
            if not isinstance(op, FusionOp) or op.parent is not maker.parent or not self._free(op):
                return None
            if not may_read_in_layout(op, number):
                return None
            readings.append(self._reading(op, number, layout))
        cost = self.judge.microseconds(maker, stored={value.index: layout}) - self.judge.microseconds(maker)

        def apply() -> None:
            made = store_in_layout(value, layout)
            self.given[made] = layout.kind
            for r in readings:
                read_in_layout(r.fusion, r.number, made, layout)

        cost = cost if isfinite(cost) else inf
        return _Relayout(layout, readings, cost, apply, self.barrier, most, stored=True)

    def _apart(
        self, value: SSAValue, layout: Layout, readings: Sequence[_Reading], constant: ConstantOp | None
    ) -> None:
        """A kernel of its own gives a tensor a layout, before the first fusion that reads it so; a constant is made
        so."""
        block = readings[0].fusion.parent
        assert block is not None
        made: Operation = relayout(value, layout) if constant is None else _stored_constant(constant, layout)
        readers = {r.fusion for r in readings}
        block.insert_op_before(made, next(op for op in block.ops if op in readers))
        made.results[0].name_hint = layout.name_of(value)
        self.given[made.results[0]] = layout.kind
        for r in readings:
            read_in_layout(r.fusion, r.number, made.results[0], layout)
        if constant is not None and constant.result.first_use is None:
            constant.detach()
            constant.erase()

    def _note(self, fusion: FusionOp, value: SSAValue, layout: Layout, why: str) -> None:
        if self.reasons is not None:
            self.reasons.append(Reason(REFUSED[layout.kind], (fusion,), f"of {value.type}, {why}"))

    def _note_given(self, fusion: FusionOp, value: SSAValue, way: _Relayout) -> None:
        if self.reasons is not None:
            now, then = (sum(us) for us in zip(*((r.now, r.then) for r in way.readings), strict=True))
            said = f"of {value.type}, what reads it takes {then:.1f} us instead of {now:.1f}"
            self.reasons.append(Reason(way.layout.kind, (fusion,), f"{said}, and {way.layout.verb} it {way.cost:.1f}"))


def _stored_constant(op: ConstantOp, layout: Layout) -> ConstantOp:
    kind = stored_type(op.result.type, layout)
    return ConstantOp.create(
        result_types=[kind],
        properties={"value": DataAttr.of(array_in_memory(op.value.data.array(), layout))},
        location=op.location,
    )
