"""Which programs of the tests run one instruction at a time: small ones, for which XLA would compile longer than they
run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import pytest
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

import tilewright as tw
from tilewright.api.modes import Memory, Runnable
from tilewright.api.program import Program
from tilewright.api.sizes.shared import SharedExecutables, SizedExecutable
from tilewright.dialects.base import integer, to_ints
from tilewright.dialects.npu import NpuOp, structure
from tilewright.dialects.open_sizes import is_open
from tilewright.dialects.sizes import Sizes
from tilewright.verification.results import Verification

MOST = 20_000
"""Instructions that a program runs at most, in all its cores, to be small."""

UNKNOWN = 8
"""Trips of a loop that is as long as data or open sizes say."""


@contextmanager
def stepping() -> Iterator[None]:
    """Small programs are run one instruction at a time, whichever of XLA's memories is asked for."""
    of_program, of_version, of_values = Program.executable, SharedExecutables.at, tw.verify

    def executable(self: Program, memory: Memory) -> Runnable:
        return of_program(self, _mode(self._module, memory))

    def at(self: SharedExecutables, sizes: Sizes, memory: Memory) -> SizedExecutable | None:
        return of_version(self, sizes, _mode(self._template.module, memory))

    def verify(*args: Any, **kwargs: Any) -> Verification:
        """It holds what XLA compiles against the levels, so a program must not run by steps there."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Program, "executable", of_program)
            patch.setattr(SharedExecutables, "at", of_version)
            return of_values(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tw, "verify", verify)
        patch.setattr(Program, "executable", executable)
        patch.setattr(SharedExecutables, "at", at)
        yield


def _mode(module: ModuleOp, memory: Memory) -> Memory:
    """How a program is run that is asked for in a memory."""
    return "step" if memory in ("typed", "bytes") and is_small(module) else memory


def is_small(module: ModuleOp) -> bool:
    """Whether a module of the npu level runs few instructions."""
    kernels = {op.sym_name.data: op for op in module.ops if isinstance(op, structure.KernelOp)}
    each = {name: _launched(op) for name, op in kernels.items()}
    functions = [op for op in module.ops if not isinstance(op, structure.KernelOp)]
    return sum(_of_host(block, each) for op in functions for r in op.regions for block in r.blocks) <= MOST


def _known(n: int) -> int:
    return UNKNOWN if is_open(n) else n


def _launched(kernel: structure.KernelOp) -> int:
    """Instructions of one launch."""
    sections = [op for op in kernel.body.block.ops if isinstance(op, structure.SectionOp)]
    each = sum(integer(s.units) * _of_core(s.body.block) for s in sections)
    return each * prod(map(_known, to_ints(kernel.grid)))


def _of_core(block: Block) -> int:
    count = 0
    for op in block.ops:
        if isinstance(op, scf.ForOp):
            count += _trips(op) * _of_core(op.body.block)
        else:
            count += isinstance(op, NpuOp)
    return count


def _trips(op: scf.ForOp) -> int:
    ends = [v.owner.value for v in (op.lb, op.ub, op.step) if isinstance(v.owner, arith.ConstantOp)]
    if len(ends) < 3:
        return UNKNOWN
    low, high, step = map(integer, ends)
    return max(-(-(high - low) // step), 0)


def _of_host(block: Block, launched: dict[str, int]) -> int:
    count = 0
    for op in block.ops:
        if isinstance(op, structure.LaunchOp):
            count += launched[op.callee.root_reference.data]
        trips = 1
        if isinstance(op, structure.LoopOp):
            trips = UNKNOWN if op.trip_count is None else _known(integer(op.trip_count))
        count += 1 + trips * sum(_of_host(b, launched) for r in op.regions for b in r.blocks)
    return count
