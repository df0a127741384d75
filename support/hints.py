"""Names of values that a pass computes in another way, which say what they are to be compared with.

`x_without_y` is x, computed without y, from which it was computed before. The rounding of y is no part of its error.
`x_transposed`, `x_padded` and the like are x in another layout: they are compared with nothing, as they may have the
type of x.
"""

from __future__ import annotations

_WITHOUT = "_without_"


def without(name: str | None, left_out: str | None) -> str | None:
    """The name of the value `name` where it is computed without `left_out`; None where either has no name."""
    return None if name is None or left_out is None else f"{name}{_WITHOUT}{left_out}"


def parts_of_hint(name: str | None) -> tuple[str, str] | None:
    """(the value, what it is computed without) of such a name; None for another one."""
    before, found, left_out = (name or "").partition(_WITHOUT)
    return (before, left_out) if found else None


def in_layout(name: str | None, layout: str) -> str | None:
    """The name of the value `name` in another layout, which this describes; None where it has no name."""
    return None if name is None else f"{name}_{layout}"
