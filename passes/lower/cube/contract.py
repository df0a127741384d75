"""Cube kernels: matrix products and convolutions, with their vector epilogue; `contraction_choice.py` says how each is
cut.

for each tile of (batch, m, n) of this core:
  for each piece of k that one load brings to l1:      load a, load b           MTE2
    for each mma step inside it:                       move a, move b           MTE1
                                                       acc += a x b             M
  store acc, or hand it to the vector cores for the epilogue                    FIX
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, integer_attr, ints, pack
from ....dialects.dtypes import size
from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import GmType, row_strides
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder, dense, gm_of, hand_back, may_repeat
from ..schedule import share
from .contraction_axes import Operand
from .cube_schedule import CubePlan
from .draining import Drain
from .product_plan import PlannedProduct
from .rows import ColumnRows


class ContractKernel(PlannedProduct):
    """Lowers one cube or mix fusion. `turn`: which of the shorter loads it is that one longer load covers."""

    turn: Expr

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        self.plan = CubePlan.of(self.completed(name, schedule))
        element = self.anchor.result if self.plain else self.drained
        return self._emit_kernel(name, self.plan, element_of(element))

    def _tiles(self, axis: int) -> int:
        """Tiles along an axis of the result."""
        return self.problem.tiles(axis, self.plan.l0[axis])

    def _handed(self, axis: int, position: Expr) -> Expr:
        """Where a tile lies along an axis of the workspace: where it does in the result."""
        return position

    def _handed_extent(self, axis: int) -> int:
        """Elements along an axis of the workspace: those of the result."""
        return self.extents[axis]

    def _emit_kernel(self, name: str, plan: CubePlan, element: Attribute) -> ops.KernelOp:
        order = [*self.b_axes, *self.m_axes, *self.n_axes]
        split = {a: share(self._tiles(a), plan.grid[a]) for a in order}
        on_grid = [a for a in order if may_repeat(split[a][0])]
        lead = [split[a][0] for a in on_grid]
        workspaces = self._handed_operands(lead, plan)
        if not self.plain and not self.machine.fused:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            workspaces.append(dense([self._handed_extent(a) for a in kept] or [1], element))
        builder = KernelBuilder(
            self.machine,
            "mix" if workspaces or not self.plain else "cube",
            lead,
            [gm_of(a) for a in self.inputs],
            [gm_of(v) for v in self.yielded],
            workspaces,
            plan.slots,
        )
        builder.location = self.fusion.location
        start = {
            a: (Expr.of(builder.coordinates[on_grid.index(a)]) if a in on_grid else Expr())
            * (split[a][1] * self.problem.apart(a, plan.l0[a]))
            + self.problem.first(a)
            for a in self.walk(plan.inner)
        }
        loops = self.tile_loops(plan)
        self._emit_cube_section(builder, plan, start, loops, element)
        if not self.plain and not self.machine.fused:
            self._emit_vector_section(builder, plan, start, loops)
        return builder.finish(name)

    def _handed_operands(self, lead: Sequence[int], plan: CubePlan) -> list[GmType]:
        """The workspaces of operands that vector cores make, for so many blocks of cores along each axis of the grid:
        none."""
        del lead, plan
        return []

    @contextmanager
    def _section(self, b: KernelBuilder) -> Iterator[None]:
        """The section of the products."""
        with b.section("fused" if self.machine.fused else "cube"):
            yield

    def _emit_cube_section(
        self,
        b: KernelBuilder,
        plan: CubePlan,
        start: dict[int, Expr],
        loops: Sequence[tuple[int, int]],
        element: Attribute,
    ) -> None:
        """The products of all tiles in `loops` (axis, trips)."""
        once, resident = self.loaded_once(plan, [axis for axis, _ in loops]), plan.resident(self.problem)
        within: dict[int, Expr] = {}
        self.turn = Expr()
        with self._section(b), ExitStack() as stack:
            position = dict(start)
            loaded: list[Sequence[SSAValue] | None] = [None, None]
            rows = ColumnRows(self.drain.rows if self.drain else {}, self.n_axes, self.extents, self.new_axis)
            rows.begin(b, start, {a: plan.l0[a] * dict(loops).get(a, 1) for a in self.n_axes})
            known = max((i + 1 for i, (axis, _) in enumerate(loops) if axis in self.n_axes), default=0)
            epilogue = self._begin_epilogue(b, plan, position, loops, None) if self.machine.fused else None
            batches = sum(axis in self.b_axes for axis, _ in loops)  # the outermost loops
            for i, (axis, trips) in enumerate(loops):
                if i == batches:
                    self._read_places(b, position)
                if epilogue is not None:
                    epilogue.before(i)
                if i == known:
                    self.rows = rows.take(b, position, plan.l0)
                if once is not None and once[0] == i:
                    side = once[1]
                    loaded[side] = self._load_l1(b, (plan.lhs, plan.rhs)[side], position, self.operands[side])
                index = stack.enter_context(b.loop(trips))
                position[axis] = position[axis] + index * self.problem.apart(axis, plan.l0[axis])
                if axis in resident:
                    within[axis] = index * plan.l0[axis]
                if epilogue is not None:
                    epilogue.enter(i, index)
            if batches == len(loops):
                self._read_places(b, position)
            if known == len(loops):
                self.rows = rows.take(b, position, plan.l0)
            self.acc = self._accumulate(b, plan, position, loaded, begin=within)
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

    def nothing(self, b: KernelBuilder, rows: int, cols: int) -> SSAValue:
        """An accumulator without sums."""
        return b.add(ops.ZeroOp, [], [TileType.of([rows, cols], self.acc_type, "l0c")]).results[0]

    def _accumulate(
        self,
        b: KernelBuilder,
        plan: CubePlan,
        position: dict[int, Expr],
        loaded: Sequence[Sequence[SSAValue] | None],
        summed: Mapping[int, int] | None = None,
        begin: Mapping[int, Expr] | None = None,
        onto: tuple[SSAValue, Expr] | None = None,
        begin_right: Mapping[int, Expr] | None = None,
        moved: SSAValue | None = None,
    ) -> SSAValue:
        """The accumulator of one tile; `loaded` are the parts of lhs and rhs in l1 where they were loaded for several
        tiles. summed: how much of each k axis is summed over, from its position on, where that is not all. begin:
        where the tile begins in what was loaded, along axes along which that is longer; begin_right: in what was loaded
        of rhs, where that alone is longer. moved: lhs, where it is in l0a already, in one step. onto: an accumulator to
        go on with, and the number of steps before, which is 0 where what it holds is not used.

        Where a load of one operand covers more steps than the other's, the shorter one has a loop inside it."""
        rows, cols = (size([plan.l0[a] for a in axes]) for axes in (self.m_axes, self.n_axes))
        start, step = (self.nothing(b, rows, cols), Expr()) if onto is None else onto
        carried: list[SSAValue] = [start]
        position = dict(position)
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
                whole = self.extents[a] if summed is None else summed[a]
                index = open_loop(-(-whole // long[a]))
                position[a] = position.get(a, Expr()) + index * long[a]
            tiles = list(loaded)
            inner: list[dict[int, Expr]] = [dict(begin or {}), {**(begin or {}), **(begin_right or {})}]
            self.turn = Expr()
            for now in (long, short):
                if now is short and short != long:
                    for a in self.k_axes:
                        index = self.turn = open_loop(-(-long[a] // short[a]))
                        position[a] = position[a] + index * short[a]
                        for own, offsets in zip(extents, inner, strict=True):
                            offsets[a] = index * short[a] if own != short else Expr()
                for i in self.loaded_first():
                    if tiles[i] is None and extents[i] == now:
                        tiles[i] = self._load_l1(b, extents[i], position, self.operands[i])
            for a in self.k_axes:
                index = open_loop(-(-short[a] // plan.l0[a]))
                for offsets in inner:
                    offsets[a] = offsets.get(a, Expr()) + index * plan.l0[a]
            k = size([plan.l0[a] for a in self.k_axes])
            a_tile, b_tile = tiles
            assert a_tile is not None and b_tile is not None
            lhs = moved
            if lhs is None:
                (lhs,) = self._move(b, plan, inner[0], self.operands[0], a_tile, "l0a", [rows, k])
            rhs, *index = self._move(b, plan, inner[1], self.operands[1], b_tile, "l0b", [k, cols])
            indices, offsets = pack([step])
            bias = [self.rows["bt"]] if "bt" in self.rows else []
            operands = [lhs, rhs, carried[0], *index, *bias, *indices]
            carried[0] = b.add(ops.MmaOp, operands, [start.type], offsets=offsets).results[0]
            first = stacks[0][0] if stacks else carried
        return first[0]

    def _read_places(self, b: KernelBuilder, position: Mapping[int, Expr]) -> None:
        """Reads where the slices begin that operands are, once it is known which product of the batch it is."""
        self.begins = {}
        for d in (d for o in self.operands for d in o.dims):
            if d.begins is None:
                continue
            at = [
                sum((position.get(a, Expr()) * c for a, c in e.terms), Expr(e.constant)) for e in d.begins.at
            ]
            indices, offsets = pack(at)
            view = b.view(b.gm(d.begins.source), d.begins.shape, row_strides(d.begins.shape))
            found = b.add(
                ops.ScalarOp,
                [view, *indices],
                [IndexType()],
                offsets=offsets,
                low=integer_attr(0),
                high=integer_attr(d.begins.highest),
            )
            self.begins[d] = Expr.of(found.results[0])

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
            at = self.begins.get(d, Expr()) + d.constant
            for a, c in (d.terms | d.placed_by).items():
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
                if d.strided:
                    at, count, step = inner.get(a, Expr()) * c, plan.l0[a], c
                elif len(d.terms) == 1:
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
        windowed = any(w != 1 for w in window)
        for i, d in enumerate(o.dims[:-1]):
            if windowed and not o.transpose and all(self.role[a] == "k" for a in d.terms):
                # no result moves along it: its sums stand among those of windows, in the order of their axes
                window[i], window_steps[i], sizes[i], steps[i] = sizes[i], steps[i], 1, 1
        indices, rows = pack(offsets)
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
        extents = {a: self.extents[a] if self.plain else self._handed_extent(a) for a in position}
        offset = 0
        if self.plain:
            (stored,) = self.stored
            offset = stored.offset
            strides = self._out_strides(stored.value, stored.strides)
            by_axis = {self.new_axis[a]: s for a, s in sorted(strides.items()) if a in self.new_axis}
            target = b.output(0)
        else:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            by_axis = dict(zip(kept, row_strides([extents[a] for a in kept]), strict=True))
            target = b.workspace(0)
        dims = [*self.b_axes, *self.m_axes, *self.n_axes]
        view = b.view(target, [extents[a] for a in dims] or [1], [by_axis[a] for a in dims] or [1], offset)
        offsets = [position[a] if self.plain else self._handed(a, position[a]) for a in dims] or [Expr()]
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
