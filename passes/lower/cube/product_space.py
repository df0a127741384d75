"""All plans of a product: steps of the cube, loads of both operands, which loop is the inner one, and cores.

Of lengths there are those of equal parts: with the same number of parts a longer one costs no less. A search halves the
steps first, then the loads and the loop, then the cores. product_bounds.py says what no plan takes less than.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ....dialects.dtypes import size
from ....dialects.graph import CubeSchedule
from ....dialects.graph.schedules import Schedule
from ....kernels.product import FRACTAL, Extents
from ....kernels.product_cost import TileCosts
from ....kernels.space import Box, PlanNumber, Plans, PlanSpace, parts_of
from ..spaces import CORES, DividedSpace, apart, checked
from .cube_loads import loads_of
from .cube_schedule import accumulators, tile_of
from .pooled_tiles import all_tiles_of_rows
from .product_bounds import ProductBounds

if TYPE_CHECKING:
    from .contraction_choice import ContractionChoice

LONGEST_STEP = 512
"""Rows and columns of a step, at most: an accumulator of more has no room with FRACTAL of the other."""


class ProductSpace(DividedSpace):
    """The plans of a kernel of a product with whole sums on the cube."""

    def __init__(self, kernel: ContractionChoice, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.problem, self.machine = kernel.problem, kernel.machine
        problem = self.problem
        self.sides = problem.m, problem.n, problem.k
        """The axes along the rows, the columns and the depth of a step."""
        rows, columns, depths = (self._apart(which) for which in range(len(self.sides)))
        if problem.pooled:
            most = self.machine.spaces["l0a"].bytes // (2 * FRACTAL * problem.itemsize)
            rows = tuple(all_tiles_of_rows(problem, most))
        self.cut = [a for a in problem.out if problem.extents[a] > 1 and a not in problem.whole]
        """The axes of the result that cores share."""
        places = [problem.pooled[a].places if a in problem.pooled else problem.extents[a] for a in self.cut]
        divisions = _divisions(places, self.machine.cube_cores)
        self.divisions = tuple(sorted(divisions, key=lambda each: (size(each), each)))
        self.space = PlanSpace(
            (
                PlanNumber("rows", rows),
                PlanNumber("columns", columns),
                PlanNumber("depth", depths),
                PlanNumber("loads", self._loads_tried(), 1),
                PlanNumber("inner", ("n",) if problem.whole else ("m", "n"), 2),
                PlanNumber(CORES, self.divisions, 3),
            )
        )
        self.grids = np.array(self.divisions, np.int64).reshape(len(self.divisions), -1)
        """The divisions, one a row."""
        self.working: dict[Extents, np.ndarray] = {}
        self.bases: dict[tuple[Extents, str], TileCosts] = {}
        self.steps: dict[tuple[int | Extents, int, int], Extents | None] = {}
        self.loads: dict[Extents, tuple[Extents, Extents] | None] = {}

    def _loads_tried(self) -> tuple[tuple[int, int], ...]:
        """Steps of the cube that loads of lhs and of rhs have along k, of which one divides the other; (0, 0) for as
        many as there is room for, where windows come first."""
        if not self.problem.k or self.problem.windows:
            return ((0, 0),)
        longest = max(-(-self.problem.extents[a] // FRACTAL) for a in self.problem.cut_k)
        lengths = sorted({n for n in (*self.kernel.LOADS, longest) if n <= longest})
        return tuple((a, b) for a in lengths for b in lengths if max(a, b) % min(a, b) == 0)

    # -- from numbers to schedules -----------------------------------------------------------------------------

    def _apart(self, which: int) -> tuple[int, ...]:
        """The lengths of a side with which a step is another one along its axes."""
        axes = self.sides[which]
        deepest = self.machine.spaces["l0a"].bytes // (2 * FRACTAL * self.problem.itemsize)
        lengths = _targets([self.problem.extents[a] for a in axes], LONGEST_STEP if which < 2 else deepest)
        found = {tuple(self.side(which, n)[a] for a in axes): n for n in reversed(lengths)}
        return tuple(sorted(found.values()))

    def side(self, which: int, value: int | Extents) -> Extents:
        """A step with a value of the choice of a side (0: rows, 1: columns, 2: depth), the others a fractal long."""
        values: list[int | Extents] = [FRACTAL] * len(self.sides)
        values[which] = value
        rows, columns, depth = values
        assert isinstance(columns, int) and isinstance(depth, int)
        return tile_of(self.problem, rows, columns, depth)

    def _step(self, rows: int | Extents, columns: int, depth: int) -> Extents | None:
        """The step of these sides; None where it has no room."""
        key = rows, columns, depth
        if key not in self.steps:
            found = tile_of(self.problem, rows, columns, depth)
            self.steps[key] = found if self._has_room(found) else None
        return self.steps[key]

    def _has_room(self, step: Extents) -> bool:
        """Whether the sums of a step, and what is multiplied twice buffered, have room."""
        problem, spaces = self.problem, self.machine.spaces
        m, n = (-(-size([step[a] for a in axes]) // FRACTAL) * FRACTAL for axes in (problem.m, problem.n))
        k = size([step[a] for a in problem.k]) * problem.itemsize
        return (
            m * n * 4 <= spaces["l0c"].bytes
            and 2 * m * k <= spaces["l0a"].bytes
            and (2 * k * n <= spaces["l0b"].bytes * (2 if problem.sparse else 1))
        )

    def _loaded(self, step: Extents, lhs: int, rhs: int) -> tuple[Extents, Extents] | None:
        """The loads that have so many steps each; None where others are the same, or one does not nest in the other."""
        problem = self.problem
        if not lhs:
            if step not in self.loads:
                free = CubeSchedule()
                found = loads_of(problem, self.machine, dict(enumerate(step)), self.kernel.l1_bytes, 2, free)
                same = found is not None and tuple(found[0].values()) == tuple(step)
                self.loads[step] = (tuple(found[1].values()), tuple(found[2].values())) if found and same else None
            return self.loads[step]
        k = problem.long_k(step) if problem.k else None
        steps = 1 if k is None else -(-problem.extents[k] // step[k])
        if max(lhs, rhs) > steps or max(lhs, rhs) % min(lhs, rhs):
            return None
        left, right = (tuple(n * times if a == k else n for a, n in enumerate(step)) for times in (lhs, rhs))
        return (left, right) if self.kernel.may_load(left, right) else None

    def _grid(self, values: Sequence[int]) -> tuple[int, ...]:
        own = dict(zip(self.cut, values, strict=True))
        return tuple(own.get(a, 1) for a in range(len(self.problem.extents)))

    def _schedule(self, values: Mapping[str, Any]) -> CubeSchedule | None:
        """The schedule with these values, before its room in l1 and its cores are looked at: with the first division
        where no cores are said."""
        step = self._step(values["rows"], values["columns"], values["depth"])
        loads = None if step is None else self._loaded(step, *values["loads"])
        if step is None or loads is None:
            return None
        return self._of(step, loads, values["inner"], values.get("cores", self.divisions[0]))

    def _of(
        self, step: Extents, loads: tuple[Extents, Extents], inner: str, cores: Sequence[int]
    ) -> CubeSchedule:
        return CubeSchedule(
            axes=tuple(map(tuple, self.kernel.merged)),
            step=tuple(step),
            lhs=tuple(loads[0]),
            rhs=tuple(loads[1]),
            grid=self._grid(cores),
            inner=inner,
            l1=2,
            l0a=2,
            l0b=2,
            l0c=accumulators(self.problem, dict(enumerate(step)), self.machine),
            ub=self.kernel.slots,
        )

    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        found = self._schedule(self.space.values(plan))
        if found is None or found.step is None or not self._working(found.step)[plan[-1]]:
            return None
        if plan[4] and not self._looped(found.step)[plan[-1]]:
            return None
        if not self.kernel.rows_fit(found):
            return None
        return checked(self.kernel, self.name, found)

    def numbers(self, schedule: Schedule) -> tuple[int, ...] | None:
        if not isinstance(schedule, CubeSchedule) or not (schedule.step and schedule.lhs and schedule.rhs):
            return None
        choices, found = self.space.choices, list[int]()
        for which, axes in enumerate(self.sides):
            tiles = (self.side(which, value) for value in choices[which].values)
            same = (i for i, tile in enumerate(tiles) if all(tile[a] == schedule.step[a] for a in axes))
            found += islice(same, 1)
        grid = tuple((schedule.grid or ())[a] for a in self.cut)
        if len(found) < len(self.sides) or grid not in self.divisions or schedule.inner not in choices[4].values:
            return None
        loads = schedule.lhs, schedule.rhs
        same = (i for i, each in enumerate(choices[3].values) if self._loaded(schedule.step, *each) == loads)
        number = next(same, None)
        if number is None:
            return None
        division = self.divisions.index(grid)
        inner = choices[4].values.index(schedule.inner) if self._looped(schedule.step)[division] else 0
        return (*found, number, inner, division)

    def near(self, schedule: Schedule) -> tuple[int, ...] | None:
        if not isinstance(schedule, CubeSchedule) or not (schedule.step and schedule.lhs and schedule.rhs):
            return None
        if len(schedule.step) != len(self.problem.extents) or not schedule.grid:
            return None
        choices, step = self.space.choices, schedule.step
        found = [self._nearest_side(which, step) for which in range(len(self.sides))]
        boxes = schedule.lhs, schedule.rhs
        ratios = [size([n // max(s, 1) for n, s in zip(box, step, strict=True)]) for box in boxes]
        pairs = choices[3].values
        loads = [i for i in range(len(pairs)) if self._loads_of((*found, i)) is not None]
        if not loads:
            return None

        def far(i: int) -> float:
            return sum(map(apart, pairs[i], ratios))

        wanted = choices[4].values.index(schedule.inner) if schedule.inner in choices[4].values else 0
        head, loops = [*found, min(loads, key=far)], range(len(choices[4].values))
        plans = {inner: np.array([[*head, inner, i] for i in range(len(self.divisions))]) for inner in loops}
        valid = {inner: np.flatnonzero(self.valid(own)).tolist() for inner, own in plans.items()}
        able, grid = valid[0], [schedule.grid[a] for a in self.cut]

        def other(i: int) -> float:
            return sum(map(apart, self.divisions[i], grid))

        if not able:
            return None
        division = min(able, key=other)
        return (*head, wanted if division in valid[wanted] else 0, division)

    def _nearest_side(self, which: int, step: Extents) -> int:
        """The value of the choice of a side with which a step is most like one of other sizes."""
        axes, values = self.sides[which], self.space.choices[which].values
        wanted, tiles = [step[a] for a in axes], [self.side(which, value) for value in values]

        def far(i: int) -> tuple[float, float]:
            own = [tiles[i][a] for a in axes]
            return apart(size(own), size(wanted)), sum(map(apart, own, wanted))

        return min(range(len(values)), key=far)

    def _working(self, step: Extents) -> np.ndarray:
        """With which divisions all cores have work, where tiles have this step."""
        if step not in self.working:
            counts = np.array([self.problem.tiles(a, step[a]) for a in self.cut], np.int64)
            self.working[step] = (-(-counts // -(-counts // self.grids)) == self.grids).all(axis=1)
        return self.working[step]

    def _looped(self, step: Extents) -> np.ndarray:
        """With which divisions it matters which loop is the inner one: a core has several tiles along rows and along
        columns, or does more to a tile before its inner loop."""
        if self.machine.fused:
            return np.ones(len(self.divisions), bool)
        counts = np.array([self.problem.tiles(a, step[a]) for a in self.cut], np.int64)
        several = np.asarray(-(-counts // self.grids) > 1)
        sides = (np.array([a in axes for a in self.cut], bool) for axes in (self.problem.m, self.problem.n))
        return np.all([several[:, side].any(axis=1) for side in sides], axis=0)

    # -- prices ------------------------------------------------------------------------------------------------

    def valid(self, plans: Plans) -> np.ndarray:
        return self.by_head(plans, self._able)

    def _able(self, head: Sequence[int]) -> np.ndarray:
        """With which divisions a plan is one: its cores all have work, and its inner loop matters."""
        step = self._step_of(head)
        if step is None or self._loads_of(head[:4]) is None:
            return np.zeros(len(self.divisions), bool)
        return self._working(step) & self._looped(step) if head[4] else self._working(step)

    def _step_of(self, head: Sequence[int]) -> Extents | None:
        """The step of a plan; None where it has no room."""
        rows, columns, depth = (c.values[i] for c, i in zip(self.space.choices[:3], head, strict=False))
        return self._step(rows, columns, depth)

    def _loads_of(self, head: Sequence[int]) -> tuple[Extents, Extents] | None:
        """The loads of a plan; None where there are none that may fit."""
        step = self._step_of(head)
        loads = None if step is None else self._loaded(step, *self.space.choices[3].values[head[3]])
        return loads if loads is not None and self._may_fit(loads) else None

    def price(self, plans: Plans) -> np.ndarray:
        found = np.full(len(plans), np.inf)
        heads, which = self.distinct_heads(plans)
        schedules = [self._schedule(self.space.values(head)) for head in heads.tolist()]
        for inner in self.space.choices[4].values:
            own = {i: s for i, s in enumerate(schedules) if s is not None and s.inner == inner}
            if not own:
                continue
            number = np.full(len(heads), -1)
            number[[*own]] = range(len(own))
            at = np.flatnonzero(number[which] >= 0)
            of, division = number[which[at]], plans[at, -1]
            cores, one = dict(zip(self.cut, self.grids[division].T, strict=True)), np.ones(len(at), np.int64)
            run = self.kernel.run_of(
                [self.kernel.tile_costs_of(s) for s in own.values()],
                of,
                [cores.get(a, one) for a in self.problem.out],
                inner,
                np.array([(s.l0c or 1) > 1 for s in own.values()])[of],
            )
            with np.errstate(invalid="ignore", divide="ignore"):
                price = run.price(self.machine)
                us = price.microseconds - (price.launch if self.joined else 0.0)
            working = np.array([self._working(s.step or ()) for s in own.values()])[of, division]
            found[at] = np.where(working, us, np.inf)
        return found

    def divides(self, plan: Sequence[int]) -> bool:
        return bool(self.valid(np.array([plan]))[0])

    def by_cores(self, box: Box) -> np.ndarray:
        """Microseconds that no plan of a box takes less than, for each of its divisions; none where no plan fits."""
        low, high = box
        step = self._step_of(low)  # the smallest one
        if step is None:
            return np.zeros(0)
        grids = self.grids[low[-1] : high[-1] + 1]
        if low[:3] != high[:3]:
            return self.bounds.of_steps(low[:3], high[:3], grids)
        heads = ((*low[:3], i) for i in range(low[3], high[3] + 1))
        loads = [found for head in heads if (found := self._loads_of(head)) is not None]
        if not loads:
            return np.zeros(0)
        if low[4] and not self._looped(step)[low[-1] : high[-1] + 1].any():
            return np.zeros(0)
        loops = self.space.choices[4].values[low[4] : high[4] + 1][: None if self.machine.fused else 1]
        return np.min([self.bounds.of_step(step, loads, inner, grids) for inner in loops], axis=0)

    @cached_property
    def bounds(self) -> ProductBounds:
        """What no plan takes less than."""
        return ProductBounds(self)

    def base(self, step: Extents, inner: str) -> TileCosts:
        """What tiles with a step cost, whatever their loads are."""
        if (step, inner) not in self.bases:
            only = self._of(step, (step, step), inner, self.divisions[0])
            self.bases[step, inner] = self.kernel.tile_costs_of(only)
        return self.bases[step, inner]

    def _may_fit(self, loads: tuple[Extents, Extents]) -> bool:
        """Whether there may be room in l1: a load is buffered once where it has all of k, and is for all tiles."""
        each = self.kernel.l1_bytes(*loads)
        once = [self.has_all(box) for box in loads]
        return sum(n * (2 - all_) for n, all_ in zip(each, once, strict=True)) <= self.machine.spaces["l1"].bytes

    def has_all(self, box: Extents) -> bool:
        """Whether a load has all of k."""
        return all(self.problem.extents[a] <= box[a] for a in self.problem.k)


def _divisions(extents: Sequence[int], cores: int) -> tuple[tuple[int, ...], ...]:
    """Numbers of cores along axes, of which there are no more than so many together."""
    found: list[tuple[int, ...]] = [()]
    for n in extents:
        found = [(*each, used) for each in found for used in range(1, min(n, cores // size(each)) + 1)]
    return tuple(found)


def _targets(extents: Sequence[int], most: int) -> tuple[int, ...]:
    """Lengths of a step along axes that are cut from the last one outwards, at most so many elements."""
    if not extents:
        return (1,)
    found = {*parts_of(extents[-1], FRACTAL, most)}
    inner = extents[-1]
    for n in reversed(extents[:-1]):
        if inner > most:
            break
        found |= {inner * each for each in parts_of(n) if inner * each <= most}
        inner *= n
    return tuple(sorted(found))
