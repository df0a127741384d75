"""Shapes that a box and a tile have in common, and the forms in which HIVM takes tiles: few dimensions, padded rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects.dtypes import itemsize, size
from ...dialects.npu.types import ROW_BYTES, BufferType, row_strides

MASK_ROW = 8 * ROW_BYTES
"""Bits to whose multiples rows of i1 are padded: HIVM has them as bits."""


def padded_row(kind: BufferType) -> int:
    """Elements from one row of a tile to the next."""
    if kind.dtype() == "i1":
        return -(-(kind.shape[-1] if kind.shape else 1) // MASK_ROW) * MASK_ROW
    return kind.row_bytes // itemsize(kind.element)


def strides_of(kind: BufferType) -> tuple[int, ...]:
    """Elements between neighbours along each dimension of a tile."""
    return row_strides((*kind.shape[:-1], padded_row(kind)))


@dataclass(frozen=True)
class TileAxis:
    """A dimension of a tile: elements, and elements between neighbours."""

    count: int
    stride: int


def axes_of(kind: BufferType) -> list[TileAxis]:
    """The dimensions of a tile, one of one element where it has none."""
    if not kind.shape:
        return [TileAxis(1, 1)]
    return [TileAxis(n, s) for n, s in zip(kind.shape, strides_of(kind), strict=True)]


def merged(axes: Sequence[TileAxis]) -> list[TileAxis]:
    """Neighbouring dimensions as one where they lie one behind the other; those of one element left out, but for the
    innermost one."""
    out: list[TileAxis] = []
    for at, axis in enumerate(axes):
        last = at == len(axes) - 1
        if axis.count == 1 and not last:
            continue
        if out and out[-1].stride == axis.count * axis.stride:
            out[-1] = TileAxis(out[-1].count * axis.count, axis.stride)
        else:
            out.append(axis)
    return out


def is_dense(kind: BufferType) -> bool:
    """Whether all elements of a tile lie one behind the other."""
    axes = merged(axes_of(kind))
    return len(axes) == 1 and axes[0].stride == 1


def rows_and_columns(shape: Sequence[int]) -> tuple[int, int]:
    """A tile's shape as rows of its last dimension."""
    return size(shape[:-1]), shape[-1] if shape else 1
