"""What the grammar file says of words and element types, without building a parser."""

from __future__ import annotations

import re
from importlib.resources import files


def grammar_text() -> str:
    """The grammar file."""
    return files("tilewright.frontends.text").joinpath("tw.lark").read_text()


WORDS = tuple(sorted(set(re.findall(r'"([a-z]+)"', re.sub(r"//.*", "", grammar_text())))))
"""The words that cannot be names."""

_DTYPE = re.search(r"^DTYPE\S*: /(.*)/$", grammar_text(), re.MULTILINE)
assert _DTYPE is not None
DTYPE = rf"\b{_DTYPE[1]}"
"""The pattern of element types."""
