"""Recomputation of producers: kernels make small rows that they read themselves, so that nothing waits for these.

Before:  %n = graph.fusion %x {norm of one row} ; %y = graph.fusion %n, %w {n @ w}
After:   %y = graph.fusion %x, %w { %n = graph.fusion %x {...} ; %y = graph.fusion %n, %w {...} }

What one core makes in a moment, as the norm of a row or the sum of parts of sums, is a launch of its own, or a stage
behind a barrier. Where all fusions that wait for it can make it themselves, each core of theirs does, if the launches
around take less then, in the groups that npu-join-launches will make of them. The walk follows a block whose fusions
all have schedules, and tries anew where a fusion makes a row of what another one makes: the sum of parts, a residual
and a norm become parts of the next product one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from ...dialects.base import text
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import FusionOp, ReshapeOp, WhileOp, YieldOp
from ...dialects.graph.donation import donated
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.schedules import (
    Schedule,
    all_complete,
    bands_of,
    parts_of_sums,
    stream_of,
    to_schedules,
)
from ..errors import PassError, attempted
from ..forms.fingerprint import structure
from ..fusion.merged import put_in_place
from ..instantiation import has_open_sizes
from ..launch_groups import Groups, LaunchPoint, Neighbour, Together
from ..lower.chains.attention_parts import is_chained
from ..lower.recomputed import RecomputingKernel, RowStages, nested_in, source_of
from ..lower.vector import VectorKernel
from ..order.independent_order import FEW_BYTES, order_independent
from ..order.launch_order import FREE, base, uses_of
from ..reasons import say_apart
from .launches import LaunchPlan, launches_of
from .names import Memo
from .pareto import fixed, starts_group
from .rewrites import Offer, Proposal, Rewrites, Verdict
from .sums_in_parts import put_pieces

if TYPE_CHECKING:
    from .choose import Scheduler

AROUND = 4
"""Fusions before and behind those in question that are looked at: they may be stages of one launch."""

SMALL_BYTES = 1 << 16
"""Rows of more bytes are never made by their readers."""

NO_ROOM = "it does more with it than to load runs of it, or has no room for it on chip"


class _Stage(NamedTuple):
    """A launch among others: what it occupies, how long each of its cores works, whether it can only begin a group, and
    whether no barrier parts it from those before it."""

    point: LaunchPoint
    first: bool
    free: bool


@dataclass(frozen=True)
class _Around:
    """The launches around a fusion, as they are and where its readers make its rows. readers: the numbers of these
    among the latter."""

    before: tuple[_Stage, ...]
    after: tuple[_Stage, ...]
    readers: tuple[int, ...]


@dataclass
class _Facts:
    """What is known of a fusion: the results that are rows, the points of its launches, and the numbers of the inputs
    as which results begin."""

    rows: frozenset[int]
    points: tuple[LaunchPoint, ...]
    begins: frozenset[int] = frozenset()


class Recompute(Rewrites):
    """A fusion of rows inside each fusion that waits for it."""

    LATE = OBEYS_PINS = True

    def __init__(self, scheduler: Scheduler, name: str, considered: bool = True) -> None:
        super().__init__(scheduler, name, considered)
        self.facts: Memo[_Facts] = Memo()
        self.longer: Memo[tuple[float | None]] = Memo()
        self.depths: dict[Operation, int] = {}
        """How many fusions of a block run one after the other up to each."""
        self.now: dict[FusionOp, FusionOp] = {}
        """What stands in the place of fusions that are no more."""

    def finish(self, block: Block) -> None:
        """Tries all fusions of a block, and those before one again whose place its readers take."""
        cut = [op for op in _fusions(block) if _may_be_in_pieces(op)]
        for op in cut:
            attempted("the sums in parts of a fusion", partial(put_pieces, op, self.machine), ())
        if cut and self.scheduler.join:
            order_independent(block, FEW_BYTES)
        self.depths = {}
        for op in _fusions(block):
            self.depths[op] = self._depth(op)
        self.now.clear()
        pending = list(reversed(_fusions(block)))
        while pending:
            op = pending.pop()
            while op in self.now:
                op = self.now[op]
            if op.parent is not block:
                continue
            self.depths[op] = self._depth(op)
            makers = dict.fromkeys(m for v in op.inputs if isinstance(m := base(v).owner, FusionOp))
            if self.rewritten(op, {}) is not None:
                pending += [m for m in makers if m.parent is block]

    # -- what may be inside what ---------------------------------------------------------------------------------

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        if not _is_plain(fusion) or not self._facts(fusion).rows:
            return None
        readers = self._readers(fusion)
        if not readers or any(self._is_overwritten(v) for v in fusion.inputs):
            return None
        around = self._around(fusion, list(readers))
        fusions = [fusion, *readers]
        known = [structure(each) for each in fusions]
        wiring = tuple(tuple(_number(v, fusion) for v in reader.inputs) for reader in readers)
        return Offer(
            fusions,
            (tuple(key for key, _ in known), wiring, around),
            [details for _, details in known],
            lambda: self._inside(fusion, list(readers)),
        )

    def _inside(self, fusion: FusionOp, readers: Sequence[FusionOp]) -> Proposal:
        made = [with_rows(reader, fusion) for reader in readers]

        def replace() -> list[FusionOp]:
            for reader, one in zip(readers, made, strict=True):
                put_in_place(one, (reader,), reader.results)
                self.depths[one], self.now[reader] = self._depth(one), one
            if not any(True for result in fusion.results for _ in uses_of(result, (ReshapeOp,))):
                for result in fusion.results:
                    _drop_shapes(result)
                fusion.detach()
                fusion.erase()
            return made

        return Proposal(made, replace)

    def _readers(self, fusion: FusionOp) -> dict[FusionOp, None] | None:
        """The fusions that wait for one and for nothing that is made later; None where something else of the block
        waits for it, or needs a result that is no row."""
        found: dict[FusionOp, None] = {}
        rows = self._facts(fusion).rows
        for result in fusion.results:
            for use in uses_of(result, (ReshapeOp,)):
                op = use.operation
                if op.parent is not fusion.parent or not isinstance(op, FusionOp):
                    if op.parent is fusion.parent and op.next_op is None:
                        continue  # what the block gives
                    return None
                if self._depth(op) > self.depths[fusion] + 1:
                    continue
                if not _is_plain(op) or result.index not in rows or use.index in self._facts(op).begins:
                    return None
                found[op] = None
        return found

    def _is_overwritten(self, value: SSAValue) -> bool:
        """Whether a kernel writes over a tensor, or may: over an argument that is donated, or that a loop carries and
        gives another value. It would be copied before, or what comes after it would not take its place."""
        tensor = base(value)
        for use in uses_of(tensor, (ReshapeOp,)):
            op = use.operation
            if isinstance(op, FusionOp) and not op.on_host and use.index in self._facts(op).begins:
                return True
        if not isinstance(tensor, BlockArgument):
            return False
        around, last = tensor.block.parent_op(), tensor.block.last_op
        if isinstance(around, FuncOp):
            return donated(around)[tensor.index]
        if not isinstance(around, WhileOp) or last is None or tensor.block is not around.body.block:
            return False
        return tensor.index >= len(last.operands) or last.operands[tensor.index] is not tensor

    def _depth(self, op: FusionOp) -> int:
        makers = (base(v).owner for v in op.inputs)
        return 1 + max((self.depths.get(m, 0) for m in makers if isinstance(m, FusionOp)), default=0)

    def _facts(self, fusion: FusionOp) -> _Facts:
        key, details = structure(fusion)
        found = self.facts.find(key, details)
        if found is None:
            found = self.facts.keep(key, details, self._found(fusion))
        return found

    def _found(self, fusion: FusionOp) -> _Facts:
        schedules = to_schedules(fusion.schedule)
        try:
            plans = launches_of(fusion, self.machine)
        except PassError:
            plans = []
        begins = frozenset(fusion.inputs.index(v) for plan in plans for v in plan.begins)
        if len(plans) != len(schedules):
            return _Facts(frozenset(), fixed(schedules[0], text(fusion.kind), self.machine).points, begins)
        points = tuple(self._point(fusion, plan, s) for plan, s in zip(plans, schedules, strict=True))
        *_, last = nested_in(fusion) or [fusion]
        rows: frozenset[int] = frozenset()
        if len(plans) == 1 and all(_bytes(r) <= SMALL_BYTES for r in fusion.results):
            kernel = plans[0].kernel(plans[0].stem, schedules[0])
            inner = kernel.reader if isinstance(kernel, RecomputingKernel) else kernel
            if type(inner) is VectorKernel and not plans[0].begins:
                rows = frozenset(RowStages(last, self.machine).along)
        return _Facts(rows, points, begins)

    def _point(self, fusion: FusionOp, plan: LaunchPlan, schedule: Schedule) -> LaunchPoint:
        """What a launch occupies, and how long its cores work where they are vector cores alone."""
        kernel = plan.kernel(plan.stem, schedule)
        occupancy = kernel.occupancy(schedule)
        if "cube" in occupancy.kinds:
            return LaunchPoint(occupancy)
        return LaunchPoint(
            occupancy, max(kernel.bound(schedule) - occupancy.launch_microseconds(self.machine), 0.0)
        )

    # -- what it takes -------------------------------------------------------------------------------------------

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        around = self._around(offer.fusions[0], offer.fusions[1:])
        after, longest = list(around.after), 0.0
        for number, fusion in zip(around.readers, proposal.fusions, strict=True):
            longer = self._longer(fusion)
            if longer is None:
                return Verdict(False, NO_ROOM)
            stage, longest = after[number], max(longest, longer)
            after[number] = stage._replace(
                point=stage.point._replace(microseconds=max(stage.point.microseconds + longer, 0.0))
            )
        before, made = self._microseconds(around.before), self._microseconds(after)
        said = (
            f"its cores would work {longest:.1f} us longer: the launches around take {made:.1f} us then, and "
        )
        return Verdict(made < before, f"{said}{before:.1f} as they are")

    def _longer(self, fusion: FusionOp) -> float | None:
        """By how many microseconds the cores of a fusion work longer that makes rows itself; None where it cannot."""
        key, details = structure(fusion)
        found = self.longer.find(key, details)
        if found is None:
            (schedule,) = to_schedules(fusion.schedule)
            (plan,) = launches_of(fusion, self.machine)
            kernel, longer = plan.kernel(plan.stem, schedule), None
            assert isinstance(kernel, RecomputingKernel)
            with suppress(PassError, KeyError):  # what the machine cannot run is for npu-check to say
                longer = kernel.longer(schedule)
            found = self.longer.keep(key, details, (longer,))
        return found[0]

    def _microseconds(self, stages: Sequence[_Stage]) -> float:
        join = self.scheduler.join
        neighbours = [Neighbour((s.point,), s.first or not join, s.free and join) for s in stages]
        return Groups(self.machine, neighbours).least()[0]

    def _around(self, fusion: FusionOp, readers: Sequence[FusionOp]) -> _Around:
        """The launches around a fusion, before and after its readers make its rows."""
        stays = any(use.operation not in readers for r in fusion.results for use in uses_of(r, (ReshapeOp,)))
        before, after, numbers = _Line(), _Line(), list[int]()
        parted = False
        for op, first in _neighbours(fusion, readers):
            points = self._facts(op).points
            reads, writes = frozenset(map(base, op.inputs)), frozenset(op.results)
            before.add(points, first, reads, writes)
            if op is fusion and not stays:
                parted = first
                continue
            if op in readers:
                numbers.append(len(after.stages))
                reads = (reads - set(fusion.results)) | frozenset(map(base, fusion.inputs))
            after.add(points, first or parted, reads, writes)
            parted = False
        return _Around(tuple(before.stages), tuple(after.stages), tuple(numbers))

    def refused(self, offer: Offer, why: str) -> None:
        maker, *readers = offer.fusions
        for reader in readers:
            numbers = sorted({n for v in reader.inputs if (n := _number(v, maker)) >= 0})
            say_apart(maker, reader, why, numbers, "not recomputed")


@dataclass
class _Line:
    """Launches in order."""

    stages: list[_Stage] = field(default_factory=list)
    together: Together[SSAValue] = field(default_factory=Together[SSAValue])

    def add(
        self,
        points: Sequence[LaunchPoint],
        first: bool,
        reads: frozenset[SSAValue],
        writes: frozenset[SSAValue],
    ) -> None:
        """The launches of one more fusion. first: whether something stands before it."""
        if first:
            self.together.clear()
        free = self.together.joined_by(reads, writes)
        self.stages += [_Stage(p, first and not i, free and not i) for i, p in enumerate(points)]


def with_rows(reader: FusionOp, maker: FusionOp) -> FusionOp:
    """A fusion like a reader, which makes what it reads of another one itself; in no block yet."""
    own = [v for v in reader.inputs if source_of(v).owner is not maker]
    inputs = list(dict.fromkeys((*maker.inputs, *own)))
    block = Block(arg_types=[v.type for v in inputs])
    known: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))

    def shaped(value: SSAValue) -> SSAValue:
        if value not in known:
            assert isinstance(value.owner, ReshapeOp)
            copy = value.owner.clone({value.owner.x: shaped(value.owner.x)})
            block.add_op(copy)
            known[value] = copy.result
        return known[value]

    for fusion in (maker, reader):
        given = [shaped(v) for v in fusion.inputs]
        if nested_in(fusion):
            inside: dict[SSAValue, SSAValue] = dict(zip(fusion.body.block.args, given, strict=True))
            for op in fusion.body.block.ops:
                if isinstance(op, YieldOp):
                    known.update(zip(fusion.results, (inside[v] for v in op.values), strict=True))
                else:
                    block.add_op(op.clone(inside))
        else:
            copy = fusion.clone(dict(zip(fusion.inputs, given, strict=True)))
            copy.schedule = None
            block.add_op(copy)
            known.update(zip(fusion.results, copy.results, strict=True))
    block.add_op(YieldOp.create(operands=[known[r] for r in reader.results]))
    return FusionOp.create(
        operands=inputs,
        result_types=list(reader.result_types),
        properties=dict(reader.properties),
        attributes=dict(reader.attributes),
        regions=[Region(block)],
        location=reader.location,
    )


def _fusions(block: Block) -> list[FusionOp]:
    """The fusions of a block that become kernels."""
    return [op for op in block.ops if isinstance(op, FusionOp) and not op.on_host]


def _is_plain(fusion: FusionOp) -> bool:
    """Whether a fusion is one launch, whose sizes are known."""
    schedules = to_schedules(fusion.schedule)
    if fusion.on_host or len(schedules) != 1 or not all_complete(schedules) or has_open_sizes(fusion):
        return False
    return parts_of_sums(schedules) is None and (bands_of(schedules) or 1) == 1


def _may_be_in_pieces(fusion: FusionOp) -> bool:
    """Whether one of the pieces of a fusion whose sums are cut may make a row that another fusion reads, or read one
    that another fusion makes."""
    schedules = to_schedules(fusion.schedule)
    if parts_of_sums(schedules) is None or stream_of(schedules) is not None or is_chained(fusion):
        return False
    if not all_complete(schedules) or has_open_sizes(fusion):
        return False
    uses = (
        use.operation for r in fusion.results if _bytes(r) <= SMALL_BYTES for use in uses_of(r, (ReshapeOp,))
    )
    makers = (base(v).owner for v in fusion.inputs if _bytes(v) <= SMALL_BYTES)
    return any(isinstance(op, FusionOp) for op in (*uses, *makers))


def _bytes(value: SSAValue) -> int:
    return size(shape_of(value)) * itemsize(element_of(value))


def _number(value: SSAValue, maker: FusionOp) -> int:
    """Which result of a fusion a value is, or another shape of; -1 for none."""
    found = source_of(value)
    return found.index if isinstance(found, OpResult) and found.op is maker else -1


def _neighbours(fusion: FusionOp, readers: Sequence[FusionOp]) -> Iterator[tuple[FusionOp, bool]]:
    """The fusions from some before one to some behind the last one of its readers, and whether something stands between
    each and the one before it."""
    first, left, op = fusion, AROUND, fusion.prev_op
    while op is not None and left:
        if isinstance(op, FusionOp) and not op.on_host:
            first, left = op, left - 1
        op = op.prev_op
    waiting, parted, left, op = set(readers), False, AROUND, first
    while op is not None and (waiting or left):
        if isinstance(op, FusionOp) and not op.on_host:
            yield op, parted or starts_group(op)
            left -= not waiting
            waiting.discard(op)
            parted = False
        elif not isinstance(op, FREE):
            parted = True
        op = op.next_op


def _drop_shapes(value: SSAValue) -> None:
    for use in list(value.uses):
        op = use.operation
        assert isinstance(op, ReshapeOp)
        _drop_shapes(op.result)
        op.detach()
        op.erase()
