"""StableHLO with open dimensions to the graph level, for all sizes at once.

`OpenWalk` is the one linear pass of walk.py with two additions. It computes with sizes while it walks: integers that
follow from dimensions and constants (`get_dimension_size`, and arithmetic on what it gives) are numbers or
`OpenSize`s, not ops, and decide the shapes of `dynamic_reshape` and its like. And it finds the shapes of results where
MLIR has `?` (open_shapes.py). A size that is used as data, such as the count that a mean divides by, becomes an input
of @main behind the others, which the caller computes for each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from ..dialects.affine import Expr
from ..dialects.dtypes import element_type, numpy_dtype, shape_in, tensor
from ..dialects.graph import CaseOp, ReshapeOp
from ..dialects.graph.attributes import Literal
from ..dialects.graph.interface import shape_of
from ..dialects.module import set_bounded
from ..dialects.open_sizes import OpenSize, any_open, is_open, size_of
from ..machine import Machine
from . import bindings
from .attributes import Op, int_attribute, string
from .bindings import Value
from .errors import FrontendError
from .open_host import OpenOp
from .open_module import Extras, NotOpen, OpenModule
from .open_numbers import ON_SIZES, Numbers, may_be_sizes, wrapped
from .open_shapes import open_shape
from .refining import is_assertion, shape_operands
from .rules import ON_COMPLEX, ON_QUANTIZED, REWRITES, RULES, STRUCTURAL
from .rules.control import BRANCHES, chosen
from .rules.dynamic import DYNAMIC_RULES
from .rules.movement import stacked
from .walk import TERMINATORS, Body, Walk, hint_of


def lower_open(
    source: bytes,
    entry: str,
    sizes: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    decided: Mapping[int, Sequence[int]] | None = None,
    filename: str | None = None,
    machine: Machine | None = None,
) -> OpenModule:
    """The graph level of the function `entry` of StableHLO, for inputs of these shapes, with `OpenSize`s. sizes: its
    first arguments, which are not inputs. decided: the values of inputs that decide shapes, by number.

    Raises NotOpen, FrontendError, and Undecided outside of a compilation.
    """
    walk = OpenWalk(bindings.parse(source, filename), filename, machine)
    return walk.entry(entry, sizes, shapes, decided or {})


class OpenWalk(Walk):
    """One conversion with open dimensions."""

    def __init__(self, module: Any, filename: str | None, machine: Machine | None) -> None:
        structural = {**STRUCTURAL, **DYNAMIC_RULES}
        self._module = module  # its ops are alive as long as it is
        super().__init__(module, filename, RULES, structural, ON_COMPLEX, ON_QUANTIZED, machine, REWRITES)
        self.numbers: dict[Value, Numbers] = {}
        """Sizes, and what is computed of them."""
        self._extras = Extras()
        self._inner: list[Value] = []
        """The sizes that became values in the current region."""

    def entry(
        self,
        symbol: str,
        sizes: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
        decided: Mapping[int, Sequence[int]],
    ) -> OpenModule:
        """The module of a function and of what it calls, which is inlined; see `lower_open`."""
        function = self.symbols[symbol]
        self._here = here = self._location(function, self._here)
        source = function.regions[0].blocks[0]
        first, rest = source.arguments[: len(sizes)], source.arguments[len(sizes) :]
        for argument, number in zip(first, sizes, strict=True):
            self.numbers[argument] = np.array(number, object)
        kinds = [tensor(s, self._element(a.type)) for a, s in zip(rest, shapes, strict=True)]
        self._extras.main = block = Block(arg_types=kinds)
        for i, (argument, value) in enumerate(zip(rest, block.args, strict=True)):
            self._values[argument] = value
            if i in decided:
                self.numbers[argument] = np.array(list(decided[i]), object).reshape(shape_of(value))
            value.name_hint = hint_of(argument)
        self._active.append(symbol)
        results = self._inside(source)
        extents = self.extents.behind(results)
        self._active.pop()
        block.add_ops([*self._out, ReturnOp(*results, *extents)])
        kind = ([a.type for a in block.args], [r.type for r in (*results, *extents)])
        main = FuncOp("main", kind, Region(block))
        self.extents.describe(main, results)
        main.location = here
        module = ModuleOp([main])
        if self.extents:
            set_bounded(module)
        return OpenModule(module, self._extras.listed)

    # -- structure -----------------------------------------------------------------------------------------

    def inline(self, block: Any, args: Sequence[SSAValue]) -> list[SSAValue]:
        for formal, actual in zip(block.arguments, args, strict=True):
            self._values[formal] = actual
        return self._inside(block)

    def _inside(self, block: Any) -> list[SSAValue]:
        """Converts the ops of a block, whose arguments are known; the operands of its terminator."""
        return [self.value(v) for v in self._walked(block)]

    def _walked(self, block: Any) -> list[Value]:
        """The same; the operands as they are in the source."""
        outer, doing = self._here, self._doing
        for op in block.operations:
            name = op.operation.name
            self._here, self._doing = self._location(op, outer), name
            if name in TERMINATORS:
                self._here, self._doing = outer, doing
                return list(op.operands)
            if name == "func.call":
                self._enter(op)
            elif is_assertion(op):
                self._assert(op)
            elif not self._compute(name, op):
                self._take(name, op)
        raise FrontendError(f"{self.named()} has a block with no terminator")

    def _assert(self, op: Op) -> None:
        """What must hold of sizes holds for the example, and is assumed. Raises NotOpen where it does not."""
        held = self.numbers.get(op.operands[0])
        if held is None or not held.item():
            raise NotOpen(f"{self.named()} does not hold for all sizes")

    def _take(self, name: str, op: Op) -> None:
        """Converts an op to graph ops; operands that are its shape stay sizes."""
        shapes = set(shape_operands(op))
        operands = [v for i, v in enumerate(op.operands) if i not in shapes]
        made = self._convert(name, op, [self.value(v) for v in operands])
        for old, new in zip(op.results, made, strict=True):
            self._values[old] = new

    def _enter(self, op: Op) -> None:
        """Converts the function that is called in place of the call; sizes stay sizes."""
        symbol = string(op, "callee")
        if symbol in self._active:
            raise NotOpen(f"{self.named()} calls @{symbol} from within itself")
        block = self.symbols[symbol].regions[0].blocks[0]
        for formal, actual in zip(block.arguments, op.operands, strict=True):
            for known in (self.numbers, self._values):
                known.pop(formal, None)
            if actual in self.numbers:
                self.numbers[formal] = self.numbers[actual]
            else:
                self._values[formal] = self.value(actual)
        self._forget(block)
        self._active.append(symbol)
        returned = self._walked(block)
        self._active.pop()
        for old, new in zip(op.results, returned, strict=True):
            if new in self.numbers:
                self.numbers[old] = self.numbers[new]
            else:
                self._values[old] = self.value(new)

    def _forget(self, block: Any) -> None:
        """A function may be called again with other sizes: what its ops gave before is forgotten."""
        for op in block.operations:
            for result in op.results:
                self.numbers.pop(result, None)
                self._values.pop(result, None)

    @contextmanager
    def inside(self, body: Body) -> Iterator[None]:
        outer, self._inner = self._inner, []
        with super().inside(body):
            yield
        for source in self._inner:  # what sizes became in there is not known outside
            self._values.pop(source, None)
        self._inner = outer

    def _branch(self, name: str, op: Op, args: list[SSAValue]) -> Sequence[SSAValue]:
        """Converts a choice of one of several regions: of the one that a size chooses, or of all of them."""
        which = self.numbers.get(op.operands[0])
        if which is not None:
            number = which.item()
            last = len(op.regions) - 1
            at = (0 if number else 1) if name == "stablehlo.if" else number if 0 <= number < last else last
            return self._inside(op.regions[at].blocks[0])
        regions = [self.region(r, []) for r in op.regions]
        types = [v.type for v in _yielded(regions[0])]
        if any([v.type for v in _yielded(r)] != types for r in regions[1:]):
            raise NotOpen(f"{self.named()} has branches that give results of different shapes")
        index, regions = chosen(self, name, args[0], regions)
        return self.emit_control(CaseOp, [index], types, regions).results

    def _convert(self, name: str, op: Op, args: list[SSAValue]) -> Sequence[SSAValue]:
        made = self._branch(name, op, args) if name in BRANCHES else super()._convert(name, op, args)
        for value, result in zip(made, op.results, strict=True):
            parts = bindings.tensor_parts(result.type)
            if parts is not None and len(parts[0]) != len(shape_of(value)):
                raise NotOpen(f"{self.named()} gives {value.type} where {result.type} is expected")
        return made

    def types_of(self, name: str, op: Op, args: Sequence[SSAValue]) -> list[TensorType]:
        """The types of the results: what MLIR leaves open follows from the operands."""
        found = []
        for i, result in enumerate(op.results):
            parts = bindings.tensor_parts(result.type)
            if parts is None or bindings.DYNAMIC not in parts[0]:
                found.append(self.type(result.type))
                continue
            shape = open_shape(self, name, op, [shape_of(a) for a in args], i)
            if shape is None or len(shape) != len(parts[0]):
                raise NotOpen(f"{self.named()} has a result whose shape cannot be followed for all sizes")
            merged = [
                n if known == bindings.DYNAMIC else known for n, known in zip(shape, parts[0], strict=True)
            ]
            found.append(tensor(merged, self._element(result.type)))
        return found

    def host(self, op: Op, types: Sequence[Attribute]) -> Sequence[SSAValue]:
        """Append a host call that runs `op` alone, for all sizes. Raises NotOpen where it has no text that holds for
        all."""
        shapes = {op.operands[i] for i in shape_operands(op)}
        if not shapes and not any(map(_is_open, (*op.operands, *op.results))):
            return super().host(op, types)
        values, module = bindings.isolate(op, self.symbols)
        decided: dict[int, Numbers] = {}
        inputs: list[Sequence[int]] = []
        args: list[SSAValue] = []
        for i, value in enumerate(values):
            if value in shapes and value in self.numbers:
                decided[i] = self.numbers[value]
                inputs.append(decided[i].shape)
            else:
                args.append(self.value(value))
                inputs.append(shape_of(args[-1]))
        results = [shape_in(t) for t in types if isinstance(t, TensorType)]
        found = OpenOp(module, inputs, results, decided).text()
        if found is None:
            raise NotOpen(f"{self.named()} runs on the host, and is another program for each size")
        return self.host_call(*found, args, types)

    def scalar_type(self, source: Value) -> TensorType:
        return tensor([], self._element(source.type))

    def _element(self, kind: Any) -> Attribute:
        parts = bindings.tensor_parts(kind)
        if parts is None:
            raise NotOpen(f"{self.named()} uses type {kind}")
        try:
            return element_type(parts[1])
        except ValueError:
            raise NotOpen(f"{self.named()} uses type {kind}") from None

    # -- sizes ---------------------------------------------------------------------------------------------

    def value(self, source: Value) -> SSAValue:
        """What stands for a value at the graph level; a size becomes a constant or an input."""
        if source not in self._values:
            self._values[source] = self._as_data(self.numbers[source], source.type)
            self._inner.append(source)
        return self._values[source]

    def _as_data(self, numbers: Numbers, kind: Any) -> SSAValue:
        parts = bindings.tensor_parts(kind)
        assert parts is not None
        if not any_open(list(numbers.reshape(-1))):
            data = np.array(numbers.reshape(-1).tolist(), numpy_dtype(parts[1]))
            return self.constant(Literal.of(data.reshape(numbers.shape)))
        if numbers.shape:
            return self._stacked(numbers, kind)
        return self.scalar(numbers.item(), self._element(kind))

    def _stacked(self, numbers: Numbers, kind: Any) -> SSAValue:
        """Several sizes as a tensor."""
        element = self._element(kind)
        row = stacked(self, [self.scalar(number, element) for number in numbers.reshape(-1)])
        return self.emit(ReshapeOp, [row], [tensor(numbers.shape, element)])[0]

    def scalar(self, value: float | bool, element: Attribute) -> SSAValue:
        if is_open(value):
            return self._extras.value(size_of(cast("int", value)), element)
        return super().scalar(value, element)

    def number(self, value: SSAValue) -> float | int | bool | None:
        found = self._extras.number(value)
        return OpenSize.of(found) if isinstance(found, Expr) else super().number(value)

    def _compute(self, name: str, op: Op) -> bool:
        """Computes what an op does to sizes; False where it does something else."""
        if name == "stablehlo.get_dimension_size":
            operand, dim = op.operands[0], int_attribute(op, "dimension")
            if operand in self._values and dim in self.extents.of(self._values[operand]):
                return False
            shape = (
                shape_of(self._values[operand]) if operand in self._values else self.numbers[operand].shape
            )
            self.numbers[op.results[0]] = np.array(shape[dim], object)
            return True
        if len(op.results) != 1 or not may_be_sizes(op.results[0].type):
            return False
        if name == "stablehlo.constant":
            return self._constant_sizes(op)
        compute = ON_SIZES.get(name)
        if compute is None or not op.operands or not all(v in self.numbers for v in op.operands):
            return False
        try:
            made = compute(op, *(self.numbers[v] for v in op.operands))
        except ZeroDivisionError:  # data: a machine's division gives something
            return False
        kept = None if made is None else wrapped(np.asarray(made, object), op.results[0].type)
        if kept is None:
            return False
        self.numbers[op.results[0]] = kept
        return True

    def _constant_sizes(self, op: Op) -> bool:
        key, parts = bindings.value_key(op), bindings.tensor_parts(op.results[0].type)
        if key is None or parts is None:
            return False
        data = bindings.literal(key, parts[0], numpy_dtype(parts[1])).array()
        self.numbers[op.results[0]] = np.array(data.tolist(), object).reshape(parts[0])
        return True


def _is_open(value: Value) -> bool:
    """Whether MLIR leaves a dimension of a value open."""
    parts = bindings.tensor_parts(value.type)
    return parts is not None and bindings.DYNAMIC in parts[0]


def _yielded(region: Region) -> Sequence[SSAValue]:
    last = region.block.last_op
    assert last is not None
    return last.operands
