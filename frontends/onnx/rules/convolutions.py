"""Convolutions, their transposes, and what is sums over the places of a kernel like them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from .interpolation import interpolated, taps
from .quantized import integer_conv
from .reductions import wide
from .windows import check_groups, check_weights, check_windows, per_channel, reach, split, windows_of


def _convolution(
    x: Any,
    w: Any,
    padding: Sequence[tuple[Any, Any]],
    dilations: Sequence[int],
    groups: int,
    strides: Sequence[int] = (),
    spread: Sequence[int] = (),
) -> Any:
    """One convolution. spread: how far apart the elements of x are moved. JAX takes no padding that is symbolic: it is
    an op of its own then."""
    import jax

    ones = [1] * len(padding)
    strides, spread = strides or ones, spread or ones
    if not all(isinstance(n, int) for pair in padding for n in pair):
        widths = [(a, b, d - 1) for (a, b), d in zip(padding, spread, strict=True)]
        x = jax.lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * 2 + widths)
        padding, spread = [(0, 0)] * len(padding), ones
    return jax.lax.conv_general_dilated(
        x, w, strides, padding, lhs_dilation=spread, rhs_dilation=dilations, feature_group_count=groups
    )


@rule("Conv")
def _conv(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    check_weights(node, x, w)
    check_groups(node, x.shape[1], w.shape[0], w.shape[1])
    windows = windows_of(node, x, w.shape[2:])
    y = _convolution(x, w, windows.padding, windows.dilations, node.get("group", 1), strides=windows.strides)
    return y if bias is None else y + per_channel(bias, x.ndim)


@rule("ConvInteger")
def _conv_integer(node: Node, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    return integer_conv(node, x, node.input(1), node.input(2), node.input(3))  # known weights stay so


@rule("ConvTranspose")
def _conv_transpose(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    """A convolution of the operand with zeros between its elements, by the kernel backwards."""
    import jax.numpy as jnp

    check_weights(node, x, w)
    check_windows(node, x.ndim - 2, w.shape[2:])
    rank, groups = x.ndim - 2, node.get("group", 1)
    if groups < 1 or (isinstance(x.shape[1], int) and (x.shape[1] != w.shape[0] or x.shape[1] % groups)):
        raise node.unsupported(f"weights for {w.shape[0]} channels in {groups} groups do not go with {x.shape[1]}")
    strides, dilations = (node.get(n) or [1] * rank for n in ("strides", "dilations"))
    padding: list[tuple[Any, Any]] = []
    for i, (low, size) in enumerate(_results(node, x, w)):
        before = reach(w.shape[2 + i], dilations[i]) - 1 - low
        padding.append((before, size - 1 - (x.shape[2 + i] - 1) * strides[i] + low))
    # [C, M / groups, ...] to [M, C / groups, ...]
    kernel = jnp.flip(w, range(2, w.ndim)).reshape(groups, -1, *w.shape[1:])
    kernel = jnp.swapaxes(kernel, 1, 2).reshape(-1, w.shape[0] // groups, *w.shape[2:])
    # what is cut off beyond the reach of the kernel is a slice
    cut = [tuple(max(-n, 0) if isinstance(n, int) else 0 for n in pair) for pair in padding]
    padding = [(a + c, b + d) for (a, b), (c, d) in zip(padding, cut, strict=True)]
    y = _convolution(x, kernel, padding, dilations, groups, spread=strides)
    if any(map(any, cut)):
        y = y[(..., *(slice(c, y.shape[2 + i] - d) for i, (c, d) in enumerate(cut)))]
    return y if bias is None else y + per_channel(bias, x.ndim)


def _results(node: Node, x: Any, w: Any) -> list[tuple[Any, Any]]:
    """For each dimension of a transposed convolution: what is cut off before it, and the size of its result."""
    from jax.core import max_dim

    rank = x.ndim - 2
    strides, dilations = (node.get(n) or [1] * rank for n in ("strides", "dilations"))
    added, pads = node.get("output_padding") or [0] * rank, node.get("pads") or [0] * 2 * rank
    mode, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    made: list[tuple[Any, Any]] = []
    for i in range(rank):
        n, step = x.shape[2 + i], strides[i]
        whole = step * (n - 1) + added[i] + reach(w.shape[2 + i], dilations[i])
        if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
            size = wanted[len(wanted) - rank + i] if wanted else n * step
            missing = max_dim(whole - size, 0)
            made.append((split(missing, mode != "SAME_UPPER")[0], size))
        else:
            low, high = (pads[i], pads[rank + i]) if mode == "NOTSET" else (0, 0)
            made.append((low, whole - low - high))
    return made


@rule("DeformConv")
def _deform_conv(node: Node, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """A product of the kernel and of what the operand has at the places of each window, moved by offsets."""
    import jax.numpy as jnp

    rank, groups, parts = x.ndim - 2, node.get("group", 1), node.get("offset_group", 1)
    windows, n, c = windows_of(node, x, w.shape[2:]), x.shape[0], x.shape[1]
    kernel, out, dtype = w.shape[2:], offset.shape[2:], wide(x).dtype
    count, total = int(np.prod(kernel)), int(np.prod(kernel))
    for size in out:
        total = total * size
    moved = offset.astype(dtype).reshape(n * parts, count, rank, *out)
    lines: list[tuple[Any, Any]] = []
    for i in range(rank):
        begins = jnp.arange(out[i], dtype=dtype) * windows.strides[i] - windows.low[i]
        begins = begins.reshape(1, 1, *(out[i] if j == i else 1 for j in range(rank)))
        steps = np.indices(kernel)[i].reshape(-1) * windows.dilations[i]
        places = moved[:, :, i] + begins + steps.astype(dtype).reshape(1, count, *[1] * rank)
        size = x.shape[2 + i]
        lines.append(taps(places.reshape(n * parts, total), size, "linear", "zeros", (0, size)))
    columns = interpolated(wide(x).reshape(n * parts, c // parts, *x.shape[2:]), lines)
    if mask is not None:
        columns = columns.reshape(n, parts, c // parts, count, *out)
        columns = columns * mask.astype(dtype).reshape(n, parts, 1, count, *out)
    columns = columns.reshape(n, groups, c // groups * count, *out)
    kernels = w.astype(dtype).reshape(groups, w.shape[0] // groups, c // groups * count)
    y = jnp.einsum("gmk,ngk...->ngm...", kernels, columns).reshape(n, w.shape[0], *out)
    return (y if bias is None else y + per_channel(bias.astype(dtype), x.ndim)).astype(x.dtype)


@rule("Col2Im")
def _col2im(node: Node, x: Any, image_shape: Any, block_shape: Any) -> Any:
    """Sums of blocks where they overlap: one dimension after the other, and in each the elements of the blocks, which
    lie a stride apart."""
    import jax
    import jax.numpy as jnp

    image, kernel = node.dims(1), [int(k) for k in node.dims(2)]
    rank = len(image)
    strides, dilations = (node.get(n) or [1] * rank for n in ("strides", "dilations"))
    pads = node.get("pads") or [0] * 2 * rank
    counts = [
        (image[i] + pads[i] + pads[rank + i] - reach(kernel[i], dilations[i])) // strides[i] + 1
        for i in range(rank)
    ]
    # [n, c, kernel, counts] with one dimension of each less in each turn, and one of the image more
    y = x.reshape(x.shape[0], x.shape[1] // int(np.prod(kernel)), *kernel, *counts)
    zero = np.zeros((), x.dtype)
    for i in reversed(range(rank)):
        total: Any = None
        for k in range(kernel[i]):
            part = jax.lax.index_in_dim(y, k, 2 + i, keepdims=False)
            axis = part.ndim - rank + i
            begin = k * dilations[i] - pads[i]
            end = image[i] - begin - (counts[i] - 1) * strides[i] - 1
            widths: list[tuple[Any, Any, int]] = [(0, 0, 0)] * part.ndim
            widths[axis] = (begin, end, strides[i] - 1)
            spread = jax.lax.pad(part, zero, widths)
            total = spread if total is None else jnp.add(total, spread)
        y = total
    return y
