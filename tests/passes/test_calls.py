"""Calls stay calls: functions are lowered once, have frames of their own, and give what inlined code gives."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import data
from jax import lax
from tiering import sampled
from xdsl.dialects.func import FuncOp

import tilewright as tw
from tilewright.dialects.base import source_of, to_ints
from tilewright.frontends.calls import SMALL


def norm(x: Any, gain: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * gain


@jax.jit
def layer(x: Any, gain: Any, shift: Any) -> Any:
    h = norm(jnp.where(norm(x, gain) > shift, x * jnp.tanh(x), jnp.sin(x) - x), gain)
    weights = jax.nn.softmax(h + jnp.cos(h * shift))
    return h + norm(jax.nn.gelu(weights), gain) * shift, weights


WEIGHTS = [data("f32", (16,), 1), data("f32", (16,), 2)]


def network(x: Any, *weights: Any) -> Any:
    total = 0.0
    for i in range(3):
        x, attention = layer(x * (i + 1.0), *weights)
        total += attention.sum()
    return x, total


def looped(x: Any, *weights: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, x: layer(layer(x, *weights)[0], *weights)[0] + i, x)


def with_host(x: Any, *weights: Any) -> Any:
    @jax.jit
    def sorted_layer(x: Any) -> Any:
        return jnp.sort(layer.__wrapped__(x, *weights)[0], axis=0)

    return lax.fori_loop(0, 1, lambda i, x: sorted_layer(sorted_layer(x)), x)


def nested(x: Any, *weights: Any) -> Any:
    @jax.jit
    def block(x: Any) -> Any:
        for _ in range(SMALL):  # larger than what is inlined
            x = jnp.sin(x) * 1.5
        return layer(layer(x, *weights)[0], *weights)[0]

    return block(block(x)) + block(x)


def branching(x: Any, *weights: Any) -> Any:
    """What a switch gives is the result of the function, and of that alone."""

    @jax.jit
    def chosen(x: Any) -> Any:
        return lax.switch(jnp.int32(7), [lambda x: x * 0.0, lambda x: layer(x, *weights)[0], jnp.cos], x)

    return chosen(chosen(x) * 2.0)


def functions(program: tw.Program) -> list[FuncOp]:
    return [op for op in program.module().ops if isinstance(op, FuncOp)]


@sampled(6)
@pytest.mark.parametrize("fn", [network, looped, with_host, nested, branching])
def test_every_level_agrees(fn: Any) -> None:
    x = data("f32", (5, 16))
    program = tw.compile(fn, x, *WEIGHTS)
    assert len(functions(program)) > 1
    result = tw.verify(fn, x, *WEIGHTS, program=program, quick=fn is not looped)
    assert result.ok, result
    want = jax.tree.leaves(jax.jit(fn)(x, *WEIGHTS))
    for memory in ("typed", "bytes"):
        for _ in range(2):
            got = program.executable(memory)(x, *WEIGHTS)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_a_layer_is_lowered_once() -> None:
    program = tw.compile(network, data("f32", (5, 16)), *WEIGHTS)
    main, callee = functions(program)
    assert [op.name for op in main.walk()].count("npu.call") == 3
    launches = {kernel.name: kernel.launches for kernel in program.report().kernels}
    inside = {str(op.properties["callee"]) for op in callee.walk() if op.name == "npu.launch"}
    assert all(launches[name.removeprefix("@")] == 3 for name in inside)
    assert source_of(main.body.block.first_op or main)
    for op in callee.walk():
        if op.name == "npu.launch":
            assert re.search(r"test_calls\.py:\d+", source_of(op) or "")


def test_frames_of_callees_lie_behind_those_of_callers() -> None:
    program = tw.compile(nested, data("f32", (5, 16)), *WEIGHTS)
    frames = {f.sym_name.data: to_ints(f.attributes["npu.frame"]) for f in functions(program)[1:]}
    (outer,) = (name for name in frames if "block" in name)
    (inner,) = (name for name in frames if "layer" in name)
    assert frames[outer][0] < frames[outer][1] <= frames[inner][0]


def test_small_helpers_are_part_of_the_kernels_around_them() -> None:
    def fn(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jax.nn.silu(jax.nn.softmax(jax.nn.relu(x @ w)))
        return x

    program = tw.compile(fn, data("f32", (8, 16)), data("f32", (16, 16)))
    assert len(functions(program)) == 1
    assert len(program.report().kernels) <= 2


# -- many calls --------------------------------------------------------------------------------------------


def bomb(depth: int) -> str:
    """f_k calls f_(k-1) twice."""
    t = "tensor<8xf32>"
    text = [
        f"func.func private @f0(%a: {t}) -> {t} {{",
        f"%0 = stablehlo.sine %a : {t}",
        f"return %0 : {t}",
        "}",
    ]
    for k in range(1, depth + 1):
        text += [
            f"func.func private @f{k}(%a: {t}) -> {t} {{",
            f"%0 = call @f{k - 1}(%a) : ({t}) -> {t}",
            f"%1 = call @f{k - 1}(%0) : ({t}) -> {t}",
            f"return %1 : {t}",
            "}",
        ]
    text += [f"func.func public @main(%a: {t}) -> {t} {{", f"%0 = call @f{depth}(%a) : ({t}) -> {t}"]
    return "\n".join(["module {", *text, f"return %0 : {t}", "}", "}"])


def test_an_inline_bomb_grows_with_its_depth() -> None:
    """20 levels, a million calls: the program has as many ops as the functions, not as the calls."""
    sizes = {k: sum(1 for _ in tw.compile(bomb(k)).module().walk()) for k in (10, 20, 30)}
    assert sizes[30] - sizes[20] <= 2 * (sizes[20] - sizes[10]) + 4 * SMALL
    assert sizes[30] < 40 * SMALL
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    want = x
    for _ in range(2**9):
        want = np.sin(want)
    program = tw.compile(bomb(9))
    np.testing.assert_allclose(program(x), want, rtol=1e-3)


RECURSIVE = """module {
func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {
%0 = call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>
%1 = stablehlo.sine %0 : tensor<8xf32>
return %1 : tensor<8xf32>
}
func.func private @f(%a: tensor<8xf32>) -> tensor<8xf32> {
%0 = call @g(%a) : (tensor<8xf32>) -> tensor<8xf32>
return %0 : tensor<8xf32>
}
func.func private @g(%a: tensor<8xf32>) -> tensor<8xf32> {
%0 = call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>
%1 = call @f(%0) : (tensor<8xf32>) -> tensor<8xf32>
return %1 : tensor<8xf32>
}
}"""


def test_recursion_is_one_clear_error() -> None:
    with pytest.raises(tw.CompileError, match=r"calls @f from within itself.*write it as a loop"):
        tw.compile(RECURSIVE)
    ours = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = func.call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}"""
    with pytest.raises(tw.CompileError, match=r"'func.call'.* calls @main again.*cannot be compiled"):
        tw.compile(ours)
