"""How a contraction is cut: what leaves the cube, which schedules are worth judging, and what each costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from xdsl.ir import SSAValue

from ....dialects.base import describe
from ....dialects.dtypes import dtype_name, itemsize, size
from ....dialects.graph import CubeSchedule, FusionOp
from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ....dialects.open_sizes import any_open
from ....kernels.columns import Number, as_list, column, columns
from ....kernels.price import Price
from ....kernels.product import CubeProblem
from ....kernels.product_cost import (
    CubeCost,
    LoadCost,
    Outside,
    ProductPlans,
    ProductRun,
    TileCosts,
    on_cores,
)
from ....machine import Machine
from ...errors import PassError, TooLarge
from ..axes import behind_layout
from ..scheduled import BarrierIdle, ScheduledKernel, as_cube, cannot_obey, is_made
from .contraction_axes import Operand
from .cube_loads import L1_FRACTION, other_loads
from .cube_refusal import refusal
from .cube_schedule import CubePlan, Refused, cube_schedules, is_free
from .draining import Drain, PartialDrain, drain_of, has_room, partial_drain_of
from .epilogue import EpilogueStages
from .loads_ahead import loads_ahead

CLEARLY_BETTER = 0.9
"""The share of the best schedule's bound below which another one is better beyond the error of the bound."""

REFINED = 8
"""How many steps are tried with other loads, those with the best schedules."""


