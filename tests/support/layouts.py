"""A judge that has operands of products in the layouts that a test is about, and a program for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import pytest

from tilewright.dialects.graph import FusionOp
from tilewright.passes.choose.layout_choice import LayoutJudge
from tilewright.passes.choose.operand_layouts import Layout


def prefer(patch: pytest.MonkeyPatch, saved: Callable[[Layout], int]) -> None:
    """Has every operand in another layout that can be: the one with which most microseconds are `saved`."""

    def microseconds(
        self: LayoutJudge,
        fusion: FusionOp,
        inputs: Mapping[int, Layout] | None = None,
        stored: Mapping[int, Layout] | None = None,
    ) -> float:
        return 100.0 - sum(map(saved, (inputs or {}).values()))

    patch.setattr(LayoutJudge, "relayout_microseconds", lambda self, value, layout: 1.0)
    patch.setattr(LayoutJudge, "most_saved", lambda self, fusion, value: 100.0)
    patch.setattr(LayoutJudge, "microseconds", microseconds)


@jax.jit
def called(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """Large enough that it stays a function, which is called."""
    for i in range(30):
        x = jnp.tanh(x * 1.01) + i
    return jnp.tanh(x @ w) @ v
