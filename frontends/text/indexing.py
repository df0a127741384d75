"""`x[...]` and `x[...] = value`, as in numpy: whole numbers, slices, `...`, `new`, and i32 tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from ...dialects.dtypes import dtype_name, tensor
from ...dialects.graph import DynamicSliceOp, DynamicUpdateSliceOp, ReverseOp
from ...dialects.graph.interface import element_of, shape_of
from ..size_arithmetic import larger, smaller
from .builder import I32, Builder, describe_value, shape_text, type_text
from .diagnostics import Problem
from .library import gathered, scattered, wrapped
from .numbers import extent_of, is_whole, same_sizes


@dataclass(frozen=True)
class Range:
    """`start:stop:step`, each a whole number or None."""

    start: int | None
    stop: int | None
    step: int | None


class _Mark:
    pass


ELLIPSIS, NEW = _Mark(), _Mark()

Item = int | Range | SSAValue | _Mark


def check_items(b: Builder, x: SSAValue, items: Sequence[Any]) -> list[Item]:
    """One item for each dimension of x, and `NEW` between them. Raises Problem."""
    rank = len(shape_of(x))
    used = sum(i is not ELLIPSIS and i is not NEW for i in items)
    if used > rank:
        raise Problem(
            f"{used} indices for {type_text(x.type)}, which has {rank} dimension{'s' * (rank != 1)}"
        )
    if sum(i is ELLIPSIS for i in items) > 1:
        raise Problem("`...` stands twice in one index")
    full = [Range(None, None, None)] * (rank - used)
    if not any(i is ELLIPSIS for i in items):
        items = [*items, ELLIPSIS]
    out: list[Item] = []
    for item in items:
        if item is ELLIPSIS:
            out += full
        elif isinstance(item, list):
            out.append(b.tensor(item, I32))
        elif not (isinstance(item, Range | SSAValue | _Mark) or is_whole(item)):
            raise Problem(f"an index is a whole number, a slice or an i32 tensor, not {describe_value(item)}")
        elif isinstance(item, SSAValue) and dtype_name(element_of(item)) != "i32":
            raise Problem(f"an index is i32, not {type_text(item.type)}", help=_no_mask(item))
        else:
            out.append(item)
    return out


def _no_mask(item: SSAValue) -> str:
    if dtype_name(element_of(item)) == "i1":
        return "masks are for `select(mask, x, y)`"
    return "convert with `as i32`"


def index(b: Builder, x: SSAValue, items: Sequence[Any]) -> SSAValue:
    """The value of `x[items]`. Raises Problem."""
    every = check_items(b, x, items)
    picks = [i for i in every if i is not NEW]
    x = _static(b, x, picks)
    x = _dynamic(b, x, picks)
    gone = [
        d for d, i in enumerate(picks) if is_whole(i) or (isinstance(i, SSAValue) and not shape_of(i))
    ]
    if gone:
        x = b.reshape(x, [n for d, n in enumerate(shape_of(x)) if d not in gone])
    left = [i for i in picks if not is_whole(i) and not (isinstance(i, SSAValue) and not shape_of(i))]
    several = [d for d, i in enumerate(left) if isinstance(i, SSAValue)]
    shown = [i for i in every if i is NEW or any(i is k for k in left)]
    new = [d for d, i in enumerate(shown) if i is NEW]
    if several:
        if new:
            raise Problem("`new` and a tensor with dimensions in one index", help="index twice")
        check_place(every)
        picked = {d: i for d, i in enumerate(left) if isinstance(i, SSAValue)}
        for d in picked:
            if shape_of(x)[d] == 0:
                raise Problem(f"there is nothing to take of {type_text(x.type)}")
        return gathered(b, x, {d: wrapped(b, i, shape_of(x)[d]) for d, i in picked.items()})
    return b.expand(x, new)


def check_place(items: Sequence[Item]) -> None:
    """Raises Problem where numpy moves the dimensions of index tensors to the front, away from where they stand:
    slices are between the indices, and in front of the first tensor."""
    taken = [d for d, i in enumerate(items) if not isinstance(i, Range)]
    first = next(d for d, i in enumerate(items) if isinstance(i, SSAValue) and shape_of(i))
    together = taken == list(range(taken[0], taken[-1] + 1))
    if not together and any(isinstance(i, Range) for i in items[:first]):
        raise Problem("slices stand between the indices of one `[...]`", help="index twice: `x[0][:, i]`")


def _static(b: Builder, x: SSAValue, picks: Sequence[Item]) -> SSAValue:
    """What the whole numbers and slices pick, which keep their dimensions."""
    shape = shape_of(x)
    starts, limits, strides, backwards = [], [], [], []
    for d, (item, extent) in enumerate(zip(picks, shape, strict=True)):
        if is_whole(item):
            at = place(item, extent, d)
            bounds = (at, at + 1, 1)
        elif isinstance(item, Range):
            start, stop, step, turned = slice_bounds(item, extent)
            bounds = (start, stop, step)
            if turned:
                backwards.append(d)
        else:
            bounds = (0, extent, 1)
        for values, v in zip((starts, limits, strides), bounds, strict=True):
            values.append(v)
    if not same_sizes([*starts, *limits, *strides], [*[0] * len(shape), *shape, *[1] * len(shape)]):
        x = b.slice(x, starts, limits, strides)
    if backwards:
        x = b.emit(ReverseOp, [x], [x.type], dims=backwards)[0]
    return x


def place(item: int, extent: int, dim: int) -> int:
    """A whole number as an index from the front. Raises Problem where it is outside."""
    if not -extent <= item < extent:
        raise Problem(f"index {item} is outside dimension {dim}, which has {extent}")
    return item if item >= 0 else item + extent


def slice_bounds(item: Range, extent: int) -> tuple[int, int, int, bool]:
    """Start, limit and positive step of a slice, and whether it runs backwards."""
    if item.step == 0:
        raise Problem("the step of a slice is 0")
    start, stop, step = _within(item, extent)
    count = extent_of(start, stop, step)
    if count == 0:
        at = smaller(start, extent) if start >= 0 else 0
        return at, at, 1, False
    if step > 0:
        return start, stop, step, False
    last = start + (count - 1) * step
    return last, start + 1, -step, True


def _within(item: Range, extent: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of so many elements, as Python's `slice.indices` gives them."""
    step = 1 if item.step is None else item.step
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first, last = (low, high) if step > 0 else (high, low)

    def inside(n: int | None, default: int) -> int:
        if n is None:
            return default
        return larger(n + extent, low) if n < 0 else smaller(n, high)

    return inside(item.start, first), inside(item.stop, last), step


