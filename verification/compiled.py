"""Kernels as functions that XLA compiles on other threads while Python goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from ..backends.functions.compiling import OPTIONS, lowered, row_major
from ..backends.functions.values import plain
from ..backends.interpreter.launch import ZERO
from ..backends.interpreter.program import COMPILERS
from ..backends.interpreter.tile import run_kernel
from ..dialects import tile
from .structure import Cache, structure


@dataclass(frozen=True)
class Compiling:
    """A function that XLA may still be compiling."""

    executable: Future[Any]

    def __call__(self, *arrays: Any) -> Any:
        return self.executable.result()(*map(plain, arrays))


def compiling(function: Callable[..., Any], shapes: Sequence[Any]) -> Compiling:
    """Traces `function` for a zero and arguments of these shapes, and has XLA compile it."""
    made = lowered(row_major(function), [jax.ShapeDtypeStruct((), np.float32), *shapes])
    return Compiling(COMPILERS.submit(lambda: made.compile(OPTIONS)))


def tile_kernel(
    cache: Cache,
    kernel: tile.KernelOp,
    inputs: Sequence[Any],
    inits: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> Compiling:
    """A tile kernel as a function of a zero and of arrays with the shapes and dtypes of `inputs`."""

    def make() -> Compiling:
        given = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
        return compiling(lambda zero, *xs: run_kernel(kernel, zero, xs, inits, shapes), given)

    key = ("tile", structure(kernel), tuple(inits), tuple(shapes), tuple((x.shape, x.dtype) for x in inputs))
    return cache.get(key, make)


def run_tile_kernel(
    cache: Cache,
    kernel: tile.KernelOp,
    inputs: Sequence[Any],
    inits: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> list[Array]:
    """The outputs of a tile kernel on arrays."""
    return list(tile_kernel(cache, kernel, inputs, inits, shapes)(ZERO, *inputs))
