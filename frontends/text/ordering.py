"""The functions of `.tw` that order the elements of an axis, or add them up from its start."""

from __future__ import annotations

from ...dialects.dtypes import tensor
from ...dialects.graph import CumulateOp, IotaOp, SortOp
from ...dialects.graph.interface import element_of, shape_of
from .axes import Tensor, axis_of
from .builder import BOOLEAN, I32, Builder
from .diagnostics import Problem


def sort(b: Builder, x: Tensor, *, axis: int = -1, descending: bool = False) -> Tensor:
    """The elements along an axis in order, the smallest first; NaN counts as the largest."""
    dim = _ordered("sort", x, axis)
    return b.infer(
        SortOp, [x], [x.type], dim=dim, keys=[0], descending=[int(descending)], total=[0]
    )[0]


def argsort(b: Builder, x: Tensor, *, axis: int = -1, descending: bool = False) -> Tensor:
    """The indices, i32, that put the elements along an axis in order; equals keep theirs."""
    dim = _ordered("argsort", x, axis)
    places = b.emit(IotaOp, [], [tensor(shape_of(x), I32)], dim=dim)[0]
    return b.infer(
        SortOp, [x, places], [x.type, places.type], dim=dim, keys=[0], descending=[int(descending)], total=[0]
    )[1]


def top_k(b: Builder, x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, ...]:
    """The k largest elements along an axis, the largest first, and their indices: `v, i = top_k(x, k=5)`."""
    dim = _ordered("top_k", x, axis)
    length = shape_of(x)[dim]
    if not 0 <= k <= length:
        raise Problem(f"there are no {k} elements along axis {dim}, which has {length}", argument="k")
    places = b.emit(IotaOp, [], [tensor(shape_of(x), I32)], dim=dim)[0]
    types = [x.type, places.type]
    return tuple(
        b.infer(SortOp, [x, places], types, dim=dim, keys=[0], descending=[1], total=[1], keep=k)
    )


def _ordered(called: str, x: Tensor, axis: int) -> int:
    if element_of(x) == BOOLEAN:
        raise Problem(f"`{called}` is for numbers, not i1", help="convert with `as i32`")
    return axis_of(x, axis)


def cumsum(b: Builder, x: Tensor, *, axis: int = -1, reverse: bool = False) -> Tensor:
    """The sum of all elements up to each along an axis; reverse: from each to the end."""
    return _cumulated(b, "cumsum", "sum", x, axis, reverse)


def cumprod(b: Builder, x: Tensor, *, axis: int = -1, reverse: bool = False) -> Tensor:
    """The product of all elements up to each along an axis; reverse: from each to the end."""
    return _cumulated(b, "cumprod", "prod", x, axis, reverse)


def cummax(b: Builder, x: Tensor, *, axis: int = -1, reverse: bool = False) -> Tensor:
    """The largest of all elements up to each along an axis; reverse: from each to the end."""
    return _cumulated(b, "cummax", "max", x, axis, reverse)


def cummin(b: Builder, x: Tensor, *, axis: int = -1, reverse: bool = False) -> Tensor:
    """The smallest of all elements up to each along an axis; reverse: from each to the end."""
    return _cumulated(b, "cummin", "min", x, axis, reverse)


def _cumulated(b: Builder, called: str, kind: str, x: Tensor, axis: int, reverse: bool) -> Tensor:
    dim = _ordered(called, x, axis)
    return b.infer(CumulateOp, [x], [x.type], kind=kind, dim=dim, reverse=int(reverse))[0]
