"""Casts of the vendor's vector unit: from which elements to which, with which roundings."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute

from .rules import type_name

_ALL = "rint round floor ceil trunc"
_CASTS = {
    "f32": {
        "f32 bf16 i16 i32 i64 i8": _ALL,
        "f16": _ALL + " odd",
        "i1": "rint trunc",
        "f8E4M3FN f8E5M2": "rint",
        "i16 i32": "truncwithoverflow",
    },
    "f16": {
        "f16": "ceil floor",
        "f32": "floor rint round trunc",
        "i16 i32 i4 i8 ui8": _ALL,
        "i1": "rint",
    },
    "bf16": {"bf16": "ceil floor", "f32": "rint round", "i32": _ALL, "i1": "rint"},
    "f8E4M3FN": {"f32": "rint"},
    "f8E5M2": {"f32": "rint"},
    "i1": {"bf16 f16 f32": "rint trunc", "i8 i16 i32 i64 ui16 ui32": "rint"},
    "i4": {"f16 i8": "rint"},
    "i8": {"f16": "rint trunc round", "i1 i32 bf16": "rint", "i16": "rint round", "f32": "trunc"},
    "ui8": {"f16 ui16 ui32": "rint"},
    "i16": {"f16": _ALL, "f32": "rint trunc", "i1 i32": "rint", "i8": "trunc truncwithoverflow"},
    "ui16": {"ui8": "truncwithoverflow"},
    "i32": {
        "f32": _ALL,
        "i1": "rint",
        "i64": "rint round",
        "i16": "rint trunc truncwithoverflow",
        "i8": "trunc truncwithoverflow",
    },
    "ui32": {"bf16 f32 ui64": "rint"},
    "i64": {"f32": _ALL, "i32": "rint truncwithoverflow", "i1 i16 i8": "rint", "f16": "trunc"},
}
"""From the library's tables for both families of chips (Ascend/AscendNPU-IR, HIVMVectorOps.cpp, Utils.h)."""

CASTS = {
    (source, dest, mode)
    for source, found in _CASTS.items()
    for dests, modes in found.items()
    for dest in dests.split()
    for mode in modes.split()
}


def cast_name(source: Attribute, dest: Attribute, unsigned: bool, rounding: str) -> tuple[str, str, str]:
    """A cast as `CASTS` has it; `unsigned`: integers of more than a bit are without signs."""

    def name(of: Attribute) -> str:
        found = type_name(of)
        wide = isinstance(of, IntegerType) and of.width.data > 1
        return "u" + found if unsigned and wide and found.startswith("i") else found

    return name(source), name(dest), rounding
