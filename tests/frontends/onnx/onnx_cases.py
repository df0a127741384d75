"""Models with known results, which are compiled as one; and models with symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import onnx

from tilewright.frontends.onnx import OnnxFunction, OnnxModel, read_model


def near(got: Any, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The same shape and dtype, and values within a tolerance."""
    want = np.asarray(want)
    assert (got.shape, np.dtype(got.dtype)) == (want.shape, want.dtype)
    np.testing.assert_allclose(np.asarray(got).astype("f8"), want.astype("f8"), rtol=rtol, atol=atol)


class Cases:
    """Models with what they give, which are compiled as one."""

    def __init__(self) -> None:
        self.models: list[onnx.ModelProto | OnnxModel] = []
        self.arrays: list[Sequence[Any]] = []
        self.wanted: list[tuple[Any, float, float]] = []

    def add(
        self, model: onnx.ModelProto, arrays: Sequence[Any], want: Any, rtol: float = 1e-5, atol: float = 1e-6
    ) -> None:
        """A case. want: the output, or a tuple of outputs."""
        self.models.append(model)
        self.arrays.append(arrays)
        self.wanted.append((want, rtol, atol))

    def check(self) -> None:
        functions = [OnnxFunction(m if isinstance(m, OnnxModel) else read_model(m)) for m in self.models]

        def run(given: list[Sequence[Any]]) -> list[Any]:
            return [f(*xs) for f, xs in zip(functions, given, strict=True)]

        with jax.enable_x64(True):
            got = jax.jit(run)(self.arrays)
        for value, (want, rtol, atol) in zip(got, self.wanted, strict=True):
            for a, b in zip(jax.tree.leaves(value), want if isinstance(want, tuple) else [want], strict=True):
                near(a, b, rtol, atol)


def check_open(model: onnx.ModelProto, arrays: list[np.ndarray], shapes: list[str]) -> None:
    """A model with symbolic sizes gives what it does without."""
    fn = OnnxFunction(read_model(model))
    scope = jax.export.SymbolicScope()
    sizes = [jax.export.symbolic_shape(s, scope=scope) for s in shapes]
    with jax.enable_x64(True):
        given = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(sizes, arrays, strict=True)]
        made = jax.export.export(jax.jit(fn))(*given)
        got, want = jax.tree.leaves(made.call(*arrays)), jax.tree.leaves(jax.jit(fn)(*arrays))
    for a, b in zip(got, want, strict=True):
        near(a, b)
