"""What a program comes from: a function, StableHLO, the text of one of our levels, or a .tw file, as a module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import ParseError, VerifyException

from ..dialects import make_context
from ..dialects.base import describe
from ..dialects.callbacks import MissingCallback
from ..dialects.dtypes import dtype_name, name_of_numpy
from ..dialects.npu import GmType
from ..dialects.text import one_line, parse_module
from ..dialects.text import verify as verify_module
from ..frontends import FrontendError, is_stablehlo, lower_function, lower_stablehlo
from ..frontends.added import frontend_of, read_with
from ..frontends.text import TwError, decoded, find_tw
from ..passes.errors import PassError
from ..support.plugins import Entry, PluginError
from .signature import CompileError, Signature, described, physical, signature_of, types_of


class SourceError(CompileError):
    """A .tw program with errors: its text is all of them, each with its line and carets, as it is to be printed."""


@dataclass
class Source:
    """Where a program came from; `lower()` gives a fresh module and its signature."""

    lower: Callable[[], tuple[ModuleOp, Signature]]
    name: str


class as_compile_error:
    """Turns what the compiler's layers raise for bad programs into CompileError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TwError):
            raise SourceError(str(error)) from error
        if isinstance(error, PassError | FrontendError | VerifyException | MissingCallback | PluginError):
            raise CompileError(one_line(str(error))) from error


_PYTHON = re.compile(r"[^\n]*\.py(:\w*)?")
"""What the command line takes for a function of a Python file."""


def origin_of(source: Any, args: Sequence[Any]) -> Source:
    """Where the program that `compile` is given comes from. Raises CompileError for what is none."""
    if callable(source):
        name = getattr(source, "__name__", type(source).__name__)
        if inspect.iscoroutinefunction(source) or inspect.isasyncgenfunction(source):
            raise CompileError(f"{name} is an async function, which gives no arrays: write it without async")
        types = types_of(name, args)
        return Source(lambda: _from_function(source, types), name)
    found = find_tw(str(source)) if isinstance(source, str | Path) else None
    if found is not None:
        return _from_tw(*found, args)
    added = _frontend_of(source)
    if added is not None:
        path, entry = Path(source), added
        return Source(lambda: _from_plugin(entry, _read(path), str(path)), path.name)
    if isinstance(source, Path) or (
        isinstance(source, str) and "\n" not in source and source.endswith((".mlir", ".mlirbc"))
    ):
        path = Path(source)
        content = _read(path)
        return Source(lambda: _from_text(content, str(path)), path.name)
    if isinstance(source, str) and _PYTHON.fullmatch(source):
        raise CompileError(
            f"{source}: give the function itself; only the command line looks for it in a file"
        )
    if isinstance(source, str | bytes):
        content = source if isinstance(source, bytes) else source.encode()
        return Source(lambda: _from_text(content, None), "program")
    raise CompileError(f"cannot compile {described(source)}: give a function, StableHLO, or a path")


def _from_tw(path: str, function: str | None, args: Sequence[Any]) -> Source:
    """A function of a .tw file on inputs like `args`; none are needed where its types have no symbolic dimensions."""
    text = _tw_text(path)
    name = function or Path(path).stem
    types = types_of(name, args) if args else ()
    for i, type_ in enumerate(types):
        if not hasattr(type_, "shape"):
            raise CompileError(f"argument {i} of {name} must be an array, got {described(args[i])}")
    flat = [physical(t) for t in types]
    inputs = [(tuple(t.shape), name_of_numpy(t.dtype)) for t in flat] or None

    def lower() -> tuple[ModuleOp, Signature]:
        from ..frontends.text.frontend import lower_tw

        made = lower_tw(path, text, function, inputs)
        return made.module, Signature(made.inputs)

    return Source(lower, name)


