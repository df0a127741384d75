"""The states of a module: those that passes recorded on it, or, without a record, those read off its ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from ..dialects.base import describe
from ..dialects.graph import FusionOp, GraphOp
from ..dialects.graph.schedules import all_complete, to_schedules
from ..dialects.module import STATES as RECORD
from ..dialects.module import record_states, recorded_states
from .complex_values import is_real
from .errors import PassError
from .quantized_values import is_stored
from .stages import STATES, Stage, check_requirements


def level_of(module: ModuleOp) -> str:
    """The lowest level whose ops a module has: `graph`, `tile` or `npu`."""
    found = "graph"
    for op in module.ops:
        if op.name == "npu.kernel" or (isinstance(op, FuncOp) and _is_npu(op)):
            return "npu"
        if op.name == "tile.kernel":
            found = "tile"
    return found


def _is_npu(func: FuncOp) -> bool:
    return any(t.name == "npu.gm" for t in (*func.function_type.inputs, *func.function_type.outputs))


def check_level(module: ModuleOp) -> None:
    """Raises PassError for a function that takes device tensors of the npu level and has ops of the graph level."""
    for func in module.ops:
        if isinstance(func, FuncOp) and func.body.blocks and _is_npu(func):
            mixed = next((op for op in func.body.block.ops if isinstance(op, GraphOp)), None)
            if mixed is not None:
                raise PassError(
                    f"{describe(mixed)} is of the graph level, and the function takes or gives !npu.gm, which is of "
                    "the npu level: give it tensors"
                )


def states_of(module: ModuleOp) -> set[str]:
    """The states recorded on a module; where none are, as on one written by hand, those that its ops show."""
    if RECORD in module.attributes:
        return set(recorded_states(module))
    return _shown(module)


def confirmed_states(module: ModuleOp) -> set[str]:
    """The states of a module that its ops do not contradict: a file from which a person took the addresses, or the
    schedule of a fusion, still records that it has them."""
    recorded = states_of(module)
    if level_of(module) == "npu":
        return recorded & _shown(module)
    if "scheduled" in recorded and "scheduled" not in _shown(module):
        return recorded - {"scheduled"}
    return recorded


@contextmanager
def recording(stage: Stage, module: ModuleOp) -> Iterator[None]:
    """Checks what a stage requires of a module before its pass runs inside, and records what holds after it.

    Raises PassError where the module lacks a state.
    """
    have = states_of(module)
    if not have.issuperset(stage.requires):
        check_requirements(stage, have | _without_need(module))
    yield
    have |= _shown(module) if RECORD not in module.attributes else set(recorded_states(module))
    have |= set(stage.establishes)
    record_states(module, [s for s in STATES if s in have])


def _shown(module: ModuleOp) -> set[str]:
    level = level_of(module)
    found: set[str] = set()
    if level == "graph":
        if is_stored(module):
            found.add("stored")
        if is_real(module):
            found.add("real")
        tops = [f.body.block for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
        fusions = [op for block in tops for op in block.walk() if isinstance(op, FusionOp) and not op.on_host]
        if fusions:
            found |= {"partitioned", "fused"}
            if all(all_complete(to_schedules(op.schedule)) for op in fusions):
                found.add("scheduled")
        return found
    if level == "tile":
        return {"stored", "real", "partitioned", "fused", "scheduled", "tiled"}
    found |= {"stored", "real", "partitioned", "fused", "scheduled", "tiled", "bufferized"}
    from ..dialects.npu.places import arena_of
    from ..dialects.npu.streams import Command
    from ..dialects.npu.structure import LaunchOp

    allocs = synced = 0
    ordered = True
    missing = unplanned = joined = False
    for op in module.walk():
        if op.name == "npu.alloc":
            allocs += 1
            missing |= "address" not in op.properties
        unplanned |= op.name in ("npu.gm_alloc", "npu.gm_constant") and "address" not in op.properties
        synced += op.name in ("npu.set_flag", "npu.set_cross", "npu.barrier", "npu.pipe_barrier")
        if isinstance(op, Command) and op.name != "npu.yield":
            ordered &= op.queue is not None
        joined |= isinstance(op, LaunchOp) and op.joined is not None
        if isinstance(op, FuncOp) and arena_of(op) is not None:
            found.add("planned")
    if unplanned:
        found.discard("planned")
    if ordered and "planned" in found:
        found |= {"ordered", "joined"} if joined else {"ordered"}
    if not missing:
        found.add("addressed")
    if synced or not allocs:
        found.add("synchronized")
    return found


def _without_need(module: ModuleOp) -> set[str]:
    """States that nobody needs to establish, since the module has nothing that they are about."""
    tops = [f.body.block for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
    found = set() if tops else {"planned"}
    if level_of(module) == "graph" and not any(map(_has_kernels, tops)):
        found |= {"fused", "scheduled", "tiled"}
    return found


def _has_kernels(block: Block) -> bool:
    """Whether some op of a part of the program has to run in a kernel."""
    for op in block.ops:
        if isinstance(op, FusionOp):
            if not op.on_host:
                return True
        elif (isinstance(op, GraphOp) and op.KERNEL) or any(
            _has_kernels(inner) for region in op.regions for inner in region.blocks
        ):
            return True
    return False
