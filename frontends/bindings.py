"""Everything the package uses of jaxlib's MLIR bindings, which are semi-private and change with its releases.

Importing this module loads jaxlib, but not jax.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxlib import xla_client
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from ..dialects import callbacks
from ..dialects.base import NODE
from ..dialects.dtypes import numpy_dtype
from ..dialects.graph.extents import BOUNDED
from .attributes import (
    Op,
    Value,
    compare_type,
    conv_dimensions,
    direction,
    dot_dimensions,
    gather_dimensions,
    int_array,
    int_attribute,
    literal,
    padding,
    rng_algorithm,
    scatter_dimensions,
    string,
    value_key,
)
from .errors import FrontendError
from .isolation import isolate, nested, owner

DYNAMIC: int = ir.ShapedType.get_dynamic_size()
"""The size that stands for an unknown one in a shape."""

_CONFIG = "mhlo.backend_config"

_ELEMENTS = {"complex<f32>": "c64", "complex<f64>": "c128"}


# -- modules -----------------------------------------------------------------------------------------------


@functools.cache
def context() -> ir.Context:
    """The MLIR context that text and bytecode are parsed in."""
    made, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    stablehlo.register_dialect(made)
    chlo.register_dialect(made)
    sdy.register_dialect(made)
    mhlo.register_mhlo_dialect(made)
    return made


def parse(source: str | bytes, filename: str | None) -> ir.Module:
    """Parse text, MLIR bytecode or a portable artifact. Raises FrontendError if it is none of these."""
    said: list[tuple[str, str]] = []

    def listen(diagnostic: Any) -> bool:
        said.append((diagnostic.message, str(diagnostic.location)))
        return True

    # Without a handler, deserialization writes its complaints to stderr.
    handler: Any = context().attach_diagnostic_handler(listen)
    try:
        if "!quant." in source if isinstance(source, str) else b"!quant." in source:
            _load_quantized_types()
        if isinstance(source, bytes) and source.startswith(b"ML\xefR"):
            return stablehlo.deserialize_portable_artifact(context(), source)
        return ir.Module.parse(source, context())
    except ir.MLIRError as e:
        said += [(d.message, str(d.location)) for d in e.error_diagnostics]
        raise FrontendError(_complaint(said, filename, source)) from None
    except ValueError:  # what deserialization raises
        raise FrontendError(_complaint(said, filename, source)) from None
    finally:
        handler.detach()


def _complaint(said: list[tuple[str, str]], filename: str | None, source: str | bytes) -> str:
    message, location = said[0] if said else ("", "")
    at = re.search(r":(\d+):(\d+)", location)
    place = f":{at.group(1)}:{at.group(2)}" if at and at.group(1) != "0" else ""
    reason = f": {message.strip().splitlines()[0].split('. ')[0]}" if message.strip() else ""
    if "operation being parsed with an unregistered dialect" in message and at:
        # MLIR points behind the name, and does not say it.
        text = source if isinstance(source, str) else source.decode(errors="replace")
        before = text.splitlines()[int(at.group(1)) - 1][: int(at.group(2))]
        names = re.findall(r"[A-Za-z_]\w*\.[\w.$]+", before)
        reason = f": '{names[-1]}' is an operation of an unknown dialect" if names else reason
    return f"{filename or 'input'}{place}: not valid StableHLO{reason}"


def functions(module: ir.Module) -> dict[str, Op]:
    """The functions of a module by symbol name."""
    return {string(op, "sym_name"): op for op in module.body.operations if op.operation.name == "func.func"}


def number_callbacks(module: ir.Module, functions: Sequence[callbacks.Callback]) -> None:
    """Gives calls of Python functions, which JAX numbers by their place in a list beside the module, numbers that hold
    in the whole process."""
    numbers = [callbacks.register(function) for function in functions]
    with module.context:
        for op in nested(module.operation) if numbers else ():
            place = _callback_place(op)
            if place is not None:
                number = ir.IntegerAttr.get(ir.IntegerType.get_unsigned(64), numbers[place])
                op.attributes[_CONFIG] = ir.DictAttr.get({callbacks.KEY: number})


def sets_size(op: Op) -> bool:
    """Whether an op says how many elements along a dimension count."""
    named = {"stablehlo.composite": "name", "stablehlo.custom_call": "call_target_name"}.get(
        op.operation.name
    )
    if named is not None:
        return string(op, named) == BOUNDED
    return op.operation.name == "stablehlo.set_dimension_size"


def calls_numbered(op: Op) -> bool:
    """Whether a custom call is of a Python function that has a number."""
    return _CONFIG in op.attributes and callbacks.KEY in ir.DictAttr(op.attributes[_CONFIG])


def mark_attributes(op: Op) -> tuple[int, bool]:
    """The dimension that `tw.bounded` marks, and whether no more count along it than did before."""
    found = op.attributes
    if "composite_attributes" in found:
        found = ir.DictAttr(found["composite_attributes"])
    dimension, within = (int(ir.IntegerAttr(found[name]).value) for name in ("dimension", "within"))
    return dimension, bool(within)


def has_side_effect(op: Op) -> bool:
    """Whether a custom call may do more than compute its results."""
    return "has_side_effect" in op.attributes and bool(ir.BoolAttr(op.attributes["has_side_effect"]).value)


def _callback_place(op: Op) -> int | None:
    name = op.operation.name
    if name != "stablehlo.custom_call" or "callback" not in string(op, "call_target_name"):
        return None
    if _CONFIG not in op.attributes:
        return None
    config = ir.DictAttr(op.attributes[_CONFIG])
    return int(ir.IntegerAttr(config["index"]).value) if "index" in config else None


def fold_shapes(module: ir.Module) -> ir.Module | None:
    """A copy in which shapes that follow from the inputs' are static; None where that is impossible."""
    register_passes()
    with module.context:
        copy = ir.Module.parse(bytecode(module))
        refine_marks(copy)
        try:
            passmanager.PassManager.parse(
                "builtin.module(inline,stablehlo-refine-shapes,"
                "func.func(stablehlo-canonicalize-dynamism),stablehlo-refine-shapes)"
            ).run(copy.operation)
        except ir.MLIRError:
            return None
    return copy


