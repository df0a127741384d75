"""The text of stage graphs, which reads back as the same graph, and their fingerprints.

    stages {
      %0 = load {input = 0, box = [1024 by 512 at 0, 512 by 1 at 1]} : f16 over [0, 1]
      %1 = apply(%0) {of = "exp"} : f16 over [0, 1]
      %2 = reduce(%1) {by = "sum", axes = [(1, 512)]} : f16 over [0]
      store(%2) {output = 0, box = [1024 by 1 at 0], element = f16} over [0]
    }

A graph that has axes of its own begins with them: `axis 2 {what = "kept", least = 8}`. A field that has its usual value
is left out. Sizes that are open stand as `<8*s + 1>`; numbers that JSON does not have
are their bits, as in MLIR. Locations are no part of the text.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, UnexpectedInput, VisitError
from xdsl.ir import Attribute

from ..dialects.dtypes import dtype_name, element_type
from ..dialects.open_sizes import OpenSize
from ..dialects.sizes import Names, SizeError, parse_size, size_text
from . import indexed, product_stages
from .graph import OwnAxis, StageGraph
from .product_stages import OperandDim, PlaceRead
from .stage import BoxDim, KernelStage, Ref, Spacing, StageOp

OPS_IN = (indexed, product_stages)
"""Modules besides stage.py that have ops of stages."""

Made = TypeVar("Made", bound=StageOp | OwnAxis | OperandDim | PlaceRead)

RECORDS: Mapping[str, type[OperandDim | PlaceRead]] = {"dim": OperandDim, "place": PlaceRead}
"""What stages have as values that have fields of their own, by the names that text calls them."""


class StageError(ValueError):
    """A text that is no stage graph, or a graph that no kernel could have; the message is one sentence."""


def stage_ops() -> Mapping[str, type[StageOp]]:
    """The ops of stages by the names that text calls them."""
    found, left = dict[str, type[StageOp]](), [StageOp]
    while left:
        for cls in left.pop().__subclasses__():
            left.append(cls)
            if "NAME" in vars(cls):
                found[cls.NAME] = cls
    return found


# -- printing ------------------------------------------------------------------------------------------------


def own_text(graph: StageGraph) -> Sequence[str]:
    """The lines of a graph's own axes."""
    return [f"  axis {number} {{{', '.join(_fields(axis))}}}" for number, axis in graph.own.items()]


def text_of(graph: StageGraph) -> str:
    """The text of a graph."""
    stages = (f"  {stage_text(i, stage)}" for i, stage in enumerate(graph))
    return "\n".join(["stages {", *own_text(graph), *stages, "}"])


def stage_text(number: int, stage: KernelStage) -> str:
    """The line of a stage that is the `number`-th of its graph."""
    results = ", ".join(ref_text((number, j), len(stage.elements)) for j, _ in enumerate(stage.elements))
    operands = ", ".join(ref_text(ref, 1 if ref[1] == 0 else 2) for ref in stage.operands)
    given = ", ".join(_fields(stage.op))
    parts = [
        f"{results} = " if results else "",
        stage.op.NAME,
        f"({operands})" if operands else "",
        f" {{{given}}}" if given else "",
        f" : {', '.join(map(dtype_name, stage.elements))}" if stage.elements else "",
        f" over {value_text(tuple(sorted(stage.axes)))}" if stage.axes else "",
        f" as {value_text(stage.tile_axes)}" if stage.tile_axes else "",
        "" if stage.spacing is None else f" spaced {_spacing(stage.spacing)}",
        f" windows {value_text(tuple(sorted(stage.pooled)))}" if stage.pooled else "",
    ]
    return "".join(parts)


def fingerprint(graph: StageGraph) -> str:
    """What graphs have in common that print alike."""
    return digest(text_of(graph))


