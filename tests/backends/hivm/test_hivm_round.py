"""Out, then in: what the import makes of an exported kernel has the same values, and npu-check proves it anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hivm_texts import STORED, exported

import tilewright as tw
from tilewright.dialects.npu import StoreOp

X = np.random.default_rng(3).standard_normal((40, 100)).astype("f4")
ROWS = np.linspace(1, 2, 100, dtype="f4")
H = (X[:32, :64] / 8).astype("f2")


def norm(x: Any, scale: Any, bias: Any) -> Any:
    far = x - x.mean(-1, keepdims=True)
    return far * jax.lax.rsqrt((far * far).mean(-1, keepdims=True) + 1e-5) * scale + bias


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "norm": (norm, [X, ROWS, ROWS]),
    "tanh": (lambda x: jnp.tanh(x).sum(0), [X]),
    "compared": (lambda x, y: jnp.where(x < y, x, 2 * y), [X.astype("i4"), X[::-1].astype("i4")]),
    "product": (lambda a, b: a @ b, [H, H.T.copy()]),
    "product and gelu": (lambda a, b: jax.nn.gelu(a @ b), [H, H.T.copy()]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_the_same(name: str, tmp_path: Path) -> None:
    function, args = CASES[name]
    program = tw.compile(function, *args, options=tw.Options(hivm=True, memory="step"))
    (kernel,) = program.to_hivm().values()
    path = tmp_path / "kernel.hivm.mlir"
    path.write_text(kernel.text)
    imported = tw.compile(str(path), options=tw.Options(memory="step"))
    spare = [np.zeros(shape, args[0].dtype) for shape, _ in imported.inputs[len(args) :]]
    found = [np.asarray(v, "f4") for v in jax.tree.leaves(imported(*args, *spare))]
    want = np.asarray(program(*args), "f4")
    assert any(f.shape == want.shape and np.allclose(f, want, rtol=2e-3, atol=2e-3) for f in found)


def test_accumulating_stores_are_the_same(tmp_path: Path) -> None:
    """What memory holds before is an input of what is imported, too."""
    program = tw.compile(STORED / "atomic.npu.mlir")
    path = tmp_path / "kernel.hivm.mlir"
    path.write_text("// launch: grid=(3,)\n" + exported("atomic"))
    imported = tw.compile(str(path))
    x, y = X.reshape(-1)[:150], X.reshape(-1)[150:210]
    assert [shape for shape, _ in imported.inputs] == [(150,), (60,)]
    want = np.asarray(program(x, y, mode="step"))
    for mode in ("typed", "bytes", "step"):
        np.testing.assert_array_equal(np.asarray(imported(x, y, mode=mode)), want)
    stores = [op for op in imported.module().walk() if isinstance(op, StoreOp)]
    assert {op.accumulates() for op in stores} == {"add"}
