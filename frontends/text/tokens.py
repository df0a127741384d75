"""Cuts `.tw` text into tokens, by the terminals of the grammar file, and checks that brackets match."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from lark import Lark, Token

from .diagnostics import DiagnosticLog, SourceFile, TextSpan
from .terminals import grammar_text

NEWLINE = "_NEWLINE"
UNKNOWN = "UNKNOWN"
_SKIPPED = frozenset({"SPACE", "COMMENT"})
_OPEN = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_CLOSE = {close: open for open, close in _OPEN.items()}

MOST_NESTED = 60
"""Brackets and blocks within each other; a tree of more levels says something is wrong, and would overflow the
stack."""


@cache
def parser() -> Lark:
    """The LALR parser made of the grammar file."""
    return Lark(grammar_text(), parser="lalr", lexer="basic", keep_all_tokens=True, maybe_placeholders=True)


@cache
def keywords() -> frozenset[str]:
    """The words that cannot be names."""
    return frozenset(t.pattern.value for t in parser().terminals if str(t.pattern.value).isalpha())


@cache
def symbols() -> dict[str, str]:
    """How each terminal that is not a pattern is written: {"LPAR": "("}."""
    return {t.name: str(t.pattern.value) for t in parser().terminals if t.pattern.type == "str"}


@cache
def _scanner() -> tuple[re.Pattern[str], dict[str, str]]:
    words = {text: name for name, text in symbols().items() if text.isalpha()}
    marks = sorted((t for t in symbols().items() if not t[1].isalpha()), key=lambda t: -len(t[1]))
    patterns = [t for t in parser().terminals if t.pattern.type == "re"]
    patterns.sort(key=lambda t: -t.priority)
    groups = [f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in patterns]
    groups += [f"(?P<{name}>{re.escape(text)})" for name, text in marks]
    # a string in single quotes or a mark of two letters is one mistake, not several
    return re.compile("|".join([*groups, f"(?P<{UNKNOWN}>'[^'\\n]*'|&&|\\|\\||.)"]), re.DOTALL), words


def is_name(text: str) -> bool:
    """Whether a text is one name: no word of the language and no element type."""
    tokens = scan(SourceFile("", text))
    return len(tokens) == 1 and tokens[0].type == "NAME"


def scan(source: SourceFile, skip: bool = True) -> list[Token]:
    """All tokens with their places; comments only where `skip` is false. What is no token is UNKNOWN."""
    pattern, words = _scanner()
    out = []
    skipped = _SKIPPED if skip else frozenset({"SPACE"})
    for match in pattern.finditer(source.text):
        kind, text = match.lastgroup or UNKNOWN, match.group()
        if kind in skipped:
            continue
        if kind == "NAME":
            kind = words.get(text, kind)
        out.append(Token(kind, text, start_pos=match.start(), end_pos=match.end()))
    return out


_STANDS_FOR = {"'": "STRING", "&": "AND", "|": "OR"}
"""What the parser takes unknown text for, so that it says nothing more about it."""


def tokenize(
    source: SourceFile, report: DiagnosticLog, dropped: set[int] | None = None
) -> list[Token] | None:
    """The tokens as the grammar wants them: newlines inside ( ) and [ ] go, a block's last statement gets one.
    Reports unknown characters and brackets without a partner; None where there were such brackets. dropped: gets
    the starts of tokens before which there was something unknown that stands for nothing."""
    tokens: list[Token] = []
    gap = False
    for t in scan(source):
        if not _unknown(t, source, report):
            tokens.append(t)
        elif t[0] in _STANDS_FOR:
            kind = _STANDS_FOR[t[0]]
            text = f'"{t[1:-1]}"' if kind == "STRING" else t
            tokens.append(Token(kind, text, start_pos=t.start_pos, end_pos=t.end_pos))
        else:
            gap = True
            continue
        if gap and dropped is not None:
            dropped.add(span_of(t)[0])
        gap = False
    if not _matched(tokens, source, report):
        return None
    out: list[Token] = []
    depth: list[str] = []
    last = NEWLINE
    for i, t in enumerate(tokens):
        kind = t.type
        if kind in _OPEN:
            depth.append(kind)
        elif kind in _CLOSE and depth:
            depth.pop()
        if kind == NEWLINE:
            inside = depth and depth[-1] != "LBRACE"
            follows = next((n.type for n in tokens[i + 1 : i + 9] if n.type != NEWLINE), "")
            if inside or last in (NEWLINE, "LBRACE") or (follows == "ELSE" and last == "RBRACE"):
                continue
        elif kind == "RBRACE" and last not in (NEWLINE, "LBRACE"):
            out.append(_newline(t.start_pos))
        out.append(t)
        last = kind
    if last != NEWLINE and out:
        out.append(_newline(len(source.text)))
    return out


def _newline(at: int | None) -> Token:
    return Token(NEWLINE, "\n", start_pos=at, end_pos=at)


def span_of(token: Token) -> TextSpan:
    """Where a token stands."""
    return token.start_pos or 0, token.end_pos or 0


_REPLACED = {
    "'": 'strings stand between double quotes: "..."',
    '"': "this string does not end on its line",
    ";": "a statement ends with its line, without `;`",
    "&": "logic is written `and`, `or`, `not`",
    "|": "logic is written `and`, `or`, `not`",
    "~": "logic is written `and`, `or`, `not`",
    "!": "logic is written `and`, `or`, `not`",
    "?": "to choose by element use `select(condition, x, y)`",
    "^": "for a power write `**`, for exclusive or `xor(a, b)`",
    "“": 'strings stand between double quotes: "..."',
    "”": 'strings stand between double quotes: "..."',
    "→": "write `->`",
    "×": "write `*`, or `@` for a matrix product",
}


def _unknown(token: Token, source: SourceFile, report: DiagnosticLog) -> bool:
    if token.type == "STRING":
        odd = next((i for i, c in enumerate(token) if c < " "), None)
        if odd is not None:
            at = span_of(token)[0] + odd
            message = f"`\\u{ord(token[odd]):04x}` is not used in .tw"
            report.add(source, (at, at + 1), message, "unexpected character")
        return False
    if token.type != UNKNOWN:
        return False
    mark = token[0]
    shown = f"\\u{ord(mark):04x}" if not mark.isprintable() else mark if mark == "'" else str(token)
    span = span_of(token)
    if token == '"':
        end = source.text.find("\n", span[0])
        span = (span[0], end if end >= 0 else len(source.text))
        report.add(source, span, "a string has no end", "no closing quote on this line")
        return True
    report.add(
        source, span, f"`{shown}` is not used in .tw", "unexpected character", help=_REPLACED.get(mark, "")
    )
    return True


BLOCKS = "blocks stand between `{` and `}`"
"""What is said of a block in Python's way."""