def digest(text: str) -> str:
    """16 hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ref_text(ref: Ref, results: int) -> str:
    """What text calls a result of a stage that has so many."""
    return f"%{ref[0]}" if results == 1 else f"%{ref[0]}#{ref[1]}"


def _spacing(spacing: Spacing) -> str:
    of = f" of {spacing.of}" if spacing.of else ""
    return f"{spacing.axis} pairs" if spacing.pairs else f"{spacing.axis} by {spacing.step}{of}"


def _fields(of: StageOp | OwnAxis | OperandDim | PlaceRead) -> Iterator[str]:
    for each in fields(of):
        value = getattr(of, each.name)
        if each.default is MISSING or repr(value) != repr(each.default):
            yield f"{each.name} = {value_text(value)}"


def value_text(value: Any) -> str:
    """The text of a value of a field."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case BoxDim():
            walked = "" if value.axis is None else f" at {value.axis}"
            step = "" if value.step == 1 else f" step {value_text(value.step)}"
            start = "" if value.start == 0 else f" from {value_text(value.start)}"
            plus = "" if value.plus is None else f" plus {value.plus}"
            return f"{value_text(value.extent)} by {value_text(value.stride)}{walked}{step}{start}{plus}"
        case OperandDim() | PlaceRead():
            name = next(name for name, cls in RECORDS.items() if isinstance(value, cls))
            return f"{name} {{{', '.join(_fields(value))}}}"
        case float():
            return repr(value) if isfinite(value) else f"0x{struct.pack('>d', value).hex().upper()}"
        case int():
            return str(value)
        case OpenSize():
            return f"<{size_text(value.size)}>"
        case Attribute():
            return dtype_name(value)
        case tuple() if value and all(isinstance(v, tuple) for v in value):
            pairs = (", ".join(map(value_text, pair)) for pair in value)
            return f"[{', '.join(f'({pair})' for pair in pairs)}]"
        case tuple():
            return f"[{', '.join(map(value_text, value))}]"
    raise StageError(f"{value!r} has no text in a stage")


# -- reading -------------------------------------------------------------------------------------------------

GRAMMAR = r"""
graph: "stages" "{" own* stage* "}"
nest: "nest" ["over" NUMBER] "{" own* item* "}"
?item: placed | turns
placed: stage ["tile" list]
turns: "for" number ["by" NAME] ["along" list] ["carries" "[" pairs "]"] ["steps" list] "{" item* "}"
pairs: pair ("," pair)*
pair: ref "to" ref
own: "axis" NUMBER fields
stage: [refs "="] NAME ["(" refs ")"] [fields] [":" dtypes] ["over" list] ["as" list] [spaced] [windows]
fields: "{" [field ("," field)*] "}"
refs: ref ("," ref)*
ref: "%" NUMBER ["#" NUMBER]
dtypes: NAME ("," NAME)*
spaced: "spaced" NUMBER (PAIRS | "by" NUMBER ["of" NUMBER])
windows: "windows" list
field: NAME "=" value
?value: dim | number | STRING -> string | list | tuple | record | NAME -> name
record: NAME fields
list: "[" (value ("," value)*)? "]"
tuple: "(" value ("," value)+ ")"
dim: number "by" number ["at" NUMBER] ["step" number] ["from" number] ["plus" NUMBER]
?number: NUMBER -> decimal | BITS -> bits | SIZE -> open_size
PAIRS: "pairs"
NUMBER: /-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?/
BITS.2: /0x[0-9A-F]{16}/
SIZE: /<[^>]*>/
NAME: /[A-Za-z_][A-Za-z_0-9]*/
STRING: /"[^"]*"/
COMMENT: /\/\/[^\n]*/
%import common.WS
%ignore WS
%ignore COMMENT
"""


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, start=["graph", "nest"], parser="lalr", propagate_positions=True)


def parse(text: str, symbols: Names | None = None) -> StageGraph:
    """The graph of a text, checked. symbols: what the names in open sizes stand for. Raises StageError."""
    graph = read(text, "graph", StageReader(symbols or {}))
    check(graph)
    return graph


