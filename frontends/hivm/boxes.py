"""A box of device memory as a view of a tensor and a place in it, which moves with the coordinates of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .places import Memref


@dataclass(frozen=True)
class BoxPlace:
    """A box: the shape and strides of the view it lies in, and for each dimension a constant and the coefficients of
    the grid's coordinates."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    constants: tuple[int, ...]
    moves: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]


def placed(box: Memref, moves: Sequence[int], axes: Sequence[int], elements: int, clipped: bool) -> BoxPlace:
    """The box of the first core, of a tensor of so many elements, which begins `moves` further on the next one along
    each axis. clipped: the view ends where the box does."""
    found = None if clipped else _in_dimensions(box, moves, axes, elements)
    return found or _by_start(box, moves, axes, elements)


def _in_dimensions(box: Memref, moves: Sequence[int], axes: Sequence[int], elements: int) -> BoxPlace | None:
    """The place as coordinates along the dimensions of the box; None where they would lap over."""
    rank = len(box.shape)
    order = sorted(range(rank), key=lambda d: (-box.strides[d], d))
    if any(m < 0 for m in moves) or any(s <= 0 for s in box.strides):
        return None
    constants, coefficients = [0] * rank, [[0] * len(axes) for _ in range(rank)]
    left, rest = box.start, list(moves)
    for d in order:
        stride = box.strides[d]
        constants[d], left = divmod(left, stride)
        for a, move in enumerate(rest):
            coefficients[d][a], rest[a] = divmod(move, stride)
    if left or any(rest):
        return None
    extents = [
        constants[d] + sum(c * (n - 1) for c, n in zip(coefficients[d], axes, strict=True)) + box.shape[d]
        for d in range(rank)
    ]
    for outer, inner in pairwise(order):
        if box.shape[outer] > 1 and extents[inner] * box.strides[inner] > box.strides[outer]:
            return None
    if _reach(extents, box.strides) > elements:
        return None
    extents = _all_of_it(extents, box.strides, order, elements)
    return BoxPlace(tuple(extents), box.strides, tuple(constants), tuple(map(tuple, coefficients)), box.shape)


def _reach(extents: Sequence[int], strides: Sequence[int]) -> int:
    return sum((n - 1) * s for n, s in zip(extents, strides, strict=True)) + 1


def _all_of_it(extents: list[int], strides: Sequence[int], order: Sequence[int], elements: int) -> list[int]:
    """The extents that let a view have the whole tensor, where it is one of rows as far apart as the view's: boxes that
    lie in one view are known to be apart."""
    whole, above = list(extents), elements
    for d in order:
        if above % strides[d]:
            return extents
        whole[d], above = above // strides[d], strides[d]
    fits = all(a >= b for a, b in zip(whole, extents, strict=True))
    return whole if fits and _reach(whole, strides) <= elements else extents


def _by_start(box: Memref, moves: Sequence[int], axes: Sequence[int], elements: int) -> BoxPlace:
    """The place as the number of its first element, along a dimension of its own."""
    room = elements - box.reach + 1
    zeros = tuple((0,) * len(axes) for _ in box.shape)
    return BoxPlace(
        (room, *box.shape),
        (1, *box.strides),
        (box.start, *(0 for _ in box.shape)),
        (tuple(moves), *zeros),
        (1, *box.shape),
    )


def only_on(place: BoxPlace, unit: int, axes: int) -> BoxPlace:
    """A place that lies outside of its view for all units but one of two: along a dimension of its own."""
    own = (*(0 for _ in range(axes - 1)), 1 if unit == 0 else -1)
    return BoxPlace(
        (1, *place.shape),
        (1, *place.strides),
        (unit, *place.constants),
        (own, *place.moves),
        (1, *place.sizes),
    )
