"""What a program comes from: a function, StableHLO, the text of one of our levels, or a .tw file, as a module."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.dialects.builtin import DYNAMIC_INDEX, FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import ParseError, VerifyException

from ..dialects import make_context
from ..dialects.base import describe
from ..dialects.callbacks import MissingCallback
from ..dialects.dtypes import element_type, name_of_numpy, shape_in, tensor
from ..dialects.graph.donation import donate, donated
from ..dialects.module import find_main
from ..dialects.text import one_line, parse_module
from ..dialects.text import verify as verify_module
from ..frontends import (
    FrontendError,
    artifact_of,
    is_stablehlo,
    lower_function,
    lower_stablehlo,
    lower_staged,
    stablehlo_artifact,
    staged_artifact,
)
from ..frontends.added import frontend_of, read_with
from ..frontends.custom import private_parameters
from ..frontends.jax import tracing
from ..frontends.text import TwError, decoded, find_tw
from ..machine import DEFAULT_TARGET, Machine
from ..modelfile.archive import ModelFileError
from ..passes.errors import PassError
from ..support.files import read_plain
from ..support.plugins import PluginEntry, PluginError
from .arguments.calls import Call, call_of, parameters_of
from .arguments.parameters import INPUTS, Parameters, check_binds, title_of
from .arguments.signature import CompileError, Signature, described, physical, signature_of, types_of
from .files.names import named_file
from .files.reading import ModelFile
from .launched import Launched
from .mains import main_inputs
from .source import Source


class SourceError(CompileError):
    """A .tw program with errors: its text is all of them, each with its line and carets, as it is to be printed."""


if TYPE_CHECKING:
    import jax
    import onnx

    from ..frontends import Lowered

ProgramSource: TypeAlias = (
    "Callable[..., Any] | jax.stages.Traced | jax.stages.Lowered | jax.export.Exported | onnx.ModelProto | str | bytes | Path | Launched"  # noqa: E501
)
"""What a program is compiled from:

- a JAX function, with example arguments: also a `jax.jit` (whose static arguments are compiled in, and whose donated
  ones are donated), a functools.partial, a bound method, an object with `__call__`;
- what JAX has traced, lowered or exported: `jax.jit(f).trace(x)`, `jax.jit(f).lower(x)`, `jax.export.export(f)(x)`;
  arguments may be left out;
- StableHLO as text, bytecode or a portable artifact, and the text of one of our levels (graph, tile, npu);
- the path of an `.mlir` or `.mlirbc` file of those; `model.tw` or `model.tw:fn`;
- HIVM text of the vendor's compiler, that of a file with its launch as a `Launched`;
- the path of a model file that `tw.save` has written, `model.twm` or `model.twm:entry`;
- an `onnx.ModelProto`, or the path of an `.onnx` file.

Dimensions may be open: symbolic shapes among the example arguments; without arguments, those of an export, `?` in the
inputs of StableHLO, names in the types of a `.tw` function, and the open dimensions of an ONNX model.
"""


OURS = PassError, FrontendError, VerifyException, MissingCallback, PluginError, ModelFileError
"""What the layers below raise for bad programs."""


class as_compile_error:
    """Turns what the compiler's layers raise for bad programs into CompileError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TwError):
            raise SourceError(str(error)) from error
        if isinstance(error, OURS):
            raise CompileError(one_line(str(error))) from error


_PYTHON = re.compile(r"[^\n]*\.py(:\w*)?")
"""What the command line takes for a function of a Python file."""


