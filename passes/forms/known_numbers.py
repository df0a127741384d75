"""Numbers that a program generates and that follow from nothing but positions and constants, computed here: where a
gather picks, as resizing an image says by arithmetic on positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import numpy_dtype, size
from ...dialects.elementwise import value_of
from ...dialects.graph import (
    BroadcastOp,
    ConstantOp,
    ElementwiseOp,
    IotaOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open

MOST_NUMBERS = 1 << 14
"""Elements of a tensor that are computed, at most."""

MOST_OPS = 64
"""Ops that numbers are followed through, at most."""


def known_numbers(value: SSAValue) -> np.ndarray | None:
    """The elements of a tensor as the program computes them; None where they follow from its inputs, or are many."""
    return _Numbers().of(value)


class _Numbers:
    def __init__(self) -> None:
        self.known: dict[SSAValue, np.ndarray | None] = {}

    def of(self, value: SSAValue) -> np.ndarray | None:
        if value not in self.known:
            self.known[value] = None if len(self.known) >= MOST_OPS else self._made(value)
        return self.known[value]

    def _made(self, value: SSAValue) -> np.ndarray | None:
        op, shape = value.owner, shape_of(value)
        if not isinstance(op, Operation) or any_open(shape) or size(shape) > MOST_NUMBERS:
            return None
        if isinstance(op, ConstantOp):
            return op.value.data.array()
        kind = numpy_dtype(element_of(value))
        if isinstance(op, IotaOp):
            along = [-1 if d == integer(op.dim) else 1 for d in range(len(shape))]
            return np.broadcast_to(np.arange(shape[integer(op.dim)]).astype(kind).reshape(along), shape)
        rule = MOVES.get(type(op))
        if rule is None and not isinstance(op, ElementwiseOp):
            return None
        given = [self.of(v) for v in op.operands]
        known = [x for x in given if x is not None]
        if len(known) < len(given):
            return None
        return _computed(op, known, kind) if rule is None else rule(op, known[0], shape)


def _computed(op: Operation, given: list[np.ndarray], kind: np.dtype) -> np.ndarray | None:
    """What an elementwise op makes of numbers, by the function that the interpreter has of it."""
    import jax

    assert isinstance(op, ElementwiseOp)
    with jax.enable_x64(True):
        if op.FUNCTION.name == "convert":
            return np.asarray(jax.lax.convert_element_type(given[0], kind))
        try:
            function = value_of(op.FUNCTION.name)
        except KeyError:
            return None
        return np.asarray(function(*given)).astype(kind)


def _broadcast(op: Operation, x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    assert isinstance(op, BroadcastOp)
    own = dict(zip(to_ints(op.dims), x.shape, strict=True))
    order = np.argsort(to_ints(op.dims), kind="stable")
    return np.broadcast_to(x.transpose(order).reshape([own.get(d, 1) for d in range(len(shape))]), shape)


def _reverse(op: Operation, x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    assert isinstance(op, ReverseOp)
    return np.flip(x, to_ints(op.dims))


def _transpose(op: Operation, x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    assert isinstance(op, TransposeOp)
    return x.transpose(to_ints(op.perm))


def _slice(op: Operation, x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    assert isinstance(op, SliceOp)
    return x[tuple(map(slice, to_ints(op.starts), to_ints(op.limits), to_ints(op.strides)))]


MOVES: dict[type[Operation], Callable[[Operation, np.ndarray, Sequence[int]], np.ndarray]] = {
    BroadcastOp: _broadcast,
    SliceOp: _slice,
    ReshapeOp: lambda op, x, shape: x.reshape(shape),
    ReverseOp: _reverse,
    TransposeOp: _transpose,
}
"""What moves numbers, and how."""
