"""What a program costs: time, cycles, bytes, energy and memory, kernel by kernel, with the reason for each.

`Report.to_json` gives this object; keys stay, new ones may come:

    {"schema": "tilewright.report/1", "target": str,
     "microseconds": float,            first command to the end of the last, whatever runs side by side
     "floor_microseconds": float,      below which no kernels of this work get: the largest of all that crosses HBM at
                                       least, of all products and of all vector lanes, each at the chip's peak
     "efficiency": float | null,       floor_microseconds / microseconds
     "cold_microseconds": float,       what runs of kernels take longer, as L2 does not have what they read
     "judge": str,                     digest of the rules and numbers that times follow from (simulator/judge.py)
     "queues": {queue: microseconds},  how long each stream (compute, copy_in, copy_out, host) and the program's own
                                       thread (program) is busy
     "cycles": int,                    core cycles in which kernels ran, launches and host calls excluded
     "energy_joules": float,           modelled, not measured
     "energy": {"macs": J, "vector": J, "gm": J, "l2": J, "l1": J, "l0": J, "ub": J, "idle": J},
     "memory": {"arena_bytes": int, "constant_bytes": int, "capacity_bytes": int,
                "donated_bytes": int, "undonated_arena_bytes": int | null,
                "live_bytes": int, "at": str,       what is needed at one time at the most, and at which op
                "fragmentation": float,             arena_bytes / live_bytes - 1
                "consumers": [{"name": str, "bytes": int, "source": "file:line" | null}],     the largest then
                "limit_bytes": int | null,          the most that the program was to take
                "less": {"again_launches": int, "again_bytes": int, "again_microseconds": float,     made once more
                         "moved_tensors": int, "moved_bytes": int,             to the host and back to keep it, and
                         "moved_microseconds": float},                         the time of the link for both ways
                "spaces": {space: {"peak_bytes": int, "capacity_bytes": int, "kernel": str}}},
     "counts": {"kernels": int,         in the program; copies are no kernels
                "launched_kernels": int, "launches": int, "copies": int, "host_calls": int,
                "joined": int},         runs of kernels that are no launch: stages of one, behind a barrier
     "avoided_copies": {"copies": int, "bytes": int,     within device memory, of one run (avoided.py)
                        "updates": int, "update_bytes": int,    launches that write a part of a tensor in its place
                        "states": int, "state_bytes": int,      of a loop, whose next value is made over the last
                        "views": int, "view_bytes": int},       reshaped tensors that are what they were made of
     "kernels": [{"name": str, "kind": str, "launches": int, "cores": int,    kind "copy": all copies
                  "joined": int,                      of its `launches`, how often it is such a stage
                  "microseconds": float, "launch_microseconds": float,    all launches, and barriers before them
                  "cold_microseconds": float,         of them, what runs take longer as L2 does not have what they read
                  "bound": "launch" | "HBM" | "L2" | pipe | "<pipe> (HBM)" | "<pipe> (L2)",
                  "pipes": {pipe: microseconds},      busy, of the heaviest core, all launches
                  "floor_microseconds": float,        the least that all launches could take: of each the largest of
                  "floors": {"HBM" | "cube" | "vector": microseconds},   these, each at the chip's peak (floors.py)
                  "efficiency": float | null,         floor_microseconds / microseconds, launches included
                  "energy_joules": float,             modelled, all launches; with what the chip draws when idle
                  "bytes": {"hbm": int, "l2": int,    by where they came from or went to
                            "read": int, "write": int},
                  "macs": int, "flops": int, "source": "file:line" | null,
                  "sources": ["file:line", ...],                      all that its instructions and launches are from
                  "precision": str,                   types that its products multiply and add up in, "i8 -> i32";
                                                      without products, types that it computes in, "f32"; or ""
                  "macs_by_precision": {str: int},    of the cube: "i8 -> i32"
                  "lanes_by_precision": {str: int},   elements of vector instructions that compute: "f32"
                  "modes": {product: mode}}],         what a configuration of quantization chose
     "host_ops": [{"name": str, "calls": int, "bytes": int,
                   "microseconds": float,              runtime calls, transfers and computing
                   "transfer_microseconds": float, "compute_microseconds": float, "source": str | null}],
     "host_scalars": {"operations": int, "microseconds": float},     arithmetic on numbers between launches
     "npu_flops_fraction": float,      a host op counts one flop for each element of its results
     "npu_ops_fraction": float,        runs of kernels, of these and host calls
     "assumed_trips": [str],           loops of unknown trip count: counted once
     "assumed_branches": [str],        branches: the longest is counted
     "left_out": str | null,           what failed when the program was compiled, so that it is without it
     "known_plans": int,               kernels that are cut as a knowledge base says
     "by_precision": [{"precision": str,             the first of a kernel's: "i8 -> i32", "f32"
                       "microseconds": float, "macs": int}],     all kernels of it together
     "packing_microseconds": float | null,     once for all calls: what depends on the weights alone
     "precision": null | {"mode": str, "products": int,     null where nothing was cast; products of the narrow type
                          "narrow": int,                    ops that compute with it, these products among them
                          "kept": [{"op": str, "why": str,  ops that compute with f32
                                    "count": int, "source": "file:line" | null}]}}
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..dialects.npu.interface import PRODUCT
from ..dialects.precision import PrecisionRecord
from ..dialects.source_places import SourcePlace, places_text, without_folder
from ..support.sentences import visible
from .avoided import AvoidedCopies
from .counts import Counts
from .html import table_html
from .terminal import Fitted

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "tilewright.report/1"

COLD = 0.05
"""The share of the time from which on a report says in a note what a cold L2 costs."""


@dataclass(frozen=True)
class KernelReport:
    """All runs of one kernel; see the schema at the top of this module."""

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
    sources: tuple[SourcePlace, ...] = ()
    macs_by_precision: dict[str, int] = field(default_factory=dict)
    lanes_by_precision: dict[str, int] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    joined: int = 0
    floor_microseconds: float = 0.0
    floors: dict[str, float] = field(default_factory=dict)
    cold_microseconds: float = 0.0
    energy_joules: float = 0.0

    @property
    def watts(self) -> float:
        """Modelled power while it runs, the mean of all launches; 0 for what takes no time."""
        return self.energy_joules / self.microseconds * 1e6 if self.microseconds else 0.0

    @property
    def efficiency(self) -> float | None:
        """The floor as a share of the time; None for what takes none."""
        return self.floor_microseconds / self.microseconds if self.microseconds else None

    @property
    def precision(self) -> str:
        """The types that its products multiply and add up in, or without products those that it computes in, the most
        frequent first; empty for a kernel that computes nothing."""
        counts = self.macs_by_precision or self.lanes_by_precision
        return ", ".join(sorted(counts, key=lambda types: -counts[types]))

    @property
    def said(self) -> str:
        """The precision and, where modes were chosen for its products, these: `i8 -> i32 (w8a8)`."""
        modes = ", ".join(dict.fromkeys(self.modes.values()))
        return f"{self.precision} ({modes})" if modes else self.precision

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the schema."""
        sources = {"sources": [str(place) for place in self.sources]}
        return {**asdict(self), **sources, "precision": self.precision, "efficiency": self.efficiency}


