"""What follows a product feature by feature: factors and numbers that are added, such as a batch norm and a bias.

conv(x, w) * a[c] + b[c]    =    conv(x, w * a[c]) + b[c]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from ...dialects.base import to_ints
from ...dialects.dtypes import is_float
from ...dialects.graph import ELEMENTWISE, BroadcastOp
from ...dialects.graph.interface import element_of, shape_of
from ..forms.access import splat_of
from ..forms.tensor_builder import TensorBuilder

ADD, SUB, MUL, DIV, CONVERT = (ELEMENTWISE[n] for n in ("add", "sub", "mul", "div", "convert"))


@dataclass
class AffineChain:
    """end: the last value of it, which stands for result * scale + shift; steps: the op's class, the other operand, and
    whether that is the left one; last: the op of the end, None where nothing follows the product."""

    end: SSAValue
    last: Operation | None = None
    steps: list[tuple[type[Operation], SSAValue, bool]] = field(default_factory=list)

    def scale_and_shift(
        self, build: TensorBuilder, dims: Sequence[int]
    ) -> tuple[SSAValue | None, SSAValue | None]:
        """Both as f32 tensors over the dimensions `dims` of the result; None for a scale of 1 and a shift of 0."""
        scale: SSAValue | None = None
        shift: SSAValue | None = None
        for cls, other, is_left in self.steps:
            v = _vector(build, other, dims, shape_of(self.end))
            if cls in (MUL, DIV):
                name = "mul" if cls is MUL else "div"
                if scale is None and cls is DIV:
                    scale = build.constant(1, shape_of(v), f32)
                scale = v if scale is None else build.elementwise(name, scale, v)
                shift = None if shift is None else build.elementwise(name, shift, v)
            elif cls is SUB and is_left:  # v - y
                minus = build.constant(-1, shape_of(v), f32)
                scale = minus if scale is None else build.elementwise("mul", scale, minus)
                shift = v if shift is None else build.elementwise("sub", v, shift)
            elif shift is None:
                shift = v if cls is ADD else build.elementwise("mul", v, build.constant(-1, shape_of(v), f32))
            else:
                shift = build.elementwise("add" if cls is ADD else "sub", shift, v)
        return scale, shift


def chain_behind(result: SSAValue, dims: Sequence[int], weights: set[SSAValue]) -> AffineChain:
    """The longest chain behind a value; dims: its dimensions that are features; weights: values that are fixed."""
    found = AffineChain(result)
    while (use := found.end.get_user_of_unique_use()) is not None:
        if isinstance(use, CONVERT) and is_float(element_of(use.results[0])):
            step = None
        elif isinstance(use, (ADD, SUB, MUL, DIV)):
            left, right = use.operands
            is_left = right is found.end
            other = left if is_left else right
            if (isinstance(use, DIV) and is_left) or not _is_vector(other, dims, weights):
                break
            step = (type(use), other, is_left)
        else:
            break
        found.end, found.last = use.results[0], use
        if step is not None:
            found.steps.append(step)
    return found


def _is_vector(value: SSAValue, dims: Sequence[int], weights: set[SSAValue]) -> bool:
    if splat_of(value) is not None:
        return True
    source, places = _source(value)
    along = [d for d, n in zip(places, shape_of(source), strict=True) if n != 1]
    return source in weights and {*along} <= {*dims}


def _source(value: SSAValue) -> tuple[SSAValue, Sequence[int]]:
    """What a value is broadcast from, and which dimension each of its own is; a value that is not broadcast, as those
    that go along a result of one row, is its own source."""
    op = value.owner
    if isinstance(op, BroadcastOp):
        return op.x, to_ints(op.dims)
    return value, range(len(shape_of(value)))


def _vector(build: TensorBuilder, value: SSAValue, dims: Sequence[int], whole: Sequence[int]) -> SSAValue:
    """A value that goes along the dimensions `dims` of a shape, over these alone."""
    shape = [whole[d] for d in dims]
    number = splat_of(value)
    if number is not None:
        return build.constant(number, shape, f32)
    source, places = _source(value)
    kept = [(d, n) for d, n in zip(places, shape_of(source), strict=True) if n != 1]
    x = build.convert(
        build.reshape(source, [n for _, n in kept]) if len(kept) < len(shape_of(source)) else source, f32
    )
    return build.broadcast(x, shape, [list(dims).index(d) for d, _ in kept])
