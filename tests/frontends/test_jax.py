"""JAX functions through the frontend, with the graph level's values against XLA's."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_reference import run
from jax import lax
from jax.experimental import io_callback
from tiering import sampled
from xdsl.dialects.builtin import FileLineColLoc
from xdsl.parser import Parser

from tilewright.dialects import make_context
from tilewright.dialects.graph import GraphOp, HostOp, WhileOp
from tilewright.frontends import FrontendError, Lowered, lower_function

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((4, 8)), jnp.float32)
WEIGHTS = jnp.asarray(RNG.standard_normal((8, 24)), jnp.float32)
IMAGE = jnp.asarray(RNG.standard_normal((2, 6, 6, 3)), jnp.float32)
FILTER = jnp.asarray(RNG.standard_normal((3, 3, 3, 4)), jnp.float32)


def names(lowered: Lowered) -> Counter[str]:
    """How often each op occurs, host calls under the name of what they run."""
    ops = [op for op in lowered.module.walk() if isinstance(op, GraphOp)]
    return Counter(f"host {op.op.data}" if isinstance(op, HostOp) else op.name for op in ops)


def lower(fn: Callable[..., Any], *args: Any) -> Lowered:
    """Lower, verify, and check that the module survives a trip through its text."""
    lowered = lower_function(fn, args)
    lowered.module.verify()
    text = str(lowered.module)
    again = Parser(make_context(), text).parse_module()
    again.verify()
    assert str(again) == text
    return lowered


def check(fn: Callable[..., Any], *args: Any) -> Counter[str]:
    lowered = lower(fn, *args)
    expected = jax.tree.leaves(jax.jit(fn)(*args))
    for want, got in zip(expected, run(lowered.module, jax.tree.leaves(args)), strict=True):
        assert got.dtype == want.dtype
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        tolerance = 2e-5 if want.dtype.itemsize > 2 else 1e-2
        np.testing.assert_allclose(got.astype(wide), np.asarray(want).astype(wide), tolerance, tolerance)
    return names(lowered)


def max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def conv(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


ON_DEVICE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: jax.nn.softmax(x @ WEIGHTS), (X,)),
    "gelu": (lambda x: (jax.nn.gelu(x), jax.nn.gelu(x, approximate=False)), (X,)),
    "logic": (
        lambda x: ((x > 0) & ~(x > 1) | (x < -1)).sum(1) + jnp.any(x > 0, 1) * jnp.all(x > -2, 1),
        (X,),
    ),
    "bf16": (lambda x: x.astype(jnp.bfloat16) @ WEIGHTS.astype(jnp.bfloat16), (X,)),
    "i8": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (X.astype(jnp.int8), X.T.astype(jnp.int8)),
    ),
    "mixed dot": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.float32),
        (X.astype(jnp.bfloat16), X.T),
    ),
    "shapes": (lambda x: jnp.concatenate([x[::-1, 1:7:2], jnp.pad(x.T, ((1, 0), (0, 2)))[:4, :3]], 1), (X,)),
    "take": (lambda x, i: x[i] + jnp.take_along_axis(x, i[:, None] % 8, 1), (X, jnp.array([3, -1, 0, 9]))),
    "dynamic": (
        lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i, i), (2, 3)), (0, i)),
        (X, 3),
    ),
    "vmap": (jax.vmap(lambda a, i: lax.dynamic_slice(a, (i,), (3,)).sum()), (X, jnp.array([1, 2, 3, 9]))),
    "conv": (conv, (IMAGE, FILTER)),
    "conv gradient": (jax.grad(lambda w, x: jnp.sum(conv(x, w) ** 2)), (FILTER, IMAGE)),
    "pools": (
        lambda x: (max_pool(x), lax.reduce_window(x, 1.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")),
        (IMAGE,),
    ),
    "dilated pool": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), ((0, 1), (1, 0)), base_dilation=(2, 3)),
        (X,),
    ),
    "cumulative": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x)), (X,)),
    "arg": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x > 0, 1)), (X,)),
    "arg of NaN": (lambda x: jnp.argmax(jnp.where(x > 1, jnp.nan, x), 1), (X,)),
    "scan": (lambda x: lax.scan(lambda c, t: (c + t, c * t), x[0], x), (X,)),
    "while": (lambda x: lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c + 1, x), (X,)),
    "branches": (
        lambda x, i: (
            lax.cond(i > 1, jnp.sin, jnp.cos, x),
            lax.switch(i, [jnp.exp, jnp.abs, lambda v: x + v], x),
        ),
        (X, 7),
    ),
    "uint8": (lambda x: jnp.abs(x).astype(jnp.uint8).astype(jnp.float32), (X,)),
}
HOST: dict[str, tuple[Callable[..., Any], tuple[Any, ...], set[str]]] = {
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), (X,), {"stablehlo.fft"}),
}


@sampled(3)
@pytest.mark.parametrize("name", ON_DEVICE)
def test_values_on_the_device(name: str):
    fn, args = ON_DEVICE[name]
    found = check(fn, *jax.tree.map(jnp.asarray, args))
    assert not [op for op in found if op.startswith("host")], found


@pytest.mark.parametrize("name", HOST)
def test_values_from_the_host(name: str):
    fn, args, expected = HOST[name]
    found = check(fn, *jax.tree.map(jnp.asarray, args))
    assert {op.removeprefix("host ") for op in found if op.startswith("host")} == expected


def test_trees_and_types():
    def fn(d: dict[str, Any], unused: jax.Array) -> dict[str, Any]:
        return {"sum": d["x"] + d["y"][0], "pair": (d["y"][1],)}

    half = jax.ShapeDtypeStruct((4, 8), jnp.float16)
    lowered = lower(fn, {"x": half, "y": [half, jax.ShapeDtypeStruct((), jnp.int32)]}, half)
    assert [(a.shape, a.dtype.name) for a in lowered.in_avals] == [
        ((4, 8), "float16"),
        ((4, 8), "float16"),
        ((), "int32"),
        ((4, 8), "float16"),
    ]
    assert [(a.shape, a.dtype.name) for a in lowered.out_avals] == [((), "int32"), ((4, 8), "float16")]
    assert jax.tree.unflatten(lowered.in_tree, range(4)) == (({"x": 0, "y": [1, 2]}, 3), {})
    assert jax.tree.unflatten(lowered.out_tree, "ab") == {"pair": ("a",), "sum": "b"}
    assert "%d_x: tensor<4x8xf16>" in str(lowered.module)


def test_counted_loops():
    def fn(x: jax.Array) -> Any:
        return lax.fori_loop(2, 7, lambda i, c: c + i * x, x), lax.scan(lambda c, t: (c + t, t), x[0], x)

    lowered = lower(fn, X)
    loops = [op for op in lowered.module.walk() if isinstance(op, WhileOp)]
    assert [loop.trip_count.value.data for loop in loops if loop.trip_count] == [5, 4]
    for loop in loops:
        assert loop.counter is not None
        assert str(loop.inits[loop.counter.value.data].type) == "tensor<i32>"
    run(lowered.module, [X])  # asserts that each loop runs trip_count times


def test_uncounted_loops_have_no_trip_count():
    def by_value(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 2, c[1] + 1), (0, x))[1]

    def to_argument(n: jax.Array, x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, n, lambda i, c: c + i, x)

    for lowered in (lower(by_value, X), lower(to_argument, jnp.int32(3), X)):
        (loop,) = [op for op in lowered.module.walk() if isinstance(op, WhileOp)]
        assert loop.trip_count is None and loop.counter is None


def test_each_op_has_the_users_line():
    def inner(x: jax.Array) -> jax.Array:
        return jnp.tanh(x)

    def fn(x: jax.Array) -> jax.Array:
        return jax.nn.relu(inner(x))

    tanh_line, relu_line = inner.__code__.co_firstlineno + 1, fn.__code__.co_firstlineno + 1
    places = {}
    for op in lower(fn, X).module.walk():
        if isinstance(op, GraphOp):
            assert isinstance(op.location, FileLineColLoc) and op.location.filename.data == __file__
            places[op.name] = op.location.line.data
    # relu is a jitted function of JAX's own: its ops take the line that calls it.
    assert places == {
        "graph.tanh": tanh_line,
        "graph.constant": relu_line,
        "graph.broadcast": relu_line,
        "graph.max": relu_line,
    }


def test_a_loop_has_its_own_line_and_its_body_has_others():
    def body(c: jax.Array) -> jax.Array:
        return jnp.tanh(c)

    def fn(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda c: jnp.sum(c) > 3, body, x)

    lines = {
        op.name: op.location.line.data
        for op in lower(fn, X).module.walk()
        if isinstance(op.location, FileLineColLoc)
    }
    assert lines["graph.tanh"] == body.__code__.co_firstlineno + 1
    assert lines["graph.while"] == fn.__code__.co_firstlineno + 1


def test_closed_over_arrays_are_constants():
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16, jnp.int8, jnp.bool, jnp.float8_e4m3fn, jnp.int4):
        weights = jnp.asarray(RNG.standard_normal((20, 30)) * 3, dtype)
        (got,) = run(lower(lambda w=weights: w).module, [])
        np.testing.assert_array_equal(got.view(np.uint8), np.asarray(weights).view(np.uint8))


def test_equal_host_calls_have_equal_text():
    lowered = lower(lambda x: jnp.linalg.cholesky(jnp.linalg.cholesky(x) + 1), jnp.eye(3))
    texts = {op.module.data for op in lowered.module.walk() if isinstance(op, HostOp)}
    assert len(texts) == 1


def test_effects_without_results_vanish():
    def fn(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x[0, 0])
        return x + 1

    assert "graph.host" not in names(lower(fn, X))


@pytest.mark.parametrize("nested", [False, True])
def test_an_effect_without_results_that_is_none_of_debugging_is_refused(nested: bool):
    def fn(x: jax.Array) -> jax.Array:
        io_callback(print, None, x)
        jax.debug.print("{}", x[0, 0])
        return x + 1

    def loop(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, c: jax.jit(fn)(c), x)

    with pytest.raises(FrontendError, match=rf"{Path(__file__).name}:\d+\) has effects in Python"):
        lower_function(loop if nested else fn, [X])


def test_ordered_effects_are_refused_with_the_line():
    def fn(x: jax.Array) -> jax.Array:
        return io_callback(np.sin, x, x)

    with pytest.raises(FrontendError, match=rf"{Path(__file__).name}:\d+\) has effects in Python"):
        lower_function(fn, [X])


def test_import_loads_no_jax():
    code = "import sys, tilewright.frontends; assert not {'jax', 'jaxlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
