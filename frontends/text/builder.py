"""Builds graph ops for the `.tw` frontend: as `Walk` does for StableHLO, in the forms that JAX's own ops give, so
that equal programs become equal graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects.base import integer_attr, ints
from ...dialects.dtypes import dtype_name, element_type, is_float, numpy_dtype, shape_in, tensor
from ...dialects.elementwise import FUNCTIONS, Function
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ConcatOp,
    ConstantOp,
    GraphOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.attributes import DataAttr, Literal
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import is_open
from ...dialects.sizes import LARGEST
from ..known import scalar_value
from ..open_module import Extras
from .diagnostics import Problem, SourceFile
from .numbers import (
    Number,
    compute,
    extent_of,
    is_fraction,
    is_known_number,
    is_of_sizes,
    is_whole,
    same_sizes,
    size_number,
    spelt,
)

BOOLEAN = element_type("i1")
I32 = element_type("i32")
F32 = element_type("f32")

MOST_OPS = 100_000
"""A program of more ops has most likely calls that double at each level."""

MOST_LITERAL = 1 << 20
"""Elements of a constant that is written out or computed at compile time."""

Property = int | str | Sequence[int] | Attribute


class DTypeName(str):
    """An element type as a value: the argument of `type=`."""


class Poison:
    """The value of an expression with an error: what it meets has been reported already."""


POISON = Poison()

Value = SSAValue | Number | str | list | tuple | Poison
"""What an expression is worth: a tensor, or something known at compile time."""


def describe_value(value: Any) -> str:
    """`f32[8, 64]`, `the number 3`: a value in a message."""
    if isinstance(value, SSAValue):
        return type_text(value.type)
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if is_known_number(value):
        return f"the number {value}"
    if isinstance(value, DTypeName):
        return f"the element type {value}"
    if isinstance(value, str):
        return f'the string "{value}"'
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "a list"


def type_text(type_: Attribute) -> str:
    """A tensor type as .tw writes it."""
    assert isinstance(type_, TensorType)
    return f"{dtype_name(type_.element_type)}{shape_text(shape_in(type_))}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as .tw writes it."""
    return f"[{', '.join(map(str, shape))}]"


