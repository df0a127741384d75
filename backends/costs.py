"""Sums up a simulation: what `report.py` shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from ..dialects.base import integer
from ..dialects.chosen import chosen_mode
from ..dialects.module import find_main, known_plans_of, left_out_of
from ..dialects.npu import buffer, gm
from ..dialects.npu.lifetimes import fullest_of
from ..dialects.npu.places import limit_of
from ..dialects.npu.streams import QUEUES
from ..dialects.npu.structure import LaunchOp, ToDeviceOp, ToHostOp
from ..dialects.precision import recorded_precision
from ..dialects.source_places import SourcePlace, places_of
from ..machine import LEVELS, Machine
from .avoided import avoided_copies
from .counts import counts_of
from .floors import floor_of, floors_of
from .report import (
    HostOpReport,
    HostScalarsReport,
    KernelReport,
    LessMemory,
    MemoryConsumer,
    MemoryReport,
    Report,
    SpaceReport,
)
from .simulator import (
    HBM,
    L2_CACHE,
    Copy,
    HostCall,
    Launch,
    Scalars,
    Simulation,
    TimedKernel,
    Transfer,
    judge,
    simulate,
    track,
)

CONSUMERS = 5
"""Tensors that a report names where most device memory is needed."""


def build_report(module: ModuleOp, machine: Machine, undonated_arena: int | None = None) -> Report:
    """Simulate the npu-level `module` on `machine` and sum up. Raises SimulationError."""
    return report_of(simulate(module, machine), module, undonated_arena)


def report_of(simulation: Simulation, module: ModuleOp, undonated_arena: int | None = None) -> Report:
    """Sum up a simulation of a module at the npu level."""
    sums = _Sums(simulation)
    reports = [total.report() for total in sums.kernels.values()]
    runs = sum(total.runs for total in sums.kernels.values() if total.kernel is not None)
    flops = sum(report.flops for report in reports)
    host_flops, host_calls = sums.host_flops, sums.host_calls
    microseconds = simulation.microseconds
    joules = sums.energy.joules(microseconds)
    return Report(
        target=simulation.machine.name,
        microseconds=microseconds,
        queues={queue: sums.queues[queue] for queue in QUEUES if queue in sums.queues},
        cycles=sum(total.cycles for total in sums.kernels.values()),
        energy_joules=sum(joules.values()),
        energy=joules,
        memory=_memory(simulation, module, undonated_arena),
        counts=counts_of(simulation),
        kernels=reports,
        host_ops=[total.report(name, source) for (name, source), total in sums.host.items()],
        host_scalars=HostScalarsReport(sums.operations, sums.operations * simulation.machine.host.scalar_us),
        npu_flops_fraction=flops / (flops + host_flops) if flops + host_flops else 1.0,
        npu_ops_fraction=runs / (runs + host_calls) if runs + host_calls else 1.0,
        assumed_trips=list(simulation.assumed_trips),
        assumed_branches=list(simulation.assumed_branches),
        left_out=left_out_of(module),
        known_plans=sum(known_plans_of(module).values()),
        precision=recorded_precision(module),
        avoided_copies=avoided_copies(module),
        judge=judge(simulation.machine),
    )


def joules_of(simulation: Simulation) -> dict[str, float]:
    """Modelled joules of a program by consumer, as its report has them."""
    return _Sums(simulation).energy.joules(simulation.microseconds)


class _Sums:
    """What adds up over the steps of a program."""

    def __init__(self, simulation: Simulation) -> None:
        machine = simulation.machine
        self.kernels: dict[str, _KernelSum] = {}
        self.host: dict[tuple[str, str | None], _HostSum] = {}
        self.queues: dict[str, float] = {}
        self.energy = _Energy(machine)
        self.host_flops = self.host_calls = self.operations = 0
        for step, times in simulation.flat():
            self.queues[track(step)] = self.queues.get(track(step), 0.0) + step.microseconds * times
            if isinstance(step, HostCall | Transfer):
                self.host.setdefault((step.name, step.source), _HostSum()).add(step, times)
                if isinstance(step, Transfer):
                    self.energy.device("gm", step.bytes * times)
                else:
                    self.host_flops += step.elements * times
                    self.host_calls += times
            elif isinstance(step, Scalars):
                self.operations += step.operations * times
            elif isinstance(step, Copy):
                self.kernels.setdefault("copy", _KernelSum(None, machine)).copy(step, times)
            else:
                name = "@" + step.kernel.name
                self.kernels.setdefault(name, _KernelSum(step.kernel, machine)).launch(step, times)
        for total in self.kernels.values():
            self.energy.add(total.energy)


class _Energy:
    """Picojoules by consumer, from the machine's energy table."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        own = [space.level for space in machine.spaces.values() if space.name not in (*LEVELS, "gm")]
        self._picojoules: dict[str, float] = dict.fromkeys(
            ("macs", "vector", "gm", "l2", "l1", "l0", "ub", *own), 0.0
        )

    def macs(self, dtype: str, count: int) -> None:
        self._picojoules["macs"] += self._machine.energy.pj_per_mac[dtype] * count

    def lanes(self, kind: str, cycles: int) -> None:
        self._picojoules["vector"] += self._machine.energy.pj_per_lane[kind] * cycles

    def device(self, level: str, count: int) -> None:
        self._picojoules[level] += self._machine.energy.pj_per_byte[level] * count

    def add(self, other: _Energy) -> None:
        for level, amount in other._picojoules.items():
            self._picojoules[level] += amount

    def joules(self, microseconds: float) -> dict[str, float]:
        """By consumer, with what the chip draws when idle over the whole time."""
        found = {key: amount * 1e-12 for key, amount in self._picojoules.items()}
        return {**found, "idle": self._machine.energy.idle_watts * microseconds * 1e-6}


