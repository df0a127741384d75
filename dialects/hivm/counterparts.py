"""Which vector instructions HIVM has as one op, by element types: `npu-hivm` leaves these, and the export has them."""

from __future__ import annotations

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
ROUNDED = {"floor": "floor", "ceil": "ceil", "round_even": "rint", "round_away": "round"}
"""Functions that are a cast of f32 to f32, with its rounding."""

_NUMBERS = frozenset(("f32", "f16", "i32", "i16"))
_FLOATS = frozenset(("f32", "f16"))
_BITS = frozenset(("i1", "i8", "i16", "i32", "ui8", "ui16", "ui32"))

SUPPORTED = {
    **dict.fromkeys(("add", "sub", "mul", "max", "min", "select"), _NUMBERS),
    **dict.fromkeys(("div", "exp", "log", "sqrt", "abs", "lt", "le", "gt", "ge"), _FLOATS),
    **dict.fromkeys(("not", "and", "or", "xor"), _BITS),
    **dict.fromkeys(("shl", "shr_arithmetic"), frozenset(("i32", "i16"))),
    **dict.fromkeys(("eq", "ne"), frozenset(("f32", "f16", "i32"))),
    **dict.fromkeys(ROUNDED, frozenset(("f32",))),
}
"""The element types of the last operand in which HIVM has a function."""

REDUCED = _NUMBERS
"""The element types that it reduces."""

CASTS = {
    ("f32", "f16"): "rint",
    ("f32", "bf16"): "rint",
    ("f16", "f32"): "rint",
    ("bf16", "f32"): "rint",
    ("i32", "f32"): "rint",
    ("i16", "f32"): "rint",
    ("i16", "f16"): "rint",
    ("i8", "f16"): "rint",
    ("ui8", "f16"): "rint",
    ("i8", "i32"): "rint",
    ("i16", "i32"): "rint",
    ("f32", "i32"): "trunc",
    ("f32", "i16"): "trunc",
    ("f16", "i32"): "trunc",
    ("f16", "i16"): "trunc",
    ("f16", "i8"): "trunc",
    ("f16", "ui8"): "trunc",
    ("bf16", "i32"): "trunc",
    ("i32", "i8"): "truncwithoverflow",
    ("i32", "ui8"): "truncwithoverflow",
    ("i1", "f32"): "rint",
    ("i1", "f16"): "rint",
    ("i1", "i32"): "rint",
}
"""Rounding of a conversion, by element types: to the nearest, cut off where integers are made of floats, and without
the upper bits where they are made of wider ones."""

CHAINS = {
    ("f32", "i8"): ("f16 odd", "i8"),
    ("f32", "ui8"): ("f16 odd", "ui8"),
    ("i8", "f32"): ("f16", "f32"),
    ("ui8", "f32"): ("f16", "f32"),
    ("ui8", "i32"): ("f16", "i32"),
    ("i32", "f16"): ("f32", "f16"),
    ("f16", "bf16"): ("f32", "bf16"),
    ("bf16", "f16"): ("f32", "f16"),
    ("i8", "bf16"): ("f16", "f32", "bf16"),
    ("i1", "i8"): ("f16", "i8"),
    ("i1", "ui8"): ("f16", "ui8"),
    ("i1", "bf16"): ("f32", "bf16"),
    ("i16", "bf16"): ("f32", "bf16"),
    ("i1", "i16"): ("f16", "i16"),
}
"""Conversions that take several, none of which loses what a later one needs: each the type that it gives, and `odd` for
the rounding that a second one may follow."""


def cast_mode(source: str, dest: str, rounding: str) -> str | None:
    """The round mode of a conversion, `convert` or by a rule of `npu.vround_to`; None where HIVM has no such op."""
    if rounding == "odd":
        return "odd" if (source, dest) == ("f32", "f16") else None
    found = CASTS.get((source, dest))
    if rounding == "even" and found == "trunc":
        return "rint"
    return found if rounding == "convert" else None
