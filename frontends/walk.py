"""The one linear pass from StableHLO, as jaxlib's bindings hold it, to the graph level."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from xdsl.dialects.builtin import (
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NameLoc,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ..dialects.base import integer_attr, ints, located_at
from ..dialects.dtypes import COMPLEX, StoredAs, element_type, numpy_dtype, shape_in, tensor
from ..dialects.graph import (
    ELEMENTWISE,
    PART_OPS,
    BroadcastOp,
    ConstantOp,
    DataAttr,
    DequantizeOp,
    GraphOp,
    HostOp,
    QuantizeOp,
    YieldOp,
)
from ..dialects.graph.attributes import Literal
from ..dialects.graph.donation import donate
from ..dialects.graph.interface import element_of, shape_of
from ..dialects.host_text import HostText
from ..dialects.module import set_bounded
from ..dialects.open_sizes import is_open
from ..dialects.quantized import quantized
from ..machine import Machine
from . import bindings
from .bindings import Op, Value
from .calls import CallPlan
from .errors import FrontendError
from .extents import Extents, Rewrite
from .known import native_types, scalar_value
from .uniform import PREFIX, uniform_type

Property = int | str | Sequence[int] | Attribute
"""What `Walk.emit` makes a property of: an i64, a string, an i64 array, or an attribute as it is."""

Rule = Callable[["Walk", Op, list[SSAValue], list[TensorType]], Sequence[SSAValue] | None]
"""Converts an op: gets its operands and result types, appends graph ops, and gives the values of the results,
or None where this form of the op has to run on the host."""

CUSTOM_CALL = "stablehlo.custom_call"

TERMINATORS = frozenset({"func.return", "stablehlo.return", "sdy.return", "mhlo.return"})

OpT = TypeVar("OpT", bound=Operation)

BOOLEAN = element_type("i1")

LOGIC = {"add": "or", "max": "or", "mul": "and", "min": "and"}
"""What arithmetic on i1 means in StableHLO."""

MAX_EXPANSION = 160
"""A CHLO function whose expansion has more ops than this (lgamma, zeta...) is left to the host."""

_UNKNOWN = UnknownLoc()


class DynamicShape(FrontendError):
    """A type has a dimension that is not known at compile time."""


@dataclass
class Body:
    """A block that is converted. ops: what goes into it; shared: what of this other ops may use again."""

    block: Block
    ops: list[Operation] = field(default_factory=list)
    shared: dict[Any, SSAValue] = field(default_factory=dict)


class Walk:
    """One conversion: which values stand for which, where new ops go, and what is cached on the way.

    rules: by op name, for ops whose operands and results all have element types of the device; structural:
    likewise, for any element types; on_complex: for those where some are complex numbers and the others of the device;
    on_quantized: for those where some are quantized, and which work on quantized numbers. machine: the device; None
    for any. rewrites: of graph ops on bounded dimensions. bounded: whether dimensions that MLIR leaves open may be
    bounded instead.
    """

    def __init__(
        self,
        module: Any,
        filename: str | None,
        rules: Mapping[str, Rule],
        structural: Mapping[str, Rule],
        on_complex: Mapping[str, Rule],
        on_quantized: Mapping[str, Rule],
        machine: Machine | None = None,
        rewrites: Mapping[type[GraphOp], Rewrite] | None = None,
        bounded: bool = False,
    ):
        self.filename = filename
        self._native = native_types(machine)
        self._movable = self._native | {COMPLEX}
        self._rules = rules
        self._structural = structural
        self._complex = on_complex
        self._quantized = on_quantized
        self.symbols = bindings.functions(module)
        self._values: dict[Value, SSAValue] = {}
        self._out: list[Operation] = []
        self.shared: dict[Any, SSAValue] = {}
        """Constants and broadcasts of them that the current block has already: layers ask for the same ones."""
        self._here: LocationAttr = _UNKNOWN
        self._doing = "func.func"
        self._types: dict[Any, TensorType] = {}
        self._number_types: dict[Any, TensorType] = {}
        """The same inside ops that compute with what quantized numbers stand for."""
        self._as_numbers = 0
        self.bodies: dict[tuple[Any, ...], Any] = {}
        """What bodies of one op compute, for rules that recognise them."""
        self._locations: dict[Any, LocationAttr | None] = {}
        self._data: dict[Any, DataAttr] = {}
        self._expansions: dict[str, Any] = {}
        self.extents = Extents(self, rewrites)
        self._bounded = bounded
        self._calls = CallPlan(self.symbols)
        self._functions: dict[str, FuncOp] = {}
        self._active: list[str] = []

    def main(self) -> ModuleOp:
        """The graph-level module of @main and what it calls: inlined, or as functions (calls.py).

        Raises FrontendError where there is no @main, DynamicShape for a shape that is not static.
        """
        if "main" not in self.symbols:
            found = ", ".join(f"@{s}" for s in self.symbols) or "none"
            place = f"{self.filename}: " if self.filename else ""
            raise FrontendError(f"{place}the module has no function @main (its functions: {found})")
        function = self.symbols["main"]
        self._here = here = self._location(function, _UNKNOWN)
        if not len(function.regions[0].blocks):
            raise FrontendError(f"{self.named()} declares @main, but does not define it")
        main = self._function("main", here)
        module = ModuleOp([main, *self._functions.values()])
        if self.extents:
            set_bounded(module)
        return module

    def _function(self, symbol: str, here: LocationAttr) -> FuncOp:
        source = self.symbols[symbol].regions[0].blocks[0]
        block = Block(arg_types=[self.type(a.type) for a in source.arguments])
        for value, arg in zip(source.arguments, block.args, strict=True):
            arg.name_hint = hint_of(value)
        saved, self._out, self.shared = (self._out, self.shared), [], {}
        self._active.append(symbol)
        results = self.inline(source, block.args)
        extents = self.extents.behind(results)
        self._active.pop()
        block.add_ops([*self._out, ReturnOp(*results, *extents)])
        self._out, self.shared = saved
        visibility = None if symbol == "main" else "private"
        kind = ([a.type for a in block.args], [r.type for r in (*results, *extents)])
        made = FuncOp(symbol, kind, Region(block), visibility)
        self.extents.describe(made, results)
        if symbol == "main":
            donate(made, bindings.donated_arguments(self.symbols[symbol]))
        made.location = here
        return made

    # -- structure -----------------------------------------------------------------------------------------

    def inline(self, block: Any, args: Sequence[SSAValue]) -> list[SSAValue]:
        """Convert the ops of `block` in place, its arguments being `args`; the operands of its terminator."""
        values = self._values
        for formal, actual in zip(block.arguments, args, strict=True):
            values[formal] = actual
        outer, doing = self._here, self._doing
        for op in block.operations:
            name = op.operation.name
            operands = [values[v] for v in op.operands]
            self._here, self._doing = self._location(op, outer), name
            if name in TERMINATORS:
                self._here, self._doing = outer, doing
                return operands
            results = self._convert(name, op, operands)
            for old, new in zip(op.results, results, strict=True):
                values[old] = new
        raise FrontendError(f"{self.named()} has a block with no terminator")

    def region(self, region: Any, arg_types: Sequence[Attribute]) -> Region:
        """Convert a single-block region; its terminator becomes graph.yield."""
        body = Body(Block(arg_types=arg_types))
        with self.inside(body):
            self.emit(YieldOp, self.inline(region.blocks[0], body.block.args), [])
        body.block.add_ops(body.ops)
        return Region(body.block)

    @contextmanager
    def inside(self, body: Body) -> Iterator[None]:
        """Appends to a block in the meantime."""
        saved, (self._out, self.shared) = (self._out, self.shared), (body.ops, body.shared)
        yield
        self._out, self.shared = saved

    def call(self, symbol: str, args: Sequence[SSAValue]) -> list[SSAValue]:
        """Inline the function called `symbol`, or call it where that is better. Raises FrontendError for one that calls
        itself."""
        if symbol in self._active:
            raise FrontendError(
                f"{self.named()} calls @{symbol} from within itself: recursion cannot be compiled; write it as a loop"
            )
        if not self._calls.outlined(symbol):
            self._active.append(symbol)
            results = self.inline(self.symbols[symbol].regions[0].blocks[0], args)
            self._active.pop()
            return results
        if symbol not in self._functions:
            outer, doing, op = self._here, self._doing, self.symbols[symbol]
            self._here = self._location(op, outer)
            made = self._function(symbol, self._here)
            self._here, self._doing = outer, doing
            self._functions[symbol] = made
        types = self._functions[symbol].function_type.outputs.data
        call = CallOp(symbol, args, types)
        call.location = self._here
        self._out.append(call)
        return list(call.results)

    def _convert(self, name: str, op: Op, args: list[SSAValue]) -> Sequence[SSAValue]:
        types = self.types_of(name, op, args)
        if any(map(quantized, (*types, *(a.type for a in args)))):
            return self._on_quantized(name, op, args, types)
        rule = self._structural.get(name)
        if rule is None and ((native := self.native(args, types)) or self.movable(args, types)):
            rule = (self._rules if native else self._complex).get(name)
            if rule is None and (name.startswith("chlo.") or not native):
                made = self._expanded(op)
                return self.host(op, types) if made is None else made
        made = None if rule is None else rule(self, op, args, types)
        return self.host(op, types) if made is None else made

    def number(self, value: SSAValue) -> float | int | bool | None:
        """The number that a value is, where that is known."""
        return scalar_value(value)

    def types_of(self, name: str, op: Op, args: Sequence[SSAValue]) -> list[TensorType]:
        """The types of an op's results."""
        return [self.type(r.type) for r in op.results]

    def _on_quantized(
        self, name: str, op: Op, args: list[SSAValue], types: list[TensorType]
    ) -> Sequence[SSAValue]:
        """Convert an op that has quantized operands or results. Raises FrontendError where it has no meaning there."""
        rule = self._quantized.get(name)
        if rule is None:
            plain = self._structural.get(name) or self._rules.get(name)
            rule = None if plain is None else self.in_numbers(plain)
        made = None if rule is None else rule(self, op, args, types)
        if made is None:
            raise FrontendError(f"{self.named()} has no definition for quantized tensors")
        return made

    def in_numbers(self, rule: Rule) -> Rule:
        """`rule` on the numbers that quantized operands stand for, with results in their quantized types: what
        StableHLO defines of ops that do not say more."""

        def wrapped(
            walk: Walk, op: Op, args: list[SSAValue], types: list[TensorType]
        ) -> Sequence[SSAValue] | None:
            plain: list[SSAValue] = []
            for arg in args:
                kind = quantized(arg.type)
                made = [] if kind is None else [tensor(shape_of(arg), kind.expressed)]
                plain.append(self.emit(DequantizeOp, [arg], made)[0] if made else arg)
            kinds = [quantized(t) for t in types]
            wanted = [
                t if k is None else tensor(shape_in(t), k.expressed) for t, k in zip(types, kinds, strict=True)
            ]
            # the bodies of an op are in the numbers, too: what is combined is rounded once, at the end
            kept, self._types, self._number_types = self._types, self._number_types, {}
            self._as_numbers += 1
            results = rule(walk, op, plain, wanted)
            self._as_numbers -= 1
            self._types, self._number_types = kept, self._types
            return results and [
                v if k is None else self.emit(QuantizeOp, [v], [t])[0]
                for v, k, t in zip(results, kinds, types, strict=True)
            ]

        return wrapped

    def knows_call(self, target: str) -> bool:
        """Whether there is a rule for custom calls of `target`."""
        return f"{CUSTOM_CALL} @{target}" in self._rules

    def custom_call(
        self, target: str, op: Op, args: list[SSAValue], types: list[TensorType]
    ) -> Sequence[SSAValue]:
        """Convert a custom call by the rule for its target. Raises FrontendError where the rule does not cover these
        types or this form: no host has the function either."""
        rule = self._rules[f"{CUSTOM_CALL} @{target}"]
        made = rule(self, op, args, types) if self.native(args, types) else None
        if made is None:
            found = ", ".join(str(a.type) for a in args)
            raise FrontendError(f"{self.named()} calls '{target}' with ({found}), which its rule does not cover")
        return made

    def movable(self, args: Sequence[SSAValue], types: Sequence[TensorType]) -> bool:
        """Whether the device has all of these: in an element type that it computes with or that it stores quantized
        numbers in, or complex numbers."""
        elements = [*(t.element_type for t in types), *map(element_of, args)]
        return all(_kept(e) in self._movable for e in elements)

    def native(self, args: Sequence[SSAValue], types: Sequence[TensorType]) -> bool:
        """Whether the device computes with the element types of all of these."""
        elements = [*(t.element_type for t in types), *map(element_of, args)]
        return all(e in self._native for e in elements)

    def _expanded(self, op: Op) -> Sequence[SSAValue] | None:
        """A CHLO function, or one of complex numbers, through its expansion into StableHLO; None where the host had
        better run it."""
        values, module = bindings.isolate(op, self.symbols)
        text = bindings.text_of(module)
        if text not in self._expansions:
            ops = bindings.operations(module) if bindings.expand_functions(module) else []
            worth = 0 < len(ops) <= MAX_EXPANSION and all(map(self._on_device, ops))
            self._expansions[text] = module if worth else None
        if (expansion := self._expansions[text]) is None:
            return None
        block = expansion.body.operations[0].regions[0].blocks[0]
        return self.inline(block, [self.value(v) for v in values])

    def _on_device(self, op: Op) -> bool:
        name, types = op.operation.name, [self.scalar_type(r) for r in op.results]
        rules = self._rules if self.native([], types) and not self._takes_complex(op) else self._complex
        return (name in rules or name in self._structural or name in TERMINATORS) and self.movable([], types)

    def _takes_complex(self, op: Op) -> bool:
        return any(self.scalar_type(v).element_type == COMPLEX for v in op.operands)

    def scalar_type(self, source: Value) -> TensorType:
        """The type of one element of a value, as a tensor of rank 0."""
        return tensor([], self.type(source.type).element_type)

    def value(self, source: Value) -> SSAValue:
        """What stands for a value at the graph level."""
        return self._values[source]

    def host(self, op: Op, types: Sequence[Attribute]) -> Sequence[SSAValue]:
        """Append a host call that runs `op` alone. Raises FrontendError where its types are bounded."""
        for value in (*op.operands, *op.results) if self._bounded else ():
            parts = bindings.tensor_parts(value.type)
            if parts is not None and bindings.DYNAMIC in parts[0]:
                raise FrontendError(
                    f"{self.named()} runs on the host, which takes whole tensors, and has the bounded {value.type}"
                )
        values, module = bindings.isolate(op, self.symbols)
        args = [self.value(v) for v in values]
        return self.host_call(op.operation.name, StringAttr(bindings.text_of(module)), args, types)

    def host_call(
        self, name: str, module: HostText, args: Sequence[SSAValue], types: Sequence[Attribute]
    ) -> Sequence[SSAValue]:
        """Append a host call that runs a StableHLO module; reports call it `name`."""
        return self.emit(HostOp, args, types, op=name, module=module)

    # -- building ------------------------------------------------------------------------------------------

    def emit(
        self,
        cls: type[Operation],
        args: Sequence[SSAValue],
        types: Sequence[Attribute],
        **properties: Property,
    ) -> Sequence[SSAValue]:
        """Append a `cls`; its results."""
        made = {k: self._property(v) for k, v in properties.items()}
        op = cls.create(operands=args, result_types=types, properties=made, location=self._here)
        if self.extents and any(map(self.extents.of, args)):
            self.extents.carry(op)
        self._out.append(op)
        return op.results

    def emit_control(
        self, cls: type[OpT], args: Sequence[SSAValue], types: Sequence[Attribute], regions: Sequence[Region]
    ) -> OpT:
        """Append a `cls` that holds regions."""
        op = cls.create(operands=args, result_types=types, regions=regions, location=self._here)
        self._out.append(op)
        return op

    def elementwise(self, name: str, args: Sequence[SSAValue], result: Attribute) -> SSAValue:
        """Append `graph.<name>`, or what that means on i1."""
        if name in LOGIC and element_of(args[0]) == BOOLEAN:
            name = LOGIC[name]
        return self.emit(ELEMENTWISE.get(name) or PART_OPS[name], args, [result])[0]

    def constant(self, literal: Literal) -> SSAValue:
        """Append a constant."""
        return self._constant(DataAttr(literal), tensor(literal.shape, element_type(literal.dtype)))

    def constant_of(self, op: Op, result: TensorType) -> SSAValue | None:
        """The value of a StableHLO constant op; None where the bindings cannot give it."""
        key = bindings.value_key(op)
        if key is None:
            return None
        made = self.shared.get(key)
        if made is None:
            data = self._data.get(key)
            if data is None:
                dtype = numpy_dtype(result.element_type)
                data = self._data[key] = DataAttr(bindings.literal(key, shape_in(result), dtype))
            made = self.shared[key] = self._constant(data, result)
        return made

    def broadcast(self, x: SSAValue, result: TensorType, dims: Sequence[int]) -> SSAValue:
        """`x` as a tensor of type `result`; `dims` are where its dimensions are in there."""
        key = (x, result, dims) if isinstance(x.owner, ConstantOp) else None
        made = None if key is None else self.shared.get(key)
        if made is None:
            made = self.emit(BroadcastOp, [x], [result], dims=dims)[0]
            if key is not None:
                self.shared[key] = made
        return made

    def _constant(self, data: DataAttr, result: TensorType) -> SSAValue:
        return self.emit(ConstantOp, [], [result], value=data)[0]

    def scalar(self, value: float | bool, element: Attribute) -> SSAValue:
        """Append a scalar constant of an element type."""
        return self.constant(Literal.of(np.asarray(value).astype(numpy_dtype(element))))

    def fill(self, scalar: SSAValue, shape: Sequence[int]) -> SSAValue:
        """A scalar repeated into `shape`; a value that has this shape already is left as it is."""
        if shape_of(scalar) == tuple(shape):
            return scalar
        return self.broadcast(scalar, tensor(shape, element_of(scalar)), ())

    def _property(self, value: Property) -> Attribute:
        if isinstance(value, Attribute):
            return value
        if isinstance(value, int) or is_open(value):
            return integer_attr(cast("int", value))
        return StringAttr(value) if isinstance(value, str) else ints(value)

    # -- types and places ----------------------------------------------------------------------------------

    def type(self, source: Any) -> TensorType:
        """The tensor type of a type of the bindings. Raises FrontendError where we have none."""
        found = self._types.get(source)
        if found is None:
            found = self._types[source] = self._new_type(source)
        return found

    def _new_type(self, source: Any) -> TensorType:
        parts = bindings.tensor_parts(source)
        if parts is None and "token" in str(source):
            self._find_effect()
            raise FrontendError(
                f"{self.named()} orders effects, as io_callback and ordered debug prints do: only functions without "
                "effects can be compiled (jax.pure_callback has none)"
            )
        if parts is None:
            raise FrontendError(f"{self.named()} uses type {source}, which is not a tensor")
        shape, element = parts
        if bindings.DYNAMIC in shape and self._bounded:
            limits = bindings.bounds(source)
            shape = tuple(
                n if limit is None or n != bindings.DYNAMIC else limit
                for n, limit in zip(shape, limits, strict=True)
            )
        if bindings.DYNAMIC in shape:
            raise DynamicShape(f"{self.named()} has the dynamic shape {source}; shapes must be static")
        try:
            if not element.startswith(PREFIX):
                return tensor(shape, element_type(element))
            made = uniform_type(element)
            return tensor(shape, made.expressed if self._as_numbers else made)
        except ValueError:
            raise FrontendError(f"{self.named()} uses type {source}, which is not supported") from None

    def _find_effect(self) -> None:
        """Go to the first op that orders an effect: the functions around it pass its token, too."""
        for function in self.symbols.values():
            for op in bindings.nested(function):
                if op.name.endswith("custom_call") and any("token" in str(r.type) for r in op.results):
                    self._here, self._doing = self._location(op, self._here), op.name
                    return

    def named(self) -> str:
        """The op being converted and its line, for messages."""
        place = located_at(self._here)
        return f"'{self._doing}'{f' ({place})' if place else ''}"

    def _location(self, op: Op, outer: LocationAttr) -> LocationAttr:
        """The user's line that `op` came from; where it has none, `outer`, the line of the call."""
        source = op.location
        key = source.attr
        if key not in self._locations:
            self._locations[key] = self._new_location(bindings.user_frame(source))
        return self._locations[key] or outer

    def _new_location(self, frame: bindings.SourceFrame | None) -> LocationAttr | None:
        if frame is None:
            return None
        file = self.filename if frame.file == "-" and self.filename else frame.file
        place = FileLineColLoc(StringAttr(file), IntAttr(frame.line), IntAttr(frame.column))
        return NameLoc(StringAttr(frame.node), place) if frame.node else place


def _kept(element: Attribute) -> Attribute:
    """What is in memory for an element type."""
    return element.storage if isinstance(element, StoredAs) else element


def hint_of(argument: Value) -> str | None:
    """The name that JAX has given an argument, such as `params['w']`, as an SSA name."""
    hint = re.sub(r"\W+", "_", bindings.given_name(argument) or "", flags=re.ASCII).strip("_")
    return hint if SSAValue.is_valid_name(hint) else None
