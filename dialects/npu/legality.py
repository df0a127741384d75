"""What a machine can run: which cores it has, what lies on each of them, by which ways bytes move, and in which types
its engines compute. The facts come from the machine file; the verifiers of kernels ask here, at both lower levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, UnitAttr
from xdsl.dialects.scf import ForOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import opt_prop_def, prop_def, region_def
from xdsl.utils.exceptions import VerifyException

from ...machine import Machine
from ..base import INDEX, FormattedOp, describe, integer, text, to_ints
from ..dtypes import numbers_in
from ..module import machine_of
from .types import GmType, OnChipType, Pipe

CORES = ("cube", "vector", "fused")
MIXED = "mixed"
"""In place of the core of a tile section: its ops run on a cube core and the vector cores beside it, each where its
tiles lie, as if one came after the other."""
KINDS = ("cube", "vector", "mix")
"""Of kernels: on a split machine the kinds of cores that a kernel runs on; on a fused one there is but one."""


class MachineViolation(VerifyException):
    """Something that the module's machine cannot run: `op`, and the `problem` in words."""

    def __init__(self, op: Operation, problem: str):
        super().__init__(f"{describe(op)} {problem}")
        self.op, self.problem = op, problem


class EngineOp(FormattedOp):
    """An op that an engine of a core runs: an instruction, or the tile op that becomes one."""

    def pipes(self) -> Sequence[Pipe]:
        """The pipes of the core that the op needs."""
        return ()

    def refused_by(self, machine: Machine) -> str | None:
        """Why a machine cannot run the op on any core: a path or a type that it lacks. None where it can."""
        return None

    def misfits(self, machine: Machine) -> str | None:
        """Why the memory that it works on is not as a machine has it; None where it is."""
        return None

    def core_in(self, machine: Machine) -> str:
        """The kind of core of a split chip that runs the op: that which has the memories of its operands and results.
        The first one where it has none."""
        for value in (*self.results, *self.operands):
            if isinstance(value.type, OnChipType) and value.type.space in machine.spaces:
                return machine.spaces[value.type.space].core or machine.core_kinds[0]
        return machine.core_kinds[0]


class Kernel(FormattedOp):
    """A kernel of the tile or the npu level. `counted`: its flags are counted, so that one may be raised again before
    it is consumed, as those of the vendor's compiler and library are; else it may not. `scattered`: numbers that it
    reads never send the stores of two cores to one place, which nothing proves."""

    sym_name = prop_def(StringAttr)
    kind = prop_def(StringAttr)
    grid = prop_def(DenseArrayBase)
    outputs = prop_def(IntegerAttr)
    workspaces = prop_def(IntegerAttr)
    counted = opt_prop_def(UnitAttr)
    scattered = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    SYMBOL: ClassVar[str | None] = "sym_name"

    def verify_(self) -> None:
        name, grid = text(self.sym_name), to_ints(self.grid)
        args = self.body.block.args
        n = len(grid)
        if any(a.type != INDEX for a in args[:n]) or any(not isinstance(a.type, GmType) for a in args[n:]):
            raise self.error(f"@{name} needs {n} index arguments, then device tensors")
        if len(args) - n < integer(self.outputs) + integer(self.workspaces):
            raise self.error(f"@{name} has fewer arguments than outputs and workspaces")
        if any(g < 1 for g in grid):
            raise self.error(f"@{name} has an empty grid")
        if text(self.kind) not in KINDS:
            raise self.error(
                f"@{name} is of kind {text(self.kind)!r}, which is not one of {', '.join(KINDS)}"
            )
        for violation in refused(self):
            raise violation

    def sections(self) -> list[Section]:
        """The sections of the kernel, in their order."""
        return [op for op in self.body.block.ops if isinstance(op, Section)]


class Section(FormattedOp):
    """What one kind of core runs, at the tile or the npu level."""

    CORES: ClassVar[tuple[str, ...]] = CORES
    core = prop_def(StringAttr)
    units = prop_def(IntegerAttr)
    body = region_def("single_block")

    def verify_(self) -> None:
        if text(self.core) not in self.CORES:
            raise self.error(f"core {text(self.core)!r} is not one of {', '.join(self.CORES)}")
        if [a.type for a in self.body.block.args] != [INDEX]:
            raise self.error("has one index argument, the unit's number")
        if integer(self.units) < 1:
            raise self.error(f"has {integer(self.units)} units; it needs at least one")


_PROVEN = ContextVar("proven", default=False)


@contextmanager
def proven() -> Iterator[None]:
    """For verifiers of a module right behind npu-check, which has proved that its machine can run it: they do not ask
    once more."""
    token = _PROVEN.set(True)
    try:
        yield
    finally:
        _PROVEN.reset(token)


