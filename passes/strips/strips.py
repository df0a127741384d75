"""graph-strips: chunked recomputation. What is large between products is made in strips, one after the other.

Products that are kernels where each has scores of its own are given these first (flash_backward.py). What else is
large:

Before:  %s = graph.contract %q, %k : [4096, 64], [4096, 64] -> [4096, 4096] ; %e = graph.exp %s ; ... of %e ;
         %a = graph.contract %e, %v : [4096, 64] ; %b = graph.contract %e, %d over rows : [4096, 64]
After:   %a, %b = graph.while with a counter, of 8 iterations: a strip of %q and %d, 512 rows of %s and %e ;
         512 rows of %a are put in place, the part of %b is added to what there is of it

What the second group of strips needs of the first one's large values, as the gradient of attention needs the weights
behind the forward half, is computed again. What one kernel computes of two products, as attention, is left alone:
nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, f32, i1, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import dtype_name, is_float, itemsize, size, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import (
    ELEMENTWISE,
    ContractOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    FusionOp,
    GatherOp,
    IotaOp,
    ReduceOp,
    SliceOp,
    WhileOp,
    YieldOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ...support.amounts import STRIP
from ..alternatives import ATTENTION
from ..base import ChoosingPass
from ..forms.access import splat_of
from ..forms.attention import in_one_kernel
from ..forms.chained import Chained
from ..forms.tensor_builder import BlockBuilder
from ..program.hoist import outer_operands, value_bytes
from ..reasons import asked_reasons
from ..rewriting import erase_dead
from .flash_backward import apply_flash_backward, in_flash_backward
from .strip_groups import StripGroup, StripWay, groups_at, is_made, needed, way_from_result

MOST_LEVELS = 3
"""Levels of a group that are made: each computes anew what it needs of those before it."""

FRACTAL = 16
"""Strips have a multiple of so many places, where there are that many: the rows of a fractal."""


@dataclass(frozen=True)
class GraphStripsPass(ChoosingPass):
    """Makes what is large between products in strips."""

    name = "graph-strips"
    strips: int = STRIP
    """The most bytes of a tensor of a strip; 0: nothing is made in strips."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                attention = self.may(ATTENTION)
                if attention:
                    apply_flash_backward(func.body.block, machine, asked_reasons())
                if self.strips:
                    Stripper(self.strips, machine if attention else None).block(func.body.block)


