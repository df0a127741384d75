"""Simulates a record's program and sets its times beside the measured ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..api.compiling import compile
from ..api.options import Options
from ..api.program import CompileError, Program
from ..backends.simulator import HostCall, Launch, SimulationError, simulate
from ..machine import Machine
from ..passes.alternatives import BANKS, JOIN, PITCH, RECOMPUTE, TRANSPOSED, UNIT_FLAGS
from ..passes.errors import PassError
from .express import express
from .expressed import Expressed, Inexpressible
from .records import Record

PIPES = {
    "mac": "M",
    "mte1": "MTE1",
    "mte2": "MTE2",
    "mte3": "MTE3",
    "fixpipe": "FIX",
    "vec": "V",
    "scalar": "S",
}
"""Published names of the pipes -> ours."""

LONGEST_REASON = 200
"""Characters of a reason beyond which its details are left out."""

WHOLE = ("task", "core_max", "core_avg", "core", "core_loop", "loop")
"""Published times of a whole kernel, the one that stands for the record first."""


@dataclass(frozen=True)
class TimeRow:
    """One published time of a record. Microseconds."""

    quantity: str
    measured: float
    modelled: float

    @property
    def error(self) -> float:
        """How far the model is off, as a share of the measured time; positive where it is too slow."""
        return self.modelled / self.measured - 1

    @property
    def pipe(self) -> str | None:
        """The published name of the pipe; None for times of the whole kernel."""
        name = self.quantity.removeprefix("aiv_").removesuffix("_max")
        return name if name in PIPES else None


@dataclass(frozen=True)
class RecordOutcome:
    """A record with its rows, or with the reason why it has none."""

    record: Record
    rows: tuple[TimeRow, ...] = ()
    reason: str | None = None
    schedule: str = ""
    target: str = ""

    @property
    def task(self) -> TimeRow | None:
        """The time of the whole kernel: its task time, else the time of its slowest or only core."""
        by_name = {row.quantity: row for row in self.rows}
        return next((by_name[name] for name in WHOLE if name in by_name), None)


def compare(record: Record) -> RecordOutcome:
    """The outcome of a record. Never raises for what a record says."""
    try:
        expressed = express(record)
        modelled = model(expressed)
    except (Inexpressible, CompileError, PassError, SimulationError) as error:
        return RecordOutcome(record, reason=_clause(error))
    except Exception as error:  # one record must not take the table with it; it is named as what it is
        return RecordOutcome(
            record, reason=f"a bug of ours: {type(error).__name__}: {' '.join(str(error).split())}"
        )
    rows = tuple(TimeRow(k, v, modelled[k]) for k, v in record.measured.items() if modelled.get(k))
    if not rows:
        return RecordOutcome(record, reason="publishes no time that the model gives")
    return RecordOutcome(record, rows, None, str(expressed.schedule), expressed.machine)


def _clause(error: Exception) -> str:
    """What an error says, on one line, without the list of details after the last colon of a long one."""
    said = " ".join(str(error).split())
    return said if len(said) <= LONGEST_REASON else said.split(": ")[0][:LONGEST_REASON]


def model(expressed: Expressed) -> dict[str, float]:
    """The modelled times of a program in microseconds, under their published names."""
    return times_on(expressed, program_of(expressed), expressed.chip)


def program_of(expressed: Expressed, ours: bool = False) -> Program:
    """The compiled program; `ours`: with unit flags whether or not the published kernel has them. Raises
    CompileError."""
    # published kernels are launched one by one, read tensors as they are given, and their buffers follow each other
    # whatever their banks are
    flagged = ours or expressed.unit_flag_products > 0
    without = {JOIN, RECOMPUTE, TRANSPOSED, PITCH}
    without |= {name for name, kept in ((BANKS, expressed.banks), (UNIT_FLAGS, flagged)) if not kept}
    options = Options(
        schedule=expressed.schedule,
        without=without,
    )
    if isinstance(expressed.source, str):
        # a published loop times an instruction on whatever its buffers hold: npu-check would ask who wrote that
        options = replace(options, check=False)
        return compile(expressed.source, target=expressed.chip, options=options)
    with expressed.precision():
        return compile(expressed.source, *expressed.arguments, target=expressed.chip, options=options)


def times_on(expressed: Expressed, program: Program, machine: Machine) -> dict[str, float]:
    """The times of a program on a machine that may cost other than the one it was compiled for. Raises Inexpressible
    where a part of it is the host's."""
    machine = replace(machine, cube_issue_factor=expressed.issue_factor, in_turn=expressed.in_turn)
    if expressed.staggered:
        apart = {
            path: replace(move, turn_cycles=0.0, shared_bytes_per_cycle=math.inf)
            for path, move in machine.moves.items()
        }
        machine = replace(machine, moves=apart)
    found = simulate(program.module(), machine, warm=expressed.warm, bypassing=expressed.bypassing)
    for step, _ in found.flat():
        if isinstance(step, HostCall):
            raise Inexpressible(f"ours computes {step.name} on the host, not on the chip")
    us = machine.cycles_to_microseconds
    start = expressed.start_us + expressed.combined * machine.atomic_us
    launches = [step.overhead for step, n in found.flat() if isinstance(step, Launch) for _ in range(n)]
    if not any(_held_up(step) for step, _ in found.flat()):
        start += (expressed.waves - 1) * machine.launch_us
    times: dict[str, float] = {
        "task": found.microseconds
        + start
        - (sum(launches) - max(launches, default=0.0) if expressed.one_launch else 0),
        "scalar": max(0.0, expressed.calls * expressed.start_us - machine.scalar_start_us),
    }
    heaviest = start
    cube = any(
        s.core != "vector"
        for step, _ in found.flat()
        if isinstance(step, Launch)
        for s in step.kernel.sections
    )
    for step, count in found.flat():
        if not isinstance(step, Launch):
            continue
        means = step.kernel.averages(step.run)
        heaviest += count * us(step.run.cycles)
        main = next(iter(means.cycles))
        for kind, cycles in means.cycles.items():
            prefix = "aiv_" if kind == "vector" and cube and (expressed.one_launch or kind != main) else ""
            once = 0.0 if f"{prefix}core_avg" in times else start
            _add(times, f"{prefix}core_avg", once + count * us(max(cycles, _floor(step, cycles))))
            for published, pipe in PIPES.items():
                _add(times, f"{prefix}{published}", count * us(means.pipes.get((kind, pipe), 0.0)))
            drains, products = (means.instructions.get((kind, pipe), 0.0) for pipe in ("FIX", "M"))
            if drains and products:
                followed = min(1.0, expressed.unit_flag_products * drains / products)
                _add(times, f"{prefix}fixpipe", count * us(followed * means.pipes[kind, "M"]))
        if step.run.pipes.get("MTE2"):
            _add(times, "mte2_max", count * us(step.run.pipes["MTE2"]))
    if (
        times["scalar"] > times["task"]
    ):  # A core that has more to issue than the pipes have to do waits for that.
        more = times["scalar"] - times["task"]
        heaviest += more
        for name in ("task", "core_avg"):
            _add(times, name, more)
    whole = dict.fromkeys(("core_max", "core", "core_loop"), heaviest)
    return times | whole | {"loop": heaviest * expressed.iterations}


def _held_up(step: object) -> bool:
    """Whether a bandwidth of the chip sets the time of a launch: cores that start later do so while others wait."""
    if not isinstance(step, Launch):
        return False
    busiest = max(step.run.pipes, key=lambda pipe: step.run.pipes[pipe], default="")
    limited = sum(step.run.limited.get(busiest, {}).values())
    return step.run.throttled is not None or 2 * limited > step.run.pipes.get(busiest, 0)


def _floor(step: Launch, cycles: float) -> float:
    """The mean time of a core where a bandwidth holds all of them up."""
    return float(step.run.cycles) if step.run.throttled else cycles


def _add(times: dict[str, float], name: str, amount: float) -> None:
    times[name] = times.get(name, 0.0) + amount
