"""Compile, run, report, verify: the public API over frontends, passes and backends."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import ParseError, VerifyException

from .backends.report import Report, build_report
from .backends.trace import write_trace
from .dialects import make_context
from .dialects.dtypes import dtype_name, is_float, itemsize, numpy_dtype
from .dialects.npu import GmType
from .dialects.npu.structure import KernelOp
from .dialects.text import one_line, parse_module
from .dialects.text import verify as verify_module
from .frontends import FrontendError, is_stablehlo, lower_function, lower_stablehlo
from .machine import Machine
from .passes.errors import PassError
from .passes.pins import Pins, pins_text
from .passes.pipeline import level_of, run_pipeline

if TYPE_CHECKING:
    from .backends.interpreter import Executable

Level = Literal["graph", "tile", "npu"]
LEVELS: tuple[Level, ...] = ("graph", "tile", "npu")


class CompileError(Exception):
    """A program that cannot be compiled or called as asked: one sentence with the op and the place."""


@dataclass(frozen=True)
class Options:
    """How to compile and run. memory: `typed` (an array per buffer, fast) or `bytes` (real addresses); schedule:
    tiling choices pinned by hand, for all kernels (a Schedule) or by kernel name."""

    memory: Literal["typed", "bytes"] = "typed"
    schedule: Pins = None


@dataclass(frozen=True)
class Signature:
    """What a program takes and gives: flat shapes and dtypes, and the pytrees around them."""

    inputs: tuple[tuple[tuple[int, ...], str], ...]
    in_tree: Any = None
    out_tree: Any = None


@dataclass
class Source:
    """Where a program came from; `lower()` gives a fresh module and its signature."""

    lower: Callable[[], tuple[ModuleOp, Signature]]
    name: str


class Program:
    """A compiled program: callable, printable at each level, and able to tell its cost."""

    def __init__(self, source: Source, module: ModuleOp, signature: Signature, target: str, options: Options):
        self._source = source
        self._module = module
        self._signature = signature
        self._executables: dict[str, Executable] = {}
        self._report: Report | None = None
        self.target = target
        self.machine = Machine.load(target)
        self.options = options

    def __repr__(self) -> str:
        kernels = sum(op.name == "npu.kernel" for op in self._module.ops)
        return f"<tilewright.Program {self._source.name}: {kernels} kernels for {self.machine.name}>"

    @property
    def inputs(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and element type of each flat input."""
        return self._signature.inputs

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels the program has: from the one its source is written in down to npu."""
        return LEVELS[LEVELS.index(level_of(self._source.lower()[0])) :]

    def module(self, level: Level = "npu") -> ModuleOp:
        """The program's module at a level; levels above npu are built again from the source."""
        if level not in LEVELS:
            raise CompileError(f"there is no level {level!r}; levels are {', '.join(LEVELS)}")
        if level == "npu":
            return self._module
        module, _ = self._source.lower()
        if LEVELS.index(level_of(module)) > LEVELS.index(level):
            raise CompileError(
                f"{self._source.name} starts at the {level_of(module)} level; it has no {level} level"
            )
        with _as_compile_error():
            run_pipeline(module, self.target, until=level, schedule=pins_text(self.options.schedule))
        return module

    def ir(self, level: Level = "npu") -> str:
        """The text of the program at a level."""
        return str(self.module(level))

    def __call__(self, *args: Any) -> Any:
        """Runs the npu level on arrays; gives the pytree that the function gives.

        Raises CompileError where `args` do not have the compiled structure, shapes or dtypes.
        """
        flat = self.flatten(args)
        return self.unflatten(self.executable(self.options.memory)(*flat))

    def executable(self, memory: Literal["typed", "bytes"]) -> Executable:
        """The interpreter of the npu level in a memory mode; made on first use, then kept."""
        from .backends.interpreter import Executable

        if memory not in self._executables:
            self._executables[memory] = Executable(self._module, self.machine, memory)
        return self._executables[memory]

    def flatten(self, args: Sequence[Any]) -> list[Any]:
        """The flat inputs in @main's order, checked against the signature."""
        import jax
        import numpy as np

        if self._signature.in_tree is None:
            flat, wanted = list(args), None
        else:
            flat, tree = jax.tree.flatten(tuple(args))
            wanted = self._signature.in_tree
            if tree != wanted:
                raise CompileError(
                    f"{self._source.name} was compiled for inputs {wanted}, called with {tree}"
                )
        if len(flat) != len(self._signature.inputs):
            raise CompileError(
                f"{self._source.name} takes {len(self._signature.inputs)} inputs, called with {len(flat)}"
            )
        out = []
        for i, (value, (shape, dtype)) in enumerate(zip(flat, self._signature.inputs, strict=True)):
            array = value if hasattr(value, "shape") and hasattr(value, "dtype") else np.asarray(value)
            if array.dtype != numpy_dtype(dtype) and not hasattr(value, "dtype"):
                array = array.astype(numpy_dtype(dtype))
            if tuple(array.shape) != shape or array.dtype != numpy_dtype(dtype):
                raise CompileError(
                    f"input {i} of {self._source.name} must be {dtype}{list(shape)}, "
                    f"got {array.dtype.name}{list(array.shape)}"
                )
            out.append(array)
        return out

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """The function's pytree from flat outputs."""
        import jax

        if self._signature.out_tree is not None:
            return jax.tree.unflatten(self._signature.out_tree, list(flat))
        return flat[0] if len(flat) == 1 else tuple(flat)

    def report(self) -> Report:
        """Time, traffic and energy by kernel, from the simulator."""
        if self._report is None:
            self._report = build_report(self._module, self.machine)
        return self._report

    def trace(self, path: str | Path) -> None:
        """Writes the timeline as Chrome/Perfetto trace-event JSON."""
        write_trace(self._module, self.machine, path)


