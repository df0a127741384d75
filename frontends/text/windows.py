"""The functions of `.tw` that move a window: convolution and pooling."""

from __future__ import annotations

import math

from ...dialects.dtypes import tensor
from ...dialects.graph import ConvOp, ReduceWindowOp
from ...dialects.graph.interface import shape_of
from ..size_arithmetic import larger
from .axes import Ints, Tensor, each_of, floats
from .builder import BOOLEAN, Builder, type_text
from .diagnostics import Problem


def conv(
    b: Builder,
    x: Tensor,
    w: Tensor,
    *,
    strides: int | Ints = 1,
    padding: str | int | Ints = "valid",
    dilation: int | Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of x [batch, spatial..., features] with w [spatial..., features in, features out]."""
    a, k = shape_of(x), shape_of(w)
    n = len(a) - 2
    if not 1 <= n <= 3 or len(k) != len(a):
        raise Problem(
            "`conv` needs x [batch, spatial..., features] and w [spatial..., features in, features out]",
            f"{type_text(x.type)} and {type_text(w.type)}",
        )
    element = b.common("conv", [x, w])
    if element == BOOLEAN:
        raise Problem("`conv` is for numbers, not i1")
    if groups < 1 or a[-1] != k[-2] * groups or k[-1] % groups:
        raise Problem(
            "the features of `conv` do not fit",
            f"{type_text(x.type)} and {type_text(w.type)}",
            [f"x has {a[-1]} features, w takes {k[-2]} in each of {groups} group(s)"],
        )
    steps, apart = _each("strides", strides, n), _each("dilation", dilation, n)
    low, high = _padding(padding, a[1:-1], k[:n], steps, apart)
    layout = [0, n + 1, *range(1, n + 1)]
    return b.infer(
        ConvOp,
        [x, w],
        [tensor([], element)],
        strides=steps,
        low=low,
        high=high,
        lhs_dilation=[1] * n,
        rhs_dilation=apart,
        lhs_layout=layout,
        rhs_layout=[n, n + 1, *range(n)],
        out_layout=layout,
        groups=groups,
    )[0]


def max_pool(
    b: Builder,
    x: Tensor,
    *,
    window: int | Ints,
    strides: int | Ints | None = None,
    padding: str | int | Ints = "valid",
) -> Tensor:
    """The largest of each window of x [batch, spatial..., features]; strides: the window where absent."""
    return _pool(b, "max", x, window, strides, padding)[0]


def avg_pool(
    b: Builder,
    x: Tensor,
    *,
    window: int | Ints,
    strides: int | Ints | None = None,
    padding: str | int | Ints = "valid",
) -> Tensor:
    """The mean of each window of x [batch, spatial..., features]; what is outside counts as 0."""
    floats("avg_pool", x)
    total, count = _pool(b, "sum", x, window, strides, padding)
    return b.apply("div", total, count)


def _pool(
    b: Builder,
    kind: str,
    x: Tensor,
    window: int | Ints,
    strides: int | Ints | None,
    padding: str | int | Ints,
) -> tuple[Tensor, int]:
    shape, n = shape_of(x), len(shape_of(x)) - 2
    if n < 1:
        raise Problem(
            f"`{'avg' if kind == 'sum' else kind}_pool` needs x [batch, spatial..., features]",
            type_text(x.type),
        )
    sizes = _each("window", window, n)
    steps = sizes if strides is None else _each("strides", strides, n)
    low, high = _padding(padding, shape[1:-1], sizes, steps, [1] * n)
    made = b.infer(
        ReduceWindowOp,
        [x],
        [x.type],
        kind=kind,
        window=[1, *sizes, 1],
        strides=[1, *steps, 1],
        dilation=[1] * (n + 2),
        low=[0, *low, 0],
        high=[0, *high, 0],
    )
    return made[0], math.prod(sizes)


def _each(called: str, value: int | Ints, n: int) -> list[int]:
    values = each_of(value, n)
    if len(values) != n or any(v < 1 for v in values):
        raise Problem(
            f"`{called}` needs {n} numbers of at least 1, or one for all; got {value}".replace(
                "(", "["
            ).replace(")", "]"),
            argument=called,
        )
    return values


def _padding(
    padding: str | int | Ints, sizes: Ints, window: Ints, strides: Ints, dilation: Ints
) -> tuple[list[int], list[int]]:
    n = len(sizes)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise Problem(f'padding "{padding}" is not "same" or "valid"', argument="padding")
        if padding == "valid":
            return [0] * n, [0] * n
        reach = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
        total = [
            larger(((size + s - 1) // s - 1) * s + r - size, 0)
            for size, s, r in zip(sizes, strides, reach, strict=True)
        ]
        return [t // 2 for t in total], [t - t // 2 for t in total]
    both = each_of(padding, n)
    if len(both) != n or any(p < 0 for p in both):
        raise Problem(
            f"`padding` needs {n} numbers of at least 0, one for all, or a name", argument="padding"
        )
    return both, both