@dataclass
class _HostSum:
    """Adds up the calls of one host op and its transfers, or what the program reads of the device."""

    calls: int = 0
    bytes: int = 0
    microseconds: float = 0.0
    transfer: float = 0.0
    compute: float = 0.0

    def add(self, step: HostCall | Transfer, times: int) -> None:
        self.microseconds += step.microseconds * times
        if isinstance(step, HostCall):
            self.calls += times
            self.compute += step.compute_microseconds * times
        else:
            self.calls += times if step.control else 0
            self.bytes += step.bytes * times
            self.transfer += step.link_microseconds * times

    def report(self, name: str, source: str | None) -> HostOpReport:
        return HostOpReport(
            name, self.calls, self.bytes, self.microseconds, self.transfer, self.compute, source
        )


class _KernelSum:
    """Adds up the runs of one kernel, or the copies where there is no kernel. Times in cycles."""

    def __init__(self, kernel: TimedKernel | None, machine: Machine) -> None:
        self.kernel, self.machine = kernel, machine
        self.runs = self.joined = self.cycles = 0
        self.microseconds = self.launch_microseconds = 0.0
        self.launches: list[tuple[Launch, int]] = []
        self.pipes: Counter[str] = Counter()
        self.limited: dict[str, Counter[str]] = {}
        self.throttled: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.macs = self.flops = 0
        self.products: Counter[str] = Counter()
        self.lanes: Counter[str] = Counter()
        self.modes: dict[str, str] = {}
        self.source: str | None = None if kernel is None else kernel.source
        self.launched_from: set[SourcePlace] = set()
        self.floors: dict[str, float] = {}
        self.floor = 0.0
        self.energy = _Energy(machine)

    def launch(self, step: Launch, times: int) -> None:
        kernel, run = step.kernel, step.run
        totals = kernel.totals
        self.joined += times if step.joined else 0
        self._add(step, run.cycles, times)
        self.launches.append((step, times))
        for pipe, cycles in run.pipes.items():
            self.pipes[pipe] += cycles * times
            for level, amount in run.limited[pipe].items():
                self.limited.setdefault(pipe, Counter())[level] += amount * times
        if run.throttled is not None:
            self.throttled[run.throttled] += run.cycles * times
        self._move(run.hbm_bytes, run.l2_bytes, sum(totals.read), sum(totals.written), times)
        for dtype, count in totals.macs.items():
            self.macs += count * times
            self.energy.macs(dtype, count * times)
        for kind, cycles in totals.lane_cycles.items():
            self.energy.lanes(kind, cycles * times)
        for level, count in totals.tile_bytes.items():
            self.energy.device(level, count * times)
        self.flops += totals.flops * times
        for types, count in totals.products.items():
            self.products[types] += count * times
        for types, count in totals.lanes.items():
            self.lanes[types] += count * times
        self.launched_from |= {*places_of([step.op])}
        chosen = chosen_mode(step.op)
        if chosen is not None:
            self.modes[chosen.name] = chosen.mode

    @property
    def cold_microseconds(self) -> float:
        """What runs take longer, as L2 does not have what they read: each is simulated once more for that."""
        return sum(self.machine.cycles_to_microseconds(step.cold_cycles) * n for step, n in self.launches)

    def copy(self, step: Copy, times: int) -> None:
        self._add(step, step.cycles, times)
        self.throttled[HBM if step.hbm_bytes else L2_CACHE] += step.cycles * times
        self._move(step.hbm_bytes, 2 * step.bytes - step.hbm_bytes, step.bytes, step.bytes, times)
        self.source = self.source or step.source

    def _add(self, step: Launch | Copy, cycles: int, times: int) -> None:
        self.runs += times
        self.cycles += cycles * times
        self.microseconds += step.microseconds * times
        if isinstance(step, Launch):
            overhead = step.overhead
        else:
            overhead = step.microseconds - self.machine.cycles_to_microseconds(cycles)
        self.launch_microseconds += overhead * times
        needs = floors_of(step, self.machine)
        self.floor += floor_of(step, needs) * times
        for resource, microseconds in needs.items():
            self.floors[resource] = self.floors.get(resource, 0.0) + microseconds * times

    def _move(self, hbm: int, l2: int, read: int, write: int, times: int) -> None:
        for key, amount in (("hbm", hbm), ("l2", l2), ("read", read), ("write", write)):
            self.bytes[key] += amount * times
        self.energy.device("gm", hbm * times)
        self.energy.device("l2", (hbm + l2) * times)

    def bound(self) -> str:
        """What to improve first: the launch overhead, a bandwidth, or the busiest pipe and what slows it."""
        if 2 * self.launch_microseconds > self.microseconds:
            return "launch"
        level, cycles = max(self.throttled.items(), key=lambda item: item[1], default=("", 0))
        if 2 * cycles > self.cycles:
            return level
        if not self.pipes:
            return "launch"
        pipe = max(self.pipes, key=lambda name: self.pipes[name])
        level, cycles = max(self.limited.get(pipe, {}).items(), key=lambda item: item[1], default=("", 0))
        return f"{pipe} ({level})" if 2 * cycles > self.pipes[pipe] else pipe

    def report(self) -> KernelReport:
        kernel = self.kernel
        return KernelReport(
            name="copy" if kernel is None else kernel.name,
            kind="copy" if kernel is None else kernel.kind,
            launches=self.runs,
            cores=1 if kernel is None else kernel.cores,
            microseconds=self.microseconds,
            launch_microseconds=self.launch_microseconds,
            cold_microseconds=self.cold_microseconds,
            bound=self.bound(),
            pipes={p: self.machine.cycles_to_microseconds(c) for p, c in sorted(self.pipes.items())},
            bytes={key: self.bytes[key] for key in ("hbm", "l2", "read", "write")},
            macs=self.macs,
            flops=self.flops,
            source=self.source,
            sources=() if kernel is None else tuple(sorted({*places_of(kernel.op.walk()), *self.launched_from})),
            macs_by_precision=dict(self.products),
            lanes_by_precision=dict(self.lanes),
            modes=self.modes,
            joined=self.joined,
            floor_microseconds=self.floor,
            floors=self.floors,
            energy_joules=sum(self.energy.joules(self.microseconds).values()),
        )


