"""Which functions a `.tw` program can call, and with what: scalar functions and reductions from the tables of
dialects/elementwise.py, `graph.<op>` from the ops of the graph dialect, the rest from library.py."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import OptPropertyDef, VarOperandDef
from xdsl.traits import HasParent

from ...dialects.dtypes import element_type, numpy_dtype, tensor
from ...dialects.elementwise import FUNCTIONS
from ...dialects.graph import ConstantOp, DataAttr, Graph, GraphOp, HostOp, QuantizationOp
from ...dialects.graph.attributes import Literal
from ...dialects.graph.interface import element_of
from .arithmetic import floor_divide, modulo, power
from .builder import POISON, Builder, DTypeName, Poison, describe_value, shape_text
from .diagnostics import Problem, did_you_mean
from .library import LIBRARY, REDUCTION_NAMES, reduction
from .numbers import OpenNumber, as_float, is_known_number, is_whole

OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "pow": "**",
    "and": "and",
    "or": "or",
    "not": "not",
    "neg": "-",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "convert": "as",
}
"""Scalar functions that .tw writes as operators."""

BINARY: dict[str, Callable[[Builder, Any, Any], Any]] = {
    "//": floor_divide,
    "%": modulo,
    "**": power,
}
"""Operators that are more than one scalar function."""

_ROWS = {sign: name for name, sign in OPERATORS.items() if FUNCTIONS[name].arity == 2}


def binary(b: Builder, sign: str, x: Any, y: Any) -> Any:
    """`x sign y`. Raises Problem."""
    from .contraction import matmul

    for v in (x, y):
        if not (isinstance(v, SSAValue | list) or is_known_number(v)):
            raise Problem(f"`{sign}` needs tensors or numbers, got {describe_value(v)}")
    if sign == "@":
        for v in (x, y):
            if is_known_number(v):
                raise Problem(f"`@` needs tensors, got {describe_value(v)}")
        kinds = [element_of(v) for v in (x, y) if isinstance(v, SSAValue)]
        x, y = (b.tensor(v, kinds[0] if kinds else None) for v in (x, y))
        return matmul(b, x, y)
    if sign in BINARY:
        return BINARY[sign](b, x, y)
    if sign == "/" and not any(isinstance(v, SSAValue | list) for v in (x, y)):
        if not isinstance(y, OpenNumber) and y == 0:
            raise Problem("division by zero")
    if sign == "/" and any(isinstance(v, SSAValue) and not _is_float(v) for v in (x, y)):
        raise Problem("`/` is for floats", help="write `//` for whole numbers, or convert with `as f32`")
    return b.apply(_ROWS[sign], x, y, sign=sign)


def _is_float(value: SSAValue) -> bool:
    from ...dialects.dtypes import is_float

    return is_float(element_of(value))


@dataclass(frozen=True)
class LibraryFunction:
    """What a call needs. kinds: by parameter name, of the positional ones and of the keywords."""

    name: str
    run: Callable[..., Any]
    positional: Mapping[str, str]
    optional: int
    """How many of the positional parameters may be absent."""
    rest: str | None
    """The name of the parameter that takes any number of tensors."""
    keywords: Mapping[str, str]
    required: frozenset[str]
    doc: str

    @property
    def usage(self) -> str:
        """`softmax(x, axis=)`."""
        words = [
            *self.positional,
            *([f"*{self.rest}"] if self.rest else []),
            *(f"{k}=" for k in self.keywords),
        ]
        return f"{self.name}({', '.join(words)})"

    def __call__(self, b: Builder, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The value of a call. Raises Problem where the arguments are not what the function takes."""
        if any(isinstance(v, Poison) for v in (*args, *keywords.values())):
            return POISON
        fewest, most = len(self.positional) - self.optional, len(self.positional)
        if len(args) < fewest or (len(args) > most and self.rest is None):
            count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            plural = "" if count == "1" else "s"
            more = ""
            if len(args) > most and self.keywords:
                more = "; all else is given by keyword"
            raise Problem(
                f"`{self.name}` takes {count} argument{plural}, got {len(args)}", help=f"`{self.usage}`{more}"
            )
        for name in keywords:
            if name not in self.keywords:
                known = f"its keywords are {', '.join(self.keywords)}" if self.keywords else "it takes none"
                help = did_you_mean(name, self.keywords) or known
                raise Problem(f"`{self.name}` has no keyword `{name}`", help=help, argument=name)
        absent = sorted(self.required - set(keywords))
        if absent:
            raise Problem(f"`{self.name}` needs `{absent[0]}=`", help=f"`{self.usage}`")
        kinds = list(self.positional.items())
        taken = []
        for i, value in enumerate(args):
            name, kind = kinds[i] if i < len(kinds) else (str(self.rest), "Tensor")
            taken.append(_taken(b, self.name, name, kind, value, i))
        made = {k: _taken(b, self.name, k, self.keywords[k], v, k) for k, v in keywords.items()}
        return self.run(b, *taken, **made)


