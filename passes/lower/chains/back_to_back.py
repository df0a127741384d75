"""Products back to back: a cube core takes the results of the first one, which are operands of the second one, through
l1, where the fixpipe does all that is between them. No vector core has a part in it.

for each tile of rows of this core:                       load q
  for each piece of the keys:                             load k, v
    for each part of the piece:
      scores = q k                                        M
      weights = relu(scores), rounded, in l1              FIX
    for each part of the piece:
      sums = sums + weights v                             M
  store sums                                              FIX

A piece has two parts where that fits: while the weights of one are on their way, the scores of the other are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ....dialects.base import describe, to_ints
from ....dialects.dtypes import dtype_name, itemsize, size
from ....dialects.graph import AttentionSchedule, FusionOp
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import Pipe
from ....kernels.columns import Number, columns, launching, most
from ....kernels.columns import parts as cut
from ....kernels.emit_nest import Frame
from ....kernels.nest import AxisStep, Nest, NestWriter
from ....kernels.price import Price, SharedTraffic, handed_on
from ....kernels.product import FRACTAL, round_up
from ....kernels.product_cost import LoadCost
from ....kernels.product_stages import HandOn, StoreSums
from ....kernels.stage import Ref
from ....kernels.writer import boxed
from ....machine import Machine
from ...errors import TooLarge
from ...forms.back_to_back import is_relu
from ...forms.layout_axes import base_of
from ..cube.cube_schedule import CubePlan
from ..scheduled import as_attention, cannot_obey
from ..spaces import KernelSpace
from .attention_choice import ROWS
from .attention_parts import NestedProduct, ProductPart, chained_in, result_dims, result_strides
from .back_space import BackToBackSpace
from .row_tiles import RowTiles

SCORED = (256, 192, 128, 96, 64, 48, 32, 16)
"""Keys of a part of a piece that are tried."""

STEPS = (256, 128, 64, 48, 32, 16)
"""Elements of a mma step along a summed axis that are tried."""

PARTS, MOST_STEPS = 2, 3
"""Parts of a piece, and steps of the first product that are tried, at most."""


class BackToBackKernel(RowTiles):
    """Lowers two products of which the second one takes what the fixpipe makes of the first one's results.

    A schedule's `keys` are those of a piece, `scored` those of a part of it, `columns` all columns of the result."""

    kinds = frozenset({"cube"})
    CORE = "cube"

    def __init__(self, fusion: FusionOp, machine: Machine, asked: AttentionSchedule) -> None:
        self.fusion, self.machine, self.asked = fusion, machine, asked
        at = self.at = chained_in(fusion, machine)
        scores, product = at.scores, at.product
        batch, (left, _) = len(to_ints(scores.lhs_batch)), scores.free_dims()
        swapped = at.axes[scores.result].index(at.keys) < batch + len(left)
        self.first = ProductPart.of(fusion, scores, at.axes[scores.result], swapped, [], machine)
        weights = product.operands[at.weights]
        self.second = ProductPart.of(
            fusion, product, at.axes[product.result], at.weights == 1, [weights], machine
        )
        extents = [*shape_of(scores.result), at.domain[-1]]
        self.extents: Mapping[int, int] = {a: n for a, n in enumerate(extents) if n != 1}
        self.keys, self.feature = at.keys, len(extents) - 1
        self.outer = [a for a in result_dims(scores, swapped) if a in self.extents and a != self.keys]
        """The axes of tiles: all of the result's but the last."""
        self.row = max((a for a in self.outer if a >= batch), key=lambda a: self.extents[a])
        self.second.takes(self.row, 0)
        self.weighed = element_of(weights)
        self.relu = any(is_relu(op) for op in at.members)
        self.wide = round_up(self.extents.get(self.feature, 1))
        self.shared = round_up(size([self.first.extents[a] for a in self.first.k_axes]))
        """What is summed up for a score, in whole fractals."""

    @property
    def summed(self) -> list[int]:
        return [self.shared]

    # -- choice ------------------------------------------------------------------------------------------------

    def space(self, name: str) -> KernelSpace:
        return BackToBackSpace(self, name, (PARTS, 1))

    def candidates(self, name: str) -> Iterator[AttentionSchedule]:
        asked, found = self.asked, False
        for rows in (asked.rows,) if asked.rows else ROWS:
            if not asked.rows and rows > max(round_up(self.extents[self.row]), FRACTAL):
                continue
            for scored in (asked.scored,) if asked.scored else SCORED:
                for schedule in self._completed(rows, scored):
                    on_cores = [replace(schedule, grid=grid) for grid in self._grids(rows)]
                    obeyed = [s for s in on_cores if self._refused_grid(s) is None]
                    found = found or bool(obeyed)
                    yield from obeyed
        if not found:
            rows, scored = asked.rows or FRACTAL, asked.scored or FRACTAL
            least = self._schedule(rows, scored, 1, asked.features or FRACTAL, asked.summed or FRACTAL, 1)
            reason = self._refusal(replace(least, grid=asked.grid or tuple(1 for _ in self.outer)))
            if asked.chosen():
                raise cannot_obey(name, reason or "no schedule with these choices fits on chip")
            raise TooLarge(f"{describe(self.at.product)}: {reason}")

    def _completed(self, rows: int, scored: int) -> Iterator[AttentionSchedule]:
        """The schedules that fit, but for the grid: of each step of the first product the one with the longest step of
        the second, twice in l0 where that fits."""
        asked = self.asked
        whole = {self.shared, *(n for n in STEPS if self.shared % n == 0)}
        first = [asked.features] if asked.features else sorted(whole, reverse=True)[:MOST_STEPS]
        second = [asked.summed] if asked.summed else [n for n in STEPS if scored % n == 0]
        for parts in [asked.keys // scored] if asked.keys else (PARTS, 1):
            for features in first:
                tried = (
                    self._schedule(rows, scored, parts, features, n, slots)
                    for slots in (2, 1)
                    for n in second
                )
                fitting = (s for s in tried if (self._refused_steps(s) or self._refused_bytes(s)) is None)
                yield from islice(fitting, 1)

    def completed_tile(
        self, rows: int, scored: int, parts: int, features: int, summed: int
    ) -> AttentionSchedule | None:
        """A schedule without a grid, twice in l0 where that fits; None where nothing does."""
        tried = (self._schedule(rows, scored, parts, features, summed, slots) for slots in (2, 1))
        return next((s for s in tried if (self._refused_steps(s) or self._refused_bytes(s)) is None), None)

    def _schedule(
        self, rows: int, scored: int, parts: int, features: int, summed: int, buffers: int
    ) -> AttentionSchedule:
        keys = self.asked.keys or scored * parts
        slots = self.asked.slots({"l1": 2, "l0a": buffers, "l0b": buffers, "l0c": 1, "ub": 1})
        schedule = AttentionSchedule(
            rows=rows,
            keys=keys,
            scored=scored,
            columns=self.asked.columns or self.wide,
            buffered=self.asked.buffered or 1,
            features=features,
            summed=summed,
            bands=self.asked.bands,
            places=self.asked.places,
            cores=self.asked.cores,
        )
        return replace(schedule, **slots)

    def _refusal(self, s: AttentionSchedule) -> str | None:
        return self._refused_steps(s) or self._refused_grid(s) or self._refused_bytes(s)

    def _refused_steps(self, s: AttentionSchedule) -> str | None:
        """Why the pieces and steps of a tile cannot be what a schedule says."""
        assert s.rows and s.keys and s.scored and s.features and s.summed
        if any(n % FRACTAL for n in (s.rows, s.keys, s.scored, s.features, s.summed)):
            return f"rows, keys, scored, features and summed must be multiples of {FRACTAL}"
        if (s.bands or 1) > 1 or (s.places or 1) > 1 or s.buffered != 1:
            return "products back to back have no bands, one place, and buffered = 1"
        if s.columns != self.wide:
            return f"its sums stay in l0c, so that columns must be all {self.wide}"
        if self.extents[self.keys] % s.keys:
            return f"pieces of {s.keys} keys do not divide {self.extents[self.keys]}"
        if s.keys not in (s.scored, PARTS * s.scored):
            return f"a piece of {s.keys} keys is not one part of {s.scored}, or {PARTS}"
        if s.scored % s.summed:
            return f"steps of {s.summed} keys do not divide {s.scored}"
        return None

    def _bytes(self, s: AttentionSchedule) -> dict[str, int]:
        """Bytes of each memory space that a tile takes."""
        assert s.rows and s.keys and s.scored and s.features and s.summed
        slots = {space: getattr(s, space) for space in ("l1", "l0a", "l0b", "l0c")}
        width, parts, shared = itemsize(self.weighed), s.keys // s.scored, self._whole(s)
        l1 = s.rows * shared + s.keys * (shared + self.wide) + s.rows * s.keys
        l0a = s.rows * (s.features * (1 if self._stays(s) else parts) + parts * s.summed)
        l0b = parts * (s.features * s.scored + s.summed * self.wide)
        l0c = s.rows * (s.keys + self.wide)
        return {
            "l1": slots["l1"] * l1 * max(width, itemsize(element_of(self.first.anchor.lhs))),
            "l0a": slots["l0a"] * l0a * width,
            "l0b": slots["l0b"] * l0b * width,
            "l0c": slots["l0c"] * l0c * 4,
        }

    def _stays(self, s: AttentionSchedule) -> bool:
        """Whether what the first product takes of a tile of rows is in l0a for all keys."""
        assert s.features
        return s.features >= self.shared

    def _whole(self, s: AttentionSchedule) -> int:
        """What is summed up for a score, in whole steps."""
        assert s.features
        return -(-self.shared // s.features) * s.features

    def price(self, schedule: Schedule) -> Price:
        s = as_attention("", schedule)
        return self._priced(s, s.grid or ())

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        found, alike = np.empty(len(schedules)), defaultdict[AttentionSchedule, list[int]](list)
        plans = [as_attention("", s) for s in schedules]
        for i, s in enumerate(plans):
            alike[replace(s, grid=None)].append(i)
        for head, numbers in alike.items():
            found[numbers] = self._priced(head, columns([plans[i].grid or () for i in numbers])).microseconds
        return found

    def _priced(self, s: AttentionSchedule, grid: Sequence[Number]) -> Price:
        """What a launch costs on a grid of cores, or on each of many."""
        machine = self.machine
        assert s.rows and s.keys and s.scored and s.features and s.summed
        width, wide, cores = itemsize(self.weighed), self.wide, size(grid)
        parts, pieces = s.keys // s.scored, self.extents[self.keys] // s.keys
        tiles = size([cut(n, g) for n, g in zip(self.counts(s), grid, strict=True)])
        left, right = machine.moves["l1", "l0a"], machine.moves["l1", "l0b"]
        steps = self._whole(s) // s.features, s.scored // s.summed
        blocks = s.rows * s.keys * (self._whole(s) + wide) / machine.cube[dtype_name(self.weighed)].macs
        mma = blocks + parts * sum(steps) * machine.cube_fixed_cycles
        step = right.cycles(s.features * s.scored * width, overlapped=True)
        step += 0 if self._stays(s) else left.cycles(s.rows * s.features * width, overlapped=True)
        moves = steps[0] * step
        moves += steps[1] * left.cycles(s.rows * s.summed * width, overlapped=True)
        moves += steps[1] * right.cycles(s.summed * wide * width, overlapped=True)
        queries, *others = self._loads(s)
        wait = machine.wait_cycles.get("MTE2", 0)
        begin, query, load = (
            sum(self._busy(each, cores) + wait for each in some)
            for some in ([queries, others[0]], [queries], others)
        )
        handed = machine.moves["l0c", "l1"].cycles(s.rows * s.scored * width)
        # the moves of the next scores stand behind those of the weights, which wait for the fixpipe
        late = handed + left.cycles(s.rows * s.summed * width) + step if parts == 1 else 0
        drain = machine.moves["l0c", "gm"].cycles(s.rows * wide * itemsize(element_of(self.at.product.result)))
        piece = {Pipe.M: mma, Pipe.MTE1: parts * moves, Pipe.FIX: parts * handed}
        turn = {pipe: pieces * handed_on(cycles + late) for pipe, cycles in piece.items()}
        turn |= {Pipe.FIX: max(turn[Pipe.FIX], drain), Pipe.MTE2: query + pieces * load}
        moved = queries.bytes + pieces * sum(each.bytes for each in others) + s.rows * wide * width
        return Price(
            launch=launching(machine, cores),
            turn=turn,
            turns=tiles,
            clock_mhz=machine.clock_mhz,
            before=begin,
            behind=drain,
            shared=SharedTraffic(tiles * moved * cores, machine.l2_bytes_per_cycle),
        )

    def _loads(self, s: AttentionSchedule) -> list[LoadCost]:
        """What a tile of rows loads, and what a piece of the keys does."""
        first, second = self._plans_of(s)
        loads = [(self.first, 0, first.lhs), (self.first, 1, first.rhs), (self.second, 1, second.rhs)]
        return [part.operands[i].load_cost(part.views[i], box, self.machine) for part, i, box in loads]

    def _busy(self, load: LoadCost, cores: Number) -> Number:
        """Cycles of a load that all cores make at once."""
        shared = self.machine.moves["gm", "l1"].shared_bytes_per_cycle
        return most(load.cycles, load.bus / shared, load.bus * cores / self.machine.l2_bytes_per_cycle)

    # -- the kernel --------------------------------------------------------------------------------------------

    def frame(self, schedule: Schedule) -> Frame:
        return self.framed("cube", as_attention("", schedule), [])

    def nest(self, schedule: Schedule) -> Nest:
        s = as_attention("", schedule)
        assert s.rows and s.keys and s.scored
        w = NestWriter(self.feature + 1, self.fusion.location)
        with self.in_cores(w, s, {}), self.in_loops(w, s):
            self._tile(w, s)
        return w.nest()

    def _plans_of(self, s: AttentionSchedule) -> tuple[CubePlan, CubePlan]:
        """The steps and loads of both products."""
        assert s.rows and s.keys and s.scored and s.features and s.summed
        keys, tile = s.keys, {self.row: s.rows, self.keys: s.scored, self.feature: self.wide}

        def plan(part: ProductPart, step: int, whole: int) -> CubePlan:
            l0, lhs, rhs = ([1] * len(part.extents) for _ in range(3))
            for axis, a in part.number.items():
                l0[a] = lhs[a] = tile.get(axis, 1)
                rhs[a] = keys if axis == self.keys else l0[a]
            for a in part.k_axes:
                l0[a] = step if a == part.k_axes[-1] else part.extents[a]
                lhs[a] = whole if a == part.k_axes[-1] else part.extents[a]
                rhs[a] = keys if part is self.second else lhs[a]
            return CubePlan(tuple(l0), tuple(lhs), tuple(rhs), (), "m", {}, None)

        last = self.first.k_axes[-1]
        whole = -(-self.first.extents[last] // s.features) * s.features
        return plan(self.first, s.features, whole), plan(self.second, s.summed, s.scored)

    def _tile(self, w: NestWriter, s: AttentionSchedule) -> None:
        """All keys for one tile of rows."""
        assert s.rows and s.keys and s.scored
        for_first, for_second = self._plans_of(s)
        once = replace(for_second, rhs=for_second.lhs)  # a part of a piece that is loaded as one
        first = NestedProduct(w, self.first, self.first.axes_in(w), for_first)
        axes = self.second.axes_in(w, self.keys)
        whole, second = (NestedProduct(w, self.second, axes, plan) for plan in (for_second, once))
        parts, queries = s.keys // s.scored, first.load(0)
        moved = first.move_left(queries) if self._stays(s) else None
        sums = [second.nothing()]
        with w.turns(self.pieces(s.keys), AxisStep(self.keys, s.keys), state=sums, steps=(parts, 0)):
            keys, values = first.load(1), whole.load(1)
            weights: list[Ref] = []
            for part in range(parts):
                with w.turns(1, AxisStep(self.keys, 0, part * s.scored)):
                    weights.append(self._handed_on(w, first, first.sums(queries, keys, moved=moved)))
            for part in range(parts):
                with w.turns(1, AxisStep(self.keys, 0, part * s.scored), steps=(0, part)):
                    sums[0] = second.sums([weights[part]], values, sums[0])
        self._store(w, s, sums[0])

    def _handed_on(self, w: NestWriter, product: NestedProduct, sums: Ref) -> Ref:
        """Scores as what the second product takes."""
        rows, columns = (tuple(product.axes[a] for a in axes) for axes in (self.first.m_axes, self.first.n_axes))
        with w.tiled(dict(zip(product.axes, product.plan.l0, strict=True))):
            op = HandOn(rows, columns, self.relu)
            return w.put(op, [self.weighed], frozenset((*rows, *columns)), [sums])

    def _store(self, w: NestWriter, s: AttentionSchedule, sums: Ref) -> None:
        assert s.rows
        axes = [*(a for a in self.outer if a != self.row), self.row, self.feature]
        with w.tiled({self.row: s.rows, self.feature: self.wide}):
            for i, value in enumerate(self._yielded):
                assert base_of(value) is self.at.product.result
                strides = result_strides(self.at, value)
                box = boxed([self.extents.get(a, 1) for a in axes], [strides.get(a, 1) for a in axes], axes)
                w.put(StoreSums(output=i, box=box), [], frozenset(axes), [sums])