@dataclass(frozen=True)
class Stripper:
    """Makes what is large in blocks in strips. most: bytes of a tensor of a strip; machine: the one that computes
    attention in one kernel, if any."""

    most: int
    machine: Machine | None

    def block(self, block: Block) -> None:
        """Rewrites a block and those in its regions."""
        for op in list(block.ops):
            if not isinstance(op, FusionOp):
                for region in op.regions:
                    for inner in region.blocks:
                        self.block(inner)
        whole = in_flash_backward(block)
        for seed in [op for op in block.ops if isinstance(op, ContractOp) and op not in whole]:
            if seed.parent is block and seed.result.first_use is not None:
                cut = self.choose(seed)
                for body in cut.apply(self.machine) if cut is not None else ():
                    self.block(body)

    def choose(self, seed: ContractOp) -> StripCut | None:
        """How what follows from a product is cut; None where it is not worth it."""
        if size(shape_of(seed.result)) * itemsize(f32) <= self.most:
            return None
        cuts = [cut for group in groups_at(seed) if (cut := self.cut(group)) is not None]
        return min(cuts, key=lambda cut: (max(cut.results), cut.added * cut.count), default=None)

    def cut(self, group: StripGroup) -> StripCut | None:
        """How a group is cut; None where that saves little or moves too much."""
        widest, levels = group.widest(), sorted(set(group.levels.values()))
        results = {level: group.results(level) for level in levels}
        given = [v for values in results.values() for v in values]
        if widest <= self.most or len(levels) > MOST_LEVELS or not given:
            return None
        added = sum(size(shape_of(v)) * itemsize(accumulator(v)) for v in given if group.way(v).result is None)
        if 2 * (sum(map(value_bytes, given)) + added) > widest:
            return None
        most = widest // added if added else group.extent
        count = min(-(-widest // self.most), most, group.extent)
        return StripCut(group, results, count, added) if count > 1 else None


def accumulator(value: SSAValue) -> Attribute:
    """The element type in which the parts of a value are combined: f32 for narrower floats."""
    element = element_of(value)
    return f32 if is_float(element) and itemsize(element) < itemsize(f32) else element


@dataclass
class StripCut:
    """A group cut into strips. results: what it gives, by level; count: strips that are wanted; added: bytes of what is
    combined of all strips."""

    group: StripGroup
    results: dict[int, list[OpResult]]
    count: int
    added: int

    @property
    def length(self) -> int:
        """Places of the axis in a strip: a divisor of all of them if one is near."""
        extent = self.group.extent
        longest = -(-extent // self.count)
        step = FRACTAL if longest >= FRACTAL else 1
        tried = range(longest // step * step, longest // 2, -step)
        return next((n for n in tried if extent % n == 0), longest // step * step)

    def apply(self, machine: Machine | None) -> list[Block]:
        """Writes a loop for each level in place of its ops; the blocks in which strips are made. What one kernel gives
        of two products stays as it is."""
        block, bodies = self.group.seed.parent, list[Block]()
        assert block is not None
        for level in sorted(self.results, reverse=True):
            if level == 0:
                erase_dead(block)
                if machine is not None and self._stays_one(machine):
                    continue
            if self.results[level]:
                bodies.append(_Loop(self, level).write())
        erase_dead(block)
        return bodies

    def _stays_one(self, machine: Machine) -> bool:
        """Whether all that the first level gives is the result of two products that one kernel computes."""
        makers = [v.owner for v in self.results[0]]
        return all(isinstance(op, ContractOp) and isinstance(in_one_kernel(op, machine), Chained) for op in makers)


class _Loop:
    """Writes the strips of one level: a loop, and what its strips leave over behind it."""

    def __init__(self, cut: StripCut, level: int):
        self.cut, self.group = cut, cut.group
        self.results = cut.results[level]
        self.ops = needed(self.group, self.results)
        self.mine = set(self.ops)
        own = {op for op in self.ops if self.group.levels[op] == level}
        self.first, self.last = (next(op for op in order if op in own) for order in (self.ops, self.ops[::-1]))
        self.location = self.last.location

    def write(self) -> Block:
        """Writes all of it; the block of the loop's body."""
        block, extent, length = self.last.parent, self.group.extent, self.cut.length
        assert block is not None
        behind = self._dependents(block)
        aside = Block()
        build = BlockBuilder(aside, self.location)
        inits = [build.constant(0, (), i32), *(self._empty(build, v) for v in self.results)]
        loop, body = self._loop(inits, length, extent // length)
        aside.add_op(loop)
        values: list[SSAValue] = list(loop.results[1:])
        if extent % length:
            start = build.constant(extent // length * length, (), i32)
            values = self._strip(build, start, extent % length, values)
        ends = [build.convert(x, element_of(v)) for x, v in zip(values, self.results, strict=True)]
        at = aside.last_op or loop
        Rewriter.inline_block(aside, InsertPoint.after(self.last))
        for op in behind:
            op.detach()
            block.insert_op_after(op, at)
            at = op
        for value, end in zip(self.results, ends, strict=True):
            end.name_hint = value.name_hint
            value.replace_uses_with_if(end, lambda use: use.operation not in self.mine)
        return body

    def _dependents(self, block: Block) -> list[Operation]:
        """Ops before the last one of the level that depend on what it gives, in order."""
        given: set[SSAValue] = set(self.results)
        found: list[Operation] = []
        op: Operation | None = self.first
        while op is not None and op is not self.last:
            if op not in self.mine and any(v in given for v in outer_operands(op)):
                found.append(op)
                given.update(op.results)
            op = op.next_op
        return found

    def _empty(self, build: BlockBuilder, value: OpResult) -> SSAValue:
        """Where the strips of a result are put, or what their parts are combined with."""
        kind, element = self.group.way(value).combined, accumulator(value)
        if not kind:
            return build.constant(0, shape_of(value), element_of(value))
        return build.constant(identity(kind, dtype_name(element)), shape_of(value), element)

    def _loop(self, inits: Sequence[SSAValue], length: int, trips: int) -> tuple[WhileOp, Block]:
        types = [v.type for v in inits]
        condition, body = Block(arg_types=types), Block(arg_types=types)
        test = BlockBuilder(condition, self.location)
        less = test.add(ELEMENTWISE["lt"], [condition.args[0], test.constant(trips, (), i32)], tensor([], i1))
        condition.add_op(YieldOp.create(operands=[less]))
        build = BlockBuilder(body, self.location)
        counter, *carried = body.args
        start = build.elementwise("mul", counter, build.constant(length, (), i32))
        made = self._strip(build, start, length, carried)
        following = build.elementwise("add", counter, build.constant(1, (), i32))
        body.add_op(YieldOp.create(operands=[following, *made]))
        loop = WhileOp.create(
            operands=inits,
            result_types=types,
            properties={"trip_count": integer_attr(trips), "counter": integer_attr(0)},
            regions=[Region(condition), Region(body)],
            location=self.location,
        )
        return loop, body

    def _strip(
        self, build: BlockBuilder, start: SSAValue, length: int, carried: Sequence[SSAValue]
    ) -> list[SSAValue]:
        """The carried values behind the strip of `length` places from `start` on."""
        strip = _Strip(self.group, build, start, length)
        for op in self.ops:
            strip.write(op)
        return [strip.put(value, x) for value, x in zip(self.results, carried, strict=True)]


class _Strip:
    """Writes the ops of a group for the `length` places of the axis from `start` on."""

    def __init__(self, group: StripGroup, build: BlockBuilder, start: SSAValue, length: int):
        self.group, self.build, self.start, self.length = group, build, start, length
        self.zero = build.constant(0, (), i32)
        self.made: dict[SSAValue, SSAValue] = {}
        self.parts: dict[tuple[SSAValue, int], SSAValue] = {}

    def write(self, op: Operation) -> None:
        """Writes one op, of operands that are in strips, cut here, or whole."""
        way, (result,) = self.group.ways[op], op.results
        self.build.location = op.location
        shape, element = list(shape_of(result)), element_of(result)
        if way.result is not None:
            shape[way.result] = self.length
        operands = [self._operand(v, d) for v, d in zip(op.operands, way.operands, strict=True)]
        if way.combined:
            element = accumulator(result)
            if isinstance(op, ReduceOp):
                operands = [self.build.convert(v, element) for v in operands]
        made = self.build.add(type(op), operands, tensor(shape, element), **resized(op, way, self.length))
        made.name_hint = result.name_hint
        self.made[result] = made

    def _operand(self, value: SSAValue, d: int | None) -> SSAValue:
        if value in self.group.members:
            return self.made[value]
        if d is None:
            return value
        if (value, d) not in self.parts:
            self.parts[value, d] = self._made_anew(value, d) if is_made(value) else self._read(value, d)
        return self.parts[value, d]

    def _read(self, value: SSAValue, d: int) -> SSAValue:
        """The strip of a tensor from outside."""
        sizes = [self.length if i == d else n for i, n in enumerate(shape_of(value))]
        starts = self._starts(len(sizes), d)
        return self.build.add(
            DynamicSliceOp, [value, *starts], tensor(sizes, element_of(value)), sizes=ints(sizes)
        )

    def _made_anew(self, value: SSAValue, d: int) -> SSAValue:
        """The strip of a tensor of positions and numbers."""
        op, element, number = value.owner, element_of(value), splat_of(value)
        shape = [self.length if i == d else n for i, n in enumerate(shape_of(value))]
        if number is not None:
            return self.build.constant(number, shape, element)
        if isinstance(op, IotaOp):
            return self._positions(op, d, shape)
        assert isinstance(op, Operation)
        way = way_from_result(op, d)
        if way is None:
            return self._read(value, d)
        operands = [self._operand(v, e) for v, e in zip(op.operands, way.operands, strict=True)]
        return self.build.add(type(op), operands, tensor(shape, element), **resized(op, way, self.length))

    def _starts(self, rank: int, d: int) -> list[SSAValue]:
        return [self.start if i == d else self.zero for i in range(rank)]

    def _positions(self, op: IotaOp, d: int, shape: Sequence[int]) -> SSAValue:
        """Positions along a dimension: along that of the axis, d, those of the strip."""
        made = self.build.add(IotaOp, [], tensor(shape, element_of(op.result)), dim=op.dim)
        if integer(op.dim) != d:
            return made
        start = self.build.convert(self.start, element_of(op.result))
        return self.build.elementwise("add", made, self.build.broadcast(start, shape, ()))

    def put(self, value: OpResult, all_strips: SSAValue) -> SSAValue:
        """A result of all strips so far, with that of this strip."""
        way, made = self.group.way(value), self.made[value]
        if way.result is None:
            return self.build.elementwise(REDUCTION_FUNCTION[way.combined], all_strips, made)
        starts = self._starts(len(shape_of(value)), way.result)
        return self.build.add(DynamicUpdateSliceOp, [all_strips, made, *starts], all_strips.type)


def resized(op: Operation, way: StripWay, length: int) -> dict[str, Attribute]:
    """The properties of an op that takes and gives `length` places of the axis."""
    properties = dict(op.properties)
    d = way.operands[0] if way.operands else None
    if isinstance(op, SliceOp) and d is not None:
        properties["limits"] = ints([length if i == d else n for i, n in enumerate(to_ints(op.limits))])
    if isinstance(op, GatherOp) and d is not None and to_ints(op.slice_sizes)[d] != 1:
        properties["slice_sizes"] = ints([length if i == d else n for i, n in enumerate(to_ints(op.slice_sizes))])
    return properties
