"""Compile, run, report, verify: the public API over frontends, passes and backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xdsl.dialects.builtin import ModuleOp

from ..backends.html import folded_html
from ..backends.report import Report, build_report
from ..backends.simulator.flags import cycles_without
from ..backends.trace import write_trace
from ..dialects.base import integer, source_of, text
from ..dialects.graph.donation import donated, keep_all
from ..dialects.module import target_of
from ..dialects.npu.structure import KernelOp
from ..dialects.text import verify as verify_module
from ..machine import DEFAULT_TARGET, Machine
from ..passes.npu.check import removable_flags
from ..passes.pins import Pins, Schedule, pins_text
from ..passes.pipeline import PIPELINE, Stage, check_pinnable, level_of, pinned, run_pipeline
from ..support.collector import collector_paused
from ..verification.results import Progress, Verification
from .donation import Donate, Donations, donate_inputs, main_of
from .signature import CompileError, Signature, check_twin, physical
from .sources import Source, as_compile_error, main_results, origin_of

if TYPE_CHECKING:
    from ..backends.interpreter import Executable

Level = Literal["graph", "tile", "npu"]
LEVELS: tuple[Level, ...] = ("graph", "tile", "npu")
ON_CHIP = ("npu-allocate", "npu-synchronize", "npu-check")
"""Passes that the plan of device memory does not need."""


@dataclass(frozen=True)
class Options:
    """How to compile and run. memory: `typed` (an array per buffer, fast) or `bytes` (real addresses); check: let
    npu-check prove the program free of hazards; schedule: tiling choices pinned by hand, for all kernels (a Schedule)
    or by kernel name; host: `allow` calls of the host, or `forbid` them: then a program that has any is refused with
    the list; donate: arguments, by position or name, whose memory the program may use for anything else, besides those
    that the source donates: a jax.Array that is passed there is deleted."""

    memory: Literal["typed", "bytes"] = "typed"
    check: bool = True
    schedule: Pins = None
    host: Literal["allow", "forbid"] = "allow"
    donate: Donate = ()

    def __post_init__(self) -> None:
        for field, known in (("memory", ("typed", "bytes")), ("host", ("allow", "forbid"))):
            if getattr(self, field) not in known:
                said = " or ".join(map(repr, known))
                raise CompileError(f"options: {field} must be {said}, not {getattr(self, field)!r}")
        pins = self.schedule.values() if isinstance(self.schedule, Mapping) else (self.schedule,)
        if not all(isinstance(p, Schedule | None) for p in pins):
            raise CompileError(
                f"options: schedule must be a tw.Schedule, or one for each kernel name, not {self.schedule!r}"
            )

    def stages(self) -> list[Stage]:
        """The pipeline that these options ask for."""
        chosen = pinned(PIPELINE, pins_text(self.schedule), self.host)
        return [s for s in chosen if self.check or s.name != "npu-check"]


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

    def __init__(self, source: Source, module: ModuleOp, signature: Signature, target: str, options: Options):
        self._source = source
        self._module = module
        self._signature = signature
        self._executables: dict[str, Executable] = {}
        self._report: Report | None = None
        self.donations = Donations(module, source.name)
        self.target = target
        self.machine = Machine.load(target)
        self.options = options

    @property
    def source(self) -> Source:
        """Where the program came from."""
        return self._source

    def __repr__(self) -> str:
        kernels = sum(op.name == "npu.kernel" for op in self._module.ops)
        said = f"{kernels} kernel{'s' if kernels != 1 else ''}"
        return f"<tilewright.Program {self._source.name}: {said} for {self.machine.name}>"

    def _repr_html_(self) -> str:
        """Inputs, kernels and their cost, and the levels to unfold, for notebooks."""
        inputs = ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in self.inputs[:8])
        more = f" and {len(self.inputs) - 8} more" if len(self.inputs) > 8 else ""
        levels = "".join(folded_html(f"{level} level", self.ir(level)) for level in self.levels)
        return folded_html(repr(self), f"inputs: {inputs}{more}") + self.report()._repr_html_() + levels

    @property
    def inputs(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and element type of each flat input."""
        return self._signature.inputs

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels the program has: from the one its source is written in down to npu."""
        return LEVELS[LEVELS.index(level_of(self._source.lower()[0])) :]

    def module(self, level: Level = "npu") -> ModuleOp:
        """The program's module at a level; levels above npu are built again from the source. Raises CompileError for a
        level that there is not or that the source begins below."""
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

    def ir(self, level: Level = "npu") -> str:
        """The text of the program at a level. Raises CompileError as `module` does."""
        return str(self.module(level))

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

    def __call__(self, *args: Any) -> Any:
        """Runs the npu level on arrays; gives the pytree that the function gives.

        Arrays of JAX that are passed for donated arguments are deleted. Raises CompileError where `args` do not have
        the compiled structure, shapes or dtypes, or an array was deleted before, and where the program calls a Python
        function of another process.
        """
        flat = self.flatten(args)
        with as_compile_error():
            if not self.donations.taken:
                return self.unflatten(self.executable(self.options.memory)(*flat))
            leaves = self._signature.leaves(args)
            self.donations.check(leaves)
            results = self.donations.keep(self.executable(self.options.memory)(*flat), flat)
            self.donations.delete(leaves)
            return self.unflatten(results)

    def executable(self, memory: Literal["typed", "bytes"]) -> Executable:
        """The interpreter of the npu level in a memory mode; made on first use, then kept."""
        from ..backends.interpreter import Executable

        if memory not in self._executables:
            self._executables[memory] = Executable(self._module, self.machine, memory)
        return self._executables[memory]

    def flatten(self, args: Sequence[Any]) -> list[Any]:
        """The flat inputs in @main's order, checked against the signature. Raises CompileError for other shapes, dtypes
        or trees."""
        return self._signature.flatten(self._source.name, args)

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """The function's pytree from flat outputs."""
        return self._signature.unflatten(flat)

    def report(self) -> Report:
        """Time, traffic and energy by kernel, from the simulator."""
        if self._report is None:
            undonated = self._undonated_arena() if any(donated(main_of(self._module))) else None
            self._report = build_report(self._module, self.machine, undonated)
        return self._report

    def _undonated_arena(self) -> int | None:
        """Bytes of device memory that the program would need if no argument were donated."""
        module, _ = self._source.lower()
        if level_of(module) == "npu":
            return None
        keep_all(main_of(module))
        with as_compile_error(), collector_paused():
            run_pipeline(
                module, self.target, stages=[s for s in self.options.stages() if s.name not in ON_CHIP]
            )
        return integer(main_of(module).attributes["npu.arena_bytes"])

    def removable_flags(self) -> list[FlagCost]:
        """Flags that the program would be as safe without, each alone, and what each costs."""
        found = []
        for kernel in self._module.ops:
            if isinstance(kernel, KernelOp):
                flags = removable_flags(kernel)
                cycles = cycles_without(kernel, (), self.machine) if flags else 0
                for flag in flags:
                    cheaper = cycles_without(kernel, flag.ops, self.machine)
                    place = source_of(flag.ops[0])
                    found.append(FlagCost(text(kernel.sym_name), str(flag), place, cycles - cheaper))
        return found

    def trace(self, path: str | Path) -> None:
        """Writes the timeline as Chrome/Perfetto trace-event JSON."""
        write_trace(self._module, self.machine, path)


