"""Where the windows of convolutions and pools lie: strides, dilations, and what is beside each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..node import Node


@dataclass(frozen=True)
class WindowShape:
    """Numbers for each spatial dimension.

    sizes: of the operand. low, high: what is padded before and behind it. beyond: what the last window covers more,
    where sizes are rounded up.
    """

    sizes: Sequence[Any]
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    low: Sequence[Any]
    high: Sequence[Any]
    beyond: Sequence[Any]

    @property
    def padding(self) -> list[tuple[Any, Any]]:
        """What is before and behind each dimension, so that all windows lie inside."""
        return [(a, b + more) for a, b, more in zip(self.low, self.high, self.beyond, strict=True)]

    @property
    def counts(self) -> list[Any]:
        """How many windows there are along each dimension."""
        made: list[Any] = []
        for i, (low, high) in enumerate(self.padding):
            room = self.sizes[i] + low + high - reach(self.kernel[i], self.dilations[i])
            made.append(room // self.strides[i] + 1)
        return made

    def inside(self, i: int, padded: bool) -> Any:
        """How many elements each window has along dimension `i`: of the operand, or of it and its padding. An i64
        array, known where the size is."""
        import jax.numpy as jnp

        n, low, high = self.sizes[i], self.low[i], self.high[i]
        xp: Any = np if all(isinstance(v, int) for v in (n, low, high)) else jnp
        begins = xp.arange(self.counts[i], dtype=np.int64) * self.strides[i] - low
        places = begins[:, None] + np.arange(self.kernel[i], dtype=np.int64) * self.dilations[i]
        there = (places >= -low) & (places < n + high) if padded else (places >= 0) & (places < n)
        return xp.sum(there, axis=1, dtype=np.int64)


def reach(kernel: Any, dilation: int) -> Any:
    """How many elements a window is wide, with what it leaves out."""
    return (kernel - 1) * dilation + 1


def windows_of(node: Node, x: Any, kernel: Sequence[int]) -> WindowShape:
    """The windows of a kernel over the spatial dimensions of x, by a node's attributes."""
    from jax.core import max_dim

    sizes, rank = x.shape[2:], x.ndim - 2
    if len(kernel) != rank:
        raise node.unsupported(f"a kernel of {len(kernel)} dimensions has no place in {rank} of the operand")
    strides, dilations = (node.get(name) or [1] * rank for name in ("strides", "dilations"))
    check_windows(node, rank, kernel)
    mode, given = node.get("auto_pad", "NOTSET"), node.get("pads") or [0] * 2 * rank
    low, high = list(given[:rank]), list(given[rank:])
    if mode != "NOTSET":
        low, high = [0] * rank, [0] * rank
    beyond: list[Any] = [0] * rank
    for i, (n, k, step, far) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        wide = reach(k, far)
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            # n / step windows, rounded up: one step less than the last one begins before the end
            missing = wide - step + (-n) % step
            missing = missing if wide >= step else max_dim(missing, 0)
            low[i], high[i] = split(missing, mode == "SAME_LOWER")
        elif mode == "NOTSET" and node.get("ceil_mode", 0):
            # no window begins behind the operand and what is before it
            room = n + low[i] + min(high[i] + step - wide, 0)
            last = (-(-room // step) - 1) * step + wide
            beyond[i] = max_dim(last - (n + low[i] + high[i]), 0)
    return WindowShape(sizes, kernel, strides, dilations, low, high, beyond)


MODES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
"""What `auto_pad` may be."""

FARTHEST = 1 << 31
"""Strides, windows and paddings are smaller."""


def check_windows(node: Node, rank: int, kernel: Sequence[Any]) -> None:
    """Raises Unsupported for attributes that describe no windows over `rank` dimensions, or others than those of a
    kernel of weights."""
    for name, least, count in (
        ("kernel_shape", 1, rank),
        ("strides", 1, rank),
        ("dilations", 1, rank),
        ("pads", -FARTHEST, 2 * rank),
        ("output_padding", 0, rank),
    ):
        given = node.get(name)
        if given and (len(given) != count or not all(least <= n < FARTHEST for n in given)):
            raise node.unsupported(f"{name} is {list(given)}: it takes {count} numbers of {least} or more")
    mode = node.get("auto_pad", "NOTSET")
    if mode not in MODES:
        raise node.unsupported(f"auto_pad is {mode!r}: it is one of {', '.join(MODES)}")
    given = node.get("kernel_shape")
    if given and list(given) != list(kernel):
        raise node.unsupported(f"kernel_shape is {list(given)}, and its weights are for {list(kernel)}")


def check_groups(node: Node, channels: Any, outputs: Any, per_group: Any) -> None:
    """Raises Unsupported where the channels of an operand do not fall into the groups of a convolution, or are others
    than those of its weights. outputs: what each group makes a share of; per_group: channels that the weights take."""
    groups = node.get("group", 1)
    known = all(isinstance(n, int) for n in (channels, outputs, per_group))
    if groups < 1 or (known and (channels != groups * per_group or outputs % groups)):
        raise node.unsupported(
            f"{groups} groups with weights for {per_group} channels each do not go with {channels} channels"
        )


def check_weights(node: Node, x: Any, w: Any) -> None:
    """Raises Unsupported where weights are for another number of dimensions."""
    if x.ndim != w.ndim or x.ndim < 3:
        raise node.unsupported(f"weights of {w.ndim} dimensions have no place in an operand of {x.ndim}")


def split(total: Any, more_before: bool) -> tuple[Any, Any]:
    """A padding in two halves, of which the second, or else the first, has the odd element."""
    less, more = total // 2, total - total // 2
    return (more, less) if more_before else (less, more)


def per_channel(value: Any, rank: int) -> Any:
    """Values of channels, which are dimension 1, or one for all, so that they broadcast against an array of this
    rank."""
    if all(isinstance(n, int) and n == 1 for n in value.shape):
        return value.reshape(())
    return value.reshape(-1, *[1] * (rank - 2))
