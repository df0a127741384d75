"""How attention is cut: which rows and keys fit on chip, what a schedule costs, and why one cannot be obeyed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from xdsl.ir import Attribute, SSAValue

from ...dialects.base import describe, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.graph import AttentionSchedule, FusionOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.schedules import Schedule
from ...machine import Machine
from ..errors import TooLarge
from .attention_parts import ProductPart, ScoreSteps, attention_in, rows_first
from .bound import FRACTAL, grids, round_up
from .builder import divide_grid
from .schedule import UB_FRACTION, share
from .scheduled import ScheduledKernel, as_attention, cannot_obey
from .steps import Emitter

ROWS = (128, 96, 64, 48, 32, 16)
KEYS = (512, 384, 256, 192, 128, 96, 64, 48, 32, 16)
"""Rows and keys of a tile that are tried."""


def _even_steps(whole: int) -> list[int]:
    """Lengths of equal steps along a summed axis, in whole fractals, the longest first."""
    return sorted({round_up(-(-whole // n)) for n in range(1, -(-whole // 16) + 1)}, reverse=True)


class AttentionChoice(ScheduledKernel):
    """Attention on a chip whose cube and vector cores exchange tiles through device memory, while its schedule is
    chosen."""

    kinds = frozenset({"cube", "vector"})

    def __init__(self, fusion: FusionOp, machine: Machine, asked: AttentionSchedule):
        self.fusion, self.machine, self.asked = fusion, machine, asked
        at = self.at = attention_in(fusion, machine)
        scores, product = at.scores, at.product
        batch, (left, _) = len(to_ints(scores.lhs_batch)), scores.free_dims()
        swapped = at.keys < batch + len(left)
        own = tuple(a if n != 1 else None for a, n in enumerate(shape_of(scores.result)))
        self.scores = ProductPart.of(fusion, scores, own, swapped, [], machine)
        weights = product.operands[at.weights]
        self.values = ProductPart.of(
            fusion, product, at.axes[product.result], at.weights == 1, [weights], machine
        )
        order = rows_first(scores, swapped)
        self.chain = ScoreSteps.of(fusion, at, order, machine, self._load_scores)
        extents = [*shape_of(scores.result), at.domain[-1]]
        self.extents: Mapping[int, int] = {a: n for a, n in enumerate(extents) if n != 1}
        self.keys, self.feature = at.keys, len(extents) - 1
        self.outer = [a for a in order if a in self.extents and a != self.keys]
        """The axes of tiles: all of the result's but the last."""
        rows = [a for a in self.outer if a >= batch]
        self.row = max(rows, key=lambda a: self.extents[a])
        self.units = machine.vector_cores // machine.cube_cores
        self.values.takes(self.row, self.keys)
        self.scored = element_of(scores.result)
        self.weighed = element_of(weights)
        self.result = element_of(product.result)

    @abstractmethod
    def _load_scores(self, e: Emitter) -> SSAValue:
        """Brings a vector core's tile of scores."""

    def candidates(self, name: str) -> Iterator[AttentionSchedule]:
        asked, found = self.asked, False
        for rows in (asked.rows,) if asked.rows else ROWS:
            if not asked.rows and rows > max(round_up(self.extents[self.row]), ROWS[-1]):
                continue
            for keys in (asked.keys,) if asked.keys else self._keys_tried():
                first = self._schedule(rows, keys)
                if self._refusal(first) is None:
                    found = True
                    yield from (replace(first, grid=grid) for grid in self._grids(rows))
        if not found:
            if asked.chosen():
                raise cannot_obey(
                    name, self._refusal(self._schedule(asked.rows or 16, asked.keys or 16)) or ""
                )
            raise TooLarge(f"{describe(self.at.product)}: 16 rows and keys do not fit on chip")

    def _grids(self, rows: int) -> list[tuple[int, ...]]:
        """Divisions over cores that are worth judging: fewer cores are started sooner."""
        if self.asked.grid:
            return [self.asked.grid]
        counts = [self._tiles(a, rows) for a in self.outer]
        most = min(self.asked.cores or self.machine.cube_cores, self.machine.cube_cores)
        return [tuple(grid) for grid in grids(counts, most)]

    def _keys_tried(self) -> list[int]:
        """Lengths of pieces of the keys that leave little of the last one empty."""
        whole = round_up(self.extents[self.keys])
        counts = {1, *(-(-whole // most // 2) * 2 for most in KEYS if most < whole)}
        return sorted({round_up(-(-whole // n)) for n in counts if n and whole // n <= KEYS[0]}, reverse=True)

    def _schedule(self, rows: int, keys: int) -> AttentionSchedule:
        asked = self.asked
        counts = [self._tiles(a, rows) for a in self.outer]
        cores = min(asked.cores or self.machine.cube_cores, self.machine.cube_cores)
        grid = asked.grid or tuple(n for n, _ in divide_grid(counts, cores))
        features, summed, buffers = self._steps(rows, keys)
        slots = asked.slots({"l1": 2, "l0a": buffers, "l0b": buffers, "l0c": 1, "ub": 1})
        return AttentionSchedule(rows, keys, features, summed, grid, **slots, cores=asked.cores)

    def _steps(self, rows: int, keys: int) -> tuple[int, int, int]:
        """Elements along the summed axes of the steps of both products, and how often l0a and l0b hold them: the
        longest ones that fit."""
        asked, wide, parts = self.asked, self._wide, 1 if self.pieces(keys) == 1 else 2
        q, p = itemsize(self.scored_from), itemsize(self.weighed)
        room = [self.machine.spaces[space].bytes for space in ("l0a", "l0b")]
        first = [asked.features] if asked.features else _even_steps(self._shared)
        second = [asked.summed] if asked.summed else [n for n in _even_steps(keys) if keys % n == 0]
        for buffers in (2, 1):
            fitting = [
                (f, s)
                for f in first
                for s in second
                if buffers * rows * (f * q + parts * s * p) <= room[0]
                and buffers * (keys * f * q + parts * s * wide * p) <= room[1]
            ]
            if fitting:
                features, summed = max(fitting, key=lambda steps: (min(steps), sum(steps)))
                return features, summed, buffers
        return first[-1], second[-1], 1

    @property
    def scored_from(self) -> Attribute:
        """The element type of q and k."""
        return element_of(self.at.scores.lhs)

    @cached_property
    def _shared(self) -> int:
        """Elements that q and k share."""
        return size([self.scores.extents[a] for a in self.scores.k_axes])

    @property
    def _wide(self) -> int:
        """Columns of the values, in whole fractals."""
        return round_up(self.extents.get(self.feature, 1))

    def _tiles(self, axis: int, rows: int) -> int:
        return -(-self.extents[axis] // rows) if axis == self.row else self.extents[axis]

    def pieces(self, keys: int) -> int:
        """Pieces of so many keys: one, or an even number."""
        count = -(-self.extents[self.keys] // keys)
        return count + count % 2 if count > 1 else 1

    def _refusal(self, s: AttentionSchedule) -> str | None:
        """Why a complete schedule cannot be obeyed, as the rest of a sentence."""
        assert s.rows and s.keys and s.features and s.summed and s.grid
        if any(n % FRACTAL for n in (s.rows, s.keys, s.features, s.summed)):
            return f"rows, keys, features and summed must be multiples of {FRACTAL}"
        if s.keys % s.summed:
            return f"steps of {s.summed} keys do not divide {s.keys}"
        if len(s.grid) != len(self.outer):
            return f"its result has {len(self.outer)} axes of tiles, and the grid {len(s.grid)}"
        if size(s.grid) > self.machine.cube_cores:
            return f"a grid of {size(s.grid)} cores is more than the {self.machine.cube_cores} there are"
        for a, n in zip(self.outer, s.grid, strict=True):
            if share(self._tiles(a, s.rows), n)[0] != n:
                return f"axis {a} of {self._tiles(a, s.rows)} tiles cannot be split over {n} cores"
        for space, need in self._bytes(s).items():
            room = self.machine.spaces[space].bytes
            if need > room * (UB_FRACTION if space == "ub" else 1):
                return f"a tile of {s.rows} rows and {s.keys} keys takes {need} bytes of {space}, of {room} there are"
        return None

    def _bytes(self, s: AttentionSchedule) -> dict[str, int]:
        """Bytes of each memory space that a tile takes."""
        assert s.rows and s.keys and s.features and s.summed
        once, wide = self.pieces(s.keys) == 1, self._wide
        q, p = itemsize(self.scored_from), itemsize(self.weighed)
        parts = 1 if once else 2
        slots = {space: getattr(s, space) for space in ("l1", "l0a", "l0b")}
        shared = -(-self._shared // s.features) * s.features
        l1 = s.rows * shared * q
        l1 += slots["l1"] * (s.keys * shared * q + parts * (s.rows * s.keys + s.keys * wide) * p)
        l0a = slots["l0a"] * s.rows * (s.features * q + parts * s.summed * p)
        l0b = slots["l0b"] * (s.keys * s.features * q + parts * s.summed * wide * p)
        l0c = s.rows * (s.keys + parts * wide) * 4
        return {"l1": l1, "l0a": l0a, "l0b": l0b, "l0c": l0c, "ub": self._ub_bytes(s.rows, s.keys)}

    def _ub_bytes(self, rows: int, keys: int) -> int:
        """Bytes of ub: what is loaded and stored, what is carried, and temporaries of the softmax or of the update."""
        h, wide, once = rows // self.units, self._wide, self.pieces(keys) == 1
        tile = [h if a == self.row else keys if a == self.keys else 1 for a in self._chain_axes]
        chain = self.chain.steps.ub_bytes(tile, 1)
        wideness, thin = h * wide * 4, h * 32
        crossing = h * keys * itemsize(self.weighed) * (1 if once else 2) + wideness * (1 if once else 2)
        crossing += h * wide * itemsize(self.result)
        carried = 0 if once else wideness + 5 * thin
        held = h * keys * 4
        temporaries = max(2 * held + 8 * thin, 2 * wideness + 2 * thin)
        loads = max(chain - 2 * held, 0)
        return crossing + carried + temporaries + held * (itemsize(self.scored) == 4) + loads

    @cached_property
    def _chain_axes(self) -> list[int]:
        """The axis of the whole of each axis of the steps between the products."""
        return [*self.outer, self.keys]

    def check(self, name: str, schedule: Schedule) -> None:
        reason = self._refusal(as_attention(name, schedule))
        if reason is not None:
            raise cannot_obey(name, reason)

    def bound(self, schedule: Schedule) -> float:
        s, machine = as_attention("", schedule), self.machine
        assert s.rows and s.keys and s.grid and s.features and s.summed
        h, wide, pieces = s.rows // self.units, self._wide, self.pieces(s.keys)
        tiles = size([share(self._tiles(a, s.rows), n)[1] for a, n in zip(self.outer, s.grid, strict=True)])
        cube = self._cube_cycles(s)
        unit, streamed = machine.vector, machine.vector.streamed_cycles
        held, wideness = h * s.keys, h * wide
        lanes = unit.repeat_bytes // 4
        passes = 6 + sum(step.kind == "op" for step in self.chain.steps)
        softmax = (
            passes * held / lanes
            + 2 * held / unit.rates["reduce_max"]["f32"]
            + held / unit.rates["exp"]["f32"]
        )
        update = 3 * wideness / lanes
        vector = softmax + update + (passes + 14) * streamed
        signal = machine.cross_us * machine.clock_mhz
        step = max(cube, vector)
        first = cube + vector + 4 * signal
        cycles = tiles * (pieces * step + first)
        return machine.cycles_to_microseconds(cycles) + machine.launch_microseconds(size(s.grid), mixed=True)

    def _cube_cycles(self, s: AttentionSchedule) -> float:
        """Cycles of the slowest pipe of a cube core for one piece of the keys."""
        assert s.rows and s.keys and s.features and s.summed
        machine, wide = self.machine, self._wide
        q, p = itemsize(self.scored_from), itemsize(self.weighed)
        rate = machine.cube[dtype_name(self.scored_from)], machine.cube[dtype_name(self.weighed)]
        mma = s.rows / rate[0].m * s.keys / rate[0].n * self._shared / rate[0].k
        mma += s.rows / rate[1].m * wide / rate[1].n * s.keys / rate[1].k
        drains = machine.moves["l0c", "gm"]
        fix = drains.cycles(s.rows * s.keys * itemsize(self.scored)) + drains.cycles(s.rows * wide * 4)
        load = machine.moves["gm", "l1"]
        moved = s.keys * (self._shared * q + wide * p) + s.rows * s.keys * p
        mte2 = load.cycles(moved, s.keys * 2 + s.rows)
        left, right = machine.moves["l1", "l0a"], machine.moves["l1", "l0b"]
        mte1 = left.cycles(s.rows * (self._shared * q + s.keys * p), overlapped=True)
        mte1 += right.cycles(s.keys * (self._shared * q + wide * p), overlapped=True)
        return max(mma, fix, mte2, mte1) + 4 * machine.cube_fixed_cycles
