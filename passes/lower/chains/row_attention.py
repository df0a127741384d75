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

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import Attribute

from ....dialects.base import describe, to_ints
from ....dialects.dtypes import itemsize, size, tensor
from ....dialects.graph import FusionOp, RowAttentionSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.occupancy import Occupancy
from ....dialects.npu.types import GmType, Pipe, row_strides
from ....dialects.open_sizes import any_open
from ....kernels.builder import dense, gm_of, may_repeat
from ....kernels.columns import Number, columns, launching_vectors, most
from ....kernels.columns import parts as cut
from ....kernels.emit_nest import Frame, vector_frame
from ....kernels.graph import OwnAxis
from ....kernels.nest import AxisStep, Nest, NestWriter
from ....kernels.plan import Cut, PlannedAxis, cuts_of
from ....kernels.price import Price
from ....kernels.product import grids
from ....kernels.stage import Apply, KernelStage, Reduce, Ref, Spread
from ....kernels.vector_cost import computing, copying
from ....kernels.writer import boxed
from ....machine import Machine
from ...errors import TooLarge
from ...fusion.long_rows import UB_FRACTION
from ..nested import PlannedNest
from ..schedule import share
from ..scheduled import as_row_attention, cannot_obey
from ..spaces import KernelSpace
from .attention import LOWEST
from .attention_parts import attention_in, result_dims, result_strides
from .row_attention_parts import WIDE, HalfStages, score_stages, value_stages
from .row_space import RowSpace

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


