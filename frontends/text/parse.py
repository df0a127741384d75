"""`.tw` text to the syntax tree. After a syntax error parsing goes on with the next statement, so that all errors of
a file are found at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedToken

from ...dialects.dtypes import dtype_name
from ..known import NATIVE
from . import syntax
from .diagnostics import DiagnosticLog, SourceFile, TextSpan, did_you_mean, in_words
from .syntax import SyntaxNode
from .terminals import grammar_text
from .tokens import BLOCKS, MOST_NESTED, NEWLINE, keywords, span_of, symbols, tokenize

Children = list[Any]

MOST_DEEP = 150
"""Operations within each other in one expression."""


def parse_items(source: SourceFile, report: DiagnosticLog) -> tuple[syntax.Item, ...]:
    """The items of a file; syntax errors are reported, and what they are in is left out."""
    dropped: set[int] = set()
    tokens = tokenize(source, report, dropped)
    if tokens is None:
        return ()
    state = _lark().parse_interactive("")
    stacks = state.parser_state
    i = 0
    while i < len(tokens):
        token = tokens[i]
        try:
            state.feed_token(token)
            i += 1
        except UnexpectedToken as error:
            if span_of(token)[0] not in dropped:  # else it follows from what has been said
                _report(source, tokens, i, state.accepts() or error.expected, report)
            i = _recover(stacks, tokens, i)
        except _TooDeep as error:
            report.add(source, error.span, *error.args)
            return ()
    try:
        items = state.feed_eof()
    except UnexpectedToken:  # a file that ends within a block which an error has cut off
        report.check()
        raise
    return tuple(items)


@cache
def _lark() -> Lark:
    return Lark(
        grammar_text(),
        parser="lalr",
        lexer="basic",
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=_Build(),
    )


def _recover(stacks: Any, tokens: Sequence[Token], at: int) -> int:
    """Takes the parser back to the start of the statement it was in, and gives the position of the next one."""
    table = stacks.parse_conf.parse_table.states
    inside = 0
    while True:
        row = table[stacks.state_stack[-1]]
        if "RETURN" in row and "RBRACE" in row:  # at the start of a statement
            inside = 1
            break
        if ("FN" in row and "CONST" in row) or len(stacks.state_stack) == 1:
            break
        stacks.state_stack.pop()
        stacks.value_stack.pop()
    # the rest of the statement goes, its blocks included
    depth = 0
    while at < len(tokens):
        kind = tokens[at].type
        if kind == "LBRACE":
            depth += 1
        elif kind == "RBRACE":
            if depth == 0 and inside:
                return at
            depth = max(0, depth - 1)
        elif kind == NEWLINE and depth == 0:
            return at + 1
        at += 1
    return at


# -- what is expected ----------------------------------------------------------------------------------------

_EXPRESSION = frozenset({"NAME", "INT", "FLOAT", "STRING", "TRUE", "FALSE", "LPAR", "LSQB"})
_OPERATORS = frozenset(
    {"PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "PERCENT", "AT", "POWER", "AND", "OR", "AS"}
)
_COMPARISONS = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE"})
_STATEMENTS = frozenset({"RETURN", "FOR", "WHILE"})
_ITEMS = frozenset({"FN", "CONST", "PARAM"})
_NAMED = {
    "NAME": "a name",
    "STRING": "a string",
    "DTYPE": "an element type",
    "INT": "a number",
    NEWLINE: "the end of the line",
}


def _expected(kinds: Iterable[str]) -> str:
    left = set(kinds) - {"$END"}
    words = []
    if left >= _ITEMS:
        words.append("`fn`, `const`, `param` or `import`")
        left -= _ITEMS | {"PUB", "IMPORT"}
    if left >= _STATEMENTS:
        words.append("a statement")
        left -= _STATEMENTS | {"NAME", "IF"}
    if left >= _EXPRESSION:
        words.append("an expression")
        left -= _EXPRESSION | {"MINUS", "NOT", "DTYPE", "NEW", "ELLIPSIS"}
    if len(left & _OPERATORS) > 6:
        words.append("an operator")
        left -= _OPERATORS | _COMPARISONS
        left -= {"LPAR", "LSQB", "DOT"}
    marks = symbols()
    words += sorted(_NAMED.get(k) or f"`{marks.get(k, k)}`" for k in left)
    return in_words(words) if words else "nothing more"


_OTHER_WORDS = {
    "def": "a function is written `fn name(x: f32[N]) -> f32[N] { ... }`",
    "let": "an assignment is written `name = value`",
    "var": "an assignment is written `name = value`",
    "function": "a function is written `fn name(x: f32[N]) -> f32[N] { ... }`",
    "elif": "write `else if`",
    "lambda": "functions have a name: `fn name(...) -> ... { ... }`",
    "from": 'an import is written `import "file.tw" as name`',
    "None": "there is no None; a new dimension is written `new`",
    "is": "equality is written `==`",
}

_ELEMENT_TYPES = {
    long: f"write `{short}`"
    for long, short in {
        **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
        **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
        **{f"uint{n}": f"ui{n}" for n in (8, 16, 32, 64)},
        **{"float": "f32", "half": "f16", "bfloat16": "bf16", "int": "i32", "bool": "i1"},
    }.items()
}


def _report(
    source: SourceFile, tokens: Sequence[Token], at: int, expected: Iterable[str], report: DiagnosticLog
) -> None:
    token, wanted = tokens[at], _expected(expected)
    span = span_of(token)
    before = tokens[at - 1] if at else None
    help = _hint(tokens, at, set(expected))
    if token.type == NEWLINE:
        end = span_of(before)[1] if before is not None else span[0]
        report.add(source, (end, end + 1), f"expected {wanted}, found the end of the line", help=help)
        return
    shown = f"`{token}`"
    if str(token) in keywords():
        shown = f"the keyword `{token}`"
    report.add(source, span, f"expected {wanted}, found {shown}", help=help)


def _line_before(tokens: Sequence[Token], at: int) -> Sequence[Token]:
    """What stands before a token in its line."""
    start = next((i + 1 for i in range(at - 1, -1, -1) if tokens[i].type == NEWLINE), 0)
    return tokens[start:at]


def _hint(tokens: Sequence[Token], at: int, expected: set[str]) -> str:
    token, before = tokens[at], tokens[at - 1] if at else None
    for near in (token, before):
        if near is not None and str(near) in _OTHER_WORDS:
            return _OTHER_WORDS[str(near)]
    if token.type in _COMPARISONS and expected & {"AND"}:
        return "comparisons do not chain: write `a < b and b < c`"
    if str(token) in keywords() and "NAME" in expected:
        return f"`{token}` is a word of the language and cannot be a name"
    if token.type == "EQUAL" and "EQ" in expected:
        return "equality is written `==`"
    if (
        token.type in ("PLUS", "MINUS", "STAR", "SLASH")
        and at + 1 < len(tokens)
        and tokens[at + 1].type == "EQUAL"
    ):
        return f"write `x = x {token} ...`"
    if token.type == "COLON" and "LBRACE" in expected:
        return BLOCKS
    if expected == {"RANGE"} or (token.type == "LBRACE" and "RANGE" in expected):
        return "a counted loop is written `for i in 0..n { ... }`"
    starts = token.type in ("FLOOR", "SLASH") and bool(expected & {"RETURN", "FN"})
    if starts or "FLOOR" in [t.type for t in _line_before(tokens, at)]:
        return "a comment starts with `#`"
    if token.type == "LBRACE" and "ARROW" in expected:
        return "say what the function gives: `-> f32[N]`"
    if before is not None and before.type == "NAME" and token.type == "NAME":
        return did_you_mean(str(before), keywords())
    if token.type == "DTYPE" and "NAME" in expected:
        return f"`{token}` is an element type and cannot be a name"
    if token.type == "IF" and "AS" in expected:
        return "`if` is a statement; to choose by element use `select(condition, x, y)`"
    if token.type == "DTYPE" and "ARROW" in expected:
        return "what a function gives stands after an arrow: `-> f32[N]`"
    if token.type == "NAME" and "DTYPE" in expected:
        return _ELEMENT_TYPES.get(str(token)) or did_you_mean(str(token), sorted(map(dtype_name, NATIVE)))
    if token.type in ("COMMA", "RPAR") and expected == {"COLON"}:
        return f"a parameter has a type: `{before}: f32[N]`"
    if "LSQB" in expected and before is not None and before.type == "DTYPE":
        return f"a type has its shape in brackets; a scalar is `{before}[]`"
    return ""


# -- the tree ------------------------------------------------------------------------------------------------


class _TooDeep(Exception):
    def __init__(self, span: TextSpan, what: str, label: str):
        super().__init__(what, label)
        self.span = span


def _span(children: Sequence[Any]) -> TextSpan:
    return _ends(children[0])[0], _ends(children[-1])[1]


def _ends(child: Any) -> TextSpan:
    return child.span if isinstance(child, SyntaxNode) else span_of(child)


def _nodes(children: Sequence[Any], *kinds: type) -> tuple[Any, ...]:
    return tuple(c for c in children if isinstance(c, kinds or SyntaxNode))


def _name(token: Token) -> syntax.Name:
    return syntax.Name(span_of(token), str(token))


def _string(token: Token) -> syntax.LiteralExpr:
    return syntax.LiteralExpr(span_of(token), str(token)[1:-1])


@dataclass(slots=True, eq=False)
class _Block(SyntaxNode):
    items: tuple[syntax.Statement, ...]


@dataclass(slots=True, eq=False)
class _Results(SyntaxNode):
    items: tuple[syntax.Type, ...]


def _deep(node: SyntaxNode, *parts: SyntaxNode) -> SyntaxNode:
    """`node` with its depth. Raises _TooDeep."""
    node.depth = 1 + max((p.depth for p in parts), default=0)
    if node.depth > MOST_DEEP:
        raise _TooDeep(
            node.span,
            "this expression is nested too deeply",
            f"more than {MOST_DEEP} operations within each other",
        )
    return node


class _Build(Transformer):
    """One method for each rule of the grammar; children are tokens and the nodes of inner rules."""

    def start(self, c: Children) -> list[Any]:
        return [n for n in c if isinstance(n, SyntaxNode)]

    def import_(self, c: Children) -> SyntaxNode:
        return syntax.Import(_span(c), _string(c[1]), _name(c[3]))

    def const_(self, c: Children) -> SyntaxNode:
        type_ = c[3] if isinstance(c[3], syntax.Type) else None
        return syntax.Const(_span(c), _name(c[1]), type_, c[-1])

    def param(self, c: Children) -> SyntaxNode:
        return syntax.Param(_span(c), _name(c[1]), c[3], _string(c[5]), _string(c[7]))

    def function(self, c: Children) -> SyntaxNode:
        public = c[0].type == "PUB"
        name = c[2] if public else c[1]
        results = next((x.items for x in c if isinstance(x, _Results)), None)
        if results is None:
            results = _nodes(c, syntax.Type)
        body = c[-1]
        head = (span_of(c[0])[0], span_of(name)[1])
        parameters = _nodes(c, syntax.Parameter)
        return syntax.FunctionItem(
            (head[0], body.span[1]), _name(name), public, parameters, results, body.items, head
        )

    def parameter(self, c: Children) -> SyntaxNode:
        return syntax.Parameter(_span(c), _name(c[0]), c[2])

    def results(self, c: Children) -> SyntaxNode:
        return _Results(_span(c), _nodes(c, syntax.Type))

    def type(self, c: Children) -> SyntaxNode:
        quant = c[-1] if isinstance(c[-1], syntax.Quant) else None
        dims: tuple[Any, ...] = tuple(
            n for n in c[1:] if isinstance(n, SyntaxNode) and not isinstance(n, syntax.Quant)
        )
        return syntax.Type(_span(c), self.dtype([c[0]]), dims, quant)

    def quant(self, c: Children) -> SyntaxNode:
        odd = [n for n in _nodes(c[2:]) if not isinstance(n, syntax.Keyword)]
        words = (
            *_nodes(c, syntax.Keyword),
            *(syntax.Keyword(n.span, syntax.Name(n.span, ""), n) for n in odd),
        )
        return syntax.Quant(_span(c), self.dtype([c[1]]), words)

    def block(self, c: Children) -> SyntaxNode:
        return _Block(_span(c), _nodes(c))

    def assign(self, c: Children) -> SyntaxNode:
        values = tuple(n for n in _nodes(c) if not isinstance(n, syntax.Target))
        return syntax.Assign(_span(c), _nodes(c, syntax.Target), values)

    def target(self, c: Children) -> SyntaxNode:
        return syntax.Target(_span(c), _name(c[0]), c[2] if len(c) > 1 else None)

    def update(self, c: Children) -> SyntaxNode:
        return syntax.Update(_span(c), _name(c[0]), _nodes(c[1:-1]), c[-1])

    def return_(self, c: Children) -> SyntaxNode:
        return syntax.Return(_span(c), _nodes(c))

    def for_(self, c: Children) -> SyntaxNode:
        return syntax.For(_span(c), _name(c[1]), c[3], c[5], c[6].items)

    def while_(self, c: Children) -> SyntaxNode:
        return syntax.While(_span(c), c[1], c[2].items)

    def if_(self, c: Children) -> SyntaxNode:
        orelse: tuple[Any, ...] = ()
        chain = 1
        if len(c) > 3 and isinstance(c[4], _Block):
            orelse = c[4].items
        elif len(c) > 3:
            orelse, chain = (c[4],), 1 + c[4].depth
        if chain > MOST_NESTED:
            span = span_of(c[0])
            raise _TooDeep(
                span, f"more than {MOST_NESTED} `else if` after each other", "the chain starts above"
            )
        node = syntax.If(_span(c), c[1], c[2].items, orelse)
        node.depth = chain
        return node

    def made_binary(self, c: Children) -> SyntaxNode:
        return _deep(syntax.Binary(_span(c), str(c[1]), c[0], c[2]), c[0], c[2])

    or_ = and_ = compare = sum = product = power = made_binary

    def made_unary(self, c: Children) -> SyntaxNode:
        return _deep(syntax.Unary(_span(c), str(c[0]), c[1]), c[1])

    not_ = negate = made_unary

    def convert(self, c: Children) -> SyntaxNode:
        return _deep(syntax.Convert(_span(c), c[0], self.dtype([c[2]])), c[0])

    def call(self, c: Children) -> SyntaxNode:
        words = _nodes(c, syntax.Keyword)
        args: tuple[Any, ...] = tuple(
            n for n in c[1:] if isinstance(n, SyntaxNode) and not isinstance(n, syntax.Keyword)
        )
        return _deep(syntax.CallExpr(_span(c), c[0], args, words), *args, *(w.value for w in words))

    def index(self, c: Children) -> SyntaxNode:
        return _deep(syntax.IndexExpr(_span(c), c[0], _nodes(c[1:])), c[0])

    def name(self, c: Children) -> SyntaxNode:
        return _name(c[0])

    def member(self, c: Children) -> SyntaxNode:
        return syntax.MemberName(_span(c), _name(c[0]), _name(c[2]))

    def number(self, c: Children) -> SyntaxNode:
        text = str(c[0]).replace("_", "")
        whole = c[0].type == "INT" and len(text) < 100
        return syntax.LiteralExpr(_span(c), int(text) if whole else float(text))

    def string(self, c: Children) -> SyntaxNode:
        return _string(c[0])

    def true(self, c: Children) -> SyntaxNode:
        return syntax.LiteralExpr(_span(c), True)

    def false(self, c: Children) -> SyntaxNode:
        return syntax.LiteralExpr(_span(c), False)

    def dtype(self, c: Children) -> Any:
        return syntax.DType(_span(c), str(c[0]))

    def list_(self, c: Children) -> SyntaxNode:
        return _deep(syntax.ListOf(_span(c), _nodes(c)), *_nodes(c))

    def group(self, c: Children) -> SyntaxNode:
        c[1].span = _span(c)
        return c[1]

    def keyword(self, c: Children) -> SyntaxNode:
        return syntax.Keyword(_span(c), _name(c[0]), c[2])

    def slice(self, c: Children) -> SyntaxNode:
        parts: list[Any] = [None, None, None]
        at = 0
        for x in c:
            if isinstance(x, SyntaxNode):
                parts[at] = x
            else:
                at += 1
        return syntax.Slice(_span(c), *parts)

    def ellipsis(self, c: Children) -> SyntaxNode:
        return syntax.Ellipsis(_span(c))

    def new_axis(self, c: Children) -> SyntaxNode:
        return syntax.NewAxis(_span(c))
