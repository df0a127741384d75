"""The parts of attention: its two products and the ops between them, each as a fusion of its own to be looked at.

The parts share the fusion's tensors and their numbers. An axis of the whole is a dimension of the scores, or the one
behind them that the values alone have. In the parts, rows come last: a tile has a row of scores in each column, so that
what each row has, as its maximum, is one row of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Attribute, SSAValue

from ....dialects.base import ints, to_ints
from ....dialects.dtypes import tensor
from ....dialects.graph import ContractOp, CubeSchedule, FusionOp
from ....dialects.graph.control import AXES
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import row_strides
from ....kernels.graph import OwnAxis
from ....kernels.nest import LoopedWriter, NestWriter
from ....kernels.product_stages import OperandDim
from ....kernels.stage import Given, KernelStage, Ref, StageLoadBox, Transpose
from ....machine import Machine
from ...forms.access import Load
from ...forms.attention import Attention, attention_at
from ...forms.chained import Chained, chained_at
from ...forms.copied_fusion import CopiedFusion
from ...forms.layout_axes import Axes, base_of
from ..axes import StoredPart, behind_merges
from ..cube.contract import ContractKernel
from ..cube.contraction_axes import Operand
from ..cube.cube_schedule import CubePlan
from ..fusion_stages import FusionStages


def products_in(fusion: FusionOp) -> list[ContractOp]:
    """The matrix products of a fusion."""
    return [op for op in fusion.body.block.ops if isinstance(op, ContractOp)]


def is_chained(fusion: FusionOp) -> bool:
    """Whether a fusion has two products."""
    return len(products_in(fusion)) > 1


def chained_in(fusion: FusionOp, machine: Machine) -> Chained:
    """The chained products that a fusion is, as attention if it is such."""
    product = products_in(fusion)[-1]
    attention = attention_at(product, machine)
    found = attention if isinstance(attention, Attention) else chained_at(product, machine)
    assert found is not None, "a fusion of two products is chained"
    return found


def attention_in(fusion: FusionOp, machine: Machine) -> Attention:
    """The attention that a fusion is."""
    found = chained_in(fusion, machine)
    assert isinstance(found, Attention)
    return found


class ProductPart(ContractKernel):
    """One of the products, its rows on one side. `number`: what an axis of the whole is called here."""

    def __init__(self, fusion: FusionOp, axes: Axes, machine: Machine):
        super().__init__(fusion, machine, CubeSchedule())
        self.number: Mapping[int, int] = {
            axis: self.new_axis[dim]
            for dim, axis in enumerate(axes)
            if axis is not None and dim in self.new_axis
        }

    def _as_asked(self, most: list[list[int]]) -> list[list[int]]:
        return [[axis] for group in most for axis in group]

    def axes_in(self, w: NestWriter, summed: int | None = None) -> Sequence[int]:
        """What its axes are called in a nest: those of the whole as there, and what it sums up as said, or by a number
        of its own."""
        named = {own: axis for axis, own in self.number.items()}
        if summed is not None:
            named |= dict.fromkeys(self.k_axes, summed)
        return [named[a] if a in named else w.own([OwnAxis("summed up")])[0] for a, _ in enumerate(self.extents)]

    def takes(self, row: int, side: int = 1) -> None:
        """Makes an operand (0: lhs, 1: rhs) a tile in l1 that another part brings: keys by rows, or rows by keys where
        it is the left one."""
        kind = element_of(self.anchor.operands[side])
        dims = [
            OperandDim(1, 1, tuple((a, 1) for a in self.k_axes)),
            OperandDim(1, 1, ((self.number[row], 1),)),
        ]
        self.operands[side] = Operand(-1, dims if side else dims[::-1], 0, kind)

    @staticmethod
    def of(
        fusion: FusionOp,
        op: ContractOp,
        axes: Axes,
        swapped: bool,
        made: Sequence[SSAValue],
        machine: Machine,
    ) -> ProductPart:
        """A product of a fusion, whose result has these axes of the whole; `swapped`: its operands change places. made:
        operands that another part computes."""
        dims = result_dims(op, swapped)
        copied = CopiedFusion(fusion, made, {})
        operands = [copied.value(v) for v in op.operands]
        given = ("rhs", "lhs") if swapped else ("lhs", "rhs")
        shape = [shape_of(op.result)[d] for d in dims]
        product = ContractOp.create(
            operands=operands[::-1] if swapped else operands,
            result_types=[tensor(shape, element_of(op.result))],
            properties={
                f"{side}_{what}": op.properties[f"{other}_{what}"]
                for side, other in zip(("lhs", "rhs"), given, strict=True)
                for what in ("batch", "contract")
            },
            attributes={AXES: ints(range(len(shape)))},
            location=op.location,
        )
        copied.block.add_op(product)
        return ProductPart(
            copied.fusion("cube", shape, product.result), tuple(axes[d] for d in dims), machine
        )


class NestedProduct:
    """A product on its way into a nest, with loads and steps as a plan says. axes: what its axes are called there."""

    def __init__(self, w: NestWriter, part: ProductPart, axes: Sequence[int], plan: CubePlan):
        self.w, self.axes, self.plan, self.part = w, axes, plan, part
        self._looped, self._stages = part.looped_sums(plan, plan.lhs)

    def load(self, side: int) -> list[Ref]:
        """What of an operand (0: lhs, 1: rhs) comes to l1, from where the nest is."""
        return [self._taken(ref) for ref in self._stages.loaded[side]]

    def move_left(self, left: Sequence[Ref]) -> Ref:
        """The left operand of one step, in l0a."""
        return self._taken(self._stages.moved[0], dict(zip(self._stages.loaded[0], left, strict=True)))

    def nothing(self) -> Ref:
        """An accumulator without sums."""
        return self._taken(self._stages.before)

    def sums(
        self, left: Sequence[Ref], right: Sequence[Ref], onto: Ref | None = None, moved: Ref | None = None
    ) -> Ref:
        """The accumulator of a tile whose operands are in l1, from where the nest is; onto: one to go on with; moved:
        the left operand in l0a, where it is there whole."""
        looped, stages = self._looped, self._stages
        known = dict(zip((*stages.loaded[0], *stages.loaded[1]), (*left, *right), strict=True))
        known |= {} if onto is None else {stages.before: onto}
        known |= {} if moved is None else {stages.moved[0]: moved}
        writer = LoopedWriter(self.w, looped, self.axes, known)
        writer.level(0)
        return writer.known[stages.behind]

    def _taken(self, ref: Ref, known: Mapping[Ref, Ref] | None = None) -> Ref:
        looped, there = self._looped, dict(known or {})
        self.w.take_known(looped.stages, ref[0], self.axes, looped.tiles[ref[0]], there)
        return there[ref]


def result_strides(at: Chained, value: SSAValue) -> dict[int, int]:
    """Elements between neighbours of a stored result of attention along each axis."""
    made, strides = behind_merges(value, row_strides(shape_of(value)))
    axes = at.axes[made]
    return {a: stride for a, stride in zip(axes, strides, strict=True) if a is not None}


def result_dims(op: ContractOp, swapped: bool) -> list[int]:
    """The dimensions of a product's result in their order; `swapped`: where its operands change places."""
    batch, (left, right) = len(to_ints(op.lhs_batch)), op.free_dims()
    middle, end = batch + len(left), batch + len(left) + len(right)
    free = [*range(middle, end), *range(batch, middle)] if swapped else [*range(batch, end)]
    return [*range(batch), *free]


