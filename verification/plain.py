"""Graph ops whose values and bounds NumPy computes: arithmetic element by element, moves and reductions.

The values have the bits that XLA gives (docs/stepper.md), and the bounds are those of the same rules. What XLA has a
library for, and what is on many numbers, it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation

from ..backends.stepper import numbers
from ..backends.stepper.tensors import rule_of
from ..dialects import graph as ops
from ..dialects.dtypes import numpy_dtype
from ..dialects.elementwise import function_named
from ..dialects.graph.interface import element_of, shape_of
from .bounds import Bound, propagate
from .bounds.base import is_known_type
from .tolerance import Mode

MOST = 1 << 18
"""Numbers up to which NumPy takes less time than XLA takes to compile."""


def is_plain_op(op: Operation, xs: Sequence[Any], bounded: bool) -> bool:
    """Whether NumPy computes an op on such operands. bounded: whether any of them may be off."""
    if rule_of(op) is None or sum(x.size for x in xs) > MOST:
        return False
    if sum(int(np.prod(shape_of(v), dtype=np.int64)) for v in op.results) > MOST:
        return False
    types = [np.dtype(x.dtype) for x in xs] + [numpy_dtype(element_of(v)) for v in op.results]
    if not all(map(is_known_type, types)):
        return False
    # slopes are JAX's to find
    is_curved = isinstance(op, ops.ElementwiseOp) and function_named(op.FUNCTION.name).passing == "slope"
    return not (bounded and is_curved)


def plain_values(op: Operation, xs: Sequence[Any]) -> list[Any]:
    """The results of such an op."""
    rule = rule_of(op)
    assert rule is not None
    with np.errstate(all="ignore"):
        y = rule(op, *map(np.asarray, xs))
    out = numpy_dtype(element_of(op.results[0]))
    shape = shape_of(op.results[0])
    y = np.broadcast_to(y, shape) if y.shape != shape else y
    return [np.asarray(y if y.dtype == out else numbers.convert(y, out), order="C")]


def plain_bounds(
    op: Operation, xs: Sequence[Any], es: Sequence[Bound], ys: Sequence[Any], mode: Mode
) -> list[Any]:
    """The bounds of such an op's results."""
    arrays: list[list[Any]] = [[None if x is None else np.asarray(x) for x in given] for given in (xs, es, ys)]
    with np.errstate(all="ignore"):
        found = propagate(op, arrays[0], arrays[1], arrays[2], mode)
        return [
            None if e is None else np.asarray(np.broadcast_to(e, np.shape(y)), order="C")
            for e, y in zip(found, ys, strict=True)
        ]
