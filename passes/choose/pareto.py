"""What is known of the schedules of a launch, and which of them is best among its neighbours.

A launch by itself is best on few cores where more of them would start later than they end. As a stage of a group of
launches it pays a barrier over all cores of the group, however few it uses, so more cores are better. `ParetoFront` has
the schedules of a launch between which that decides, and `Runs.choose` decides for all launches of a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf

from xdsl.ir import SSAValue

from ...dialects.dtypes import size
from ...dialects.graph import (
    AttentionSchedule,
    CubeSchedule,
    FusionOp,
    RowAttentionSchedule,
    ToHostOp,
    VectorSchedule,
)
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.occupancy import Occupancy
from ...machine import Machine
from ..errors import PassError
from ..launch_groups import GroupMember, Groups, LaunchPoint, Neighbour, Together
from ..lower.scheduled import BarrierIdle, ScheduledKernel, is_made
from ..order.launch_order import base

NEAR = 1.5
"""What takes more than so many times as long alone is not better among neighbours."""

MOST_OTHERS = 4
"""Of so many other ways it is asked whether they are."""

AROUND = 8
"""Launches of so many fusions on both sides are neighbours: so the time that is asked for grows with the program."""

PLACES = 2
"""In so many places a launch that runs in many is looked at."""


@dataclass(eq=False)
class ParetoFront:
    """The schedules of a launch of which each takes less work than all that occupy no more cores.

    points: what each occupies, and its work. schedules: as they were judged. kept: the one that is taken, complete.
    complete: completes another one; None where there is no other. kernel: whose schedules they are, where another may
    still be taken for what is around it. outer: of the values that its fusion is given those that are other values
    outside.
    """

    points: tuple[LaunchPoint, ...]
    schedules: Sequence[Schedule]
    kept: Schedule
    complete: Callable[[Schedule], Schedule] | None = None
    kernel: ScheduledKernel | None = None
    outer: Mapping[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def given(self, value: SSAValue) -> bool:
        """Whether no kernel makes a value that its fusion is given."""
        return not is_made(self.outer.get(value, value))

    def behind(self, waits: Sequence[BarrierIdle], only: int | None = None) -> tuple[LaunchPoint, ...]:
        """Its points, or the one of this number, where its launches wait so long, and load meanwhile what they may."""
        if self.kernel is None or not any(wait.microseconds for wait in waits):
            return self.points
        found = list(self.points)
        for i in range(len(found)) if only is None else (only,):
            _, saved = self.kernel.loading_ahead(self.schedules[i], waits, self.given)
            found[i] = found[i]._replace(microseconds=max(found[i].microseconds - saved, 0.0))
        return tuple(found)

    def load_ahead(self, waits: Sequence[BarrierIdle]) -> None:
        """Takes the schedule that is best where its launches wait so long, and load meanwhile what they may."""
        if self.kernel is None or self.complete is None or not any(wait.microseconds for wait in waits):
            return
        other, _ = self.kernel.loading_ahead(self.kept, waits, self.given)
        if other != self.kept:
            with suppress(PassError):
                self.kept = self.complete(other)

    def idle_behind(self) -> float:
        """Microseconds at the end of its launch in which its cube cores have nothing to do."""
        return 0.0 if self.kernel is None else self.kernel.idle_behind(self.kept)

    def take(self, number: int) -> None:
        """Takes the schedule of one of its points; the one it has stays where that cannot be built."""
        if self.complete is not None:
            with suppress(PassError):
                self.kept = self.complete(self.schedules[number])

    def keep_only(self, fits: Callable[[Schedule], bool]) -> None:
        """Leaves schedules out, but not the one that is taken."""
        pairs = [pair for pair in zip(self.points, self.schedules, strict=True) if fits(pair[1])]
        self.points, self.schedules = tuple(point for point, _ in pairs), [schedule for _, schedule in pairs]

    def alone(self, machine: Machine) -> LaunchPoint:
        """The best point for a launch of its own."""
        return min(self.points, key=lambda point: point.microseconds + point.occupancy.launch_microseconds(machine))


Points = Mapping[ParetoFront, tuple[LaunchPoint, ...]]
"""The points of launches, with what each takes."""

Picked = Mapping[ParetoFront, int]
"""Of each launch the number of the point that it is run at."""

Waits = Mapping[ParetoFront, Sequence[BarrierIdle]]
"""How long each kernel waits in its launches."""


def pareto_points(
    points: Sequence[LaunchPoint], schedules: Sequence[Schedule]
) -> tuple[tuple[LaunchPoint, ...], list[Schedule]]:
    """The points that are worth having, and their schedules; of equals the first."""

    def before(i: int) -> tuple[float, int, int, int]:
        occupancy = points[i].occupancy
        return points[i].microseconds, occupancy.cores, len(occupancy.kinds), i

    order = sorted(range(len(points)), key=before)
    found: list[int] = []
    for i in order:
        if not any(points[j].occupancy | points[i].occupancy == points[i].occupancy for j in found):
            found.append(i)
    return tuple(points[i] for i in found), [schedules[i] for i in found]


def fixed(schedule: Schedule, kind: str, machine: Machine) -> ParetoFront:
    """A schedule that a fusion of this kind has already."""
    blocks = size(schedule.grid or ()) * (schedule.parts or 1 if isinstance(schedule, RowAttentionSchedule) else 1)
    kinds = {"vector"}
    if isinstance(schedule, CubeSchedule | AttentionSchedule):
        kinds = {"cube"} if kind == "cube" else {"cube", "vector"}
    cores = min(blocks, machine.cube_cores) if "cube" in kinds else machine.share_of(blocks)
    occupancy = Occupancy(cores, frozenset({"fused"} if machine.fused else kinds))
    return ParetoFront((LaunchPoint(occupancy),), [schedule], schedule)


@dataclass(frozen=True)
class Chosen:
    """The schedules of a launch, and the microseconds that it takes alone. Several where its sums are cut as `cuts`
    say: that of its (largest) `product`, and of the launches beside it, of which the `free` ones need no barrier before
    them. judged: what the best one takes with whole sums, and with cut ones. others: what it might be instead among its
    neighbours, though it takes longer alone."""

    fronts: tuple[ParetoFront, ...]
    microseconds: float
    product: int | None = None
    cuts: tuple[tuple[str, int], ...] = ()
    free: frozenset[int] = frozenset()
    judged: tuple[float, float] = (inf, inf)
    others: tuple[Chosen, ...] = ()

    @property
    def on_cube(self) -> bool:
        """Whether the cube has a part in it."""
        return any(isinstance(front.kept, CubeSchedule) for front in self.fronts)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Of its launches, in order."""
        found = [front.kept for front in self.fronts]
        if self.product is not None and isinstance(whole := found[self.product], CubeSchedule | VectorSchedule):
            found[self.product] = replace(whole, **dict(self.cuts))
        return tuple(found)