class ContractionChoice(EpilogueStages, ScheduledKernel):
    """One cube or mix fusion, its product and what leaves the cube, while its schedule is chosen."""

    LOADS: Sequence[int] = (*range(1, 9), *(1 << i for i in range(4, 12)))
    """Steps of the cube that plans may load at once, besides all that there are."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: CubeSchedule):
        super().__init__(fusion, machine, asked.axes)
        self.asked = asked
        self.slots = asked.ub or 2
        whole = dict(enumerate(self.extents))
        self.views = [[part.view(whole) for part in o.parts] for o in self.operands]
        self.drain = self._drain_asked()
        self.problem = self.with_epilogue = self._problem(self.anchor.result)
        self.drained: SSAValue = self.anchor.result
        """What leaves the cube: the sums, or what the drain makes of them."""
        if self.drain is not None:
            self.members = []
            self.drained = behind_layout(self.stored[0].value)
            self.problem = self._problem(self.drained)
        elif (partial := self._partial_drain_asked()) is not None:
            self.drain, self.drained = partial.drain, partial.value
            self.members = [op for op in self.members if op not in partial.ops]
            self.problem = self.with_epilogue = self._problem(self.drained)
        self.pieces, self.parts, self.blocks = {}, {}, {}
        self.box_loads: dict[tuple[int, ...], list[LoadCost]] = {}
        """The loads of boxes of the axes, as far as known."""
        self.box_bytes: dict[tuple[int, tuple[int, ...]], int] = {}
        """Bytes of a load of an operand in l1, by its number and the box, as far as known."""
        if not self.whole <= {*self.n_axes}:
            raise TooLarge(
                f"{describe(fusion)} reduces along rows of its product, of which each core has some"
            )
        self.tile_costs: dict[tuple, TileCosts] = {}
        """What tiles with a step and its loads cost, as far as known."""
        self.known: dict[bool, dict[Schedule, float]] = {True: {}, False: {}}
        """Microseconds of schedules, of the product as it leaves the cube and otherwise, as far as known."""
        self.ahead: dict[tuple[CubeSchedule, int], tuple[Sequence[CubeSchedule], ProductRun, float]] = {}
        """What `_loads_ahead` found."""
        element = self.anchor.result if self.drain is not None and not self.members else self.drained
        self.made[self.drained] = self._accumulator(element_of(element))
        self.build_stages()
        self.plain = len(self.stages) == 2 and not machine.fused
        self.kinds = frozenset({"cube"} if self.plain else {"cube", "vector"})

    def candidates(self, name: str) -> Iterator[CubeSchedule]:
        tried = self._tried(name)
        if self.drain is None:
            yield from tried
            return
        # The drain takes less time than an epilogue with any schedule, with another one not always where the bound says
        # so by little.
        tried = list(tried)
        usual, us = int(np.argmin(self._priced(tried, self.with_epilogue))), self.price_many(tried)
        limit = us[usual] * CLEARLY_BETTER
        yield from [s for i, s in enumerate(tried) if i == usual or us[i] < limit]

    def _tried(self, name: str) -> Iterator[CubeSchedule]:
        """The schedules that are worth judging; the best of them with other loads, too, where nothing is pinned."""
        tried = list(self._tried_at_first(name))
        yield from tried
        if not is_free(self.asked):
            return
        room = self.machine.spaces["l1"].bytes
        if self.drain is not None:
            room = int(room * L1_FRACTION)
        us = self.price_many(tried)
        order = np.argsort(us, kind="stable")
        # shorter loads bring less ahead of a barrier, and the price does not know the neighbours
        barrier = self.machine.barrier_microseconds(self.machine.cube_cores, not self.plain)
        of_step = {tried[i].step: i for i in reversed(order)}
        best = sorted(of_step.values(), key=us.__getitem__)[:REFINED]
        others = [o for i in best for o in other_loads(tried[i], self.problem, self.l1_bytes, room)]
        yield from (
            o for o, each in zip(others, self.price_many(others), strict=True) if each < us.min() - barrier
        )

    def _tried_at_first(self, name: str) -> Iterator[CubeSchedule]:
        axes = tuple(map(tuple, self.merged))
        found = False
        try:
            for schedule in cube_schedules(
                self.problem, axes, self.machine, self.l1_bytes, self.asked, self._inner_loops
            ):
                if self.rows_fit(schedule):
                    found = True
                    yield schedule
        except Refused as error:
            raise cannot_obey(name, str(error)) from None
        if not found and self.whole:
            raise TooLarge(f"{describe(self.anchor)}: no step has room for all columns of its rows")
        if not found:
            raise PassError(f"{describe(self.anchor)}: {self._too_large()}")

    def _too_large(self) -> str:
        """What is said where not even the smallest step fits."""
        tile = [n if a in self.problem.windows else 1 for a, n in enumerate(self.extents)]
        return (
            f"a load of both operands (twice buffered, {2 * sum(self.l1_bytes(tile, tile))} bytes for one output and "
            f"whole windows) does not fit l1 of {self.machine.name}"
        )

    @property
    def _inner_loops(self) -> tuple[str, ...]:
        """Which loop over tiles may be the inner one: that over rows, and where L2 would not have them for the next
        columns, that over columns."""
        if self.whole:
            return ("n",)
        crowded = self._operand_bytes[0] + self._epilogue_traffic > self.machine.l2_bytes
        return ("m", "n") if crowded else ("m",)

    def completed(self, name: str, schedule: Schedule) -> CubeSchedule:
        """The same with the tile of its epilogue."""
        schedule = as_cube(name, schedule)
        plan, reason = CubePlan.of(schedule), self._refusal(schedule)
        if reason is not None:
            raise cannot_obey(name, reason)
        if not self.has_epilogue or plan.epilogue is not None:
            return schedule
        return replace(schedule, epilogue=tuple(self._epilogue_tile(plan)))

    def _refusal(self, schedule: CubeSchedule) -> str | None:
        """Why a schedule cannot be obeyed; None where it can."""
        return refusal(CubePlan.of(schedule), self.problem, self.machine, self.l1_bytes, self.asked)

    def check(self, name: str, schedule: Schedule) -> None:
        plan = CubePlan.of(self.completed(name, schedule))
        if plan.epilogue is not None:
            reason = self._epilogue_refusal(plan)
            if reason is not None:
                raise cannot_obey(name, reason)

    def walked(self) -> list[list[int]]:
        return self.merged

    def price(self, schedule: Schedule) -> Price:
        return self._run([as_cube("", schedule)], self.problem).price(self.machine)

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        return self._priced([as_cube("", schedule) for schedule in schedules], self.problem)

    def _priced(self, schedules: Sequence[CubeSchedule], problem: CubeProblem) -> np.ndarray:
        """Microseconds of each schedule: those with one inner loop are priced together, unless sizes are open."""
        known = self.known[problem is self.problem]
        found = np.array([known.get(schedule, np.nan) for schedule in schedules])
        alike, is_open = defaultdict[object, list[int]](list), any_open(self.extents)
        for i in np.flatnonzero(np.isnan(found)).tolist():
            alike[i if is_open else schedules[i].inner].append(i)
        with np.errstate(invalid="ignore"):  # what does not fit takes forever
            for numbers in alike.values():
                some = [schedules[i] for i in numbers]
                found[numbers] = self._run(some, problem).price(self.machine).microseconds
                known.update(zip(some, found[numbers].tolist(), strict=True))
        return found

    def idle_behind(self, schedule: Schedule) -> float:
        if self.machine.fused:
            return 0.0
        cost = self._run([as_cube("", schedule)], self.problem).cost
        return self.machine.cycles_to_microseconds(cost.epilogue + cost.tail)

    def loading_ahead(
        self, schedule: Schedule, waits: Sequence[BarrierIdle], given: Callable[[SSAValue], bool]
    ) -> tuple[Schedule, float]:
        sides = [o.source >= 0 and given(self.fusion.inputs[o.source]) for o in self.operands]
        if not is_free(self.asked) or sides[0] == sides[1] or self.problem.pooled or self.problem.sparse:
            return schedule, 0.0
        side = int(sides[1])
        tried, run, usual = self._loads_ahead(as_cube("", schedule), side)
        times, waited = [wait.times for wait in waits], [wait.microseconds for wait in waits]
        us = as_list(run.behind_barriers(side, times, waited, self.machine), len(tried))
        best = min(range(len(tried)), key=us.__getitem__)
        return tried[best], usual - us[best]

    def _loads_ahead(
        self, schedule: CubeSchedule, side: int
    ) -> tuple[Sequence[CubeSchedule], ProductRun, float]:
        """A schedule, and those with one load of an operand (0: lhs, 1: rhs); what each costs, and what the first one
        takes behind a barrier that it does not wait for, in microseconds."""
        known = self.ahead.get((schedule, side))
        if known is None:
            room = self.machine.spaces["l1"].bytes

            def fits(each: CubeSchedule) -> bool:
                plan = CubePlan.of(each)
                if self.l1_bytes(plan.lhs, plan.rhs)[side] >= room:
                    return False
                return refusal(plan, self.problem, self.machine, self.l1_bytes, self.asked) is None

            tried = [schedule, *loads_ahead(schedule, side, self.problem, self.machine, fits)]
            run = self._run(tried, self.problem)
            usual = as_list(run.behind_barriers(side, [1], [0.0], self.machine), len(tried))[0]
            known = self.ahead[schedule, side] = tried, run, usual
        return known

    def loaded_first(self) -> Sequence[int]:
        """The operands in the order in which they are loaded: weights, which no kernel makes, before what one makes, as
        cores may load them while they wait for that. Of equals rhs is first, so that the first product of a net has the
        same kernel as those behind it."""
        return sorted((1, 0), key=lambda i: self._is_made(self.operands[i]))

    def _is_made(self, o: Operand) -> bool:
        """Whether an operand is what another op of the program makes."""
        return 0 <= o.source < len(self.fusion.inputs) and is_made(self.fusion.inputs[o.source])

    def tile_costs_of(self, schedule: CubeSchedule) -> TileCosts:
        """What is known of the tiles of a schedule, whatever its grid is."""
        key = schedule.step, schedule.lhs, schedule.rhs, schedule.inner, True
        if key not in self.tile_costs:
            self.tile_costs[key] = self._tile_costs(CubePlan.of(schedule), self.problem)
        return self.tile_costs[key]

    def run_of(
        self, tiles: Sequence[TileCosts], numbers: np.ndarray, grid: Sequence[Number], inner: str, overlaps: Number
    ) -> ProductRun:
        """Plans with one inner loop on their cores: which of these tiles each has, its cores along each axis of the
        result, and whether a tile begins while the sums of one leave."""
        plans = ProductPlans(tiles, numbers, grid, inner, overlaps)
        return on_cores(plans, self.problem, self.outside, self.machine)

    def loads_of(self, box: Sequence[int]) -> Sequence[LoadCost]:
        """The load of each operand for a box of the axes."""
        return self._loads(box)

    def least_loads(self, box: Sequence[int]) -> Sequence[LoadCost]:
        """What loads of each operand that together have a box of the axes take no less than but for their starts, as
        one load."""
        return self._loads(box)

    def may_load(self, lhs: Sequence[int], rhs: Sequence[int]) -> bool:
        """Whether plans may have loads of these extents."""
        return True

    def _run(self, schedules: Sequence[CubeSchedule], problem: CubeProblem) -> ProductRun:
        """Schedules with the same inner loop, on their cores."""
        return on_cores(self.plans(schedules, problem), problem, self.outside, self.machine)

    def plans(self, schedules: Sequence[CubeSchedule], problem: CubeProblem) -> ProductPlans:
        """The numbers of schedules with the same inner loop."""
        number: dict[tuple, int] = {}
        numbers, known = list[int](), list[TileCosts]()
        for s in schedules:
            key = s.step, s.lhs, s.rhs, s.inner, problem is self.problem
            at = number.get(key)
            if at is None:
                at = number[key] = len(known)
                if key not in self.tile_costs:
                    self.tile_costs[key] = self._tile_costs(CubePlan.of(s), problem)
                known.append(self.tile_costs[key])
            numbers.append(at)
        grids = [s.grid or () for s in schedules]
        grid = columns([[each[a] for a in problem.out] for each in grids])
        overlaps = column((s.l0c or 1) > 1 for s in schedules)
        return ProductPlans(known, numbers, grid, schedules[0].inner or "m", overlaps)

    def _tile_costs(self, plan: CubePlan, problem: CubeProblem) -> TileCosts:
        """What is known of the tiles of a plan, whatever its grid is."""
        fused, pieces = self._fused_epilogue(plan), self._epilogue_pieces(plan)
        cost = CubeCost.of(problem, plan.l0, plan.lhs, plan.rhs, self.machine, self._loads, fused, pieces)
        shared = self._sharing(0, plan), self._sharing(1, plan)
        block = self._row_cycles(plan) if self.outside.reduces else 0.0
        return TileCosts(self._costed(cost, plan), problem.counts(plan.l0), shared, block)

    def _costed(self, cost: CubeCost, plan: CubePlan) -> CubeCost:
        """The cost of a tile with what is known better than from the product alone."""
        return cost

    def _sharing(self, side: int, plan: CubePlan) -> list[int]:
        """Along which axes of the result one load of an operand has what all tiles take of it: 1, else 0."""
        return [int(plan.shares(side, {a}, self.problem)) for a in self.problem.out]

    def walk(self, inner: str) -> list[int]:
        """The axes of the result in the order of the loops over tiles, the inner one last."""
        return self.problem.walk(inner)

    def loaded_once(self, plan: CubePlan, loops: Sequence[int]) -> tuple[int, int] | None:
        """An operand (0: lhs, 1: rhs) that is one load, and the same for all tiles of the loops further in: with the
        number of the loop before which it is loaded."""
        for i in range(len(loops)):
            side = next((side for side in (1, 0) if plan.shares(side, {*loops[i:]}, self.problem)), None)
            if side is not None:
                return i, side
        return None

    @cached_property
    def outside(self) -> Outside:
        """What is moved outside of tiles."""
        reduces = bool(self.whole) and not self.machine.fused
        return Outside(self._operand_bytes, self._epilogue_traffic, reduces)

    @cached_property
    def _epilogue_traffic(self) -> float:
        """Bytes that the epilogue loads and stores."""
        views = [step.view for step in self.stages if step.view is not None]
        return float(sum(size(view.shape) * itemsize(view.element) for view in views))

    def _drain_asked(self) -> Drain | None:
        """What the drain does in the place of an epilogue, unless the schedule has a tile of one, or a step of more
        columns than there is room for beside the cube."""
        found = None if self.asked.epilogue is not None else drain_of(self.fusion, self.machine)
        columns = self.asked.base_n or (
            size([self.asked.step[a] for a in self.n_axes]) if self.asked.step else 1
        )
        return found if found is not None and has_room(found, columns, self.machine) else None

    def _partial_drain_asked(self) -> PartialDrain | None:
        """What the drain does before an epilogue, where there is room for the columns of a step beside the cube."""
        found = partial_drain_of(self.fusion, self.machine)
        if found is None or drain_of(self.fusion, self.machine) is not None:
            return None
        columns = self.asked.base_n or (
            size([self.asked.step[a] for a in self.n_axes]) if self.asked.step else 1
        )
        return found if has_room(found.drain, columns, self.machine) else None

    def rows_fit(self, schedule: CubeSchedule) -> bool:
        """Whether there is room for what the columns of a tile have beside the cube, and for all columns where a tile
        has these."""
        assert schedule.step is not None
        if self.whole and is_free(self.asked) and self._refusal(schedule) is not None:
            return False
        columns = size([schedule.step[a] for a in self.n_axes])
        return self.drain is None or has_room(self.drain, columns, self.machine)

    @property
    def has_epilogue(self) -> bool:
        """Whether vector cores work on what the cube computes."""
        return self.machine.fused or not self.plain

    def _problem(self, stored: SSAValue) -> CubeProblem:
        """The contraction, and its members on the vector cores; what the accumulator is stored as."""
        lhs = self.operands[0]
        slid = [d for d in lhs.dims if any(self.role[a] == "m" for a in d.axes) and len(d.along) > 1]
        each, head = self._epilogue_cycles()
        kind = dtype_name(lhs.element)
        if kind not in self.machine.cube:
            raise PassError(
                f"{describe(self.anchor)}: the cube of {self.machine.name} has no {kind} products: run graph-simplify "
                "for that target before graph-fuse"
            )
        return CubeProblem(
            self.extents,
            self.b_axes,
            self.m_axes,
            self.n_axes,
            self.k_axes,
            itemsize(lhs.element),
            wide_m=not lhs.transpose,
            windows=frozenset(a for d in slid for a in d.axes if self.role[a] == "k") | self.singly,
            singly=self.singly,
            sparse=self.expansion is not None,
            dtype=kind,
            stored=itemsize(element_of(stored)),
            epilogue=each,
            epilogue_head=head,
            even=frozenset[int]().union(*(o.placed for o in self.operands)),
            whole=self.whole,
        )

    def l1_bytes(self, lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, int]:
        return self._held_bytes(0, tuple(lhs)), self._held_bytes(1, tuple(rhs))

    def _held_bytes(self, side: int, box: tuple[int, ...]) -> int:
        known = self.box_bytes.get((side, box))
        if known is None:
            parts = self.operands[side].parts
            known = self.box_bytes[side, box] = sum(p.l1_bytes(box, self.machine) for p in parts)
        return known

    def _loads(self, box: Sequence[int]) -> list[LoadCost]:
        """The load of each operand for a box of the axes."""
        known = self.box_loads.get(tuple(box))
        if known is None:
            both = zip(self.operands, self.views, strict=True)
            known = self.box_loads[tuple(box)] = [o.load_cost(views, box, self.machine) for o, views in both]
        return known

    @cached_property
    def _operand_bytes(self) -> list[float]:
        """Bytes of lhs and of rhs: of a table, those that its slices have, at most all."""
        loads, found = self._loads(self.extents), []
        for o, load, views in zip(self.operands, loads, self.views, strict=True):
            slices = load.bytes * size([self.extents[a] for a in o.placed])
            table = sum(size(view.shape) * itemsize(view.element) for view in views)
            found.append(min(slices, table) if o.placed else load.bytes)
        return found
