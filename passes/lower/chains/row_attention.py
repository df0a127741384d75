"""Attention of few rows in one kernel of the vector cores: a step of decoding.

for each tile of rows of this core:                                load q, repeat it over a piece of keys
  for each piece of its keys:                                      load k, v
    x = f(q k);  m' = max(m, max(x));  e = exp(x - m')
    l = l exp(m - m') + sum(e);  o = o exp(m - m') + e v
  result = o / l

A cube takes sixteen rows at once, and few rows leave it waiting for keys and values, whose tiles it would hand to the
vector cores through device memory. Where there are fewer rows than cores, the keys are cut into parts on cores of their
own, each of which gives m, l and o, and a kernel behind it combines them (flash decoding: Dao et al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, describe, ints, to_ints
from ....dialects.dtypes import itemsize, size, tensor
from ....dialects.graph import FusionOp, RowAttentionSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.occupancy import Occupancy
from ....dialects.npu.types import GmType, Pipe
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder, dense, gm_of, may_repeat, number
from ....kernels.emit import Emitter
from ....kernels.graph import StageGraph
from ....kernels.plan import Brought, Cut, PlannedAxis, PlannedGraph, StagePlace, cuts_of
from ....kernels.price import Price
from ....kernels.product import grids
from ....kernels.stage import Apply, Ref, Stage
from ....kernels.vector_cost import computing, copying
from ....machine import Machine
from ...errors import TooLarge
from ...fusion.long_rows import UB_FRACTION
from ..schedule import share
from ..scheduled import ScheduledKernel, as_row_attention, cannot_obey
from .attention import LOWEST
from .attention_parts import attention_in, result_dims, result_strides
from .row_attention_parts import WEIGHTS, WIDE, score_stages, value_stages

KEYS = (256, 192, 128, 96, 64, 56, 48, 40, 32, 24, 16, 8)
"""Keys of a tile that are tried."""

PARTS = (2, 4, 8, 16)
"""Parts of the keys that are tried: a kernel behind them reads all their results."""

COLUMNS = 3
"""Columns of a piece's keys that are held at once: scores, exponentials, and what is made of them."""


STEPS_BESIDE = 12
"""Instructions of a piece on a number for each row or on a row of the result: they take little but their start."""


@dataclass
class _PieceCost:
    """Cycles of a piece: of its loads from HBM, with their bytes, and of the vector unit; `head`: before the first."""

    loading: float = 0.0
    bytes: float = 0.0
    working: float = 0.0
    head: float = 0.0


