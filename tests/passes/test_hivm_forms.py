"""npu-hivm: what it makes of functions, conversions and shapes has the values that it had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.hivm import export_module
from tilewright.dialects.elementwise import FUNCTIONS
from tilewright.dialects.hivm.counterparts import SUPPORTED
from tilewright.dialects.npu import ElementwiseVectorOp, VectorOp
from tilewright.dialects.npu.scratch import scratch_bytes

HIVM = tw.Options(hivm=True, memory="step")

NEAR = np.concatenate([np.linspace(-9, 9, 150), [1e-3, -1e-3, 1e-7, -1e-7, 1e-20, 0.5, 1.0, -1.0, 2.0]])
AT: dict[str, tuple[Callable[..., Any], Callable[..., Any], np.ndarray]] = {
    "tanh": (jnp.tanh, np.tanh, NEAR),
    "logistic": (jax.nn.sigmoid, lambda x: 1 / (1 + np.exp(-x)), NEAR),
    "erf": (jax.lax.erf, np.vectorize(__import__("math").erf), NEAR),
    "erfc": (jax.lax.erfc, np.vectorize(__import__("math").erfc), NEAR),
    "expm1": (jnp.expm1, np.expm1, NEAR),
    "log1p": (jnp.log1p, np.log1p, np.abs(NEAR)),
    "rsqrt": (jax.lax.rsqrt, lambda x: 1 / np.sqrt(x), np.abs(NEAR) + 1e-3),
    "sin": (jnp.sin, np.sin, 20 * NEAR),
    "cos": (jnp.cos, np.cos, 20 * NEAR),
}


def ulps(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units in the last place of f32."""
    unit = np.spacing(np.maximum(np.abs(exact), np.finfo("f4").tiny).astype("f4")).astype("f8")
    return float(np.max(np.abs(found.astype("f8") - exact) / unit))


@pytest.mark.parametrize("name", AT)
def test_formula_keeps_the_functions_error(name: str) -> None:
    function, exact, at = AT[name]
    x = at.astype("f4")
    program = tw.compile(function, x, options=HIVM)
    used = {op.instruction for op in program.module().walk() if isinstance(op, ElementwiseVectorOp)}
    assert used <= SUPPORTED.keys() | {"convert"}
    want = exact(x.astype("f8"))
    found = np.asarray(program(x))
    if name in ("sin", "cos"):  # near its zeros an angle of several turns has no digits left
        assert np.max(np.abs(found - want)) < 4e-7
    else:
        assert ulps(found, want) <= FUNCTIONS[name].ulps_in("f32") + 0.5


@pytest.mark.parametrize(
    ("function", "at", "want"),
    [
        (jnp.expm1, [np.inf, -np.inf, 0.0], [np.inf, -1.0, 0.0]),
        (jnp.log1p, [np.inf, -1.0, 0.0], [np.inf, -np.inf, 0.0]),
        (jnp.tanh, [np.inf, -np.inf, 0.0], [1.0, -1.0, 0.0]),
        (jnp.sign, [-3.0, 0.0, 0.25], [-1.0, 0.0, 1.0]),
        (lambda x: x ** jnp.float32(3.0), [-2.0, 0.0, 2.0], [-8.0, 0.0, 8.0]),
        (lambda x: jnp.float32(2.0) ** x, [-1.0, 0.0, 3.0], [0.5, 1.0, 8.0]),
        (jnp.isfinite, [np.inf, -np.inf, 0.0], [False, False, True]),
    ],
)
def test_formula_at_its_ends(function: Any, at: list[float], want: list[float]) -> None:
    x = np.asarray(at, "f4")
    found = np.asarray(tw.compile(function, x, options=HIVM)(x))
    assert np.allclose(found.astype("f4"), np.asarray(want, "f4"), rtol=1e-6, atol=0)


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "mask in and out": (lambda m, x: (jnp.where(m, x, 0), x > 1), [np.arange(70).reshape(7, 10) % 3 == 0, "f4"]),
    "integers compared": (lambda x, y: (x < y, x >= y), ["i4", "i4"]),
    "truths combined": (lambda x, y: (x > 0) == (y > 0), ["f4", "f4"]),
    "bytes added": (lambda x, y: x + y, ["i1", "i1"]),
    "bf16 computed": (lambda x: jnp.exp(x.astype("bfloat16")).astype("float32"), ["f4"]),
    "bytes made": (lambda x: (x * 20).astype("int8"), ["f4"]),
    "all reduced": (lambda x: x.sum(), ["f4"]),
    "both ends reduced": (lambda x: x.reshape(7, 5, 2).sum((0, 2)), ["f4"]),
    "repeated twice": (lambda x: jnp.broadcast_to(x.reshape(7, 1, 10, 1)[:, :, :1], (7, 3, 10, 5)) + 1, ["f4"]),
    "counted": (lambda x: x + jnp.arange(10, dtype="float32"), ["f4"]),
    "transposed": (lambda x: x.reshape(1, 7, 1, 10).transpose(0, 3, 2, 1) * 2, ["f4"]),
    "counted inside": (lambda x: x.reshape(7, 1, 5, 2) + jnp.arange(7.0).reshape(7, 1, 1, 1), ["f4"]),
    "any": (lambda x: (x > 1).any(-1), ["f4"]),
    "taken": (lambda x: x[jnp.array([3, 1, 6])], ["f4"]),
}


