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

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue, Use

from ...dialects.base import text
from ...dialects.graph import FusionOp, ReshapeOp, WhileOp
from ...dialects.graph.donation import donated
from ...dialects.graph.schedules import all_complete, bands_of, parts_of_sums, stream_of, to_schedules
from ...dialects.open_sizes import choosing
from ..errors import PassError, attempted
from ..forms.fingerprint import structure
from ..fusion.merged import put_in_place
from ..instantiation import has_open_sizes
from ..launch_groups import Groups, LaunchPoint, Neighbour, Together
from ..lower.chains.attention_parts import is_chained
from ..lower.recomputed import RecomputingKernel, RowStages, source_of, with_rows
from ..lower.vector import VectorKernel
from ..order.independent_order import FEW_BYTES, order_independent
from ..order.launch_order import FREE, base, bytes_of, uses_of
from ..reasons import say_apart, share_reasons
from .launches import launches_of
from .names import Memo
from .pareto import fixed, starts_group
from .rewrites import Offer, Proposal, Rewrites, Verdict, replaced
from .sums_in_parts import put_pieces

if TYPE_CHECKING:
    from .choose import Scheduler

AROUND = 4
"""Fusions before and behind those in question that are looked at: they may be stages of one launch."""

SMALL_BYTES = 1 << 16
"""Rows of more bytes are never made by their readers."""

NO_ROOM = "it does more with it than to load runs of it, or has no room for it on chip"


@dataclass(frozen=True)
class _Facts:
    """What is known of a fusion: the results that are rows, and the numbers of the inputs as which results begin."""

    rows: frozenset[int]
    begins: frozenset[int]


