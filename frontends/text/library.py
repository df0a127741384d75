"""The functions of `.tw` that are more than one scalar function or one op, in the forms that JAX's own give.

Each is a Python function of a builder, whose signature is the function's: tensors by position, all else by keyword.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...dialects.dtypes import dtype_name, element_type, is_float, tensor
from ...dialects.elementwise import REDUCTIONS
from ...dialects.graph import (
    ArgReduceOp,
    ConcatOp,
    DynamicSliceOp,
    GatherOp,
    IotaOp,
    PadOp,
    ScatterOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import certain, is_open
from .axes import Ints, Tensor, Value, axes_of, axis_of, floats, static_shape
from .builder import BOOLEAN, I32, Builder, DTypeName, same_type, shape_text, type_text
from .contraction import einsum
from .diagnostics import Problem
from .numbers import same_number
from .ordering import argsort, cummax, cummin, cumprod, cumsum, sort, top_k
from .windows import avg_pool, conv, max_pool

INTEGER = DTypeName("i32")

REDUCTION_NAMES = {k: {"and": "all", "or": "any"}.get(k, k) for k in REDUCTIONS}
"""What the kinds of reduction are called in .tw."""


# -- activations ---------------------------------------------------------------------------------------------


def relu(b: Builder, x: Tensor) -> Tensor:
    """max(x, 0)."""
    return b.apply("max", x, 0, sign="relu")


def sigmoid(b: Builder, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return b.apply("div", 1, b.apply("add", 1, b.apply("exp", b.apply("neg", x), sign="sigmoid")))


def silu(b: Builder, x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return b.apply("mul", x, sigmoid(b, x))


def gelu(b: Builder, x: Tensor, *, exact: bool = False) -> Tensor:
    """x times the normal distribution function at x; by erf where exact, else by tanh (arXiv 1606.08415)."""
    floats("gelu", x)
    if exact:
        inner = b.apply("div", x, math.sqrt(2))
        return b.apply("div", b.apply("mul", x, b.apply("add", b.apply("erf", inner), 1)), 2)
    cubed = b.apply("mul", b.apply("mul", x, x), x)
    inner = b.apply("mul", math.sqrt(2 / math.pi), b.apply("add", x, b.apply("mul", 0.044715, cubed)))
    cdf = b.apply("mul", 0.5, b.apply("add", 1, b.apply("tanh", inner)))
    return b.apply("mul", x, cdf)


def softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """exp(x - max) over its sum along an axis."""
    floats("softmax", x)
    shifted, axes = _shifted(b, x, axis)
    powers = b.apply("exp", shifted)
    return b.apply("div", powers, b.reduce(powers, "sum", axes, True))


def log_softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """The logarithm of softmax."""
    floats("log_softmax", x)
    shifted, axes = _shifted(b, x, axis)
    total = b.reduce(b.apply("exp", shifted), "sum", axes, True)
    return b.apply("sub", shifted, b.apply("log", total))


def _shifted(b: Builder, x: Tensor, axis: int) -> tuple[Tensor, list[int]]:
    axes = [axis_of(x, axis)]
    top = b.apply("max", -math.inf, b.reduce(x, "max", axes, False))
    return b.apply("sub", x, b.expand(top, axes)), axes


def layer_norm(
    b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, axis: int = -1, eps: float = 1e-5
) -> Tensor:
    """(x - mean) * rsqrt(variance + eps) * scale + bias, along an axis."""
    floats("layer_norm", x)
    axes = [axis_of(x, axis)]
    centred = b.apply("sub", x, _mean(b, x, axes, True))
    variance = _mean(b, b.apply("mul", centred, centred), axes, True)
    normal = b.apply("mul", centred, b.apply("rsqrt", b.apply("add", variance, eps)))
    return b.apply("add", b.apply("mul", normal, scale, sign="layer_norm"), bias, sign="layer_norm")


def rms_norm(b: Builder, x: Tensor, scale: Tensor, *, axis: int = -1, eps: float = 1e-5) -> Tensor:
    """x * rsqrt(mean(x * x) + eps) * scale, along an axis."""
    floats("rms_norm", x)
    mean = _mean(b, b.apply("mul", x, x), [axis_of(x, axis)], True)
    root = b.apply("rsqrt", b.apply("add", mean, eps))
    return b.apply("mul", b.apply("mul", x, root), scale, sign="rms_norm")


# -- reductions ----------------------------------------------------------------------------------------------


def reduction(b: Builder, kind: str, x: Tensor, axis: int | Ints | None, keep: bool) -> Tensor:
    """x reduced along axes, all where there are none given."""
    name = REDUCTION_NAMES[kind]
    if kind in ("and", "or") and is_float(element_of(x)):
        raise Problem(
            f"`{name}` is for i1 and integers, not {type_text(x.type)}", help="compare first: `any(x > 0)`"
        )
    if kind not in ("and", "or") and element_of(x) == BOOLEAN:
        raise Problem(f"`{name}` is for numbers, not i1", help="convert with `as i32`, or use `all` or `any`")
    return b.reduce(x, kind, axes_of(x, axis), keep)


def mean(b: Builder, x: Tensor, *, axis: int | Ints | None = None, keep: bool = False) -> Tensor:
    """Sum over count."""
    floats("mean", x)
    return _mean(b, x, axes_of(x, axis), keep)


def _mean(b: Builder, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    count = math.prod(shape_of(x)[d] for d in axes)
    element = element_of(x)
    wide = b.convert(x, element_type("f32"))
    out = b.apply("div", b.reduce(wide, "sum", axes, keep), count)
    return b.convert(out, element)


def variance(b: Builder, x: Tensor, *, axis: int | Ints | None = None, keep: bool = False) -> Tensor:
    """Mean of the squared distance to the mean."""
    floats("variance", x)
    axes = axes_of(x, axis)
    centred = b.apply("sub", x, _mean(b, x, axes, True))
    return _mean(b, b.apply("mul", centred, centred), axes, keep)


def argmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """The first index of the largest element along an axis, i32."""
    return _arg(b, x, "max", axis)


def argmin(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """The first index of the smallest element along an axis, i32."""
    return _arg(b, x, "min", axis)


def _arg(b: Builder, x: Tensor, kind: str, axis: int) -> Tensor:
    dim = axis_of(x, axis)
    if element_of(x) == BOOLEAN:
        raise Problem(f"`arg{kind}` is for numbers, not i1", help="convert with `as i32`")
    if not shape_of(x)[dim]:
        raise Problem(f"`arg{kind}` along dimension {dim}, which has no elements", label=type_text(x.type))
    return b.infer(ArgReduceOp, [x], [x.type, tensor([], I32)], kind=kind, dim=dim)[1]


# -- shapes --------------------------------------------------------------------------------------------------


def reshape(b: Builder, x: Tensor, *, shape: Ints) -> Tensor:
    """The same elements in row-major order; one dimension may be -1, which follows from the others."""
    source, out = shape_of(x), list(shape)
    if out.count(-1) == 1:
        left, rest = _without_common(source, [n for n in out if n != -1])
        if rest > 0 and left % rest == 0:
            out[out.index(-1)] = left // rest
            return b.reshape(x, out)
    if any(n < 0 for n in out) or math.prod(out) != math.prod(source):
        raise Problem(
            f"cannot reshape {type_text(x.type)} to {shape_text(shape)}",
            f"{math.prod(source)} elements to {math.prod(n for n in shape if n != -1)}",
        )
    return b.reshape(x, out)


def _without_common(a: Ints, b: Ints) -> tuple[int, int]:
    """The products of two lists of sizes without the open ones that are in both: their quotient stays what it is, for
    those are not 0."""
    left, right = list(a), list(b)
    for n in a:
        if is_open(n) and certain(n, ">", 0) and any(same_number(n, m) for m in right):
            left.remove(n)
            right.remove(n)
    return math.prod(left), math.prod(right)


def transpose(b: Builder, x: Tensor, *, perm: Ints | None = None) -> Tensor:
    """Result dimension i is dimension perm[i] of x; all in reverse where there is no perm."""
    rank = len(shape_of(x))
    order = list(range(rank))[::-1] if perm is None else [axis_of(x, p, "perm") for p in perm]
    if sorted(order) != list(range(rank)):
        raise Problem(f"perm {order} does not name each of {rank} dimensions once", argument="perm")
    return b.transpose(x, order)


def broadcast(b: Builder, x: Tensor, *, shape: Ints) -> Tensor:
    """x repeated to a shape: dimensions of size 1, and new ones in front."""
    return b.broadcast(x, static_shape(shape))


def concat(b: Builder, *xs: Tensor, axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis."""
    if not xs:
        raise Problem("`concat` needs a tensor")
    b.common("concat", xs)
    dim = axis_of(xs[0], axis)
    shapes = [shape_of(x) for x in xs]
    for s in shapes:
        if len(s) != len(shapes[0]) or any(
            m != n for d, (m, n) in enumerate(zip(s, shapes[0], strict=True)) if d != dim
        ):
            raise Problem(
                "shapes do not fit together in `concat`",
                " and ".join(type_text(x.type) for x in xs),
                [f"outside axis {dim} they must be equal"],
            )
    return b.infer(ConcatOp, xs, [xs[0].type], dim=dim)[0]