@dataclass(frozen=True)
class PrecisionShare:
    """All kernels of one main precision: their time, launches included, and their multiply-accumulates."""

    precision: str
    microseconds: float
    macs: int


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
class MemoryConsumer:
    """A tensor of device memory, by its type, and as an argument by its number; bytes in whole units of the chip."""

    name: str
    bytes: int
    source: str | None


@dataclass(frozen=True)
class LessMemory:
    """What a program does to keep a limit of device memory, all calls together. again: launches that make once more
    what was made before, the bytes of that, and their time; moved: tensors that wait in the host's memory, their bytes,
    and the time of the link for both ways, most of it beside kernels."""

    again_launches: int = 0
    again_bytes: int = 0
    again_microseconds: float = 0.0
    moved_tensors: int = 0
    moved_bytes: int = 0
    moved_microseconds: float = 0.0

    def __str__(self) -> str:
        """`3 launches again for 1,024 bytes (12.0 us), 1 tensor of 2,048 bytes to the host and back (41.0 us of the
        link)`."""
        said = []
        if self.again_launches:
            said.append(
                f"{self.again_launches} launch{'es' * (self.again_launches != 1)} again for {self.again_bytes:,} bytes "
                f"({self.again_microseconds:,.1f} us)"
            )
        if self.moved_tensors:
            said.append(
                f"{self.moved_tensors} tensor{'s' * (self.moved_tensors != 1)} of {self.moved_bytes:,} bytes to the "
                f"host and back ({self.moved_microseconds:,.1f} us of the link)"
            )
        return ", ".join(said) or "nothing had to be done for it"


