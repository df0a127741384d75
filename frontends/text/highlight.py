"""Colours for `.tw`: a pygments lexer, and a TextMate grammar for editors. Both take their words from the grammar file.

`python -m tilewright.frontends.text.highlight` writes frontends/text/tw.tmLanguage.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from .terminals import DTYPE, NAME, WORDS

CONTROL = ("for", "if", "else", "while", "return", "in")
DECLARATIONS = ("fn", "const", "param", "import", "pub", "quant")
OPERATORS = ("and", "or", "not", "as")
VALUES = ("true", "false", "new")
NUMBER = r"\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?"

if set(WORDS) != {*CONTROL, *DECLARATIONS, *OPERATORS, *VALUES}:
    raise AssertionError(
        f"words without a colour: {set(WORDS) ^ {*CONTROL, *DECLARATIONS, *OPERATORS, *VALUES}}"
    )


def _words(words: tuple[str, ...]) -> str:
    return rf"\b(?:{'|'.join(words)})\b"


class TwLexer(RegexLexer):
    """Colours .tw in pygments: `pygmentize -l tw model.tw`."""

    name = "Tilewright"
    aliases: ClassVar[list[str]] = ["tw", "tilewright"]
    filenames: ClassVar[list[str]] = ["*.tw"]
    tokens: ClassVar[Mapping[str, Any]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r'"[^"\\\n]*"', String.Double),
            (rf"\b(fn)(\s+)({NAME})", bygroups(Keyword.Declaration, Whitespace, Name.Function)),
            (DTYPE, Keyword.Type),
            (_words(DECLARATIONS), Keyword.Declaration),
            (_words(CONTROL), Keyword),
            (_words(OPERATORS), Operator.Word),
            (_words(VALUES), Keyword.Constant),
            (r"(graph)(\.)(\w+)", bygroups(Name.Namespace, Punctuation, Name.Builtin)),
            (rf"{NAME}(?=\()", Name.Function),
            (rf"{NAME}(?==[^=])", Name.Attribute),
            (NAME, Name),
            (NUMBER, Number),
            (r"\*\*|//|->|==|!=|<=|>=|\.\.\.?|[-+*/%@<>=]", Operator),
            (r"[()\[\]{},:.]", Punctuation),
        ]
    }


def textmate() -> dict[str, Any]:
    """The TextMate grammar."""

    def rule(scope: str, match: str) -> dict[str, str]:
        return {"name": f"{scope}.tw", "match": match}

    return {
        "name": "Tilewright",
        "scopeName": "source.tw",
        "fileTypes": ["tw"],
        "patterns": [
            rule("comment.line.number-sign", "#.*$"),
            rule("string.quoted.double", r'"[^"\\]*"'),
            {
                "match": rf"\b(fn)\s+({NAME})",
                "captures": {
                    "1": {"name": "keyword.declaration.tw"},
                    "2": {"name": "entity.name.function.tw"},
                },
            },
            rule("storage.type", DTYPE),
            rule("keyword.declaration", _words(DECLARATIONS)),
            rule("keyword.control", _words(CONTROL)),
            rule("keyword.operator.word", _words(OPERATORS)),
            rule("constant.language", _words(VALUES)),
            rule("support.function", rf"\b{NAME}(?=\()"),
            rule("variable.parameter", rf"\b{NAME}(?==[^=])"),
            rule("constant.numeric", rf"\b{NUMBER}"),
            rule("keyword.operator", r"\*\*|//|->|==|!=|<=|>=|\.\.\.?|[-+*/%@<>=]"),
        ],
    }


def textmate_text() -> str:
    """The TextMate grammar as its file has it."""
    return json.dumps(textmate(), indent=2) + "\n"


TEXTMATE = "tw.tmLanguage.json"

if __name__ == "__main__":
    Path(str(files("tilewright.frontends.text").joinpath(TEXTMATE))).write_text(textmate_text())

__all__ = ["TEXTMATE", "TwLexer", "textmate", "textmate_text"]