class ScoreStages(FusionStages):
    """What becomes of a tile of one number for each score: of scores before the softmax, or of weights behind it.
    The last `given` block arguments are these numbers; `result` is the step that gives what becomes of them. The last
    two axes are those of keys and rows."""

    def __init__(self, fusion: FusionOp, machine: Machine, given: int):
        super().__init__(fusion, machine, apart=True)
        self.scored: dict[SSAValue, Ref] = {}
        """The loads of tiles of products."""
        values = fusion.body.block.args[-given:]
        self.named: Mapping[SSAValue, str] = {value: f"product{i}" for i, value in enumerate(values)}
        """What stages know the products by."""
        self.products: Mapping[str, int] = {name: i for i, name in enumerate(self.named.values())}
        """Their numbers."""
        self.result: Ref = (-1, 0)
        self.transposed: dict[Ref, Ref] = {}
        self.build_stages()
        self.over = self._over()

    @property
    def computes(self) -> bool:
        """Whether there are other ops than conversions."""
        return any(step.kind == "op" and step.function != "convert" for step in self.stages)

    def _over(self) -> Ref | None:
        """What can be computed in the place of the loaded scores, where the softmax needs no other tile than one for
        each score: the loaded ones themselves, or the one step on them. None where there is more."""
        computed = [(i, step) for i, step in enumerate(self.stages) if step.kind not in ("fill", "load")]
        loads = [(i, 0) for i, step in enumerate(self.stages) if step.kind == "load"]
        if len(loads) != 1 or not self.scored:
            return None
        if not computed:
            return loads[0] if self.result == loads[0] else None
        (i, step), *more = computed
        same = step.elements == self.stages[loads[0][0]].elements
        alone = not more and step.function is not None and list(step.operands).count(loads[0]) == 1
        return (i, 0) if alone and same and step.operands[0] == loads[0] and self.result == (i, 0) else None

    def _lanes(self, operands: Sequence[Ref], span: frozenset[int]) -> list[Ref]:
        """What has one number for each row of scores is a line of a tile, which an instruction of two operands takes as
        it is for each line of the other one."""
        line = frozenset({len(self.extents) - 1})
        lines = [r for r in operands if self._span(r) == line != span]
        others = [r for r in operands if self._span(r) not in (line, frozenset())]
        if len(operands) == 2 and len(lines) == len(others) == 1:
            return [r if r in lines else self._spread(r, span) for r in operands]
        return super()._lanes(operands, span)

    def _load(self, load: Load, element: Attribute) -> Ref:
        if load.base in self.named:
            return self._brought(load.base)
        ref = super()._load(load, element)
        if ref not in self.transposed:
            self.transposed[ref] = self._transposed(ref, load, element)
        return self.transposed[ref]

    def _brought(self, value: SSAValue) -> Ref:
        """The tile of what a product gives, whatever the shape that its result has outside the kernel."""
        if value not in self.scored:
            axes = range(len(self.extents))
            given = Given(self.named[value], "load", tuple(axes))
            self.scored[value] = self._stage(KernelStage(given, [element_of(value)], frozenset(axes)))
        return self.scored[value]

    def _transposed(self, ref: Ref, load: Load, element: Attribute) -> Ref:
        """What a load brings, transposed in ub where keys are neighbours in memory: by single elements it takes
        long."""
        step, keys, row = self.stages[ref[0]], len(self.extents) - 2, len(self.extents) - 1
        view, op = step.view, step.op
        if load.fill is not None or view is None or not {keys, row} <= step.axes:
            return ref
        strides = dict(zip(step.along, view.strides, strict=True))
        if strides[row] <= strides[keys]:
            return ref
        order = sorted(
            range(len(step.along)), key=lambda d: -1 if step.along[d] == row else step.along[d] or 0
        )
        order = sorted(order, key=lambda d: (step.along[d] or 0) >= keys)
        assert isinstance(op, StageLoadBox)
        brought = replace(step, op=replace(op, order=tuple(order)))
        self.stages[ref[0]] = brought
        perm = (*range(keys), row, keys)
        return self._stage(KernelStage(Transpose(perm), [element], step.axes, [ref]))

    def _store(self, part: StoredPart) -> None:
        """Nothing is stored: the softmax, or the second product, goes on from here."""
        base = base_of(part.value)
        ref = self.made[base] if base in self.made else self._brought(base)
        self.result = self._spanning(ref, frozenset(range(len(self.extents))))

    @staticmethod
    def of(
        fusion: FusionOp,
        at: Chained,
        first: Sequence[SSAValue],
        last: SSAValue,
        order: Sequence[int],
        machine: Machine,
    ) -> ScoreStages:
        """The ops of a fusion from some values on to another, over the dimensions of the scores in this order."""
        copied = CopiedFusion(fusion, first, {axis: i for i, axis in enumerate(order)})
        shape = [shape_of(at.scores.result)[d] for d in order]
        return ScoreStages(copied.fusion("vector", shape, copied.value(last)), machine, len(first))
