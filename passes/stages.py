"""The table of the pipeline: the passes in order, with the states that each requires and establishes.

The table names classes as "module:Class", so that a pass is only imported when it runs. `insert_stage` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal

from xdsl.passes import ModulePass

from ..support.amounts import STRIP
from ..support.plugins import AddedPass, PluginEntry
from ..support.precisions import ORIGIN
from ..support.winograd import OFF
from .added import load_pass, loaders, with_added
from .errors import StateMissing
from .oracle import BOUND

STATES = (
    "stored",
    "real",
    "partitioned",
    "fused",
    "scheduled",
    "tiled",
    "bufferized",
    "addressed",
    "synchronized",
    "planned",
    "ordered",
    "joined",
    "checked",
)
"""Properties that a module gains on its way down, in the order in which it gains them."""


@dataclass(frozen=True)
class PassChoices:
    """What is asked of the passes of a pipeline; each takes those for which it has an option of that name.

    schedule: pinned choices of kernels, as `parse_pins` reads them. host: leave to call the host, `allow` or `forbid`.
    oracle: who judges schedules. precision: what f32 products are cast to. winograd: which convolutions are Winograd's.
    strips: the most bytes of a tensor of a strip, 0 for no strips. memory_limit: the most bytes of device memory, None
    for all there are. without: the names of the alternatives that are left out. hivm: True where kernels take forms
    that the vendor's IR has. plans: who knows plans of fusions, as known_plans.py knows it.
    """

    schedule: str = ""
    host: str = "allow"
    oracle: str = BOUND
    precision: str = ORIGIN
    winograd: str = OFF
    strips: int = STRIP
    memory_limit: int | None = None
    without: tuple[str, ...] = ()
    hivm: bool = False
    plans: str = ""


@dataclass(frozen=True)
class Stage:
    """One pass of the pipeline.

    implementation: the pass's class, or "module:Class" of it; level: the module's level after the pass; requires,
    establishes: states; choices: what is asked of the passes; optional: the choice without which the pass has nothing
    to do, none for most; changes_numerics: its results may be further off than those of the ops that it replaces, so
    that what follows is judged against what it makes.
    """

    name: str
    implementation: str | type[ModulePass]
    level: str
    requires: tuple[str, ...] = ()
    establishes: tuple[str, ...] = ()
    choices: PassChoices = PassChoices()
    optional: Literal["", "precision", "winograd", "memory_limit", "hivm"] = ""
    changes_numerics: bool = False

    @property
    def asked(self) -> bool:
        """Whether there is anything for the pass to do in the pipeline."""
        if not self.optional:
            return True
        choice = getattr(self.choices, self.optional)
        return choice is not False and choice not in (ORIGIN, OFF, None)

    def load(self) -> type[ModulePass]:
        """The class of the pass."""
        if not isinstance(self.implementation, str):
            return self.implementation
        return _load(self.implementation)


PIPELINE: tuple[Stage, ...] = (
    Stage(
        "graph-precision",
        ".numbers.precision:GraphPrecisionPass",
        "graph",
        optional="precision",
        changes_numerics=True,
    ),
    Stage("graph-quantized", ".quantized.quantized:GraphQuantizedPass", "graph", (), ("stored",)),
    Stage("graph-complex", ".numbers.complex:GraphComplexPass", "graph", (), ("real",)),
    Stage(
        "graph-winograd",
        ".choose.winograd_choice:GraphWinogradPass",
        "graph",
        optional="winograd",
        changes_numerics=True,
    ),
    Stage("graph-simplify", ".simplify.simplify:GraphSimplifyPass", "graph", ("stored", "real")),
    Stage("graph-strips", ".strips.strips:GraphStripsPass", "graph", ("stored", "real")),
    Stage("graph-hoist", ".program.hoist:GraphHoistPass", "graph"),
    Stage("graph-partition", ".program.partition:GraphPartitionPass", "graph", (), ("partitioned",)),
    Stage("graph-fuse", ".fusion.fuse:GraphFusePass", "graph", (), ("fused",)),
    Stage("graph-schedule", ".choose.choose:GraphSchedulePass", "graph", ("fused",), ("scheduled",)),
    Stage("graph-to-tile", ".choose.lower:GraphToTilePass", "tile", ("scheduled",), ("tiled",)),
    Stage("tile-fit", ".order.rematerialise:TileFitPass", "tile", ("tiled",), optional="memory_limit"),
    Stage("tile-to-npu", ".npu.bufferize:TileToNpuPass", "npu", ("tiled",), ("bufferized",)),
    Stage("npu-hivm", ".npu.hivm:NpuHivmPass", "npu", ("bufferized",), optional="hivm", changes_numerics=True),
    Stage("npu-allocate", ".npu.allocate:NpuAllocatePass", "npu", ("bufferized",), ("addressed",)),
    Stage(
        "npu-synchronize", ".npu.synchronize:NpuSynchronizePass", "npu", ("bufferized",), ("synchronized",)
    ),
    Stage("npu-plan-memory", ".npu.plan_memory:NpuPlanMemoryPass", "npu", ("bufferized",), ("planned",)),
    Stage("npu-schedule-host", ".npu.schedule_host:NpuScheduleHostPass", "npu", ("planned",), ("ordered",)),
    Stage("npu-join-launches", ".npu.join_launches:NpuJoinLaunchesPass", "npu", ("ordered",), ("joined",)),
    Stage("npu-check", ".npu.check:NpuCheckPass", "npu", ("addressed", "planned"), ("checked",)),
)
"""The pipeline of this package, and behind it that with the passes of plugins."""

OURS = tuple(s.name for s in PIPELINE)
"""The names of our own passes."""


@dataclass(frozen=True)
class _Added(Stage):
    """A pass of a plugin."""

    entry: PluginEntry | None = None

    def load(self) -> type[ModulePass]:
        """The class of the pass. Raises PluginError."""
        assert self.entry is not None
        return load_pass(self.entry)


def _added(entry: PluginEntry) -> Stage:
    given: AddedPass = entry.given
    return _Added(entry.name, given.load, given.level, given.requires, given.establishes, entry=entry)


PIPELINE = with_added(PIPELINE, STATES, _added)


def stage_of(name: str, stages: Sequence[Stage] = PIPELINE) -> Stage | None:
    """The stage of a pass, None for a pass that has none."""
    return next((s for s in stages if s.name == name), None)


def insert_stage(stage: Stage, after: str, stages: Sequence[Stage] = PIPELINE) -> tuple[Stage, ...]:
    """The pipeline with one more stage right behind the one named `after`. Raises ValueError for an unknown name."""
    names = [s.name for s in stages]
    if after not in names:
        raise ValueError(f"there is no stage {after!r}; there are {', '.join(names)}")
    place = names.index(after) + 1
    return (*stages[:place], stage, *stages[place:])


OPTIONAL = {"graph-quantize": ".quantized.quantize:GraphQuantizePass"}
"""Passes that are no stage of the pipeline: what they do is asked for before it."""


def _load(implementation: str) -> type[ModulePass]:
    module, _, name = implementation.partition(":")
    return getattr(import_module(module, __package__), name)


def all_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """Pass factories by name, for drivers."""
    optional = {name: partial(_load, implementation) for name, implementation in OPTIONAL.items()}
    return {s.name: s.load for s in PIPELINE} | optional | loaders((*OURS, *OPTIONAL))


def check_requirements(stage: Stage, have: Set[str]) -> None:
    """Raises StateMissing where a module of which only `have` holds lacks what a pass requires."""
    lacking = [state for state in stage.requires if state not in have]
    if lacking:
        makers = [s.name for s in PIPELINE if set(s.establishes) & set(lacking)]
        raise StateMissing(
            f"{stage.name} needs a module that is {' and '.join(lacking)}: run {', '.join(makers)} before it"
        )


def stage_table(stages: Sequence[Stage] = PIPELINE) -> list[tuple[str, str, str, str]]:
    """Rows of (pass, level after it, required states, established states), for people."""
    return [(s.name, s.level, ", ".join(s.requires), ", ".join(s.establishes)) for s in stages]


def listing() -> str:
    """A line for each pass of the pipeline, and what else there is."""
    rows = [("pass", "level", "requires", "establishes"), *stage_table()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join([*lines, "", "xDSL's passes, such as canonicalize, cse, dce and licm, run at every level."])