def called(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
    """The function to trace for a source, or to ask for its values, with those arguments that are not static; None
    where it is no function of JAX. Raises CompileError for arguments that it does not take."""
    kind = stage_of(source)
    if kind == "Exported":
        return Call(source.call, tuple(args), dict(kwargs))
    if kind in ("Traced", "Lowered"):
        lowered = _lowered(source)
        return Call(lambda *a, **k: lowered.compile()(*a, **k), tuple(args), dict(kwargs), compiled=True)
    if not callable(source):
        return None
    name = title_of(source)
    if kind == "Compiled":
        raise CompileError(
            f"{name} is compiled for the host: give what it was compiled from, as jax.jit(f).lower(x)"
        )
    if isinstance(source, Recompiling):
        raise CompileError(f"{name} is a tw.jit already: {name}.program(...) is its program")
    if inspect.iscoroutinefunction(source) or inspect.isasyncgenfunction(source):
        raise CompileError(f"{name} is an async function, which gives no arrays: write it without async")
    check_binds(source, name, args, kwargs)
    return call_of(source, args, kwargs)


class Recompiling:
    """What compiles a function for each kind of arguments, and is no source itself."""


def content_of(source: Any) -> tuple[bytes, str | None] | None:
    """The content of a source that is text, bytes, or the path of an MLIR file, and the path; None for others. Raises
    CompileError where a file cannot be read."""
    if isinstance(source, Launched):
        content = _read(Path(source.path))
        if HIVM not in content:
            raise CompileError(f"{source.path}: has no kernel of the vendor's compiler, and takes no launch")
        return source.text(content), str(source.path)
    if isinstance(source, Path) or (
        isinstance(source, str) and "\n" not in source and source.endswith((".mlir", ".mlirbc"))
    ):
        return _read(Path(source)), str(source)
    if isinstance(source, bytes):
        return source, None
    is_python = isinstance(source, str) and _PYTHON.fullmatch(source)
    return (source.encode(), None) if isinstance(source, str) and not is_python else None


def stage_of(source: Any) -> str | None:
    """Which of JAX's own forms of a program a source is; they exist only where JAX has been imported."""
    stages, export = sys.modules.get("jax.stages"), sys.modules.get("jax.export")
    kinds = [getattr(stages, n) for n in ("Traced", "Lowered", "Compiled")] if stages else []
    found = [*kinds, *([export.Exported] if export else [])]
    return next((kind.__name__ for kind in found if isinstance(source, kind)), None)


def origin_of(
    source: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, target: str | None = None
) -> Source:
    """Where the program that `compile` is given comes from. target: the machine that it is lowered for, which runs what
    is in element types of its own. Raises CompileError for what is none, MachineError for an unknown target."""
    kind, kwargs = stage_of(source), kwargs or {}
    machine = None if target is None else Machine.load(target)
    if kind in ("Traced", "Lowered"):
        return _fromstage_of(source, args, kwargs, machine)
    if kind == "Exported":
        return _from_export(source, args, kwargs, machine)
    if (named := named_file(source)) is not None:
        with as_compile_error():
            return ModelFile(named[0]).source(named[1])[0]
    call = called(source, args, kwargs)
    if call is not None:
        return _from_call(call, title_of(source), parameters_of(call), machine)
    if kwargs:
        raise CompileError(
            f"{next(iter(kwargs))}= is given by keyword, which only functions of Python take: give inputs by position"
        )
    found = find_tw(str(source)) if isinstance(source, str | Path) else None
    if found is not None:
        return _from_tw(*found, args)
    added = _frontend_of(source)
    if added is not None:
        path, entry = Path(source), added
        return Source(lambda: _from_plugin(entry, _read(path), str(path)), path.name)
    read = content_of(source)
    if read is not None:
        content, filename = read
        name = Path(filename).name if filename else "program"
        artifact = partial(stablehlo_artifact, content, filename) if is_stablehlo(content) else None
        return Source(lambda: _from_text(content, filename, machine), name, stablehlo=artifact)
    if isinstance(source, str) and _PYTHON.fullmatch(source):
        raise CompileError(
            f"{source}: give the function itself; only the command line looks for it in a file"
        )
    raise CompileError(f"cannot compile {described(source)}: give a function, StableHLO, or a path")


def _from_tw(path: str, function: str | None, args: Sequence[Any]) -> Source:
    """A function of a .tw file on inputs like `args`; none are needed where its types have no symbolic dimensions."""
    text = tw_text(path)
    name = function or Path(path).stem
    types = types_of(name, (tuple(args), {}), INPUTS)[0] if args else ()
    for i, type_ in enumerate(types):
        if not hasattr(type_, "shape"):
            raise CompileError(f"argument {i} of {name} must be an array, got {described(args[i])}")
    flat = [physical(t) for t in types]
    inputs = [(tuple(t.shape), name_of_numpy(t.dtype)) for t in flat] or None

    def lower() -> tuple[ModuleOp, Signature]:
        from ..frontends.text.frontend import lower_tw

        made = lower_tw(path, text, function, inputs)
        return made.module, Signature(made.inputs, parameters=Parameters(made.names, noun="input"))

    return Source(lower, name)


def tw_text(path: str) -> str:
    """The text of a `.tw` file. Raises CompileError."""
    try:
        return decoded(_read(Path(path)))
    except ValueError as error:
        raise CompileError(f"{path}: {error}") from None


def _read(path: Path) -> bytes:
    try:
        return read_plain(path)
    except FileNotFoundError:
        raise CompileError(f"{path}: no such file") from None
    except OSError as error:
        raise CompileError(f"{path}: {error.strerror or error}") from None


def _from_call(call: Call, name: str, parameters: Parameters, machine: Machine | None) -> Source:
    with tracing(call.fn):
        args, kwargs = types_of(name, (call.args, call.kwargs), parameters)
    fn = call.fn
    return Source(
        lambda: _with_signature(lower_function(fn, args, kwargs, machine), parameters),
        name,
        call.places or None,
        stablehlo=partial(artifact_of, fn, args, kwargs),
    )


def _with_signature(lowered: Lowered, parameters: Parameters) -> tuple[ModuleOp, Signature]:
    signature = signature_of(
        lowered.in_avals, lowered.out_avals, lowered.in_tree, lowered.out_tree, parameters
    )
    return lowered.module, signature


def _frontend_of(source: Any) -> PluginEntry | None:
    """The frontend of a plugin for a source that is a path."""
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source):
        return frontend_of(source)
    return None