def numbers(kind: Any) -> np.ndarray:
    if isinstance(kind, np.ndarray):
        return kind
    drawn = np.random.default_rng(5).standard_normal((7, 10)) * 2
    return drawn.astype(kind)


@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str) -> None:
    function, kinds = CASES[name]
    args = [numbers(k) for k in kinds]
    program = tw.compile(function, *args, options=HIVM)
    for found, want in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(function(*args)), strict=True):
        assert np.allclose(np.asarray(found, "f4"), np.asarray(want, "f4"), rtol=1e-5, atol=1e-6)
    assert not export_module(program.module()).refused


def test_product_takes_the_macros_parts() -> None:
    """32 of the summed dimension at once become as many as the macro takes."""
    a, b = np.ones((128, 256), "f2"), np.ones((256, 256), "f2")
    pins = tw.Schedule(base_k=32)
    program = tw.compile(lambda a, b: a @ b, a, b, options=tw.Options(hivm=True, schedule=pins))
    steps = {op.a.type.shape[1] for op in program.module().walk() if op.name == "npu.mmad"}
    (kernel,) = program.to_hivm().values()
    assert steps == {128} and kernel.notes == ()
    assert np.array_equal(np.asarray(program(a, b), "f4"), np.full((128, 256), 256.0, "f4"))


def test_scratch_is_reserved_once() -> None:
    program = tw.compile(jax.nn.softmax, np.ones((16, 600), "f4"), options=HIVM)
    needed = max(scratch_bytes(op) for op in program.module().walk() if isinstance(op, VectorOp))
    allocs = [op for op in program.module().walk() if op.name == "npu.alloc" and op.scratch is not None]
    assert [a.result.type.shape for a in allocs] == [(needed,)]


def test_kernel_without_room_says_so() -> None:
    """Temporaries of a formula do not fit beside tiles that fill ub: the kernel stays, and is refused."""
    x = np.ones((48 * 24000,), "f4")
    program = tw.compile(lambda x: jax.lax.erfc(jax.lax.erfc(x)), x, options=tw.Options(hivm=True))
    refused = export_module(program.module()).refused
    for why in refused.values():
        assert "has no room for what HIVM's instructions work in" in why


@pytest.mark.parametrize("name", ["ascend-910b3", "ascend-910b4"])
def test_other_chips_of_the_family(name: str) -> None:
    program = tw.compile(jnp.exp, np.ones((8, 8), "f4"), target=name, options=HIVM)
    (kernel,) = program.to_hivm().values()
    assert kernel.target == {"ascend-910b3": "Ascend910B3", "ascend-910b4": "Ascend910B4"}[name]