class Recompute(Rewrites):
    """A fusion of rows inside each fusion that waits for it."""

    LATE = OBEYS_PINS = True

    def __init__(self, scheduler: Scheduler, name: str, considered: bool = True) -> None:
        super().__init__(scheduler, name, considered)
        self.facts: Memo[_Facts] = Memo()
        self.points: Memo[tuple[LaunchPoint, ...]] = Memo()
        self.longer: Memo[float | None] = Memo()
        self.depths: dict[Operation, int] = {}
        """How many fusions of a block run one after the other up to each."""
        self.now: dict[FusionOp, FusionOp] = {}
        """What stands in the place of fusions that are no more."""

    def finish(self, block: Block) -> None:
        """Tries all fusions of a block, and those before one again whose place its readers take."""
        cut = [op for op in _fusions(block) if _is_in_parts(op)]
        for op in cut if any(map(_touches_rows, cut)) else ():
            attempted("the sums in parts of a fusion", partial(put_pieces, op, self.machine), ())
        if any(op.parent is None for op in cut) and self.scheduler.join:
            order_independent(block, FEW_BYTES)
        with choosing():  # of fusions with open sizes it is only judged how long they take
            self._walk(block)

    def _walk(self, block: Block) -> None:
        """Tries the fusions of a block, the first one first."""
        self.now, self.depths = {}, {}
        pending = _fusions(block)[::-1]
        for op in reversed(pending):
            self.depths[op] = self._depth(op)
        while pending:
            op = pending.pop()
            while op in self.now:
                op = self.now[op]
            if op.parent is not block:
                continue
            self.depths[op] = self._depth(op)
            makers = dict.fromkeys(m for v in op.inputs if isinstance(m := base(v).owner, FusionOp))
            if replaced([self], op, {}) is not None:
                pending += [m for m in makers if m.parent is block]

    # -- what may be inside what ---------------------------------------------------------------------------------

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        readers = self._readers(fusion) if _is_plain(fusion) and self._facts(fusion).rows else None
        if not readers or any(self._is_overwritten(v) for v in fusion.inputs):
            return None
        fusions = [fusion, *readers]
        known = [structure(each) for each in fusions]
        wiring = tuple(tuple(_number(v, fusion) for v in reader.inputs) for reader in readers)
        key = tuple(key for key, _ in known), wiring, *self._around(fusion, readers)
        return Offer(fusions, key, [details for _, details in known], lambda: self._inside(fusion, readers))

    def _inside(self, fusion: FusionOp, readers: Sequence[FusionOp]) -> Proposal:
        made = [with_rows(reader, fusion) for reader in readers]

        def replace() -> list[FusionOp]:
            for reader, one in zip(readers, made, strict=True):
                put_in_place(one, (reader,), reader.results)
                self.depths[one], self.now[reader] = self._depth(one), one
            share_reasons(fusion, made)
            if not any(map(_uses, fusion.results)):
                for result in fusion.results:
                    _drop_shapes(result)
                fusion.detach()
                fusion.erase()
            return made

        return Proposal(made, replace)

    def _readers(self, fusion: FusionOp) -> list[FusionOp] | None:
        """The fusions that wait for one and for nothing that is made later; None where something else of the block
        waits for it, or needs a result that is no row."""
        found: dict[FusionOp, None] = {}
        for result in fusion.results:
            for use in _uses(result):
                op = use.operation
                if op.parent is fusion.parent and op.next_op is None:
                    continue  # what the block gives
                if op.parent is not fusion.parent or not isinstance(op, FusionOp):
                    return None
                if self._depth(op) > self.depths[fusion] + 1:
                    continue
                is_row = result.index in self._facts(fusion).rows
                if not is_row or not _is_plain(op) or use.index in self._facts(op).begins:
                    return None
                found[op] = None
        return list(found)

    def _is_overwritten(self, value: SSAValue) -> bool:
        """Whether a kernel writes over a tensor, or may: over an argument that is donated, or that a loop carries and
        gives another value. It would be copied before, or what comes after it would not take its place."""
        tensor = base(value)
        for use in _uses(tensor):
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
        return self.facts.known(key, details, lambda: self._found(fusion))

    def _found(self, fusion: FusionOp) -> _Facts:
        (plan, *others), rows = launches_of(fusion, self.machine), frozenset[int]()
        begins = frozenset(fusion.inputs.index(v) for each in (plan, *others) for v in each.begins)
        if (
            _is_plain(fusion)
            and not others
            and not begins
            and all(bytes_of(r.type) <= SMALL_BYTES for r in fusion.results)
        ):
            kernel = plan.kernel(plan.stem, *to_schedules(fusion.schedule))
            last = kernel.reader if isinstance(kernel, RecomputingKernel) else kernel
            rows = frozenset(RowStages(last.fusion, self.machine).along if type(last) is VectorKernel else ())
        return _Facts(rows, begins)

    def _points(self, fusion: FusionOp) -> tuple[LaunchPoint, ...]:
        """What the launches of a fusion occupy, and how long their cores work where these are vector cores alone."""
        key, details = structure(fusion)
        return self.points.known(key, details, lambda: tuple(self._found_points(fusion)))

    def _found_points(self, fusion: FusionOp) -> Iterator[LaunchPoint]:
        schedules, plans = to_schedules(fusion.schedule), launches_of(fusion, self.machine)
        if len(plans) != len(schedules):
            yield from fixed(schedules[0], text(fusion.kind), self.machine).points
            return
        for plan, schedule in zip(plans, schedules, strict=True):
            kernel, us = plan.kernel(plan.stem, schedule), 0.0
            occupancy = kernel.occupancy(schedule)
            if "cube" not in occupancy.kinds:
                us = max(kernel.bound(schedule) - occupancy.launch_microseconds(self.machine), 0.0)
            yield LaunchPoint(occupancy, us)

    # -- what it takes -------------------------------------------------------------------------------------------

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        fusion, *readers = offer.fusions
        before, after = self._around(fusion, readers)
        places = [i for i, (_, reads) in enumerate(after) if reads]
        longer = [self._longer(each) for each in proposal.fusions]
        stages = [stage for stage, _ in after]
        for place, us in zip(places, longer, strict=True):
            if us is None:
                return Verdict(False, NO_ROOM)
            (point,) = stages[place].points
            stages[place] = stages[place]._replace(
                points=(point._replace(microseconds=point.microseconds + us),)
            )
        now, made = (Groups(self.machine, each).least()[0] for each in ([s for s, _ in before], stages))
        more = max(us or 0.0 for us in longer)
        said = f"its cores would work {more:.1f} us longer: the launches around take {made:.1f} us then, and "
        return Verdict(self.pays(made, now), f"{said}{now:.1f} as they are", made, now)

    def _longer(self, fusion: FusionOp) -> float | None:
        """By how many microseconds the cores of a fusion work longer that makes rows itself; None where it cannot."""
        key, details = structure(fusion)
        return self.longer.known(key, details, lambda: self._found_longer(fusion))

    def _found_longer(self, fusion: FusionOp) -> float | None:
        (schedule,), (plan,) = to_schedules(fusion.schedule), launches_of(fusion, self.machine)
        kernel = plan.kernel(plan.stem, schedule)
        assert isinstance(kernel, RecomputingKernel)
        with suppress(PassError, KeyError):  # what the machine cannot run is for npu-check to say
            return kernel.longer(schedule)
        return None

    def _around(self, fusion: FusionOp, readers: Sequence[FusionOp]) -> tuple[_Line, _Line]:
        """The launches from some before a fusion to some behind the last one of its readers, and whether each is one of
        these: as they are, and where the readers make its rows, which takes them longer."""
        stays = any(use.operation not in readers for result in fusion.results for use in _uses(result))
        line: list[tuple[FusionOp, bool]] = []
        waiting, left, parted = set(readers), AROUND, False
        op: Operation | None = _first_before(fusion)
        while op is not None and (waiting or left):
            if isinstance(op, FusionOp) and not op.on_host:
                line.append((op, parted or starts_group(op)))
                left, parted = left - (not waiting), False
                waiting.discard(op)
            elif not isinstance(op, FREE):
                parted = True
            op = op.next_op
        return self._line(line), self._line(line, readers, fusion, stays)

    def _line(
        self,
        fusions: Sequence[tuple[FusionOp, bool]],
        readers: Collection[FusionOp] = (),
        maker: FusionOp | None = None,
        stays: bool = True,
    ) -> _Line:
        """Fusions as neighbours, each with whether something stands before it. readers: those that make what they read
        of one, which may stay."""
        together, found, parted = Together[SSAValue](), list[tuple[Neighbour, bool]](), False
        for op, first in fusions:
            if op is maker and not stays:
                parted = first
                continue
            reads = set(map(base, op.inputs))
            if maker is not None and op in readers:
                reads = (reads - set(maker.results)) | set(map(base, maker.inputs))
            if first or parted or not self.scheduler.join:
                together.clear()
            free = together.joined_by(reads, set(op.results))
            for i, point in enumerate(self._points(op)):
                alone = not self.scheduler.join or (not i and (first or parted))
                found.append((Neighbour((point,), alone, free and not i), op in readers))
            parted = False
        return tuple(found)

    def refused(self, offer: Offer, why: str) -> None:
        maker, *readers = offer.fusions
        for reader in readers:
            numbers = sorted({_number(v, maker) for v in reader.inputs} - {-1})
            say_apart(maker, reader, why, numbers, "not recomputed")