_WANTED = {
    "Tensor": "a tensor",
    "Value": "a tensor or a number",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "Ints": "a list of whole numbers",
    "DTypeName": "an element type such as f32",
}


def _taken(b: Builder, function: str, name: str, kinds: str, value: Any, argument: int | str) -> Any:
    """A value as a parameter takes it. Raises Problem."""
    for kind in kinds.split(" | "):
        match kind:
            case "Tensor" if isinstance(value, SSAValue):
                return value
            case "Tensor" if isinstance(value, list):
                return b.tensor(value)
            case "Value" if isinstance(value, SSAValue) or is_known_number(value):
                return value
            case "int" if is_whole(value):
                return value
            case "float" if is_known_number(value) and not isinstance(value, bool):
                return as_float(value)
            case "bool" if isinstance(value, bool):
                return value
            case "DTypeName" if isinstance(value, DTypeName):
                return value
            case "str" if isinstance(value, str) and not isinstance(value, DTypeName):
                return value
            case "Ints" if isinstance(value, list) and all(map(is_whole, value)):
                return value
            case _:
                pass
    wanted = " or ".join(_WANTED[k] for k in kinds.split(" | ") if k != "None")
    help = ""
    if kinds == "Tensor" and is_known_number(value):
        help = f"give it a type: `{describe_value(value).split()[-1]} as f32`"
    if isinstance(value, SSAValue) and "int" in kinds:
        help = "this must be known at compile time"
    raise Problem(
        f"`{name}` of `{function}` must be {wanted}, got {describe_value(value)}",
        help=help,
        argument=argument,
    )


def _from_python(name: str, run: Callable[..., Any]) -> LibraryFunction:
    positional, keywords, required, rest, optional = {}, {}, set(), None, 0
    for p in list(inspect.signature(run).parameters.values())[1:]:
        kind = str(p.annotation)
        if p.kind is p.VAR_POSITIONAL:
            rest = p.name
        elif p.kind is p.KEYWORD_ONLY:
            keywords[p.name] = kind
            if p.default is p.empty:
                required.add(p.name)
        else:
            positional[p.name] = kind
            optional += p.default is not p.empty
    doc = (inspect.getdoc(run) or "").split("\n")[0]
    return LibraryFunction(name, run, positional, optional, rest, keywords, frozenset(required), doc)


def _scalar_function(name: str) -> LibraryFunction:
    names: tuple[str, ...] = {1: ("x",), 2: ("x", "y"), 3: ("a", "x", "y")}[FUNCTIONS[name].arity]
    if name == "clamp":
        names = ("low", "x", "high")
    kinds = dict.fromkeys(names, "Value")

    def run(b: Builder, *args: Any) -> Any:
        return b.apply(name, *args)

    return LibraryFunction(name, run, kinds, 0, None, {}, frozenset(), f"graph.{name} of each element.")


def _reduction(kind: str) -> LibraryFunction:
    name = REDUCTION_NAMES[kind]
    keywords = {"axis": "int | Ints", "keep": "bool"}
    doc = f"Reduces by `{kind}` along axes, all where none is given; keep: as dimensions of size 1."

    def run(b: Builder, x: Any, *more: Any, axis: Any = None, keep: bool = False) -> Any:
        if name in FUNCTIONS and more:
            if axis is not None or keep:
                raise Problem(f"`{name}` of two arguments takes no keywords")
            return b.apply(name, x, *more)
        if not isinstance(x, SSAValue):
            raise Problem(f"`x` of `{name}` must be a tensor, got {describe_value(x)}", argument=0)
        return reduction(b, kind, x, axis, keep)

    if name in FUNCTIONS:
        doc += f" Of two arguments: the {name} of each pair of elements."
        return LibraryFunction(name, run, {"x": "Value", "y": "Value"}, 1, None, keywords, frozenset(), doc)
    return LibraryFunction(name, run, {"x": "Tensor"}, 0, None, keywords, frozenset(), doc)


