"""Cube kernels: matrix products and convolutions, with their vector epilogue.

for each tile of (batch, m, n) of this core:
  for each piece of k that one load brings to l1:      load a, load b           MTE2
    for each mma step inside it:                       move a, move b           MTE1
                                                       acc += a x b             M
  store acc, or hand it to the vector cores for the epilogue                    FIX
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property

from xdsl.ir import Attribute, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, integer_attr, ints, pack
from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.graph import CubeSchedule, FusionOp
from ...dialects.graph.interface import element_of
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.types import GmType, padded_bytes, row_strides
from ...dialects.tile import TileType
from ...machine import Machine
from ..errors import PassError
from .bound import CubeCost, CubeProblem
from .builder import KernelBuilder, dense, gm_of, hand_back
from .contraction_axes import Operand
from .cube_schedule import CubePlan, Refused, cube_schedules, refusal
from .draining import Drain, PartialDrain, drain_of, has_room, partial_drain_of
from .epilogue import EpilogueSteps
from .rows import ColumnRows
from .scheduled import ScheduledKernel, as_cube, cannot_obey

CLEARLY_BETTER = 0.9
"""The share of the best schedule's bound below which another one is better beyond the error of the bound."""


class ContractKernel(EpilogueSteps, ScheduledKernel):
    """Lowers one cube or mix fusion."""

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
            self.drained = self.yielded[0]
            self.problem = self._problem(self.drained)
        elif (partial := self._partial_drain_asked()) is not None:
            self.drain, self.drained = partial.drain, partial.value
            self.members = [op for op in self.members if op not in partial.ops]
            self.problem = self.with_epilogue = self._problem(self.drained)
        self.rows: dict[str, SSAValue] = {}
        """What there is for the columns of the tile that is built, by memory space."""
        self.costs: dict[tuple, CubeCost] = {}
        """What a step and its loads cost, as far as known."""
        element = self.anchor.result if self.drain is not None and not self.members else self.drained
        self.made[self.drained] = self._accumulator(element_of(element))
        self.build_steps()
        self.plain = len(self.steps) == 2 and not machine.fused

    # -- choice -------------------------------------------------------------------------------------------------

    def candidates(self, name: str) -> Iterator[CubeSchedule]:
        tried = self._tried(name)
        if self.drain is None:
            yield from tried
            return
        # The drain takes less time than an epilogue with any schedule, with another one not always where the bound says
        # so by little.
        tried = list(tried)
        usual = min(tried, key=lambda schedule: self._bound(schedule, self.with_epilogue))
        limit = self.bound(usual) * CLEARLY_BETTER
        yield from [s for s in tried if s is usual or self.bound(s) < limit]

    def _tried(self, name: str) -> Iterator[CubeSchedule]:
        axes = tuple(map(tuple, self.merged))
        found = False
        try:
            for schedule in cube_schedules(
                self.problem, axes, self.machine, self._l1_bytes, self.asked, self._inner_loops
            ):
                if self._rows_fit(schedule):
                    found = True
                    yield schedule
        except Refused as error:
            raise cannot_obey(name, str(error)) from None
        if not found:
            tile = [n if a in self.problem.windows else 1 for a, n in enumerate(self.extents)]
            raise PassError(
                f"{describe(self.anchor)}: a load of both operands (twice buffered, "
                f"{2 * self._l1_bytes(tile, tile)} bytes for one output and whole windows) does not fit l1 of "
                f"{self.machine.name}"
            )

    @property
    def _inner_loops(self) -> tuple[str, ...]:
        """Which loop over tiles may be the inner one: that over rows, and where L2 would not have them for the next
        columns, that over columns."""
        crowded = self._operand_bytes[0] + self._epilogue_traffic > self.machine.l2_bytes
        return ("m", "n") if crowded else ("m",)

    def completed(self, name: str, schedule: Schedule) -> CubeSchedule:
        """The same with the tile of its epilogue."""
        schedule = as_cube(name, schedule)
        plan = CubePlan.of(schedule)
        reason = refusal(plan, self.problem, self.machine, self._l1_bytes, self.asked)
        if reason is not None:
            raise cannot_obey(name, reason)
        if not self.has_epilogue or plan.epilogue is not None:
            return schedule
        return replace(schedule, epilogue=tuple(self._epilogue_tile(plan)))

    def check(self, name: str, schedule: Schedule) -> None:
        plan = CubePlan.of(self.completed(name, schedule))
        if plan.epilogue is not None:
            reason = self._epilogue_refusal(plan)
            if reason is not None:
                raise cannot_obey(name, reason)

    def bound(self, schedule: Schedule) -> float:
        return self._bound(schedule, self.problem)

    def _bound(self, schedule: Schedule, problem: CubeProblem) -> float:
        plan = as_cube("", schedule)
        step, lhs, rhs, grid = plan.step, plan.lhs, plan.rhs, plan.grid
        assert step is not None and lhs is not None and rhs is not None and grid is not None
        loads = step, lhs, rhs
        key = (*loads, plan.inner, problem is self.problem)
        cost = self.costs.get(key)
        if cost is None:
            fused = self._fused_epilogue(CubePlan.of(plan))
            cost = CubeCost.of(problem, *loads, self.machine, self._loads, self._whole_bytes, fused)
            self.costs[key] = cost
        points, counts = size(grid), problem.counts(step)
        cores = min(points, self.machine.cube_cores)
        own = {a: -(-n // grid[a]) for n, a in zip(counts, problem.out, strict=True)}
        tiles = size([*own.values()]) * -(-points // cores)
        again = self._loaded_again(own, plan.inner or "m")
        return cost.microseconds(cores, tiles, (plan.l0c or 1) > 1, self.machine, again)

    def _loaded_again(self, own: Mapping[int, int], inner: str) -> float:
        """Bytes of the operand that is read once for each tile of the loop around `inner`, beyond the first time, where
        L2 has no room for it beside what its epilogue moves meanwhile; `own`: a core's tiles along each axis of the
        result."""
        swept = self._operand_bytes[0 if inner == "m" else 1]
        sweeps = size([own[a] for a in (self.n_axes if inner == "m" else self.m_axes)])
        crowded = swept + self._epilogue_traffic / sweeps > self.machine.l2_bytes
        return swept * (sweeps - 1) if crowded else 0.0

    @cached_property
    def _epilogue_traffic(self) -> float:
        """Bytes that the epilogue loads and stores."""
        views = [step.view for step in self.steps if step.view is not None]
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

    def _rows_fit(self, schedule: CubeSchedule) -> bool:
        """Whether there is room for what the columns of a tile have beside the cube."""
        assert schedule.step is not None
        columns = size([schedule.step[a] for a in self.n_axes])
        return self.drain is None or has_room(self.drain, columns, self.machine)

    @property
    def has_epilogue(self) -> bool:
        """Whether vector cores work on what the cube computes."""
        return self.machine.fused or not self.plain

    def _problem(self, stored: SSAValue) -> CubeProblem:
        """The contraction, and its members on the vector cores; what the accumulator is stored as."""
        lhs = self.operands[0]
        slid = [d for d in lhs.dims if any(self.role[a] == "m" for a in d.terms) and len(d.terms) > 1]
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
            windows=frozenset(a for d in slid for a in d.terms if self.role[a] == "k"),
            sparse=self.expansion is not None,
            dtype=kind,
            stored=itemsize(element_of(stored)),
            epilogue=each,
            epilogue_head=head,
        )

    def _l1_bytes(self, lhs: Sequence[int], rhs: Sequence[int]) -> int:
        tiles = zip(self.operands, (lhs, rhs), strict=True)
        return sum(padded_bytes(p.l1_sizes(tile), p.element) for o, tile in tiles for p in o.parts)

    def _loads(self, box: Sequence[int]) -> list[tuple[float, float]]:
        """(MTE2 cycles where all is in L2, bytes) to load each operand for a box of the axes."""
        return [
            o.load_cost(views, box, self.machine) for o, views in zip(self.operands, self.views, strict=True)
        ]

    @cached_property
    def _operand_bytes(self) -> list[float]:
        """Bytes of lhs and of rhs."""
        return [bytes_ for _, bytes_ in self._loads(self.extents)]

    @property
    def _whole_bytes(self) -> float:
        """Bytes of both operands."""
        return sum(self._operand_bytes)

    def _tiles(self, axis: int) -> int:
        """Tiles along an axis of the result."""
        return -(-self.extents[axis] // self.plan.l0[axis])

    # -- build --------------------------------------------------------------------------------------------------

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        self.plan = CubePlan.of(self.completed(name, schedule))
        element = self.anchor.result if self.plain else self.drained
        return self._emit_kernel(name, self.plan, element_of(element))

    def _emit_kernel(self, name: str, plan: CubePlan, element: Attribute) -> ops.KernelOp:
        inner_n = plan.inner == "n"
        outer = [*self.b_axes, *(self.m_axes if inner_n else self.n_axes)]
        outer += self.n_axes if inner_n else self.m_axes
        order = [*self.b_axes, *self.m_axes, *self.n_axes]
        split = {a: (n, -(-self._tiles(a) // n)) for a in order for n in (plan.grid[a],)}
        on_grid = [a for a in order if split[a][0] > 1]
        workspaces: list[GmType] = []
        if not self.plain and not self.machine.fused:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            workspaces.append(dense([self.extents[a] for a in kept] or [1], element))
        builder = KernelBuilder(
            self.machine,
            "cube" if self.plain else "mix",
            [split[a][0] for a in on_grid],
            [gm_of(a) for a in self.block.args],
            [gm_of(v) for v in self.yielded],
            workspaces,
            plan.slots,
        )
        builder.location = self.fusion.location
        start = {
            a: (Expr.of(builder.coordinates[on_grid.index(a)]) if a in on_grid else Expr())
            * (split[a][1] * plan.l0[a])
            for a in outer
        }
        loops = [(a, split[a][1]) for a in outer if split[a][1] > 1]
        self._emit_cube_section(builder, plan, start, loops, element)
        if not self.plain and not self.machine.fused:
            self._emit_vector_section(builder, plan, start, loops)
        return builder.finish(name)

    def _emit_cube_section(
        self,
        b: KernelBuilder,
        plan: CubePlan,
        start: dict[int, Expr],
        loops: Sequence[tuple[int, int]],
        element: Attribute,
    ) -> None:
        """The products of all tiles in `loops` (axis, trips). An operand that is one load, and the same for all tiles
        of the loops further in, is loaded before those."""
        whole = [all(load[a] >= self.extents[a] for a in self.k_axes) for load in (plan.lhs, plan.rhs)]
        with b.section("fused" if self.machine.fused else "cube"), ExitStack() as stack:
            position = dict(start)
            loaded: list[Sequence[SSAValue] | None] = [None, None]
            rows = ColumnRows(self.drain.rows if self.drain else {}, self.n_axes, self.extents, self.new_axis)
            rows.begin(b, start, {a: plan.l0[a] * dict(loops).get(a, 1) for a in self.n_axes})
            known = max((i + 1 for i, (axis, _) in enumerate(loops) if axis in self.n_axes), default=0)
            epilogue = self._begin_epilogue(b, plan, position, loops, None) if self.machine.fused else None
            for i, (axis, trips) in enumerate(loops):
                if epilogue is not None:
                    epilogue.before(i)
                if i == known:
                    self.rows = rows.take(b, position, plan.l0)
                rest = {a for a, _ in loops[i:]}
                if whole[1] and loaded == [None, None] and rest <= set(self.m_axes):
                    loaded[1] = self._load_l1(b, plan.rhs, position, self.operands[1])
                elif whole[0] and loaded == [None, None] and rest <= set(self.n_axes):
                    loaded[0] = self._load_l1(b, plan.lhs, position, self.operands[0])
                index = stack.enter_context(b.loop(trips))
                position[axis] = position[axis] + index * plan.l0[axis]
                if epilogue is not None:
                    epilogue.enter(i, index)
            if known == len(loops):
                self.rows = rows.take(b, position, plan.l0)
            self.acc = self._accumulate(b, plan, position, loaded)
            if epilogue is not None:
                epilogue.rest(len(loops))
            else:
                self._store_acc(b, plan, position, element)

    def _emit_vector_section(
        self, b: KernelBuilder, plan: CubePlan, start: dict[int, Expr], loops: Sequence[tuple[int, int]]
    ) -> None:
        """The epilogue on the vector cores beside the cube; each has a part of every tile where one axis can be cut."""
        axis, units = self._units(plan)
        with b.section("vector", units) as unit:
            part = (axis, unit, units) if axis is not None else None
            self._begin_epilogue(b, plan, start, loops, part).rest(0)

    def _accumulate(
        self,
        b: KernelBuilder,
        plan: CubePlan,
        position: dict[int, Expr],
        loaded: Sequence[Sequence[SSAValue] | None],
    ) -> SSAValue:
        """The accumulator of one tile; `loaded` are the parts of lhs and rhs in l1 where they were loaded for several
        tiles.

        Where a load of one operand covers more steps than the other's, the shorter one has a loop inside it."""
        rows, cols = (size([plan.l0[a] for a in axes]) for axes in (self.m_axes, self.n_axes))
        acc = TileType.of([rows, cols], self.acc_type, "l0c")
        carried: list[SSAValue] = [b.add(ops.ZeroOp, [], [acc]).results[0]]
        position = dict(position)
        step = Expr()
        with ExitStack() as stack:
            stacks: list[tuple[list[SSAValue], list[SSAValue]]] = []

            def open_loop(trips: int) -> Expr:
                nonlocal carried, step
                if trips == 1:
                    return Expr()
                outside, carried = carried, list(carried)
                stacks.append((outside, carried))
                stack.callback(hand_back, outside, carried)
                index = stack.enter_context(b.loop(trips, carried))
                step = step + index
                return index

            long, short = plan.l1, plan.short
            extents = (plan.lhs, plan.rhs)
            for a in self.k_axes:
                index = open_loop(-(-self.extents[a] // long[a]))
                position[a] = index * long[a]
            tiles = list(loaded)
            inner: list[dict[int, Expr]] = [{}, {}]
            for now in (long, short):
                if now is short and short != long:
                    for a in self.k_axes:
                        index = open_loop(-(-long[a] // short[a]))
                        position[a] = position[a] + index * short[a]
                        for own, offsets in zip(extents, inner, strict=True):
                            offsets[a] = index * short[a] if own != short else Expr()
                for i, own in enumerate(extents):
                    if tiles[i] is None and own == now:
                        tiles[i] = self._load_l1(b, own, position, self.operands[i])
            for a in self.k_axes:
                index = open_loop(-(-short[a] // plan.l0[a]))
                for offsets in inner:
                    offsets[a] = offsets.get(a, Expr()) + index * plan.l0[a]
            k = size([plan.l0[a] for a in self.k_axes])
            a_tile, b_tile = tiles
            assert a_tile is not None and b_tile is not None
            (lhs,) = self._move(b, plan, inner[0], self.operands[0], a_tile, "l0a", [rows, k])
            rhs, *index = self._move(b, plan, inner[1], self.operands[1], b_tile, "l0b", [k, cols])
            indices, offsets = pack([step])
            bias = [self.rows["bt"]] if "bt" in self.rows else []
            operands = [lhs, rhs, carried[0], *index, *bias, *indices]
            carried[0] = b.add(ops.MmaOp, operands, [acc], offsets=offsets).results[0]
            first = stacks[0][0] if stacks else carried
        return first[0]

    def _load_l1(
        self, b: KernelBuilder, extents: Sequence[int], position: dict[int, Expr], o: Operand
    ) -> list[SSAValue]:
        """The parts of an operand in l1."""
        return [self._load_part(b, extents, position, part) for part in o.parts]

    def _load_part(
        self, b: KernelBuilder, extents: Sequence[int], position: dict[int, Expr], o: Operand
    ) -> SSAValue:
        view = b.view(b.gm(o.source), [d.extent for d in o.dims], [d.stride for d in o.dims], o.offset)
        offsets = []
        for d in o.dims:
            at = Expr(d.constant)
            for a, c in d.terms.items():
                at = at + d.shared(position.get(a, Expr())) * c
            offsets.append(at)
        sizes = o.l1_sizes(extents)
        return b.load(view, offsets, sizes, TileType.of(sizes, o.element, "l1"), o.l1_steps())

    def _move(
        self,
        b: KernelBuilder,
        plan: CubePlan,
        inner: dict[int, Expr],
        o: Operand,
        tiles: Sequence[SSAValue],
        space: str,
        shape: list[int],
    ) -> list[SSAValue]:
        """The parts of an operand in l0a or l0b, as matrices of what they stand for in `shape`."""
        found = []
        for part, tile in zip(o.parts, tiles, strict=True):
            each = max(d.each for d in part.dims)
            found.append(self._move_part(b, plan, inner, part, tile, space, [shape[0] // each, shape[1]]))
        return found

    def _move_part(
        self,
        b: KernelBuilder,
        plan: CubePlan,
        inner: dict[int, Expr],
        o: Operand,
        tile: SSAValue,
        space: str,
        shape: list[int],
    ) -> SSAValue:
        offsets, sizes, steps, window, window_steps = [], [], [], [], []
        for d in o.dims:
            at, count, step, repeat, repeat_step = Expr(), 1, 1, 1, 1
            for a, c in d.terms.items():
                if len(d.terms) == 1:
                    at, count = d.shared(inner.get(a, Expr())), plan.l0[a] // d.each
                elif self.role[a] == "b":
                    continue  # the load is at its place
                elif self.role[a] == "k" and o.transpose:  # beside a batch axis only: no window
                    at, count, step = inner.get(a, Expr()) * c, plan.l0[a], c
                elif self.role[a] == "k":
                    at, repeat, repeat_step = at + inner.get(a, Expr()) * c, plan.l0[a], c
                else:
                    count, step = plan.l0[a], c
            offsets.append(at)
            sizes.append(count)
            steps.append(step)
            window.append(repeat)
            window_steps.append(repeat_step)
        indices, rows = pack(offsets)
        windowed = any(w != 1 for w in window)
        return b.add(
            ops.MoveOp,
            [tile, *indices],
            [TileType.of(shape, o.element, space)],
            offsets=rows,
            sizes=ints(sizes),
            steps=ints(steps) if any(s != 1 for s in steps) else None,
            window=ints(window) if windowed else None,
            window_steps=ints(window_steps) if windowed else None,
            transpose=integer_attr(1) if o.transpose else None,
        ).results[0]

    def _store_acc(
        self, b: KernelBuilder, plan: CubePlan, position: dict[int, Expr], element: Attribute
    ) -> None:
        if self.plain:
            strides = self._out_strides(self.yielded[0])
            by_axis = {self.new_axis[a]: s for a, s in sorted(strides.items()) if a in self.new_axis}
            target = b.output(0)
        else:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            by_axis = dict(zip(kept, row_strides([self.extents[a] for a in kept]), strict=True))
            target = b.workspace(0)
        dims = [*self.b_axes, *self.m_axes, *self.n_axes]
        view = b.view(target, [self.extents[a] for a in dims] or [1], [by_axis[a] for a in dims] or [1])
        offsets = [position[a] for a in dims] or [Expr()]
        drain = self.drain or Drain()
        sizes = [plan.l0[a] for a in dims] or [1]
        b.store(
            self.acc,
            view,
            offsets,
            sizes,
            factor=drain.number,
            zero=drain.zero,
            relu=drain.relu,
            scales=self.rows.get("fb"),
        )
