"""Matrices in the memories of the cube take whole fractals, which its instructions fill and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, SSAValue

from ...machine import Machine
from ..dtypes import dtype_name, numbers_in
from .buffers import AllocOp, whole_buffer
from .types import BufferType, Fractals, padded_bytes


def fractals_of(space: str, element: Attribute, dims: int, machine: Machine) -> Fractals | None:
    """The blocks in which a matrix with its columns along the last `dims` dimensions lies in a memory of a machine;
    None where it lies in rows."""
    if space == "l0c":
        found = next(filter(None, map(machine.fractal, machine.cube)), None)
        return None if found is None else Fractals(found[0], found[2], dims)
    if space not in ("l1", "l0a", "l0b"):
        return None
    found = machine.fractal(dtype_name(element))
    if found is None:
        return None
    rows, k, columns = found
    k //= numbers_in(element)
    return Fractals(k, columns, dims) if space == "l0b" else Fractals(rows, k, dims)


def larger_fractals(
    shape: Sequence[int], element: Attribute, space: str, dims: int, machine: Machine
) -> Fractals | None:
    """The blocks of such a matrix where whole ones take more bytes than its rows, which its type says then; else
    None."""
    blocks = fractals_of(space, element, dims, machine)
    larger = blocks is not None and blocks.bytes_of(shape, element) > padded_bytes(shape, element)
    return blocks if larger else None


def matrix_bytes(shape: Sequence[int], element: Attribute, space: str, dims: int, machine: Machine) -> int:
    """Bytes that such a matrix takes, rows padded to blocks or in whole fractals."""
    blocks = larger_fractals(shape, element, space, dims, machine)
    return padded_bytes(shape, element) if blocks is None else blocks.bytes_of(shape, element)


def refuse_matrices(matrices: Iterable[tuple[SSAValue, int]], machine: Machine) -> str | None:
    """Why buffers, each with so many dimensions of columns, are no whole fractals of a machine, as far as they have
    addresses; None where they are. One whose rows have a pitch is a piece of a matrix, which who reads that has."""
    for value, dims in matrices:
        kind = value.type
        assert isinstance(kind, BufferType)
        alloc = whole_buffer(value).owner
        placed = isinstance(alloc, AllocOp) and isinstance(alloc.address, IntegerAttr)
        if not placed or kind.pitch:
            continue
        blocks = larger_fractals(kind.shape, kind.element, kind.space, dims, machine)
        if blocks is not None and (needed := blocks.bytes_of(kind.shape, kind.element)) > kind.slot_bytes:
            said = ", ".join(map(str, blocks if dims != 1 else blocks[:2]))
            return (
                f"works on whole fractals, {needed} bytes of {kind.space} that reserves {kind.slot_bytes}: "
                f"the type needs `fractals [{said}]`"
            )
    return None
