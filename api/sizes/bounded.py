"""Functions of JAX whose results have as many elements as data says.

JAX has no such shapes where it traces: there a result has the shape of its bound, and `bounded` marks how much of it
counts. Tilewright cuts what a program gives to that, and lets what follows inside of the program see no more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...frontends.bounding import begins, compressed, coordinates, first
from ...passes.errors import CompileError

if TYPE_CHECKING:
    import jax


def bounded(x: Any, n: Any, axis: int = 0) -> jax.Array:
    """Marks that the first n elements of x along an axis count.

    A program that Tilewright compiles gives these alone. Ops that follow inside of it go by them, too: a sum over the
    axis is that of the first n. What JAX finds in shapes while it traces, as the count that `jnp.mean` divides by, is
    of the whole axis.

    On arrays this is `x[:n]`. Under `jax.jit` and `jax.vmap` it is x, all of it, since JAX has no shapes that depend
    on data. The derivative by what does not count is zero.

    Args:
        x: An array, of any dtype.
        n: A whole number, or an integer array of rank 0; less than 0 means 0, more than there are means all.
        axis: The axis; a negative one counts from the end.

    Returns:
        x, or its first n elements.

    Raises:
        CompileError: x has no such axis, or n is not one whole number.
    """
    import jax.numpy as jnp

    x, n = jnp.asarray(x), jnp.asarray(n)
    if not -x.ndim <= axis < x.ndim:
        raise CompileError(f"tw.bounded: axis {axis} is none of an array of rank {x.ndim}")
    if n.ndim or not jnp.issubdtype(n.dtype, jnp.integer):
        raise CompileError(f"tw.bounded: n must be one whole number, not {n.dtype}{list(n.shape)}")
    return first(x, n, axis)


def nonzero(x: Any) -> tuple[jax.Array, ...]:
    """Returns where an array is not zero, in row-major order, as `numpy.nonzero` does.

    Args:
        x: An array of rank 1 or more.

    Returns:
        For each dimension the i32 coordinates, at most as many as x has elements (`bounded`).

    Raises:
        CompileError: x has no dimensions.
    """
    import jax.numpy as jnp

    x = jnp.asarray(x)
    if not x.ndim:
        raise CompileError("tw.nonzero needs an array of rank 1 or more: a number has no coordinates")
    (places,) = compressed(x.reshape(-1) != 0, [jnp.arange(x.size, dtype=jnp.int32)])
    return tuple(coordinates(places, [max(n, 1) for n in x.shape]))


def compress(mask: Any, x: Any, axis: int = 0) -> jax.Array:
    """Returns what a mask selects, as `x[mask]` does: `x[:, mask]` for axis 1.

    Args:
        mask: Bools, in the shape of the dimensions of x from `axis` on, as many as it has.
        x: An array.
        axis: The first dimension that the mask is for; a negative one counts from the end.

    Returns:
        x with the dimensions of the mask as one, of the selected elements, at most as many as the mask has (`bounded`).

    Raises:
        CompileError: The mask does not fit.
    """
    import jax.numpy as jnp

    mask, x = jnp.asarray(mask), jnp.asarray(x)
    given = axis
    axis = axis % x.ndim if -x.ndim <= axis < x.ndim else 0
    if mask.dtype != bool or not mask.ndim or mask.shape != x.shape[axis : axis + mask.ndim]:
        raise CompileError(
            f"tw.compress: a mask of {mask.dtype}{list(mask.shape)} is not one for dimensions of an array of "
            f"{list(x.shape)} from {given} on"
        )
    rows = x.reshape(*x.shape[:axis], mask.size, *x.shape[axis + mask.ndim :])
    rows = jnp.moveaxis(rows, axis, 0)
    (selected,) = compressed(mask.reshape(-1), [rows], axis)
    return selected


def unique(x: Any) -> jax.Array:
    """Returns the distinct elements of an array in ascending order, as `numpy.unique` does: NaN is one of them at most.

    Args:
        x: An array of real numbers or bools, of any rank.

    Returns:
        At most as many elements as x has (`bounded`).
    """
    import jax.numpy as jnp

    ordered = jnp.sort(jnp.asarray(x).reshape(-1))
    (found,) = compressed(begins(ordered), [ordered])
    return found


def nms(
    boxes: Any,
    scores: Any,
    iou_threshold: float,
    score_threshold: float = -float("inf"),
    max_boxes: int | None = None,
) -> jax.Array:
    """Selects boxes by their scores, highest first, and leaves out those that overlap one that is selected already
    (non-maximum suppression).

    Args:
        boxes: f32 or f16 [n, 4]: two opposite corners of each.
        scores: [n]: of equal ones the first box is taken first.
        iou_threshold: A box is left out where its intersection with a selected one over their union is larger.
        score_threshold: Boxes whose scores are not larger are left out.
        max_boxes: The most that are selected; None: n.

    Returns:
        The i32 numbers of the selected boxes, at most `max_boxes` (`bounded`).

    Raises:
        CompileError: Shapes do not fit.
    """
    import jax
    import jax.numpy as jnp

    boxes, scores = jnp.asarray(boxes), jnp.asarray(scores)
    if scores.ndim != 1 or boxes.shape != (scores.shape[0], 4):
        raise CompileError(
            f"tw.nms: boxes of {list(boxes.shape)} with scores of {list(scores.shape)}; it needs [n, 4] and [n]"
        )
    n = scores.shape[0]
    most = n if max_boxes is None else max(max_boxes, 0)
    if isinstance(n, int):  # else it is symbolic
        most = min(most, n)
    if most == 0:
        return bounded(jnp.zeros(0, jnp.int32), 0)
    low, high = jnp.minimum(boxes[:, :2], boxes[:, 2:]), jnp.maximum(boxes[:, :2], boxes[:, 2:])
    corners = jnp.concatenate([low, high], 1).T  # [4, n]: rows of numbers, as the vector unit has them
    areas = (corners[2] - corners[0]) * (corners[3] - corners[1])
    numbers, places = jnp.arange(n, dtype=jnp.int32), jnp.arange(most, dtype=jnp.int32)
    least = jnp.asarray(-jnp.inf, scores.dtype)
    left = jnp.where(scores > score_threshold, scores, least)

    def step(i: Any, state: Any) -> Any:
        left, selected, count = state
        best = jnp.argmax(left).astype(jnp.int32)
        there = jnp.max(left) > least
        chosen = numbers == best
        corner = jnp.sum(jnp.where(chosen, corners, 0), 1, keepdims=True)
        area = jnp.sum(jnp.where(chosen, areas, 0))
        sides = jnp.maximum(jnp.minimum(corners[2:], corner[2:]) - jnp.maximum(corners[:2], corner[:2]), 0)
        common = sides[0] * sides[1]
        overlaps = common > iou_threshold * (areas + area - common)
        left = jnp.where(overlaps | chosen, least, left)
        selected = jnp.where((places == i) & there, best, selected)
        return left, selected, count + there.astype(jnp.int32)

    begin = (left, jnp.zeros(most, jnp.int32), jnp.zeros((), jnp.int32))
    _, selected, count = jax.lax.fori_loop(0, most, step, begin)
    return bounded(selected, count)
