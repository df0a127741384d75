"""Finds what can be made in strips: ops between products, of which each makes its part for a strip of one axis alone.

A group grows from a product that is much larger than its operands, as scores are. An axis of it is cut; ops that read
the product, and what else is as large, join as long as their elements at one place of the axis depend on no other
place. What an op gives that is smaller leaves the group: it is put together from its strips or, where the axis is
summed over, added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, OpResult, SSAValue

from ...dialects.base import text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import (
    BroadcastOp,
    ConcatOp,
    ConstantOp,
    ContractOp,
    ElementwiseOp,
    GatherOp,
    GraphOp,
    IotaOp,
    PadOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.extents import BoundedDim
from ...dialects.graph.interface import shape_of
from ...dialects.open_sizes import any_open
from ..forms.access import splat_of
from ..program.hoist import outer_operands, value_bytes

LEAST_GROWTH = 5
"""A product is cut where it has so many times the elements of each of its operands. The hidden layer of a transformer
has four times those of its input: computing it again for the gradient would cost more than it saves."""

STRIPPED = (
    ElementwiseOp,
    BroadcastOp,
    TransposeOp,
    ReshapeOp,
    SliceOp,
    PadOp,
    ConcatOp,
    ContractOp,
    ReduceOp,
    GatherOp,
)
"""Ops whose elements depend on those at the same place of an axis alone, where `along` says that the axis goes on as it
is; in other classes, as running sums and sorts, they depend on those before them."""

MOST_MADE = 16
"""Ops of positions and numbers alone that are repeated for each strip."""


@dataclass(frozen=True)
class StripWay:
    """How an op takes part: the dimension of each operand along which it is cut, None for one that is read whole; that
    of the result, or how results of strips are combined."""

    operands: tuple[int | None, ...]
    result: int | None
    combined: str = ""


@dataclass
class StripGroup:
    """Ops that are made in strips of one axis. seed: the product that it grew from; extent: of the axis; ways: by op;
    members: the values that stay in strips, with their dimension of the axis; levels: by op, how many results of the
    group it depends on, one behind the other, by way of ops outside."""

    seed: ContractOp
    extent: int
    ways: dict[Operation, StripWay] = field(default_factory=dict)
    members: dict[SSAValue, int] = field(default_factory=dict)
    levels: dict[Operation, int] = field(default_factory=dict)

    def widest(self) -> int:
        """Bytes of the largest value that stays in strips and that a kernel would store otherwise: what elementwise
        ops alone read is computed where they are, as the sums of a product in front of its epilogue."""
        stored = (v for v in self.members if not all(isinstance(u.operation, ElementwiseOp) for u in v.uses))
        return max(map(value_bytes, stored), default=0)

    def way(self, value: SSAValue) -> StripWay:
        """How the op that makes a value takes part."""
        assert isinstance(value.owner, Operation)
        return self.ways[value.owner]

    def results(self, level: int) -> list[OpResult]:
        """What ops of a level give to others than the group's ops of this level, in the order of the block."""
        found = []
        for op, own in self.levels.items():
            (result,) = op.results
            outside = (result not in self.members or use.operation not in self.ways for use in result.uses)
            if own == level and any(outside):
                found.append(result)
        return found


def is_made(value: SSAValue) -> bool:
    """Whether a tensor is made of positions and numbers alone, by at most MOST_MADE ops."""
    pending, seen = [value], set[Operation]()
    while pending:
        op = pending.pop().owner
        if op in seen:
            continue
        if not isinstance(op, Operation) or len(seen) == MOST_MADE:
            return False
        seen.add(op)
        if isinstance(op, ConstantOp):
            if splat_of(op.result) is None:
                return False
        elif not isinstance(op, (IotaOp, ElementwiseOp, BroadcastOp, ReshapeOp, TransposeOp)):
            return False
        pending += op.operands
    return True


def groups_at(seed: ContractOp) -> Iterator[StripGroup]:
    """The groups that grow from a product: one for each of its dimensions that can be cut."""
    result = shape_of(seed.result)
    operands = [shape_of(v) for v in seed.operands]
    if any_open((*result, *(n for shape in operands for n in shape))):
        return
    if size(result) < LEAST_GROWTH * max(map(size, operands)):
        return
    for d, extent in enumerate(result):
        if extent > 1:
            group = _Growth(seed, d).group()
            if group is not None:
                yield group