def compile(
    source: Any,
    *args: Any,
    target: str | None = None,
    options: Options | None = None,
) -> Program:
    """Compiles a program for a target.

    target: the name of a chip or the path of a .toml; None: what the module in `source` says, else ascend-910b1.
    source: a JAX function with example `args` (arrays or jax.ShapeDtypeStruct, any pytree); StableHLO text or
    bytes; or the path of an .mlir file of StableHLO or any of our levels; or `model.tw` or `model.tw:fn`, with
    example `args` where dimensions are symbolic. Raises CompileError with one sentence
    for a program that cannot be compiled, MachineError for an unknown target.
    """
    if target is not None:
        Machine.load(target)
    if not isinstance(options, Options | None):
        raise CompileError(f"options must be tw.Options, not {type(options).__name__}")
    options = options or Options()
    origin = _donating(origin_of(source, args), options, source)
    with as_compile_error(), collector_paused():
        module, signature = origin.lower()
        check_pinnable(module, options.stages())
        run_pipeline(module, target, stages=options.stages())
        verify_module(module)
    program = Program(origin, module, signature, target_of(module) or DEFAULT_TARGET, options)
    program.donations.warn()
    return program


def _donating(origin: Source, options: Options, source: Any) -> Source:
    """The source with the arguments donated that the options say."""
    if options.donate == ():
        return origin

    def lower() -> tuple[ModuleOp, Signature]:
        module, signature = origin.lower()
        donate_inputs(module, signature, options.donate, source if callable(source) else None, origin.name)
        return module, signature

    return Source(lower, origin.name)


