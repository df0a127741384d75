"""What a SOURCE on the command line names: a Python function, a .tw or an .mlir file."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..api.launched import Launched
from ..frontends.added import frontend_of
from ..support.files import real_path
from ..support.sentences import suggestion, visible
from .common import STDIN, CliError, os_message, read_stdin

if TYPE_CHECKING:
    from ..passes.pipeline import Stage


@dataclass(frozen=True)
class SourceSpec:
    """`model.py:fn` (then `fn` is the function, and `module` where it is from), `model.tw:fn`, or the path of a .tw,
    .mlir or .onnx file (`fn` is the function of a model); or what stdin has, then `content`. launch: what the kernel of
    an .mlir file is launched with."""

    path: Path
    name: str
    fn: Callable[..., Any] | None = None
    module: ModuleType | None = None
    content: bytes | None = None
    launch: str | None = None

    @property
    def compiled(self) -> Callable[..., Any] | Path | bytes | Launched:
        """What `tilewright.compile` takes."""
        if self.launch is not None:
            return Launched(self.path, self.launch)
        if self.content is not None:
            return self.content
        return self.fn if self.fn is not None else self.path


def source_of(args: argparse.Namespace) -> SourceSpec:
    """The source of a command. Raises CliError, and CompileError for a Triton kernel."""
    if args.triton is not None:
        return _triton(args)
    found = find_source(args.source, args.weights_as_arguments)
    if args.launch is None:
        return found
    if found.path.suffix != ".mlir" or found.content is not None:
        raise CliError(f"{args.source}: --launch is for .mlir files with a kernel of the vendor's compiler")
    return replace(found, launch=args.launch)


def _triton(args: argparse.Namespace) -> SourceSpec:
    """A Triton kernel, which another Python reads. Raises CliError and CompileError."""
    from ..api.triton_kernels import hivm_of_kernel

    path, _, name = args.source.rpartition(":")
    if not path.endswith(".py") or not name:
        raise CliError(f"{args.source}: --triton needs a kernel of a Python file, as in kernel.py:add")
    if args.launch is not None:
        raise CliError("--triton says the launch: take --launch away")
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise CliError(os_message(error)) from None
    content = hivm_of_kernel(Path(path), name, args.triton, getattr(args, "target", None), args.triton_python)
    return SourceSpec(Path(path), name, content=content)


def find_source(text: str, weights_as_arguments: bool = False) -> SourceSpec:
    """The source called `text`. weights_as_arguments: the initialisers of an ONNX model are an argument. Raises
    CliError where there is none, or where its Python file fails, and CompileError for a model that cannot be read."""
    if text == STDIN:
        return SourceSpec(Path("stdin.mlir"), "stdin", content=read_stdin())
    if not text:
        raise CliError("SOURCE is empty; write model.py:fn, or the path of a .tw, .twm, .mlir or .onnx file")
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith((".py", ".tw", ".twm")):
        path, name = text, ""
    file = Path(path)
    if not text.isprintable() and visible(text) != text:
        raise CliError(f"{text}: a name with characters that cannot be shown: rename the file")
    if file.suffix not in (".py", ".tw", ".twm", ".mlir", ".mlirbc", ".onnx") and frontend_of(file) is None:
        raise CliError(f"{text}: neither a Python function (model.py:fn) nor a .tw, .twm, .mlir or .onnx file")
    try:
        file.open("rb").close()
    except OSError as error:
        raise CliError(os_message(error)) from None
    if file.suffix == ".tw":
        if text.endswith(":"):
            raise CliError(f"{text}: write {path}:fn, or {path} for its only public function")
        return SourceSpec(Path(text), text)
    if file.suffix == ".twm":
        return SourceSpec(Path(text), text)
    if file.suffix == ".onnx":
        from ..api.onnx_sources import onnx_function

        return SourceSpec(file, file.name, onnx_function(file, weights_as_arguments))
    if weights_as_arguments:
        raise CliError(f"{text}: --weights-as-arguments is for .onnx models, which have their weights")
    if file.suffix != ".py":
        return SourceSpec(file, file.name)
    module = _load(file)
    functions = [
        n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__
    ]
    public = [n for n in functions if not n.startswith("_") and not n.endswith("_inputs")]
    if not name:
        raise CliError(f"{path}: say which function, as in {path}:{public[0] if public else 'fn'}")
    fn = getattr(module, name, None)
    if fn is None:
        listed = f"; it has {', '.join(public)}" if public else ""
        raise CliError(f"{path} has no function {name}{suggestion(name, public) or listed}")
    if not callable(fn):
        raise CliError(f"{path}: {name} is not a function")
    return SourceSpec(file, name, fn, module)


def find_function(text: str, option: str = "--against") -> SourceSpec:
    """The Python function called `FILE.py:FN`, or `MODULE:FN` of a module that Python finds; option: what names it.
    Raises CliError."""
    if re.search(r"\.py(:|$)", text):
        source = find_source(text)
        if source.fn is not None:
            return source
    elif match := re.fullmatch(r"([A-Za-z_][\w.]*):(\w+)", text):
        return _of_module(match[1], match[2], option)
    raise CliError(f"{text}: {option} needs a Python function, FILE.py:FN")


def _of_module(module: str, name: str, option: str) -> SourceSpec:
    """A function of a module that is found on Python's path, or in the working directory."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise CliError(
            f"{module}:{name}: Python finds no module {module}; {option} needs FILE.py:FN or MODULE:FN"
        )
    path = Path(spec.origin)
    with user_code(path):
        loaded = importlib.import_module(module)
    fn = getattr(loaded, name, None)
    if not callable(fn):
        raise CliError(f"{module} has no function {name}")
    return SourceSpec(path, name, fn, loaded)


