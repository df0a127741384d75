"""Gives weights that are packed another layout: that with which the products take least.

Before:  @main(%w {graph.weight}: [k, n], %x)    %y = graph.contract %x, %w
After:   %t = graph.transpose %w : [n, k], marked as to be packed ; %u = graph.transpose %t ; %y = graph.contract %x, %u

The packing program makes %t once, and the loads of the product see through %u. Where rows are to begin at lines of
memory, %t is padded, too, and %u a slice of it. A tensor has
one layout for all that reads it: the one with which all of that takes least. It is asked of a copy of the program,
fused as it will be, by the oracle that judges schedules. Weights that functions take which are called get one, too,
if all calls give such.

What is left as it is: weights that something reads which cannot read another layout (a gather, a loop, the program's
result); weights that another pass packs in an order of its own, as quantized ones; programs with open sizes, of which
all versions share one packing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import text
from ...dialects.dtypes import PAIR
from ...dialects.graph import FusionOp
from ...dialects.graph.interface import shape_of
from ...dialects.module import target_of
from ...machine import DEFAULT_TARGET, Machine
from ..calls import callee_of, callers_first
from ..forms.tensor_builder import BlockBuilder
from ..oracle import oracle_of
from ..pipeline import remaining, run_stage
from ..program.pack import SplitProgram, split_weights
from ..quantized.integer_chains import PACKED
from ..quantized.products_named import main_function
from ..stages import Stage
from .choose import Scheduler
from .layout_choice import LayoutJudge
from .operand_layouts import (
    Layout,
    LayoutKinds,
    from_memory,
    layouts,
    may_read_in_layout,
    multiplied,
    stored_type,
    to_memory,
)

LEAST_SAVED = 0.005
"""The share of what all that reads a tensor takes that has to be saved: a smaller one is no reason to pack it."""

SCHEDULES = "graph-schedule"
"""The stage before which kernels are known and not yet cut."""


@dataclass(frozen=True)
class WeightLayout:
    """Tensors that are to have another layout. sure: whether each product that reads them takes less by more than a
    barrier: what is less may be lost again among its neighbours, of which the bound knows nothing. values: where @main
    has them, arguments by number, and results by the numbers of the op and of the result."""

    layout: Layout
    sure: bool
    kind: TensorType
    values: Sequence[int | tuple[int, int]]
    passed: Sequence[tuple[str, int]]


def find_weight_layouts(
    module: ModuleOp, patterns: Sequence[str] | None, stages: Sequence[Stage], target: str | None
) -> list[WeightLayout]:
    """The weights of a module of the graph level that are to get another layout before it is split. patterns: of the
    arguments that are weights, as `split_weights` takes them; stages: those that the program will run through, whose
    pins do not count (`Scheduler.choose_layouts`). Raises PassError as these passes do."""
    schedules = next((s for s in stages if s.name == SCHEDULES), None)
    if schedules is None:
        return []
    choices = schedules.choices
    kinds = LayoutKinds.without(choices.without)
    if not any(kinds):
        return []
    ops = list(main_function(module).body.block.ops)
    made = split_weights(module.clone(), patterns, in_layout=True)
    rest = made.rest
    functions = callers_first(rest)
    for stage in remaining(rest, "graph", stages):
        if stage.name == SCHEDULES:
            break
        if not stage.optional:
            run_stage(stage, rest, target_of(rest) or target or DEFAULT_TARGET)
    machine = Machine.load(target_of(rest) or target or DEFAULT_TARGET)
    scheduler = Scheduler(machine, oracle_of(choices.oracle), without=choices.without)
    judge = LayoutJudge(machine, scheduler.estimate)
    readers = _Readers(functions, _may_get_layouts(made, ops), judge, kinds)
    first, found = len(made.left), list[WeightLayout]()
    for tensor in readers.tensors():
        best = readers.best(tensor)
        if best is not None:
            values = [made.left[i] if i < first else made.kept[i - first] for i in tensor.weights]
            found.append(WeightLayout(*best, tensor.kind, values, tensor.passed))
    return found


def _may_get_layouts(made: SplitProgram, ops: Sequence[Operation]) -> set[int]:
    """The arguments of the rest of a program that are weights, packed or as they are, but not those that another pass
    has packed. ops: those of @main before it was split."""
    found = {i for i, which in enumerate(made.left) if made.weights[which]}
    first = len(made.left)
    return found | {first + i for i, (at, _) in enumerate(made.kept) if PACKED not in ops[at].attributes}


@dataclass
class _Tensor:
    """Tensors that have one layout, as a function takes them in the same place. weights: arguments of @main, by number;
    passed: arguments of called functions, by name and number; readings: the fusions that read them, as which input,
    and how often each runs; kind: their type."""

    kind: TensorType
    weights: list[int] = field(default_factory=list)
    passed: list[tuple[str, int]] = field(default_factory=list)
    readings: list[tuple[FusionOp, int, int]] = field(default_factory=list)


class _Readers:
    """What reads the weights of a program of fusions."""

    def __init__(
        self, functions: Sequence[FuncOp], weights: set[int], judge: LayoutJudge, kinds: LayoutKinds
    ):
        """functions: each behind those that call it; weights: arguments of @main that may have another layout, of these
        kinds, by number."""
        self.functions, self.weights, self.judge, self.kinds = functions, weights, judge, kinds
        self._named = {text(func.sym_name): func for func in functions}
        self._same: dict[SSAValue, SSAValue] = {}
        self._times = Counter[str]({"main": 1})
        for func in functions:
            for op in func.walk():
                callee = callee_of(op)
                if callee is not None:
                    self._times[callee] += self._times[text(func.sym_name)]
                    for value, arg in zip(op.operands, self._named[callee].body.block.args, strict=True):
                        self._same[self._first(value)] = self._first(arg)

    def _first(self, value: SSAValue) -> SSAValue:
        """The one that stands for all tensors with the layout of this one."""
        while value in self._same and self._same[value] is not value:
            value = self._same[value]
        return value

    def tensors(self) -> list[_Tensor]:
        """The weights that may have another layout, all that have one together."""
        members: dict[SSAValue, list[SSAValue]] = {}
        values = {v for func in self.functions for v in func.body.block.args} | {*self._same}
        order = [v for func in self.functions for v in func.body.block.args]
        for value in [*order, *(v for v in values if v not in {*order})]:
            members.setdefault(self._first(value), []).append(value)
        found = [self._tensor(each) for each in members.values()]
        return [tensor for tensor in found if tensor is not None and tensor.weights]

    def _tensor(self, members: Sequence[SSAValue]) -> _Tensor | None:
        kind = members[0].type
        if not isinstance(kind, TensorType) or len(kind.get_shape()) < 2 or kind.get_element_type() == PAIR:
            return None
        found = _Tensor(kind)
        for value in members:
            func = value.owner.parent_op() if isinstance(value, BlockArgument) else None
            if not isinstance(value, BlockArgument) or not isinstance(func, FuncOp) or value.type != kind:
                return None
            name = text(func.sym_name)
            if name != "main":
                found.passed.append((name, value.index))
            elif value.index in self.weights:
                found.weights.append(value.index)
            else:
                return None
            for use in value.uses:
                op = use.operation
                if isinstance(op, FusionOp) and op.schedule is None and may_read_in_layout(op, use.index):
                    found.readings.append((op, use.index, self._times[name]))
                elif callee_of(op) is None:
                    return None
        return found

    def best(self, tensor: _Tensor) -> tuple[Layout, bool] | None:
        """The layout with which all that reads a tensor takes least, and whether that is sure; None where it is its
        own."""
        tried: dict[Layout, None] = {}
        machine = self.judge.machine
        for fusion, number, _ in tensor.readings:
            for last in ("k", "free") if multiplied(fusion) is not None else ():
                wished = layouts(fusion, machine, self.kinds, last)
                tried.update((layout, None) for which, layout in wished if which == number)
        if not tried:
            return None
        now = self._microseconds(tensor, None)
        times = {layout: self._microseconds(tensor, layout) for layout in tried}
        layout = min(times, key=times.__getitem__)
        saved = now - times[layout]
        if not isfinite(now) or not saved > LEAST_SAVED * now:
            return None
        return layout, saved > machine.barrier_microseconds(machine.cube_cores) * sum(
            n for _, _, n in tensor.readings
        )

    def _microseconds(self, tensor: _Tensor, layout: Layout | None) -> float:
        judged: Callable[..., float] = self.judge.microseconds
        return sum(
            times * judged(fusion, {number: layout} if layout is not None else None)
            for fusion, number, times in tensor.readings
        )


def relayout_weights(module: ModuleOp, found: Sequence[WeightLayout]) -> None:
    """Gives weights of a module the layouts that were found for it, in place."""
    main = main_function(module)
    ops = list(main.body.block.ops)
    # none of them is another one's, so that places stay what they are until all values are known
    values = [
        [main.body.block.args[at] if isinstance(at, int) else ops[at[0]].results[at[1]] for at in each.values]
        for each in found
    ]
    for each, given in zip(found, values, strict=True):
        _relayout(module, each, given)


def _relayout(module: ModuleOp, tensor: WeightLayout, values: Sequence[SSAValue]) -> None:
    """Gives values their layout once, marked as what is to be packed, and has all that reads them take them back from
    it, or, where it is a function that is called, take them so."""
    layout = tensor.layout
    functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks}
    args = [(functions.get(name), number) for name, number in tensor.passed]
    if any(func is None or func.body.block.args[number].type != tensor.kind for func, number in args):
        return
    stored: dict[SSAValue, SSAValue] = {}
    for value in values:
        build = BlockBuilder(Block())
        made = to_memory(build, value, layout._replace(row=0))
        if layout.row:
            rank = len(layout.perm)
            room = [*[0] * (rank - 1), layout.row - shape_of(made)[-1]]
            made = build.pad(made, 0, [0] * rank, room, [0] * rank)
        made.name_hint = layout.name_of(value)
        assert isinstance(made.owner, Operation)
        made.owner.attributes[PACKED] = UnitAttr()
        stored[_taken_back(build, value, made, layout, tensor.kind)] = made
    for func, number in args:
        assert func is not None
        block = func.body.block
        arg = Rewriter.replace_value_with_new_type(block.args[number], stored_type(tensor.kind, layout))
        back = _taken_back(BlockBuilder(Block()), arg, arg, layout, tensor.kind)
        arg.name_hint = layout.name_of(back)
        stored[back] = arg  # which it may hand on to another function
        func.function_type = FunctionType.from_lists(
            [a.type for a in block.args], list(func.function_type.outputs)
        )
    passed = {*tensor.passed}
    for op in module.walk():
        callee = callee_of(op)
        for i, value in enumerate(op.operands) if callee is not None else ():
            if (callee, i) in passed and value in stored:
                op.operands[i] = stored[value]


def _taken_back(
    build: BlockBuilder, value: SSAValue, made: SSAValue, layout: Layout, kind: Attribute
) -> SSAValue:
    """What lies in memory as `made`, in its own layout and of this type, for all that read `value`. What `build` has,
    which goes behind what makes the latter, reads that as it is."""
    back = from_memory(build, made, layout, kind)
    back.name_hint = value.name_hint
    value.replace_uses_with_if(back, lambda use: use.operation.parent is not build.block)
    at = InsertPoint.after(value.owner) if isinstance(value.owner, Operation) else InsertPoint.at_start(value.owner)
    Rewriter.inline_block(build.block, at)
    return back
