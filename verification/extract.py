"""One launch of a tile or npu program as a program of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ..dialects import tile
from ..dialects.base import integer, text, to_ints
from ..dialects.npu.structure import CopyOp, GmAllocOp, KernelOp, LaunchOp
from ..dialects.npu.types import GmType
from .trace import LaunchRun


def extract_launch(module: ModuleOp, launch: LaunchRun) -> tuple[ModuleOp, list[np.ndarray]]:
    """A module with the kernel of a launch and a function @main that launches it on its inputs; and the inputs."""
    kernel = next(
        op
        for op in module.ops
        if isinstance(op, KernelOp | tile.KernelOp) and text(op.sym_name) == launch.kernel
    )
    main, inputs = (_npu if isinstance(kernel, KernelOp) else _tile)(kernel, launch)
    return ModuleOp([main, kernel.clone()]), inputs


def _function(block: Block, results: list[SSAValue]) -> FuncOp:
    block.add_op(ReturnOp(*results))
    kind = FunctionType.from_lists([a.type for a in block.args], [v.type for v in results])
    return FuncOp("main", kind, Region(block))


def _tile(kernel: Any, launch: LaunchRun) -> tuple[FuncOp, list[np.ndarray]]:
    op = launch.op
    assert isinstance(op, tile.LaunchOp)
    block = Block(arg_types=[v.type for v in op.operands])
    copy = op.clone(dict(zip(op.operands, block.args, strict=True)))
    block.add_op(copy)
    started = {i: o for o, i in enumerate(to_ints(op.inits)) if i >= 0}
    rest = iter(launch.inputs)
    values = [launch.starts[started[i]] if i in started else next(rest) for i in range(len(op.operands))]
    return _function(block, list(copy.results)), [np.asarray(x) for x in values]


def _npu(kernel: Any, launch: LaunchRun) -> tuple[FuncOp, list[np.ndarray]]:
    args = [a.type for a in kernel.body.block.args[len(to_ints(kernel.grid)) :]]
    scratch, outputs = integer(kernel.workspaces), integer(kernel.outputs)
    read = len(args) - scratch - outputs
    kinds: list[GmType] = [GmType.of(t.shape, t.element) for t in args]
    given = [*kinds[:read], *(kinds[read + i] for i in sorted(launch.starts))]
    block = Block(arg_types=given)
    values = [*launch.inputs, *(launch.starts[i] for i in sorted(launch.starts))]
    arrays = [np.asarray(x).reshape(t.shape) for x, t in zip(values, given, strict=True)]
    made: list[SSAValue] = []
    ops: list[Operation] = []
    for t in kinds[read:]:
        ops.append(GmAllocOp.create(result_types=[t]))
        made.append(ops[-1].results[0])
    for place, i in enumerate(sorted(launch.starts)):
        ops.append(CopyOp.create(operands=[block.args[read + place], made[i]]))
    properties = (
        dict(launch.op.properties)
        if isinstance(launch.op, LaunchOp)
        else {
            "callee": launch.op.properties["callee"],
            "outputs": kernel.outputs,
            "workspaces": kernel.workspaces,
        }
    )
    ops.append(LaunchOp.create(operands=[*block.args[:read], *made], properties=properties))
    block.add_ops(ops)
    return _function(block, made[:outputs]), arrays
