"""Heavy kernels, whose cores run in two groups."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw

jax.config.update("jax_platforms", "cpu")


def dense(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.gelu(x @ w + b)


def parts_of_a_sum(x: Any, w: Any) -> Any:
    return x @ w


def image(x: Any, w: Any) -> Any:
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))


CASES: dict[str, tuple[Callable[..., Any], str, list[tuple[int, ...]]]] = {
    "epilogue": (dense, "float32", [(128, 768), (768, 3000), (3000,)]),
    "f16": (dense, "float16", [(128, 768), (768, 3072), (3072,)]),
    "bf16": (dense, "bfloat16", [(97, 768), (768, 3031), (3031,)]),
    "deep": (parts_of_a_sum, "float32", [(128, 3072), (3072, 768)]),
    "conv": (image, "float32", [(1, 28, 28, 64), (3, 3, 64, 128)]),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_of_cores_use_their_memory_again(name: str) -> None:
    """What a run leaves behind is in no later result, and no later run changes a result; runs may overlap."""
    fn, dtype, shapes = CASES[name]
    random = np.random.default_rng(0)

    def draw() -> list[Any]:
        return [jnp.asarray(random.standard_normal(s) / 8, dtype) for s in shapes]

    program = tw.compile(fn, *draw())
    typed, in_bytes = program.executable("typed"), program.executable("bytes")
    inputs = [draw() for _ in range(4)]
    want = [np.asarray(in_bytes(*args)[0]) for args in inputs]
    found = [typed(*args)[0] for args in inputs]
    assert any(getattr(step, "split", None) is not None for step in typed.compiled.values())
    with ThreadPoolExecutor(4) as pool:
        found += list(pool.map(lambda args: typed(*args)[0], inputs * 4))
    for x, y in zip(found, want * 5, strict=True):
        np.testing.assert_array_equal(np.asarray(x), y)
