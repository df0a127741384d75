"""Results whose sizes depend on data: as @main gives them, in full with their sizes behind, and as callers see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.graph.extents import Extent
from ..mains import Types


def cut(flat: Sequence[Any], extents: Sequence[Extent]) -> list[Any]:
    """The flat results of @main as callers see them: of their sizes, which are not there any more."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    out = list(flat)
    for i in dict.fromkeys(e.result for e in extents):
        array = np.asarray(out[i])
        for e in extents:
            if e.result == i:
                array = array[_first(array.ndim, e.dim, int(flat[e.by]))]
        with jax.enable_x64(True):  # the dtype is the program's, i64 too
            out[i] = jnp.asarray(array)
    return out[: min((e.by for e in extents), default=len(out))]


def _first(rank: int, dim: int, n: int) -> tuple[slice, ...]:
    """The first n elements along a dimension."""
    return tuple(slice(n) if d == dim else slice(None) for d in range(rank))


def with_sizes(results: Sequence[Any], extents: Sequence[Extent]) -> list[Any]:
    """Flat results of their sizes, with these behind them as @main gives them."""
    import numpy as np

    sizes = {e.by: np.asarray(np.shape(results[e.result])[e.dim], np.int32) for e in extents}
    return [*results, *(sizes[by] for by in sorted(sizes))]


def uncut(results: Sequence[Any], types: Types, extents: Sequence[Extent]) -> list[Any]:
    """Flat results of their sizes with zeros behind them, in the shapes of these types along dimensions whose sizes
    depend on data."""
    import numpy as np

    out = list(results)
    for e in extents:
        if e.result < len(out) and np.ndim(out[e.result]) > e.dim:
            array = np.asarray(out[e.result])
            missing = max(types[e.result][0][e.dim] - array.shape[e.dim], 0)
            out[e.result] = np.pad(array, [(0, missing if d == e.dim else 0) for d in range(array.ndim)])
    return out


def result_types(types: Types, extents: Sequence[Extent]) -> tuple[str, ...]:
    """The results of @main that callers see, of these types, as text: `f32[<=16, 128]` where the size depends on
    data."""
    bounded = {(e.result, e.dim) for e in extents}
    shown = []
    for i, (shape, dtype) in enumerate(types[: min((e.by for e in extents), default=len(types))]):
        dims = (f"<={n}" if (i, d) in bounded else str(n) for d, n in enumerate(shape))
        shown.append(f"{dtype}[{', '.join(dims)}]")
    return tuple(shown)