class Builder:
    """Appends graph ops to `out`, at the place `at` of a file."""

    def __init__(self) -> None:
        self.out: list[Operation] = []
        self.file: SourceFile | None = None
        self.at = 0
        self.count = 0
        self.counters: set[SSAValue] = set()
        """Scalars that cannot be negative: the counters of loops from 0 up."""
        self.extras = Extras()
        self.numbers: dict[SSAValue, int] = {}
        """The open sizes among the values, also where loops carry them."""
        self._files: dict[str, StringAttr] = {}
        self._places: dict[tuple[int, int], LocationAttr] = {}
        self._scalars: dict[tuple[str, str], DataAttr] = {}

    # -- ops -----------------------------------------------------------------------------------------------

    def location(self) -> LocationAttr:
        """The current line and column."""
        if self.file is None:
            return UnknownLoc()
        key = (id(self.file), self.at)
        found = self._places.get(key)
        if found is None:
            line, column = self.file.place(self.at)
            name = self._files.setdefault(self.file.path, StringAttr(self.file.path))
            found = self._places[key] = FileLineColLoc(name, IntAttr(line), IntAttr(column))
        return found

    def append(self, op: Operation) -> Operation:
        """Append an op at the current place. Raises Problem where the program gets too large."""
        self.count += 1
        if self.count > MOST_OPS:
            raise Problem(f"the program grows beyond {MOST_OPS} ops", help="use loops, or fewer calls")
        op.location = self.location()
        self.out.append(op)
        return op

    def emit(
        self,
        cls: type[Operation],
        args: Sequence[SSAValue],
        types: Sequence[Attribute],
        **properties: Property,
    ) -> Sequence[SSAValue]:
        """Append a `cls` with results of these types; the results."""
        made = {k: self.property(v) for k, v in properties.items()}
        return self.append(cls.create(operands=args, result_types=types, properties=made)).results

    def infer(
        self, cls: type[GraphOp], args: Sequence[SSAValue], types: Sequence[Attribute], **properties: Property
    ) -> Sequence[SSAValue]:
        """Append a `cls` whose own shape inference gives the result types; `types` are what it starts from. Raises
        Problem where the op says that its operands do not fit."""
        made = {k: self.property(v) for k, v in properties.items()}
        op = cls.create(operands=args, result_types=types, properties=made)
        try:
            inferred = list(op.infer())
        except (ValueError, TypeError) as error:
            raise Problem(f"{op.name.removeprefix('graph.')}: {error}") from None
        if any(math.prod(shape_in(t)) > LARGEST for t in inferred if isinstance(t, TensorType)):
            raise Problem("the result is too large", f"{', '.join(map(type_text, inferred))}")
        return self.append(cls.create(operands=args, result_types=inferred, properties=made)).results

    def property(self, value: Property) -> Attribute:
        if isinstance(value, Attribute):
            return value
        if isinstance(value, int) or is_open(value):
            return integer_attr(cast("int", value))
        return StringAttr(value) if isinstance(value, str) else ints(value)

    # -- constants -----------------------------------------------------------------------------------------

    def scalar(self, value: Number, element: Attribute) -> SSAValue:
        """A number as a scalar: a constant, or an input of @main where it follows from open sizes. Raises Problem where
        the element type does not have the value."""
        if is_of_sizes(value):
            check_kind(value, dtype_name(element))
            made = self.extras.value(size_number(value), element)
            if is_whole(value):
                self.numbers[made] = value
            return self.at_top(made)
        key = (dtype_name(element), repr(value))
        data = self._scalars.get(key)
        if data is None:
            data = self._scalars[key] = DataAttr.of(self.array(value, element))
        return self.emit(ConstantOp, [], [tensor([], element)], value=data)[0]

    def at_top(self, value: Any) -> Any:
        """A value of the top of the program, at the current place."""
        return value

    def stands_for(self, value: SSAValue, outer: SSAValue) -> None:
        """Notes that a value of a loop is always that of one around it."""
        if outer in self.counters:
            self.counters.add(value)
        if outer in self.numbers:
            self.numbers[value] = self.numbers[outer]

    def number(self, value: SSAValue) -> float | int | bool | None:
        """The number that a scalar is, where that is known."""
        return self.numbers[value] if value in self.numbers else scalar_value(value)

    def constant(self, array: np.ndarray) -> SSAValue:
        """A constant tensor."""
        literal = Literal.of(array)
        result = tensor(literal.shape, element_type(literal.dtype))
        return self.emit(ConstantOp, [], [result], value=DataAttr(literal))[0]

    def array(self, value: Any, element: Attribute) -> np.ndarray:
        """A number or nested list of numbers as an array. Raises Problem where it does not fit the element type."""
        name = dtype_name(element)
        flat, shape = flatten(value)
        for v in flat:
            check_kind(v, name)
        target = numpy_dtype(element)
        if name[0] == "i" and name != "i1":
            half = 1 << (8 * target.itemsize - 1)
            for v in flat:
                if not -half <= v < half:
                    raise Problem(f"{spelt(v)} does not fit {name}", f"{name} holds {-half} to {half - 1}")
        with np.errstate(all="ignore"):
            try:
                wide = np.asarray(flat, np.float64) if is_float(name) else np.asarray(flat)
            except OverflowError:
                raise Problem(f"a number does not fit {name}") from None
            made = wide.astype(target)
        if is_float(name):
            for v in wide[np.isfinite(wide) & ~np.isfinite(made.astype(np.float64))][:1]:
                most = f"{name} holds up to {float(ml_dtypes.finfo(target).max):g}"
                raise Problem(
                    f"{spelt(float(v))} does not fit {name}", most, help="infinity is written `inf`"
                )
        return made.reshape(shape)

    def fill(self, scalar: SSAValue, shape: Sequence[int]) -> SSAValue:
        """A scalar repeated into `shape`."""
        return self.broadcast(scalar, shape)

    # -- the forms of JAX's ops ----------------------------------------------------------------------------

    def tensor(self, value: Any, element: Attribute | None = None) -> SSAValue:
        """A value as a tensor: numbers and lists become constants of the element type. Raises Problem."""
        if isinstance(value, SSAValue):
            return value
        if not (isinstance(value, list) or is_known_number(value)):
            raise Problem(f"needs a tensor, got {describe_value(value)}")
        if element is None:
            flat, _ = flatten(value)
            if any(isinstance(v, bool) for v in flat):
                element = BOOLEAN
            else:
                element = F32 if any(map(is_fraction, flat)) else I32
        if not isinstance(value, list):
            return self.scalar(value, element)
        flat, shape = flatten(value)
        if not any(map(is_of_sizes, flat)):
            return self.constant(self.array(value, element))
        parts = [self.expand(self.scalar(v, element), [0]) for v in flat]
        joined = self.emit(ConcatOp, parts, [tensor([len(parts)], element)], dim=0)[0]
        return self.reshape(joined, shape)

    def broadcast(self, x: SSAValue, shape: Sequence[int], at_once: bool = False) -> SSAValue:
        """x repeated into `shape` as numpy does: dimensions of size 1, and in front. at_once: by one op, also where
        there are both. Raises Problem."""
        source, element = shape_of(x), element_of(x)
        if same_sizes(source, shape):
            return x
        lead = len(shape) - len(source)
        if lead < 0 or any(s not in (1, d) for s, d in zip(source, shape[lead:], strict=True)):
            raise Problem(f"cannot broadcast {type_text(x.type)} to the shape {shape_text(shape)}")
        if source and lead and at_once:
            dims = range(lead, len(shape))
            return self.emit(BroadcastOp, [x], [tensor(shape, element)], dims=list(dims))[0]
        if source and lead:
            dims = range(lead, len(shape))
            x = self.emit(BroadcastOp, [x], [tensor([1] * lead + list(source), element)], dims=list(dims))[0]
            if same_sizes(shape_of(x), shape):
                return x
        dims = range(len(shape)) if source else ()
        return self.emit(BroadcastOp, [x], [tensor(shape, element)], dims=list(dims))[0]

    def expand(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """x with dimensions of size 1 at the positions `dims` of the result."""
        if not dims:
            return x
        rank = len(shape_of(x)) + len(dims)
        kept = [d for d in range(rank) if d not in dims]
        shape = [1] * rank
        for d, n in zip(kept, shape_of(x), strict=True):
            shape[d] = n
        return self.emit(BroadcastOp, [x], [tensor(shape, element_of(x))], dims=kept)[0]

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        if same_sizes(shape_of(x), shape):
            return x
        return self.emit(ReshapeOp, [x], [tensor(shape, element_of(x))])[0]

    def transpose(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        if list(perm) == list(range(len(perm))):
            return x
        shape = shape_of(x)
        return self.emit(
            TransposeOp, [x], [tensor([shape[p] for p in perm], element_of(x))], perm=list(perm)
        )[0]

    def slice(
        self, x: SSAValue, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]
    ) -> SSAValue:
        shape = [extent_of(*spec) for spec in zip(starts, limits, strides, strict=True)]
        if same_sizes(shape, shape_of(x)):
            return x
        result = tensor(shape, element_of(x))
        return self.emit(SliceOp, [x], [result], starts=starts, limits=limits, strides=strides)[0]

    def convert(self, x: SSAValue, element: Attribute) -> SSAValue:
        if element_of(x) == element:
            return x
        return self.emit(ELEMENTWISE["convert"], [x], [tensor(shape_of(x), element)])[0]

    def reduce(self, x: SSAValue, kind: str, axes: Sequence[int], keep: bool) -> SSAValue:
        """x reduced along `axes`; sums and products of 16-bit floats add up in f32, as JAX's do."""
        element = element_of(x)
        wide = kind in ("sum", "prod") and dtype_name(element) in ("f16", "bf16")
        if wide:
            x = self.convert(x, F32)
        shape = [s for d, s in enumerate(shape_of(x)) if d not in axes]
        out = x
        if axes:
            out = self.emit(ReduceOp, [x], [tensor(shape, element_of(x))], kind=kind, dims=list(axes))[0]
            if keep:
                out = self.expand(out, axes)
        return self.convert(out, element)

    # -- scalar functions ----------------------------------------------------------------------------------

    def apply(self, name: str, *args: Any, sign: str = "") -> Any:
        """A scalar function of values that are broadcast together. Numbers alone give a number; beside tensors
        they take their element type. sign: how messages call the function. Raises Problem."""
        function, called = FUNCTIONS[name], sign or name
        if any(isinstance(a, Poison) for a in args):
            return POISON
        for i, a in enumerate(args):
            if isinstance(a, DTypeName | str | tuple):
                raise Problem(f"`{called}` needs tensors or numbers, got {describe_value(a)}", argument=i)
        if not any(isinstance(a, SSAValue | list) for a in args):
            return compute(name, args, called)
        values = args[1:] if function.predicate else args
        element = self.common(called, values)
        check_domain(function, element, called)
        tensors = [self.tensor(a, element) for a in values]
        if function.predicate:
            chosen = self.tensor(args[0], BOOLEAN)
            if element_of(chosen) != BOOLEAN:
                raise Problem(f"`{called}` chooses by i1, got {describe_value(chosen)}", argument=0)
            tensors = [chosen, *tensors]
        shape = self.together(called, tensors)
        # JAX broadcasts the operands of jnp.where in one step, and those of other functions in two
        operands = [self.broadcast(t, shape, at_once=function.predicate) for t in tensors]
        result = BOOLEAN if function.result == "i1" else element
        return self.emit(ELEMENTWISE[name], operands, [tensor(shape, result)])[0]

    def common(self, called: str, values: Sequence[Any]) -> Attribute:
        """The one element type of the tensors among `values`. Raises Problem where they differ."""
        tensors = [v for v in values if isinstance(v, SSAValue)]
        if not tensors:
            lists = [v for v in values if isinstance(v, list)]
            if not lists:
                first = f"{spelt(values[0])} as {'i1' if isinstance(values[0], bool) else 'f32'}"
                raise Problem(f"`{called}` has only numbers, which have no type", help=f"give one: `{first}`")
            return element_of(self.tensor(lists[0]))
        elements = {element_of(t) for t in tensors}
        if len(elements) > 1:
            found = " and ".join(dict.fromkeys(dtype_name(element_of(t)) for t in tensors))
            raise Problem(
                f"`{called}` of different element types",
                f"{' and '.join(type_text(t.type) for t in tensors)}",
                [f"the element types are {found}"],
                f"convert one side, as in `x as {dtype_name(element_of(tensors[0]))}`",
            )
        return elements.pop()

    def together(self, called: str, tensors: Sequence[SSAValue]) -> tuple[int, ...]:
        """The shape that tensors are broadcast to. Raises Problem where they do not fit together."""
        shapes = [shape_of(t) for t in tensors]
        rank = max(map(len, shapes))
        out = [1] * rank
        for shape in shapes:
            for d, n in enumerate(shape, rank - len(shape)):
                if n != 1 and out[d] not in (1, n):
                    raise Problem(
                        f"shapes do not fit together in `{called}`",
                        f"{' and '.join(type_text(t.type) for t in tensors)}",
                        [
                            f"in dimension {d - rank} one has {out[d]}, the other {n}; sizes must be equal or 1"
                        ],
                    )
                out[d] = n if out[d] == 1 else out[d]
        return tuple(out)


def check_kind(value: Number, dtype: str) -> None:
    """Raises Problem where a number is none that an element type may have: a truth value, or a float."""
    if isinstance(value, bool) != (dtype == "i1"):
        help = "truth values are i1; convert with `as`" if isinstance(value, bool) else "write true or false"
        raise Problem(f"{spelt(value)} is not a value of {dtype}", help=help)
    if not is_float(dtype) and is_fraction(value):
        help = "write a whole number, or convert the other side"
        raise Problem(f"{spelt(value)} is not a value of {dtype}", help=help)


def same_type(a: Attribute, b: Attribute) -> bool:
    """Whether two tensor types are the same one; sizes that may be equal are assumed to be, or not."""
    assert isinstance(a, TensorType)
    assert isinstance(b, TensorType)
    return a == b or (a.element_type == b.element_type and shape_in(a) == shape_in(b))


def check_domain(function: Function, element: Attribute, called: str) -> None:
    """Raises Problem where a function is not defined on an element type."""
    name = dtype_name(element)
    if not function.defined_on(name):
        wanted = {"number": "numbers", "float": "floats", "whole": "integers or i1", "integer": "integers"}
        help = "convert with `as f32`" if function.domain == "float" else ""
        if name == "i1" and function.domain == "number":
            help = "logic is written `and`, `or`, `not`; or convert with `as`"
        raise Problem(f"`{called}` is for {wanted[function.domain]}, not {name}", help=help)


def flatten(value: Any) -> tuple[list[Number], tuple[int, ...]]:
    """The numbers of a nested list, and its shape. Raises Problem where rows differ in length."""
    if not isinstance(value, list):
        return [value], ()
    flat: list[Number] = []
    inner: tuple[int, ...] | None = None
    for item in value:
        if not (isinstance(item, list) or is_known_number(item)):
            raise Problem(
                f"a list of constants holds {describe_value(item)}", help="`concat` and `stack` join tensors"
            )
        numbers, shape = flatten(item)
        if inner is not None and shape != inner:
            raise Problem("the rows of a list differ in shape", f"{list(inner)} and {list(shape)}")
        inner = shape
        flat += numbers
    if len(flat) > MOST_LITERAL:
        raise Problem(f"a list of more than {MOST_LITERAL} numbers", help="use a param from a file")
    return flat, (len(value), *(inner or ()))
