"""Builds graph ops for the `.tw` frontend: as `Walk` does for StableHLO, in the forms that JAX's own ops give, so
that equal programs become equal graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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
    ConstantOp,
    GraphOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.attributes import DataAttr, Literal
from ...dialects.graph.interface import element_of, shape_of
from .diagnostics import Problem, SourceFile

BOOLEAN = element_type("i1")
I32 = element_type("i32")
F32 = element_type("f32")

MOST_OPS = 100_000
"""A program of more ops has most likely calls that double at each level."""

MOST_LITERAL = 1 << 20
"""Elements of a constant that is written out or computed at compile time."""

Number = float | int | bool
Property = int | str | Sequence[int] | Attribute


class DTypeName(str):
    """An element type as a value: the argument of `type=`."""


class Poison:
    """The value of an expression with an error: what it meets has been reported already."""


POISON = Poison()

Value = SSAValue | float | int | bool | str | list | tuple | Poison
"""What an expression is worth: a tensor, or something known at compile time."""


def describe_value(value: Any) -> str:
    """`f32[8, 64]`, `the number 3`: a value in a message."""
    if isinstance(value, SSAValue):
        return type_text(value.type)
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
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
    return f"{dtype_name(type_.element_type)}{list(shape_in(type_))}"


def is_known_number(value: Any) -> bool:
    """Whether a value is a number or truth value known at compile time."""
    return isinstance(value, int | float) and not isinstance(value, Poison)


class Builder:
    """Appends graph ops to `out`, at the place `at` of a file."""

    def __init__(self) -> None:
        self.out: list[Operation] = []
        self.file: SourceFile | None = None
        self.at = 0
        self.count = 0
        self.counters: set[SSAValue] = set()
        """Scalars that cannot be negative: the counters of loops from 0 up."""
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
        if any(math.prod(shape_in(t)) > 1 << 40 for t in inferred if isinstance(t, TensorType)):
            raise Problem("the result is too large", f"{', '.join(map(type_text, inferred))}")
        return self.append(cls.create(operands=args, result_types=inferred, properties=made)).results

    def property(self, value: Property) -> Attribute:
        if isinstance(value, Attribute):
            return value
        if isinstance(value, int):
            return integer_attr(value)
        return StringAttr(value) if isinstance(value, str) else ints(value)

    # -- constants -----------------------------------------------------------------------------------------

    def scalar(self, value: Number, element: Attribute) -> SSAValue:
        """A scalar constant. Raises Problem where the element type does not have the value."""
        key = (dtype_name(element), repr(value))
        data = self._scalars.get(key)
        if data is None:
            data = self._scalars[key] = DataAttr.of(self.array(value, element))
        return self.emit(ConstantOp, [], [tensor([], element)], value=data)[0]

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
            if isinstance(v, bool) != (name == "i1"):
                help = (
                    "truth values are i1; convert with `as`" if isinstance(v, bool) else "write true or false"
                )
                raise Problem(f"{_spelt(v)} is not a value of {name}", help=help)
            if not is_float(name) and isinstance(v, float):
                raise Problem(
                    f"{_spelt(v)} is not a value of {name}",
                    help="write a whole number, or convert the other side",
                )
        target = numpy_dtype(element)
        if name[0] == "i" and name != "i1":
            half = 1 << (8 * target.itemsize - 1)
            for v in flat:
                if not -half <= v < half:
                    raise Problem(f"{_spelt(v)} does not fit {name}", f"{name} holds {-half} to {half - 1}")
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
                    f"{_spelt(float(v))} does not fit {name}", most, help="infinity is written `inf`"
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
        if isinstance(value, DTypeName | str | tuple) or not isinstance(value, int | float | list):
            raise Problem(f"needs a tensor, got {describe_value(value)}")
        if element is None:
            flat, _ = flatten(value)
            if any(isinstance(v, bool) for v in flat):
                element = BOOLEAN
            else:
                element = F32 if any(isinstance(v, float) for v in flat) else I32
        if isinstance(value, list):
            return self.constant(self.array(value, element))
        return self.scalar(value, element)

    def broadcast(self, x: SSAValue, shape: Sequence[int], at_once: bool = False) -> SSAValue:
        """x repeated into `shape` as numpy does: dimensions of size 1, and in front. at_once: by one op, also where
        there are both. Raises Problem."""
        source, element = shape_of(x), element_of(x)
        if source == tuple(shape):
            return x
        lead = len(shape) - len(source)
        if lead < 0 or any(s not in (1, d) for s, d in zip(source, shape[lead:], strict=True)):
            raise Problem(f"cannot broadcast {type_text(x.type)} to the shape {list(shape)}")
        if source and lead and at_once:
            dims = range(lead, len(shape))
            return self.emit(BroadcastOp, [x], [tensor(shape, element)], dims=list(dims))[0]
        if source and lead:
            dims = range(lead, len(shape))
            x = self.emit(BroadcastOp, [x], [tensor([1] * lead + list(source), element)], dims=list(dims))[0]
            if shape_of(x) == tuple(shape):
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
        if shape_of(x) == tuple(shape):
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
        shape = [len(range(*spec)) for spec in zip(starts, limits, strides, strict=True)]
        if shape == list(shape_of(x)):
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
                first = f"{_spelt(values[0])} as {'i1' if isinstance(values[0], bool) else 'f32'}"
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


def check_domain(function: Function, element: Attribute, called: str) -> None:
    """Raises Problem where a function is not defined on an element type."""
    name = dtype_name(element)
    if not function.defined_on(name):
        wanted = {"number": "numbers", "float": "floats", "whole": "integers or i1", "integer": "integers"}
        help = "convert with `as f32`" if function.domain == "float" else ""
        if name == "i1" and function.domain == "number":
            help = "logic is written `and`, `or`, `not`; or convert with `as`"
        raise Problem(f"`{called}` is for {wanted[function.domain]}, not {name}", help=help)


_NUMPY = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "true_divide",
    "max": "maximum",
    "min": "minimum",
    "neg": "negative",
    "rem": "fmod",
    "pow": "power",
    "atan2": "arctan2",
    "round_even": "rint",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
    "abs": "absolute",
    "is_finite": "isfinite",
}
"""numpy's names of functions where they differ, for numbers known at compile time."""

