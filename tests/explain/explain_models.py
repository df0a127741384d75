"""Programs whose pages the tests look at: shared kernels, a loop with a host call, hand-written levels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from loading import example_module

import tilewright as tw
from tilewright.explain import page_data


def layers(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """Three layers, of which two share a kernel and the last one's kernel has a softmax, too."""
    for _ in range(3):
        x = jax.nn.relu(x @ w + b)
    return jax.nn.softmax(x)


def loop(x: jax.Array) -> jax.Array:
    """A loop with a test on the host and an op that has no kernel."""
    x = jax.lax.while_loop(lambda v: jnp.sum(v) < 100.0, lambda v: v * 1.5 + 1.0, x)
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0], dtype=x.dtype))


def big(x: jax.Array, w: jax.Array) -> jax.Array:
    """A product that re-reads its right side."""
    return x @ w


def arrays(*shapes: tuple[int, ...], dtype: Any = jnp.float16) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(s, dtype) for s in shapes]


def scan(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Six steps with a state."""

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        state = jnp.tanh(state @ w)
        return state, state

    return jax.lax.scan(step, x, None, length=6)


@jax.jit
def block(x: jax.Array, w: jax.Array) -> jax.Array:
    """Too much to be written out at each call."""
    for _ in range(3):
        x = jax.nn.softmax(jnp.sin(x @ w).sum(axis=1, keepdims=True) + x @ w)
    return x


def nested(x: jax.Array, w: jax.Array) -> jax.Array:
    """A loop in a loop, both of which call one function: 2 x 3 passes."""

    def inner(_: int, x: jax.Array) -> jax.Array:
        return block(x, w)

    def outer(_: int, x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, inner, x)

    return block(jax.lax.fori_loop(0, 2, outer, x), w)


def split(x: jax.Array, w: jax.Array) -> jax.Array:
    """A long sum, which is made in parts that another kernel adds up."""
    return jax.nn.relu(x @ w)


def placed(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    """A concatenation, each part of which has a kernel that places it or is made in its place."""
    return jnp.concatenate([jnp.exp(x), jnp.tanh(y) * 2.0, x @ w], axis=1)


def shifted(x: jax.Array, y: jax.Array) -> jax.Array:
    """The first argument may be overwritten (see OPTIONS)."""
    return x * 2.0 + y


lstm, gpt2, digits = map(example_module, ("lstm", "gpt2", "digits_cnn"))


CASES: dict[str, tuple[Any, list[Any], str]] = {
    "layers": (layers, arrays((300, 256), (256, 256), (256,)), "ascend-910b1"),
    "fused": (layers, arrays((300, 256), (256, 256), (256,)), "ascend-310"),
    "loop": (loop, arrays((24, 24), dtype=jnp.float32), "ascend-910b1"),
    "big": (big, arrays((1024, 512), (512, 2048)), "ascend-910b1"),
    "scan": (scan, arrays((32, 64), (64, 64)), "ascend-910b1"),
    "nested": (nested, arrays((64, 64), (64, 64)), "ascend-910b1"),
    "split": (split, arrays((64, 8192), (8192, 64)), "ascend-910b1"),
    "placed": (placed, arrays((128, 256), (128, 512), (256, 256)), "ascend-910b1"),
    "donated": (shifted, arrays((256, 256), (256, 256)), "ascend-910b1"),
}
EXAMPLES: dict[str, tuple[Any, Callable[[], Any], str]] = {
    "lstm": (lstm.forward, lstm.forward_inputs, "ascend-910b1"),
    "tiny": (gpt2.tiny, gpt2.tiny_inputs, "ascend-910b1"),
    "digits": (digits.forward, digits.forward_inputs, "ascend-910b1"),
}
OPTIONS = {"donated": tw.Options(donate=(0,))}


def case(name: str) -> tuple[Any, list[Any], str]:
    """A function, its arguments and the target. Digits may have to be trained for it, so not before it is asked for."""
    if name in CASES:
        return CASES[name]
    fn, inputs, target = EXAMPLES[name]
    return fn, [*jax.eval_shape(inputs)], target


@cache
def program(name: str) -> tw.Program:
    fn, args, target = case(name)
    return tw.compile(fn, *args, target=target, options=OPTIONS.get(name))


@cache
def data(name: str) -> dict[str, Any]:
    return page_data(program(name))


@cache
def model() -> tw.Program:
    """The file net.onnx, one of whose nodes has no name."""
    from onnx import TensorProto, helper, save

    names = [("Exp", "/a/Exp"), ("Tanh", ""), ("Softmax", "/b/Softmax")]
    nodes = [
        helper.make_node(op, [f"x{i}"], [f"x{i + 1}"], name=name) for i, (op, name) in enumerate(names)
    ]
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [64, 64]) for i in (0, 3)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        save(helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:]), ir_version=10), path)
        found = tw.compile(path)
    assert isinstance(found, tw.Program)
    return found