def best_of(found: Sequence[Chosen]) -> Chosen:
    """What takes least alone, with what might be better among its neighbours, if it is on the cube: launches of the
    vector cores alone are ordered anew, and join their neighbours, when these are known."""
    first, *others = sorted(found, key=lambda chosen: chosen.microseconds)
    near = [c for c in others if c.microseconds <= NEAR * first.microseconds and c.on_cube]
    return replace(first, others=tuple(near)[:MOST_OTHERS] if first.on_cube else ())


def apart(fronts: Sequence[ParetoFront], machine: Machine) -> float:
    """Microseconds of launches, each by itself."""
    best = (front.alone(machine) for front in fronts)
    return sum(point.microseconds + point.occupancy.launch_microseconds(machine) for point in best)


def together(fronts: Sequence[ParetoFront], machine: Machine, free: Set[int] = frozenset()) -> float:
    """Microseconds of launches of which neighbours may run as stages of one, some with no barrier before them."""
    if len(fronts) == 1:
        return apart(fronts, machine)
    return Groups(machine, [Neighbour(f.points, free=i in free) for i, f in enumerate(fronts)]).least()[0]


def starts_group(fusion: FusionOp) -> bool:
    """Whether a number that is read back from the device is among the inputs of a fusion: the program may have to wait
    for it, so that its launch can only be the first of a group."""
    return any(isinstance(v.owner, ToHostOp) for v in fusion.inputs)


@dataclass(frozen=True)
class FusionLaunches:
    """The launches of a fusion in a run: whether the first one may only begin a group, and whether it needs no barrier
    before it."""

    chosen: tuple[Chosen, ...]
    first: bool
    free: bool


