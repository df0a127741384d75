"""Programs whose kernels graph-schedule makes of several fusions where that pays: small ones, with which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import to_schedules
from tilewright.machine import Machine
from tilewright.passes.choose import chain_apart
from tilewright.passes.choose.launches import launches_of
from tilewright.passes.choose.pooling_choice import PooledProduct
from tilewright.passes.choose.prologue import PrologueOnCube, PrologueOnVector
from tilewright.passes.lower.chains.back_space import BackToBackSpace
from tilewright.passes.lower.chains.back_to_back import BackToBackKernel
from tilewright.passes.lower.chains.row_attention import RowAttentionKernel
from tilewright.passes.lower.chains.row_space import RowSpace
from tilewright.passes.lower.cube.product_space import ProductSpace
from tilewright.passes.lower.cube.vector_product_space import VectorProductSpace
from tilewright.passes.lower.scheduled import ScheduledKernel
from tilewright.passes.lower.spaces import KernelSpace

TARGETS = ("ascend-910b1", "ascend-950pr")
"""Chips that have these kernels."""


OFF_THE_CUBE = "cube-prologue,transposed,pitch"
"""The alternatives without which vector cores take a product of few rows that has a prologue."""


class ForcedKind(NamedTuple):
    """A program, its inputs, and the space of its one kernel; without: the alternatives that it is compiled without."""

    fn: Callable[..., Any]
    args: list[jax.ShapeDtypeStruct]
    space: type[KernelSpace]
    without: str = ""

    @property
    def options(self) -> tw.Options:
        """What it is compiled with."""
        return tw.Options(plans="", without=self.without)

    def arrays(self) -> list[np.ndarray]:
        """Inputs: small numbers."""
        random = np.random.default_rng(0)
        return [
            random.integers(-8, 8, a.shape).astype(a.dtype)
            if np.issubdtype(a.dtype, np.integer)
            else (random.standard_normal(a.shape) * 0.3).astype(a.dtype)
            for a in self.args
        ]


def struct(*shape: int, dtype: str = "float16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v


def dequantised(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.astype(x.dtype) * scale)


def normed(x: Any, w: Any) -> Any:
    wide = x.astype("float32")
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-3)).astype(x.dtype) @ w


def layers(x: Any, a: Any, b: Any) -> Any:
    return jax.nn.relu(x @ a) @ b


def pooled(x: Any, w: Any, b: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.lax.reduce_window(
        jax.nn.relu(y + b), -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (0, 1), (1, 0), (0, 0))
    )


KINDS: dict[str, ForcedKind] = {
    "product on vector cores": ForcedKind(
        dequantised,
        [struct(2, 97), struct(97, 1031, dtype="int8"), struct(1031)],
        VectorProductSpace,
        OFF_THE_CUBE,
    ),
    "product of rows on vector cores": ForcedKind(
        lambda x, w: jnp.exp(x @ (w.T * 0.125)) + 1,
        [struct(1, 513), struct(257, 513)],
        VectorProductSpace,
        OFF_THE_CUBE,
    ),
    "prologue of a deep product": ForcedKind(
        lambda x, w: (x * 2 + 1).T @ w, [struct(538, 16), struct(538, 3)], ProductSpace, "prologue"
    ),
    "pooled product": ForcedKind(pooled, [struct(1, 19, 14, 24), struct(3, 3, 24, 56), struct(56)], ProductSpace),
    "products back to back": ForcedKind(layers, [struct(601, 72), struct(72, 192), struct(192, 90)], BackToBackSpace),
    "prologue": ForcedKind(
        dequantised, [struct(70, 250), struct(250, 130, dtype="int8"), struct(130)], ProductSpace
    ),
    "prologue that reduces": ForcedKind(normed, [struct(130, 96), struct(96, 72)], ProductSpace),
    "attention of few rows": ForcedKind(
        attention, [struct(3, 5, 40), struct(3, 333, 40), struct(3, 333, 56)], RowSpace
    ),
}


@contextmanager
def forced() -> Iterator[None]:
    """Within it these kernels are made whatever their parts take."""
    always = dict.fromkeys([RowAttentionKernel, BackToBackKernel], ("", float("inf")))
    with (
        patch.dict(chain_apart.MARGINS, always),  # pyright: ignore[reportArgumentType]
        patch.object(PooledProduct, "pays", lambda self, made, now: True),
        patch.object(PrologueOnVector, "pays", lambda self, made, now: True),
        patch.object(PrologueOnCube, "pays", lambda self, made, now: made < float("inf")),
    ):
        yield


def scheduled(kind: ForcedKind, target: str) -> ModuleOp:
    """The graph level of the program of a kind, its kernels made and scheduled."""
    with forced():
        return tw.compile(kind.fn, *kind.args, target=target, options=kind.options).module("graph")


def largest_kernel(module: ModuleOp, target: str) -> tuple[ScheduledKernel, KernelSpace]:
    """The largest kernel of a module, of the kind that its schedule has if it has one, and its space."""
    fusions = [op for op in module.walk() if isinstance(op, FusionOp) and not op.on_host]
    fusion = max(fusions, key=FusionOp.flops)
    plan, taken = launches_of(fusion, Machine.load(target))[0], to_schedules(fusion.schedule)
    kernel = plan.kernel(plan.stem, type(taken[0])() if taken else None)
    return kernel, kernel.space(plan.stem)