def refine_marks(module: ir.Module) -> None:
    """Makes custom calls, whose shapes MLIR refines, of the composites that `tw.bounded` becomes, in place."""
    i32, i64 = (ir.IntegerType.get_signless(n, module.context) for n in (32, 64))
    for op in list(nested(module.operation)):
        if op.operation.name != "stablehlo.composite" or not sets_size(op):
            continue
        x, n = op.operands
        with ir.InsertionPoint(op), op.location:
            one = ir.RankedTensorType.get([1], i32)
            sizes = [
                stablehlo.reshape(one, stablehlo.GetDimensionSizeOp(x, d).result) for d in range(x.type.rank)
            ]
            attributes = {
                "call_target_name": ir.StringAttr.get(BOUNDED),
                **dict(zip(("dimension", "within"), (ir.IntegerAttr.get(i64, v) for v in mark_attributes(op)))),
                "indices_of_shape_operands": ir.Attribute.parse("dense<2> : tensor<1xi64>"),
            }
            operands = [x, n, stablehlo.concatenate(sizes, 0)]
            call = ir.Operation.create("stablehlo.custom_call", [x.type], operands, attributes=attributes)
        op.results[0].replace_all_uses_with(call.results[0])
        op.operation.erase()


@functools.cache
def _load_quantized_types() -> None:
    """Make `!quant.uniform` known to the context: the bindings have no function for it, but this pass depends on
    the dialect, and so loads it."""
    register_passes()
    with context():
        passmanager.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)").run(
            ir.Module.parse("module {}").operation
        )


def host_targets() -> frozenset[str]:
    """The custom calls that are registered with the host's runtime."""
    return frozenset(xla_client.custom_call_targets("Host"))


def bytecode(module: ir.Module) -> bytes:
    """A module as bytecode."""
    import io

    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def portable(module: ir.Module) -> bytes:
    """A module as a portable artifact of StableHLO. Its places are those of the user's files, without folders: it is
    the same wherever these lie. Raises FrontendError for what has no such form."""
    for op in nested(module.operation):
        op.location = _without_folder(op.location)
        for argument in (argument for region in op.regions for block in region.blocks for argument in block.arguments):
            argument.set_location(_without_folder(argument.location))
    try:
        return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)
    except ValueError as error:
        raise FrontendError(f"the program has no portable form in StableHLO: {error}") from None


