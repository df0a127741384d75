"""Programs with open dimensions for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

import tilewright as tw


def inputs_of(
    specs: Sequence[Any],
    bounds: Sequence[str],
    sizes: Mapping[str, int] | None,
    draw: Callable[[list[int], str], np.ndarray],
) -> list[Any]:
    """Inputs of these shapes, `b, s, 64` with a dtype behind it where that is not f32: types with symbols within
    bounds, or what `draw` gives for given sizes."""
    scope, made = export.SymbolicScope(bounds), []
    for spec in specs:
        text, dtype = (spec, "float32") if isinstance(spec, str) else spec
        if sizes is None:
            made.append(jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), dtype))
        else:
            shape = [sizes.get(n.strip()) or int(n) for n in text.split(",")]
            made.append(draw(shape, dtype).astype(dtype))
    return made


def struct(*shape: Any, dtype: Any = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def dims(text: str, *constraints: str) -> tuple[Any, ...]:
    return tuple(export.symbolic_shape(text, constraints=constraints))


def dynamic(source: Any, *args: Any, **kwargs: Any) -> tw.DynamicProgram:
    made = tw.compile(source, *args, **kwargs)
    assert isinstance(made, tw.DynamicProgram)
    return made