def _tw_text(path: str) -> str:
    try:
        return decoded(_read(Path(path)))
    except ValueError as error:
        raise CompileError(f"{path}: {error}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CompileError(f"{path}: no such file") from None
    except OSError as error:
        raise CompileError(f"{path}: {error.strerror or error}") from None


def _from_function(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[ModuleOp, Signature]:
    lowered = lower_function(fn, args)
    signature = signature_of(lowered.in_avals, lowered.out_avals, lowered.in_tree, lowered.out_tree)
    return lowered.module, signature


def _frontend_of(source: Any) -> Entry | None:
    """The frontend of a plugin for a source that is a path."""
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source):
        return frontend_of(source)
    return None


def _from_plugin(entry: Entry, content: bytes, filename: str) -> tuple[ModuleOp, Signature]:
    with as_compile_error():
        module = read_with(entry, content, filename)
        verify_module(module)
    return module, Signature(_main_inputs(module, filename))


def _from_text(content: bytes, filename: str | None) -> tuple[ModuleOp, Signature]:
    module = read_module(content, filename)
    return module, Signature(_main_inputs(module, filename or "the program"))


_TW = re.compile(rb"(?:\s|#[^\n]*\n)*(?:pub\s+)?(?:fn|const|param|import)\s+[\w\"]")
"""How a .tw program starts; no line of MLIR does."""


def read_module(content: bytes, filename: str | None) -> ModuleOp:
    """A module from StableHLO (text or bytecode) or the text of one of our levels. Raises CompileError."""
    if is_stablehlo(content):
        with as_compile_error():
            return lower_stablehlo(content, filename)
    where = filename or "the program"
    if not content.strip():
        raise CompileError(f"{where}: there is nothing in it")
    if _TW.match(content):
        raise CompileError(f"{where} is .tw text: save it as a file and give its path, as in tw.compile('model.tw')")
    if b"\0" in content:
        raise CompileError(f"{where}: neither text nor MLIR bytecode")
    try:
        module = parse_module(make_context(), content.decode(), where)
        verify_module(module)
    except UnicodeDecodeError:
        raise CompileError(f"{where}: neither text nor MLIR bytecode") from None
    except ParseError as e:
        raise CompileError(f"{e.span.get_location()}: {one_line(e.msg)}") from None
    except VerifyException as e:
        raise CompileError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None
    for op in module.walk():
        for value in (*op.results, *(arg for region in op.regions for b in region.blocks for arg in b.args)):
            if isinstance(value.type, TensorType) and DYNAMIC_INDEX in value.type.get_shape():
                raise CompileError(f"{describe(op)} has the dynamic shape {value.type}; shapes must be static")
    return module


def tw_input_types(source: str, dimensions: Mapping[str, int]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and element type of each input of `model.tw[:fn]` with these symbolic dimensions. Raises CompileError."""
    from ..frontends.text.frontend import tw_inputs

    found = find_tw(source)
    if found is None:
        raise CompileError(f"{source}: not a .tw file")
    with as_compile_error():
        return tw_inputs(found[0], _tw_text(found[0]), found[1], dimensions)


def input_types(source: Any, *args: Any) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and element type of each flat input of a source, which is lowered and not compiled."""
    with as_compile_error():
        return origin_of(source, args).lower()[1].inputs


Types = tuple[tuple[tuple[int, ...], str], ...]
"""Shapes and element types."""


def _main_inputs(module: ModuleOp, where: str) -> Types:
    return _types_of_main(module, where, lambda main: main.function_type.inputs)


def main_results(module: ModuleOp) -> Types:
    """Shape and element type of each result of a module's @main."""
    return _types_of_main(module, "the program", lambda main: main.function_type.outputs)


def _types_of_main(module: ModuleOp, where: str, pick: Callable[[FuncOp], Iterable[Any]]) -> Types:
    main = next((f for f in module.ops if isinstance(f, FuncOp) and f.sym_name.data == "main"), None)
    if main is None:
        raise CompileError(f"{where}: there is no function @main")
    out = []
    for t in pick(main):
        if isinstance(t, TensorType):
            out.append((t.get_shape(), dtype_name(t.element_type)))
        elif isinstance(t, GmType):
            out.append((t.shape, dtype_name(t.element)))
        else:
            raise CompileError(f"{where}: @main takes {t}; it must take tensors")
    return tuple(out)