class RowAttentionKernel(PlannedNest):
    """Lowers attention of few rows. `outer` are the axes of its tiles, `row` the longest one that keys do not have."""

    CORE = "vector"

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
        self.longest = self.extents[self.row] if self.row is not None else 1
        """Rows of the longest tile."""
        self.slots = asked.ub or 2
        self.costs: dict[tuple[int, int], _PieceCost] = {}
        self.held: dict[tuple[int, int, int], int] = {}
        self.scores = score_stages(fusion, at, self.outer, machine)
        self.values = value_stages(fusion, at, self.outer, machine)

    # -- choice ------------------------------------------------------------------------------------------------

    def space(self, name: str) -> KernelSpace:
        return RowSpace(self, name, KEYS)

    def candidates(self, name: str) -> Iterator[RowAttentionSchedule]:
        asked, found = self.asked, False
        for parts in [asked.split_keys] if asked.split_keys else (None, *self._parts_tried()):
            most = min(asked.cores or self.machine.vector_cores, self.machine.vector_cores) // (parts or 1)
            for rows in [asked.rows] if asked.rows else sorted({1, self.longest}, reverse=True):
                for keys in [asked.keys] if asked.keys else self._keys_tried(rows, parts):
                    first = RowAttentionSchedule(rows, keys, None, parts, self.slots, asked.cores)
                    tried = [asked.grid] if asked.grid else grids(self.counts(first), max(most, 1))
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
            and self._refusal(RowAttentionSchedule(rows, n, ones, parts, self.slots)) is None
        )
        first = next(fitting, None)
        even = next((n for n in fitting if (self.keys // (parts or 1)) % n == 0), None)
        return [n for n in (first, even) if n is not None]

    def counts(self, s: RowAttentionSchedule) -> list[int]:
        """Tiles along each axis of the result but the last."""
        return [
            -(-self.extents[a] // (s.rows or 1)) if a == self.row else self.extents[a] for a in self.outer
        ]

    def _refusal(self, s: RowAttentionSchedule) -> str | None:
        """Why a complete schedule cannot be obeyed, as the rest of a sentence."""
        assert s.rows and s.keys and s.grid is not None and s.ub
        if s.rows not in (1, self.longest):
            return f"a tile has 1 row or all {self.longest}, not {s.rows}"
        if s.split_keys is not None and (s.split_keys < 2 or self.keys % s.split_keys):
            return f"split_keys={s.split_keys} does not cut {self.keys} keys into equal parts"
        if len(s.grid) != len(self.outer):
            return f"its result has {len(self.outer)} axes of tiles, and the grid {len(s.grid)}"
        cores = size(s.grid) * (s.split_keys or 1)
        if cores > self.machine.vector_cores:
            there = f"{self.machine.vector_cores} vector cores of {self.machine.name}"
            return f"a grid of {cores} is more than the {there}"
        for a, n, tiles in zip(self.outer, s.grid, self.counts(s), strict=True):
            if share(tiles, n)[0] != n:
                return f"axis {a} of {tiles} tiles cannot be split over {n} cores"
        need, room = self._bytes(s), self.machine.spaces["ub"].bytes
        if need > room * UB_FRACTION:
            return f"a tile of {s.rows} rows and {s.keys} keys takes {need} bytes of ub, of {room} there are"
        return None

    def part(self, s: RowAttentionSchedule) -> int:
        """The keys of a part."""
        return self.keys // (s.split_keys or 1)

    def tiles(self, s: RowAttentionSchedule, keys: int | None = None) -> tuple[list[int], list[int]]:
        """Extents of the tiles of both halves along their axes, with so many keys."""
        lead = [s.rows or 1 if a == self.row else 1 for a in self.outer]
        piece = keys or min(s.keys or 1, self.part(s))
        return [*lead, piece, self.scores.last], [*lead, piece, self.values.last]

    def _bytes(self, s: RowAttentionSchedule) -> int:
        """Bytes of ub: tiles of both halves, once more for the loads of what is left behind the last whole piece,
        columns of a piece, and what is carried."""
        first, second = self.tiles(s)
        rows, keys, slots = s.rows or 1, first[-2], s.ub or 2
        rest, largest = self.part(s) % keys, 4 * max(size(first), size(second))
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
        s = as_row_attention("", schedule)
        return self._priced(s, s.grid or ())

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        found, alike = np.empty(len(schedules)), defaultdict[object, list[int]](list)
        plans, is_open = [as_row_attention("", s) for s in schedules], any_open([*self.extents.values()])
        for i, s in enumerate(plans):
            alike[i if is_open else (s.rows, s.keys, s.split_keys)].append(i)
        for numbers in alike.values():
            grid = columns([plans[i].grid or () for i in numbers])
            found[numbers] = self._priced(plans[numbers[0]], grid).microseconds
        return found

    def _priced(self, s: RowAttentionSchedule, grid: Sequence[Number]) -> Price:
        """What a launch costs on a grid of cores, or on each of many. The pipes overlap; the first loads and the last
        piece do not. What combines parts is a launch on one core and a stage of it, whose loads come from L2."""
        machine = self.machine
        cores = size(grid) * (s.split_keys or 1)
        tiles = size([cut(n, g) for n, g in zip(self.counts(s), grid, strict=True)])
        piece = self.tiles(s)[0][-2]
        cost = self._cost(s.rows or 1, piece)
        loading = most(cost.loading, cost.bytes * cores / machine.hbm_bytes_per_cycle)
        loading = loading + machine.wait_cycles.get("MTE2", 0)
        further = combining = 0.0
        if s.split_keys:
            rows = size([self.extents[a] for a in self.outer])
            moved = s.split_keys * rows * (self.at.domain[-1] + 2) * 4
            further = 2 * machine.vector_launch_microseconds(1)
            combining = moved / machine.moves["gm", "ub"].bytes_per_cycle
        return Price(
            launch=launching_vectors(machine, cores),
            turn={Pipe.MTE2: loading, Pipe.V: cost.working},
            turns=tiles * -(-self.part(s) // piece),
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
            column = KernelStage(Apply("exp"), [WIDE], frozenset(range(len(columns))))
            cost.working += (
                3 * computing(column, columns, machine) + STEPS_BESIDE * machine.vector.streamed_cycles
            )
            self.costs[rows, keys] = cost
        return self.costs[rows, keys]

    # -- plan --------------------------------------------------------------------------------------------------

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        s = as_row_attention("", schedule)
        assert s.grid is not None
        found: list[PlannedAxis] = []
        for a, tiles, cores in zip(self.outer, self.counts(s), s.grid, strict=True):
            rows, length = a == self.row, s.rows or 1 if a == self.row else 1
            name, role = ("rows", "rows") if rows else (f"b{a}", "batch")
            found.append(PlannedAxis(name, role, self.extents[a], length, cuts_of(*share(tiles, cores), length)))
        part, piece = self.part(s), self.tiles(s)[0][-2]
        cuts = (
            Cut("cores", s.split_keys or 1, part, "part of the keys"),
            Cut("loop", -(-part // piece), piece, "piece of the keys"),
        )
        found.append(PlannedAxis("keys", "summed", self.keys, piece, tuple(c for c in cuts if may_repeat(c.times))))
        found.append(PlannedAxis("columns", "columns", self.values.last, self.values.last))
        found.append(PlannedAxis("features", "summed", self.scores.last, self.scores.last))
        return found

    def planned(self, nest: Nest) -> list[int]:
        keys = len(self.outer)
        return [keys if number > keys + 2 else number for number in range(keys + 3 + len(nest.stages.own))]

    # -- build -------------------------------------------------------------------------------------------------

    def part_types(self, parts: int) -> list[Attribute]:
        """The types of what parts of the keys give: results, maxima and sums."""
        lead = [parts, *(self.extents[a] for a in self.outer)]
        return [tensor(shape, WIDE) for shape in ([*lead, self.at.domain[-1]], lead, lead)]

    def frame(self, schedule: Schedule) -> Frame:
        s = as_row_attention("", schedule)
        inputs = [gm_of(v) for v in self.fusion.body.block.args]
        return vector_frame(self.machine, inputs, self._outputs(s), s.ub or 2, self.fusion.location)

    def _outputs(self, s: RowAttentionSchedule) -> list[GmType]:
        if s.split_keys is None:
            last = self.fusion.body.block.last_op
            assert last is not None
            return [gm_of(v) for v in last.operands]
        lead = [s.split_keys, *(self.extents[a] for a in self.outer)]
        return [dense(shape, WIDE) for shape in ([*lead, self.at.domain[-1]], lead, lead)]

    def nest(self, schedule: Schedule) -> Nest:
        return RowNest(self, as_row_attention("", schedule)).written()


class RowNest:
    """Attention of few rows on its way into a nest. Its axes are `outer`, the keys, the columns of the values, and what
    a score sums."""

    def __init__(self, kernel: RowAttentionKernel, s: RowAttentionSchedule):
        self.k, self.s, self.keys = kernel, s, len(kernel.outer)
        w = self.w = NestWriter(self.keys + 3, kernel.fusion.location)
        self.part = w.own([OwnAxis("part of the keys", of=self.keys, step=0)])[0] if s.split_keys else None
        self.rows, self.columns = tuple(range(self.keys)), self.keys + 1
        self.first, self.second = kernel.tiles(s)

    def written(self) -> Nest:
        """All of it."""
        s, k, w = self.s, self.k, self.w
        assert s.grid is not None and s.rows
        shares = [share(n, g) for n, g in zip(k.counts(s), s.grid, strict=True)]
        lengths = [s.rows if a == k.row else 1 for a in k.outer]
        cores = [(n, [AxisStep(i, trips * lengths[i])]) for i, (n, trips) in enumerate(shares)]
        if self.part is not None:
            cores = [(s.split_keys or 1, [AxisStep(self.keys, k.part(s)), AxisStep(self.part, 1)]), *cores]
        tiles = [(trips, [AxisStep(i, lengths[i])]) for i, (_, trips) in enumerate(shares)]
        with w.nested(cores, by="cores"), w.nested(tiles):
            self._rows()
        return w.nest()

    def _rows(self) -> None:
        """All keys of a part, or all there are, for one tile of rows."""
        w, k, keys, piece = self.w, self.k, self.keys, self.first[-2]
        whole, rest = divmod(k.part(self.s), piece)
        halves = [
            _Half(w, half, [*range(keys + 1), last], tile)
            for half, last, tile in ((k.scores, keys + 2, self.first), (k.values, self.columns, self.second))
        ]
        with w.tiled(dict(enumerate([*self.second, 1]))):
            for half in halves:
                half.take(half.half.constant(keys))
            state = [self._fill(LOWEST), self._fill(0.0), self._fill(0.0, wide=True)]
            with w.turns(whole, AxisStep(keys, piece), state=state):
                state[:] = self._piece(halves, piece, state)
            if rest:
                shorter = [half.of_piece(keys, rest) for half in halves]
                with w.tiled({keys: rest}), w.turns(1, AxisStep(keys, 0, whole * piece)):
                    state = self._piece(shorter, rest, state)
            self._finish(state)

    def _piece(self, halves: Sequence[_Half], piece: int, state: Sequence[Ref]) -> list[Ref]:
        """The state (maximum, sum, result) behind a piece of so many keys. What it writes over is read before: a loop
        has one place for each tile."""
        w, (peak, total, result), (scores, values) = self.w, state, halves
        x = w.converted(scores.whole(), WIDE)
        here = self._reduced("max", x, piece)
        now = w.apply("max", peak, here)
        e = w.apply("exp", w.apply("sub", x, self._like(now, x)))
        change = w.apply("exp", w.apply("sub", peak, now))
        part = values.whole(e)
        total = w.apply("add", w.apply("mul", total, change), self._reduced("sum", e, piece))
        result = w.apply("add", w.apply("mul", result, self._like(change, result)), part)
        return [w.apply("max", peak, here), total, result]

    def _finish(self, state: Sequence[Ref]) -> None:
        """Divides by the sums and stores; of a part, stores all three."""
        (peak, total, result), w, k, rows = state, self.w, self.k, self.rows
        extents, wide = [k.extents[a] for a in k.outer], k.at.domain[-1]
        if self.part is not None:
            self._store_part(0, result, (*rows, self.columns), [*extents, wide])
            self._store_part(1, peak, rows, extents)
            self._store_part(2, total, rows, extents)
            return
        kind = element_of(k.at.product.result)
        out = w.converted(w.apply("div", result, self._like(total, result)), kind)
        axes = [*k.outer, len(shape_of(k.at.scores.result))]
        last = k.fusion.body.block.last_op
        assert last is not None
        for i, value in enumerate(last.operands):
            strides = result_strides(k.at, value)
            shape = [k.extents[a] for a in axes]
            w.store(i, boxed(shape, [strides.get(a, 1) for a in axes], [*rows, self.columns]), out)

    def _store_part(self, output: int, tile: Ref, axes: Sequence[int], extents: Sequence[int]) -> None:
        """Stores what a part of the keys gives beside that of the others."""
        assert self.part is not None
        whole = [self.s.split_keys or 1, *extents]
        self.w.store(output, boxed(whole, row_strides(whole), [self.part, *axes]), tile)

    def _fill(self, value: float, wide: bool = False) -> Ref:
        """A number for each row, or a row of the result for each."""
        spans = frozenset([*self.rows, self.columns] if wide else self.rows)
        return self.w.fill(value, WIDE, (*self.rows, self.keys, self.columns), spans)

    def _reduced(self, kind: str, x: Ref, piece: int) -> Ref:
        """The maximum or the sum over the keys of a piece."""
        if piece == 1:
            return x
        shape = self.w.shape(x)
        return self.w.put(Reduce(kind, ((self.keys, piece),)), [WIDE], frozenset(self.rows), [x], shape)

    def _like(self, ref: Ref, other: Ref) -> Ref:
        """A number for each row, repeated over what another result spans."""
        stage = self.w.graph[other[0]]
        return self.w.put(Spread(), [WIDE], stage.axes, [ref], stage.tile_axes)


class _Half:
    """The stages of a half on their way into a nest, where its axes are called so, with a tile of these extents."""

    def __init__(self, w: NestWriter, half: HalfStages, axes: Sequence[int], tile: Sequence[int]):
        self.w, self.half, self.axes, self.tile = w, half, axes, tile
        self.known: dict[Ref, Ref] = {}
        """What is there before the pieces."""

    def take(self, stages: Sequence[int], known: dict[Ref, Ref] | None = None) -> None:
        for i in self.half.stages.ordered(stages):
            self.w.take_known(self.half.stages, i, self.axes, self.tile, self.known if known is None else known)

    def of_piece(self, keys: int, length: int) -> _Half:
        """The same with a piece of other length along the axis of the keys."""
        half = self.half
        found = _Half(self.w, half, self.axes, [length if a == keys else n for a, n in enumerate(self.tile)])
        found.known = {ref: at for ref, at in self.known.items() if keys not in half.stages[ref[0]].axes}
        return found

    def whole(self, given: Ref | None = None) -> Ref:
        """The result of a piece, by the stages that are not there before; given: the weights."""
        half, known = self.half, dict(self.known)
        known |= {(i, 0): given for i, stage in enumerate(half.stages) if stage.kind == "given" and given is not None}
        self.take([i for i, _ in enumerate(half.stages) if (i, 0) not in known], known)
        return known[half.result]
