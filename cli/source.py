"""What a SOURCE on the command line names: a Python function, a .tw or an .mlir file; and its example inputs."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from ..frontends.added import frontend_of
from .common import STDIN, CliError, os_message, suggestion

if TYPE_CHECKING:
    import numpy as np

    from ..passes.pipeline import Stage

SEED = 0
"""Random inputs are the same in every run."""

Spec = tuple[tuple[int, ...], str]
"""Shape and element type of an input."""


@dataclass(frozen=True)
class SourceSpec:
    """`model.py:fn` (then `fn` is the function), `model.tw:fn` or the path of a .tw or .mlir file; or what stdin has,
    then `content`."""

    path: Path
    name: str
    fn: Callable[..., Any] | None = None
    module: ModuleType | None = None
    content: bytes | None = None

    @property
    def compiled(self) -> Callable[..., Any] | Path | bytes:
        """What `tilewright.compile` takes."""
        if self.content is not None:
            return self.content
        return self.fn if self.fn is not None else self.path


def find_source(text: str) -> SourceSpec:
    """The source called `text`. Raises CliError where there is none, or where its Python file fails."""
    if text == STDIN:
        return SourceSpec(Path("stdin.mlir"), "stdin", content=sys.stdin.buffer.read())
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith((".py", ".tw")):
        path, name = text, ""
    file = Path(path)
    if file.suffix not in (".py", ".tw", ".mlir", ".mlirbc") and frontend_of(file) is None:
        raise CliError(f"{text}: neither a Python function (model.py:fn) nor a .tw or .mlir file")
    try:
        file.open("rb").close()
    except OSError as error:
        raise CliError(os_message(error)) from None
    if file.suffix == ".tw":
        if text.endswith(":"):
            raise CliError(f"{text}: write {path}:fn, or {path} for its only public function")
        return SourceSpec(Path(text), text)
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
    """The Python function called `FILE.py:FN`; option: what asks for it. Raises CliError."""
    source = find_source(text) if re.search(r"\.py(:|$)", text) else None
    if source is None or source.fn is None:
        raise CliError(f"{text}: {option} needs a Python function, FILE.py:FN")
    return source


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
    sys.path.insert(0, str(path.resolve().parent))
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
            lines = re.findall(rf'File "{re.escape(str(path.resolve()))}", line (\d+)', str(error))
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
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == path.resolve():
        return f"{path}:{error.lineno or 1}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename and Path(f.filename).resolve() == path.resolve()]
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


# -- inputs --------------------------------------------------------------------------------------------------


def example_inputs(
    source: SourceSpec, shapes: str | None, file: str | None, values: bool = True
) -> list[Any] | None:
    """Arguments for a source: from `--shapes`, from `--inputs`, or from `<fn>_inputs()`; None for an .mlir
    file without either, whose inputs follow from @main. Without `values` those of the first two are
    jax.ShapeDtypeStructs: nothing is drawn, and of a file only the headers are read. Raises CliError."""
    make = random_inputs if values else input_structs
    if shapes is not None and file is not None:
        raise CliError("give either --shapes or --inputs")
    args: list[Any]
    dimensions = None if shapes is None else parse_dimensions(shapes)
    if dimensions is not None and source.path.suffix in (".py", ".mlir", ".mlirbc"):
        raise CliError(f"--shapes {shapes}: only .tw functions have dimensions with names; {_SHAPES}")
    if dimensions is not None:
        from ..api.sources import tw_input_types

        args = make(tw_input_types(str(source.path), dimensions))
    elif shapes is not None:
        args = make(parse_shapes(shapes))
    elif file is not None:
        args = _read_inputs(file) if values else _read_types(file)
    elif source.fn is None:
        return None
    else:
        args = _own_inputs(source)
    check_takes(source, args)
    return args


def check_takes(source: SourceSpec, args: Sequence[Any]) -> None:
    """Raises CliError where the source is a function that cannot be called with so many arguments."""
    if source.fn is None:
        return
    try:
        inspect.signature(source.fn).bind(*args)
    except TypeError as error:
        raise CliError(
            f"{source.path}:{source.name} does not take {len(args)} input{'s' * (len(args) != 1)}: {error}"
        ) from None
    except ValueError:
        pass  # a callable without a signature


def _own_inputs(source: SourceSpec) -> list[Any]:
    maker = getattr(source.module, f"{source.name}_inputs", None)
    if maker is None:
        assert source.fn is not None
        if not inspect.signature(source.fn).parameters:
            return []
        raise CliError(
            f"{source.path}:{source.name} has no example inputs: define {source.name}_inputs() beside it, "
            "or give --shapes f32[8,128],..."
        )
    try:
        inspect.signature(maker).bind()
    except TypeError as error:
        raise CliError(
            f"{source.path}: {source.name}_inputs must be a function without arguments: {error}"
        ) from None
    with user_code(source.path):
        made = maker()
    return list(made) if isinstance(made, tuple | list) else [made]


def _read_inputs(file: str) -> list[Any]:
    import numpy as np

    with _npz(file), np.load(file, allow_pickle=False) as arrays:
        return [arrays[name] for name in arrays.files]


def _read_types(file: str) -> list[Any]:
    """The types of the arrays of an .npz file, from its headers."""
    import jax
    from numpy.lib import format as npy

    def read(stream: Any) -> Any:
        version = npy.read_magic(stream)
        shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(
            stream
        )
        if dtype.hasobject:
            raise ValueError("arrays of objects")
        return jax.ShapeDtypeStruct(shape, dtype)

    with _npz(file), ZipFile(file) as arrays:
        made = []
        for name in arrays.namelist():
            with arrays.open(name) as stream:
                made.append(read(stream))
        return made


@contextmanager
def _npz(file: str) -> Iterator[None]:
    """Raises CliError for what is wrong with an .npz file."""
    try:
        yield
    except FileNotFoundError as error:
        raise CliError(os_message(error)) from None
    except (OSError, EOFError, ValueError, BadZipFile, AttributeError, TypeError):
        raise CliError(f"{file}: not an .npz file of arrays") from None


_SHAPES = "write f32[8,128],i32[4]; for the dimensions of a .tw function N=8,M=64"


def parse_dimensions(text: str) -> dict[str, int] | None:
    """`N=8,M=64`, the symbolic dimensions of a .tw function; None where the text is a list of shapes."""
    if "=" not in text or "[" in text.partition("=")[0]:
        return None
    parts = [re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\s*", part) for part in text.split(",")]
    for part, match in zip(text.split(","), parts, strict=True):
        if match is None:
            raise CliError(f"cannot read '{part.strip()}' in --shapes; {_SHAPES}")
    found: dict[str, int] = {}
    for m in filter(None, parts):
        if found.setdefault(m[1], int(m[2])) != int(m[2]):
            raise CliError(f"--shapes says {m[1]}={found[m[1]]} and {m[1]}={m[2]}")
    return found


def parse_shapes(text: str) -> list[Spec]:
    """`f32[8,128],i32[4],f16[]` as shapes and element types. Raises CliError."""
    from ..dialects.dtypes import names, numpy_dtype

    out: list[Spec] = []
    for part in filter(None, re.split(r",(?![^\[]*\])", text.replace(" ", ""))):
        match = re.fullmatch(r"([A-Za-z]\w*)(?:\[((?:\d+(?:,\d+)*)?)\])?", part)
        if match is None:
            raise CliError(f"cannot read '{part}' in --shapes; {_SHAPES}")
        try:
            numpy_dtype(match[1])
        except KeyError:
            known = suggestion(match[1].lower(), names()) or f"; known are {', '.join(names())}"
            raise CliError(
                f"unknown element type '{match[1]}' in --shapes{_of_numpy(match[1]) or known}"
            ) from None
        out.append((tuple(int(n) for n in (match[2] or "").split(",") if n), match[1]))
    if not out:
        raise CliError(f"--shapes is empty; {_SHAPES}")
    return out


def _of_numpy(name: str) -> str:
    """`; write f32` for float32."""
    import numpy as np

    from ..dialects.dtypes import name_of_numpy

    try:
        return f"; write {name_of_numpy(np.dtype(name))}"
    except (TypeError, KeyError):
        return ""


def input_structs(specs: Sequence[Spec]) -> list[Any]:
    """Inputs of these shapes without values: a jax.ShapeDtypeStruct each."""
    import jax

    from ..dialects.dtypes import numpy_dtype

    return [jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in specs]


def random_inputs(specs: Sequence[Spec]) -> list[np.ndarray]:
    """Arrays of these shapes, the same in every run: normal floats, small integers."""
    import numpy as np

    from ..dialects.dtypes import numpy_dtype

    rng = np.random.default_rng(SEED)

    def make(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype[0] in "fb":
            values = rng.standard_normal(shape)
        elif dtype[0] == "c":
            values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        else:
            bits = int(dtype.lstrip("ui"))
            # i8 and narrower are data, wider ones are most often indices
            half = 1 << bits - 1
            low, high = (-half, half) if dtype in ("i2", "i4", "i8") else (0, min(10, 2 * half))
            values = rng.integers(low, high, shape)
        return np.asarray(values).astype(numpy_dtype(dtype))

    made = []
    for shape, dtype in specs:
        try:
            made.append(make(shape, dtype))
        except (MemoryError, ValueError, OverflowError):  # ValueError: more elements than numpy can count
            raise CliError(
                f"an input of {dtype}[{','.join(map(str, shape))}] does not fit in memory"
            ) from None
    return made