def _without_folder(location: Any) -> Any:
    """The name of a location, and the user's place in it with the file's name alone."""
    frame = user_frame(location)
    found = ir.Location.unknown(context())
    if frame is not None:
        found = ir.Location.file(Path(frame.file).name, frame.line, frame.column, context())
        if frame.node:
            found = ir.Location.name(frame.node, found, context())
    name = location.name_str if isinstance(location, ir.NameLoc) else ""
    return ir.Location.name(name, found, context()) if name and not (frame and frame.node == name) else found


@functools.cache
def register_passes() -> None:
    """Make StableHLO's passes known, once in a process."""
    stablehlo.register_stablehlo_passes()


# -- locations ---------------------------------------------------------------------------------------------


class SourceFrame(NamedTuple):
    """A place in a file. node: the mark and the name of the model's node that is there; empty where it is none."""

    file: str
    line: int
    column: int
    node: str


def user_frame(location: Any) -> SourceFrame | None:
    """The innermost frame of the user's; None where ours that call JAX come before any: behind these is no line of the
    program's."""
    found = next((f for f in _frames(location) if not _in_jax(f.file)), None)
    return None if found is None or found.file.startswith(_CALLERS) else found


def _frames(location: Any, name: str = "") -> Iterator[SourceFrame]:
    """The frames of a location, the innermost first. name: that of the location around it."""
    match location:  # the bindings give each location its own class
        case ir.FileLineColLoc():
            node = name if name.startswith(NODE) else ""
            yield SourceFrame(location.filename, location.start_line, location.start_col, node)
        case ir.NameLoc():
            yield from _frames(location.child_loc, location.name_str)
        case ir.CallSiteLoc():
            yield from _frames(location.callee)
            yield from _frames(location.caller)
        case ir.FusedLoc():
            for part in location.locations:
                yield from _frames(part)
        case _:
            return


_ROOT = Path(__file__).parents[1]
_BETWEEN = tuple(
    str(_ROOT / name)
    for name in ("frontends/custom.py", "frontends/bounding.py", "frontends/onnx/", "api/sizes/bounded.py", "training/")
)
"""Where functions of ours are that programs call, or that compute the nodes of ONNX models: they stand between JAX and
the user, too."""

_CALLERS = tuple(
    str(_ROOT / name) + os.sep
    for name in ("api", "backends", "calibration", "cli", "compression", "frontends", "pruning", "quantization")
)
"""Where JAX is asked to trace programs."""


def _in_jax(filename: str) -> bool:
    between = filename.startswith(_BETWEEN)
    return between or "/jax/_src/" in filename or "/site-packages/jax/" in filename


def primitive(op: Op) -> str:
    """The JAX primitive that an op came from, as its location says; "" where it does not."""
    location = op.location
    name = location.name_str if isinstance(location, ir.NameLoc) else ""
    return name.rstrip(":").rpartition("/")[2]


def given_name(value: Value) -> str | None:
    """The name that JAX gave an argument in its location, such as `params['w']`."""
    location = value.location
    return location.name_str if isinstance(location, ir.NameLoc) else None


def donated_arguments(function: Op) -> list[bool]:
    """For each argument of a function, whether its buffer is given to the program: JAX says `tf.aliasing_output` where
    it has a result for it, and `jax.buffer_donor` where the compiler is to find one."""
    found = dict(function.attributes).get("arg_attrs", ())
    return [
        "tf.aliasing_output" in attrs or ("jax.buffer_donor" in attrs and attrs["jax.buffer_donor"].value)
        for attrs in found
    ]


def contents(module: ir.Module) -> str:
    """All that frontends read of a module: its text, and the places and names of its ops and arguments. It is the same
    wherever JAX was called from."""
    known: dict[Any, str] = {}

    def said(location: Any) -> str:
        found = known.get(location)
        if found is None:
            name = location.name_str if isinstance(location, ir.NameLoc) else ""
            found = known[location] = f"{name} {user_frame(location)}"
        return found

    lines = [text_of(module)]
    for op in nested(module.operation):
        lines.append(said(op.location))
        for region in op.regions:
            lines += [said(argument.location) for block in region for argument in block.arguments]
    return "\n".join(lines)


