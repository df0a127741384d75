"""A chip: its data, and how it is loaded. Times are core cycles unless a name says otherwise; sizes are bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from . import files, reader
from .parts import (
    PIPES,
    CubeRate,
    Energy,
    HostCost,
    MachineError,
    MemorySpace,
    Move,
    ScaledDrains,
    VectorUnit,
)

DEFAULT_TARGET = "ascend-910b1"
"""The machine of a program for which nobody names one."""


@dataclass(frozen=True)
class Machine:
    """One chip. Rates of `moves`, `cube` and `vector` are per core; L2 and HBM rates are chip-wide.

    issue_cycles, vector_issue_cycles, vector_slot_cycles, cube_issue_factor: see `scalar_cycles`. row_instructions:
    what the scalar unit issues for each row of a scatter. scalar_start_us: the part of a launch in which a core's
    scalar unit works. pipes: the queues of a core, those that every chip has first.
    wait_cycles: by pipe, what a wait for a flag costs. hbm_turn_share: how much longer HBM takes
    to read and write alike, as a share. atomic_us: one of several additions to one address, which take turns.
    cube_biases: types of accumulators that may begin as a number for each column, from the bias table.
    cube_sparse: by how much fewer multiply-adds a product has whose right side keeps 2 of 4 numbers along k, by type.
    unit_flags: whether a drain may follow the product of its sums fractal by fractal, without a flag.
    accumulations: by kind, the element types that a store may combine with what device memory holds.
    unrolls: whether what brings a tile from l1 to l0a repeats it for each position of a window (image to column).
    in_library: whether vector instructions are those of the vendor's library, of which fewer repeat operands.
    unordered: pipes that may begin an instruction before the ones ahead of it are over, so that what depends on one
    of them needs a pipe_barrier between; unordered_sums: products of fewer fractals of sums than this do, too, where
    they go on with the sums of the one before.
    max_blocks: blocks that the grid of a launch has at most. mixed_us, mixed_us_all: how much longer one takes that
    wakes cube and vector cores of a split chip, on one and on all. barrier_share: the share of such a launch
    that a barrier over its cores takes. cross_us: the time of a signal between a cube core and its vector cores.
    library_*: see calibration/. in_turn: whether a core's pipes work one after the other, which no chip does of itself:
    how loops run whose instructions each wait for the one before.
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
    barrier_share: float
    host: HostCost
    energy: Energy
    flags: int = 8
    unordered: frozenset[str] = frozenset()
    unordered_sums: int = 0
    pipes: tuple[str, ...] = PIPES
    max_blocks: int = 65_535
    mixed_us: float = 0.0
    mixed_us_all: float = 0.0
    cross_us: float = 0.0
    issue_cycles: int = 1
    row_instructions: int = 1
    vector_issue_cycles: int = 1
    vector_slot_cycles: int = 0
    cube_issue_factor: float = 1.0
    in_turn: bool = False
    scalar_start_us: float = 0.0
    hbm_turn_share: float = 0.0
    atomic_us: float = 0.0
    wait_cycles: Mapping[str, int] = field(default_factory=dict)
    scaled_drains: ScaledDrains | None = None
    unit_flags: bool = False
    accumulations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unrolls: bool = True
    in_library: bool = False
    cube_biases: tuple[str, ...] = ()
    cube_sparse: Mapping[str, int] = field(default_factory=dict)
    library_issue_factor: float = 1.0
    library_constant_factor: float = 1.0
    library_start_us: float = 0.0
    library_constant_start_us: float = 0.0

    @cached_property
    def fingerprint(self) -> str:
        """64 hexadecimal digits that stand for all its numbers, whatever file they come from."""
        return hashlib.sha256(_canonical(self).encode()).hexdigest()

    @cached_property
    def in_hivm(self) -> Machine:
        """The same chip as one sees it through the vendor's IR: no moves unroll windows, and vector instructions are
        those of a library."""
        return replace(self, unrolls=False, in_library=True)

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
                if name in self.spaces and self.spaces[name].core:
                    found[self.spaces[name].core].add(move.pipe)
        moving = {move.pipe for move in self.moves.values()}
        for pipes in found.values():  # a chip's own unit that moves nothing may be of either
            pipes.update(p for p in self.pipes if p not in PIPES and p not in moving)
        return {core: frozenset(pipes) for core, pipes in found.items()}

    def pipes_of(self, core: str) -> frozenset[str]:
        """The pipes of a kind of core: the scalar unit, its engines, and those that move bytes of its memories."""
        return self._pipes[core]

    @staticmethod
    def accumulator(dtype: str) -> str:
        """The type in which the cube adds up products of `dtype`."""
        return "i32" if dtype.startswith(("i", "ui")) else "f32"

    def multiplies(self, left: str, right: str) -> bool:
        """Whether the cube multiplies a matrix of one element type by one of another."""
        return left in self.cube and (left == right or right in self.cube[left].others)

    def fractal(self, dtype: str) -> tuple[int, int, int] | None:
        """Rows, numbers of k and columns of the blocks in which matrices of a type lie in memories of the cube; None
        where they lie in rows: of types that it does not multiply, and of a cube that takes one row at a time."""
        rate = self.cube.get(dtype)
        return (rate.m, self.cube_k0[dtype], rate.n) if rate is not None and rate.m > 1 else None

    def begins_as_bias(self, dtype: str) -> bool:
        """Whether the sums of products of `dtype` may begin as a number for each column, from the bias table."""
        return self.accumulator(dtype) in self.cube_biases and (
            dtype not in self.cube or self.cube[dtype].biased
        )

    def holds(self, space: str, dtype: str) -> bool:
        """Whether an engine that works on a memory space of a core takes elements of a type there."""
        moved = self.vector.runs("copy", dtype)
        if space == "ub":
            return moved
        if space == "l0c":
            return dtype in {self.accumulator(d) for d in self.cube}
        if space in ("bt", "fb"):
            return dtype in self.parameters(space)
        if space == "l1" and any(dtype in self.parameters(s) for s in ("bt", "fb")):
            return True
        return dtype in self.cube or (space not in ("l1", "l0a", "l0b") and moved)

    def parameters(self, space: str) -> tuple[str, ...]:
        """The types of what each column of a product may have in the bias table (bt) or for the fixpipe (fb)."""
        if space == "bt":
            return self.cube_biases
        words = None if self.scaled_drains is None else self.scaled_drains.words
        return () if words is None else (words,)

    def scales_drains(self, total: str, dtype: str, factor: float | None, zero: int) -> str | None:
        """Why accumulators of type `total` do not leave the cube as `dtype`, multiplied by `factor`, or where that is
        None by the words of their columns, and, as integers, with `zero` added; None where they do."""
        drains = self.scaled_drains
        if drains is None or dtype not in drains.types.get(total, ()):
            return f"scales {total} accumulators to {dtype}, for which {self.name} has no path"
        if factor is None:
            if drains.words is None:
                return f"scales columns of {total} accumulators by a number each, for which {self.name} has no path"
        elif not drains.takes(factor):
            return f"scales by {factor!r}, which is no number of {drains.mantissa_bits} bits behind the point"
        limit = 1 << drains.offset_bits - 1
        if not -limit <= zero < limit:
            return f"adds {zero}, which does not fit {drains.offset_bits} bits"
        return None

    def clips_drains(self, total: str) -> str | None:
        """Why negative accumulators of type `total` do not leave the cube as 0; None where they may."""
        if self.scaled_drains is None or total not in self.scaled_drains.relu:
            return f"makes negative {total} accumulators 0, for which {self.name} has no path"
        return None

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

    def launch_microseconds(self, cores: int, mixed: bool = False) -> float:
        """Microseconds to start and finish a kernel on `cores` cores, linear up to every cube core in use. `mixed`: on
        a split chip, where their vector cores work along."""
        one, all_ = self.launch_us, self.launch_us_all
        if mixed and not self.fused:
            one, all_ = one + self.mixed_us, all_ + self.mixed_us_all
        if self.cube_cores == 1:
            return one
        share = (min(max(cores, 1), self.cube_cores) - 1) / (self.cube_cores - 1)
        return one + share * (all_ - one)

    def barrier_microseconds(self, cores: int, mixed: bool = False) -> float:
        """Microseconds from the last of `cores` cores that comes to a barrier until all go on."""
        return self.barrier_share * self.launch_microseconds(cores, mixed)

    def vector_launch_microseconds(self, cores: int) -> float:
        """The same as `launch_microseconds` for a kernel on `cores` vector cores alone."""
        return self.launch_microseconds(self.share_of(cores))

    def share_of(self, vector_cores: int) -> int:
        """The cube cores that are the share of the chip that so many vector cores are."""
        return -(-vector_cores * self.cube_cores // self.vector_cores)

    @staticmethod
    def named(target: str | os.PathLike[str] | Machine) -> str:
        """What programs call a target: a name, a path to a .toml, or a machine that was loaded from either. Raises
        MachineError for what is none of these."""
        if not isinstance(target, Machine):
            Machine.load(target)
            return os.fspath(target)
        path = next((p for p, known in _loaded.items() if known.machine is target), None)
        if path is None:
            raise MachineError(
                f"this machine, {target.name}, was not loaded as it is: write what differs to a .toml that extends "
                "it, and load that"
            )
        names = files.known_machines()
        return path.stem if names.get(path.stem) == path else str(path)

    @staticmethod
    def load(name_or_path: str | os.PathLike[str]) -> Machine:
        """The machine of a known target, or of a path to a .toml. Raises MachineError."""
        if not isinstance(name_or_path, str | os.PathLike):
            raise MachineError(f"a target is the name of a chip or a path to a .toml, not {name_or_path!r}")
        path = files.find(os.fspath(name_or_path))
        known = _loaded.get(path)
        if known is None or files.stamps(known.stamps) != known.stamps:
            tables, read = reader.tables(path)
            known = _loaded[path] = _Loaded(Machine(**reader.facts(path, tables)), files.stamps(read))
        return known.machine

    @staticmethod
    def names() -> list[str]:
        """The known targets: ours and those of plugins."""
        return sorted(files.known_machines())


def _canonical(value: object) -> str:
    """A value of machine files as text in which order says nothing."""
    if is_dataclass(value):
        return f"({', '.join(f'{f.name}={_canonical(getattr(value, f.name))}' for f in fields(value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{k!r}: {_canonical(v)}' for k, v in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_canonical, value)))}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_canonical, value))}]"
    return repr(value)


@dataclass(frozen=True)
class _Loaded:
    """A machine, and when its file and those that it extends were changed last."""

    machine: Machine
    stamps: Mapping[Path, int]


Target: TypeAlias = "str | os.PathLike[str] | Machine"
"""What a program may be compiled for: the name of a chip, the path of a .toml, or a machine that was loaded."""

_loaded: dict[Path, _Loaded] = {}
"""Machines that were read: every pass asks for its target."""