class _as_compile_error:
    """Turns what the compiler's layers raise for bad programs into CompileError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PassError | FrontendError | VerifyException):
            raise CompileError(one_line(str(error))) from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection inside: a compilation makes many small objects that stay, and each collection would
    walk them all (a quarter of the time)."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def compile(
    source: Any,
    *args: Any,
    target: str = "ascend-910b1",
    options: Options | None = None,
) -> Program:
    """Compiles a program for a target.

    source: a JAX function with example `args` (arrays or jax.ShapeDtypeStruct, any pytree); StableHLO text or
    bytes; or the path of an .mlir file of StableHLO or any of our levels. Raises CompileError with one sentence
    for a program that cannot be compiled, MachineError for an unknown target.
    """
    Machine.load(target)
    origin = _source(source, args)
    options = options or Options()
    with _as_compile_error(), _collector_paused():
        module, signature = origin.lower()
        run_pipeline(module, target, schedule=pins_text(options.schedule))
        verify_module(module)
    return Program(origin, module, signature, target, options)


def _source(source: Any, args: Sequence[Any]) -> Source:
    if callable(source):
        name = getattr(source, "__name__", type(source).__name__)
        return Source(lambda: _from_function(source, _shapes(args)), name)
    if isinstance(source, Path) or (
        isinstance(source, str) and "\n" not in source and source.endswith((".mlir", ".tw"))
    ):
        path = Path(source)
        if not path.is_file():
            raise CompileError(f"{path}: no such file")
        content = path.read_bytes()
        return Source(lambda: _from_text(content, str(path)), path.name)
    if isinstance(source, str | bytes):
        content = source if isinstance(source, bytes) else source.encode()
        return Source(lambda: _from_text(content, None), "program")
    raise CompileError(f"cannot compile a {type(source).__name__}: give a function, StableHLO, or a path")


def _shapes(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with arrays replaced by their shapes, so that a Program does not keep weights alive."""
    import jax

    return jax.tree.map(
        lambda a: jax.typeof(a) if not isinstance(a, jax.ShapeDtypeStruct) else a, tuple(args)
    )


def _from_function(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[ModuleOp, Signature]:
    import jax

    from .dialects.dtypes import name_of_numpy

    structs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tuple(args))
    lowered = lower_function(fn, structs)
    inputs = tuple((tuple(a.shape), name_of_numpy(a.dtype)) for a in lowered.in_avals)
    return lowered.module, Signature(inputs, lowered.in_tree, lowered.out_tree)


def _from_text(content: bytes, filename: str | None) -> tuple[ModuleOp, Signature]:
    module = read_module(content, filename)
    return module, Signature(_main_inputs(module, filename or "the program"))


def read_module(content: bytes, filename: str | None) -> ModuleOp:
    """A module from StableHLO (text or bytecode) or the text of one of our levels. Raises CompileError."""
    if is_stablehlo(content):
        with _as_compile_error():
            return lower_stablehlo(content, filename)
    where = filename or "the program"
    try:
        module = parse_module(make_context(), content.decode(), where)
        verify_module(module)
    except UnicodeDecodeError:
        raise CompileError(f"{where}: neither text nor MLIR bytecode") from None
    except ParseError as e:
        raise CompileError(f"{e.span.get_location()}: {one_line(e.msg)}") from None
    except VerifyException as e:
        raise CompileError(str(e)) from None
    return module


