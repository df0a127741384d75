"""Executes the tile level: its kernels by NumPy, and the graph ops that remain around them by JAX."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ..dialects import tile as ops
from ..dialects.base import describe, text, to_ints
from ..dialects.graph.interface import shape_of
from ..dialects.npu.interface import gm
from .functions.values import on_device
from .interpreter.graph import GraphWalker, main_of
from .interpreter.views import View, realise
from .stepper.tiles import TilePlan, run_kernel


class TileProgram:
    """The kernels of a module."""

    def __init__(self, module: ModuleOp):
        self.kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, ops.KernelOp)}
        self.plans: dict[str, TilePlan] = {}

    def launch(self, op: ops.LaunchOp, *arguments: Any) -> list[Any]:
        """What a launch makes of its operands. Raises VerifyException where there is no such kernel."""
        name = op.callee.root_reference.data
        if name not in self.kernels:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        if name not in self.plans:
            self.plans[name] = TilePlan(self.kernels[name])
        shapes = [shape_of(v) for v in op.results]
        return [on_device(x) for x in run_kernel(self.plans[name], arguments, to_ints(op.inits), shapes)]


def _view(op: ops.ViewOp, x: Array) -> Array:
    return realise(x, View.of(gm(op.result)))


def run_tile(module: ModuleOp, *arrays: Any) -> list[Any]:
    """The results of `@main` of a tile-level module."""
    program, main = TileProgram(module), main_of(module)
    runner = GraphWalker({ops.LaunchOp: program.launch, ops.ViewOp: _view})
    with jax.enable_x64(True):
        args = [on_device(a) for a in arrays]
        return runner.block(main.body.block, dict(zip(main.body.block.args, args, strict=True)))