class RowAttentionKernel(ScheduledKernel):
    """Lowers attention of few rows. `outer` are the axes of its tiles, `row` the longest one that keys do not have."""

    s: RowAttentionSchedule
    """The schedule that is built."""
    b: KernelBuilder
    weights: SSAValue
    """The exponentials of the piece that is built."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: RowAttentionSchedule):
        self.fusion, self.machine, self.asked = fusion, machine, asked
        at = self.at = attention_in(fusion, machine)
        op, extents = at.scores, shape_of(at.scores.result)
        batch, (left, _) = len(to_ints(op.lhs_batch)), op.free_dims()
        order = result_dims(op, at.keys < batch + len(left))
        self.outer = [a for a in order if extents[a] != 1 and a != at.keys]
        self.row = max((a for a in self.outer if a >= batch), key=lambda a: extents[a], default=None)
        self.extents: Mapping[int, int] = dict(enumerate([*extents, at.domain[-1]]))
        self.keys = extents[at.keys]
        self.costs: dict[tuple[int, int], _PieceCost] = {}
        self.held: dict[tuple[int, int, int], int] = {}
        self.scores = score_stages(fusion, at, self.outer, machine)
        self.values = value_stages(fusion, at, self.outer, machine)

    # -- choice ------------------------------------------------------------------------------------------------

    def candidates(self, name: str) -> Iterator[RowAttentionSchedule]:
        asked, found = self.asked, False
        longest = self.extents[self.row] if self.row is not None else 1
        for parts in [asked.split_keys] if asked.split_keys else (None, *self._parts_tried()):
            most = min(asked.cores or self.machine.vector_cores, self.machine.vector_cores) // (parts or 1)
            for rows in [asked.rows] if asked.rows else sorted({1, longest}, reverse=True):
                for keys in [asked.keys] if asked.keys else self._keys_tried(rows, parts):
                    first = RowAttentionSchedule(rows, keys, None, parts, asked.ub or 2, asked.cores)
                    tried = [asked.grid] if asked.grid else grids(self._counts(first), max(most, 1))
                    for grid in tried:
                        schedule = replace(first, grid=tuple(grid))
                        if self._refusal(schedule) is None:
                            found = True
                            yield schedule
        if not found:
            ones = (1,) * len(self.outer)
            free = RowAttentionSchedule(1, KEYS[-1], ones, ub=2)
            pinned = replace(free, **asked.chosen())
            reason = self._refusal(pinned)
            if asked.chosen() and reason is not None:
                raise cannot_obey(name, reason)
            raise TooLarge(f"{describe(self.at.product)}: {KEYS[-1]} keys do not fit on chip")

    def _parts_tried(self) -> list[int]:
        """Numbers of equal parts of the keys that may give work to more cores."""
        if self.asked.chosen():  # what is pinned is for one kernel
            return []
        fewest = KEYS[-1]
        return [n for n in PARTS if self.keys % n == 0 and self.keys >= n * fewest]

    def _keys_tried(self, rows: int, parts: int | None) -> list[int]:
        """The longest piece that fits, and the longest one of which nothing is left over."""
        ones = (1,) * len(self.outer)
        room = self.machine.spaces["ub"].bytes // (3 * 4 * rows * max(self.scores.last, self.values.last))
        most = min(
            max(self.keys // (parts or 1), KEYS[-1]), max(room, KEYS[-1])
        )  # three tiles are held at once
        fitting = (
            n
            for n in KEYS
            if n <= most
            and self._refusal(RowAttentionSchedule(rows, n, ones, parts, self.asked.ub or 2)) is None
        )
        first = next(fitting, None)
        even = next((n for n in fitting if (self.keys // (parts or 1)) % n == 0), None)
        return [n for n in (first, even) if n is not None]

    def _counts(self, s: RowAttentionSchedule) -> list[int]:
        """Tiles along each axis of the result but the last."""
        return [
            -(-self.extents[a] // (s.rows or 1)) if a == self.row else self.extents[a] for a in self.outer
        ]

    def _refusal(self, s: RowAttentionSchedule) -> str | None:
        """Why a complete schedule cannot be obeyed, as the rest of a sentence."""
        assert s.rows and s.keys and s.grid is not None and s.ub
        longest = self.extents[self.row] if self.row is not None else 1
        if s.rows not in (1, longest):
            return f"a tile has 1 row or all {longest}, not {s.rows}"
        if s.split_keys is not None and (s.split_keys < 2 or self.keys % s.split_keys):
            return f"split_keys={s.split_keys} does not cut {self.keys} keys into equal parts"
        if len(s.grid) != len(self.outer):
            return f"its result has {len(self.outer)} axes of tiles, and the grid {len(s.grid)}"
        cores = size(s.grid) * (s.split_keys or 1)
        if cores > self.machine.vector_cores:
            there = f"{self.machine.vector_cores} vector cores of {self.machine.name}"
            return f"a grid of {cores} is more than the {there}"
        for a, n, tiles in zip(self.outer, s.grid, self._counts(s), strict=True):
            if share(tiles, n)[0] != n:
                return f"axis {a} of {tiles} tiles cannot be split over {n} cores"
        need, room = self._bytes(s), self.machine.spaces["ub"].bytes
        if need > room * UB_FRACTION:
            return f"a tile of {s.rows} rows and {s.keys} keys takes {need} bytes of ub, of {room} there are"
        return None

    def _part(self, s: RowAttentionSchedule) -> int:
        """The keys of a part."""
        return self.keys // (s.split_keys or 1)

    def _tiles(self, s: RowAttentionSchedule, keys: int | None = None) -> tuple[list[int], list[int]]:
        """Extents of the tiles of both halves along their axes, with so many keys."""
        lead = [s.rows or 1 if a == self.row else 1 for a in self.outer]
        piece = keys or min(s.keys or 1, self._part(s))
        return [*lead, piece, self.scores.last], [*lead, piece, self.values.last]

    def _bytes(self, s: RowAttentionSchedule) -> int:
        """Bytes of ub: tiles of both halves, once more for the loads of what is left behind the last whole piece,
        columns of a piece, and what is carried."""
        first, second = self._tiles(s)
        rows, keys, slots = s.rows or 1, first[-2], s.ub or 2
        rest, largest = self._part(s) % keys, 4 * max(size(first), size(second))
        loads = sum(
            slots * half.last * itemsize(half.loaded) * (keys + rest) for half in (self.scores, self.values)
        )
        # columns may lie where the other half's tiles would, which then lie behind them
        held = self._held(first, second, slots) + largest
        return loads + held + rows * (COLUMNS * keys * 32 + 3 * second[-1] * 4 + 8 * 32)

    def _held(self, first: Sequence[int], second: Sequence[int], slots: int) -> int:
        """Bytes of what the halves hold at once but for what they load for each piece."""
        key = size(first[:-2]), first[-2], slots
        if key not in self.held:
            found = 0
            for half, tile in ((self.scores, first), (self.values, second)):
                loaded = slots * size(tile[-2:]) * itemsize(half.loaded)
                queries = 4 * size(first) if half is self.values else 0
                found = max(found, half.stages.ub_bytes(tile, slots, in_place=True) - loaded + queries)
            self.held[key] = found
        return self.held[key]

    def occupancy(self, schedule: Schedule) -> Occupancy:
        s, machine = as_row_attention("", schedule), self.machine
        blocks = size(s.grid or ()) * (s.split_keys or 1)
        return Occupancy(machine.share_of(min(blocks, machine.vector_cores)), frozenset({"vector"}))

    def check(self, name: str, schedule: Schedule) -> None:
        reason = self._refusal(as_row_attention(name, schedule))
        if reason is not None:
            raise cannot_obey(name, reason)

    def price(self, schedule: Schedule) -> Price:
        """The pipes overlap; the first loads and the last piece do not. What combines parts is a launch on one core and
        a stage of it, whose loads come from L2."""
        s, machine = as_row_attention("", schedule), self.machine
        assert s.grid is not None
        cores = size(s.grid) * (s.split_keys or 1)
        tiles = size([share(n, g)[1] for n, g in zip(self._counts(s), s.grid, strict=True)])
        piece = self._tiles(s)[0][-2]
        cost = self._cost(s.rows or 1, piece)
        loading = max(cost.loading, cost.bytes * cores / machine.hbm_bytes_per_cycle)
        loading += machine.wait_cycles.get("MTE2", 0)
        further = combining = 0.0
        if s.split_keys:
            rows = size([self.extents[a] for a in self.outer])
            moved = s.split_keys * rows * (self.at.domain[-1] + 2) * 4
            further = 2 * machine.vector_launch_microseconds(1)
            combining = moved / machine.moves["gm", "ub"].bytes_per_cycle
        return Price(
            launch=machine.vector_launch_microseconds(cores),
            turn={Pipe.MTE2: loading, Pipe.V: cost.working},
            turns=tiles * -(-self._part(s) // piece),
            clock_mhz=machine.clock_mhz,
            before=tiles * cost.head,
            behind=cost.working + combining,
            further=further,
        )

    def _cost(self, rows: int, keys: int) -> _PieceCost:
        """What a piece of so many keys costs."""
        if (rows, keys) not in self.costs:
            machine = self.machine
            lead = [rows if a == self.row else 1 for a in self.outer]
            cost = _PieceCost()
            for half in (self.scores, self.values):
                constant, tile = set(half.constant(len(self.outer))), [*lead, keys, half.last]
                for i, step in enumerate(half.stages):
                    if step.view is not None:
                        cycles, bus = copying(step, tile, machine)
                        cycles += bus * machine.moves["gm", "ub"].miss_cycles
                        cost.head += cycles
                        if i not in constant:
                            cost.loading += cycles
                            cost.bytes += bus
                    elif i in constant:
                        cost.head += computing(step, tile, machine)
                    else:
                        cost.working += computing(step, tile, machine)
            columns = [*lead, keys, 1]
            column = Stage(Apply("exp"), [WIDE], frozenset(range(len(columns))))
            cost.working += (
                3 * computing(column, columns, machine) + STEPS_BESIDE * machine.vector.streamed_cycles
            )
            self.costs[rows, keys] = cost
        return self.costs[rows, keys]

    # -- plan --------------------------------------------------------------------------------------------------

    @property
    def unstaged(self) -> str:
        return "the softmax and what it carries over the keys are written out in the loop over these, around the stages"

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        s = as_row_attention("", schedule)
        assert s.grid is not None
        found: list[PlannedAxis] = []
        for a, tiles, cores in zip(self.outer, self._counts(s), s.grid, strict=True):
            rows, length = a == self.row, s.rows or 1 if a == self.row else 1
            name, role = ("rows", "rows") if rows else (f"b{a}", "batch")
            found.append(PlannedAxis(name, role, self.extents[a], length, cuts_of(*share(tiles, cores), length)))
        part, piece = self._part(s), self._tiles(s)[0][-2]
        cuts = (
            Cut("cores", s.split_keys or 1, part, "part of the keys"),
            Cut("loop", -(-part // piece), piece, "piece of the keys"),
        )
        found.append(PlannedAxis("keys", "summed", self.keys, piece, tuple(c for c in cuts if may_repeat(c.times))))
        found.append(PlannedAxis("columns", "columns", self.values.last, self.values.last))
        found.append(PlannedAxis("features", "summed", self.scores.last, self.scores.last))
        return found

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        return {"scores": self.scores.stages, "values": self.values.stages}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        s = as_row_attention("", schedule)
        assert s.grid is not None and s.ub
        keys = len(self.outer)
        shares = (share(n, g) for n, g in zip(self._counts(s), s.grid, strict=True))
        around = tuple(i for i, (_, trips) in enumerate(shares) if may_repeat(trips))
        inside = (*around, keys) if may_repeat(-(-self._part(s) // self._tiles(s)[0][-2])) else around
        found: list[PlannedGraph] = []
        brought = {WEIGHTS: Brought("exponentials", None)}
        parts = zip(self.stage_graphs(), (self.scores, self.values), self._tiles(s), (keys + 2, keys + 1), strict=True)
        for part, half, tile, last in parts:
            constant = set(half.constant(keys))
            places = tuple(StagePlace(around if i in constant else inside) for i in range(len(half.stages)))
            axes = (*range(keys + 1), last)
            found.append(PlannedGraph(part, half.stages, axes, tuple(tile), {"ub": s.ub}, places, brought))
        return found

    # -- build -------------------------------------------------------------------------------------------------

    def part_types(self, parts: int) -> list[Attribute]:
        """The types of what parts of the keys give: results, maxima and sums."""
        lead = [parts, *(self.extents[a] for a in self.outer)]
        return [tensor(shape, WIDE) for shape in ([*lead, self.at.domain[-1]], lead, lead)]

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        s = self.s = as_row_attention(name, schedule)
        assert s.grid is not None and s.ub and s.rows
        split = {a: share(n, g) for a, n, g in zip(self.outer, self._counts(s), s.grid, strict=True)}
        on_grid = [a for a in self.outer if may_repeat(split[a][0])]
        cut = [s.split_keys] if s.split_keys else []
        b = self.b = KernelBuilder(
            self.machine,
            "vector",
            [*cut, *(split[a][0] for a in on_grid)],
            [gm_of(v) for v in self.fusion.body.block.args],
            self._outputs(s),
            slots={"ub": s.ub},
        )
        b.location = self.fusion.location
        part = Expr.of(b.coordinates[0]) if cut else None
        with b.section("vector"), ExitStack() as stack:
            position: dict[int, Expr] = {}
            for a in self.outer:
                length = s.rows if a == self.row else 1
                at = Expr.of(b.coordinates[len(cut) + on_grid.index(a)]) if a in on_grid else Expr()
                position[a] = at * (split[a][1] * length)
            for a in self.outer:
                if may_repeat(split[a][1]):
                    index = stack.enter_context(b.loop(split[a][1]))
                    position[a] = position[a] + index * (s.rows if a == self.row else 1)
            self._rows(position, part)
        return b.finish(name)

    def _outputs(self, s: RowAttentionSchedule) -> list[GmType]:
        if s.split_keys is None:
            last = self.fusion.body.block.last_op
            assert last is not None
            return [gm_of(v) for v in last.operands]
        lead = [s.split_keys, *(self.extents[a] for a in self.outer)]
        return [dense(shape, WIDE) for shape in ([*lead, self.at.domain[-1]], lead, lead)]

    def _rows(self, position: Mapping[int, Expr], part: Expr | None) -> None:
        """All keys of a part, or all there are, for one tile of rows."""
        s, b = self.s, self.b
        first, second = self._tiles(s)
        piece = first[-2]
        whole, rest = divmod(self._part(s), piece)
        start = Expr() if part is None else part * self._part(s)
        given = {WEIGHTS: lambda *_: self.weights}
        emitters = tuple(Emitter(b, tile, given=given) for tile in (first, second))
        known: list[dict[Ref, SSAValue]] = []
        for half, emitter in zip((self.scores, self.values), emitters, strict=True):
            emitter.position = {i: position[a] for i, a in enumerate(self.outer)}
            done: dict[Ref, SSAValue] = {}
            for i in half.stages.ordered(half.constant(len(self.outer))):
                emitter.emit(i, half.stages[i], done)
            known.append(done)
        column, wide = self._columns(s)
        state = [self._fill(LOWEST, column), self._fill(0.0, column), self._fill(0.0, wide)]
        with b.loop(whole, state) as index:
            state[:] = self._piece(emitters, known, start + index * piece, state)
        if rest:
            short = tuple(Emitter(b, tile, given=given) for tile in self._tiles(s, rest))
            for emitter in short:
                emitter.position = {i: position[a] for i, a in enumerate(self.outer)}
            halves = zip((self.scores, self.values), known, strict=True)
            left = [
                {ref: v for ref, v in done.items() if len(self.outer) not in half.stages[ref[0]].axes}
                for half, done in halves
            ]
            state = self._piece(short, left, start + whole * piece, state)
        self._finish(position, part, state)

    def _piece(
        self,
        emitters: Sequence[Emitter],
        known: Sequence[dict[Ref, SSAValue]],
        keys: Expr,
        state: Sequence[SSAValue],
    ) -> list[SSAValue]:
        """The state (maximum, sum, result) behind a piece. What it writes over is read before: a loop has one place for
        each tile."""
        peak, total, result = state
        for emitter in emitters:
            emitter.position[len(self.outer)] = keys
        x = self._wide(self.scores.emit(emitters[0], dict(known[0])))
        here = self._reduced("max", x)
        now = self._op("max", peak, here)
        e = self._op("exp", self._op("sub", x, self._spread(now, x.type)))
        change = self._op("exp", self._op("sub", peak, now))
        self.weights = e
        part = self.values.emit(emitters[1], dict(known[1]))
        total = self._op("add", self._op("mul", total, change), self._reduced("sum", e))
        result = self._op("add", self._op("mul", result, self._spread(change, result.type)), part)
        return [self._op("max", peak, here), total, result]

    def _finish(self, position: Mapping[int, Expr], part: Expr | None, state: Sequence[SSAValue]) -> None:
        """Divides by the sums and stores; of a part, stores all three."""
        b, s = self.b, self.s
        peak, total, result = state
        lead = [s.rows or 1 if a == self.row else 1 for a in self.outer]
        at, columns = [position[a] for a in self.outer], self.at.domain[-1]
        if part is not None:
            b.store(result, b.output(0), [part, *at, Expr()], [1, *lead, columns])
            b.store(peak, b.output(1), [part, *at], [1, *lead])
            b.store(total, b.output(2), [part, *at], [1, *lead])
            return
        out = self._op("div", result, self._spread(total, result.type))
        kind = element_of(self.at.product.result)
        if kind != WIDE:
            out = self._op("convert", out, kind=TileType.of(ops.tile_type(out).shape, kind, "ub"))
        axes = [*self.outer, len(shape_of(self.at.scores.result))]
        last = self.fusion.body.block.last_op
        assert last is not None
        for i, value in enumerate(last.operands):
            strides = result_strides(self.at, value)
            view = b.view(b.output(i), [self.extents[a] for a in axes], [strides.get(a, 1) for a in axes])
            b.store(out, view, [*at, Expr()], [*lead, columns])

    # -- tiles -------------------------------------------------------------------------------------------------

    def _columns(self, s: RowAttentionSchedule) -> tuple[TileType, TileType]:
        """The types of a number for each row, and of a row of the result for each."""
        lead = [s.rows or 1 if a == self.row else 1 for a in self.outer]
        return TileType.of([*lead, 1, 1], WIDE, "ub"), TileType.of([*lead, 1, self.at.domain[-1]], WIDE, "ub")

    def _fill(self, value: float, kind: TileType) -> SSAValue:
        return self.b.add(ops.FillOp, [], [kind], value=number(value)).results[0]

    def _op(self, name: str, *operands: SSAValue, kind: Attribute | None = None) -> SSAValue:
        return self.b.add(ops.ELEMENTWISE[name], operands, [kind or operands[0].type]).results[0]

    def _wide(self, x: SSAValue) -> SSAValue:
        kind = ops.tile_type(x)
        if kind.element == WIDE:
            return x
        return self._op("convert", x, kind=TileType.of(kind.shape, WIDE, "ub"))

    def _spread(self, x: SSAValue, kind: Attribute) -> SSAValue:
        return x if x.type == kind else self.b.add(ops.BroadcastOp, [x], [kind]).results[0]

    def _reduced(self, kind: str, x: SSAValue) -> SSAValue:
        """The maximum or the sum over the keys of a piece."""
        column, _ = self._columns(self.s)
        if x.type == column:
            return x
        dims = ints([len(self.outer)])
        return self.b.add(ops.ReduceOp, [x], [column], kind=StringAttr(kind), dims=dims).results[0]