@cache
def functions() -> dict[str, LibraryFunction]:
    """The functions that have plain names."""
    return {
        **{n: _scalar_function(n) for n in FUNCTIONS if n not in OPERATORS},
        **{REDUCTION_NAMES[k]: _reduction(k) for k in REDUCTION_NAMES},
        **{n: _from_python(n, f) for n, f in LIBRARY.items()},
    }


# -- graph.<op> ----------------------------------------------------------------------------------------------

_PROPERTY_KINDS = {DenseArrayBase: "Ints", IntegerAttr: "int", StringAttr: "str", DataAttr: "data"}


@cache
def graph_functions() -> dict[str, LibraryFunction]:
    """The ops of the graph dialect that have no regions, by their names without `graph.`. Types say how values are
    quantized, so the ops for that are none of them, nor is what stands in fusions alone."""
    found = {}
    for cls in Graph.operations:
        if issubclass(cls, HostOp | QuantizationOp) or cls.get_traits_of_type(HasParent):
            continue
        if issubclass(cls, GraphOp) and not cls.get_irdl_definition().regions:
            name = cls.name.removeprefix("graph.")
            found[name] = _constant_function() if cls is ConstantOp else _op_function(name, cls)
    return found


def property_kinds(cls: type[GraphOp]) -> dict[str, str]:
    """`{property: kind}` of an op."""
    kinds = {}
    for name, definition in cls.get_irdl_definition().properties.items():
        bases = definition.constr.get_bases() or set()
        kinds[name] = next((k for b, k in _PROPERTY_KINDS.items() if b in bases), "Ints")
    return kinds


def _op_function(name: str, cls: type[GraphOp]) -> LibraryFunction:
    definition = cls.get_irdl_definition()
    single = {n: "Tensor" for n, d in definition.operands if not isinstance(d, VarOperandDef)}
    rest = next((n for n, d in definition.operands if isinstance(d, VarOperandDef)), None)
    keywords = property_kinds(cls)
    optional = {n for n, d in definition.properties.items() if isinstance(d, OptPropertyDef)}
    n_results = len(definition.results)

    def run(b: Builder, *args: SSAValue, **given: Any) -> Any:
        types = given.pop("types", None)
        shape = given.pop("shape", [])
        if any(n < 0 for n in shape):
            raise Problem(f"the shape {shape_text(shape)} has a negative dimension", argument="shape")
        if types is None:
            types = element_of(args[0]) if args else element_type("f32")
        seeds: list[Attribute] = [tensor(shape, types)] * n_results
        results = b.infer(cls, args, seeds, **given)
        return results[0] if len(results) == 1 else tuple(results)

    def typed(b: Builder, *args: SSAValue, **given: Any) -> Any:
        if "type" in given:
            given["types"] = element_type(given.pop("type"))
        return run(b, *args, **given)

    extra = {"shape": "Ints", "type": "DTypeName"}
    doc = (inspect.getdoc(cls) or "").split("\n")[0]
    return LibraryFunction(
        f"graph.{name}", typed, single, 0, rest, keywords | extra, frozenset(keywords) - optional, doc
    )


def _constant_function() -> LibraryFunction:
    def run(b: Builder, *, data: str, shape: list[int], type: DTypeName, splat: bool = False) -> SSAValue:
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise Problem("the data is not base64", argument="data") from None
        if any(n < 0 for n in shape):
            raise Problem(f"the shape {shape_text(shape)} has a negative dimension", argument="shape")
        shape = [int(n) for n in shape]  # it has as many bytes as there are elements
        literal = Literal(type, tuple(shape), content, splat)
        count = 1 if splat else int(np.prod(shape, dtype=object))
        if len(content) != count * numpy_dtype(type).itemsize:
            raise Problem(f"{len(content)} bytes do not fill {type}{shape}", argument="data")
        return b.emit(ConstantOp, [], [tensor(shape, element_type(type))], value=DataAttr(literal))[0]

    keywords = {"data": "str", "shape": "Ints", "type": "DTypeName", "splat": "bool"}
    required = frozenset(keywords) - {"splat"}
    doc = "A constant from its bytes in base64; splat: of one element that fills the shape."
    return LibraryFunction("graph.constant", run, {}, 0, None, keywords, required, doc)