@dataclass(frozen=True)
class MemoryReport:
    """Device memory in bytes (arena: the most that the program ever has, all that is planned, constants included), and
    each on-chip memory. donated: arguments whose memory the program may use; undonated_arena: what the arena would be
    if it might not, None for a program that was planned by hand. live: what is needed at one time at the most, in whole
    units of the chip, so that no plan of ours takes less; consumers: the largest tensors then, and `at` the op. limit:
    the most that the program was to take, None where nobody said; less: what is done to keep it."""

    arena_bytes: int
    constant_bytes: int
    capacity_bytes: int
    spaces: dict[str, SpaceReport]
    donated_bytes: int = 0
    undonated_arena_bytes: int | None = None
    live_bytes: int = 0
    at: str = ""
    consumers: list[MemoryConsumer] = field(default_factory=list)
    limit_bytes: int | None = None
    less: LessMemory = LessMemory()

    @property
    def fragmentation(self) -> float:
        """How much more the arena is than what is needed at one time: 0.01 for one percent; 0 without a plan."""
        return self.arena_bytes / self.live_bytes - 1 if self.arena_bytes and self.live_bytes else 0.0


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
    left_out: str | None = None
    known_plans: int = 0
    precision: PrecisionRecord | None = None
    avoided_copies: AvoidedCopies = field(default_factory=AvoidedCopies)
    judge: str = ""

    @property
    def watts(self) -> float:
        """Modelled power, the mean over a call; 0 for a program that takes no time."""
        return self.energy_joules / self.microseconds * 1e6 if self.microseconds else 0.0

    @property
    def cold_microseconds(self) -> float:
        """What runs of kernels take longer, together, as L2 does not have what they read."""
        return sum(kernel.cold_microseconds for kernel in self.kernels)

    @property
    def floor_microseconds(self) -> float:
        """The least time of all kernels and copies together, whatever order they run in: HBM, the cubes and the vector
        cores each have their work at the chip's peak, side by side."""
        sums: dict[str, float] = {}
        for kernel in self.kernels:
            for resource, microseconds in kernel.floors.items():
                sums[resource] = sums.get(resource, 0.0) + microseconds
        return max(sums.values(), default=0.0)

    @property
    def efficiency(self) -> float | None:
        """The floor as a share of the time; None for a program that takes none."""
        return self.floor_microseconds / self.microseconds if self.microseconds else None

    @property
    def by_precision(self) -> list[PrecisionShare]:
        """The kernels that compute mainly in the same types, together; those that take longest first."""
        sums: dict[str, list[float]] = {}
        for kernel in self.kernels:
            if kernel.precision:
                total = sums.setdefault(kernel.precision.partition(", ")[0], [0.0, 0])
                total[0] += kernel.microseconds
                total[1] += kernel.macs
        rows = [PrecisionShare(precision, us, int(macs)) for precision, (us, macs) in sums.items()]
        return sorted(rows, key=lambda row: -row.microseconds)

    @property
    def mixes_precisions(self) -> bool:
        """Whether kernels differ in the types that they mainly compute in, or a configuration chose modes. Types of
        sums do not count: products of f32 and vector kernels of f32 are alike."""
        types = {row.precision.partition(PRODUCT)[0] for row in self.by_precision}
        return len(types) > 1 or any(kernel.modes for kernel in self.kernels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the schema."""
        shares = {"by_precision": [asdict(row) for row in self.by_precision]}
        memory = {**asdict(self.memory), "fragmentation": self.memory.fragmentation}
        kernels = [k.to_dict() for k in self.kernels]
        floor = {
            "floor_microseconds": self.floor_microseconds,
            "efficiency": self.efficiency,
            "cold_microseconds": self.cold_microseconds,
        }
        avoided = {
            "copies": self.avoided_copies.copies,
            "bytes": self.avoided_copies.bytes,
            **asdict(self.avoided_copies),
        }
        parts = {"memory": memory, "avoided_copies": avoided, "kernels": kernels}
        return {"schema": SCHEMA, **asdict(self), **floor, **parts, **shares}

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
            source = places_text(k.sources, without_folder) or without_folder(k.source or "")
            share = k.microseconds / self.microseconds if self.microseconds else 0.0
            computed = [k.kind, k.said] if self.mixes_precisions else [k.kind]
            cells = [k.name, *computed, f"{k.launches}", f"{k.cores}", f"{k.microseconds:,.1f}", share]
            cells += ["" if k.efficiency is None else f"{100 * k.efficiency:.0f}%", k.bound]
            rows.append((k.microseconds, [*cells, f"{moved:,.2f}", source]))
        for op in self.host_ops:
            share = op.microseconds / self.microseconds if self.microseconds else 0.0
            computed = ["host", ""] if self.mixes_precisions else ["host"]
            cells = [op.name, *computed, f"{op.calls}", "", f"{op.microseconds:,.1f}", share, "", "host"]
            rows.append(
                (op.microseconds, [*cells, f"{op.bytes / 1e6:,.2f}", without_folder(op.source or "")])
            )
        header = ["kernel", "kind", "runs", "cores", "us", "share", "eff.", "bound", "MB", "source"]
        if self.mixes_precisions:
            header.insert(2, "precision")
        ordered = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
        return table_html(str(self), header, ordered, self._notes())

    def __rich__(self) -> Fitted:
        return Fitted(self.rich_table())

    def rich_table(self, borders: bool = True) -> Table:
        """The kernels as a table for a rich console, the most expensive first."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=Text(visible(str(self)), "table.title"),
            title_justify="left",
            caption=Text(visible(self._notes()), "table.caption"),
            caption_justify="left",
            box=box.HEAVY_HEAD if borders else None,
        )

        def add(*cells: str) -> None:
            table.add_row(*(Text(visible(cell)) for cell in cells))

        mixed = self.mixes_precisions
        table.add_column("kernel", overflow="fold")
        table.add_column("kind")
        if mixed:
            table.add_column("precision")
        for name in ("runs", "cores", "us", "share", "eff."):
            table.add_column(name, justify="right")
        table.add_column("bound")
        table.add_column("pipes, us")
        table.add_column("MB", justify="right")
        table.add_column("source", overflow="fold")
        for kernel in sorted(self.kernels, key=lambda k: -k.microseconds):
            busiest = sorted(kernel.pipes.items(), key=lambda pipe: -pipe[1])[: 2 if mixed else 3]
            add(
                kernel.name,
                kernel.kind,
                *([kernel.said] if mixed else []),
                str(kernel.launches),
                str(kernel.cores),
                f"{kernel.microseconds:,.1f}",
                self._share(kernel.microseconds),
                "" if kernel.efficiency is None else f"{100 * kernel.efficiency:.0f}%",
                kernel.bound,
                " ".join(f"{pipe} {us:.1f}" for pipe, us in busiest),
                f"{(kernel.bytes['read'] + kernel.bytes['write']) / 1e6:,.2f}",
                places_text(kernel.sources, _nearby) or _nearby(kernel.source),
            )
        for op in sorted(self.host_ops, key=lambda o: -o.microseconds):
            add(
                op.name,
                "host",
                *([""] if mixed else []),
                str(op.calls),
                "",
                f"{op.microseconds:,.1f}",
                self._share(op.microseconds),
                "",
                "host",
                f"link {op.transfer_microseconds:.1f} compute {op.compute_microseconds:.1f}",
                f"{op.bytes / 1e6:,.2f}",
                _nearby(op.source),
            )
        if self.host_scalars.operations:
            time = self.host_scalars.microseconds
            kinds = ["host", ""] if mixed else ["host"]
            add("numbers", *kinds, "", "", f"{time:,.1f}", self._share(time), "", "host", "", "", "")
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
        if self.efficiency is not None:
            notes.append(
                f"floor, all work at the chip's peak: {self.floor_microseconds:,.1f} us, "
                f"{self._share(self.floor_microseconds)} of the time"
            )
        if self.cold_microseconds >= COLD * self.microseconds:
            notes.append(
                f"of what kernels read, L2 does not have all: {self.cold_microseconds:,.1f} us, "
                f"{self._share(self.cold_microseconds)} of the time"
            )
        if self.avoided_copies.copies:
            notes.append(f"copies avoided: {self.avoided_copies}")
        notes += [f"counted once, trip count unknown: {loop}" for loop in self.assumed_trips]
        notes += [f"longest branch counted: {branch}" for branch in self.assumed_branches]
        if self.left_out is not None:
            notes.append(f"left out: {self.left_out}")
        if self.known_plans:
            many = f"{self.known_plans} fusion{'s are' if self.known_plans > 1 else ' is'}"
            notes.append(f"{many} cut as the knowledge base says")
        if self.packing_microseconds is not None:
            notes.append(f"packing the weights, once: {self.packing_microseconds:,.1f} us")
        if self.memory.limit_bytes is not None:
            taken, limit = self.memory.arena_bytes, self.memory.limit_bytes
            notes.append(f"device memory: {taken:,} bytes, limit {limit:,}: {self.memory.less}")
        notes += self._precision_note()
        if self.precision is not None:
            notes += self.precision.sentences()
        return "\n".join(notes)

    def _precision_note(self) -> list[str]:
        """What kernels compute in: one line, or none where they compute nothing."""
        found = self.by_precision
        if not self.mixes_precisions:
            products = [row.precision for row in found if row.macs]
            said = products or [row.precision for row in found]
            return [f"precision of all kernels: {said[0]}"] if said else []
        macs = sum(row.macs for row in found)
        said = [
            f"{row.precision} {self._share(row.microseconds)} of the time"
            + (f" and {100 * row.macs / macs:.1f}% of the MACs" if row.macs else "")
            for row in found
        ]
        return [f"by precision: {'; '.join(said)}"]


def _nearby(source: str | None) -> str:
    """A place, by its path from here where it lies below."""
    if source is None:
        return ""
    here = os.getcwd().rstrip(os.sep) + os.sep
    return source.removeprefix(here)