def _from_plugin(entry: PluginEntry, content: bytes, filename: str) -> tuple[ModuleOp, Signature]:
    with as_compile_error():
        module = read_with(entry, content, filename)
        verify_module(module)
    return module, Signature(main_inputs(module, filename))


def _from_export(
    exported: Any, args: Sequence[Any], kwargs: Mapping[str, Any], machine: Machine | None
) -> Source:
    """A `jax.export.Exported`, on arguments or else on those that it was exported with."""
    import jax

    name = exported.fun_name
    if "cpu" not in exported.platforms:
        raise CompileError(
            f"{name} was exported for {', '.join(exported.platforms)}: export it with platforms=['cpu'], which is "
            "what the host of the device is"
        )
    if not args and not kwargs:
        symbolic = next((a for a in exported.in_avals if not all(isinstance(n, int) for n in a.shape)), None)
        if symbolic is not None:
            raise CompileError(
                f"{name} was exported with the symbolic shape {symbolic}: give example arguments"
            )
        structs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in exported.in_avals]
        args, kwargs = jax.tree.unflatten(exported.in_tree, structs)
    elif jax.tree.structure((tuple(args), dict(kwargs))) != exported.in_tree:
        numbers = tuple((tuple(a.shape), "f32") for a in exported.in_avals)
        Signature(numbers, exported.in_tree, parameters=Parameters()).leaves(name, args, kwargs)
    origin = _from_call(Call(exported.call, tuple(args), dict(kwargs)), name, Parameters(), machine)

    def lower() -> tuple[ModuleOp, Signature]:
        try:
            return origin.lower()
        except (TypeError, ValueError) as error:  # arguments of other shapes than were exported
            raise CompileError(f"{name}: {one_line(str(error))}") from None

    return replace(origin, lower=lower)


def _lowered(source: Any) -> Any:
    """What JAX has traced, lowered for the host of the device; what it has lowered, as it is."""
    return (
        source.lower(lowering_platforms=("cpu",), **private_parameters())
        if hasattr(source, "lower")
        else source
    )


def _fromstage_of(
    source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], machine: Machine | None
) -> Source:
    """A `jax.stages.Lowered` or `Traced`; arguments, where there are any, have to be like those it has."""
    stage = _lowered(source)
    name = _name_of(stage)
    given = types_of(name, (tuple(args), dict(kwargs)), Parameters()) if args or kwargs else None

    def lower() -> tuple[ModuleOp, Signature]:
        lowered = lower_staged(stage, machine)
        module, signature = _with_signature(lowered, _noted(lowered))
        _take_all(entry_of(module), signature, lowered.kept)
        if given is not None:
            signature.check(name, *given)
        return module, signature

    return Source(lower, name, stablehlo=partial(staged_artifact, stage))


def _name_of(lowered: Any) -> str:
    """The function's name, of which JAX makes that of the module: `jit_f`."""
    name = str(lowered.compiler_ir("stablehlo").operation.attributes["sym_name"].value)
    return name.removeprefix("jit_").strip("_") or "program"


def _noted(lowered: Lowered) -> Parameters:
    """What the arguments are called, as far as JAX has noted it at those inputs that are used."""
    import jax

    noted = dict(zip(lowered.kept, lowered.names, strict=True))
    numbered = jax.tree.unflatten(lowered.in_tree, range(lowered.in_tree.num_leaves))
    names = []
    for i, arg in enumerate(numbered[0]):
        paths = (noted.get(leaf) for leaf in jax.tree.leaves(arg))
        roots = {re.split(r"[.\[]", path)[0] for path in paths if path is not None}
        names.append(roots.pop() if len(roots) == 1 else str(i))
    unique = len(set(names)) == len(names)  # `*xs` has one name for all
    return Parameters(tuple(names) if unique else ())


