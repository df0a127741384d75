"""Grids with more cores than the outputs have parts: what lies beyond them is not written."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize("cores", [3, 4, 37, 514])
def test_typed_memory_of_a_large_grid(cores: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("f4") for shape in [(64, 128), (128, 96)])
    text = tw.compile(lambda x, w: x @ w, x, w, target="ascend-950pr").ir()
    changed = re.sub(r"grid = \[(\d+)\]", f"grid = [{cores}]", text)
    assert changed != text
    program = tw.compile(changed)
    np.testing.assert_allclose(program(x, w), x @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(program(x, w, mode="step"), x @ w, rtol=1e-4, atol=1e-4)


def test_a_host_module_that_is_none() -> None:
    """One that cannot be read, and one that takes other inputs, which XLA would not notice: npu-check says so, and
    where it is left out the run does."""
    x = np.eye(4, dtype=np.float32)
    text = tw.compile(jnp.linalg.cholesky, x).ir()
    for old, new, said in (
        ("%arg0)", "%arg9)", "is no StableHLO with a @main"),
        ("@main(", "@other(", "is no StableHLO with a @main"),
        ("tensor<4x4xf32>", "tensor<5x5xf32>", r"takes f32\[5,5\], and is given f32\[4,4\]"),
    ):
        found = re.search(r'module = "(?:[^"\\]|\\.)*"', text)
        assert found is not None
        changed = text.replace(found[0], found[0].replace(old, new))
        with pytest.raises(tw.CompileError, match="bad-call"):
            tw.compile(changed)
        program = tw.compile(changed, options=tw.Options(check=False))
        for mode in ("typed", "step"):
            with pytest.raises(tw.CompileError, match=said):
                program(x, mode=mode)
