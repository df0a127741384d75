"""Compile, run, report, verify: the public API over frontends, passes and backends."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xdsl.dialects.builtin import ModuleOp

from ..backends.costs import report_of
from ..backends.counts import kernels_text
from ..backends.html import folded_html
from ..backends.report import Report
from ..backends.simulator import Simulation, SimulationError, simulate
from ..backends.simulator.flags import cycles_without
from ..backends.trace import write_trace
from ..dialects.base import source_of, text
from ..dialects.graph.donation import donated, keep_all
from ..dialects.graph.extents import Extent, extents_of
from ..dialects.module import known_plans_of, target_of
from ..dialects.npu.legality import proven
from ..dialects.npu.places import arena_of
from ..dialects.npu.structure import KernelOp
from ..dialects.text import verify as verify_module
from ..machine import DEFAULT_TARGET, Machine
from ..modelfile.keys import Secret
from ..passes.npu.check import removable_flags
from ..passes.pipeline import Stage, check_pinnable, level_of, run_pipeline
from ..support.collector import collector_paused
from .arguments.donation import Donations
from .arguments.signature import CompileError, Signature
from .fallback import lowered_without_faults
from .files.names import ENTRY
from .files.parts import ChipParts, OpenProgramParts, ProgramParts
from .files.writing import write_programs
from .kept import KeptPrograms
from .mains import main_results
from .modes import Memory, Runnable, executable_of, mode_of
from .options import CHECKER, JOINER, Options
from .plans import KnownPlans, plans_of
from .quantized import requantized
from .sizes.extents import cut, result_types
from .sizes.memory_pool import Demand, demand_of
from .sources import Source, as_compile_error, entry_of

if TYPE_CHECKING:
    import onnx

    from ..backends.hivm import HivmKernel
    from ..debugger import Debugger

Level = Literal["graph", "tile", "npu"]
LEVELS: tuple[Level, ...] = ("graph", "tile", "npu")
Lowering = Callable[[ModuleOp, str | None, Sequence[Stage]], None]
"""Runs the passes of a list on a module, in place: for a target, or for the one that the module says."""

ON_CHIP = ("npu-allocate", "npu-synchronize", JOINER, CHECKER)
"""Passes that the plan of device memory does not need."""


@dataclass(frozen=True)
class FlagCost:
    """A flag that is not needed: its kernel, pipes and event, its line of the source, and the cycles that one
    launch of the kernel takes longer for it (all tensors in L2)."""

    kernel: str
    flag: str
    source: str | None
    cycles: int


class Program:
    """A compiled program: callable, printable at each level, and able to tell its cost."""

    extras: tuple[Any, ...] = ()
    """What its @main takes behind its inputs."""

    def __init__(
        self,
        source: Source,
        module: ModuleOp | Callable[[], ModuleOp],
        signature: Signature,
        target: str,
        options: Options,
        donations: Donations | None = None,
        reported: Callable[[], Report | None] | None = None,
    ):
        """module: the npu level, or what makes it when it is first asked for. reported: gives its report, or None where
        that is not known."""
        self._source = source
        self._made = module
        self._signature = signature
        self._lock = threading.RLock()
        """Held while what is made once is made: in whichever thread asks for it first."""
        self._executables: dict[str, Runnable] = {}
        self._report: Report | None = None
        self._simulation: Simulation | None = None
        self._donations = donations
        self._reported = reported
        self.target = target
        self.machine = Machine.load(target)
        self.options = options

    @property
    def _module(self) -> ModuleOp:
        """The npu level."""
        with self._lock:
            if not isinstance(self._made, ModuleOp):
                self._made = self._made()
            return self._made

    @property
    def donations(self) -> Donations:
        """Its donated inputs."""
        with self._lock:
            if self._donations is None:
                self._donations = Donations(self._module, self._source.name, self._signature)
            return self._donations

    @cached_property
    def extents(self) -> tuple[Extent, ...]:
        """The dimensions of its results whose sizes depend on data."""
        return tuple(extents_of(entry_of(self._module)))

    def alone(self) -> Program:
        """The program compiled for its sizes alone: itself, unless it is a version that was lowered for a range."""
        return self

    @property
    def source(self) -> Source:
        """Where the program came from."""
        return self._source

    @property
    def origin(self) -> Source:
        """The source with all arguments: that of a packed program lacks the weights."""
        return self._source

    @property
    def signature(self) -> Signature:
        """How it is called."""
        return self._signature

    @property
    def asked(self) -> Options:
        """The options that it was compiled with; those of a packed program are of the part that runs on each call."""
        return self.options

    def __repr__(self) -> str:
        said = kernels_text(sum(op.name == "npu.kernel" for op in self._module.ops))
        return f"<tilewright.Program {self._source.name}: {said} for {self.machine.name}>"

    def _repr_html_(self) -> str:
        """Inputs, kernels and their cost, and the levels to unfold, for notebooks."""
        typed = zip(self.input_names[:8], self.inputs, strict=False)
        inputs = ", ".join(f"{name} {dtype}[{', '.join(map(str, shape))}]" for name, (shape, dtype) in typed)
        more = f" and {len(self.inputs) - 8} more" if len(self.inputs) > 8 else ""
        levels = "".join(folded_html(f"{level} level", self.ir(level)) for level in self.levels)
        return folded_html(repr(self), f"inputs: {inputs}{more}") + self.report()._repr_html_() + levels

    @property
    def inputs(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and element type of each flat input."""
        return self._signature.inputs

    @property
    def input_types(self) -> tuple[str, ...]:
        """Each flat input as text: `f32[4, 128]`; of a `DynamicProgram`, with symbols: `f32[b, 128]`."""
        return tuple(f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in self.inputs)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What messages call each flat input: its path in the arguments, such as `params['w']`, or its number."""
        return self._signature.names

    def takes(self, name: str) -> bool:
        """Whether an argument has this name."""
        return self._signature.takes(name)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels the program has: from the one its source is written in down to npu."""
        return LEVELS[LEVELS.index(level_of(self._source.lower()[0])) :]

    @property
    def output_types(self) -> tuple[str, ...]:
        """Each flat output as text: `f32[4, 128]`, or `f32[<=16, 128]` where its size depends on data."""
        return result_types(main_results(self._module), self.extents)

    def _check_closed(self, at: Mapping[str, int] | None) -> None:
        """Raises CompileError where sizes are given: only a `DynamicProgram` has open ones."""
        if at is not None:
            raise CompileError(f"{self._source.name} has no open sizes: at= is for programs with symbolic shapes")

    def module(self, level: Level = "npu", at: Mapping[str, int] | None = None) -> ModuleOp:
        """The program's module at a level; levels above npu are built again from the source. Raises CompileError for a
        level that there is not or that the source begins below. at: as for `report`."""
        self._check_closed(at)
        if level not in LEVELS:
            raise CompileError(f"there is no level {level!r}; levels are {', '.join(LEVELS)}")
        if level == "npu":
            return self._module
        module, _ = self._source.lower()
        if LEVELS.index(level_of(module)) > LEVELS.index(level):
            raise CompileError(
                f"{self._source.name} starts at the {level_of(module)} level; it has no {level} level"
            )
        with as_compile_error():
            run_pipeline(module, self.target, level, self.options.stages())
        return module

    def ir(self, level: Level = "npu", at: Mapping[str, int] | None = None) -> str:
        """The text of the program at a level. Raises CompileError as `module` does. at: as for `report`."""
        return str(self.module(level, at))

    def tw(self) -> str:
        """The graph level before any pass as .tw text. Raises CompileError for what the language cannot say."""
        from ..frontends.text.printer import print_tw

        module, _ = self._source.lower()
        if level_of(module) != "graph":
            raise CompileError(
                f"{self._source.name} starts at the {level_of(module)} level; .tw says the graph level"
            )
        name = re.sub(r"\W+", "_", self._source.name.removesuffix(".mlir"))
        with as_compile_error():
            return print_tw(module, name if name.isidentifier() else "main")

    def to_hivm(self) -> dict[str, HivmKernel]:
        """The kernels as text of HIVM, the vendor's IR, by their names, with our addresses, flags and barriers.

        Raises CompileError for a program that was not compiled with `Options(hivm=True)`, for chips that are not of the
        910B family, and for a kernel that HIVM cannot say, with the first reason.
        """
        from .hivm import export_module

        found = export_module(self._module)
        for why in found.refused.values():
            raise CompileError(why)
        return found.kernels

    def to_onnx(self, *, weights: Mapping[str, Any] | None = None, opset: int | None = None) -> onnx.ModelProto:
        """The graph level before any pass as an ONNX model, whose inputs and outputs have the names of the arguments
        and of the results. Needs `tilewright[onnx]`.

        weights: values of arguments by name, which become initializers, as those do whose values the program knows.
        opset: the version of ONNX's ops, 27 where it is None. Raises CompileError, which says all ops that ONNX has no
        form for, and for a source that begins below the graph level.
        """
        from .onnx_models import to_onnx

        return to_onnx(self.origin, weights or {}, opset)

    def to_stablehlo(self) -> bytes:
        """What it was before any pass as a portable artifact of StableHLO, which takes its flat inputs in order: other
        tools, and other versions of this one, read it. Raises CompileError for a source that is neither of JAX nor
        StableHLO."""
        if self.origin.stablehlo is None:
            raise CompileError(f"{self._source.name} comes from no StableHLO")
        with as_compile_error():
            return self.origin.stablehlo()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the npu level on arrays; gives the pytree that the function gives. `mode=` says how, as
        `Options.memory` does, unless the program has an argument of that name.

        The arguments are those that it was compiled for, each by position or by keyword, without the static ones of a
        jax.jit. Arrays of JAX that are passed for donated arguments are deleted. Raises CompileError where arguments do
        not have the compiled structure, shapes or dtypes, or an array was deleted before, and where the program calls
        a Python function of another process.
        """
        mode, kwargs = mode_of(kwargs, self._signature, self.usual_mode)
        try:
            with as_compile_error():
                return self._called(mode, args, kwargs)
        except (RuntimeError, ValueError):
            leaves = self._signature.leaves(self._source.name, args, kwargs)
            self.donations.check_there(leaves, range(len(leaves)))  # another thread may have donated one meanwhile
            raise

    def _called(self, mode: Memory, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call gives in a mode."""
        flat = self.flatten(args, kwargs)
        if not self.donations.taken:
            return self.unflatten(self.executable(mode)(*flat))
        leaves = self._signature.leaves(self._source.name, args, kwargs)
        self.donations.check(leaves)
        results = self.donations.keep(self.executable(mode)(*flat), flat)
        self.donations.delete(leaves)
        return self.unflatten(results)

    def debug(self, /, *args: Any, **kwargs: Any) -> Debugger:
        """A debugger of a call with these arguments, before its first instruction. Raises CompileError as a call
        does."""
        from ..backends.stepper import StepProgram
        from ..debugger import Debugger

        return Debugger(StepProgram(self.module(), self.machine), self.flatten(args, kwargs), name=self._source.name)

    @property
    def usual_mode(self) -> Memory:
        """How a call runs that does not say it."""
        return self.options.memory

    def executable(self, memory: Memory) -> Runnable:
        """What runs the npu level in a mode; made on first use, then kept."""
        with self._lock:
            if memory not in self._executables:
                self._executables[memory] = executable_of(self._module, self.machine, memory)
            return self._executables[memory]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The flat inputs in @main's order, checked against the signature. Raises CompileError for other shapes, dtypes
        or trees, and for the tracers of a function of JAX."""
        return self._signature.flatten(self._source.name, args, kwargs)

    def check(self, /, *args: Any, **kwargs: Any) -> None:
        """Raises CompileError where a call with such arguments would: arrays, or jax.ShapeDtypeStructs, since no values
        are looked at."""
        self._signature.check(self._source.name, args, kwargs)

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """The function's pytree from the flat outputs of @main: those whose sizes depend on data cut to these."""
        return self._signature.unflatten(cut(flat, self.extents))

    def report(self, at: Mapping[str, int] | None = None) -> Report:
        """Time, traffic and energy by kernel, from the simulator. at: the sizes of a `DynamicProgram`, by name."""
        self._check_closed(at)
        with self._lock:
            if self._report is None and self._reported is not None:
                self._report = self._reported()
            if self._report is None:
                undonated = self._undonated_arena() if any(donated(entry_of(self._module))) else None
                self._report = report_of(self.simulation(), self._module, undonated)
            return self._report

    def simulation(self, at: Mapping[str, int] | None = None) -> Simulation:
        """What the program does in time; made on first use, then kept. The report, the trace and the explain page are
        all made of it. Raises SimulationError. at: as for `report`."""
        self._check_closed(at)
        with self._lock:
            if self._simulation is None:
                with collector_paused():
                    self._simulation = simulate(self._module, self.machine)
            return self._simulation

    @property
    def demand(self) -> Demand:
        """The device memory that a call takes."""
        return demand_of(self._module, self.machine)

    def _undonated_arena(self) -> int | None:
        """Bytes of device memory that the program would need if no argument were donated."""
        module, _ = self._source.lower()
        if level_of(module) == "npu":
            return None
        keep_all(entry_of(module))
        with as_compile_error(), collector_paused():
            stages = replace(self.options, memory_limit=None).stages()
            run_pipeline(module, self.target, stages=[s for s in stages if s.name not in ON_CHIP])
        return arena_of(entry_of(module))

    def removable_flags(self) -> list[FlagCost]:
        """Flags that the program would be as safe without, each alone, and what each costs."""
        found = []
        for kernel in self._module.ops:
            if isinstance(kernel, KernelOp):
                flags = removable_flags(kernel, self.machine)
                cycles = cycles_without(kernel, (), self.machine) if flags else 0
                for flag in flags:
                    cheaper = cycles_without(kernel, flag.ops, self.machine)
                    place = source_of(flag.ops[0])
                    found.append(FlagCost(text(kernel.sym_name), str(flag), place, cycles - cheaper))
        return found

    def save(
        self,
        path: str | Path,
        *,
        targets: Sequence[str] = (),
        weights: Mapping[str, Any] | None = None,
        licence: str = "",
        metadata: Mapping[str, str] | None = None,
        sequence: int = 0,
        sign: str | Path | None = None,
        encrypt: Secret | None = None,
        stablehlo: bool | None = None,
        portable: bool = True,
    ) -> None:
        """Writes the program to a file that outlives the process, as `tw.save` does."""
        parts = {ENTRY: self.parts(targets, weights)}
        write_programs(parts, path, weights or {}, licence, metadata, sequence, sign, encrypt, stablehlo, portable)

    def parts(
        self, targets: Sequence[str] = (), weights: Mapping[str, Any] | None = None
    ) -> ProgramParts | OpenProgramParts:
        """What of it a file has, compiled for further chips as well. weights: values of arguments, for a program that
        packs them. Raises CompileError."""
        programs: dict[str, Program] = {self.target: self}
        for chip in map(Machine.named, targets):
            if chip not in programs:
                source = requantized(self._source, self.options, chip)
                programs[chip] = compile_source(run_passes, source, chip, self.options)
        chips = {chip: program.chip_parts() for chip, program in programs.items()}
        return ProgramParts(self._source, self.options, self.target, chips)

    def chip_parts(self) -> ChipParts:
        """What of it a file has for its chip."""
        try:
            report = self.report()
        except SimulationError:
            report = None
        known = plans_of(self.options.plans, self.options.plans_for)
        plans = known.entries(known_plans_of(self._module)) if isinstance(known, KnownPlans) else []
        return ChipParts(self._module, report, plans)

    def trace(self, path: str | Path, at: Mapping[str, int] | None = None) -> None:
        """Writes the timeline as Chrome/Perfetto trace-event JSON. at: as for `report`."""
        write_trace(self.simulation(at), path)


