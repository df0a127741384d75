"""StableHLO with open dimensions: what decides them, and the program for given sizes.

A dimension written `?` is open. Those of @main's arguments follow from the arrays that it is called with; all others
from these, and from the values of the integers that a program takes as sizes (*dimension arguments*): what
`dynamic_reshape` and its like read, and what that is computed from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]  # it has no stubs
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import func, stablehlo

from . import bindings
from .attributes import Op, int_array, string
from .bindings import Value
from .errors import FrontendError
from .open_numbers import may_be_sizes
from .open_shapes import SHAPE_OPERANDS_OF_CALLS

SHAPE_OPERANDS: dict[str, slice] = {
    "stablehlo.dynamic_broadcast_in_dim": slice(1, 2),
    "stablehlo.dynamic_conv": slice(2, 3),
    "stablehlo.dynamic_gather": slice(2, 3),
    "stablehlo.dynamic_iota": slice(0, 1),
    "stablehlo.dynamic_pad": slice(2, 5),
    "stablehlo.dynamic_reshape": slice(1, 2),
    "stablehlo.real_dynamic_slice": slice(1, 4),
}
"""Which operands of an op are sizes or positions that decide the shapes of its results."""

ASSERTION = "shape_assertion"
"""The custom call by which JAX says what must hold of sizes."""


@dataclass(frozen=True)
class OpenInput:
    """An argument of @main: its dimensions, None where they are open; the most that these may be, where it is said; its
    element type; whether its values decide shapes."""

    shape: tuple[int | None, ...]
    limits: tuple[int | None, ...]
    dtype: str
    decides: bool

    @property
    def is_open(self) -> bool:
        """Whether the program depends on its size, or on its values."""
        return self.decides or None in self.shape


def open_inputs(module: ir.Module) -> list[OpenInput]:
    """The arguments of @main. Raises FrontendError where there is no @main, or its arguments have no rank."""
    main = bindings.functions(module).get("main")
    if main is None or not len(main.regions[0].blocks):
        raise FrontendError("the module has no function @main")
    deciding = _deciding(module)
    return [_input(a, i in deciding) for i, a in enumerate(main.regions[0].blocks[0].arguments)]


def _input(argument: Value, decides: bool) -> OpenInput:
    kind = argument.type
    if not isinstance(kind, ir.RankedTensorType):
        raise FrontendError(f"@main takes {kind}; it must take tensors whose ranks are known")
    open_ = [kind.is_dynamic_dim(d) for d in range(kind.rank)]
    shape = tuple(None if o else kind.get_dim_size(d) for d, o in enumerate(open_))
    parts = bindings.tensor_parts(kind)
    assert parts is not None
    return OpenInput(shape, bindings.bounds(kind), parts[1], decides)


# -- which arguments are sizes -----------------------------------------------------------------------------


def _deciding(module: ir.Module) -> frozenset[int]:
    """The arguments of @main whose values decide shapes: backwards from the shapes that ops read."""
    functions = bindings.functions(module)
    calls: dict[str, list[Op]] = {}
    work: list[Value] = []
    for op in bindings.nested(module.operation):
        name = op.operation.name
        if name == "func.call":
            calls.setdefault(_callee(op), []).append(op)
        work += _sizes_read(op)
    found: set[int] = set()
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        owner = value.owner
        if isinstance(owner, ir.Block):
            parent = owner.owner
            number = ir.BlockArgument(value).arg_number
            if parent.operation.name != "func.func":
                work += parent.operands  # what a loop or a branch takes
                work += [v for block in _blocks(parent) for v in _returned(block)]
            elif string(parent, "sym_name") == "main":
                found.add(number)
            else:
                work += [call.operands[number] for call in calls.get(string(parent, "sym_name"), ())]
            continue
        name = owner.operation.name if hasattr(owner, "operation") else owner.name
        if name == "func.call":
            callee = functions[_callee(owner)]
            work.append(_returned(callee.regions[0].blocks[0])[ir.OpResult(value).result_number])
        elif name != "stablehlo.get_dimension_size":
            work += owner.operands
            work += [v for block in _blocks(owner) for v in _returned(block)]
    main = functions["main"].regions[0].blocks[0].arguments
    return frozenset(i for i in found if _may_be_size(main[i].type))


def _sizes_read(op: Op) -> list[Value]:
    name = op.operation.name
    if name in SHAPE_OPERANDS:
        return list(op.operands)[SHAPE_OPERANDS[name]]
    if name == "stablehlo.custom_call" and "indices_of_shape_operands" in op.attributes:
        return [op.operands[i] for i in int_array(op, "indices_of_shape_operands")]
    return list(op.operands) if is_assertion(op) else []


def is_assertion(op: Op) -> bool:
    """Whether an op is the custom call by which JAX says what must hold of sizes."""
    return op.operation.name == "stablehlo.custom_call" and string(op, "call_target_name") == ASSERTION


def _callee(call: Any) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _blocks(op: Any) -> Iterator[ir.Block]:
    for region in op.regions:
        yield from region.blocks


def _returned(block: ir.Block) -> list[Value]:
    return list(block.operations[len(block.operations) - 1].operands)


def _may_be_size(kind: Any) -> bool:
    """Whether an argument may hold sizes: a few integers."""
    return may_be_sizes(kind) and kind.element_type.width > 1


# -- the program for given sizes ---------------------------------------------------------------------------


def refine(
    module: ir.Module, shapes: Sequence[tuple[int, ...]], values: Mapping[int, np.ndarray], name: str
) -> ir.Module:
    """A copy of a module for arguments of these shapes, of which some have these values (by position).

    Raises FrontendError where a shape depends on more than these, or where an assertion of the program does not hold;
    `name` is what messages call the program.
    """
    with module.context, ir.Location.unknown(module.context):
        copy = ir.Module.parse(bindings.bytecode(module))
        _drop_bounds(copy)
        bindings.refine_marks(copy)
        block = bindings.functions(copy)["main"].regions[0].blocks[0]
        for i, value in values.items():
            with ir.InsertionPoint.at_block_begin(block):
                constant = stablehlo.ConstantOp(_dense(value, block.arguments[i].type))
            block.arguments[i].replace_all_uses_with(constant.result)
        types = ",".join(map(str, _types(block.arguments, shapes)))
        bindings.register_passes()
        arguments = passmanager.PassManager.parse(
            f"builtin.module(stablehlo-refine-arguments{{types={types}}})"
        )
        try:
            arguments.run(copy.operation)
            refined = _refined(copy)
        except (ir.MLIRError, RuntimeError) as error:  # the bindings raise both
            said = _assertion(str(error)) or _violated(copy) or _reason(str(error))
            raise FrontendError(f"{name}: {said}") from None
        problem = _still_open(refined)
    if problem:
        raise FrontendError(f"{name}: {problem}")
    return refined


def _drop_bounds(module: ir.Module) -> None:
    """Takes the bounds from all types, which MLIR does not refine where it refines the shape. They say something of
    the arguments alone, unless the program sets the size of a dimension itself."""
    ops = list(bindings.nested(module.operation))
    if any(op.operation.name == "stablehlo.set_dimension_size" for op in ops):
        return
    for op in ops:
        values = [*op.results, *(a for block in _blocks(op) for a in block.arguments)]
        for value in values:
            value.set_type(_plain(value.type))
        if op.operation.name == "func.func":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            plain = ir.FunctionType.get([*map(_plain, kind.inputs)], [*map(_plain, kind.results)])
            op.attributes["function_type"] = ir.TypeAttr.get(plain)


def _plain(kind: ir.Type) -> ir.Type:
    """A type without the bounds of its dimensions."""
    if not isinstance(kind, ir.RankedTensorType) or kind.encoding is None:
        return kind
    return ir.RankedTensorType.get(kind.shape, kind.element_type)


def _refined(module: ir.Module) -> ir.Module:
    """The module with all shapes that follow from those of its arguments, calls inlined, and assertions checked."""
    made = _jax.mlir.refine_polymorphic_shapes(
        bindings.bytecode(module), enable_shape_assertions=True, validate_static_shapes=False
    )
    return ir.Module.parse(made)


def followed(module: ir.Module) -> ir.Module | None:
    """The module with all shapes that follow from those of its arguments, also through what JAX has in place of ops
    that StableHLO lacks, such as windows over open dimensions; None where that is impossible."""
    with module.context, ir.Location.unknown(module.context):
        try:
            return _refined(module)
        except (ir.MLIRError, RuntimeError):  # the bindings raise both
            return None


def closed_op(
    module: ir.Module,
    inputs: Sequence[tuple[int, ...]],
    results: Sequence[tuple[int, ...]],
    values: Mapping[int, np.ndarray],
) -> ir.Module | None:
    """A copy of a module whose @main is one op (`bindings.isolate`), for operands and results of these shapes. values:
    of arguments that decide shapes, by position; they become part of the op. None where shapes inside stay open.

    It need not be valid where the shapes do not fit together.
    """
    with module.context, ir.Location.unknown(module.context):
        copy = ir.Module.parse(bindings.bytecode(module))
        main = bindings.functions(copy)["main"]
        block = main.regions[0].blocks[0]
        *_, op, end = block.operations
        for value, shape in zip((*block.arguments, *op.results), (*inputs, *results), strict=True):
            value.set_type(ir.RankedTensorType.get(shape, value.type.element_type))
        for i, value in values.items():
            with ir.InsertionPoint.at_block_begin(block):
                constant = stablehlo.ConstantOp(_dense(value, block.arguments[i].type))
            block.arguments[i].replace_all_uses_with(constant.result)
        for i in sorted(values, reverse=True):
            block.erase_argument(i)
        kind = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in end.operands])
        main.attributes["function_type"] = ir.TypeAttr.get(kind)
        if not _is_open(copy):
            return copy
        bindings.register_passes()
        passes = passmanager.PassManager.parse("builtin.module(func.func(stablehlo-canonicalize-dynamism))")
        passes.enable_verifier(False)
        try:
            passes.run(copy.operation)
            if _is_open(copy):
                copy = _refined(copy)
        except (ir.MLIRError, RuntimeError):  # the bindings raise both
            return None
        return None if _is_open(copy) else copy


def _is_open(module: ir.Module) -> bool:
    """Whether shapes are open, or are operands."""
    for op in bindings.nested(module.operation):
        if op.operation.name in SHAPE_OPERANDS or decides_shapes(op):
            return True
        values = [*op.results, *(a for block in _blocks(op) for a in block.arguments)]
        if any(isinstance(v.type, ir.ShapedType) and not v.type.has_static_shape for v in values):
            return True
    return False


def decides_shapes(op: Op) -> bool:
    """Whether an op is a custom call that has shapes for operands."""
    return op.operation.name == "stablehlo.custom_call" and (
        "indices_of_shape_operands" in op.attributes
        or string(op, "call_target_name") in SHAPE_OPERANDS_OF_CALLS
    )


def shape_operands(op: Op) -> list[int]:
    """The operands of an op that are sizes or positions which decide the shapes of its results, by position."""
    name, count = op.operation.name, len(op.operands)
    if name == "stablehlo.custom_call":
        target = string(op, "call_target_name")
        if target in SHAPE_OPERANDS_OF_CALLS:
            return list(range(count))[SHAPE_OPERANDS_OF_CALLS[target]]
        return list(int_array(op, "indices_of_shape_operands"))
    return list(range(count))[SHAPE_OPERANDS.get(name, slice(0))]


def _violated(module: ir.Module) -> str | None:
    """Which assertion of @main does not hold, where the shapes behind them do not fit together. The module loses all
    else."""
    main = bindings.functions(module)["main"]
    block = main.regions[0].blocks[0]
    *ops, end = block.operations
    wanted: set[Any] = set()
    work = [op.operation for op in ops if is_assertion(op)]
    while work:
        op = work.pop()
        if op not in wanted:
            wanted.add(op)
            work += [v.owner for v in op.operands if not isinstance(v.owner, ir.Block)]
    with ir.InsertionPoint(end):
        func.ReturnOp([])
    end.operation.erase()
    for op in reversed(ops):
        if op.operation not in wanted:
            op.operation.erase()
    kind = ir.FunctionType.get([a.type for a in block.arguments], [])
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
    try:
        _refined(module)
    except RuntimeError as error:
        return _assertion(str(error))
    return None


_ERROR = re.compile(r"error: (.*)")


def _reason(message: str) -> str:
    """What MLIR says, in one line."""
    found = _ERROR.search(message)
    return found.group(1).strip() if found else message.strip().splitlines()[0]


def _types(arguments: Any, shapes: Sequence[tuple[int, ...]]) -> Iterator[ir.Type]:
    for argument, shape in zip(arguments, shapes, strict=True):
        yield ir.RankedTensorType.get(shape, argument.type.element_type)


def _dense(value: np.ndarray, kind: Any) -> ir.Attribute:
    array = np.ascontiguousarray(value).reshape(kind.shape)
    buffer: Any = array
    return ir.DenseElementsAttr.get(buffer, type=kind.element_type, shape=list(kind.shape))


_INPUTS = "Input shapes do not match"
_CONSTRAINT = re.compile(r"the symbolic shape constraint (.*?)\. Expected")
_WHY = re.compile(rf".*{_INPUTS}.*?\.\s+(?=[A-Z])")
_WHERE = re.compile(r"\s*Using the following polymorphic shapes specifications:.*")


def _assertion(message: str) -> str | None:
    """What an assertion says that does not hold, in one sentence; None where the message is of something else."""
    line = next((line for line in message.splitlines() if _INPUTS in line), None)
    if line is None:
        return None
    text = _WHERE.sub("", _WHY.sub("", line, count=1)).strip().rstrip(". ")
    constraint = _CONSTRAINT.search(line)
    if constraint is None:
        return text
    return f"the constraint {constraint.group(1)} does not hold: {text[:1].lower()}{text[1:]}"


def _still_open(module: ir.Module) -> str | None:
    """Which op's shape is still not known, nor bounded."""
    for op in bindings.nested(module.operation):
        for result in op.results:
            kind = result.type
            if isinstance(kind, ir.ShapedType) and not kind.has_static_shape and not _is_bounded(kind):
                name = op.operation.name
                return f"the shape of {name} ({kind}) depends on values that are known only at run time"
    return None


def _is_bounded(kind: ir.Type) -> bool:
    """Whether each open dimension of a type has a bound."""
    parts = bindings.tensor_parts(kind)
    if parts is None:
        return False
    pairs = zip(parts[0], bindings.bounds(kind), strict=True)
    return all(n != bindings.DYNAMIC or limit is not None for n, limit in pairs)