def tensor_parts(type_: ir.Type) -> tuple[tuple[int, ...], str] | None:
    """Shape (with DYNAMIC where unknown) and element type's name; None for what is not a ranked tensor."""
    if not isinstance(type_, ir.RankedTensorType):
        return None
    element = str(type_.element_type)
    return tuple(type_.shape), _ELEMENTS.get(element, element)


def bounds(type_: ir.Type) -> tuple[int | None, ...]:
    """The most that each dimension of a tensor type may be, as `#stablehlo.bounds` says; None where it does not."""
    if not isinstance(type_, ir.RankedTensorType):
        return ()
    said = re.findall(r"-?\d+|\?", str(type_.encoding)) if type_.encoding is not None else []
    limits = tuple(int(n) if n.isdigit() else None for n in said)
    return limits if len(limits) == type_.rank else (None,) * type_.rank


# -- single ops --------------------------------------------------------------------------------------------


def scalar_constant(op: Op) -> float | None:
    """The number of a constant op of one element; None where the bindings cannot give it, or there are more."""
    key, parts = value_key(op), tensor_parts(op.results[0].type)
    if key is None or parts is None or math.prod(parts[0]) != 1:
        return None
    value = literal(key, parts[0], numpy_dtype(parts[1])).array().item()
    return float(value) if isinstance(value, int | float) else None


def single_op(region: Any) -> tuple[str | int, ...] | None:
    """The name of the op without attributes that a region consists of, which gives what it makes of arguments, and the
    numbers of these; None for other regions."""
    ops = region.blocks[0].operations
    if len(ops) != 2:
        return None
    only, end = ops
    arguments = [v for v in only.operands if isinstance(v, ir.BlockArgument)]
    given = list(end.operands)
    if len(only.attributes) or len(arguments) != len(only.operands) or given != list(only.results):
        return None
    if len(only.operation.regions) or any(v.owner != region.blocks[0] for v in arguments):
        return None
    return (only.operation.name, *(v.arg_number for v in arguments))


def text_of(module: ir.Module) -> str:
    """The whole text of a module, without locations."""
    return str(module.operation.get_asm(enable_debug_info=False))


def unverified_text_of(module: ir.Module) -> str:
    """The same of a module whose shapes need not fit together."""
    return str(module.operation.get_asm(enable_debug_info=False, assume_verified=True))


def is_valid(module: ir.Module) -> bool:
    """Whether MLIR finds a module right, as one whose shapes fit together is."""
    try:
        return module.operation.verify()
    except ir.MLIRError:
        return False


def expand_functions(module: ir.Module) -> bool:
    """Rewrite the CHLO ops of a module with StableHLO's own, and functions of complex numbers with those of real ones
    where StableHLO says how, in place; False where a CHLO op has no expansion."""
    register_passes()
    with module.context:
        try:
            passmanager.PassManager.parse(
                "builtin.module(func.func(chlo-legalize-to-stablehlo,stablehlo-complex-math-expander))"
            ).run(module.operation)
        except ir.MLIRError:
            return False
    return True


def operations(module: ir.Module) -> list[Op]:
    """All ops inside a module's functions."""
    return [op for function in module.body.operations for op in nested(function)]


__all__ = [
    "DYNAMIC",
    "Op",
    "Value",
    "bounds",
    "calls_numbered",
    "compare_type",
    "contents",
    "context",
    "conv_dimensions",
    "direction",
    "donated_arguments",
    "dot_dimensions",
    "expand_functions",
    "fold_shapes",
    "functions",
    "gather_dimensions",
    "given_name",
    "has_side_effect",
    "is_valid",
    "host_targets",
    "int_attribute",
    "int_array",
    "isolate",
    "literal",
    "mark_attributes",
    "nested",
    "number_callbacks",
    "operations",
    "owner",
    "padding",
    "parse",
    "primitive",
    "refine_marks",
    "rng_algorithm",
    "scalar_constant",
    "sets_size",
    "scatter_dimensions",
    "string",
    "single_op",
    "tensor_parts",
    "text_of",
    "unverified_text_of",
    "user_frame",
    "value_key",
]
