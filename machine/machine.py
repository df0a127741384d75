"""The data model of a chip. Times are core cycles unless a name says otherwise; sizes are bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

_FOLDER = Path(__file__).parent

DEFAULT_TARGET = "ascend-910b1"
"""The machine of a program for which nobody names one."""


class MachineError(Exception):
    """A target that is unknown, or a machine file that is malformed; the message is one sentence."""


@dataclass(frozen=True)
class MemorySpace:
    """One memory: of each `core` of that kind ("cube", "vector", "fused"), or of the device ("")."""

    name: str
    bytes: int
    align: int
    core: str = ""


@dataclass(frozen=True)
class Move:
    """A data path of one core, on `pipe`.

    An instruction takes fixed_cycles, and for each contiguous run in device memory the longer of run_cycles and
    its bytes over bytes_per_cycle. Bytes that miss L2 come at miss_bytes_per_cycle at best, bytes that all cores
    read at the same time at shared_bytes_per_cycle: a core's part of what L2 gives of the same lines. Where the
    source is filled while it is read (a multi-buffer), everything takes overlap_factor times as long.
    """

    source: str
    target: str
    pipe: str
    bytes_per_cycle: float
    fixed_cycles: int
    run_cycles: float = 0.0
    miss_bytes_per_cycle: float = math.inf
    shared_bytes_per_cycle: float = math.inf
    overlap_factor: float = 1.0

    def cycles(self, bytes: float, runs: int = 0, overlapped: bool = False) -> int:
        """Whole cycles of one instruction whose bytes all hit L2."""
        streamed = bytes / self.bytes_per_cycle
        alone = self.fixed_cycles + max(self.run_cycles * runs, streamed)
        return math.ceil(alone * (self.overlap_factor if overlapped else 1))

    @property
    def miss_cycles(self) -> float:
        """Cycles that a byte takes more where it misses L2."""
        return max(0.0, 1 / self.miss_bytes_per_cycle - 1 / self.bytes_per_cycle)


@dataclass(frozen=True)
class CubeRate:
    """The block of a matrix product that one cube finishes in one cycle."""

    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.m * self.k * self.n


@dataclass(frozen=True)
class VectorUnit:
    """One vector core: elements per cycle by instruction and dtype, and what other ops are built of."""

    repeat_bytes: int
    streamed_cycles: int
    bank_window_bytes: int
    native: frozenset[str]
    compute_as: Mapping[str, str]
    rates: Mapping[str, Mapping[str, float]]
    expansions: Mapping[str, tuple[str, ...]]

    def cycles(self, op: str, dtype: str, elements: int) -> int:
        """Cycles of `op` on `elements` values when the pipe is already busy; KeyError if unsupported."""
        rates = self._instruction_rates(op, dtype)
        if rates is None:
            raise KeyError(f"no vector instruction or expansion for {op} on {dtype}")
        return sum(math.ceil(elements / rate) + self.streamed_cycles for rate in rates)

    def runs(self, op: str, dtype: str) -> bool:
        """Whether there is an instruction, or an expansion into instructions, for `op` on `dtype` itself."""
        return self._own_rates(op, dtype) is not None

    def supports(self, op: str, dtype: str) -> bool:
        """Whether `cycles` has an answer for `op` on `dtype`."""
        return self._instruction_rates(op, dtype) is not None

    def computes(self, op: str, dtype: str) -> str:
        """The dtype that `op` on `dtype` runs in: its own where the unit has it and an instruction for it."""
        if dtype in self.native and self._own_rates(op, dtype) is not None:
            return dtype
        return self.compute_as.get(dtype, dtype)

    def _instruction_rates(self, op: str, dtype: str) -> tuple[float, ...] | None:
        """Elements per cycle of each instruction of `op`, or None.

        A rate at `dtype` wins; then an expansion every part of which is supported at `dtype`; then the
        dtype it is computed as. Conversions to that dtype are ops of their own and are not counted here.
        """
        own = self._own_rates(op, dtype)
        if own is not None or dtype not in self.compute_as:
            return own
        return self._instruction_rates(op, self.compute_as[dtype])

    def _own_rates(self, op: str, dtype: str) -> tuple[float, ...] | None:
        """As `_instruction_rates`, without going to the dtype it is computed as."""
        rate = self.rates.get(op, {}).get(dtype)
        if rate is not None:
            return (rate,)
        if op not in self.expansions:
            return None
        found: list[float] = []
        for part in self.expansions[op]:
            rates = self._own_rates(part, dtype)
            if rates is None:
                return None
            found += rates
        return tuple(found)


@dataclass(frozen=True)
class HostCost:
    """What leaving the device costs: link bytes per microsecond, microseconds per runtime call, microseconds per
    operation on numbers that the host program does between calls, and bytes of operands and results that the host
    computes with per microsecond."""

    pcie_bytes_per_us: float
    call_us: float
    scalar_us: float
    compute_bytes_per_us: float


@dataclass(frozen=True)
class Energy:
    """Modelled energy: picojoules per multiply-accumulate by dtype, per cycle of a busy lane of the vector unit by
    the type of the lane, and per byte by memory level."""

    pj_per_mac: Mapping[str, float]
    pj_per_lane: Mapping[str, float]
    pj_per_byte: Mapping[str, float]
    idle_watts: float


@dataclass(frozen=True)
class Machine:
    """One chip. Rates of `moves`, `cube` and `vector` are per core; L2 and HBM rates are chip-wide.

    issue_cycles, vector_issue_cycles, vector_slot_cycles, cube_issue_factor: see `scalar_cycles`. row_instructions:
    what the scalar unit issues for each row of a scatter. scalar_start_us: the part of a launch in which a core's
    scalar unit works. wait_cycles: by pipe, what a wait for a flag costs. hbm_turn_share: how much longer HBM takes
    to read and write alike, as a share. atomic_us: one of several additions to one address, which take turns.
    max_blocks: blocks that the grid of a launch has at most.
    library_*: see calibration/.
    """

    name: str
    clock_mhz: float
    fused: bool
    cube_cores: int
    vector_cores: int
    spaces: Mapping[str, MemorySpace]
    moves: Mapping[tuple[str, str], Move]
    cube: Mapping[str, CubeRate]
    cube_k0: Mapping[str, int]
    cube_fixed_cycles: int
    cube_head_cycles: int
    vector: VectorUnit
    l2_bytes: int
    l2_bytes_per_cycle: float
    hbm_bytes_per_cycle: float
    burst_bytes: int
    gm_align: int
    launch_us: float
    launch_us_all: float
    host: HostCost
    energy: Energy
    flags: int = 8
    max_blocks: int = 65_535
    issue_cycles: int = 1
    row_instructions: int = 1
    vector_issue_cycles: int = 1
    vector_slot_cycles: int = 0
    cube_issue_factor: float = 1.0
    scalar_start_us: float = 0.0
    hbm_turn_share: float = 0.0
    atomic_us: float = 0.0
    wait_cycles: Mapping[str, int] = field(default_factory=dict)
    library_issue_factor: float = 1.0
    library_constant_factor: float = 1.0
    library_start_us: float = 0.0

    @property
    def core_kinds(self) -> tuple[str, ...]:
        """The kinds of cores: one that has everything, or cube and vector cores."""
        return ("fused",) if self.fused else ("cube", "vector")

    @cached_property
    def _pipes(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {core: {"S"} for core in self.core_kinds}
        found[self.core_kinds[0]].add("M")
        found[self.core_kinds[-1]].add("V")
        for (source, target), move in self.moves.items():
            for name in (source, target):
                if self.spaces[name].core:
                    found[self.spaces[name].core].add(move.pipe)
        return {core: frozenset(pipes) for core, pipes in found.items()}

    def pipes_of(self, core: str) -> frozenset[str]:
        """The pipes of a kind of core: the scalar unit, its engines, and those that move bytes of its memories."""
        return self._pipes[core]

    @staticmethod
    def accumulator(dtype: str) -> str:
        """The type in which the cube adds up products of `dtype`."""
        return "i32" if dtype.startswith(("i", "ui")) else "f32"

    def holds(self, space: str, dtype: str) -> bool:
        """Whether an engine that works on a memory space of a core takes elements of a type there."""
        moved = self.vector.runs("copy", dtype)
        if space == "ub":
            return moved
        if space == "l0c":
            return dtype in {self.accumulator(d) for d in self.cube}
        return dtype in self.cube or (space not in ("l1", "l0a", "l0b") and moved)

    def cycles_to_microseconds(self, cycles: float) -> float:
        """Core cycles as microseconds at this chip's clock."""
        return cycles / self.clock_mhz

    def scalar_cycles(self, core: str, slots: int) -> int:
        """Cycles of the scalar unit to issue one instruction on a kind of core: a cube's ("cube", "fused") or a
        "vector" core's. `slots`: the multi-buffers and flags of several slots whose place it works out first; a
        cube's instructions have so many words of set-up that it does not show."""
        if core == "vector":
            return self.vector_issue_cycles + slots * self.vector_slot_cycles
        return round(self.issue_cycles * self.cube_issue_factor)

    def launch_microseconds(self, cores: int) -> float:
        """Microseconds to start and finish a kernel on `cores` cores, linear up to every cube core in use."""
        if self.cube_cores == 1:
            return self.launch_us
        share = (min(max(cores, 1), self.cube_cores) - 1) / (self.cube_cores - 1)
        return self.launch_us + share * (self.launch_us_all - self.launch_us)

    def vector_launch_microseconds(self, cores: int) -> float:
        """The same for a kernel on `cores` vector cores alone, which wakes the cube cores' share of the chip."""
        return self.launch_microseconds(-(-cores * self.cube_cores // self.vector_cores))

    @staticmethod
    def load(name_or_path: str | os.PathLike[str]) -> Machine:
        """The machine of a known target name, or of a path to a .toml; MachineError otherwise."""
        if not isinstance(name_or_path, str | os.PathLike):
            raise MachineError(f"a target is the name of a chip or a path to a .toml, not {name_or_path!r}")
        name, known = os.fspath(name_or_path), Machine.names()
        path = _FOLDER / f"{name}.toml"
        if name not in known:
            path = Path(name)
            if path.suffix != ".toml":
                raise MachineError(
                    f"unknown target '{name}': known are {', '.join(known)}, or a path to a .toml"
                )
            if not path.is_file():
                raise MachineError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        from .reader import read

        return read(path, path.stat().st_mtime_ns)

    @staticmethod
    def names() -> list[str]:
        """The known targets."""
        return list(_names())


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
