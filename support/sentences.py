"""Messages that stay sentences, whatever values they quote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST, HEAD, TAIL = 900, 600, 200
"""Characters of a line of a message from which on its middle is left out, and what is kept of both ends."""


def shortened(text: str) -> str:
    """A message whose long lines have dots in the place of their middle."""
    if len(text) <= LONGEST:
        return text
    return "\n".join(
        line if len(line) <= LONGEST else f"{line[:HEAD]} ... {line[-TAIL:]}" for line in text.split("\n")
    )


def quoted(value: object) -> str:
    """`repr` of a value; its type in the place of one that has none, such as an integer of too many digits, or that is
    no line of text."""
    try:
        said = repr(value)
    except Exception:  # whatever the value's own code raises
        return f"<{type(value).__name__}>"
    return visible(shortened(said), "")


def listed(names: Sequence[object], most: int = 3) -> str:
    """The first of several names, and how many there are."""
    said = ", ".join(quoted(n) for n in names[:most])
    return said if len(names) <= most else f"{said} and {len(names) - most} more"


def counted(number: int, one: str, many: str) -> str:
    """`1 copy`, `1,200 copies`."""
    return f"{number:,} {one if number == 1 else many}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean a or b?` where something known is spelled like `name`."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


class SentenceError(Exception):
    """An error that says in one sentence what is wrong; a value that it quotes may be of any length."""

    def __init__(self, *args: object):
        super().__init__(*(shortened(a) if isinstance(a, str) else a for a in args))


def visible(text: str, lines: str = "\n\t") -> str:
    """Text as a terminal shows it: what would be obeyed, such as an escape sequence, or cannot be written is spelt, but
    for the characters of `lines`."""
    return "".join(
        c if c.isprintable() or c in lines else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
