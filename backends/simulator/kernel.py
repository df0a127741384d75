"""The time and the work of one kernel: each distinct core simulated once, the heaviest one decides."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...dialects import npu as ops
from ...dialects.base import integer, source_of, text, to_ints
from ...dialects.dtypes import dtype_name, is_float, itemsize
from ...dialects.npu import Pipe, buffer, structure
from ...dialects.npu.interface import gm, vector_dtype
from ...dialects.npu.occupancy import blocks_at_once, occupancy_of
from ...machine import Machine
from .block import Block
from .core import BarrierWait, Core, Event
from .errors import SimulationError
from .nodes import Env
from .pricing import HBM, L2_CACHE, Counts, InstructionPrices, Tally
from .reuse import Reuse
from .section import TimedSection

Point = tuple[int, ...]

Key = tuple[object, ...]
"""Grid points with equal keys run alike."""

Queue = tuple[Key, ...]
"""What one core runs, one grid point after the other."""

PHASES = 4
"""Times within a launch at which the cores that are left share the bandwidth anew."""


@dataclass(frozen=True)
class Totals:
    """What a launch does, over all its cores, whatever its time.

    read, written: bytes of device memory by operand; macs: multiply-accumulates by element type; elements:
    lanes of vector instructions; lane_cycles: busy cycles of the vector unit's lanes, by their type; tile_bytes: bytes
    of on-chip memories read and written, by level; products: multiply-accumulates, and lanes: elements of the vector
    instructions that compute, by the types that they say; full_cycles: cycles of a vector unit that is as fast
    as its fastest instruction.
    """

    read: tuple[int, ...]
    written: tuple[int, ...]
    macs: dict[str, int]
    elements: int
    full_cycles: float
    lane_cycles: dict[str, int]
    tile_bytes: dict[str, int]
    products: dict[str, int]
    lanes: dict[str, int]

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate, one for each vector lane."""
        return 2 * sum(self.macs.values()) + self.elements


@dataclass(frozen=True)
class KernelRun:
    """The time of one launch, in cycles, for a given share of each operand's bytes crossing HBM (`missing`).

    cycles: from the start of the cores to the end of the heaviest; pipes: busy cycles of the heaviest core
    (where cube and vector cores work together, of the busiest one, pipe by pipe); limited: those of them that
    a bandwidth sets, by pipe and HBM or L2; throttled: HBM or L2 where all bytes over the chip's whole
    bandwidth take longer than any core; queue: the grid points that the heaviest core runs, one after the
    other.
    """

    cycles: int
    pipes: dict[str, int]
    limited: dict[str, dict[str, int]]
    throttled: str | None
    hbm_bytes: int
    l2_bytes: int
    queue: tuple[Point, ...]
    missing: tuple[float, ...]


@dataclass(frozen=True)
class Averages:
    """Means over the cores that work, in cycles: from start to end by kind of core, and busy by (kind, pipe); and
    how many instructions each pipe runs."""

    cycles: dict[str, float]
    pipes: dict[tuple[str, str], float]
    instructions: dict[tuple[str, str], float]


@dataclass
class CoreTrace:
    """What one of the heaviest cores did, in cycles: its events (the first if not `complete`) and end."""

    core: str
    section: TimedSection
    events: list[Event]
    end: int
    complete: bool


class _Class:
    """Grid points that run alike, cycle for cycle: one of them, and what each of its cores runs how often."""

    def __init__(self, point: Point, counts: list[tuple[int, Counts]]) -> None:
        self.point, self.counts, self.size = point, counts, 0


def lane_of(dtype: str) -> tuple[str, int]:
    """(type of the vector unit's lane in the energy table, its bytes) of an element type: 64 bits are two lanes, and
    8-bit floats are bytes, which are only moved."""
    width = min(max(itemsize(dtype), 1), 4)
    if is_float(dtype) and width > 1:
        return ("f32", 4) if width == 4 else ("f16", 2)
    return f"i{8 * width}", width