_WIDEST = 1 << 63


def compute(name: str, args: Sequence[Number], called: str) -> Number:
    """A scalar function of numbers, at compile time. Raises Problem."""
    if name == "select":
        return args[1] if args[0] else args[2]
    if name == "clamp":
        return min(max(args[1], args[0]), args[2])
    ufunc = getattr(np, _NUMPY.get(name, name), None)
    if ufunc is None:
        raise Problem(
            f"`{called}` of numbers is not known at compile time", help="convert one, as in `2.0 as f32`"
        )
    logic = all(isinstance(a, bool) for a in args)
    if name in ("and", "or", "not") and not logic:
        raise Problem(f"`{called}` needs truth values, got {describe_value(args[0])}")
    whole = all(isinstance(a, int) for a in args)
    if logic and name in ("add", "sub", "mul", "div", "neg"):
        raise Problem(f"`{called}` is for numbers, not truth values")
    try:
        if whole and name in ("add", "sub", "mul", "max", "min", "neg", "abs", "rem"):
            result = {
                "add": lambda a, b: a + b,
                "sub": lambda a, b: a - b,
                "mul": lambda a, b: a * b,
                "max": max,
                "min": min,
                "rem": lambda a, b: int(math.fmod(a, b)),
                "neg": lambda a: -a,
                "abs": abs,
            }[name](*args)
            return checked(result)
        with np.errstate(all="ignore"):
            result = ufunc(*(a if isinstance(a, bool) else np.float64(a) for a in args)).item()
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise Problem(f"`{called}` of {' and '.join(map(_spelt, args))} has no value") from None
    return result


def checked(value: Number) -> Number:
    """A whole number within 64 bits. Raises Problem beyond."""
    if isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
        raise Problem("a whole number beyond 64 bits")
    return value


def flatten(value: Any) -> tuple[list[Number], tuple[int, ...]]:
    """The numbers of a nested list, and its shape. Raises Problem where rows differ in length."""
    if not isinstance(value, list):
        return [value], ()
    flat: list[Number] = []
    inner: tuple[int, ...] | None = None
    for item in value:
        if not isinstance(item, list | int | float):
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


def _spelt(value: Number) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
