"""Launches name kernels that exist, and give them what they take."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Operation

from . import tile
from .base import integer, to_ints
from .npu import structure as npu
from .npu.legality import Kernel
from .npu.streams import is_number
from .npu.types import GmType


def misfits(module: ModuleOp) -> Iterator[tuple[Operation, str]]:
    """Each launch of a kernel that is not there or takes something else, and what is wrong with it.

    A host program without any kernel is a fragment, as tests of host passes have it: npu-check refuses it.
    """
    kernels = {op.sym_name.data: op for op in module.ops if isinstance(op, Kernel)}
    if not kernels:
        return
    for op in module.ops:
        for region in op.regions if not isinstance(op, Kernel) else ():
            for inner in region.walk():
                if isinstance(inner, tile.LaunchOp | npu.LaunchOp):
                    problem = _misfit(inner, kernels)
                    if problem is not None:
                        yield inner, problem


def _misfit(launch: tile.LaunchOp | npu.LaunchOp, kernels: dict[str, Kernel]) -> str | None:
    """What is wrong with a launch, in words."""
    name = launch.callee.root_reference.data
    kernel = kernels.get(name)
    if kernel is None:
        return f"launches @{name}, which does not exist"
    if kernel.level != launch.level:
        return f"launches @{name}, which is a kernel of the {kernel.level} level"
    if isinstance(launch, tile.LaunchOp):
        return None  # what it gives and takes tile-to-npu compares, with the line of the kernel
    takes = [a.type for a in kernel.body.block.args[len(to_ints(kernel.grid)) :]]
    given = launch.operands
    ends = (integer(launch.outputs), integer(launch.workspaces))
    if ends != (integer(kernel.outputs), integer(kernel.workspaces)):
        return f"names other outputs and workspaces than @{name}"
    if len(given) != len(takes):
        return f"gives @{name} {len(given)} tensors, but it takes {len(takes)}"
    for i, (value, want) in enumerate(zip(given, takes, strict=True)):
        if not _fits(value.type, want):
            return f"gives @{name} {value.type} as tensor {i}, but it takes {want}"
    return None


def _fits(kind: Attribute, want: Attribute) -> bool:
    if not isinstance(want, GmType):
        return False
    if isinstance(kind, GmType):
        return (kind.shape, kind.element) == (want.shape, want.element)
    if not isinstance(kind, TensorType):
        return False
    return (kind.get_shape(), kind.element_type) == (want.shape, want.element) or (is_number(kind) and not want.shape)
