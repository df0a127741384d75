"""Programs with open dimensions for tests."""

from __future__ import annotations

from typing import Any

import jax
from jax import export

import tilewright as tw


def struct(*shape: Any, dtype: Any = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def dims(text: str, *constraints: str) -> tuple[Any, ...]:
    return tuple(export.symbolic_shape(text, constraints=constraints))


def dynamic(source: Any, *args: Any, **kwargs: Any) -> tw.DynamicProgram:
    made = tw.compile(source, *args, **kwargs)
    assert isinstance(made, tw.DynamicProgram)
    return made
