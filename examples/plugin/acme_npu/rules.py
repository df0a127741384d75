"""What the frontend makes of custom calls."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.dtypes import dtype_name
from tilewright.dialects.graph.interface import element_of

from .ops import ELEMENTS, PrefixXorOp


def prefix_xor(walk: Any, op: Any, args: Any, types: Any) -> Any:
    """`custom_call @acme_prefix_xor`; None for element types that the unit lacks."""
    if dtype_name(element_of(args[0])) not in ELEMENTS:
        return None
    return walk.emit(PrefixXorOp, args, types)
