"""The passes in order, with what each requires and establishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, fields, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from ..dialects.graph import FusionOp, GraphOp
from ..support.plugins import Entry
from .added import load, loaders, with_added
from .calls import callers_first
from .errors import PassError

STATES = (
    "real",
    "partitioned",
    "fused",
    "tiled",
    "bufferized",
    "addressed",
    "synchronized",
    "planned",
    "scheduled",
    "checked",
)
"""Properties a module gains on its way down; each pass states what must hold and what holds after it."""


@dataclass(frozen=True)
class Stage:
    """One pass of the pipeline: the module's level after it, required and established properties. `schedule`: pinned
    choices, `host`: whether the program may call the host, for a pass that takes them."""

    name: str
    load: Callable[[], type[ModulePass]]
    level: str
    requires: frozenset[str] = frozenset()
    establishes: frozenset[str] = frozenset()
    schedule: str = ""
    host: str = "allow"


def _complex() -> type[ModulePass]:
    from .graph.complex import GraphComplexPass

    return GraphComplexPass


def _simplify() -> type[ModulePass]:
    from .graph.simplify import GraphSimplifyPass

    return GraphSimplifyPass


def _hoist() -> type[ModulePass]:
    from .graph.hoist import GraphHoistPass

    return GraphHoistPass


def _partition() -> type[ModulePass]:
    from .graph.partition import GraphPartitionPass

    return GraphPartitionPass


def _fuse() -> type[ModulePass]:
    from .graph.fuse import GraphFusePass

    return GraphFusePass


def _to_tile() -> type[ModulePass]:
    from .tile.lower import GraphToTilePass

    return GraphToTilePass


def _to_npu() -> type[ModulePass]:
    from .npu.bufferize import TileToNpuPass

    return TileToNpuPass


def _allocate() -> type[ModulePass]:
    from .npu.allocate import NpuAllocatePass

    return NpuAllocatePass


def _synchronize() -> type[ModulePass]:
    from .npu.synchronize import NpuSynchronizePass

    return NpuSynchronizePass


def _plan() -> type[ModulePass]:
    from .npu.plan_memory import NpuPlanMemoryPass

    return NpuPlanMemoryPass


def _schedule() -> type[ModulePass]:
    from .npu.schedule_host import NpuScheduleHostPass

    return NpuScheduleHostPass


def _check() -> type[ModulePass]:
    from .npu.check import NpuCheckPass

    return NpuCheckPass


def _set(*names: str) -> frozenset[str]:
    return frozenset(names)


PIPELINE: tuple[Stage, ...] = (
    Stage("graph-complex", _complex, "graph", _set(), _set("real")),
    Stage("graph-simplify", _simplify, "graph", _set("real")),
    Stage("graph-hoist", _hoist, "graph"),
    Stage("graph-partition", _partition, "graph", _set(), _set("partitioned")),
    Stage("graph-fuse", _fuse, "graph", _set(), _set("fused")),
    Stage("graph-to-tile", _to_tile, "tile", _set("fused"), _set("tiled")),
    Stage("tile-to-npu", _to_npu, "npu", _set("tiled"), _set("bufferized")),
    Stage("npu-allocate", _allocate, "npu", _set("bufferized"), _set("addressed")),
    Stage("npu-synchronize", _synchronize, "npu", _set("bufferized"), _set("synchronized")),
    Stage("npu-plan-memory", _plan, "npu", _set("bufferized"), _set("planned")),
    Stage("npu-schedule-host", _schedule, "npu", _set("planned"), _set("scheduled")),
    Stage("npu-check", _check, "npu", _set("addressed", "planned"), _set("checked")),
)


def _added(entry: Entry) -> Stage:
    given = entry.given
    states = frozenset(given.requires), frozenset(given.establishes)
    return Stage(entry.name, lambda: load(entry), given.level, *states)


OURS = tuple(s.name for s in PIPELINE)
"""The passes of this package, in order."""

PIPELINE = with_added(PIPELINE, STATES, _added)


def all_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """Pass factories by name, for the driver."""
    return {s.name: s.load for s in PIPELINE} | loaders(OURS)


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


def properties_of(module: ModuleOp) -> set[str]:
    """What holds of a module, read from the module itself."""
    level = level_of(module)
    found: set[str] = set()
    if level == "graph":
        from .graph.complex import is_real

        if is_real(module):
            found.add("real")
        tops = [f.body.block for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
        if any(isinstance(op, FusionOp) and not op.on_host for block in tops for op in block.ops):
            found |= {"partitioned", "fused"}
        return found
    if level == "tile":
        return {"real", "partitioned", "fused", "tiled"}
    found |= {"real", "partitioned", "fused", "tiled", "bufferized"}
    from ..dialects.npu.streams import Command

    allocs = synced = 0
    scheduled = True
    missing = False
    for op in module.walk():
        if op.name == "npu.alloc":
            allocs += 1
            missing |= "address" not in op.properties
        synced += op.name in ("npu.set_flag", "npu.set_cross", "npu.barrier")
        if isinstance(op, Command) and op.name != "npu.yield":
            scheduled &= op.queue is not None
        if isinstance(op, FuncOp) and "npu.arena_bytes" in op.attributes:
            found.add("planned")
    if scheduled and "planned" in found:
        found.add("scheduled")
    if not missing:
        found.add("addressed")
    if synced or not allocs:
        found.add("synchronized")
    return found


def without_need(module: ModuleOp) -> set[str]:
    """Properties that nobody needs to establish, since the module has nothing that they are about."""
    tops = [f.body.block for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
    found = set() if tops else {"planned"}
    if level_of(module) == "graph" and not any(map(_has_kernels, tops)):
        found |= {"fused", "tiled"}
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


def run_pipeline(
    module: ModuleOp, target: str, until: str = "npu", stages: Sequence[Stage] = PIPELINE
) -> None:
    """Runs what is left of the pipeline on a module, up to the end of level `until`.

    A module that starts in the middle (a hand-written tile or npu program) only gets the passes below it. Raises
    PassError.
    """
    callers_first(module)
    context = Context()
    have = properties_of(module)
    for stage in remaining(module, until, stages, have):
        check_requirements(stage, have)
        make_pass(stage, target).apply(context, module)
        have |= stage.establishes


def check_pinnable(module: ModuleOp, stages: Sequence[Stage]) -> None:
    """Raises PassError where choices are pinned that a module has behind it."""
    level = level_of(module)
    if level != "graph" and any(stage.schedule for stage in stages):
        raise PassError(f"schedule: the program is written at the {level} level, where tiles are chosen already")


def check_requirements(stage: Stage, have: Set[str]) -> None:
    """Raises PassError where a module of which only `have` holds lacks what a pass requires."""
    lacking = [state for state in STATES if state in stage.requires - have]
    if lacking:
        makers = [s.name for s in PIPELINE if s.establishes & set(lacking)]
        raise PassError(
            f"{stage.name} needs a module that is {' and '.join(lacking)}: run {', '.join(makers)} before it"
        )


def remaining(
    module: ModuleOp, until: str = "npu", stages: Sequence[Stage] = PIPELINE, have: Set[str] | None = None
) -> list[Stage]:
    """The stages that a module, of which `have` holds (see `properties_of`), has not been through, up to the end of
    level `until`."""
    have, start = properties_of(module) if have is None else have, level_of(module)
    order = ("graph", "tile", "npu")
    out = []
    for stage in stages:
        if order.index(stage.level) > order.index(until):
            break
        if stage.level == "graph" and start != "graph":
            continue
        if not stage.establishes or not stage.establishes <= have:
            out.append(stage)
    return out


def pinned(stages: Sequence[Stage], schedule: str, host: str = "allow") -> list[Stage]:
    """The stages with pinned choices and leave to call the host, as the options of their passes."""
    return [replace(s, schedule=schedule, host=host) for s in stages]


def make_pass(stage: Stage, target: str) -> ModulePass:
    """The pass of a stage, for a target and with those of the stage's choices that it takes."""
    cls = stage.load()
    given = {"target": target, "schedule": stage.schedule, "host": stage.host}
    arguments = {f.name: given[f.name] for f in fields(cls) if f.name in given}
    return cls(**arguments)
