"""Executes a module of the npu level step by step: the same calls as the interpreter's `Executable`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any

import jax
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer
from ...dialects.dtypes import itemsize, numpy_dtype
from ...dialects.npu import GmType, structure
from ...dialects.npu.host_program import DeviceTensorOp
from ...dialects.npu.interface import gm
from ...dialects.npu.places import addresses_of, arena_of
from ...dialects.npu.streams import COMPUTE, Command
from ...dialects.open_sizes import value_at
from ...dialects.sizes import Sizes
from ...machine import Machine
from .host import Functions
from .plan import SteppedKernel
from .session import StepRun

NO_SIZES: Sizes = {}

PLANS_KEPT = 256
"""Kernels at given sizes that a program keeps ready."""


class StepProgram:
    """A module of the npu level, ready to be run on the arrays of `@main`'s arguments, one instruction at a time.

    races: whether accesses that nothing orders are faults.
    """

    def __init__(self, module: ModuleOp, machine: Machine, races: bool = True) -> None:
        """Raises VerifyException where the module has no @main, or device memory is not planned."""
        self.machine, self.races = machine, races
        self.functions = Functions(module)
        main = self.functions.main
        size, addresses = arena_of(main), addresses_of(main)
        if size is None or addresses is None:
            raise VerifyException("@main has no addresses: npu-plan-memory has not run")
        self._size = size
        self._addresses: dict[SSAValue, int] = dict(zip(main.body.block.args, addresses, strict=True))
        self.granule, self.numbers = 0, 0
        self.is_parallel = False
        """Whether commands are on several streams."""
        for value in self._values():
            if isinstance(value.type, GmType):
                self.granule = gcd(self.granule, itemsize(value.type.element))
        self.granule = self.granule or 1
        for function in self.functions.functions.values():
            for op in function.walk():
                if isinstance(op, DeviceTensorOp):
                    if op.address is None:
                        raise VerifyException(f"{describe(op)} has no address: npu-plan-memory has not run")
                    self._addresses[op.result] = integer(op.address)
                elif isinstance(op, structure.LaunchOp):
                    count = sum(not isinstance(v.type, GmType) for v in op.operands)
                    self.numbers = max(self.numbers, count)
                if isinstance(op, Command) and op.queue not in (COMPUTE, None) and not op.PASSIVE:
                    self.is_parallel = True
        if any(n % self.granule for n in self._addresses.values() if type(n) is int):
            self.granule = 1
        self._plans: dict[tuple[structure.KernelOp, tuple[tuple[str, int], ...]], SteppedKernel] = {}

    def _values(self) -> Iterator[SSAValue]:
        for op in (*self.functions.functions.values(), *self.functions.kernels.values()):
            yield from op.body.block.args
            for inner in op.walk():
                yield from inner.results
                if isinstance(inner, structure.LaunchOp):
                    yield from inner.operands

    def address(self, value: SSAValue) -> int:
        """Where the plan of device memory puts a tensor."""
        return self._addresses[value]

    def arena(self, sizes: Sizes) -> int:
        """The bytes of device memory that the plan takes."""
        return value_at(self._size, sizes)

    def plan(self, kernel: structure.KernelOp, sizes: Sizes) -> SteppedKernel:
        """A kernel at given sizes, ready to run."""
        key = kernel, tuple(sorted(sizes.items()))
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = SteppedKernel(kernel, self.machine, sizes)
            if len(self._plans) > PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
        return found

    def compile(self, at: Sizes = NO_SIZES) -> None:
        """Nothing: an instruction is run as it is."""

    def session(self, arrays: Sequence[Any], at: Sizes = NO_SIZES, races: bool | None = None) -> StepRun:
        """A run that has not begun. Raises TypeError for arguments of the wrong number, shape or dtype."""
        given = [np.asarray(x) for x in arrays]
        block = self.functions.main.body.block
        if len(given) != len(block.args):
            raise TypeError(f"@main takes {len(block.args)} arrays, got {len(given)}")
        for i, (arg, x) in enumerate(zip(block.args, given, strict=True)):
            want = gm(arg)
            shape = tuple(value_at(n, at) for n in want.shape)
            if x.shape != shape or x.dtype != numpy_dtype(want.element):
                raise TypeError(f"argument {i} of @main is {want}, got {x.dtype}{list(x.shape)}")
        return StepRun(self, given, at, self.races if races is None else races)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results of `@main`. Raises TypeError as `session` does, and StepFault."""
        return self.run(arrays)

    def run(self, arrays: Sequence[Any], at: Sizes = NO_SIZES) -> list[Any]:
        """The results of `@main` where its open sizes are these."""
        results = self.session(arrays, at).run()
        with jax.enable_x64(True):
            return [jax.numpy.asarray(x) for x in results]