def find_stages(text: str) -> Sequence[Stage]:
    """The pipeline stages called `FILE.py:NAME`: a sequence of them, or a function that gives one. Raises CliError."""
    from ..passes.pipeline import Stage

    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise CliError(f"{text}: --stages needs FILE.py:NAME")
    file = Path(path)
    try:
        file.open("rb").close()
    except OSError as error:
        raise CliError(os_message(error)) from None
    found = getattr(_load(file), name, None)
    if callable(found):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise CliError(f"{path}: {name} gives the stages without arguments: {error}") from None
        with user_code(file):
            found = found()
    if not isinstance(found, Sequence) or not found or not all(isinstance(s, Stage) for s in found):
        raise CliError(f"{path}: {name} is no sequence of pipeline stages")
    return found


def _load(path: Path) -> ModuleType:
    import jax  # noqa: F401  # before the file's folder is looked through, which may have a jax.py, too

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(real_path(path).parent))
    # dataclasses and pickle look the module up by name
    sys.modules.setdefault(path.stem, module)
    with user_code(path):
        try:
            spec.loader.exec_module(module)
        except (SyntaxError, ValueError) as error:
            if _place(error, path) is None:  # it has no lines, as a file with null bytes
                raise CliError(f"{path}: not a Python file: {error}") from error
            raise
    return module


@contextmanager
def user_code(path: Path | None, fn: Callable[..., Any] | None = None) -> Iterator[None]:
    """Runs what may call the user's code: its prints go to stderr, and an exception that passes through a
    line of `path`, or that JAX raises while it traces `fn`, becomes a CliError that names the line."""
    logging.getLogger("jax").addHandler(logging.NullHandler())  # it would print the traceback of a callback
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        if path is None:
            raise
        kind, said = type(error).__name__, _said(error.msg if isinstance(error, SyntaxError) else str(error))
        place = _place(error, path)
        if place is None and _CALLBACK in str(error):
            lines = re.findall(rf'File "{re.escape(str(real_path(path)))}", line (\d+)', str(error))
            place = f"{path}:{lines[-1]}" if lines else str(path)
            kind, _, said = str(error).strip().splitlines()[-1].partition(": ")
        elif place is None and fn is not None and _tracing(error):
            place = _definition(path, fn)
        if place is None:
            raise
        raise CliError(f"{place}: {kind}{': ' + said if said else ''}") from error


_LONGEST = 200
"""Of longer messages, in characters, only what comes first is said."""


def _said(message: str) -> str:
    """A message in one line: all of a short one; of a long one the first line, with what follows a colon at its
    end, where JAX says what is wrong."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    whole = " ".join(lines)
    if len(whole) <= _LONGEST or not lines:
        return whole
    end = next((i + 1 for i, line in enumerate(lines) if not line.endswith(":")), len(lines))
    return " ".join(lines[:end])


_CALLBACK = "CpuCallback error"
"""What XLA says where a Python function that it calls raises; the traceback follows as text."""


def _place(error: BaseException, path: Path) -> str | None:
    """`file:line` of the last line of `path` that `error` came through."""
    if isinstance(error, SyntaxError) and error.filename and real_path(error.filename) == real_path(path):
        return f"{path}:{error.lineno or 1}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename and real_path(f.filename) == real_path(path)]
    return f"{path}:{lines[-1]}" if lines else None


def _tracing(error: BaseException) -> bool:
    """Whether an exception is JAX's, about the function that it was given, and not the compiler's."""
    from ..api.program import CompileError

    frames = traceback.extract_tb(error.__traceback__)
    calls = ("lower_function", "reference_values")
    return not isinstance(error, CompileError) and any(f.name in calls for f in frames)


def _definition(path: Path, fn: Callable[..., Any]) -> str:
    """Where a function of `path` is defined."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{path}:{code.co_firstlineno}" if code is not None else str(path)