def stack(b: Builder, *xs: Tensor, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    if not xs or not all(same_type(x.type, xs[0].type) for x in xs):
        raise Problem("`stack` needs tensors of one type", " and ".join(type_text(x.type) for x in xs))
    rank = len(shape_of(xs[0])) + 1
    if not -rank <= axis < rank:
        raise Problem(
            f"axis {axis} is outside a result of {rank} dimension{'s' * (rank != 1)}", argument="axis"
        )
    return concat(b, *(b.expand(x, [axis % rank]) for x in xs), axis=axis % rank)


def split(b: Builder, x: Tensor, *, parts: int, axis: int = -1) -> tuple[Tensor, ...]:
    """x cut along an axis into parts of one size: `a, b = split(x, parts=2)`."""
    dim, shape = axis_of(x, axis), shape_of(x)
    if not 1 <= parts <= 1024 or shape[dim] % parts:
        raise Problem(
            f"cannot split {type_text(x.type)} along axis {dim} into {parts} equal parts", argument="parts"
        )
    step, out = shape[dim] // parts, []
    for i in range(parts):
        starts, limits = [0] * len(shape), list(shape)
        starts[dim], limits[dim] = i * step, (i + 1) * step
        out.append(b.slice(x, starts, limits, [1] * len(shape)))
    return tuple(out)


def pad(
    b: Builder, x: Tensor, value: Value = 0, *, low: Ints, high: Ints, interior: Ints | None = None
) -> Tensor:
    """`low` and `high` elements of `value` around x in each dimension, `interior` between its elements."""
    fill = b.tensor(value, element_of(x))
    zeros = [0] * len(shape_of(x))
    return b.infer(
        PadOp, [x, fill], [x.type], low=low, high=high, interior=zeros if interior is None else interior
    )[0]


# -- making and picking --------------------------------------------------------------------------------------


def full(b: Builder, value: Value, *, shape: Ints, type: DTypeName) -> Tensor:
    """A tensor of one value."""
    element = element_type(type)
    scalar = b.tensor(value, element)
    if element_of(scalar) != element:
        raise Problem(f"`full` of type {type} got {type_text(scalar.type)}", help=f"convert with `as {type}`")
    return b.broadcast(scalar, static_shape(shape))


def zeros(b: Builder, *, shape: Ints, type: DTypeName) -> Tensor:
    """A tensor of zeros."""
    return full(b, False if type == "i1" else 0, shape=shape, type=type)


def ones(b: Builder, *, shape: Ints, type: DTypeName) -> Tensor:
    """A tensor of ones."""
    return full(b, True if type == "i1" else 1, shape=shape, type=type)


def iota(b: Builder, *, shape: Ints, axis: int = 0, type: DTypeName = INTEGER) -> Tensor:
    """Each element is its own index along an axis."""
    rank = len(shape)
    if not -rank <= axis < rank:
        raise Problem(
            f"axis {axis} is outside a result of {rank} dimension{'s' * (rank != 1)}", argument="axis"
        )
    return b.emit(IotaOp, [], [tensor(static_shape(shape), element_type(type))], dim=axis % rank)[0]


def one_hot(b: Builder, index: Tensor, *, depth: int, type: DTypeName) -> Tensor:
    """1 at each index along a new last axis, 0 elsewhere."""
    shape = [*shape_of(index), depth]
    if dtype_name(element_of(index)) != "i32" or depth < 1:
        raise Problem(f"`one_hot` needs i32 indices and a depth of at least 1, got {type_text(index.type)}")
    places = iota(b, shape=shape, axis=-1)
    equal = b.apply("eq", b.expand(index, [len(shape) - 1]), places)
    return b.convert(equal, element_type(type))


def take(b: Builder, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """The slices of x at i32 indices along an axis; a negative index counts from the end."""
    dim, shape = axis_of(x, axis), shape_of(x)
    if dtype_name(element_of(indices)) != "i32":
        raise Problem(f"an index is i32, not {type_text(indices.type)}", help="convert with `as i32`")
    if shape[dim] == 0:
        raise Problem(f"there is nothing to take of {type_text(x.type)}")
    return gathered(b, x, {dim: wrapped(b, indices, shape[dim])})


def gathered(b: Builder, x: Tensor, picked: Mapping[int, Tensor]) -> Tensor:
    """The elements of x at i32 indices into some of its dimensions, which are broadcast together; their dimensions
    stand where the first of those of x stood. Raises Problem."""
    shape, dims = shape_of(x), list(picked)
    batch = b.together("[...]", list(picked.values()))
    starts = [b.expand(b.broadcast(i, batch), [len(batch)]) for i in picked.values()]
    parts = [tensor([*batch, len(dims)], I32)]
    at = starts[0] if len(starts) == 1 else b.emit(ConcatOp, starts, parts, dim=len(batch))[0]
    rank = len(shape) - len(dims) + len(batch)
    front = _front(picked)
    return b.infer(
        GatherOp,
        [x, at],
        [tensor([], element_of(x))],
        offset_dims=[d for d in range(rank) if not front <= d < front + len(batch)],
        collapsed_dims=sorted(dims),
        x_batch=[],
        indices_batch=[],
        start_map=dims,
        index_dim=len(batch),
        slice_sizes=[1 if d in picked else n for d, n in enumerate(shape)],
    )[0]


def _front(picked: Mapping[int, Tensor]) -> int:
    """How many dimensions come before those of the indices: as many as come before the first index of
    `picked`."""
    first = next(iter(picked))
    return sum(d not in picked for d in range(first))


def slice(b: Builder, x: Tensor, start: Value, *, size: int, axis: int = 0) -> Tensor:
    """The `size` elements of x from `start` on along an axis, where start moves: an i32[]; it is kept inside."""
    dim, shape = axis_of(x, axis), shape_of(x)
    if not 0 <= size <= shape[dim]:
        message = f"there are no {size} elements along axis {dim} of {type_text(x.type)}"
        raise Problem(message, argument="size")
    at = b.tensor(start, I32)
    if at.type != tensor([], I32):
        raise Problem(f"`start` of `slice` must be i32[], got {type_text(at.type)}", argument=1)
    starts = [wrapped(b, at, n) if d == dim else b.scalar(0, I32) for d, n in enumerate(shape)]
    sizes = [size if d == dim else n for d, n in enumerate(shape)]
    return b.emit(DynamicSliceOp, [x, *starts], [tensor(sizes, element_of(x))], sizes=sizes)[0]


def scatter_add(b: Builder, x: Tensor, indices: Tensor, values: Value) -> Tensor:
    """x with `values` added to its slices at i32 indices along the first axis, one after the other."""
    if not shape_of(x) or dtype_name(element_of(indices)) != "i32":
        raise Problem(f"cannot add to slices of {type_text(x.type)} at {type_text(indices.type)}", "indices are i32")
    if element_of(x) == BOOLEAN:
        raise Problem("`scatter_add` is for numbers, not i1", help="convert with `as i32`")
    return scattered(b, x, {0: wrapped(b, indices, shape_of(x)[0])}, values, "sum")


def scattered(b: Builder, x: Tensor, picked: Mapping[int, Tensor], values: Any, kind: str) -> Tensor:
    """x with `values` put by `kind` (see graph.scatter) where `gathered` reads; what is outside of x is left out.
    Raises Problem."""
    shape, dims = shape_of(x), list(picked)
    kept = [d for d in range(len(shape)) if d not in picked]
    batch = b.together("[...]", list(picked.values()))
    box = [shape[d] for d in kept]
    front = _front(picked)
    box[front:front] = batch
    given = b.tensor(values, element_of(x))
    if element_of(given) != element_of(x):
        help = f"convert with `as {dtype_name(element_of(x))}`"
        raise Problem(f"writes {type_text(given.type)} into {type_text(x.type)}", help=help)
    try:
        given = b.broadcast(given, box)
    except Problem:
        raise Problem(f"writes {type_text(given.type)} into a part of shape {shape_text(box)}") from None
    if not math.prod(box):
        return x
    flat = inside = None
    for d, index in picked.items():
        here = b.apply("and", b.apply("ge", index, 0), b.apply("lt", index, shape[d]))
        inside = here if inside is None else b.apply("and", inside, here)
        flat = index if flat is None else b.apply("add", b.apply("mul", flat, shape[d]), index)
    at = b.reshape(b.broadcast(b.apply("select", inside, flat, -1), batch), [math.prod(batch)])
    rows, columns = math.prod(shape[d] for d in dims), math.prod(shape[d] for d in kept)
    moved = list(range(front, front + len(batch)))
    order = moved + [d for d in range(len(box)) if d not in moved]
    updates = b.reshape(b.transpose(given, order), [math.prod(batch), columns])
    perm = dims + kept
    table = b.reshape(b.transpose(x, perm), [rows, columns])
    made = b.infer(ScatterOp, [table, at, updates], [table.type], kind=kind)[0]
    back = b.reshape(made, [shape[d] for d in perm])
    return b.transpose(back, [perm.index(d) for d in range(len(perm))])


def wrapped(b: Builder, index: Tensor, extent: int) -> Tensor:
    """An i32 index, counted from the end where it is negative."""
    if index in b.counters:
        return index
    negative = b.apply("lt", index, 0)
    return b.apply("select", negative, b.apply("add", index, extent), index)


LIBRARY: dict[str, Any] = {
    f.__name__: f
    for f in (
        relu,
        sigmoid,
        silu,
        gelu,
        softmax,
        log_softmax,
        layer_norm,
        rms_norm,
        mean,
        variance,
        argmax,
        argmin,
        conv,
        max_pool,
        avg_pool,
        reshape,
        transpose,
        broadcast,
        concat,
        stack,
        split,
        pad,
        full,
        zeros,
        ones,
        iota,
        one_hot,
        take,
        slice,
        scatter_add,
        sort,
        argsort,
        top_k,
        cumsum,
        cumprod,
        cummax,
        cummin,
        einsum,
    )
}
"""By name. Scalar functions, reductions and the ops of the dialect come from their tables: see functions.py."""