def lower(source: Any, *args: Any, options: Options | None = None) -> tuple[ModuleOp, list[Any]]:
    """A source's module before any pass, and `args` as the flat inputs of its @main. Raises CompileError."""
    origin = _donating(origin_of(source, args), options or Options(), source)
    with as_compile_error(), collector_paused():
        module, signature = origin.lower()
    return module, signature.flatten(origin.name, args)


def reference_values(fn: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """What JAX itself computes, as flat arrays."""
    import jax

    return [physical(leaf) for leaf in jax.tree.leaves(jax.jit(fn)(*args))]


def verify(
    source: Callable[..., Any] | Any,
    *args: Any,
    target: str | None = None,
    options: Options | None = None,
    program: Program | None = None,
    stages: Sequence[Stage] | None = None,
    bisect: bool = False,
    quick: bool = False,
    progress: Progress | None = None,
    against: Callable[..., Any] | None = None,
) -> Verification:
    """Compares a program's values after every pass, at every level, with JAX and with the pass before.

    source, args and target: as for `compile`. against: a JAX function that takes the same `args` and gives the same
    outputs, to compare with; the source itself where that is a function. Without either a program is compared with
    the values of the level that it is written in, which shows what the passes do and not whether it says what is meant
    (`result.reference` names what was compared with). bisect: stop at
    the first bad pass and find the op, the tile, the line and a small program that shows it (`result.culprit`).
    quick: compare only the compiled program, in both memory modes. stages: passes to run instead of the usual ones.
    program: the compiled source, if there is one already; its target and options count then. progress: is told of
    each step: its name, steps done, steps in all (0: unknown). Raises CompileError for arguments that do not fit.
    """
    from ..verification.run import verify_module as run_verification

    options = options or Options()
    origin = program.source if program is not None else _donating(origin_of(source, args), options, source)
    with as_compile_error(), collector_paused():
        module, signature = origin.lower()
        check_pinnable(module, options.stages() if stages is None else stages)
    name = origin.name
    flat = signature.flatten(name, args)
    twin = against if against is not None else source if callable(source) else None
    reference = None
    if twin is not None:
        reference = reference_values(twin, args)
        if against is not None:
            check_twin(name, main_results(module), getattr(twin, "__name__", type(twin).__name__), reference)
    known = program
    if program is not None:
        target, options = program.target, program.options

    def execute(memory: str) -> Sequence[Any]:
        nonlocal known
        known = known or compile(source, *args, target=target, options=options)
        return known.executable("bytes" if memory == "bytes" else "typed")(*flat)

    with as_compile_error():
        return run_verification(
            module,
            flat,
            reference,
            target or target_of(module) or DEFAULT_TARGET,
            options.stages() if stages is None else stages,
            execute if stages is None else None,
            bisect,
            quick,
            progress=progress,
            against="JAX" if against is None else f"{getattr(against, '__name__', 'the function')} in JAX",
        )
