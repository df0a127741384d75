"""The inputs of a SOURCE on the command line: from its own function, from a file, or random ones of given shapes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from ..api.files.names import named_file
from ..support.files import NOT_ARRAYS, open_plain
from ..support.sentences import suggestion
from .common import CliError, os_message
from .source import SourceSpec, user_code

if TYPE_CHECKING:
    import numpy as np

SEED = 0
"""Random inputs are the same in every run."""

Spec = tuple[tuple[int, ...], str]
"""Shape and element type of an input."""

OpenSpec = tuple[tuple[int | str, ...], str]
"""The same, with open dimensions as text."""

Bounds = tuple[int, int | None]
"""Least and greatest value of an open dimension; None: there is none."""


def example_inputs(
    source: SourceSpec,
    shapes: str | None,
    file: str | None,
    values: bool = True,
    where: str | None = None,
    scale: float = 1.0,
) -> list[Any] | None:
    """Arguments for a source: from `--shapes`, from `--inputs`, or from `<fn>_inputs()`; None for an .mlir
    file without either, whose inputs follow from @main. Without `values` those of the first two are
    jax.ShapeDtypeStructs: nothing is drawn, and of a file only the headers are read. Where dimensions are open they
    are jax.ShapeDtypeStructs, too, with symbolic shapes, of which `--where` says more. scale: of random floats. Raises
    CliError."""

    def make(specs: Sequence[Spec]) -> list[Any]:
        return list(random_inputs(specs, scale)) if values else input_structs(specs)

    if shapes is not None and file is not None:
        raise CliError("give either --shapes or --inputs")
    args: list[Any]
    dimensions = None if shapes is None else parse_dimensions(shapes)
    if dimensions is not None and source.path.suffix == ".onnx":
        raise CliError(f"--shapes {shapes}: an .onnx model names its open dimensions itself; say --at {shapes}")
    if dimensions is not None and source.path.suffix in (".py", ".mlir", ".mlirbc"):
        raise CliError(f"--shapes {shapes}: only .tw functions have dimensions with names; {_SHAPES}")
    if where is not None and (shapes is None or dimensions is not None):
        raise CliError(f"--where {where}: it is about the symbols in --shapes, as in --shapes 'f32[b,8*s]'")
    if dimensions is not None:
        args = _of_dimensions(source, dimensions, make)
    elif shapes is not None:
        specs = parse_shapes(shapes)
        known = known_shapes(specs)
        if known is None:
            args = _open_inputs(source, specs, shapes, where)
        elif where is not None:
            raise CliError(f"--where {where}: --shapes {shapes} has no symbols")
        else:
            args = make(known)
    elif file is not None:
        args = _of_file(source, _read_inputs(file) if values else _read_types(file))
    elif source.fn is None and _is_closed_file(source):
        from ..api.sources import input_types

        args = _of_file(source, make(input_types(str(source.path))))
    elif source.fn is None:
        return None
    else:
        args = _own_inputs(source, values, scale)
    check_takes(source, args)
    return args


def _is_closed_file(source: SourceSpec) -> bool:
    """Whether a source is a function of a model file whose sizes are all known."""
    named = named_file(source.path)
    if named is None:
        return False
    from ..api.files.reading import ModelFile

    return not ModelFile(named[0]).entry(named[1])[1].open


def _of_file(source: SourceSpec, flat: list[Any]) -> list[Any]:
    """Flat inputs as the arguments of a source: others than those of a model file are so already."""
    named = named_file(source.path)
    if named is None:
        return flat
    from ..api.files.reading import ModelFile

    return ModelFile(named[0]).arguments(named[1], flat)


def _of_dimensions(
    source: SourceSpec, dimensions: dict[str, int | Bounds], make: Callable[[Sequence[Spec]], list[Any]]
) -> list[Any]:
    """Inputs of a .tw function, which `make` has for types; types with symbolic shapes where a dimension is open."""
    from ..api.sizes.sources import tw_arguments
    from ..api.sources import tw_input_types

    known = {name: n for name, n in dimensions.items() if isinstance(n, int)}
    if known.keys() < dimensions.keys():
        return tw_arguments(str(source.path), dimensions)
    return make(tw_input_types(str(source.path), known))


def _open_inputs(source: SourceSpec, specs: Sequence[OpenSpec], shapes: str, where: str | None) -> list[Any]:
    """Types with symbolic shapes, of one scope."""
    import jax

    from ..api.arguments.specs import symbolic_shapes
    from ..dialects.dtypes import numpy_dtype

    if source.content is not None or source.path.suffix in (".mlir", ".mlirbc"):
        raise CliError(
            f"--shapes {shapes}: open dimensions of an .mlir program are those that it writes as ?"
        )
    constraints = [] if where is None else _constraints(where)
    made = symbolic_shapes([dims for dims, _ in specs], constraints, "--where" if constraints else "--shapes")
    return [
        jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, (_, dtype) in zip(made, specs, strict=True)
    ]


def _constraints(text: str) -> list[str]:
    """`s <= 2048, mod(s, 8) == 0` as constraints."""
    try:
        listed = ast.parse(f"({text},)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        listed = None
    if not isinstance(listed, ast.Tuple):
        raise CliError(f"cannot read --where {text}; write 's <= 2048, mod(s, 8) == 0'")
    return [ast.unparse(node) for node in listed.elts]


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


def _own_inputs(source: SourceSpec, values: bool, scale: float) -> list[Any]:
    if source.path.suffix == ".onnx":
        return _inputs_of_model(source, values, scale)
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


def _inputs_of_model(source: SourceSpec, values: bool, scale: float) -> list[Any]:
    """Inputs of the types that an ONNX model says; types alone where dimensions are open."""
    from ..api.onnx_sources import example_of
    from ..dialects.dtypes import name_of_numpy

    fn: Any = source.fn
    made = example_of(fn)
    if not values or not all(isinstance(n, int) for one in made for n in one.shape):
        return made
    return list(random_inputs([(one.shape, name_of_numpy(one.dtype)) for one in made], scale))


def _read_inputs(file: str) -> list[Any]:
    return [*read_arrays(file).values()]


def read_arrays(file: str) -> dict[str, Any]:
    """The arrays of an .npz file by their names. Raises CliError."""
    import numpy as np

    with _npz(file), open_plain(file) as content, np.load(content, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


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

    with _npz(file), open_plain(file) as content, ZipFile(content) as arrays:
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
    except (OSError, *NOT_ARRAYS) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise CliError(os_message(error)) from None
        raise CliError(f"{file}: not an .npz file of arrays") from None


_SHAPES = "write f32[8,128],i32[4]; for the dimensions of a .tw function N=8,M=64"


def parse_dimensions(text: str) -> dict[str, int | Bounds] | None:
    """`N=8,T=?,S=1..2048`, the symbolic dimensions of a .tw function: a size, any, or bounds; None where the text is a
    list of shapes."""
    if "=" not in text or "[" in text.partition("=")[0]:
        return None
    found: dict[str, int | Bounds] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^\W\d]\w*)\s*=\s*(?:(\d+)|(\?)|(\d+)\s*\.\.\s*(\d+))\s*", part)
        if match is None:
            raise CliError(f"cannot read '{part.strip()}' in --shapes; {_SHAPES}")
        name, number, any_, low, high = match.groups()
        value = int(number) if number is not None else (0, None) if any_ else (int(low), int(high))
        if not isinstance(value, int) and value[1] is not None and value[1] < value[0]:
            raise CliError(f"--shapes {name}={low}..{high}: there is no size from {low} to {high}")
        if found.setdefault(name, value) != value:
            before, now = (_shown(v) for v in (found[name], value))
            raise CliError(f"--shapes says {name}={before} and {name}={now}")
    return found


def _shown(value: int | Bounds) -> str:
    if isinstance(value, int):
        return str(value)
    return "?" if value[1] is None else f"{value[0]}..{value[1]}"


_NO_DIMS = re.compile(r"(?<![A-Za-z_\d])\d+[A-Za-z_.]|,\]")
"""What Python reads as a number or a list, and is none here."""


def parse_shapes(text: str) -> list[OpenSpec]:
    """`f32[8,128],i32[b,8*s],f16[]` as shapes and element types. Raises CliError."""
    from ..api.arguments.specs import parse_dims
    from ..dialects.dtypes import names, numpy_dtype
    from ..passes.errors import CompileError

    out: list[OpenSpec] = []
    for part in filter(None, re.split(r",(?![^\[]*\])", text.replace(" ", ""))):
        match = None if _NO_DIMS.search(part) else re.fullmatch(r"([A-Za-z]\w*)(?:\[([^\[\]]*)\])?", part)
        dims: list[Any] = []
        try:
            dims = parse_dims(match[2] or "", "--shapes") if match is not None else []
        except CompileError:
            match = None
        if (
            match is None
            or None in dims
            or Ellipsis in dims
            or any(isinstance(n, int) and n < 0 for n in dims)
        ):
            raise CliError(f"cannot read '{part}' in --shapes; {_SHAPES}")
        try:
            numpy_dtype(match[1])
        except KeyError:
            known = suggestion(match[1].lower(), names()) or f"; known are {', '.join(names())}"
            raise CliError(
                f"unknown element type '{match[1]}' in --shapes{_of_numpy(match[1]) or known}"
            ) from None
        out.append((tuple(dims), match[1]))
    if not out:
        raise CliError(f"--shapes is empty; {_SHAPES}")
    return out


def known_shapes(specs: Sequence[OpenSpec]) -> list[Spec] | None:
    """The same shapes where no dimension is open, and None else."""
    known = [(tuple(n for n in dims if isinstance(n, int)), dtype) for dims, dtype in specs]
    return known if all(len(a) == len(b) for (a, _), (b, _) in zip(known, specs, strict=True)) else None


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


def random_inputs(specs: Sequence[Spec], scale: float = 1.0) -> list[np.ndarray]:
    """Arrays of these shapes, the same in every run: normal floats, small integers. Matrices behind the first input,
    which are most often weights, are divided by the root of their rows, so that sums over these stay as large as what
    they are of. scale: what all floats are multiplied by."""
    import math

    import numpy as np

    from ..dialects.dtypes import numpy_dtype

    rng = np.random.default_rng(SEED)

    def make(i: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        size = scale / math.sqrt(max(shape[-2], 1)) if i and len(shape) > 1 else scale
        if dtype[0] in "fb":
            values = size * rng.standard_normal(shape)
        elif dtype[0] == "c":
            values = size * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
        else:
            bits = int(dtype.lstrip("ui"))
            # i8 and narrower are data, wider ones are most often indices
            half = 1 << bits - 1
            low, high = (-half, half) if dtype in ("i2", "i4", "i8") else (0, min(10, 2 * half))
            values = rng.integers(low, high, shape)
        return np.asarray(values).astype(numpy_dtype(dtype))

    made = []
    for i, (shape, dtype) in enumerate(specs):
        try:
            made.append(make(i, shape, dtype))
        except (MemoryError, ValueError, OverflowError):  # ValueError: more elements than numpy can count
            raise CliError(
                f"an input of {dtype}[{','.join(map(str, shape))}] does not fit in memory"
            ) from None
    return made