def _main_inputs(module: ModuleOp, where: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    main = next((f for f in module.ops if isinstance(f, FuncOp) and f.sym_name.data == "main"), None)
    if main is None:
        raise CompileError(f"{where}: there is no function @main")
    out = []
    for t in main.function_type.inputs:
        if isinstance(t, TensorType):
            out.append((t.get_shape(), dtype_name(t.element_type)))
        elif isinstance(t, GmType):
            out.append((t.shape, dtype_name(t.element)))
        else:
            raise CompileError(f"{where}: @main takes {t}; it must take tensors")
    return tuple(out)


def jit(
    fn: Callable[..., Any] | None = None, *, target: str = "ascend-910b1", options: Options | None = None
) -> Callable[..., Any]:
    """Decorator: compiles `fn` on its first call for each structure, shape and dtype of its arguments."""
    if fn is None:
        return functools.partial(jit, target=target, options=options)
    programs: dict[Any, Program] = {}

    @functools.wraps(fn)
    def wrapped(*args: Any) -> Any:
        import jax
        import numpy as np

        leaves, tree = jax.tree.flatten(args)
        key = (tree, tuple((np.shape(v), jax.dtypes.result_type(v)) for v in leaves))
        if key not in programs:
            programs[key] = compile(fn, *args, target=target, options=options)
        return programs[key](*args)

    return wrapped


@dataclass
class Verification:
    """Largest error of each level against the reference, relative to the largest output.

    levels: {"graph", "tile", "npu typed", "npu bytes": error}; tolerance: what ok means; bitwise: whether both
    memory modes agree bit for bit.
    """

    tolerance: float
    levels: dict[str, float] = field(default_factory=dict)
    bitwise: bool = True

    @property
    def ok(self) -> bool:
        return self.bitwise and all(e <= self.tolerance for e in self.levels.values())


TOLERANCE = {1: 2e-1, 2: 2e-2, 4: 1e-4, 8: 1e-4}
"""Largest error relative to the largest output, by the bytes of the narrowest float that takes part."""


def verify(
    source: Callable[..., Any] | Any,
    *args: Any,
    target: str = "ascend-910b1",
    levels: Sequence[str] = ("graph", "tile", "npu typed", "npu bytes"),
    program: Program | None = None,
) -> Verification:
    """Runs a program at each of `levels` it has and compares with JAX (a function) or with the highest level
    the source has (other sources)."""
    from .backends.interpreter import run_graph, run_tile

    program = program or compile(source, *args, target=target)
    flat = program.flatten(args)
    result = Verification(_tolerance(program))
    if callable(source):
        import jax

        reference = jax.tree.leaves(jax.jit(source)(*args))
    else:
        reference = None
    runs: dict[str, Callable[[], Sequence[Any]]] = {
        "graph": lambda: run_graph(program.module("graph"), *flat),
        "tile": lambda: run_tile(program.module("tile"), program.machine, *flat),
        "npu typed": lambda: program.executable("typed")(*flat),
        "npu bytes": lambda: program.executable("bytes")(*flat),
    }
    outputs: dict[str, Sequence[Any]] = {}
    has = program.levels
    if reference is None:
        reference = next(run() for level, run in runs.items() if level.split()[0] in has)
    for level in levels:
        if level.split()[0] not in has:
            continue
        outputs[level] = runs[level]()
        result.levels[level] = relative_error(outputs[level], reference)
    if "npu typed" in outputs and "npu bytes" in outputs:
        result.bitwise = _same_bits(outputs["npu typed"], outputs["npu bytes"])
    return result


def _tolerance(program: Program) -> float:
    """The tolerance of the narrowest float that any kernel reads or writes."""
    narrow = {itemsize(dtype) for _, dtype in program._signature.inputs if dtype[0] in "fb"}
    for op in program.module().ops:
        if isinstance(op, KernelOp):
            types = [a.type for a in op.body.block.args]
            narrow |= {itemsize(t.element) for t in types if isinstance(t, GmType) and is_float(t.element)}
    return TOLERANCE[min(narrow, default=4)]


def relative_error(outputs: Sequence[Any], reference: Sequence[Any]) -> float:
    """Largest |output - reference| over the largest finite |reference|; inf where NaN or shapes differ."""
    import numpy as np

    worst = 0.0
    for got, want in zip(outputs, reference, strict=True):
        a, b = np.asarray(got), np.asarray(want)
        if a.shape != b.shape:
            return float("inf")
        if a.dtype.kind in "biu":
            worst = max(worst, float((a != b).any()) if a.size else 0.0)
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if same.all():
            continue
        finite = np.abs(b[np.isfinite(b)])
        scale = float(finite.max()) if finite.size else 1.0
        difference = np.abs(a - b)[~same]
        if not np.isfinite(difference).all():
            return float("inf")
        worst = max(worst, float(difference.max()) / (scale or 1.0))
    return worst


def _same_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    import numpy as np

    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(first, second, strict=True))
