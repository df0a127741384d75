"""Kernels of the tile and the npu level on NumPy arrays, each planned once for all runs of a verification.

Neither level leaves its arithmetic to XLA: that would compile a program for each kernel, memory and pass, to run it
once. Both compute alike (`backends/stepper/rules.py`), so that tile-to-npu and what follows must keep every bit.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..backends.interpreter.launch import BoundTensor, LaunchBinding
from ..backends.stepper.kernels import DeviceArray, ValueRun, arrays_of
from ..backends.stepper.plan import SteppedKernel
from ..backends.stepper.tiles import TilePlan, run_kernel
from ..dialects import tile
from ..dialects.npu.structure import KernelOp
from ..machine import Machine
from .structure import Cache


def run_tile_kernel(
    cache: Cache,
    key: Hashable,
    kernel: tile.KernelOp,
    inputs: Sequence[Any],
    inits: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> list[np.ndarray]:
    """The outputs of a tile kernel on arrays. key: what makes kernels the same; `inits` as in
    `stepper.tiles.run_kernel`."""
    plan = cache.get(("tile", key), lambda: TilePlan(kernel))
    return run_kernel(plan, inputs, inits, shapes)


def run_npu_kernel(
    cache: Cache,
    key: Hashable,
    kernel: KernelOp,
    machine: Machine,
    addressed: bool,
    binding: LaunchBinding,
    passed: Sequence[Any],
) -> list[np.ndarray]:
    """What a launch leaves in the tensors that it writes. key: what makes kernels the same; addressed: whether buffers
    are at their addresses; passed: contents of the tensors that are not fresh. Raises VerifyException."""
    plan = cache.get(("plan", key), lambda: SteppedKernel(kernel, machine, {}, addressed, implied=True))
    contents = iter(passed)

    def of(t: BoundTensor) -> tuple[Sequence[int], np.dtype, Any, bool]:
        return t.shape, t.dtype, None if t.fresh else next(contents), t.written

    tensors: list[DeviceArray] = arrays_of(map(of, binding.tensors))
    ValueRun(plan, [tensors[i] for i in binding.of]).run()
    return [
        a.elements.reshape(t.shape) for a, t in zip(tensors, binding.tensors, strict=True) if t.written
    ]
