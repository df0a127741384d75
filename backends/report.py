"""What a program costs: time, cycles, bytes, energy and memory, kernel by kernel, with the reason for each.

`Report.to_json` gives this object; keys stay, new ones may come:

    {"schema": "tilewright.report/1", "target": str,
     "microseconds": float,            first command to the end of the last, whatever runs side by side
     "queues": {queue: microseconds},  how long each stream (compute, copy_in, copy_out, host) and the program's own
                                       thread (program) is busy
     "cycles": int,                    core cycles in which kernels ran, launches and host calls excluded
     "energy_joules": float,           modelled, not measured
     "energy": {"macs": J, "vector": J, "gm": J, "l2": J, "l1": J, "l0": J, "ub": J, "idle": J},
     "memory": {"arena_bytes": int, "constant_bytes": int, "capacity_bytes": int,
                "donated_bytes": int, "undonated_arena_bytes": int | null,
                "spaces": {space: {"peak_bytes": int, "capacity_bytes": int, "kernel": str}}},
     "counts": {"kernels": int,         in the program; copies are no kernels
                "launched_kernels": int, "launches": int, "copies": int, "host_calls": int},
     "kernels": [{"name": str, "kind": str, "launches": int, "cores": int,    kind "copy": all copies
                  "microseconds": float, "launch_microseconds": float,    all launches
                  "bound": "launch" | "HBM" | "L2" | pipe | "<pipe> (HBM)" | "<pipe> (L2)",
                  "pipes": {pipe: microseconds},      busy, of the heaviest core, all launches
                  "bytes": {"hbm": int, "l2": int,    by where they came from or went to
                            "read": int, "write": int},
                  "macs": int, "flops": int, "source": "file:line" | null}],
     "host_ops": [{"name": str, "calls": int, "bytes": int,
                   "microseconds": float,              runtime calls, transfers and computing
                   "transfer_microseconds": float, "compute_microseconds": float, "source": str | null}],
     "host_scalars": {"operations": int, "microseconds": float},     arithmetic on numbers between launches
     "npu_flops_fraction": float,      a host op counts one flop for each element of its results
     "npu_ops_fraction": float,        kernel launches of launches and host calls
     "assumed_trips": [str],           loops of unknown trip count: counted once
     "assumed_branches": [str],        branches: the longest is counted
     "packing_microseconds": float | null,     once for all calls: what depends on the weights alone
     "precision": null | {"mode": str, "products": int,     null where nothing was cast; products of the narrow type
                          "narrow": int,                    ops that compute with it, these products among them
                          "kept": [{"op": str, "why": str,  ops that compute with f32
                                    "count": int, "source": "file:line" | null}]}}
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from ..dialects.base import integer
from ..dialects.npu import buffer
from ..dialects.npu.streams import QUEUES
from ..dialects.precision import PrecisionRecord, recorded_precision
from ..machine import LEVELS, Machine
from .counts import Counts, counts_of
from .html import table_html
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
    simulate,
    track,
)
from .terminal import Fitted

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "tilewright.report/1"


@dataclass(frozen=True)
class KernelReport:
    """All launches of one kernel; see the schema at the top of this module."""

    name: str
    kind: str
    launches: int
    cores: int
    microseconds: float
    launch_microseconds: float
    bound: str
    pipes: dict[str, float]
    bytes: dict[str, int]
    macs: int
    flops: int
    source: str | None


@dataclass(frozen=True)
class HostOpReport:
    """All calls of one op that runs on the host."""

    name: str
    calls: int
    bytes: int
    microseconds: float
    transfer_microseconds: float
    compute_microseconds: float
    source: str | None


@dataclass(frozen=True)
class HostScalarsReport:
    """All that the host computes with single numbers: counters, conditions, starts of slices."""

    operations: int
    microseconds: float


@dataclass(frozen=True)
class SpaceReport:
    """The fullest that one on-chip memory gets, and the kernel that fills it so."""

    peak_bytes: int
    capacity_bytes: int
    kernel: str


@dataclass(frozen=True)
class MemoryReport:
    """Device memory in bytes (arena: the most that the program ever has, all that is planned, constants included), and
    each on-chip memory. donated: arguments whose memory the program may use; undonated_arena: what the arena would be
    if it might not, None for a program that was planned by hand."""

    arena_bytes: int
    constant_bytes: int
    capacity_bytes: int
    spaces: dict[str, SpaceReport]
    donated_bytes: int = 0
    undonated_arena_bytes: int | None = None


@dataclass(frozen=True, repr=False)
class Report:
    """What a program costs; see the schema at the top of this module."""

    target: str
    microseconds: float
    queues: dict[str, float]
    cycles: int
    energy_joules: float
    energy: dict[str, float]
    memory: MemoryReport
    counts: Counts
    kernels: list[KernelReport]
    host_ops: list[HostOpReport]
    host_scalars: HostScalarsReport
    npu_flops_fraction: float
    npu_ops_fraction: float
    assumed_trips: list[str]
    assumed_branches: list[str]
    packing_microseconds: float | None = None
    precision: PrecisionRecord | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the schema."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self) -> str:
        """The schema as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return (
            f"{self.microseconds:,.1f} us on {self.target}: {self.counts}, "
            f"{self.energy_joules * 1e3:.3g} mJ (modelled)"
        )

    def __repr__(self) -> str:
        return f"<Report {self}>"

    def _repr_html_(self) -> str:
        """The kernels as a table for notebooks, the most expensive first."""
        rows: list[tuple[float, list[str | float]]] = []
        for k in self.kernels:
            moved = (k.bytes["read"] + k.bytes["write"]) / 1e6
            source = (k.source or "").rpartition("/")[2]
            share = k.microseconds / self.microseconds if self.microseconds else 0.0
            cells = [k.name, k.kind, f"{k.launches}", f"{k.cores}", f"{k.microseconds:,.1f}", share, k.bound]
            rows.append((k.microseconds, [*cells, f"{moved:,.2f}", source]))
        for op in self.host_ops:
            share = op.microseconds / self.microseconds if self.microseconds else 0.0
            cells = [op.name, "host", f"{op.calls}", "", f"{op.microseconds:,.1f}", share, "host"]
            rows.append(
                (op.microseconds, [*cells, f"{op.bytes / 1e6:,.2f}", (op.source or "").rpartition("/")[2]])
            )
        header = ["kernel", "kind", "launches", "cores", "us", "share", "bound", "MB", "source"]
        ordered = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
        return table_html(str(self), header, ordered, self._notes())

    def __rich__(self) -> Fitted:
        return Fitted(self.rich_table())

    def rich_table(self, borders: bool = True) -> Table:
        """The kernels as a table for a rich console, the most expensive first."""
        from rich import box
        from rich.table import Table

        table = Table(
            title=str(self),
            title_justify="left",
            caption=self._notes(),
            caption_justify="left",
            box=box.HEAVY_HEAD if borders else None,
        )
        table.add_column("kernel", overflow="fold")
        table.add_column("kind")
        for name in ("launches", "cores", "us", "share"):
            table.add_column(name, justify="right")
        table.add_column("bound")
        table.add_column("pipes, us")
        table.add_column("MB", justify="right")
        table.add_column("source", overflow="fold")
        for kernel in sorted(self.kernels, key=lambda k: -k.microseconds):
            busiest = sorted(kernel.pipes.items(), key=lambda pipe: -pipe[1])[:3]
            table.add_row(
                kernel.name,
                kernel.kind,
                str(kernel.launches),
                str(kernel.cores),
                f"{kernel.microseconds:,.1f}",
                self._share(kernel.microseconds),
                kernel.bound,
                " ".join(f"{pipe} {us:.1f}" for pipe, us in busiest),
                f"{(kernel.bytes['read'] + kernel.bytes['write']) / 1e6:,.2f}",
                _nearby(kernel.source),
            )
        for op in sorted(self.host_ops, key=lambda o: -o.microseconds):
            table.add_row(
                op.name,
                "host",
                str(op.calls),
                "",
                f"{op.microseconds:,.1f}",
                self._share(op.microseconds),
                "host",
                f"link {op.transfer_microseconds:.1f} compute {op.compute_microseconds:.1f}",
                f"{op.bytes / 1e6:,.2f}",
                _nearby(op.source),
            )
        if self.host_scalars.operations:
            time = self.host_scalars.microseconds
            row = ["numbers", "host", "", "", f"{time:,.1f}", self._share(time), "host", "", "", ""]
            table.add_row(*row)
        return table

    def table(self, width: int = 150, borders: bool = True) -> str:
        """The table as plain text of at most `width` columns; without `borders`, columns with spaces between."""
        from rich.console import Console

        console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(self.rich_table(borders))
        return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())

    def _share(self, microseconds: float) -> str:
        return f"{100 * microseconds / self.microseconds:.1f}%" if self.microseconds else ""

    def _notes(self) -> str:
        busy = ", ".join(f"{queue} {time:,.1f}" for queue, time in self.queues.items())
        notes = [f"side by side, us: {busy}"] if len(self.queues) > 1 else []
        notes += [f"counted once, trip count unknown: {loop}" for loop in self.assumed_trips]
        notes += [f"longest branch counted: {branch}" for branch in self.assumed_branches]
        if self.packing_microseconds is not None:
            notes.append(f"packing the weights, once: {self.packing_microseconds:,.1f} us")
        if self.precision is not None:
            notes += self.precision.sentences()
        return "\n".join(notes)


