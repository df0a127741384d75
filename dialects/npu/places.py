"""Where the memory plan puts what belongs to a function: numbers on the function, open ones where sizes are.

`npu.addresses` are the addresses of its arguments, `npu.arena_bytes` is the device memory that the program takes, on
the function that is the program; `npu.frame` is the first byte of the memory in which a called function works, and the
one behind its last. `npu.memory_limit` is the most device memory that a program may take, where that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from ..base import integer, integer_attr, ints, to_ints

ADDRESSES, ARENA, FRAME = "npu.addresses", "npu.arena_bytes", "npu.frame"
LIMIT = "npu.memory_limit"


def addresses_of(func: FuncOp) -> tuple[int, ...] | None:
    """The addresses of a function's arguments, in bytes; None for one that is called, or has no plan."""
    return _numbers(func.attributes.get(ADDRESSES))


def arena_of(func: FuncOp) -> int | None:
    """The device memory that a program takes, in bytes; None for a function that is no program, or has no plan."""
    attr = func.attributes.get(ARENA)
    return integer(attr) if isinstance(attr, IntegerAttr) else None


def frame_of(func: FuncOp) -> tuple[int, int] | None:
    """The first byte of the memory that a called function works in, and the one behind its last; None for others."""
    found = _numbers(func.attributes.get(FRAME))
    return None if found is None else (found[0], found[1])


def set_addresses(func: FuncOp, addresses: Sequence[int]) -> None:
    func.attributes[ADDRESSES] = ints(addresses)


def set_arena(func: FuncOp, bytes_: int) -> None:
    func.attributes[ARENA] = integer_attr(bytes_)


def limit_of(func: FuncOp) -> int | None:
    """The most device memory that a program may take, in bytes; None where nobody asked for a limit."""
    attr = func.attributes.get(LIMIT)
    return integer(attr) if isinstance(attr, IntegerAttr) else None


def set_limit(func: FuncOp, bytes_: int) -> None:
    func.attributes[LIMIT] = integer_attr(bytes_)


def set_frame(func: FuncOp, first: int, behind: int) -> None:
    func.attributes[FRAME] = ints([first, behind])


def _numbers(attr: Attribute | None) -> tuple[int, ...] | None:
    return to_ints(attr) if isinstance(attr, DenseArrayBase) else None
