"""The syntax tree of `.tw`. Every node has `span`, the offsets in its file from which it was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .diagnostics import TextSpan


@dataclass(slots=True, eq=False)
class SyntaxNode:
    """span: where it stands; depth: how many operations are within each other in it."""

    span: TextSpan
    depth: int = field(default=0, kw_only=True)


@dataclass(slots=True, eq=False)
class Name(SyntaxNode):
    """`x`"""

    id: str


@dataclass(slots=True, eq=False)
class MemberName(SyntaxNode):
    """`layers.linear`: a name of an imported file."""

    module: Name
    id: Name


@dataclass(slots=True, eq=False)
class LiteralExpr(SyntaxNode):
    """A number, truth value or string."""

    value: float | int | bool | str


@dataclass(slots=True, eq=False)
class DType(SyntaxNode):
    """`f16`, as a value."""

    id: str


@dataclass(slots=True, eq=False)
class ListOf(SyntaxNode):
    items: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class Unary(SyntaxNode):
    """`-x` or `not x`."""

    op: str
    x: Expr


@dataclass(slots=True, eq=False)
class Binary(SyntaxNode):
    op: str
    left: Expr
    right: Expr


@dataclass(slots=True, eq=False)
class Convert(SyntaxNode):
    """`x as f16`"""

    x: Expr
    dtype: DType


@dataclass(slots=True, eq=False)
class Keyword(SyntaxNode):
    """`axis=1` in a call."""

    id: Name
    value: Expr


@dataclass(slots=True, eq=False)
class CallExpr(SyntaxNode):
    callee: Name | MemberName
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]


@dataclass(slots=True, eq=False)
class Slice(SyntaxNode):
    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(slots=True, eq=False)
class Ellipsis(SyntaxNode):
    """`...`: all dimensions that the other indices leave."""


@dataclass(slots=True, eq=False)
class NewAxis(SyntaxNode):
    """`new`: a dimension of size 1."""


@dataclass(slots=True, eq=False)
class IndexExpr(SyntaxNode):
    """`x[1, ::2]`"""

    x: Expr
    items: tuple[IndexItem, ...]


Expr = Name | MemberName | LiteralExpr | DType | ListOf | Unary | Binary | Convert | CallExpr | IndexExpr
IndexItem = Expr | Slice | Ellipsis | NewAxis


@dataclass(slots=True, eq=False)
class Quant(SyntaxNode):
    """`quant i8(scale=0.1, zero=3)`"""

    dtype: DType
    keywords: tuple[Keyword, ...]


@dataclass(slots=True, eq=False)
class Type(SyntaxNode):
    """`f16[N, 128]`, with a quantization annotation or None."""

    dtype: DType
    dims: tuple[Expr, ...]
    quant: Quant | None


@dataclass(slots=True, eq=False)
class Target(SyntaxNode):
    """The left side of an assignment."""

    id: Name
    type: Type | None


@dataclass(slots=True, eq=False)
class Assign(SyntaxNode):
    """`a, b = f(x)`, or a value for each name: `a, b = b, a`"""

    targets: tuple[Target, ...]
    values: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class Update(SyntaxNode):
    """`x[i] = value`"""

    id: Name
    items: tuple[IndexItem, ...]
    value: Expr


@dataclass(slots=True, eq=False)
class Return(SyntaxNode):
    values: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class For(SyntaxNode):
    """`for i in start..stop { body }`"""

    index: Name
    start: Expr
    stop: Expr
    body: tuple[Statement, ...]


@dataclass(slots=True, eq=False)
class While(SyntaxNode):
    condition: Expr
    body: tuple[Statement, ...]


@dataclass(slots=True, eq=False)
class If(SyntaxNode):
    """`orelse` is empty where there is no else."""

    condition: Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...]


Statement = Assign | Update | Return | For | While | If


@dataclass(slots=True, eq=False)
class Import(SyntaxNode):
    path: LiteralExpr
    id: Name


@dataclass(slots=True, eq=False)
class Const(SyntaxNode):
    id: Name
    type: Type | None
    value: Expr


@dataclass(slots=True, eq=False)
class Param(SyntaxNode):
    """`param w: f16[4, 4] = "file"["key"]`"""

    id: Name
    type: Type
    path: LiteralExpr
    key: LiteralExpr


@dataclass(slots=True, eq=False)
class Parameter(SyntaxNode):
    id: Name
    type: Type


@dataclass(slots=True, eq=False)
class FunctionItem(SyntaxNode):
    """`head` is the span of `fn name`."""

    id: Name
    public: bool
    parameters: tuple[Parameter, ...]
    results: tuple[Type, ...]
    body: tuple[Statement, ...]
    head: TextSpan


Item = Import | Const | Param | FunctionItem


def names_in(node: Expr) -> Iterator[Name]:
    """The names in the arithmetic of a dimension."""
    match node:
        case Name():
            yield node
        case Unary():
            yield from names_in(node.x)
        case Binary():
            yield from names_in(node.left)
            yield from names_in(node.right)
        case _:
            pass


def assigned(statements: tuple[Statement, ...]) -> Iterator[Name]:
    """The names that statements assign, those of inner blocks included, in order."""
    for s in statements:
        match s:
            case Assign():
                yield from (t.id for t in s.targets)
            case Update():
                yield s.id
            case If():
                yield from assigned(s.body)
                yield from assigned(s.orelse)
            case For() | While():
                yield from assigned(s.body)
            case _:
                pass
