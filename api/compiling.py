"""From a source to a program, and its verification: `tw.compile` and `tw.verify`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from ..dialects.graph.extents import extents_of
from ..dialects.module import is_bounded, target_of
from ..frontends.jax import run_by_xla, tracing
from ..machine import DEFAULT_TARGET, Machine, Target
from ..passes.pipeline import Stage, check_pinnable
from ..support.collector import collector_paused
from ..support.progress import showing
from ..support.sentences import quoted
from ..verification.results import Progress, Verification
from .arguments.calls import Call, Referenced
from .arguments.parameters import Parameters, title_of
from .arguments.signature import CompileError, check_twin, physical
from .files.loading import load
from .files.names import named_file
from .files.opened import open_source_in
from .files.options import with_plans
from .files.reading import ModelFile
from .mains import main_results
from .onnx_sources import resolved
from .options import Options
from .packing import PackedProgram, compile_packed
from .prepared import compile_prepared, prepared
from .program import Lowering, Program, compile_source, run_passes
from .quantized import module_values
from .sizes.dynamic import DynamicProgram, OpenSource
from .sizes.extents import uncut, with_sizes
from .sizes.packing import compile_open_packed
from .sizes.sources import open_source_of, sized_origin
from .sources import ProgramSource, Source, as_compile_error, called, entry_of

if TYPE_CHECKING:
    from ..debugger import Debugger

BAR_SECONDS = 2.0
"""A verification that takes longer shows how far it is."""


def compile(
    source: ProgramSource,
    /,
    *args: Any,
    target: Target | None = None,
    options: Options | None = None,
    **kwargs: Any,
) -> Program:
    """Compiles a program for a target; no array is made for it, however large.

    Raises CompileError with one sentence, see below; what a function itself raises while JAX traces it passes through.

    Args:
        source: What is compiled. A JAX function: also a `jax.jit`, whose static arguments are compiled in, a
            `functools.partial`, a bound method or an object with `__call__`. What JAX has lowered:
            `jax.jit(f).lower(x)`, `jax.jit(f).trace(x)` or a `jax.export.Exported`. StableHLO, or one of our levels,
            as text or bytes; the path of an `.mlir` file of those; or `model.tw`, `model.tw:fn`.
        *args: Example arguments of a function: pytrees of arrays of any shape, numbers and `jax.ShapeDtypeStruct`s.
            Only their shapes and dtypes count; the program takes arguments of the same, or of all sizes where shapes
            are symbolic (`jax.export.symbolic_shape`). For files nothing, or inputs that say the sizes of open
            dimensions; for what JAX has lowered nothing, or arguments of the same types.
        target: A chip that `tilewright machines` lists, the path of a machine's `.toml` file, or a `tw.Machine` that
            was loaded from either. None: the target of the module in `source`, else `ascend-910b1`.
        options: Memory mode, checks, pinned schedule, host calls, donated arguments, precision.
        **kwargs: Example keyword arguments. An argument of the function's own that is called `target` or `options`
            is passed by position, or bound by a `functools.partial`.

    Returns:
        The program: `program(*args)` computes values, `program.report()` has microseconds, joules and bytes. A
            `DynamicProgram` where dimensions are open.

    Raises:
        CompileError: The program cannot be compiled, arguments do not fit, or options make no sense.
        MachineError: The target is unknown.
    """
    _check_own(source, args, {"target": target is not None, "options": options is not None}, "tw.compile")
    return compile_with(run_passes, source, *args, target=target, options=options, **kwargs)


def debug(
    source: ProgramSource | Program,
    /,
    *args: Any,
    target: Target | None = None,
    options: Options | None = None,
    **kwargs: Any,
) -> Debugger:
    """A debugger of a call, before its first instruction: `tw.debug(fn, *args).do("break exp; run; print %5")`.

    Raises what `compile` raises, and CompileError where arguments do not fit.

    Args:
        source: What is compiled, as for `compile` but without the proof of npu-check: programs with races are what a
            debugger is for. Or a `Program`.
        *args: Arguments of the call: arrays, whose values count.
        target: As for `compile`.
        options: As for `compile`.
        **kwargs: Keyword arguments of the call.
    """
    if isinstance(source, Program):
        if target is not None or options is not None:
            raise CompileError("the program is compiled already: target and options are for what is not")
        return source.debug(*args, **kwargs)
    _check_own(source, args, {"target": target is not None, "options": options is not None}, "tw.debug")
    unchecked = replace(options or Options(), check=False)
    return compile_with(run_passes, source, *args, target=target, options=unchecked, **kwargs).debug(*args, **kwargs)


def compile_with(
    lowering: Lowering,
    source: ProgramSource,
    /,
    *args: Any,
    target: Target | None = None,
    options: Options | None = None,
    **kwargs: Any,
) -> Program:
    """Compiles as `compile` does, with `lowering` in place of `run_passes`: it runs the same passes, and may look at
    the module between them."""
    target = None if target is None else Machine.named(target)
    if not isinstance(options, Options | None):
        raise CompileError(f"options must be tw.Options, not {type(options).__name__}")
    if (file := named_file(source)) is not None:
        made = _of_file(lowering, *file, target, options)
        if isinstance(made, DynamicProgram) and (args or kwargs):
            return made.at(made.sizes(*args, **kwargs))
        return made
    options = options or Options()
    source, args, kwargs = resolved(source, args, kwargs)
    open_ = open_source_of(source, args, kwargs, target)
    if open_ is not None:
        return _open_program(lowering, open_, target, options)
    origin = prepared(sized_origin(source, args, kwargs, target), options, target)
    if options.weights is not None:
        return compile_packed(lowering, origin, target, options)
    return compile_source(lowering, origin, target, options)


def _of_file(lowering: Lowering, path: Path, entry: str | None, target: str | None, options: Options | None) -> Program:
    """A program of a model file: as it is there, unless options are given or its passes are looked at."""
    with as_compile_error():
        if lowering is run_passes and options in (None, Options()):
            return load(path, target, entry)
        file = ModelFile(path)
        name, facts = file.entry(entry)
        target = target or facts.target
        options = with_plans(options or Options(), file.plans(target))
        if facts.open:
            return _open_program(lowering, open_source_in(file, name, facts, None), target, options)
        origin = file.portable(name, facts, "with other options")
    return compile_prepared(lowering, target, options, origin)


def _open_program(lowering: Lowering, origin: OpenSource, target: str | None, options: Options) -> Program:
    """A program with open sizes."""
    if options.weights is not None:
        return compile_open_packed(lowering, origin, target, options)
    return DynamicProgram(origin, partial(compile_prepared, lowering, target, options), target, options)


def _are_stages(given: object) -> bool:
    return isinstance(given, Sequence) and all(isinstance(one, Stage) for one in given)


def _check_own(source: Any, args: Sequence[Any], options: Mapping[str, bool], caller: str) -> None:
    """Raises CompileError where a function has a parameter that is called as an option of `caller`, and it cannot be
    told which one a keyword is. options: for each, whether it was given."""
    if not callable(source):
        return
    fixed: set[str] = set()
    inner: Any = source
    while isinstance(inner, partial):
        fixed |= set(inner.keywords)
        inner = inner.func
    parameters = Parameters.of(source)
    for name in (n for n, is_given in options.items() if is_given and n not in fixed):
        by_keyword = name in parameters.keyword or name in parameters.positional[parameters.only :]
        if by_keyword and name not in parameters.positional[: len(args)]:
            title = title_of(source)
            raise CompileError(
                f"{title} has an argument {name} of its own, and {name}= is {caller}'s: give it by position, or "
                f"as functools.partial({title}, {name}=...)"
            )


def lower(
    source: ProgramSource,
    /,
    *args: Any,
    target: Target | None = None,
    options: Options | None = None,
    **kwargs: Any,
) -> tuple[ModuleOp, list[Any]]:
    """A source's module for a target before any pass, and its arguments as the flat inputs of @main. Raises
    CompileError."""
    target = None if target is None else Machine.named(target)
    source, args, kwargs = resolved(source, args, kwargs)
    origin = prepared(sized_origin(source, args, kwargs, target), options or Options(), target)
    with as_compile_error(), collector_paused():
        module, signature = origin.lower()
    call = called(source, args, kwargs)
    return module, signature.flatten(origin.name, *((call.args, call.kwargs) if call else (args, kwargs)))


def reference_values(call: Call, module: ModuleOp | None = None) -> list[Any]:
    """What JAX itself computes, as flat arrays, or what a function has in place of that (`fn.reference`: another
    implementation). module: what the call is compiled to. Where sizes depend on data in it, which are no sizes where
    JAX traces, JAX runs op by op, and the sizes of results come behind these."""
    import jax

    with as_compile_error(), tracing(call.fn):
        if isinstance(call.fn, Referenced):
            made = call.fn.reference(*call.args, **call.kwargs)
        elif module is not None and is_bounded(module) and not call.compiled:
            with jax.disable_jit():
                made = call.fn(*call.args, **call.kwargs)
        else:
            made = (call.fn if call.compiled else partial(run_by_xla, call.fn))(*call.args, **call.kwargs)
    extents = () if module is None else extents_of(entry_of(module))
    return with_sizes([physical(leaf) for leaf in jax.tree.leaves(made)], extents)


def verify(
    source: ProgramSource,
    /,
    *args: Any,
    target: Target | None = None,
    options: Options | None = None,
    program: Program | None = None,
    stages: Sequence[Stage] | None = None,
    bisect: bool = False,
    quick: bool = False,
    progress: Progress | bool = True,
    against: Callable[..., Any] | None = None,
    min_sqnr: float | None = None,
    **kwargs: Any,
) -> Verification:
    """Compares a program's values after every pass, at every level, with JAX and with the pass before.

    Raises CompileError for arguments that do not fit, not for wrong values: these are a verdict of the result.

    Args:
        source: As for `compile`.
        *args: Arguments with values, also for what JAX has lowered.
        target: As for `compile`.
        options: As for `compile`.
        program: The compiled source, if there is one already; its target and options are used then.
        stages: Passes to run instead of the usual ones.
        bisect: Stop at the first bad pass and find the op, the tile, the line and a small program that shows it
            (`result.culprit`).
        quick: Compare only the compiled program, in both memory modes, and not each pass. Several times faster, but
            mistakes within the tolerance of the whole program are not seen, and no pass is blamed.
        progress: True shows a bar after two seconds, or elsewhere a line every five seconds; False shows none. A
            function is called at each step with its name, the steps done, and all steps (0: unknown).
        against: A JAX function to compare with, of the same arguments and outputs. By default it is the source, if
            that is a function. Without either, a program is compared with the values of the level that it is written
            in: that tests the passes, not the program. `result.reference` names the reference. What `options` quantize
            is compared with its quantized twin in JAX, number by number, and with the function that was quantized, by
            SQNR and cosine: `result.quantization` has both. Its SQNR may be 1 dB below the twin's.
        min_sqnr: Of a quantized program, the least SQNR in dB that is `ok`.
        **kwargs: Keyword arguments of the function. One that is called as a parameter above is passed by position,
            or bound by a `functools.partial`.

    Returns:
        A row for each pass and memory mode, and the verdict.

    Raises:
        CompileError: Arguments do not fit.
    """
    own = {"target": target, "options": options, "program": program, "stages": stages}
    own |= {"bisect": bisect, "quick": quick, "progress": progress, "against": against, "min_sqnr": min_sqnr}
    given = {name: value is not None and value is not False for name, value in own.items()}
    _check_own(source, args, given | {"progress": progress is not True}, "tw.verify")
    for name, said, fits in (
        ("program", "a compiled program", program is None or isinstance(program, Program | DynamicProgram)),
        ("stages", "passes", stages is None or _are_stages(stages)),
        ("progress", "True, False or a function", isinstance(progress, bool) or callable(progress)),
        ("bisect", "True or False", isinstance(bisect, bool)),
        ("quick", "True or False", isinstance(quick, bool)),
    ):
        if not fits:
            raise CompileError(f"tw.verify: {name} must be {said}, not {quoted(own[name])}")
    target = None if target is None else Machine.named(target)
    source, args, kwargs = resolved(source, args, kwargs)
    if program is None and options in (None, Options()) and (file := named_file(source)) is not None:
        with as_compile_error():
            program = load(file[0], target, file[1])  # with the options that it was compiled with
    if isinstance(program, DynamicProgram):
        program = program.at(program.sizes(*args, **kwargs))
    quantized = options is not None and options.quantization is not None
    quantized = quantized or (program is not None and program.origin.twin is not None)
    if min_sqnr is not None and not (quantized and math.isfinite(min_sqnr)):
        raise CompileError("tw.verify: min_sqnr is a number of decibels, of a program that options quantize")
    given = (source, args, kwargs, target, options or Options(), program, stages, bisect, quick)
    if not isinstance(progress, bool):
        return _verify(*given, progress, against, min_sqnr)
    if not progress:
        return _verify(*given, None, against, min_sqnr)
    with showing("verifying", BAR_SECONDS) as say:
        return _verify(
            *given, lambda what, done, steps: say(f"verifying: {what}", done, steps), against, min_sqnr
        )


def _verify(
    source: ProgramSource,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    target: str | None,
    options: Options,
    program: Program | None,
    stages: Sequence[Stage] | None,
    bisect: bool,
    quick: bool,
    progress: Progress | None,
    against: Callable[..., Any] | None,
    least: float | None,
) -> Verification:
    """`verify`, which tells `progress` of each step."""
    from ..verification.run import verify_module as run_verification
    from ..verification.work import too_much

    origin = (
        program.origin
        if program is not None
        else prepared(sized_origin(source, args, kwargs, target), options, target)
    )
    with as_compile_error(), collector_paused():
        module, signature = origin.lower()
        check_pinnable(module, options.stages() if stages is None else stages)
    name = origin.name
    if (why := too_much(module)) is not None:
        raise CompileError(f"{name} is not verified: {why}")
    call = called(source, args, kwargs)
    flat = signature.flatten(name, *((call.args, call.kwargs) if call else (args, kwargs)))
    compared = references(origin, module, flat, call, against, args, kwargs)
    if least is not None and (compared.reference is None or stages is not None):
        why = "passes of your own are run" if stages is not None else "it calls the host"
        raise CompileError(
            f"{name}: min_sqnr is measured on the compiled program beside its twin in JAX, and {why}"
        )
    given = compared.reference if compared.original is None else compared.original
    if against is not None and given is not None:
        types = main_results(module)
        check_twin(name, types, title_of(against), uncut(given, types, extents_of(entry_of(module))))
    if program is not None:
        target, options = program.target, program.asked
    judged = _JudgedProgram(
        program, lambda: compile(source, *args, target=target, options=options, **kwargs), flat
    )
    with as_compile_error():
        return run_verification(
            module,
            flat,
            compared.reference,
            target or target_of(module) or DEFAULT_TARGET,
            options.stages() if stages is None else stages,
            judged if stages is None else None,
            bisect,
            quick,
            progress=progress,
            against=compared.name,
            original=compared.original,
            least=least,
        )


@dataclass
class _JudgedProgram:
    """A program that is verified, compiled when it is asked for. made: the program, if there is one; flat: the inputs
    of its source."""

    made: Program | None
    compile: Callable[[], Program]
    flat: Sequence[Any]

    @property
    def program(self) -> Program:
        self.made = self.made or self.compile()
        return self.made

    def modules(self) -> list[ModuleOp]:
        made = self.program
        parts = (made.packing, made.rest) if isinstance(made, PackedProgram) else (made,)
        return [part.module("npu") for part in parts]

    def prepare(self) -> None:
        self.program.executable("typed").compile()

    def run(self, memory: str) -> Sequence[Any]:
        made = self.program
        return made.executable("step" if memory == "bytes" else "typed")(*self.flat, *made.extras)


@dataclass(frozen=True)
class Compared:
    """What a program's results are compared with. reference: flat results that they should have, None for those of the
    program's own level; original: of a quantized program, those of what was quantized; name: of the reference."""

    reference: list[Any] | None
    original: list[Any] | None = None
    name: str = "JAX"


def references(
    origin: Source,
    module: ModuleOp,
    flat: Sequence[Any],
    call: Call | None,
    against: Callable[..., Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Compared:
    """What to compare a source's results with, by JAX: the function itself, or `against`. What is quantized computes
    other numbers: it should have those of its twin, and come near those of the function."""
    given = call if against is None else called(against, args, kwargs)
    if against is not None and given is None:
        raise CompileError(f"verify: against must be a JAX function, not {quoted(against)}")
    values = None if given is None else reference_values(given, module)
    name = "JAX" if against is None else f"{title_of(against)} in JAX"
    if given is not None and isinstance(given.fn, Referenced):
        name = given.fn.reference_name
    if origin.original is None or origin.twin is None:
        return Compared(values, name=name)
    with as_compile_error():
        twin = module_values(origin.twin(), flat)
        if values is None:
            values = module_values(origin.original.lower()[0], flat)
    return Compared(twin, values, "its quantized twin in JAX")
