"""What each kind of op is in ONNX: the nodes that a reader expects, and values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from onnx_out import check, of_function, ops_of

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def whole(high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(dtype)


def counts(*args: Any, **options: Any) -> dict[str, int]:
    """The ops of a function that `check` takes, and how many of each."""
    return dict(Counter(ops_of(check(*args, **options))))


def test_a_layer_has_nothing_but_its_ops() -> None:
    """What is repeated is one element: no Expand."""
    made = counts(lambda x, w, b: jax.nn.relu(x @ w + b), normal(3, 5), normal(5, 7), normal(7))
    assert made == {"MatMul": 1, "Add": 1, "Max": 1}


@pytest.mark.parametrize(
    ("equation", "shapes", "nodes"),
    [
        ("k,k->", [(5,), (5,)], {"MatMul"}),
        ("mk,k->m", [(3, 5), (5,)], {"MatMul"}),
        ("bsk,kn->bsn", [(2, 3, 5), (5, 7)], {"MatMul"}),
        ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 7, 4, 5)], {"Transpose", "MatMul"}),
        ("bqhd,hdo->bqo", [(2, 3, 4, 5), (4, 5, 7)], {"Transpose", "Reshape", "MatMul"}),
        ("m,n->mn", [(3,), (5,)], {"Reshape", "MatMul"}),
        ("bk,bk->b", [(3, 5), (3, 5)], {"Reshape", "MatMul"}),
        ("mk,kn->mn", [(3, 0), (0, 5)], {"Expand"}),
        ("mk,kn->mn", [(0, 3), (3, 5)], set()),
        ("mk,kn->mn", [(1, 1), (1, 1)], {"MatMul"}),
    ],
)
def test_products(equation: str, shapes: list[tuple[int, ...]], nodes: set[str]) -> None:
    assert set(counts(lambda a, b: jnp.einsum(equation, a, b), *(normal(*s) for s in shapes))) <= nodes | {"Identity"}


def test_a_product_of_turned_matrices_is_a_gemm() -> None:
    def fn(a: Any, b: Any) -> Any:
        return lax.dot_general(a, b, (((0,), (1,)), ((), ())))

    assert counts(fn, normal(5, 3), normal(7, 5)) == {"Gemm": 1}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int32, np.uint8])
def test_products_of_other_types(dtype: Any) -> None:
    a, b = (whole(5, *s).astype(dtype) for s in ((3, 5), (5, 7)))
    check(lambda a, b: a @ b, a, b)
    if np.dtype(dtype).kind not in "iu":
        check(lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32), a, b)


def test_products_of_bytes() -> None:
    a, b = whole(99, 3, 5, dtype=np.int8), whole(99, 5, 7, dtype=np.int8)
    assert counts(lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32), a, b) == {"MatMulInteger": 1}


def conv(x: Any, k: Any, layout: tuple[str, str, str], **options: Any) -> Any:
    steps = options.pop("strides"), options.pop("padding")
    return lax.conv_general_dilated(x, k, *steps, dimension_numbers=layout, **options)


NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def test_a_convolution_is_a_conv() -> None:
    made = counts(lambda x, k: conv(x, k, NCHW, strides=(1, 1), padding="SAME"), normal(2, 3, 7, 5), normal(4, 3, 3, 3))
    assert made == {"Conv": 1}


@pytest.mark.parametrize(
    "options",
    [
        {"strides": (2, 1), "padding": ((1, 2), (0, 3))},
        {"strides": (1, 1), "padding": ((-1, 2), (1, -2))},
        {"strides": (1, 3), "padding": "VALID", "rhs_dilation": (2, 1)},
        {"strides": (1, 1), "padding": ((1, 1), (2, 0)), "lhs_dilation": (2, 3)},
        {"strides": (1, 1), "padding": "SAME", "feature_group_count": 3},
    ],
)
def test_convolutions(options: dict[str, Any]) -> None:
    groups = options.get("feature_group_count", 1)
    x, k = normal(2, 7, 5, 3), normal(3, 3, 3 // groups, 6)
    check(lambda x, k: conv(x, k, NHWC, **options), x, k)


def test_a_convolution_of_bytes() -> None:
    x, k = whole(9, 1, 3, 7, 7, dtype=np.int8), whole(9, 2, 3, 3, 3, dtype=np.int8)
    options = {"strides": (1, 1), "padding": "VALID", "preferred_element_type": jnp.int32}
    assert counts(lambda x, k: conv(x, k, NCHW, **options), x, k) == {"ConvInteger": 1}


def test_pools() -> None:
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")

    x = normal(2, 3, 9, 7)
    assert counts(pooled, x) == {"MaxPool": 1}
    assert "MaxPool" in ops_of(check(jax.grad(lambda x: (pooled(x) ** 2).sum()), x, back=False))


@pytest.mark.parametrize("op", [lax.add, lax.mul, lax.min, lax.max])
@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_windows(op: Any, window: int) -> None:
    start = {lax.add: 0.0, lax.mul: 1.0, lax.min: np.inf, lax.max: -np.inf}[op]
    pads = ((0, 0), (3, 2), (0, 1))
    check(lambda x: lax.reduce_window(x, start, op, (1, window, 2), (1, 2, 1), pads, None, (1, 1, 2)), normal(2, 11, 5))


@pytest.mark.parametrize("op", [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin])
def test_running(op: Any) -> None:
    for shape in ((7,), (3, 5), (1, 1)):
        check(lambda x: (op(x, axis=0), op(x, axis=0, reverse=True)), normal(*shape))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint32, np.bool_])
def test_reductions(dtype: Any) -> None:
    x = whole(2 if dtype is np.bool_ else 5, 3, 1, 7).astype(dtype)
    every = [(0,), (0, 2), (), (0, 1, 2)]
    check(lambda x: [f(x, dims) for f in (jnp.sum, jnp.max, jnp.min, jnp.prod) for dims in every], x)
    check(lambda x: (jnp.argmax(x, 2), jnp.argmin(x, 0)), x)
    if np.dtype(dtype).kind in "iub":
        check(lambda x: (lax.reduce_and(x, (2,)), lax.reduce_or(x, (0, 2))), x)


def test_reductions_of_nothing() -> None:
    check(lambda x: (x.sum(0), x.prod(1), jnp.all(x > 0, 0)), np.zeros((0, 3), np.float32))


def test_sorts() -> None:
    x = np.asarray([[3, np.nan, -0.0, 0.0, -np.inf, 2, 3]] * 2, np.float32)
    assert counts(lambda x: jnp.sort(x), normal(3, 7)) == {"TopK": 1}
    assert counts(lambda x: lax.top_k(x, 3)[0], normal(3, 7)) == {"TopK": 1}
    assert counts(lambda x: lax.top_k(x, 3), normal(3, 7)) == {"TopK": 1, "Cast": 1}
    check(lambda x: (jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True), jnp.sort(x, 0)), x)
    check(lambda x, y: lax.sort((x, y, x), num_keys=2), whole(3, 11), normal(11))


def test_data_that_moves() -> None:
    x = normal(3, 5, 7)
    check(lambda x: (x[::2, 1:4, ::-1], jnp.transpose(x, (2, 0, 1)), x.reshape(15, 7), jnp.flip(x, (0, 2))), x)
    check(lambda x: jnp.concatenate([x, x[:, :0], 2 * x], 1), x)
    check(lambda x, v: lax.pad(x, v, ((1, 0, 2), (-1, 3, 1), (0, -2, 0))), x, np.float32(3))
    check(lambda x: (jnp.broadcast_to(x[:, :1], (2, 3, 5, 7)), lax.broadcast_in_dim(x, (7, 3, 5, 2), (1, 2, 0))), x)


def test_what_is_repeated_stays_small() -> None:
    """A mask and a table of 4 million elements are made by nodes, and not in the file."""

    def fn(x: Any) -> Any:
        return jnp.where(jnp.tril(jnp.ones((2048, 2048), bool)), x, -1e9) + jnp.arange(2048.0)

    model = of_function(fn, normal(2048, 2048))
    assert len(model.SerializeToString()) < 10_000
    assert "Expand" not in ops_of(model)


GATHERS = [
    lambda x, i: x[i],
    lambda x, i: x[:, i],
    lambda x, i: x[i, i[::-1]],
    lambda x, i: x[i, :, i],
    lambda x, i: jnp.take(x, i, axis=2, mode="clip"),
    lambda x, i: jnp.take_along_axis(x, i[:3, None, None], 1),
    lambda x, i: jax.vmap(lambda row, at: lax.dynamic_slice(row, (at, 0), (2, 3)))(x, i[:3]),
    lambda x, i: jax.vmap(lambda at: lax.dynamic_slice(x, (at, at, 0), (2, 2, 7)))(i),
    lambda x, i: lax.dynamic_slice(x, (i[0], 9, i[1]), (1, 5, 3)),
]


@pytest.mark.parametrize("number", range(len(GATHERS)))
def test_gathers(number: int) -> None:
    check(GATHERS[number], normal(3, 5, 7), np.asarray([2, -1, 0, 11, -20], np.int32))


WRITES = [
    lambda x, i, u: x.at[i].set(u[:3]),
    lambda x, i, u: x.at[i].add(u[:3]),
    lambda x, i, u: x.at[:, i].max(u[:5, :3]),
    lambda x, i, u: x.at[i, i].multiply(2.0),
    lambda x, i, u: lax.dynamic_update_slice(x, u[:2], (i[0], 0)),
    lambda x, i, u: lax.dynamic_update_slice(x, u[:2, :2], (i[1], i[2])),
    lambda x, i, u: x.at[i, ::2].set(0.0),
]


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writes(number: int) -> None:
    """Of places outside, the ones that wrap, and equal ones."""
    check(WRITES[number], normal(5, 7), np.asarray([4, -1, 9], np.int32), normal(7, 7))


def test_control_flow() -> None:
    x = normal(3, 5)
    assert counts(lambda x: lax.fori_loop(0, 5, lambda i, a: a * 1.5 + i, x), x) == {"Loop": 1}
    check(lambda x: lax.while_loop(lambda a: a.sum() < 99, lambda a: a * a + 1, x), x)
    check(lambda x: lax.scan(lambda c, row: (c + row, jnp.sin(c)), x[0], x), x)
    check(lambda x: lax.fori_loop(0, 3, lambda i, a: lax.cond(i > 1, lambda: a + x, lambda: a - 1), x), x)
    for i in (-1, 0, 1, 2, 3):
        check(lambda i, x: lax.switch(i, [jnp.sin, lambda x: x, lambda x: x * 2], x), np.int32(i), x)


def test_a_function_that_is_called_twice_is_one_of_the_model() -> None:
    @jax.jit
    def layer(x: Any, w: Any) -> Any:
        for _ in range(20):
            x = jnp.tanh(x @ w) + jnp.where(x > 0, x, x * 0.5)
        return x

    model = check(lambda x, w: layer(layer(x, w), w) @ w, normal(3, 5), normal(5, 5) / 5)
    assert [f.name for f in model.functions] == ["layer"]
    assert ops_of(model) == ["layer", "layer", "MatMul"]


def test_random_numbers() -> None:
    check(lambda key: jax.random.normal(jax.random.wrap_key_data(key), (3, 5)), np.asarray([1, 2], np.uint32))
