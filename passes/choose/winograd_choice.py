"""graph-winograd: says which convolutions are computed by F(2, 3) or F(4, 3), and rewrites those (winograd.py).

A convolution says what is chosen for it by the attribute `graph.winograd`, the results of a tile along a dimension, 0
for the convolution itself. What is written by hand is obeyed or refused; the others get what the option `winograd` asks
for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xdsl.dialects.builtin import FunctionType, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ...dialects.base import describe, integer, integer_attr, ints, node_of, to_ints
from ...dialects.dtypes import dtype_name, tensor
from ...dialects.graph import ELEMENTWISE, BroadcastOp, ConstantOp, ConvOp, ElementwiseOp, FusionOp
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ...support.winograd import AUTO, OFF, PLACES, WinogradChoice, parse_winograd
from ..base import TargetPass
from ..errors import PassError
from ..forms.tensor_builder import RewriteBuilder
from ..fusion.fuse import fuse_block
from ..lower.scheduled import as_vector
from ..lower.vector import VectorKernel
from ..oracle import BOUND, AnalyticBound, Oracle, oracle_of
from ..patterns import selected
from ..quantized.products_named import main_function, paths_of, source_of_moves
from ..rewriting import Driver, walk_ops
from ..simplify.simplify import simplify
from ..simplify.winograd import WinogradConvolution, why_not
from ..simplify.winograd_transforms import TAPS, transforms
from .choose import Scheduler
from .launches import shaping_op

CHOSEN = "graph.winograd"

UNIT_ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


@dataclass(frozen=True)
class GraphWinogradPass(TargetPass):
    """Winograd's convolutions, where they are asked for."""

    name = "graph-winograd"
    winograd: str = OFF
    """What is asked for, as `parse_winograd` of support/winograd.py reads it."""
    oracle: str = BOUND
    """The name of who judges schedules, as oracle.py knows it."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        """Rewrites a module. Raises PassError for text that cannot be read, a name that no convolution has, and a
        convolution for which something is chosen that cannot be."""
        try:
            asked = parse_winograd(self.winograd)
        except ValueError as error:
            raise PassError(str(error)) from None
        judge = WinogradJudge(machine, oracle_of(self.oracle))
        names = _names(module)
        _check_names(asked, names)
        for op, name in names.items():
            if CHOSEN not in op.attributes:
                op.attributes[CHOSEN] = integer_attr(_chosen(op, *asked.of(name), judge))
        driver = Driver([ConvAsWinograd(machine)])
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                driver.run(list(walk_ops(func, lambda op: not isinstance(op, FusionOp))))


class ConvAsWinograd(RewritePattern):
    """A convolution with a window of 3 or 3 x 3 is a batched product of transformed tiles, where that is chosen."""

    def __init__(self, machine: Machine):
        self.machine = machine

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConvOp, rewriter: PatternRewriter, /) -> None:
        chosen = op.attributes.get(CHOSEN)
        if chosen is None:
            return
        if not isinstance(chosen, IntegerAttr) or integer(chosen) not in (0, *map(int, PLACES)):
            raise PassError(f"{describe(op)}: {CHOSEN} must be 0, {' or '.join(PLACES)}, not {chosen}")
        if integer(chosen) == 0:
            return
        obstacle = why_not(op, self.machine)
        if obstacle is not None:
            raise PassError(f"{describe(op)} cannot be computed by F({integer(chosen)}, {TAPS}): {obstacle}")
        made = WinogradConvolution(op, RewriteBuilder(rewriter), integer(chosen))
        rewriter.replace(op, (), [made.result()])


def _names(module: ModuleOp) -> dict[ConvOp, str]:
    """The convolutions of a module, called as the argument of @main that their weights are made from, or as the node
    of a model whose weights are constants, with a number behind where several are."""
    main = main_function(module)
    paths: dict[SSAValue, str] = dict(zip(main.body.block.args, paths_of(module), strict=True))
    counts, found = Counter[str](), dict[ConvOp, str]()
    for op in module.walk():
        if isinstance(op, ConvOp) and not isinstance(op.parent_op(), FusionOp):
            base = paths.get(source_of_moves(op.rhs)) or node_of(op) or "constant"
            counts[base] += 1
            found[op] = f"{base}#{counts[base]}" if counts[base] > 1 else base
    return found


def _check_names(asked: WinogradChoice, names: dict[ConvOp, str]) -> None:
    for pattern, _ in asked.named:
        alone = WinogradChoice(OFF, ((pattern, AUTO),))
        if not any(alone.of(name)[1] for name in names.values()):
            known = ", ".join(names.values()) or "none"
            raise PassError(f"winograd: no convolution is called {pattern!r}; they are {known}")


def _chosen(op: ConvOp, choice: str, named: bool, judge: WinogradJudge) -> int:
    """The results of a tile along each dimension, 0 for a convolution that stays."""
    if choice == OFF:
        return 0
    obstacle = why_not(op, judge.machine)
    if choice == AUTO:
        return 0 if obstacle is not None else judge.best(op)
    if named and obstacle is not None:
        raise PassError(f"{describe(op)} cannot be computed by F({choice}, {TAPS}): {obstacle}")
    return 0 if obstacle is not None else int(choice)


class WinogradJudge:
    """Compares a convolution with its Winograd forms, on a machine, by the time that an oracle says."""

    def __init__(self, machine: Machine, oracle: Oracle):
        self.machine, self.oracle = machine, oracle
        self._known: dict[tuple, int] = {}

    def best(self, op: ConvOp) -> int:
        """The results of a tile with which a convolution takes the least time, of those whose error bound is no larger
        than its own; 0 for itself. Equal convolutions are judged once."""
        shapes = tuple(v.type for v in (op.lhs, op.rhs, op.result))
        key = (shapes, isinstance(op.rhs.owner, ConstantOp), followed(op), *sorted(op.properties.items()))
        if key not in self._known:
            allowed = [m for m in map(int, PLACES) if error_bound(op, m) <= error_bound(op, 0)]
            times = {m: self.microseconds(op, m) for m in (0, *allowed)} if allowed else {0: 0.0}
            self._known[key] = min(times, key=times.__getitem__)
        return self._known[key]

    def microseconds(self, op: ConvOp, places: int) -> float:
        """What the oracle says of the kernels that a convolution becomes, each with a launch of its own; 0 places: as
        it is. Its input comes from a kernel before, so that L2 has it, whose time is not counted. What is elementwise
        behind it is one addition here: part of the convolution's own kernel, or another kernel behind Winograd's."""
        block, copy = self._alone(op)
        copy.attributes[CHOSEN] = integer_attr(places)
        outputs = [v.type for v in block.ops.last.operands] if block.ops.last is not None else []
        func = FuncOp("main", FunctionType.from_lists([a.type for a in block.args], outputs), Region(block))
        module = ModuleOp([func])
        Driver([ConvAsWinograd(self.machine)]).run([copy])
        simplify(module, self.machine, selected(()))
        fuse_block(func.body.block, self.machine)
        # as a whole, what is written is in L2
        scheduler = Scheduler(self.machine, self.oracle, no_further_cuts=places > 0)
        made = [op for op in func.body.block.ops if isinstance(op, FusionOp)]
        return sum(self._of_fusion(fusion, scheduler) for fusion in made[1:])

    def _of_fusion(self, fusion: FusionOp, scheduler: Scheduler) -> float:
        """What the oracle says of the kernel of a fusion. The analytic bound of a vector kernel, which has its pipes
        one after the other, is too long beside that of a product."""
        found = scheduler.fusion(fusion)
        schedules = [schedule for chosen in found for schedule in chosen.schedules]
        bound = isinstance(self.oracle, AnalyticBound)
        if not bound or shaping_op(fusion) is not None or len(schedules) != 1:
            return sum(chosen.microseconds for chosen in found)
        kernel = VectorKernel(fusion, self.machine, as_vector("", schedules[0]))
        kernel.warm = frozenset(i for i, v in enumerate(fusion.inputs) if isinstance(v.owner, FusionOp))
        return kernel.overlapped(schedules[0])

    def _alone(self, op: ConvOp) -> tuple[Block, ConvOp]:
        """The body of a function that is a copy of a convolution, with what stands for the kernel before it and the
        elementwise ops behind it."""
        constant = op.rhs.owner if isinstance(op.rhs.owner, ConstantOp) else None
        outside = [op.lhs] if constant is not None else [op.lhs, op.rhs]
        features = to_ints(op.out_layout)[1]
        bias = tensor([shape_of(op.result)[features]], element_of(op.result))
        block = Block(arg_types=[*(v.type for v in outside), bias])
        known: dict[SSAValue, SSAValue] = dict(zip(outside, block.args, strict=False))
        before = ELEMENTWISE["abs"].create(operands=[block.args[0]], result_types=[op.lhs.type])
        known[op.lhs] = before.results[0]
        block.add_op(before)
        if constant is not None:
            known[op.rhs] = (copied := constant.clone()).results[0]
            block.add_op(copied)
        copy = op.clone(known)
        block.add_op(copy)
        result: SSAValue = copy.result
        if followed(op):
            spread = BroadcastOp.create(
                operands=[block.args[-1]], result_types=[result.type], properties={"dims": ints([features])}
            )
            added = ELEMENTWISE["add"].create(operands=[result, spread.result], result_types=[result.type])
            block.add_ops([spread, added])
            result = added.results[0]
        block.add_op(ReturnOp(result))
        return block, copy


def followed(op: ConvOp) -> bool:
    """Whether an elementwise op takes a convolution's result."""
    return any(isinstance(use.operation, ElementwiseOp) for use in op.result.uses)


def error_bound(op: ConvOp, places: int) -> float:
    """The largest error of an element of a convolution's result where no input and no weight is larger than 1, to first
    order: docs/numerics.md, "Winograd's convolutions". 0 places: of the convolution itself."""
    dims = len(to_ints(op.rhs_layout)) - 2
    channels = shape_of(op.rhs)[to_ints(op.rhs_layout)[0]]
    narrow, wide = UNIT_ROUNDOFF[dtype_name(element_of(op.lhs))], UNIT_ROUNDOFF["f32"]
    stored = UNIT_ROUNDOFF[dtype_name(element_of(op.result))]
    terms = channels * TAPS**dims
    if places == 0:
        return terms * terms * wide + stored * terms
    how = transforms(places)
    rounded = 2 * narrow if narrow > wide else 0.0
    magnified = channels * how.magnification(dims)
    return magnified * ((channels + how.roundings(dims)) * wide + rounded) + stored * terms