def _dynamic(b: Builder, x: SSAValue, picks: Sequence[Item]) -> SSAValue:
    """The slice of size 1 where an index is a scalar tensor."""
    moving = {d: i for d, i in enumerate(picks) if isinstance(i, SSAValue) and not shape_of(i)}
    if not moving:
        return x
    shape = shape_of(x)
    for d in moving:
        if shape[d] == 0:
            raise Problem(f"dimension {d} of {type_text(x.type)} has no elements")
    starts = [wrapped(b, moving[d], n) if d in moving else b.scalar(0, I32) for d, n in enumerate(shape)]
    sizes = [1 if d in moving else n for d, n in enumerate(shape)]
    return b.emit(DynamicSliceOp, [x, *starts], [tensor(sizes, element_of(x))], sizes=sizes)[0]


def update(b: Builder, x: SSAValue, items: Sequence[Any], value: Any) -> SSAValue:
    """x with `x[items] = value` done. Raises Problem."""
    every = check_items(b, x, items)
    if any(i is NEW for i in every):
        raise Problem("`new` has no place on the left of `=`")
    shape, element = shape_of(x), element_of(x)
    if any(isinstance(i, SSAValue) and shape_of(i) for i in every):
        return _put(b, x, every, value)
    starts: list[Any] = []
    sizes, strides, kept, backwards = [], [], [], []
    for d, (item, extent) in enumerate(zip(every, shape, strict=True)):
        if isinstance(item, Range):
            start, stop, step, turned = slice_bounds(item, extent)
            starts.append(start)
            sizes.append(extent_of(start, stop, step))
            strides.append(step)
            if turned:
                backwards.append(len(kept))
            kept.append(d)
            continue
        if isinstance(item, SSAValue) and extent == 0:
            raise Problem(f"dimension {d} of {type_text(x.type)} has no elements")
        starts.append(place(item, extent, d) if is_whole(item) else item)
        sizes.append(1)
        strides.append(1)
    given = b.tensor(value, element)
    if element_of(given) != element:
        raise Problem(
            f"writes {type_text(given.type)} into {type_text(x.type)}",
            help=f"convert with `as {dtype_name(element)}`",
        )
    box = [sizes[d] for d in kept]
    try:
        given = b.broadcast(given, box)
    except Problem:
        raise Problem(f"writes {type_text(given.type)} into a part of shape {shape_text(box)}") from None
    if backwards:
        given = b.emit(ReverseOp, [given], [given.type], dims=backwards)[0]
    gone = [d for d in range(len(shape)) if d not in kept]
    given = b.expand(given, gone)
    at = [
        b.scalar(s, I32) if is_whole(s) else wrapped(b, s, n)
        for s, n in zip(starts, shape, strict=True)
    ]
    steps = {} if all(s == 1 for s in strides) else {"strides": strides}
    return b.infer(DynamicUpdateSliceOp, [x, given, *at], [x.type], **steps)[0]


def _put(b: Builder, x: SSAValue, items: Sequence[Item], value: Any) -> SSAValue:
    """x with `x[items] = value` done where an index is a tensor with dimensions. Raises Problem."""
    check_place(items)
    shape, picked = shape_of(x), {}
    tensors = [d for d, i in enumerate(items) if isinstance(i, SSAValue) and shape_of(i)]
    # the first tensor says where the dimensions of the written part stand
    for d in sorted(range(len(shape)), key=lambda d: (d not in tensors, d)):
        item = items[d]
        if isinstance(item, Range):
            if item not in (Range(None, None, None), Range(0, None, None), Range(None, None, 1)):
                help = "beside an index with dimensions write `:`"
                raise Problem("a slice of a part beside an index that is a tensor", help=help)
        elif is_whole(item):
            picked[d] = b.scalar(place(item, shape[d], d), I32)
        else:
            assert isinstance(item, SSAValue)
            picked[d] = wrapped(b, item, shape[d])
    return scattered(b, x, picked, value, "set")
