"""What binds a kernel and what would help, in sentences whose numbers are the simulator's.

Each rule looks at one launch (the longest) and says what it sees only where it matters: `SHARE` of something.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from ..backends.report import KernelReport
from ..backends.simulator import HBM, KernelRun, Launch, TimedKernel
from ..dialects import npu as ops
from ..dialects.dtypes import dtype_name, itemsize
from ..dialects.npu import Pipe, buffer, gm
from ..kernels.product import round_up
from ..machine import Machine
from ..support.sentences import counted
from .units import data_size, duration, percent

SHARE = 0.15
"""Less than this share of a kernel's time, traffic or cores is not worth a sentence."""


@dataclass(frozen=True)
class Advice:
    """One sentence of what is, one of what would help ("" where nothing of the compiler's would), and the rule that
    says it."""

    what: str
    help: str = ""
    rule: str = ""


class Figures:
    """A launch's figures, as the rules want them. `report` sums up all launches, the rest is of one."""

    def __init__(self, launch: Launch, report: KernelReport, machine: Machine) -> None:
        self.kernel: TimedKernel = launch.kernel
        self.run: KernelRun = launch.run
        self.microseconds, self.overhead = launch.microseconds, launch.overhead
        self.report, self.machine = report, machine
        self.cycles = max(self.run.cycles, 1)
        self.working = machine.cycles_to_microseconds(self.cycles)
        totals = self.kernel.totals
        self.read, self.written = sum(totals.read), sum(totals.written)
        self.tensors = [gm(a) for a in self.kernel.op.body.block.args[len(self.kernel.grid) :]]
        self.sides = _sides(self.kernel)

    @property
    def moved(self) -> int:
        """Bytes of device memory read and written."""
        return self.read + self.written

    @property
    def busiest(self) -> str:
        """The pipe that works most."""
        return max(self.run.pipes, key=lambda pipe: self.run.pipes[pipe], default="")

    def share(self, pipe: str) -> float:
        """Of the time between start and end that a pipe works."""
        return min(1.0, self.run.pipes.get(pipe, 0) / self.cycles)

    def name(self, operand: int) -> str:
        """`B (512x2048xf16)`: an operand in words."""
        kind = self.tensors[operand]
        shape = "x".join([*map(str, kind.shape), dtype_name(kind.element)])
        side = self.sides.get(operand)
        return f"{side} ({shape})" if side else f"operand {operand} ({shape})"


def findings(launch: Launch, report: KernelReport, machine: Machine) -> list[Advice]:
    """What is to be said of a kernel, the most important first."""
    figures = Figures(launch, report, machine)
    found = [replace(f, rule=rule.__name__.strip("_")) for rule in RULES for f in rule(figures)]
    if report.bound == "launch":  # then nothing else binds it
        found = found[:1] + [
            replace(finding, what=finding.what.replace(" bound:", ":")) for finding in found[1:]
        ]
    if not found and figures.busiest:
        share = percent(figures.share(figures.busiest))
        found = [Advice(f"{figures.busiest} works {share} of the time", "", "busiest")]
    return found


# -- rules ---------------------------------------------------------------------------------------------------


def _launch(f: Figures) -> Iterator[Advice]:
    overhead = f.overhead
    if f.report.bound == "launch" and overhead:
        more = 2 + overhead / max(f.working, 1e-9)  # starting + more x work = twice what both take now
        yield Advice(
            f"Launch bound: starting the kernel takes {duration(overhead)} of {duration(f.microseconds)}",
            f"fuse it with its neighbours, or give it {more:.1f} times the work (a larger batch) to halve the share",
        )