def refused(kernel: Kernel) -> Iterator[MachineViolation]:
    """Everything in a kernel that the machine of its module cannot run; nothing where the module says none, or where
    that is `proven`."""
    machine = None if _PROVEN.get() else machine_of(kernel)
    if machine is not None:
        yield from violations(kernel, machine)


def violations(kernel: Kernel, machine: Machine) -> Iterator[MachineViolation]:
    """Everything in a kernel that a machine cannot run, each with its op."""
    blocks = math.prod(to_ints(kernel.grid))
    if blocks > machine.max_blocks:
        limit = f"a launch on {machine.name} has at most {machine.max_blocks:,}"
        yield MachineViolation(kernel, f"@{text(kernel.sym_name)} has a grid of {blocks:,} blocks; {limit}")
    cores = _cores_for(text(kernel.kind), machine)
    seen: set[str] = set()
    for section in kernel.sections():
        core = text(section.core)
        if core == MIXED and len(cores) == 2 and not seen:
            seen.update(cores)
            yield from _too_many_units(section, machine)
            yield from _in_section(section, cores, machine)
            continue
        if core not in cores:
            kinds = " and ".join(cores)
            problem = (
                f"runs on a {core} core; a {text(kernel.kind)} kernel on {machine.name} runs on {kinds} cores"
            )
            yield MachineViolation(section, problem)
            continue
        if core in seen:
            yield MachineViolation(section, f"is the kernel's second section for its {core} core")
        seen.add(core)
        if core == "vector" and len(cores) == 2:
            yield from _too_many_units(section, machine)
        elif integer(section.units) > 1:
            has = f"one {core} core for each block"
            yield MachineViolation(section, f"has {integer(section.units)} units; {machine.name} has {has}")
        yield from _in_section(section, (core,), machine)


def _too_many_units(section: Section, machine: Machine) -> Iterator[MachineViolation]:
    """Where a section wants more vector cores than there are beside a cube core."""
    most = machine.vector_cores // machine.cube_cores
    if integer(section.units) > most:
        has = f"{most} vector cores beside each cube core" if most > 1 else "one vector core for each block"
        yield MachineViolation(section, f"has {integer(section.units)} units; {machine.name} has {has}")


def _cores_for(kind: str, machine: Machine) -> tuple[str, ...]:
    if machine.fused:
        return ("fused",)
    return ("cube", "vector") if kind == "mix" else (kind,)


def _in_section(section: Section, cores: Sequence[str], machine: Machine) -> Iterator[MachineViolation]:
    """What the core of a section does not run, or that of each op where there are several."""
    known: dict[str, dict[int, str | None]] = {core: {} for core in cores}
    for op in section.body.walk():
        if isinstance(op, ForOp) and len(cores) > 1:
            continue  # each of its cores has the loop
        core = cores[0] if len(cores) == 1 or not isinstance(op, EngineOp) else op.core_in(machine)
        yield from _in_op(op, core, machine, known[core])


def _in_op(
    op: Operation, core: str, machine: Machine, known: dict[int, str | None]
) -> Iterator[MachineViolation]:
    # what an op takes from a memory of the core, another op of the section has put there
    problem = _misplaced(op.results, core, machine, known) if op.results else None
    if problem is None and isinstance(op, EngineOp):
        needed, pipes = op.pipes(), machine.pipes_of(core)
        if pipes.issuperset(needed):
            problem = op.refused_by(machine) or op.misfits(machine)
        else:
            lacking = next(p for p in needed if p not in pipes)
            have = ", ".join(p for p in machine.pipes if p in pipes)
            problem = f"needs pipe {lacking}, which a {core} core of {machine.name} does not have ({have})"
    if problem is not None:
        yield MachineViolation(op, problem)


def _misplaced(
    values: Sequence[SSAValue], core: str, machine: Machine, known: dict[int, str | None]
) -> str | None:
    """Why the core has no room for one of the values. known: what was found for the types so far, by identity, since
    their hashes would take longer than all else."""
    for value in values:
        key = id(value.type)
        if key not in known:
            known[key] = _unheld(value.type, core, machine) if isinstance(value.type, OnChipType) else None
        if known[key] is not None:
            return known[key]
    return None


def _unheld(kind: OnChipType, core: str, machine: Machine) -> str | None:
    """Why a core has no room for values of a type."""
    space = machine.spaces.get(kind.space)
    if space is None:
        return f"uses {kind.space}, which {machine.name} does not have"
    if space.core != core:
        return f"uses {kind.space}, which a {core} core of {machine.name} does not have"
    dtype = kind.dtype()
    if not machine.holds(kind.space, dtype):
        return f"has {dtype} in {kind.space}, where no engine of {machine.name} takes it"
    return None


