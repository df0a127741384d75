"""Random vector kernels through the vendor's own lowering for this processor, as far as LLVM's dialect."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hivm_on_cpu import UB_BYTES, arena_text, lowered

import tilewright as tw
from tilewright.backends.hivm.tools import VendorTools

UNARY = (jnp.exp, jnp.sqrt, jnp.abs, jnp.negative, lambda x: 2 * x + 1, lambda x: 1 / x)
BINARY = (jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum)
REDUCED = (jnp.sum, jnp.max, jnp.min)


def random_kernel(seed: int) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """A function of one or two f32 matrices: some functions of lanes, and of half of them a reduction of its rows or
    columns."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 40)), int(rng.choice([1, 8, 31, 64, 100, 256]))
    steps = [(int(rng.integers(2)), int(rng.integers(6))) for _ in range(rng.integers(1, 6))]
    reduced, axis = (REDUCED[rng.integers(3)], int(rng.integers(2))) if rng.integers(2) else (None, 0)

    def function(x: Any, y: Any) -> Any:
        for binary, which in steps:
            x = BINARY[which](x, y) if binary else UNARY[which](x)
        return x + y if reduced is None else reduced(x + y, axis=axis)

    return function, [jax.ShapeDtypeStruct(shape, np.float32)] * 2


@pytest.mark.parametrize("seed", range(50))
def test_random_kernel_is_lowered(seed: int) -> None:
    """All of it: no op of HIVM is left, and the bytes of ub are one array, which views lie in at our addresses."""
    pytest.importorskip("ascendnpuir")
    function, args = random_kernel(seed)
    program = tw.compile(function, *args, options=tw.Options(hivm=True))
    for kernel in program.to_hivm().values():
        found = lowered(kernel.text, VendorTools.find())
        assert "llvm.func" in found
        assert not re.search(r"hivm\.hir\.|memref\.|linalg\.|scf\.|unrealized", found)


def test_text_with_one_array() -> None:
    function, args = random_kernel(1)
    (kernel,) = tw.compile(function, *args, options=tw.Options(hivm=True)).to_hivm().values()
    text = arena_text(kernel.text)
    casts = len(re.findall(r"hivm\.hir\.pointer_cast", kernel.text))
    assert casts and len(re.findall(rf"memref\.view %ub\[.*memref<{UB_BYTES}xi8>", text)) == casts
    assert not re.search(r"pointer_cast|get_block_idx|set_mask_norm", text)