@dataclass
class Run:
    """Launches that may be one, which of them may only begin a group or need no barrier before them, and how often all
    of them run. `together`: the fusions since the last one that needs something of another."""

    times: int
    segments: list[FusionLaunches] = field(default_factory=list)
    together: Together[SSAValue] = field(default_factory=Together[SSAValue])
    fronts: list[ParetoFront] = field(default_factory=list)
    firsts: list[bool] = field(default_factory=list)
    frees: list[bool] = field(default_factory=list)

    def take(self, taken: Mapping[Chosen, Chosen]) -> None:
        """Has the launches of its segments, some of them as others are `taken` for them."""
        self.fronts, self.firsts, self.frees = [], [], []
        for segment in self.segments:
            first = len(self.fronts)
            for chosen in (taken.get(each, each) for each in segment.chosen):
                self.frees += [i in chosen.free for i in range(len(chosen.fronts))]
                self.fronts += chosen.fronts
            self.firsts += [segment.first and i == first for i in range(first, len(self.fronts))]
            if segment.free and first < len(self.frees):
                self.frees[first] = True

    def least(
        self, machine: Machine, points: Callable[[ParetoFront], tuple[LaunchPoint, ...]], concurrent: bool = True
    ) -> tuple[float, list[GroupMember]]:
        """Microseconds of the launches, each run at one of so many points, and what becomes of each. concurrent:
        whether independent ones may be side by side."""
        each = zip(self.fronts, self.firsts, self.frees, strict=True)
        return Groups(machine, [Neighbour(points(f), first, free) for f, first, free in each], concurrent).least()


