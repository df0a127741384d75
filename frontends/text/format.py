"""The canonical form of `.tw` text: `tilewright fmt`. Only space, line ends and trailing commas change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lark import Token

from .diagnostics import DiagnosticLog, SourceFile
from .parse import parse_items
from .tokens import NEWLINE, scan

WIDTH = 100
INDENT = "    "

_OPEN, _CLOSE = frozenset({"LPAR", "LSQB"}), frozenset({"RPAR", "RSQB"})
_ATOMS = frozenset({"NAME", "DTYPE", "STRING", "INT", "FLOAT", "RPAR", "RSQB"})
_ITEMS = frozenset({"FN", "PUB"})


@dataclass
class _Line:
    """A logical line: its tokens without comments, and what the source had around it."""

    tokens: list[Token] = field(default_factory=list)
    comment: str = ""
    blank: bool = False
    """Whether an empty line stood before it."""

    @property
    def opens(self) -> bool:
        return bool(self.tokens) and self.tokens[-1].type == "LBRACE"

    @property
    def closes(self) -> bool:
        return bool(self.tokens) and self.tokens[0].type == "RBRACE"


def format_text(path: str, text: str) -> str:
    """The canonical form of a file's text; formatting it again changes nothing. Raises TwError for text that is not
    .tw."""
    source, report = SourceFile(path, text), DiagnosticLog()
    parse_items(source, report)
    report.check()
    lines = _logical_lines(scan(source, skip=False))
    out: list[str] = []
    indent = 0
    for i, line in enumerate(lines):
        if line.closes:
            indent -= 1
        before = lines[i - 1] if i else None
        if before is not None and _separated(lines, i, before, indent):
            out.append("")
        physical = _laid_out(line.tokens, indent)
        if line.comment:
            physical[-1] = (
                f"{physical[-1]}  {line.comment}" if line.tokens else INDENT * indent + line.comment
            )
        out += physical
        if line.opens:
            indent += 1
    return "".join(f"{line.rstrip()}\n" for line in out)


def _separated(lines: Sequence[_Line], at: int, before: _Line, indent: int) -> bool:
    """Whether an empty line stands before line `at`: where the source has one, and around functions."""
    line = lines[at]
    if before.opens or line.closes:
        return False
    if indent or line.blank:
        return line.blank
    if before.closes:
        return True
    if not before.tokens:  # a comment belongs to what follows
        return False
    following = next((n for n in lines[at:] if n.tokens), line)
    return bool(following.tokens) and following.tokens[0].type in _ITEMS


def _logical_lines(tokens: Sequence[Token]) -> list[_Line]:
    lines: list[_Line] = []
    current = _Line()
    depth = newlines = 0
    hoisted: list[str] = []

    def end() -> None:
        nonlocal current
        for comment in hoisted:
            lines.append(_Line(comment=comment, blank=current.blank))
            current.blank = False
        hoisted.clear()
        if current.tokens or current.comment:
            lines.append(current)
        current = _Line()

    for t in tokens:
        if t.type == NEWLINE:
            newlines += 1
            if depth == 0 and (current.tokens or current.comment):
                end()
            continue
        fresh = not current.tokens and not current.comment
        if t.type == "COMMENT":
            text = _comment(t)
            if depth:
                hoisted.append(text)
            elif fresh and newlines == 0 and lines and not lines[-1].comment:
                lines[-1].comment = text  # after a brace that ended its line
            elif fresh:
                current.blank = newlines > 1
                current.comment = text
                end()
            else:
                current.comment = text
                end()
            newlines = 0
            continue
        if fresh:
            current.blank = newlines > 1
        if t.type == "ELSE" and fresh and lines and lines[-1].closes and not lines[-1].comment:
            current = lines.pop()
        elif t.type == "RBRACE" and current.tokens:
            end()
        newlines = 0
        depth += (t.type in _OPEN) - (t.type in _CLOSE)
        current.tokens.append(t)
        if t.type in ("LBRACE", "RBRACE"):
            end()
    end()
    return lines


def _comment(token: Token) -> str:
    text = str(token)[1:].rstrip()
    return "#" + (text if not text or text[0] in " !#" else f" {text}")


# -- one line ------------------------------------------------------------------------------------------------


def _laid_out(tokens: Sequence[Token], indent: int) -> list[str]:
    """A logical line as one line, or broken at its longest bracket where it is too wide."""
    if not tokens:
        return [""]
    return _broken(_plain(tokens), indent, "")


def _plain(tokens: Sequence[Token]) -> list[Token]:
    """Without trailing commas."""
    out = []
    for i, t in enumerate(tokens):
        if t.type == "COMMA" and i + 1 < len(tokens) and tokens[i + 1].type in _CLOSE:
            continue
        out.append(t)
    return out


def _broken(tokens: Sequence[Token], indent: int, tail: str, inside: str = "") -> list[str]:
    line = INDENT * indent + _joined(tokens, inside) + tail
    if len(line) <= WIDTH:
        return [line]
    groups = _groups(tokens)
    if not groups:
        return [line]
    first, last = max(groups, key=lambda g: g[1] - g[0])
    head = INDENT * indent + _joined(tokens[: first + 1], inside)
    rest = _joined([tokens[last], *tokens[last + 1 :]], inside, before=tokens[first])
    parts = _parts(tokens[first + 1 : last])
    kind = tokens[first].type
    before = tokens[first - 1] if first else None
    comma = len(parts) > 1 or (before is not None and before.type in ("NAME", "DTYPE"))
    out = [head]
    for i, part in enumerate(parts):
        out += _broken(part, indent + 1, "," if comma or i < len(parts) - 1 else "", kind)
    out.append(INDENT * indent + rest + tail)
    return out


def _groups(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """First and last position of the outermost brackets that hold something."""
    found, depth, start = [], 0, 0
    for i, t in enumerate(tokens):
        if t.type in _OPEN:
            if depth == 0:
                start = i
            depth += 1
        elif t.type in _CLOSE:
            depth -= 1
            if depth == 0 and i > start + 1:
                found.append((start, i))
    return found


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for t in tokens:
        depth += (t.type in _OPEN) - (t.type in _CLOSE)
        if t.type == "COMMA" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(t)
    return [p for p in parts if p]


def _joined(tokens: Sequence[Token], inside: str = "", before: Token | None = None) -> str:
    """Tokens on one line; inside: the bracket around them; before: the token that they follow."""
    out = []
    stack = [inside] if inside else []
    if before is not None:
        stack.append(before.type)
    previous, unary = None, False
    for t in tokens:
        if t.type in _CLOSE and stack:
            stack.pop()
        around = stack[-1] if stack else ""
        if previous is not None and _space(previous, t, around, unary):
            out.append(" ")
        unary = t.type == "MINUS" and (
            previous is None or not (previous.type in _ATOMS or str(previous) in ("true", "false"))
        )
        out.append(str(t))
        if t.type in _OPEN:
            stack.append(t.type)
        previous = t
    return "".join(out)


def _space(a: Token, b: Token, around: str, unary: bool) -> bool:
    """Whether a space stands between two tokens, in the bracket `around`."""
    if a.type in _OPEN or b.type in _CLOSE or b.type == "COMMA" or unary:
        return False
    if a.type == "COMMA":
        return True
    if "DOT" in (a.type, b.type) or "RANGE" in (a.type, b.type):
        return False
    if "EQUAL" in (a.type, b.type):
        return not around
    if b.type in _OPEN:
        return a.type not in _ATOMS
    if a.type == "COLON":
        return around != "LSQB"
    return b.type != "COLON"


__all__ = ["WIDTH", "format_text"]
