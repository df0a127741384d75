"""The shapes of results that StableHLO leaves open (`?`), from those of the operands, by class of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from xdsl.ir import SSAValue

from ..dialects.open_sizes import is_open
from . import bindings
from .attributes import Op, int_array, int_attribute, string
from .bindings import Value

Shape = Sequence[int]
"""Numbers and `OpenSize`s."""


CUSTOM_CALL = "stablehlo.custom_call"


class Sized(Protocol):
    """What knows the sizes among the values of a program."""

    @property
    def numbers(self) -> dict[Any, Any]: ...

    def value(self, source: Value) -> SSAValue:
        """What stands for a value at the graph level; a size becomes a constant or an input."""
        ...


Formula = Callable[[Op, list[Shape]], Shape | None]


def open_shape(walk: Sized, name: str, op: Op, shapes: list[Shape], i: int) -> Shape | None:
    """The shape of result `i` of an op whose operands have these shapes; None where it is not known how."""
    place = _GIVEN.get(name)
    if place is not None:
        return known_sizes(walk, op.operands[place])
    if name == CUSTOM_CALL:
        return _of_call(walk, op, shapes, i)
    if name == "stablehlo.dynamic_gather":
        numbers = walk.numbers.get(op.operands[2])
        return None if numbers is None else gathered(op, shapes[1], list(numbers.reshape(-1)))
    if name == "stablehlo.real_dynamic_slice":
        reach, strides = slice_extents(walk, op), known_sizes(walk, op.operands[3])
        if reach is None or strides is None:
            return None
        return _sliced(shapes[0], [0] * len(reach), reach, strides)
    if name == "stablehlo.dynamic_pad":
        low, high, interior = (known_sizes(walk, v) for v in list(op.operands)[2:])
        return None if low is None or high is None or interior is None else _padded(shapes[0], low, high, interior)
    if name == "stablehlo.dynamic_conv":
        padding = known_sizes(walk, op.operands[2])
        return None if padding is None else convolved_shape(op, shapes, padding[::2], padding[1::2])
    if name in _EACH:
        return shapes[i]
    formula = _FORMULAS.get(name)
    if formula is not None:
        return formula(op, shapes)
    return _like_operands(shapes)


def known_sizes(walk: Sized, value: Value) -> list[int] | None:
    """The sizes that a value holds, in row order; None where they are not known."""
    found = walk.numbers.get(value)
    return None if found is None else list(found.reshape(-1))


def slice_extents(walk: Sized, op: Op) -> list[int] | None:
    """How far a `real_dynamic_slice` reaches along each dimension: where its start is data, its end has to be the sum
    of that and of a size. None where it is not known."""
    start, limit = op.operands[1], op.operands[2]
    first, last = known_sizes(walk, start), known_sizes(walk, limit)
    if first is not None and last is not None:
        return [b - a for a, b in zip(first, last, strict=True)]
    made = bindings.owner(limit)
    if made is None or made.operation.name != "stablehlo.add":
        return None
    left, right = made.operands
    return known_sizes(walk, right if left == start else left) if start in (left, right) else None


REDUCE_WINDOW = "stablehlo.dynamic_reduce_window"
TOP_K = "stablehlo.dynamic_top_k"
RNG_BITS = "stablehlo.dynamic_rng_bit_generator"

SHAPE_OPERANDS_OF_CALLS: dict[str, slice] = {
    REDUCE_WINDOW: slice(-5, None),
    TOP_K: slice(1, 2),
    RNG_BITS: slice(1, 2),
}
"""The custom calls of JAX that are ops with shapes for operands, and which operands these are."""


def window_numbers(walk: Sized, op: Op) -> list[list[int]] | None:
    """Of a custom call that is a windowed reduction: window, strides, base dilation, window dilation, and padding low
    and high; None where they are not known."""
    given = [known_sizes(walk, v) for v in list(op.operands)[SHAPE_OPERANDS_OF_CALLS[REDUCE_WINDOW]]]
    known = [g for g in given if g is not None]
    return None if len(known) < len(given) else [*known[:4], known[4][::2], known[4][1::2]]


def _of_call(walk: Sized, op: Op, shapes: list[Shape], i: int) -> Shape | None:
    target = string(op, "call_target_name")
    if target == REDUCE_WINDOW:
        spec = window_numbers(walk, op)
        if spec is None:
            return None
        window, strides, base, dilation, low, high = spec
        return _windows(shapes[0], window, strides, low, high, dilation, base)
    if target == TOP_K:
        count = known_sizes(walk, op.operands[1])
        return None if count is None else [*shapes[0][:-1], *count]
    if target == RNG_BITS:
        return shapes[0] if i == 0 else known_sizes(walk, op.operands[1])
    places = int_array(op, "indices_of_shape_operands")
    return known_sizes(walk, op.operands[places[i]]) if i < len(places) else None


_GIVEN = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_reshape": 1,
    "stablehlo.dynamic_iota": 0,
}
"""The operand that is the shape of the result."""

_EACH = frozenset(
    {
        "stablehlo.while",
        "stablehlo.optimization_barrier",
        "stablehlo.sort",
        "stablehlo.scatter",
        "sdy.sharding_constraint",
    }
)
"""Ops whose result i has the shape of operand i."""


def _like_operands(shapes: list[Shape]) -> Shape | None:
    """Of an op that works element by element: the shape of its operands, those that are single numbers apart."""
    ranked = [s for s in shapes if len(s)]
    if not ranked or any(len(s) != len(ranked[0]) for s in ranked):
        return None
    if any(a != b for s in ranked[1:] for a, b in zip(s, ranked[0], strict=True)):
        return None  # where they may be equal, they are assumed to be: others would be no program
    return [next((s[d] for s in ranked if not is_open(s[d])), ranked[0][d]) for d in range(len(ranked[0]))]


def _padded(shape: Shape, low: Shape, high: Shape, interior: Shape) -> Shape:
    return [
        n + a + b + (i * (n - 1) if is_open(i) or i else 0)
        for n, a, b, i in zip(shape, low, high, interior, strict=True)
    ]


def _sliced(shape: Shape, starts: Shape, limits: Shape, strides: Shape) -> Shape:
    return [-(-(b - a) // s) for a, b, s in zip(starts, limits, strides, strict=True)]


def _pad(op: Op, shapes: list[Shape]) -> Shape:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return _padded(shapes[0], *(int_array(op, n) for n in names))


def _slice(op: Op, shapes: list[Shape]) -> Shape:
    return _sliced(shapes[0], *(int_array(op, n) for n in ("start_indices", "limit_indices", "strides")))


def _transpose(op: Op, shapes: list[Shape]) -> Shape:
    return [shapes[0][d] for d in int_array(op, "permutation")]


def _reduce(op: Op, shapes: list[Shape]) -> Shape:
    gone = int_array(op, "dimensions")
    return [n for d, n in enumerate(shapes[0]) if d not in gone]


def _concatenate(op: Op, shapes: list[Shape]) -> Shape | None:
    along = int_attribute(op, "dimension")
    others = _like_operands([[n for d, n in enumerate(s) if d != along] or [1] for s in shapes])
    if others is None:
        return None
    rest = iter(others)
    return [sum(s[along] for s in shapes) if d == along else next(rest) for d in range(len(shapes[0]))]


def _dot_general(op: Op, shapes: list[Shape]) -> Shape:
    dims = bindings.dot_dimensions(op)
    lhs, rhs = shapes
    batch = [lhs[d] for d in dims["lhs_batch"]]
    free = [n for d, n in enumerate(lhs) if d not in (*dims["lhs_batch"], *dims["lhs_contract"])]
    others = [n for d, n in enumerate(rhs) if d not in (*dims["rhs_batch"], *dims["rhs_contract"])]
    return [*batch, *free, *others]


def _dot(op: Op, shapes: list[Shape]) -> Shape:
    return [*shapes[0][:-1], *shapes[1][1:]]


def _windows(
    shape: Shape, window: Shape, strides: Shape, low: Shape, high: Shape, dilation: Shape, base: Shape
) -> list[int]:
    """How many windows there are along each dimension."""
    out: list[int] = []
    for n, w, s, a, b, d, i in zip(shape, window, strides, low, high, dilation, base, strict=True):
        whole = (n - 1) * i + 1 + a + b
        out.append((whole - ((w - 1) * d + 1)) // s + 1)
    return out


def _reduce_window(op: Op, shapes: list[Shape]) -> Shape:
    rank = len(shapes[0])
    ones = (1,) * rank
    low, high = bindings.padding(op, rank)
    strides, dilation, base = (
        int_array(op, n) or ones for n in ("window_strides", "window_dilations", "base_dilations")
    )
    return _windows(shapes[0], int_array(op, "window_dimensions"), strides, low, high, dilation, base)


def _convolution(op: Op, shapes: list[Shape]) -> Shape:
    return convolved_shape(op, shapes, *bindings.padding(op, len(shapes[0]) - 2))


def convolved_shape(op: Op, shapes: list[Shape], low: Shape, high: Shape) -> Shape:
    """The shape of a convolution with so much padding along each spatial dimension."""
    layouts = bindings.conv_dimensions(op)
    (batch, _, *spatial), (_, feature, *taps) = layouts["lhs_layout"], layouts["rhs_layout"]
    order = list(layouts["out_layout"])
    ones = (1,) * len(spatial)
    strides, base, dilation = (
        int_array(op, n) or ones for n in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    lhs, rhs = shapes[0], shapes[1]
    windows = _windows([lhs[d] for d in spatial], [rhs[d] for d in taps], strides, low, high, dilation, base)
    images = lhs[batch] // int_attribute(op, "batch_group_count", 1)
    out = [0] * len(order)
    for d, n in zip(order, [images, rhs[feature], *windows], strict=True):
        out[d] = n
    return out


def _gather(op: Op, shapes: list[Shape]) -> Shape:
    return gathered(op, shapes[1], int_array(op, "slice_sizes"))


def gathered(op: Op, indices: Shape, sizes: Shape) -> Shape:
    """The shape of what a gather with slices of these sizes gives."""
    dims, index_dim = bindings.gather_dimensions(op)
    gone = {*dims["collapsed_dims"], *dims["x_batch"]}
    window = iter([n for d, n in enumerate(sizes) if d not in gone])
    batch = iter([n for d, n in enumerate(indices) if d != index_dim])
    rank = len(indices) - (index_dim < len(indices)) + len(dims["offset_dims"])
    return [next(window) if d in dims["offset_dims"] else next(batch) for d in range(rank)]


def _bitcast(op: Op, shapes: list[Shape]) -> Shape:
    """A last dimension comes with narrower elements, and goes with wider ones."""
    parts = bindings.tensor_parts(op.results[0].type)
    rank = len(shapes[0]) if parts is None else len(parts[0])
    narrower = [] if parts is None or rank <= len(shapes[0]) else [parts[0][-1]]
    return [*shapes[0][: rank - len(narrower)], *narrower]


def _fft(op: Op, shapes: list[Shape]) -> Shape:
    """Its last dimensions have the sizes that it is made for, of which MLIR knows that of the last one."""
    parts = bindings.tensor_parts(op.results[0].type)
    return shapes[0] if parts is None else [*shapes[0][:-1], parts[0][-1]]


def _first(op: Op, shapes: list[Shape]) -> Shape:
    return shapes[0]


def _second(op: Op, shapes: list[Shape]) -> Shape:
    return shapes[1]


_FORMULAS: dict[str, Formula] = {
    "stablehlo.pad": _pad,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
    "stablehlo.reduce": _reduce,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.convolution": _convolution,
    "stablehlo.gather": _gather,
    "stablehlo.select_and_scatter": _first,
    "stablehlo.dynamic_update_slice": _first,
    "stablehlo.cholesky": _first,
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.fft": _fft,
    "stablehlo.triangular_solve": _second,
}
