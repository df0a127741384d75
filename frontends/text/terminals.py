"""What the grammar file says of words and element types, without building a parser."""

from __future__ import annotations

import re
from importlib.resources import files


def grammar_text() -> str:
    """The grammar file."""
    return files("tilewright.frontends.text").joinpath("tw.lark").read_text()


WORDS = tuple(sorted(set(re.findall(r'"([a-z]+)"', re.sub(r"//.*", "", grammar_text())))))
"""The words that cannot be names."""


def _pattern(terminal: str) -> str:
    found = re.search(rf"^{terminal}\S*: /(.*)/$", grammar_text(), re.MULTILINE)
    assert found is not None
    return found[1]


DTYPE = rf"\b{_pattern('DTYPE')}"
"""The pattern of element types."""

NAME = _pattern("NAME")
"""The pattern of names, and of words."""