def run_passes(module: ModuleOp, target: str | None, stages: Sequence[Stage]) -> None:
    """Takes a module down to the npu level. Raises PassError."""
    run_pipeline(module, target, stages=stages)


def compile_source(lowering: Lowering, origin: Source, target: str | None, options: Options) -> Program:
    """Compiles what a source gives, or takes what is kept of it. What looks at the module between passes is not given
    anything that is kept; nothing is left out there, either."""

    def lower(module: ModuleOp, options: Options) -> ModuleOp:
        stages = options.stages()
        check_pinnable(module, stages)
        asked = target_of(module) or target
        kept = KeptPrograms.of(options.cache, asked, stages) if lowering is run_passes else None
        entry = None if kept is None else kept.program(module, origin.name)
        known = None if entry is None else entry.read()
        if known is not None:
            return known
        lowering(module, target, stages)
        with proven() if stages[-1].name == CHECKER else nullcontext():
            verify_module(module)
        if entry is not None:
            entry.write(module)
        return module

    with as_compile_error(), collector_paused():
        module, signature = origin.lower()
        if lowering is run_passes and level_of(module) == "graph":
            module = lowered_without_faults(options, module, lambda: origin.lower()[0], lower)
        else:
            module = lower(module, options)
    program = Program(origin, module, signature, target_of(module) or DEFAULT_TARGET, options)
    program.donations.warn()
    return program