def _nearby(source: str | None) -> str:
    """A place, by its path from here where it lies below."""
    if source is None:
        return ""
    here = os.getcwd().rstrip(os.sep) + os.sep
    return source.removeprefix(here)


def build_report(module: ModuleOp, machine: Machine, undonated_arena: int | None = None) -> Report:
    """Simulate the npu-level `module` on `machine` and sum up. Raises SimulationError."""
    return report_of(simulate(module, machine), undonated_arena, recorded_precision(module))


def report_of(
    simulation: Simulation, undonated_arena: int | None = None, precision: PrecisionRecord | None = None
) -> Report:
    """Sum up a simulation. precision: what the module records of its casts."""
    kernels: dict[str, _KernelSum] = {}
    host: dict[tuple[str, str | None], _HostSum] = {}
    energy = _Energy(simulation.machine)
    host_flops = host_calls = operations = 0
    queues: dict[str, float] = {}
    for step, times in simulation.flat():
        queues[track(step)] = queues.get(track(step), 0.0) + step.microseconds * times
        if isinstance(step, HostCall | Transfer):
            host.setdefault((step.name, step.source), _HostSum()).add(step, times)
            if isinstance(step, Transfer):
                energy.device("gm", step.bytes * times)
            else:
                host_flops += step.elements * times
                host_calls += times
        elif isinstance(step, Scalars):
            operations += step.operations * times
        elif isinstance(step, Copy):
            kernels.setdefault("copy", _KernelSum(None, simulation.machine)).copy(step, times, energy)
        else:
            name = step.kernel.name
            found = kernels.setdefault("@" + name, _KernelSum(step.kernel, simulation.machine))
            found.launch(step, times, energy)
    reports = [total.report() for total in kernels.values()]
    launches = sum(total.launches for total in kernels.values() if total.kernel is not None)
    flops = sum(report.flops for report in reports)
    microseconds = simulation.microseconds
    joules = energy.joules(microseconds)
    return Report(
        target=simulation.machine.name,
        microseconds=microseconds,
        queues={queue: queues[queue] for queue in QUEUES if queue in queues},
        cycles=sum(total.cycles for total in kernels.values()),
        energy_joules=sum(joules.values()),
        energy=joules,
        memory=_memory(simulation, undonated_arena),
        counts=counts_of(simulation),
        kernels=reports,
        host_ops=[total.report(name, source) for (name, source), total in host.items()],
        host_scalars=HostScalarsReport(operations, operations * simulation.machine.host.scalar_us),
        npu_flops_fraction=flops / (flops + host_flops) if flops + host_flops else 1.0,
        npu_ops_fraction=launches / (launches + host_calls) if launches + host_calls else 1.0,
        assumed_trips=list(simulation.assumed_trips),
        assumed_branches=list(simulation.assumed_branches),
        precision=precision,
    )


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
    """Adds up the launches of one kernel, or the copies where there is no kernel. Times in cycles."""

    def __init__(self, kernel: TimedKernel | None, machine: Machine) -> None:
        self.kernel, self.machine = kernel, machine
        self.launches = self.cycles = 0
        self.microseconds = self.launch_microseconds = 0.0
        self.pipes: Counter[str] = Counter()
        self.limited: dict[str, Counter[str]] = {}
        self.throttled: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.macs = self.flops = 0
        self.source: str | None = None if kernel is None else kernel.source

    def launch(self, step: Launch, times: int, energy: _Energy) -> None:
        kernel, run = step.kernel, step.run
        totals = kernel.totals
        self._add(step, run.cycles, times)
        for pipe, cycles in run.pipes.items():
            self.pipes[pipe] += cycles * times
            for level, amount in run.limited[pipe].items():
                self.limited.setdefault(pipe, Counter())[level] += amount * times
        if run.throttled is not None:
            self.throttled[run.throttled] += run.cycles * times
        self._move(run.hbm_bytes, run.l2_bytes, sum(totals.read), sum(totals.written), times, energy)
        for dtype, count in totals.macs.items():
            self.macs += count * times
            energy.macs(dtype, count * times)
        for kind, cycles in totals.lane_cycles.items():
            energy.lanes(kind, cycles * times)
        for level, count in totals.tile_bytes.items():
            energy.device(level, count * times)
        self.flops += totals.flops * times

    def copy(self, step: Copy, times: int, energy: _Energy) -> None:
        self._add(step, step.cycles, times)
        self.throttled[HBM if step.hbm_bytes else L2_CACHE] += step.cycles * times
        self._move(step.hbm_bytes, 2 * step.bytes - step.hbm_bytes, step.bytes, step.bytes, times, energy)
        self.source = self.source or step.source

    def _add(self, step: Launch | Copy, cycles: int, times: int) -> None:
        self.launches += times
        self.cycles += cycles * times
        self.microseconds += step.microseconds * times
        self.launch_microseconds += (step.microseconds - self.machine.cycles_to_microseconds(cycles)) * times

    def _move(self, hbm: int, l2: int, read: int, write: int, times: int, energy: _Energy) -> None:
        for key, amount in (("hbm", hbm), ("l2", l2), ("read", read), ("write", write)):
            self.bytes[key] += amount * times
        energy.device("gm", hbm * times)
        energy.device("l2", (hbm + l2) * times)

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
            launches=self.launches,
            cores=1 if kernel is None else kernel.cores,
            microseconds=self.microseconds,
            launch_microseconds=self.launch_microseconds,
            bound=self.bound(),
            pipes={p: self.machine.cycles_to_microseconds(c) for p, c in sorted(self.pipes.items())},
            bytes={key: self.bytes[key] for key in ("hbm", "l2", "read", "write")},
            macs=self.macs,
            flops=self.flops,
            source=self.source,
        )


def _memory(simulation: Simulation, undonated_arena: int | None) -> MemoryReport:
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
    return MemoryReport(
        simulation.arena_bytes,
        simulation.constant_bytes,
        capacity,
        spaces,
        simulation.donated_bytes,
        undonated_arena,
    )