_Line = tuple[tuple[Neighbour, bool], ...]


def _fusions(block: Block) -> list[FusionOp]:
    """The fusions of a block that become kernels."""
    return [op for op in block.ops if isinstance(op, FusionOp) and not op.on_host]


def _uses(value: SSAValue) -> list[Use]:
    """The uses of a value, and of it in other shapes."""
    return list(uses_of(value, (ReshapeOp,)))


def _is_plain(fusion: FusionOp) -> bool:
    """Whether a fusion is one launch, whose sizes are known."""
    schedules = to_schedules(fusion.schedule)
    if fusion.on_host or len(schedules) != 1 or not all_complete(schedules) or has_open_sizes(fusion):
        return False
    return parts_of_sums(schedules) is None and (bands_of(schedules) or 1) == 1


def _is_in_parts(fusion: FusionOp) -> bool:
    """Whether the sums of a product are cut, all alike, so that its pieces are fusions without open sizes."""
    schedules = to_schedules(fusion.schedule)
    if parts_of_sums(schedules) is None or stream_of(schedules) is not None or is_chained(fusion):
        return False
    return all_complete(schedules) and not has_open_sizes(fusion)


def _touches_rows(fusion: FusionOp) -> bool:
    """Whether a piece of a fusion may make a row that another fusion reads, or read one that another fusion makes."""
    uses = (use.operation for r in fusion.results if bytes_of(r.type) <= SMALL_BYTES for use in _uses(r))
    makers = (base(v).owner for v in fusion.inputs if bytes_of(v.type) <= SMALL_BYTES)
    return any(isinstance(op, FusionOp) for op in (*uses, *makers))


def _number(value: SSAValue, maker: FusionOp) -> int:
    """Which result of a fusion a value is, or another shape of; -1 for none."""
    found = source_of(value)
    return found.index if isinstance(found, OpResult) and found.op is maker else -1


def _first_before(fusion: FusionOp) -> FusionOp:
    """The first of some fusions before one."""
    first, left, op = fusion, AROUND, fusion.prev_op
    while op is not None and left:
        if isinstance(op, FusionOp) and not op.on_host:
            first, left = op, left - 1
        op = op.prev_op
    return first


def _drop_shapes(value: SSAValue) -> None:
    for use in list(value.uses):
        op = use.operation
        assert isinstance(op, ReshapeOp)
        _drop_shapes(op.result)
        op.detach()
        op.erase()