def read(text: str, start: str, reader: StageReader) -> Any:
    """What a reader makes of a text by the rule `start` of the grammar. Raises StageError."""
    try:
        return reader.transform(_parser().parse(text, start=start))
    except UnexpectedInput as error:
        raise StageError(
            f"line {error.line}: {error.get_context(text).splitlines()[0].strip()}: cannot be read"
        ) from None
    except VisitError as error:
        raise error.orig_exc from None
    except LarkError as error:
        raise StageError(str(error)) from None


@v_args(inline=True)
class StageReader(Transformer[Token, Any]):
    """Makes stages of their text."""

    def __init__(self, symbols: Names) -> None:
        super().__init__()
        self.symbols = symbols

    def graph(self, *lines: Any) -> StageGraph:
        found = StageGraph()
        found.own = dict(line for line in lines if len(line) == 2)
        for line, results, stage in (line for line in lines if len(line) == 3):
            self.add(found, line, results, stage)
        return found

    def add(self, graph: StageGraph, line: int, results: Sequence[Ref], stage: KernelStage) -> None:
        """Adds a stage whose results are called so in a line."""
        if results and list(results) != [(len(graph), j) for j, _ in enumerate(stage.elements)]:
            raise StageError(f"line {line}: results of stage {len(graph)} are called %{len(graph)}")
        graph.append(stage)

    @v_args(meta=True, inline=False)
    def stage(self, meta: Any, parts: list[Any]) -> tuple[int, Sequence[Ref], KernelStage]:
        results, name, operands, given, elements, axes, tile_axes, spaced, pooled = parts
        cls = stage_ops().get(str(name))
        if cls is None:
            raise StageError(
                f"line {meta.line}: there is no stage {name}; there are {', '.join(stage_ops())}"
            )
        op = self._made(cls, name, given or (), meta.line)
        if (elements is None) != (not results):
            raise StageError(f"line {meta.line}: {name} has results, or element types, but not both")
        stage = KernelStage(
            op,
            elements or (),
            frozenset(axes or ()),
            operands or (),
            spaced,
            frozenset(pooled or ()),
            tile_axes=tuple(tile_axes or ()),
        )
        return meta.line, results or (), stage

    def record(self, name: Token, given: Sequence[tuple[str, Any]]) -> OperandDim | PlaceRead:
        cls = RECORDS.get(str(name))
        if cls is None:
            raise StageError(f"line {name.line}: there is no {name} with fields; there are {', '.join(RECORDS)}")
        return self._made(cls, str(name), given, name.line or 0)

    @v_args(meta=True, inline=False)
    def own(self, meta: Any, parts: list[Any]) -> tuple[int, OwnAxis]:
        return int(parts[0]), self._made(OwnAxis, "axis", parts[1], meta.line)

    def _made(self, cls: type[Made], name: str, given: Sequence[tuple[str, Any]], line: int) -> Made:
        """What these fields are of. Raises StageError where it has others."""
        known = {each.name: each for each in fields(cls)}
        said = dict(given)
        for each in said:
            if each not in known:
                raise StageError(f"line {line}: {name} has no {each}; it has {', '.join(known) or 'nothing'}")
        for each in known.values():
            if each.default is MISSING and each.name not in said:
                raise StageError(f"line {line}: {name} has no {each.name}")
        return cls(**said)

    def fields(self, *given: tuple[str, Any] | None) -> Sequence[tuple[str, Any]]:
        return [pair for pair in given if pair is not None]

    def refs(self, *refs: Ref) -> Sequence[Ref]:
        return refs

    def ref(self, number: Token, which: Token | None) -> Ref:
        return int(number), 0 if which is None else int(which)

    def dtypes(self, *names: Token) -> Sequence[Attribute]:
        return [self._element(name) for name in names]

    def _element(self, name: Token) -> Attribute:
        try:
            return element_type(str(name))
        except (KeyError, ValueError):
            raise StageError(f"line {name.line}: there is no element type {name}") from None

    def spaced(self, axis: Token, step: Token, of: Token | None = None) -> Spacing:
        if step.type == "PAIRS":
            return Spacing(int(axis), pairs=True)
        return Spacing(int(axis), int(step), of=0 if of is None else int(of))

    def windows(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        return axes

    def field(self, name: Token, value: Any) -> tuple[str, Any]:
        return str(name), value

    def list(self, *values: Any) -> tuple[Any, ...]:
        return values

    def tuple(self, *values: Any) -> tuple[Any, ...]:
        return values

    def dim(
        self,
        extent: int,
        stride: int,
        axis: Token | None,
        step: int | None,
        start: int | None,
        plus: Token | None,
    ) -> BoxDim:
        walked, plus_ = (None if number is None else int(number) for number in (axis, plus))
        return BoxDim(
            extent, stride, walked, 1 if step is None else step, 0 if start is None else start, plus_
        )

    def decimal(self, value: Token) -> float | int:
        return float(value) if set(value) & set(".eE") else int(value)

    def bits(self, value: Token) -> float:
        return struct.unpack(">d", bytes.fromhex(value[2:]))[0]

    def open_size(self, value: Token) -> int:
        try:
            return OpenSize.of(parse_size(value[1:-1], self.symbols))
        except SizeError as error:
            raise StageError(f"line {value.line}: {error}") from None

    def string(self, value: Token) -> str:
        return value[1:-1]

    def name(self, value: Token) -> Any:
        words = {"true": True, "false": False, "none": None}
        return words[str(value)] if str(value) in words else self._element(value)


# -- rules ---------------------------------------------------------------------------------------------------


_COUNTS = ("none", "one", "two", "three")


def _range(least: int, most: int | None) -> str:
    """So many, in words."""
    few = _COUNTS[least] if least < len(_COUNTS) else str(least)
    return few if least == most else f"at least {few}" if most is None else f"{few} to {most}"



def check(graph: StageGraph) -> None:
    """Raises StageError where a graph is none that a kernel could have."""
    first = min(graph.own, default=0)
    for number, (axis, own) in enumerate(graph.own.items(), start=first):
        if axis != number:
            raise StageError(f"axis {axis} is called {number}")
        if own.of is not None and not 0 <= own.of < first:
            raise StageError(f"axis {axis} goes along {own.of}, which is none of the domain's")
    for i, stage in enumerate(graph):
        said = f"stage {i} ({stage.op.NAME})"
        if graph.own and max(stage.axes | stage.moves, default=0) >= first + len(graph.own):
            raise StageError(f"{said} has an axis that there is not")
        for j, which in stage.operands:
            if not 0 <= j < i:
                raise StageError(f"{said} reads %{j}, which is not before it")
            if which >= len(graph[j].elements):
                raise StageError(f"{said} reads %{j}#{which}, and %{j} has {len(graph[j].elements)} results")
        (least, most), given = stage.op.takes, len(stage.operands)
        if given < least or (most is not None and given > most):
            has = f"{given} operands" if most else "operands"
            raise StageError(f"{said} has {has}, and takes {_range(least, most)}")
        scalars = stage.op.scalars
        for number, (j, _) in enumerate(stage.operands):
            if (graph[j].kind == "scalar") != (number in scalars):
                raise StageError(f"{said} reads %{j}, which is {'no' if number in scalars else 'a'} scalar")
        if (stage.kind == "store") != (not stage.elements):
            raise StageError(f"{said} must have {'no results' if stage.elements else 'a result'}")
        if stage.reduces & stage.axes:
            raise StageError(f"{said} spans an axis that it reduces")
        moved = {a for a in stage.along if a is not None}
        if stage.view is not None and not moved & ({*stage.tile_axes} or moved) <= stage.axes:
            raise StageError(f"{said} moves along an axis that it does not span")