def _bandwidth(f: Figures) -> Iterator[Advice]:
    if not f.report.bound.endswith((HBM, f"({HBM})")):
        return
    least = sum(t.bytes for i, t in enumerate(f.tensors) if i not in f.kernel.workspaces and _touched(f, i))
    rate = f.run.hbm_bytes / f.working / 1e6
    peak = f.machine.hbm_bytes_per_cycle * f.machine.clock_mhz / 1e6
    name = "HBM bound" if f.report.bound == HBM else f"{f.busiest} waits for HBM"
    what = f"{name}: {data_size(f.run.hbm_bytes)} cross HBM at {rate:.2f} of {peak:.2f} TB/s"
    if f.run.hbm_bytes > (1 + SHARE) * least and least:
        yield Advice(
            f"{what}; its tensors are {data_size(least)}",
            "larger tiles or another order of loops re-read less",
        )
    else:
        yield Advice(
            what,
            "each byte crosses once: narrower element types, or fusing with the producer, would help",
        )


def _transfers(f: Figures) -> Iterator[Advice]:
    pipe = f.busiest
    if pipe != Pipe.MTE2 or f.share(pipe) < 0.5:
        return
    rate = f.read / f.working / 1e6
    what = f"MTE2 bound: {data_size(f.read)} read at {_rate(rate)}, MTE2 works {percent(f.share(pipe))} of the time"
    worst = max(range(len(f.tensors)), key=lambda i: f.kernel.totals.read[i] - f.tensors[i].bytes)
    read, size = f.kernel.totals.read[worst], f.tensors[worst].bytes
    if worst in f.kernel.workspaces or read < 1.5 * size or read < SHARE * f.read:
        yield Advice(what, "" if read < 1.5 * size else "larger tiles would read less")
        return
    what += f"; {f.name(worst)} is read {read / size:.1f} times, {percent(read / f.read)} of it"
    knob = {"A": "base_n", "B": "base_m"}.get(f.sides.get(worst, ""), "")
    saved = f"{data_size(min(read // 2, read - size))} of {data_size(f.read)} less to read"
    yield Advice(
        what, _larger(f, knob, saved) if knob else f"a larger tile would re-read it less, up to {saved}"
    )