class _Growth:
    """Grows a group from a dimension of a product."""

    def __init__(self, seed: ContractOp, d: int):
        self.seed, self.block = seed, seed.parent
        self.found = StripGroup(seed, shape_of(seed.result)[d])
        self.pending: list[Operation] = []
        shape, first = shape_of(seed.result), len(to_ints(seed.lhs_batch))
        second = first + len(seed.free_dims()[0])
        rows, columns = size(shape[first:second]), size(shape[second:])
        across = min(rows, columns) if d < first else columns if d < second else rows
        self.wide, self.slim = size(shape) // 2, size(shape) // max(across, 1)
        """Elements of what stays in strips as the product does, and of what has one number for each of its rows."""
        way = way_from_result(seed, d)
        if way is not None:
            self._join(seed, way)

    def group(self) -> StripGroup | None:
        """The group; None where a value would have to be cut along two dimensions."""
        found = self.found
        if not found.ways:
            return None
        while self.pending:
            op = self.pending.pop()
            if not self._join_makers(op) or not self._join_users(op):
                return None
        order = {op: i for i, op in enumerate(self.seed.parent.ops)} if self.seed.parent else {}
        found.ways = {op: found.ways[op] for op in sorted(found.ways, key=order.__getitem__)}
        _find_levels(found, self.seed.parent)
        return found

    def _join(self, op: Operation, way: StripWay) -> None:
        found, (result,) = self.found, op.results
        found.ways[op] = way
        count = size(shape_of(result))
        if way.result is not None and (count >= self.wide or count <= self.slim):
            found.members[result] = way.result
        self.pending.append(op)

    def _join_makers(self, op: Operation) -> bool:
        """Lets what makes the wide operands of an op join. False where one is cut along another dimension."""
        for value, d in zip(op.operands, self.found.ways[op].operands, strict=True):
            if value in self.found.members:
                if self.found.members[value] != d:
                    return False
                continue
            maker = value.owner
            if d is None or not isinstance(maker, Operation) or maker.parent is not self.block:
                continue
            if size(shape_of(value)) >= self.wide and not is_made(value):
                way = way_from_result(maker, d)
                if way is not None and maker not in self.found.ways:
                    self._join(maker, way)
        return True

    def _join_users(self, op: Operation) -> bool:
        """Lets the ops that read a member join. False where one reads it along another dimension."""
        (result,) = op.results
        d = self.found.members.get(result)
        if d is None:
            return True
        for use in result.uses:
            user = use.operation
            if user in self.found.ways:
                if self.found.ways[user].operands[use.index] != d:
                    return False
                continue
            way = way_from_operand(user, use.index, d) if user.parent is self.block else None
            if way is not None and all(
                self.found.members.get(v, e) == e for v, e in zip(user.operands, way.operands, strict=True)
            ):
                self._join(user, way)
        return True


def way_from_operand(op: Operation, i: int, d: int) -> StripWay | None:
    """How an op takes part whose operand i is cut along d; None where it cannot."""
    if not isinstance(op, STRIPPED):
        return None
    found = op.along(i, d)
    if found is None:
        return None
    if found.dim is None:
        return _summed(op, i, d, found)
    return way_from_result(op, found.dim) if _goes_on(op, i, d, found) else None


def _goes_on(op: GraphOp, i: int, d: int, found: BoundedDim) -> bool:
    """Whether a dimension of an operand is one of the result as it is."""
    if found.dim is None or (found.scale, found.offset, found.divisor) != (1, 0, 1):
        return False
    return shape_of(op.operands[i])[d] == shape_of(op.results[0])[found.dim]


def _summed(op: GraphOp, i: int, d: int, found: BoundedDim) -> StripWay | None:
    if not isinstance(op, ContractOp | ReduceOp):
        return None
    places: list[int | None] = [None] * len(op.operands)
    places[i] = d
    for a, b in op.meeting():
        for one, other in ((a, b), (b, a)):
            if one == (i, d):
                places[other[0]] = other[1]
    kind = text(op.kind) if isinstance(op, ReduceOp) else str(found.padding)
    return StripWay(tuple(places), None, kind)


def way_from_result(op: Operation, r: int) -> StripWay | None:
    """How an op takes part whose result is cut along r; None where it cannot."""
    if not isinstance(op, STRIPPED):
        return None
    places: list[int | None] = []
    for i, value in enumerate(op.operands):
        named = [(d, found) for d in range(len(shape_of(value))) if (found := op.along(i, d)) and found.dim == r]
        if len(named) > 1 or any(not _goes_on(op, i, d, found) for d, found in named):
            return None
        places.append(named[0][0] if named else None)
    if all(p is None for p in places) and not isinstance(op, BroadcastOp):
        return None
    return StripWay(tuple(places), r)


def _find_levels(group: StripGroup, block: Block | None) -> None:
    """Finds for each op of a group how many results of the group it depends on, one behind the other."""
    assert block is not None
    outside: dict[SSAValue, int] = {}
    for op in block.ops:
        level = 0
        for value in outer_operands(op):
            maker = value.owner
            if isinstance(maker, Operation) and maker in group.levels:
                left = op not in group.ways or value not in group.members
                level = max(level, group.levels[maker] + left)
            else:
                level = max(level, outside.get(value, 0))
        if op in group.ways:
            group.levels[op] = level
        else:
            outside.update((result, level) for result in op.results)


def needed(group: StripGroup, results: Sequence[SSAValue]) -> list[Operation]:
    """The ops of a group that make some of its results in strips, in the order of the block."""
    found: set[Operation] = set()
    pending = [v.owner for v in results]
    while pending:
        op = pending.pop()
        if not isinstance(op, Operation) or op in found:
            continue
        found.add(op)
        pending += [v.owner for v in op.operands if v in group.members]
    return [op for op in group.ways if op in found]
