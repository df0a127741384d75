"""Windows: those that are cumulative reductions, and those too large for one kernel, which are combined from shifted
copies, twice as wide each time."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer_attr, text, to_ints
from ...dialects.dtypes import dtype_name, is_float, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import ELEMENTWISE, CumulateOp, ReduceWindowOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import padded_bytes
from ..forms.tensor_builder import RewriteBuilder, TensorBuilder
from ..fusion.long_rows import UB_FRACTION
from ..patterns import GraphPattern

COPIES = 4
"""A kernel for a window has two slots for its border, one copy in the type it computes in, and its results."""


class WindowAsCumulate(GraphPattern):
    """A window that has all elements before each element, or all behind it, is a cumulative reduction."""

    name = "window-as-cumulate"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReduceWindowOp, rewriter: PatternRewriter, /) -> None:
        window, low, high = to_ints(op.window), to_ints(op.low), to_ints(op.high)
        wide = [d for d, w in enumerate(window) if w > 1]
        steps = {*to_ints(op.strides), *to_ints(op.dilation)}
        if len(wide) != 1 or steps != {1}:
            return
        (d,) = wide
        n = shape_of(op.x)[d]
        if window[d] != n or (low[d], high[d]) not in ((n - 1, 0), (0, n - 1)):
            return
        if any(low[i] or high[i] for i in range(len(window)) if i != d):
            return
        build = RewriteBuilder(rewriter)
        made = build.add(
            CumulateOp,
            [op.x],
            op.result.type,
            kind=op.kind,
            dim=integer_attr(d),
            reverse=integer_attr(int(high[d] > 0)),
        )
        rewriter.replace(op, (), [made])


class SplitWindow(GraphPattern):
    """A window too large for the unified buffer is combined from shifted copies, twice as wide each time.

    Dimensions with one place are reduced, the others follow one by one, each from partial results over 1, 2, 4...
    positions of all places at once. f16 and bf16 are summed in f32.
    """

    name = "split-window"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReduceWindowOp, rewriter: PatternRewriter, /) -> None:
        window, dilation = to_ints(op.window), to_ints(op.dilation)
        span = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
        element, kind = element_of(op.x), text(op.kind)
        if COPIES * padded_bytes(span, f32) <= self.machine.spaces["ub"].bytes * UB_FRACTION:
            return
        rank = len(window)
        neutral = identity(kind, dtype_name(element))
        x, low, high = op.x, to_ints(op.low), to_ints(op.high)
        build = RewriteBuilder(rewriter)
        if any(low) or any(high):
            x = build.pad(x, neutral, low, high, [0] * rank)
        if is_float(element) and kind in ("sum", "prod"):
            x = build.convert(x, f32)
        out = shape_of(op.result)
        whole = [d for d in range(rank) if out[d] == 1 and window[d] > 1]
        if whole:
            for d in whole:
                x = build.part(x, d, 0, window[d], dilation[d])
            kept = [1 if d in whole else n for d, n in enumerate(shape_of(x))]
            x = build.reshape(build.reduce(x, kind, whole), kept)
        for d, (w, step, stride) in enumerate(zip(window, dilation, to_ints(op.strides), strict=True)):
            if d not in whole:
                x = _along(build, x, kind, d, w, step, stride, out[d])
        rewriter.replace(op, (), [build.convert(x, element)])


def _along(
    build: TensorBuilder, x: SSAValue, kind: str, d: int, window: int, step: int, stride: int, out: int
) -> SSAValue:
    """x combined over `window` positions of dimension d, `step` apart, for each of `out` places, `stride` apart."""
    total, done, part, width = None, 0, x, 1
    while done < window:
        if window & width:
            piece = build.part(part, d, done * step, out, stride)
            total = piece if total is None else _combined(build, kind, total, piece)
            done += width
        if done < window:
            length = shape_of(part)[d] - width * step
            part = _combined(
                build,
                kind,
                build.part(part, d, 0, length, 1),
                build.part(part, d, width * step, length, 1),
            )
            width *= 2
    assert total is not None
    return total


def _combined(build: TensorBuilder, kind: str, a: SSAValue, b: SSAValue) -> SSAValue:
    return build.add(ELEMENTWISE[REDUCTION_FUNCTION[kind]], [a, b], tensor(shape_of(a), element_of(a)))