# -- why engines refuse --------------------------------------------------------------------------------------


def refuse_path(machine: Machine, source: str, target: str, pipe: Pipe) -> str | None:
    """Why no pipe `pipe` of a machine moves bytes from one memory space to another; None where it does."""
    move = machine.moves.get((source, target))
    if move is None:
        return f"moves {source} to {target}, for which {machine.name} has no path"
    if move.pipe != pipe:
        return f"moves {source} to {target} on {pipe}; {machine.name} does so on {move.pipe}"
    return None


def refuse_instruction(machine: Machine, instruction: str, dtype: str) -> str | None:
    """Why the vector unit of a machine has no `instruction` for elements of a type; None where it has."""
    if machine.vector.runs(instruction, dtype):
        return None
    wider = machine.vector.compute_as.get(dtype)
    hint = f"; convert to {wider} before" if wider is not None and wider != dtype else ""
    return f"is {instruction} on {dtype}, which the vector unit of {machine.name} does not have{hint}"


def refuse_rounding(machine: Machine, mode: str, source: str, target: str) -> str | None:
    """Why the vector unit of a machine converts no elements of one type to another with that rounding; None where it
    does."""
    if machine.vector.rounds(mode, source, target):
        return None
    return f"rounds {source} to {target} to {mode}, which the vector unit of {machine.name} does not"


def refuse_product(
    machine: Machine, left: str, right: str, total: str, biased: bool = False, sparse: bool = False
) -> str | None:
    """Why the cube of a machine multiplies no such matrices into such an accumulator, which begins as a bias where it
    is `biased`, with a right side of which 2 of 4 numbers are kept where it is `sparse`; None where it does."""
    if sparse and right not in machine.cube_sparse:
        return f"multiplies by a 2:4 sparse matrix of {right}, for which {machine.name} has no instruction"
    if biased and total not in machine.cube_biases:
        return f"begins {total} accumulators as a bias, for which {machine.name} has no path"
    if biased and left in machine.cube and not machine.begins_as_bias(left):
        return f"begins products of {left} as a bias, which the cube of {machine.name} does not"
    if left not in machine.cube:
        return f"multiplies {left}; the cube of {machine.name} takes {', '.join(machine.cube)}"
    if not machine.multiplies(left, right):
        pairs = "".join(f", or {t} by {' or '.join(r.others)}" for t, r in machine.cube.items() if r.others)
        return f"multiplies {left} by {right}; the cube takes two matrices of one type{pairs}"
    if total != machine.accumulator(left):
        return f"adds products of {left} up in {total}; the cube does so in {machine.accumulator(left)}"
    return None


def refuse_parted(element: str, rows: int, transposed: bool) -> str | None:
    """Why no load brings a matrix with so many rows of pairs along the summed dimension to l0a or l0b: the numbers of
    a pair lie along that dimension, so that bytes side by side must do so, too. transposed: whether they do not. None
    where a load does, and for other elements."""
    if numbers_in(element) == 1 or rows == 1 or not transposed:
        return None
    return f"takes pairs of {element} apart: the summed dimension must be the last one in memory"


def refuse_unit_flag(machine: Machine, unit_flag: Attribute | None) -> str | None:
    """Why a product and the drain of its sums have no unit flags on a machine; None where they do, or ask for none."""
    if unit_flag is None or machine.unit_flags:
        return None
    return f"has a unit flag, which {machine.name} does not know"


def refuse_accumulation(machine: Machine, kind: str, dtype: str) -> str | None:
    """Why no store of a machine combines elements of a type with those in device memory; None where one does."""
    if dtype in machine.accumulations.get(kind, ()):
        return None
    return f"accumulates {dtype} by {kind} in device memory, which {machine.name} does not"


def refuse_drain(
    machine: Machine,
    total: str,
    dtype: str,
    factor: Attribute | None = None,
    zero: Attribute | None = None,
    relu: Attribute | None = None,
    by_column: bool = False,
) -> str | None:
    """Why accumulators of type `total` do not leave the cube as `dtype`, with these properties of the op, and scaled
    `by_column`; None where they do."""
    clipped = machine.clips_drains(total) if relu is not None else None
    if clipped is not None:
        return clipped
    if by_column or isinstance(factor, FloatAttr):
        added = integer(zero) if zero is not None else 0
        number = factor.value.data if isinstance(factor, FloatAttr) else None
        return machine.scales_drains(total, dtype, number, added)
    if dtype == total or (total == "f32" and dtype in ("f16", "bf16")):
        return None
    return f"gives {total} accumulators as {dtype}; they leave the cube as they are, or f32 as f16 or bf16"
