"""Takes a fusion apart whose kernel would do for many tensors, one after the other, what many kernels do side by side.

Before:  %n = graph.fusion %a, %b ... {sum(a a) + sum(b b)}, on one core: all axes are reduced
After:   %s = graph.fusion %a ... {sum(a a)} ; %t = graph.fusion %b ... {sum(b b)}
         %n = graph.fusion %s, %t ... {s + t}

Members that walk the whole domain form *strands*: those that are joined by values, or by a tensor that both load. What
is made of several strands and is small, as a sum over all of them, is a *joint*. Strands that need a joint are of
the next level. Strands of one level need nothing of each other, so no barrier parts their launches, and equal ones are
one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import ArgReduceOp, ElementwiseOp, FusionOp, ReduceOp
from ...dialects.graph.control import axes_of
from ...dialects.graph.interface import shape_of
from ...dialects.open_sizes import any_open
from ...machine import Machine
from ..forms.fingerprint import structure
from ..fusion.serial import is_small, on_few_cores
from ..instantiation import has_open_sizes
from .oversized import FusionParts, members_of
from .rewrites import Offer, Proposal, Rewrites


class StrandsApart(Rewrites):
    """The strands and joints of a fusion, each a kernel of its own."""

    EARLY = True
    WARM = False

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        if not self.scheduler.join or fusion.schedule is not None or has_open_sizes(fusion):
            return None
        levels = levels_of(fusion, self.machine)
        return Offer([fusion], *structure(fusion), lambda: _apart(fusion, levels)) if levels else None


def _apart(fusion: FusionOp, levels: Sequence[Level]) -> Proposal:
    """A fusion in its strands and joints."""
    parts = FusionParts(fusion, [ops for level in levels for ops in (*level.strands, level.joints) if ops])
    free: set[int] = set()
    at = 0
    for level in levels:
        free.update(range(at + 1, at + len(level.strands)))
        at += len(level.strands) + bool(level.joints)

    def replace() -> list[FusionOp]:
        parts.replace()
        return parts.fusions

    return Proposal(parts.fusions, replace, free)


@dataclass
class Level:
    """Strands of a fusion that need nothing of each other, and the joints behind them."""

    strands: list[set[Operation]] = field(default_factory=list)
    joints: set[Operation] = field(default_factory=set)


def levels_of(fusion: FusionOp, machine: Machine) -> list[Level]:
    """The levels of a fusion whose rows occupy less than half of the cores; none where it has no two strands, or is no
    kernel of elementwise ops and reductions alone."""
    domain, members = to_ints(fusion.domain), members_of(fusion)
    if any_open(domain) or text(fusion.kind) != "vector":
        return []
    if not all(isinstance(op, ElementwiseOp | ReduceOp | ArgReduceOp) for op in members):
        return []
    reduced = {a for op in members if isinstance(op, ReduceOp | ArgReduceOp) for a in _reduced(op)}
    if not on_few_cores(domain, reduced, machine):
        return []
    found = _Strands(domain, members).levels()
    return found if max(len(level.strands) for level in found) > 1 else []


def _reduced(op: ReduceOp | ArgReduceOp) -> Iterator[int]:
    axes = axes_of(op) or ()
    dims = to_ints(op.dims) if isinstance(op, ReduceOp) else [int(op.dim.value.data)]
    return (axes[d] for d in dims if axes[d] >= 0)


class _Strands:
    """Finds the strands and joints among the members of a fusion, in one walk over them."""

    def __init__(self, domain: tuple[int, ...], members: list[Operation]):
        self.domain, self.members = domain, members
        self.known = set(members)
        self.level: dict[Operation, int] = {}
        self.joints: set[Operation] = set()
        self.parent: dict[Operation, Operation] = {}
        self.loading: dict[tuple[int, SSAValue], Operation] = {}
        """By level and tensor, an op that loads it."""

    def levels(self) -> list[Level]:
        for op in self.members:
            self._add(op)
        count = max(self.level.values(), default=-1) + 1
        found = [Level() for _ in range(count)]
        strands: dict[Operation, set[Operation]] = {}
        for op in self.members:
            level = found[self.level[op]]
            if op in self.joints:
                level.joints.add(op)
            elif (root := self._root(op)) in strands:
                strands[root].add(op)
            else:
                level.strands.append(strands.setdefault(root, {op}))
        return found

    def _add(self, op: Operation) -> None:
        makers, tensors = self._read(op)
        wide = self._wide(op)
        levels = [self.level[m] + (wide and m in self.joints) for m in makers]
        level = self.level[op] = max(levels, default=0)
        own = {self._root(m) for m in makers if m not in self.joints and self.level[m] == level}
        behind = any(m in self.joints or self.level[m] != level for m in makers)
        if not wide and (len(own) != 1 or behind):
            self.joints.add(op)
            return
        self.parent[op] = op
        if wide:
            for tensor in tensors:
                own.add(self._root(self.loading.setdefault((level, tensor), op)))
        for root in own:
            self.parent[root] = op

    def _read(self, op: Operation) -> tuple[list[Operation], list[SSAValue]]:
        """The members that make what an op reads, and the large tensors that it loads, seen through layout ops."""
        makers: dict[Operation, None] = {}
        tensors: dict[SSAValue, None] = {}
        pending = list(op.operands)
        while pending:
            value = pending.pop()
            if isinstance(value.owner, Block):
                if not is_small(size(shape_of(value)), self.domain):
                    tensors[value] = None
            elif value.owner in self.known:
                makers[value.owner] = None
            else:
                pending += value.owner.operands
        return list(makers), list(tensors)

    def _wide(self, op: Operation) -> bool:
        return not is_small(size([self.domain[a] for a in axes_of(op) or () if a >= 0]), self.domain)

    def _root(self, op: Operation) -> Operation:
        while self.parent[op] is not op:
            self.parent[op] = self.parent[self.parent[op]]
            op = self.parent[op]
        return op
