"""Which outputs of a kernel may be stored over one of its inputs.

A core must not overwrite elements that another core, or a later step of its own, has yet to load. This holds if each
load of the input reads only elements that the same core stores later in the same step of the surrounding loops, from a
value that depends on the load: the load is then over before the store begins, whatever the pipes do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from ...dialects import tile
from ...dialects.affine import Expr
from ...dialects.base import integer, to_ints
from ...dialects.npu import GmType, gm
from ...dialects.open_sizes import certain
from .loops import counts_of


def in_place(kernel: tile.KernelOp) -> frozenset[tuple[int, int]]:
    """Pairs (tensor argument that is read, output) of a kernel such that the output may take the argument's memory."""
    tensors = kernel.body.block.args[len(to_ints(kernel.grid)) :]
    first = len(tensors) - integer(kernel.outputs) - integer(kernel.workspaces)
    accesses = [Accesses.of(v) for v in tensors[: first + integer(kernel.outputs)]]
    found = set()
    for o, output in enumerate(accesses[first:]):
        if output.plain and not output.loads and len(output.stores) == 1:
            (store,) = output.stores
            where = StoreSteps(kernel, store)
            for i, given in enumerate(accesses[:first]):
                if (
                    given.plain
                    and given.same_bytes(output)
                    and all(where.follows(load) for load in given.loads)
                ):
                    found.add((i, o))
    return frozenset(found)


@dataclass
class Accesses:
    """The loads and stores of a tensor; `plain` if nothing else uses it."""

    kind: GmType
    plain: bool = True
    loads: list[tile.LoadOp] = field(default_factory=list)
    stores: list[tile.StoreOp] = field(default_factory=list)

    @staticmethod
    def of(tensor: SSAValue) -> Accesses:
        """Those of a kernel's argument, through views of it."""
        found, pending = Accesses(gm(tensor)), [tensor]
        while pending:
            for use in pending.pop().uses:
                op = use.operation
                if isinstance(op, tile.ViewOp):
                    pending.append(op.result)
                elif isinstance(op, tile.LoadOp):
                    found.loads.append(op)
                elif isinstance(op, tile.StoreOp):
                    found.stores.append(op)
                else:
                    found.plain = False
        return found

    def same_bytes(self, other: Accesses) -> bool:
        """Whether one tensor can hold what the other does."""
        return self.kind.element == other.kind.element and certain(self.kind.bytes, "==", other.kind.bytes)


class StoreSteps:
    """The steps in which a kernel stores: one for each core and round of the loops that it shares with a load."""

    def __init__(self, kernel: tile.KernelOp, store: tile.StoreOp) -> None:
        self.store = store
        self.section, self.loops = surroundings(store)
        self.cores: dict[SSAValue, int] = dict(
            zip(kernel.body.block.args, to_ints(kernel.grid), strict=False)
        )
        self.cores[self.section.body.block.args[0]] = integer(self.section.units)

    def follows(self, load: tile.LoadOp) -> bool:
        """Whether the store of each step comes after its loads, depends on them, and covers what they load."""
        section, loops = surroundings(load)
        if section is not self.section:
            return False
        shared = sum(
            1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(loops, self.loops, strict=False))
        )
        block = loops[shared - 1].body.block if shared else section.body.block
        return (
            self._covers(load, loops, shared)
            and before(load, self.store, block)
            and depends(self.store.source, load, loops[:shared])
        )

    def _covers(self, load: tile.LoadOp, loops: Sequence[ForOp], shared: int) -> bool:
        """Whether what a step loads lies in the part that its stores span, and no two of these parts meet."""
        if any(op.steps is not None for op in (load, self.store)):
            return False
        view = gm(self.store.dest)
        if gm(load.source) != view or not view.distinct:
            return False
        steps = {**self.cores, **counts_of(loops[:shared])}
        inner = counts_of([*loops[shared:], *self.loops[shared:]])
        repeated = {v for v, n in steps.items() if not certain(n, "<=", 1)}
        left = set(repeated)
        for loaded, stored in zip(box_positions(load), box_positions(self.store), strict=True):
            (at, n), (load_at, m) = stored, loaded
            moves = at.only(steps)
            if moves != load_at.only(steps):
                return False
            low, high = _span(at, inner, n)
            first, last = _span(load_at, inner, m)
            if first < low or last > high:
                return False
            reach = high - low
            for weight, count in sorted((abs(c), steps[v]) for v, c in moves.terms if v in repeated):
                if weight < reach:
                    return False
                reach += weight * (count - 1)
            left.difference_update(moves.variables)
        return not left


def box_positions(op: tile.LoadOp | tile.StoreOp) -> list[tuple[Expr, int]]:
    """Where a box lies, along each dimension of its view: (first position, how many)."""
    return list(zip(op.linear(), to_ints(op.sizes), strict=True))


def _span(at: Expr, inner: Mapping[SSAValue, int], size: int) -> tuple[int, int]:
    """[first, end) of `size` positions over all values of the indices in `inner`, of which each takes so many, the
    others being 0."""
    low, high = at.reach({v: inner.get(v, 1) for v in at.variables})
    return low, high + size


def surroundings(op: Operation) -> tuple[tile.SectionOp, list[ForOp]]:
    """The section that an op is in, and the loops around it, outermost first."""
    loops: list[ForOp] = []
    parent = op.parent_op()
    while isinstance(parent, ForOp):
        loops.insert(0, parent)
        parent = parent.parent_op()
    assert isinstance(parent, tile.SectionOp)
    return parent, loops


def before(first: Operation, second: Operation, block: Block) -> bool:
    """Whether one op, or what holds it in `block`, stands before the other."""
    ends = []
    for op in (first, second):
        at: Operation | None = op
        while at is not None and at.parent is not block:
            at = at.parent_op()
        assert at is not None
        ends.append(at)
    return ends[0] is not ends[1] and block.get_operation_index(ends[0]) < block.get_operation_index(ends[1])


def depends(value: SSAValue, load: tile.LoadOp, shared: Sequence[ForOp]) -> bool:
    """Whether a tile is made of what `load` brings in the same round of the loops around both."""
    seen: set[SSAValue] = set()
    pending = [value]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        owner = value.owner
        if owner is load:
            return True
        if isinstance(owner, Block):
            loop = owner.parent_op()
            if (
                isinstance(loop, ForOp)
                and loop not in shared
                and isinstance(value, BlockArgument)
                and value.index
            ):
                pending += _carried(loop, value.index - 1)
        elif isinstance(owner, ForOp) and isinstance(value, OpResult):
            pending += _carried(owner, value.index)
        else:
            pending += owner.operands
    return False


def _carried(loop: ForOp, i: int) -> list[SSAValue]:
    """What a loop's carried value starts as, and what it becomes."""
    last = loop.body.block.last_op
    assert last is not None
    return [loop.iter_args[i], last.operands[i]]