class TimedKernel:
    """A compiled kernel; `run` gives its time. Raises SimulationError for what cannot be compiled."""

    def __init__(
        self,
        op: structure.KernelOp,
        machine: Machine,
        extrapolate: bool = True,
        bypassing: frozenset[int] = frozenset(),
    ) -> None:
        """`bypassing`: operands that L2 does not keep, by number."""
        self.op, self.machine, self.extrapolate = op, machine, extrapolate
        self.name, self.kind, self.grid = text(op.sym_name), text(op.kind), to_ints(op.grid)
        self.source = source_of(op) or next((s for s in map(source_of, op.walk()) if s is not None), None)
        self.sections = [
            TimedSection(s, self.grid, machine)
            for s in op.body.block.ops
            if isinstance(s, structure.SectionOp)
        ]
        self.operands = len(op.body.block.args) - len(self.grid)
        self.workspaces = range(self.operands - integer(op.workspaces), self.operands)
        self._keys: list[Key] = []
        self._classes: dict[Key, _Class] = {}
        tallies = [Tally(section, extrapolate) for section in self.sections]
        self._points = list(itertools.product(*(range(g) for g in self.grid)))
        for point in self._points:
            self._add(point, tallies)
        self.blocks, self.occupancy = blocks_at_once(op, machine), occupancy_of(op, machine)
        self.totals = self._totals()
        self.bypassing = bypassing
        sizes = [gm(arg).bytes for arg in op.body.block.args[len(self.grid) :]]
        self.reuse = Reuse(self.sections, self.grid, machine.l2_bytes, bypassing, sizes)
        self._runs: dict[tuple[float, ...], KernelRun] = {}
        self._beside: dict[tuple[tuple[float, ...], int], int] = {}
        self._held: dict[tuple[tuple[float, ...], BarrierWait], int] = {}
        self._idle: dict[tuple[tuple[float, ...], str], int] = {}
        self._known_times: dict[tuple[float, ...], dict[Key, int]] = {}
        self._queues: list[Queue] = [tuple(self._keys[first :: self.blocks]) for first in range(self.blocks)]

    @property
    def cores(self) -> int:
        """Cores that work side by side; a cube core and its vector cores count as one."""
        return self.blocks * (self.sections[0].units if len(self.sections) == 1 else 1)

    @property
    def launch_microseconds(self) -> float:
        """What starting and ending a launch of its own costs, by the share of the chip that it occupies."""
        return self.occupancy.launch_microseconds(self.machine)

    def run(self, missing: tuple[float, ...]) -> KernelRun:
        """A launch where `missing` is the share of each operand's bytes that crosses HBM."""
        found = self._runs.get(missing)
        if found is None:
            found = self._runs[missing] = self._simulate(missing)
        return found

    def cycles_beside(self, missing: tuple[float, ...], cores: int) -> int:
        """Cycles of a launch while so many cores of other launches are at work, which take their share of the
        bandwidth."""
        if not cores:
            return self.run(missing).cycles
        key = missing, cores
        if key not in self._beside:
            prices = self._prices(missing, beside=cores)
            cycles = self._drain(Counter(self._queues), self._times(self._queues, prices), prices, missing, cores)
            self._beside[key] = max(cycles, self.run(missing).cycles)
        return self._beside[key]

    def averages(self, run: KernelRun) -> Averages:
        """What counters that are averaged over cores show for a launch.

        The cube's busy time has its head for the share of products that find it idle, which is taken as the
        idle share of the pipe itself: the simulation of time has it where it happens (core.py). Where a bandwidth of
        the chip holds all cores up, they wait for their loads and stores, by their bytes.
        """
        prices = self._prices(run.missing)
        ends: dict[str, float] = {}
        pipes: Counter[tuple[str, str]] = Counter()
        ran: Counter[tuple[str, str]] = Counter()
        cores = {core: self.blocks * s.units for s in self.sections for core in [s.core]}
        # What a core does before its first instruction is part of the launch.
        first = min(self.machine.scalar_start_us, self.launch_microseconds)
        start = first * self.machine.clock_mhz * self.blocks / len(self._points)
        shrunk = self._shrunk(run)
        for key, alike in self._classes.items():
            block = self._block(alike.point, prices)
            places = zip(block, alike.counts, self._environments(alike.point), strict=True)
            for core, (i, counts), (_, env) in places:
                name, price = self.sections[i].core, prices[i]
                end = core.end * shrunk[key]
                ends[name] = ends.get(name, 0.0) + end * alike.size / cores[name]
                busy, _ = price.pipes(counts)
                for pipe, cycles in busy.items():
                    pipes[name, pipe] += round(min(cycles, end) * alike.size)
                for (number, _), n in counts.items():
                    ran[name, price.section.works[number].op.PIPE] += n * alike.size
                _, issued = price.section.issued(env)
                pipes[name, Pipe.S] += round((issued + start) * alike.size)
        mean = {(name, pipe): cycles / cores[name] for (name, pipe), cycles in pipes.items()}
        moved: dict[str, int] = {Pipe.MTE2: sum(self.totals.read), Pipe.MTE3: sum(self.totals.written)}
        instructions = {(name, pipe): n / cores[name] for (name, pipe), n in ran.items()}
        for (name, pipe), n in instructions.items():
            if pipe == Pipe.M:
                idle = max(0.0, 1 - mean[name, pipe] / ends[name])
                mean[name, pipe] += n * self.machine.cube_head_cycles * idle
            elif pipe in moved and run.throttled is not None:
                mean[name, pipe] += max(0.0, run.cycles - ends[name]) * moved[pipe] / sum(moved.values())
        return Averages(ends, mean, instructions)

    def _shrunk(self, run: KernelRun) -> dict[Key, float]:
        """By how much grid points of a kind are faster, on the mean of their cores, than with all cores at work: a
        launch ends sooner than its longest queue would where others leave it their share."""
        times = self._full_times(run.missing)
        factors: dict[Key, list[float]] = {}
        for queue in self._queues:
            total = sum(times[key] for key in queue)
            for key in queue:
                factors.setdefault(key, []).append(min(1.0, run.cycles / total) if total else 1.0)
        return {key: sum(found) / len(found) for key, found in factors.items()}

    def trace(self, run: KernelRun, limit: int) -> list[CoreTrace]:
        """The first `limit` events or so of the heaviest core (of each core of its block) in `run`."""
        prices = self._prices(run.missing)
        traces: list[CoreTrace] = []
        start = 0
        for point in run.queue:
            cores = self._block(point, prices, max(0, limit - sum(len(t.events) for t in traces)))
            if not traces:
                traces = [
                    CoreTrace(name, core.section, [], 0, True) for name, core in zip(self._names(), cores)
                ]
            for trace, core in zip(traces, cores, strict=True):
                trace.events += [event.later(start) for event in core.events]
                trace.complete = trace.complete and not core.unrecorded
                trace.end = start + core.end
            start += max(core.end for core in cores)
        return traces

    # -- the parts -----------------------------------------------------------------------------------------

    def _environments(self, point: Point) -> list[tuple[int, Env]]:
        """(section, environment) of each core of a block."""
        return [
            (i, s.environment(point, unit)) for i, s in enumerate(self.sections) for unit in range(s.units)
        ]

    def _names(self) -> list[str]:
        return [
            section.core if section.units == 1 else f"{section.core}{unit}"
            for section in self.sections
            for unit in range(section.units)
        ]

    def _add(self, point: Point, tallies: Sequence[Tally]) -> None:
        cores = self._environments(point)
        key = tuple(self.sections[i].key(env) for i, env in cores) if self.extrapolate else point
        self._keys.append(key)
        if key not in self._classes:
            self._classes[key] = _Class(point, [(i, tallies[i].count(env)) for i, env in cores])
        self._classes[key].size += 1

    def _totals(self) -> Totals:
        """Sums over all cores."""
        read, written = [0] * self.operands, [0] * self.operands
        macs: Counter[str] = Counter()
        tile_bytes: Counter[str] = Counter()
        lane_cycles: Counter[str] = Counter()
        products: Counter[str] = Counter()
        lanes: Counter[str] = Counter()
        elements, full_cycles, peaks = 0, 0.0, dict[str, float]()
        for alike in self._classes.values():
            for i, counts in alike.counts:
                for (number, variant), times in counts.items():
                    work = self.sections[i].works[number]
                    cost, n = work.variants[variant], times * alike.size
                    if work.operand is not None:
                        (written if cost.write else read)[work.operand] += cost.gm_bytes * n
                    if cost.macs:
                        macs[dtype_name(buffer(work.op.sources()[0]).element)] += cost.macs * n
                        products[work.op.arithmetic()] += cost.macs * n
                    elif cost.elements and (types := work.op.arithmetic()):
                        lanes[types] += cost.elements * n
                    if isinstance(work.op, ops.VectorOp):
                        elements += cost.elements * n
                        dtype = vector_dtype(*work.op.main_operands())
                        lane, width = lane_of(dtype)
                        lane_cycles[lane] += cost.cycles * n * self.machine.vector.repeat_bytes // width
                        if dtype not in peaks:
                            peaks[dtype] = self.machine.vector.peak(dtype, width)
                        full_cycles += cost.elements * n / peaks[dtype]
                    for level, amount in work.tile_bytes.items():
                        tile_bytes[level] += amount * n
        sums = (dict(each) for each in (lane_cycles, tile_bytes, products, lanes))
        return Totals(tuple(read), tuple(written), dict(macs), elements, full_cycles, *sums)

    def _prices(self, missing: Sequence[float], blocks: int | None = None, beside: int = 0) -> list[InstructionPrices]:
        """What instructions cost while `blocks` of the grid (None: all that fit) run side by side, and `beside` cores
        of other launches."""
        blocks = self.blocks if blocks is None else blocks
        return [
            InstructionPrices(section, blocks * section.units, self.machine, missing, beside, runs, self.bypassing)
            for section, runs in zip(self.sections, self._runs_of_a_core, strict=True)
        ]

    @cached_property
    def _runs_of_a_core(self) -> list[Counts]:
        """How often a core runs each instruction of its section, on the mean of those that work."""
        total = [Counts() for _ in self.sections]
        for alike in self._classes.values():
            for i, counts in alike.counts:
                total[i].update({k: n * alike.size for k, n in counts.items()})
        return [
            Counts({k: -(-n // (self.blocks * s.units)) for k, n in counts.items()})
            for s, counts in zip(self.sections, total, strict=True)
        ]

    def _block(
        self, point: Point, prices: Sequence[InstructionPrices], record: int = 0, held: BarrierWait | None = None
    ) -> list[Core]:
        cores = [
            Core(self.sections[i], env, prices[i].busy, prices[i].matrices if self.extrapolate else None)
            for i, env in self._environments(point)
        ]
        for core in cores:
            core.record = -(-record // len(cores))
            if held is not None:
                core.hold(held)
        try:
            Block(cores).run()
        except SimulationError as error:
            raise SimulationError(f"@{self.name}: {error}") from error
        return cores

    def held_cycles(self, missing: tuple[float, ...], held: BarrierWait) -> int:
        """Cycles from the begin of a wait until a launch ends whose cores wait so, but load first what they may: at
        most those of the wait and of the launch."""
        key = missing, held
        if key not in self._held:
            self._held[key] = self._held_end(missing, held)
        return self._held[key]

    def _held_end(self, missing: tuple[float, ...], held: BarrierWait) -> int:
        run = self.run(missing)
        latest = held.cycles + run.cycles
        if run.throttled is not None:  # all bytes take that long, whenever they are loaded
            return latest
        late = self._end(missing, 0, lambda point, prices: self._block(point, prices, held=held))
        return min(run.cycles + late - self._end(missing), latest)

    def idle_cycles(self, missing: tuple[float, ...], kind: str) -> int:
        """Cycles before a launch ends in which none of its cores of a kind has anything left to do."""
        key = missing, kind
        if key not in self._idle:
            over = self._end(
                missing,
                -1,
                lambda point, prices: [c for c in self._block(point, prices) if c.section.core == kind],
            )
            self._idle[key] = self._end(missing) - over
        return self._idle[key]

    def _end(
        self,
        missing: tuple[float, ...],
        at: int = 0,
        cores: Callable[[Point, Sequence[InstructionPrices]], Iterable[Core]] | None = None,
    ) -> int:
        """When the last queue of grid points is done while all cores work, in cycles; where `cores` is given, with
        these running the point number `at` of each."""
        times = self._full_times(missing)
        spans = {queue: sum(times[key] for key in queue) for queue in self._queues}
        if cores is None:
            return max(spans.values())
        prices = self._prices(missing)
        ends = {
            key: max(core.end for core in cores(self._classes[key].point, prices))
            for key in {queue[at] for queue in spans}
        }
        return max(span - times[queue[at]] + ends[queue[at]] for queue, span in spans.items())

    def _simulate(self, missing: tuple[float, ...]) -> KernelRun:
        prices = self._prices(missing)
        times = self._full_times(missing)
        heaviest = max(range(self.blocks), key=lambda core: sum(times[key] for key in self._queues[core]))
        cycles = self._drain(Counter(self._queues), times, prices, missing)
        classes = [self._classes[key] for key in self._queues[heaviest]]
        pipes, limited = self._busiest(classes, prices)
        moved = [r + w for r, w in zip(self.totals.read, self.totals.written, strict=True)]
        total, hbm_bytes = sum(moved), round(sum(b * m for b, m in zip(moved, missing, strict=True)))
        floors = {
            HBM: math.ceil(hbm_bytes * self._turning(missing) / self.machine.hbm_bytes_per_cycle),
            L2_CACHE: math.ceil(total / self.machine.l2_bytes_per_cycle),
        }
        slowest = max(floors, key=lambda level: floors[level])
        return KernelRun(
            cycles=max(cycles, floors[slowest]),
            pipes={pipe: min(busy, cycles) for pipe, busy in pipes.items()},
            limited=limited,
            throttled=slowest if floors[slowest] > cycles else None,
            hbm_bytes=hbm_bytes,
            l2_bytes=total - hbm_bytes,
            queue=tuple(self._points[heaviest :: self.blocks]),
            missing=missing,
        )

    def _turning(self, missing: Sequence[float]) -> float:
        """How much longer HBM takes where it turns between reading and writing: most where it does both alike."""
        read, written = (
            sum(b * m for b, m in zip(moved, missing, strict=True))
            for moved in (self.totals.read, self.totals.written)
        )
        mixed = 2 * min(read, written) / (read + written) if read and written else 0.0
        return 1 + self.machine.hbm_turn_share * mixed

    def _full_times(self, missing: tuple[float, ...]) -> dict[Key, int]:
        """Cycles of each class of grid points while all cores work."""
        if missing not in self._known_times:
            self._known_times[missing] = self._times(self._queues, self._prices(missing))
        return self._known_times[missing]

    def _times(self, work: Iterable[Queue], prices: Sequence[InstructionPrices]) -> dict[Key, int]:
        """Cycles of each class of grid points in some queues."""
        return {
            key: max((core.end for core in self._block(self._classes[key].point, prices)), default=0)
            for key in dict.fromkeys(key for queue in work for key in queue)
        }

    def _drain(
        self,
        work: Counter[Queue],
        times: dict[Key, int],
        prices: Sequence[InstructionPrices],
        missing: Sequence[float],
        beside: int = 0,
    ) -> int:
        """Cycles until all queues are empty. When some cores are done, the others get their share of the bandwidth:
        the rest of their work goes on at the speed that it has with fewer cores. Queues that end within a hundredth
        of each other end together, and after `PHASES` such changes the share stays."""
        left = dict.fromkeys(work, 1.0)
        now, active = 0.0, self.blocks
        for phase in range(PHASES):
            ends = {queue: share * sum(times[key] for key in queue) for queue, share in left.items()}
            first, last = min(ends.values()), max(ends.values())
            done = [queue for queue, end in ends.items() if end <= first * 1.01]
            active -= sum(work[queue] for queue in done)
            if len(done) == len(left) or phase == PHASES - 1:
                return math.ceil(now + last)
            fewer = self._prices(missing, active, beside)
            if all(a.busy == b.busy for a, b in zip(fewer, prices, strict=True)):
                return math.ceil(now + last)
            now += max(ends[queue] for queue in done)
            left = {
                queue: share * (1 - max(ends[q] for q in done) / ends[queue])
                for queue, share in left.items()
                if queue not in done
            }
            prices = fewer
            times = self._times(left, prices)
        return math.ceil(now)

    def _busiest(
        self, classes: Sequence[_Class], prices: Sequence[InstructionPrices]
    ) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """Busy and bandwidth-limited cycles by pipe, of the core of a block where that pipe is busiest."""
        pipes: dict[str, int] = {}
        limited: dict[str, dict[str, int]] = {}
        for place in range(len(self._names())):
            counts: Counts = Counter()
            for alike in classes:
                counts.update(alike.counts[place][1])
            busy, by_level = prices[classes[0].counts[place][0]].pipes(counts)
            for pipe, cycles in busy.items():
                if cycles > pipes.get(pipe, 0):
                    pipes[pipe] = cycles
                    limited[pipe] = dict(by_level.get(pipe, {}))
        return pipes, limited