def _matched(tokens: Sequence[Token], source: SourceFile, report: DiagnosticLog) -> bool:
    """Whether brackets match; reports each that does not. Some words only ever start a line: a line that
    starts with one closes the brackets that are still open before it."""
    marks = symbols()
    stack: list[Token] = []
    colons: list[Token] = []  # at the end of a line, where others open a block
    sound = True
    fresh = True

    def unclosed() -> None:
        nonlocal sound
        sound = False
        opened = stack.pop()
        needed = marks[_OPEN[opened.type]]
        report.add(source, span_of(opened), f"`{opened}` is never closed", f"needs a `{needed}`")

    for before, t in zip([None, *tokens], tokens, strict=False):
        item = fresh and t.type in ("FN", "PUB", "IMPORT", "CONST", "PARAM")
        if item:
            colons.clear()
        if before is not None and before.type == "COLON" and t.type == NEWLINE:
            colons += [before] * (not stack or stack[-1].type == "LBRACE")
        if item or (fresh and t.type in ("RETURN", "FOR", "WHILE", "IF")):
            while stack and (item or stack[-1].type != "LBRACE"):
                unclosed()
        if t.type in _OPEN:
            stack.append(t)
            if len(stack) > MOST_NESTED:
                report.add(
                    source, span_of(t), f"more than {MOST_NESTED} brackets within each other", "one too many"
                )
                return False
        elif t.type in _CLOSE:
            while t.type == "RBRACE" and stack and stack[-1].type != "LBRACE":
                if all(s.type != "LBRACE" for s in stack):
                    break
                unclosed()
            if stack and stack[-1].type == _CLOSE[t.type]:
                stack.pop()
            else:
                sound = False
                if not stack and t.type == "RBRACE" and colons:
                    message = "expected `{`, found `:`"
                    report.add(source, span_of(colons.pop(0)), message, help=BLOCKS)
                    continue
                message = f"`{t}` closes nothing"
                if stack:
                    message = f"`{t}` cannot close `{stack[-1]}`"
                report.add(source, span_of(t), message, f"there is no open `{marks[_CLOSE[t.type]]}`")
                if t.type != "RBRACE" and stack and stack[-1].type != "LBRACE":
                    stack.pop()
        fresh = t.type in (NEWLINE, "LBRACE", "RBRACE")
    while stack:
        unclosed()
    return sound