def _larger(f: Figures, knob: str, saved: str) -> str:
    """Twice the tile along m or n, with a shorter k where l0 asks for it, as pins; or why that does not fit."""
    product = next(w.op for s in f.kernel.sections for w in s.works if isinstance(w.op, ops.MmadOp))
    a, b, acc = (buffer(ops.whole_buffer(v)) for v in (product.a, product.b, product.acc))
    (m, k), n = a.shape, b.shape[1]
    drain = next((w.op for s in f.kernel.sections for w in s.works if isinstance(w.op, ops.FixpipeOp)), None)
    wide = [] if drain is None else [round_up(extent) for extent in gm(drain.dest).shape[-2:]]
    longest_m, longest_n = wide if len(wide) == 2 and wide[0] >= m and wide[1] >= n else (2 * m, 2 * n)
    m, n = (min(2 * m, longest_m), n) if knob == "base_m" else (m, min(2 * n, longest_n))
    size = m if knob == "base_m" else n
    room = {name: f.machine.spaces[name].bytes for name in (a.space, b.space, acc.space)}
    need = 2 * acc.slot_bytes
    if need > room[acc.space]:
        return (
            f"{knob}={size} would re-read it less, but takes {data_size(need)} of {acc.space}, which has "
            f"{data_size(room[acc.space])}: the tile is as large as it gets"
        )
    while k > 1 and (
        m * k * itemsize(a.element) * a.slots > room[a.space]
        or k * n * itemsize(b.element) * b.slots > room[b.space]
    ):
        k //= 2
    pins = f"{knob}={size}" if k == a.shape[1] else f"{knob}={size},base_k={k}"
    single = ", at the price of a single l0c buffer" if need * acc.slots > room[acc.space] else ""
    points = -(-math.prod(f.kernel.grid) // 2)
    fewer = (
        f"; the grid then has {counted(points, 'point', 'points')} for {f.machine.cube_cores} cores"
        if points < f.machine.cube_cores
        else ""
    )
    return f"a larger tile, --schedule {f.report.name}:{pins}, would re-read it less: {saved}{single}{fewer}"


def _cube(f: Figures) -> Iterator[Advice]:
    pipe = Pipe.M
    for dtype, macs in f.kernel.totals.macs.items():
        rate = f.machine.cube[dtype].macs * f.machine.cube_cores
        used = macs / (rate * f.cycles)
        if f.busiest != pipe or f.share(pipe) < 0.5:
            if used < 0.5 and f.share(pipe) >= SHARE:
                yield Advice(
                    f"Cube: {macs / 1e6:,.1f} M {dtype} products are {percent(used)} of what {f.machine.cube_cores} "
                    f"cubes could do in the time; the pipe works {percent(f.share(pipe))} of it"
                )
            continue
        faster = {d: r.macs for d, r in f.machine.cube.items() if r.macs > f.machine.cube[dtype].macs}
        best = min(faster, key=lambda d: (faster[d], d), default="")
        factor = faster.get(best, 0) / f.machine.cube[dtype].macs
        narrow = f"{best} products run {factor:.0f} times as fast" if best else "no element type is faster"
        yield Advice(
            f"Cube bound: M works {percent(f.share(pipe))} of the time, {percent(used)} of the chip's {dtype} peak",
            narrow
            + ("" if used > 0.5 * f.share(pipe) else "; tiles that fill whole fractals and cores waste less"),
        )


def _vector(f: Figures) -> Iterator[Advice]:
    pipe = Pipe.V
    if f.busiest != pipe or f.share(pipe) < 0.5:
        return
    cycles: Counter[str] = Counter()
    width: Counter[str] = Counter()
    starting = 0
    for section in f.kernel.sections:
        for work in section.works:
            if work.op.PIPE == Pipe.V:
                op = work.op.name.removeprefix("npu.")
                cost = max((v.cycles for v in work.variants), default=0)
                if isinstance(work.op, ops.VectorOp):
                    starting += min(cost, work.op.starting_cycles(f.machine))
                cycles[op] += cost
                width[dtype_name(buffer(work.op.main_operands()[-1]).element)] += cost
    (slow, amount), (dtype, _) = cycles.most_common(1)[0], width.most_common(1)[0]
    share = amount / max(sum(cycles.values()), 1)
    help = f"the slowest instruction, {slow}, is {percent(share)} of a pass over all"
    if starting > SHARE * sum(cycles.values()):
        begun = percent(starting / sum(cycles.values()))
        help += f"; {begun} of it starts instructions, of which larger tiles need fewer"
    halves = [d for d in f.machine.vector.native if d[0] == dtype[0] and itemsize(d) * 2 == itemsize(dtype)]
    stored = {dtype_name(t.element) for t in f.tensors}
    if halves and dtype.startswith("f") and dtype in stored:  # else the compiler has chosen it, not the program
        help += f"; {halves[0]} has twice the lanes of {dtype}"
    yield Advice(f"Vector bound: V works {percent(f.share(pipe))} of the time", help)


def _other_pipes(f: Figures) -> Iterator[Advice]:
    pipe = f.busiest
    if pipe in (Pipe.M, Pipe.V, Pipe.MTE2, "") or f.share(pipe) < 0.5:
        return
    says = {
        Pipe.MTE1: ("copies from l1 to l0", "a larger base_m and base_n copy less for each product"),
        Pipe.MTE3: (
            "writes from ub",
            "larger tiles have longer runs; narrower results are fewer bytes",
        ),
        Pipe.FIX: ("writes out of l0c", "a longer k per tile, or narrower results, write less"),
        Pipe.S: ("issues instructions", "larger tiles need fewer instructions"),
    }
    own = ("works", "the instructions of this pipe are the chip's own: fewer or wider ones take less")
    what, help = says.get(Pipe(pipe), own)
    yield Advice(f"{pipe} bound: it {what} {percent(f.share(pipe))} of the time", help)


def _waiting(f: Figures) -> Iterator[Advice]:
    pipe = f.busiest
    if pipe and f.share(pipe) < 0.5 and f.report.bound != "launch" and f.run.throttled is None:
        yield Advice(
            f"Waits: the busiest pipe, {pipe}, works {percent(f.share(pipe))} of {duration(f.working)}",
            "pipes take turns; more slots per buffer (double buffers) or more tiles per core overlap them",
        )


def _workspace(f: Figures) -> Iterator[Advice]:
    through = sum(f.kernel.totals.read[i] + f.kernel.totals.written[i] for i in f.kernel.workspaces)
    if through > SHARE * f.moved:
        yield Advice(
            f"Workspace: {data_size(through)} of {data_size(f.moved)} go from cube to vector cores "
            "through device memory",
            ""
            if f.machine.fused
            else "the price of cores that are split: a chip with fused cores has none of it",
        )


def _cores(f: Figures) -> Iterator[Advice]:
    points = math.prod(f.kernel.grid)
    units = f.kernel.sections[0].units if len(f.kernel.sections) == 1 and f.kernel.sections else 1
    vector = all(s.core == "vector" for s in f.kernel.sections)
    available = f.machine.vector_cores if vector else f.machine.cube_cores
    if f.kernel.cores < (1 - SHARE) * available:
        yield Advice(
            f"Cores: {f.kernel.cores} of {available} have work (grid {'x'.join(map(str, f.kernel.grid)) or '1'})",
            _more_cores(f, available, "tile" if vector else "base_m, base_n"),
        )
    elif points * units > f.kernel.cores and (points * units) % f.kernel.cores:
        waves = -(-points * units // f.kernel.cores)
        last = (points * units) % f.kernel.cores
        if 1 - points * units / (waves * f.kernel.cores) > SHARE:
            yield Advice(
                f"Cores: the last of {waves} rounds has work for {last} of {f.kernel.cores} cores",
                "a grid that the number of cores divides has no such tail",
            )


def _more_cores(f: Figures, available: int, pins: str) -> str:
    """Whether more cores would help. What a schedule is chosen by: each core more shortens the work, as far as it
    divides, and lengthens the launch."""
    if f.run.throttled is not None:
        return f"more would share the bandwidth of {f.run.throttled}, which binds the kernel"
    cube = any(section.core != "vector" for section in f.kernel.sections)
    launch = f.machine.launch_microseconds if cube else f.machine.vector_launch_microseconds
    work = f.working * f.kernel.cores

    def takes(cores: int) -> float:
        return launch(cores) + work / cores

    best = min(range(f.kernel.cores, available + 1), key=takes)
    saved = takes(f.kernel.cores) - takes(best)
    if saved < SHARE * takes(f.kernel.cores):
        return "more would cost about as much to start as they save"
    return f"smaller tiles ({pins}) would use more: {best} would end {duration(saved)} sooner, where the work divides"


RULES: tuple[Callable[[Figures], Iterator[Advice]], ...] = (
    _launch,
    _bandwidth,
    _transfers,
    _cube,
    _vector,
    _other_pipes,
    _waiting,
    _workspace,
    _cores,
)


# -- helpers -------------------------------------------------------------------------------------------------


def _sides(kernel: TimedKernel) -> dict[int, str]:
    """`A` or `B` for the operands that reach the left or right side of products."""
    found: dict[int, str] = {}
    loaded: dict[SSAValue, int] = {}
    side_of: dict[SSAValue, str] = {}
    for section in kernel.sections:
        for work in section.works:
            op = work.op
            if isinstance(op, ops.MmadOp):
                side_of |= {ops.whole_buffer(op.a): "A", ops.whole_buffer(op.b): "B"}
            elif work.operand is not None and not work.writes:
                loaded |= {ops.whole_buffer(v): work.operand for v in op.destinations()}
        for work in section.works:
            if isinstance(work.op, ops.LoadL0Op):
                operand, side = (
                    loaded.get(ops.whole_buffer(work.op.source)),
                    side_of.get(ops.whole_buffer(work.op.dest)),
                )
                if operand is not None and side is not None:
                    found.setdefault(operand, side)
    return found


def _touched(f: Figures, i: int) -> bool:
    return bool(f.kernel.totals.read[i] or f.kernel.totals.written[i])


def _rate(tera: float) -> str:
    return f"{tera:.1f} TB/s" if tera >= 1 else f"{1e3 * tera:.0f} GB/s"