class Runs:
    """The launches of a program in their order, as far as they can be one. ahead: whether they load what no kernel
    makes before they wait at a barrier."""

    def __init__(self, machine: Machine, ahead: bool):
        self.machine, self.ahead, self.runs = machine, ahead, [Run(1)]
        self.taken: dict[Chosen, Chosen] = {}
        """What some launches are instead of what they are best as alone."""

    def begin(self, times: int) -> None:
        """Something stands between launches; those behind it run so many times."""
        if self.runs[-1].segments:
            self.runs.append(Run(times))
        self.runs[-1].times = times

    def add(self, chosen: Sequence[Chosen], fusion: FusionOp) -> None:
        """The next launches, of a fusion. That their memory is apart from that of others is not known yet."""
        run, first = self.runs[-1], starts_group(fusion)
        free = run.together.joined_by({base(v) for v in fusion.inputs}, set(fusion.results))
        run.segments.append(FusionLaunches(tuple(chosen), first, free))

    def _exchange(self) -> None:
        """Takes for each launch that of what it might be with which it takes least among its neighbours, in the first
        few places where it is."""
        where: dict[Chosen, list[Run]] = {}
        for run in self.runs:
            for at, segment in enumerate(run.segments):
                for chosen in (c for c in segment.chosen if c.others):
                    places = where.setdefault(chosen, [])
                    if len(places) < PLACES:
                        places.append(Run(run.times, run.segments[max(at - AROUND, 0) : at + AROUND + 1]))
        for chosen, runs in where.items():
            tried = (chosen, *chosen.others)
            costs = [self._with(runs, {**self.taken, chosen: other}) for other in tried]
            best = tried[costs.index(min(costs))]
            if best is not chosen:
                self.taken[chosen] = best
        for run in self.runs:
            run.take(self.taken)

    def _with(self, runs: Sequence[Run], taken: Mapping[Chosen, Chosen]) -> float:
        """Microseconds of runs with what is taken, each launch as is best for itself."""
        total = 0.0
        for run in runs:
            run.take(taken)
            total += run.times * run.least(self.machine, lambda front: front.points)[0]
        return total

    def choose(self) -> None:
        """Takes a schedule for each launch, so that all take least; first of all, into which launches products are cut.

        Equal launches have one kernel. So first each launch may choose for itself, and then the launches of a kernel
        choose by what they cost together in the groups that they are in. Then it is known how long they wait for
        barriers, and they choose once more by what they cost where they load meanwhile what they may.
        """
        self._exchange()
        runs = [run for run in self.runs if len(run.fronts) > 1]
        fronts = list(dict.fromkeys(front for run in runs for front in run.fronts))
        points: Points = {front: front.points for front in fronts}
        picked = self._best(runs, points, {front: front.points.index(front.alone(self.machine)) for front in fronts})
        waits: Waits = {}
        if self.ahead:
            picked, waits = self._waiting(runs, picked)
        for front, number in picked.items():
            if front.points[number] != front.alone(self.machine):
                front.take(number)
            front.load_ahead(waits.get(front, ()))

    def _waiting(self, runs: Sequence[Run], picked: Picked) -> tuple[Picked, Waits]:
        """The points with which launches take least that load meanwhile what they may, and how long they wait then; of
        those `picked` and of what is best with the waits that follow from these: of all launches, or of those alone
        that a barrier parts from what is before."""
        free = {front for run in runs for front, free in zip(run.fronts, run.frees, strict=True) if free}
        early: Points = {f: f.behind(each) for f, each in self._waits(runs, picked, crowded=True).items()}
        late: Points = {front: front.points if front in free else each for front, each in early.items()}
        tried = [picked]
        for points in (early, late) if free else (early,):
            if any(points[front] != front.points for front in points):
                voted = self._best(runs, points, picked)
                tried += [voted] if voted not in tried else []

        def judged(each: Picked) -> tuple[float, Waits]:
            waits = self._waits(runs, each)
            points = {front: front.behind(waits[front], only) for front, only in each.items()}
            return self._cost(runs, points, each), waits

        costs = [judged(each) for each in tried]
        best = min(range(len(tried)), key=lambda number: costs[number][0])
        return tried[best], costs[best][1]

    def _best(self, runs: Sequence[Run], points: Points, picked: Picked) -> Picked:
        """The points with which launches take least, of those `picked` and of what they propose."""
        if all(len(each) == 1 for each in points.values()):
            return picked
        least = self._cost(runs, points, picked)
        for voted in self._proposals(runs, points):
            cost = self._cost(runs, points, voted)
            if cost < least:
                picked, least = voted, cost
        return picked

    def _waits(self, runs: Sequence[Run], picked: Picked, crowded: bool = False) -> Waits:
        """How long the cube cores of each kernel wait in its launches. crowded: even where launches that no barrier
        parts have no cores for all of them."""
        found: dict[ParetoFront, list[BarrierIdle]] = {front: [] for front in picked}
        for run in runs:
            for front, microseconds in zip(run.fronts, self._waits_in(run, picked, crowded), strict=True):
                found[front].append(BarrierIdle(run.times, microseconds))
        return found

    def _waits_in(self, run: Run, picked: Picked, crowded: bool) -> Iterator[float]:
        """How long cube cores have nothing to do before each launch, in microseconds: they wait for its barrier, for
        stages before it in which they have no work, and for vector cores at the end of the last one in which they
        have. Launches that no barrier parts do so where there are cores for all; else some of them wait for others."""
        _, members = run.least(self.machine, lambda front: (front.points[picked[front]],))
        start = 0
        while start < len(members):
            free = takewhile(lambda i: members[i].joined and run.frees[i], range(start + 1, len(members)))
            stage = [start, *free]
            cores = sum(self._picked(run, picked, i).occupancy.cores for i in stage)
            room = crowded or len(stage) == 1 or cores <= members[start].group.cores
            waits = members[start].joined and room
            yield from [self._idle_before(run, members, picked, start) if waits else 0.0] * len(stage)
            start += len(stage)

    def _idle_before(self, run: Run, members: Sequence[GroupMember], picked: Picked, at: int) -> float:
        """How long cube cores have nothing to do before a launch behind a barrier, in microseconds."""
        barrier = found = members[at].group.barrier_microseconds(self.machine)
        for i in reversed(range(at)):
            point = self._picked(run, picked, i)
            if point.occupancy.kinds != {"vector"}:
                return found + run.fronts[i].idle_behind()
            found += point.microseconds
            if not members[i].joined:
                break
            found += barrier
        return found

    @staticmethod
    def _picked(run: Run, picked: Picked, number: int) -> LaunchPoint:
        """The point that a launch of a run is run at."""
        front = run.fronts[number]
        return front.points[picked[front]]

    def _proposals(self, runs: Sequence[Run], points: Points) -> Iterator[Picked]:
        """Points for all launches: independent ones one after the other, or side by side, and then once more for what
        runs once, when it is known how the kernels of several launches are cut."""

        def votes(free: Callable[[ParetoFront], tuple[LaunchPoint, ...]], concurrent: bool) -> Picked:
            return self._votes(runs, points, [run.least(self.machine, free, concurrent)[1] for run in runs])

        yield votes(points.__getitem__, False)
        if not any(free for run in runs for free in run.frees):
            return
        voted = votes(points.__getitem__, True)
        yield voted
        uses = Counter(front for run in runs for front in run.fronts)
        yield votes(lambda f: (points[f][voted[f]],) if uses[f] > 1 else points[f], True)

    def _cost(self, runs: Sequence[Run], points: Points, picked: Picked) -> float:
        return sum(
            run.times * run.least(self.machine, lambda front: (points[front][picked[front]],))[0] for run in runs
        )

    def _votes(self, runs: Sequence[Run], points: Points, groups: Sequence[Sequence[GroupMember]]) -> Picked:
        """For each kernel the point that costs least over all its launches; one that occupies more than a group does
        would be a launch beside it."""
        costs = {front: [0.0] * len(each) for front, each in points.items()}
        for run, members in zip(runs, groups, strict=True):
            for front, member in zip(run.fronts, members, strict=True):
                for i, point in enumerate(points[front]):
                    beside = point.occupancy | member.occupancy != member.occupancy
                    price = point.occupancy.launch_microseconds(self.machine) if beside else 0.0
                    costs[front][i] += run.times * (point.microseconds + price)
        return {front: each.index(min(each)) for front, each in costs.items()}
