"""Brings fusions or launches that need nothing of each other side by side, so that one barrier parts them from what
uses them.

Before:  %q = graph.fusion %x ... ; %r = graph.fusion %q ... ; %k = graph.fusion %x ... ; %s = graph.fusion %k ...
After:   %q = graph.fusion %x ... ; %k = graph.fusion %x ... ; %r = graph.fusion %q ... ; %s = graph.fusion %k ...

Launches that need nothing of each other run in one launch without a barrier between them (npu-join-launches). The walk
is greedy: the first fusion that is left opens a set, and those behind it that need nothing of the set are put into it,
unless more bytes would be live then than the order of the program needs at its peak. Launches are ordered once more, as
a fusion may be several: products whose sums are in parts stand before all that add these up.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import to_ints
from ...dialects.graph import FusionOp
from ...dialects.tile import LaunchOp
from .launch_order import FREE, base, bytes_of, uses_of
from .least_peak import OrderProblem, SharedBytes

FARTHEST = 64
"""Fusions that are looked at for a set, from the first one that is left: so the time is linear in their number."""

FEW_BYTES = 1 << 20
"""Bytes that do not matter: rows of a token are a hundredth of that."""


def order_independent(block: Block, few: int = 0) -> None:
    """Reorders the fusions, or launches, of a block, between all ops that are none for the device. few: bytes that may
    be live in any case."""
    segment: list[Operation] = []
    for op in [*block.ops]:
        if isinstance(op, LaunchOp) or (isinstance(op, FusionOp) and not op.on_host):
            segment.append(op)
        elif not isinstance(op, FREE):
            _reorder(segment, few)
            segment = []
    _reorder(segment, few)


def _reorder(segment: Sequence[Operation], few: int) -> None:
    if len(segment) < 3:
        return
    found = _Segment(segment).order(few)
    if found == list(range(len(segment))):
        return
    last = segment[-1].next_op
    block = segment[0].parent
    assert block is not None and last is not None
    views = _views_among(segment)
    waiting = set(views)

    def put(op: Operation) -> None:
        """Puts an op behind those that are in place, and before it what only names memory and it uses."""
        for value in op.operands:
            if isinstance(value.owner, Operation) and value.owner in waiting:
                put(value.owner)
        waiting.discard(op)
        op.detach()
        block.insert_op_before(op, last)

    for op in (*(segment[i] for i in found), *views):
        if op in waiting or isinstance(op, FusionOp | LaunchOp):
            put(op)


def _views_among(segment: Sequence[Operation]) -> list[Operation]:
    """What only names memory between the first and the last of some fusions."""
    found: list[Operation] = []
    op: Operation | None = segment[0]
    while op is not None and op is not segment[-1].next_op:
        if isinstance(op, FREE):
            found.append(op)
        op = op.next_op
    return found


class _Segment:
    """Fusions or launches one behind the other: what each needs of the others, the bytes that it makes, and those that
    are live while it runs in the order of the program. An update needs what reads before it what it overwrites."""

    def __init__(self, ops: Sequence[Operation]) -> None:
        own = set(ops)
        readers: dict[SSAValue, list[int]] = {}
        users: dict[SSAValue, list[int]] = {r: [i] for i, op in enumerate(ops) for r in op.results}
        self.needs: list[set[int]] = []
        for i, op in enumerate(ops):
            read = dict.fromkeys(map(base, op.operands))
            inside = [value for value in read if value in users]
            needs = {users[value][0] for value in inside}
            for value in _overwritten(op):
                needs.update(readers.get(value, ()))
            self.needs.append(needs)
            for value in inside:
                users[value].append(i)
            for value in read:
                readers.setdefault(value, []).append(i)
        self.made = [sum(map(_bytes, op.results)) for op in ops]
        tensors = [
            SharedBytes(_bytes(value), tuple(used), kept=any(use.operation not in own for use in uses_of(value)))
            for value, used in users.items()
        ]
        problem = OrderProblem([sorted(needs) for needs in self.needs], [0] * len(ops), tensors)
        self.live = problem.live(range(len(ops)))

    def order(self, few: int) -> list[int]:
        """The numbers of the fusions in their new order. few: bytes that may be live in any case."""
        waiting = list(range(len(self.needs)))
        undone, live, most = set(waiting), [*self.live], max(*self.live, few)
        found: list[int] = []
        while waiting:
            together, passed = waiting[:1], []
            for i in waiting[1:FARTHEST]:
                # what is done early is live while all those run that it is brought before
                ready = self.needs[i].isdisjoint(undone)
                if ready and all(live[j] + self.made[i] <= most for j in passed):
                    for j in passed:
                        live[j] += self.made[i]
                    together.append(i)
                else:
                    passed.append(i)
            found += together
            undone -= {*together}
            waiting = [*passed, *waiting[FARTHEST:]]
        return found


def _overwritten(op: Operation) -> list[SSAValue]:
    """What an update begins as."""
    return [base(op.arguments[i]) for i in to_ints(op.inits) if i >= 0] if isinstance(op, LaunchOp) else []


def _bytes(value: SSAValue) -> int:
    return bytes_of(value.type) if isinstance(value.type, TensorType) else 0