def _take_all(main: FuncOp, signature: Signature, kept: Sequence[int]) -> None:
    """Lets @main take also the inputs that its function does not use, which JAX has left out: at their places."""
    flags = dict(zip(kept, donated(main), strict=True))
    main.arg_attrs = None
    for i, (shape, dtype) in enumerate(signature.inputs):
        if i not in flags:
            main.body.block.insert_arg(tensor(shape, element_type(dtype)), i)
    main.function_type = FunctionType.from_lists(
        [arg.type for arg in main.body.block.args], list(main.function_type.outputs)
    )
    donate(main, [flags.get(i, False) for i in range(len(signature.inputs))])


def _from_text(content: bytes, filename: str | None, machine: Machine | None) -> tuple[ModuleOp, Signature]:
    module = read_module(content, filename, machine)
    return module, Signature(main_inputs(module, filename or "the program"))


def own_module(content: bytes, where: str) -> ModuleOp:
    """The module in the text of one of our levels, verified; where: what messages call it. Raises CompileError."""
    try:
        module = parse_module(make_context(), content.decode(), where)
        verify_module(module)
    except UnicodeDecodeError:
        raise CompileError(f"{where}: neither text nor MLIR bytecode") from None
    except ParseError as e:
        raise CompileError(f"{e.span.get_location()}: {one_line(e.msg)}") from None
    except VerifyException as e:
        raise CompileError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None
    return module


_TW = re.compile(rb"(?:\s|#[^\n]*\n)*(?:(?:pub\s+)?(?:fn|const|param)\s+\w|import\s+\")")
"""How a .tw program starts; no line of MLIR does."""

_PYTHON_TEXT = re.compile(rb"(?:\s|#[^\n]*\n)*(?:from|import|def|class)\s+[\w.]+")
"""How a Python file starts, behind comments."""


HIVM = b"hivm.hir."
"""What the text of a kernel of the vendor's compiler has."""


def read_module(content: bytes, filename: str | None, machine: Machine | None = None) -> ModuleOp:
    """A module from StableHLO (text or bytecode), which is lowered for a machine, or the text of one of our levels.
    Raises CompileError."""
    if is_stablehlo(content):
        with as_compile_error():
            return lower_stablehlo(content, filename, machine)
    where = filename or "the program"
    if not content.strip():
        raise CompileError(f"{where}: there is nothing in it")
    if _TW.match(content):
        raise CompileError(
            f"{where} is .tw text: save it as a file and give its path, as in tw.compile('model.tw')"
        )
    if _PYTHON_TEXT.match(content):
        raise CompileError(f"{where} is Python: give a function of it, as in model.py:fn")
    if b"\0" in content:
        raise CompileError(f"{where}: neither text nor MLIR bytecode")
    module = own_module(content, where)
    if HIVM in content:
        from ..frontends.hivm import import_hivm, launch_of

        with as_compile_error():
            return import_hivm(
                module, where, machine or Machine.load(DEFAULT_TARGET), launch_of(content.decode())
            )
    for op in module.walk():
        for value in (*op.results, *(arg for region in op.regions for b in region.blocks for arg in b.args)):
            if isinstance(value.type, TensorType) and DYNAMIC_INDEX in shape_in(value.type):
                raise CompileError(
                    f"{describe(op)} has the dynamic shape {value.type}; shapes must be static"
                )
    return module


def tw_input_types(source: str, dimensions: Mapping[str, int]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and element type of each input of `model.tw[:fn]` with these symbolic dimensions. Raises CompileError."""
    from ..frontends.text.frontend import tw_inputs

    found = find_tw(source)
    if found is None:
        raise CompileError(f"{source}: not a .tw file")
    with as_compile_error():
        return tw_inputs(found[0], tw_text(found[0]), found[1], dimensions)


def entry_of(module: ModuleOp) -> FuncOp:
    """The function @main of a module that was read or compiled: it has one."""
    main = find_main(module)
    assert main is not None
    return main


def input_types(source: Any, *args: Any) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and element type of each flat input of a source, which is lowered and not compiled."""
    with as_compile_error():
        return origin_of(source, args).lower()[1].inputs