def _memory(simulation: Simulation, module: ModuleOp, undonated_arena: int | None) -> MemoryReport:
    machine = simulation.machine
    if not simulation.donated_bytes:
        undonated_arena = simulation.arena_bytes
    spaces: dict[str, SpaceReport] = {}
    for kernel in simulation.kernels.values():
        for section in kernel.sections:
            ends: Counter[str] = Counter()
            for alloc in section.allocs:
                kind = buffer(alloc.result)
                amount = kind.slot_bytes * kind.slots
                if alloc.address is None:
                    ends[kind.space] += amount
                else:
                    ends[kind.space] = max(ends[kind.space], integer(alloc.address) + amount)
            for space, peak in ends.items():
                if space not in spaces or peak > spaces[space].peak_bytes:
                    capacity = machine.spaces[space].bytes if space in machine.spaces else 0
                    spaces[space] = SpaceReport(peak, capacity, kernel.name)
    capacity = machine.spaces["gm"].bytes
    live, main = fullest_of(module, machine.gm_align), find_main(module)
    return MemoryReport(
        simulation.arena_bytes,
        simulation.constant_bytes,
        capacity,
        spaces,
        simulation.donated_bytes,
        undonated_arena,
        live.bytes,
        live.place,
        [MemoryConsumer(t.name, t.bytes, t.source) for t in live.tensors[:CONSUMERS]],
        None if main is None else limit_of(main),
        _less(simulation),
    )


def _less(simulation: Simulation) -> LessMemory:
    """What is done again, or moved to the host and back, so that less memory is needed."""
    launches = tensors = again = moved = 0
    taken = link = 0.0
    for step, times in simulation.flat():
        if isinstance(step, Launch) and isinstance(step.op, LaunchOp) and step.op.again is not None:
            launches += times
            again += times * sum(gm(v).bytes for v in step.op.written())
            taken += times * step.microseconds
        elif isinstance(step, Transfer) and _parks(step.op):
            tensors += times * isinstance(step.op, ToHostOp)
            moved += times * step.bytes * isinstance(step.op, ToHostOp)
            link += times * step.microseconds
    return LessMemory(launches, again, taken, tensors, moved, link)


def _parks(op: Operation) -> bool:
    return (isinstance(op, ToHostOp) and op.parks) or (isinstance(op, ToDeviceOp) and op.restores)
