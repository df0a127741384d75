"""`tw.jit`: what is compiled when, static arguments, pytrees, methods; and how results show themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def test_one_program_per_shape_and_dtype() -> None:
    @tw.jit
    def double(x: Any) -> Any:
        return x + x

    for value in (X, X + 1, X[:2], X.astype(np.float16), X):
        np.testing.assert_allclose(double(value), value + value)
    assert len(double.programs) == 3
    assert double.program(X).report().microseconds > 0
    assert double.program(jax.ShapeDtypeStruct((3, 4), jnp.float32)) is double.programs[0]
    assert repr(double).startswith("<tilewright.jit ")
    assert repr(double).endswith("double for ascend-910b1: 3 programs>")
    assert double.__name__ == "double"


def test_scalars_stay_weak_and_keys_are_arrays() -> None:
    @tw.jit
    def scaled(x: Any, s: Any) -> Any:
        return x * s

    half = X.astype(np.float16)
    assert scaled(half, 2.0).dtype == np.float16
    assert scaled(half, np.float32(2)).dtype == np.float32
    assert len(scaled.programs) == 2
    key = jax.random.key(3)
    np.testing.assert_array_equal(
        tw.jit(lambda k: jax.random.bits(k, (4,)))(key), np.asarray(jax.random.bits(key, (4,)))
    )


def test_pytrees() -> None:
    @tw.jit
    def split(p: dict[str, Any]) -> dict[str, Any]:
        return {"sum": p["a"] + p["b"], "parts": [p["a"] * 2, p["b"] * 3]}

    found = split({"a": X, "b": X})
    np.testing.assert_allclose(found["parts"][1], 3 * X, rtol=1e-6)
    assert len(split.programs) == 1


def test_static_arguments_and_keywords() -> None:
    calls: list[Any] = []

    @tw.jit(static_argnames=("power", "mode"), target="ascend-310")
    def f(x: Any, power: int, y: Any = None, *, mode: str = "plus", scale: Any = 1.0) -> Any:
        calls.append((power, mode))
        x = x**power
        if y is not None:
            x = x + y if mode == "plus" else x - y
        return x * scale

    np.testing.assert_allclose(f(X, 2), X**2, rtol=1e-3)
    np.testing.assert_allclose(f(X, power=3), X**3, rtol=1e-3)
    np.testing.assert_allclose(f(X, 2, X, mode="minus"), X**2 - X, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(f(X, 2, y=X, scale=X, mode="minus"), (X**2 - X) * X, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(f(X, 2), X**2, rtol=1e-3)
    assert len(f.programs) == 4
    assert set(calls) == {(2, "plus"), (3, "plus"), (2, "minus")}
    assert f.programs[0].target == "ascend-310"


def test_equal_static_values_of_other_types_differ() -> None:
    @partial(tw.jit, static_argnums=1)
    def f(x: Any, n: Any) -> Any:
        return x * (2 if n is True else 3)

    np.testing.assert_allclose(f(X, 1), 3 * X, rtol=1e-6)
    np.testing.assert_allclose(f(X, True), 2 * X, rtol=1e-6)


def test_methods() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @tw.jit
        def __call__(self, x: Any) -> Any:
            return x * self.scale

        @tw.jit(static_argnums=-1)
        def power(self, x: Any, n: int) -> Any:
            return x**n

    two, three = Model(2.0), Model(3.0)
    np.testing.assert_allclose(two(X), 2 * X, rtol=1e-6)
    np.testing.assert_allclose(three(X), 3 * X, rtol=1e-6)
    np.testing.assert_allclose(two.power(X, 2), X**2, rtol=1e-5)
    assert len(Model.__call__.programs) == 2
    assert two.power.program(X, 2) is Model.power.programs[0]


def test_an_object_that_is_a_pytree_is_an_argument() -> None:
    @partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=[])
    @dataclass
    class Layer:
        w: Any

        @tw.jit
        def forward(self, x: Any) -> Any:
            return x @ self.w

    one, other = Layer(np.eye(4, dtype=np.float32)), Layer(2 * np.eye(4, dtype=np.float32))
    np.testing.assert_allclose(one.forward(X), X, rtol=1e-6)
    np.testing.assert_allclose(other.forward(X), 2 * X, rtol=1e-6)
    assert len(Layer.forward.programs) == 1


def test_what_cannot_be_compiled() -> None:
    def f(x: Any, n: Any) -> Any:
        return x

    with pytest.raises(tw.CompileError, match="f has no argument 'm' to be static; it has x, n"):
        tw.jit(f, static_argnames="m")
    with pytest.raises(tw.CompileError, match="f has no argument 2 to be static; it has 2"):
        tw.jit(f, static_argnums=2)
    with pytest.raises(tw.CompileError, match="argument n of f is static and must be hashable, got list"):
        tw.jit(f, static_argnums=1)(X, [1])
    with pytest.raises(
        tw.CompileError, match=r"argument n of f is a str: give an array, .*, or name it in static_argnames"
    ):
        tw.jit(f)(X, "mode")


# -- how results show themselves -----------------------------------------------------------------------------


class Balance(HTMLParser):
    """Fails where a tag is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def layer(x: Any, w: Any) -> Any:
    return jax.nn.relu(x @ w)


def test_notebooks_show_programs_reports_and_verifications() -> None:
    w = np.ones((4, 5), np.float32)
    program = tw.compile(layer, X, w)
    assert repr(program) == "<tilewright.Program layer: 1 kernel for ascend-910b1>"
    shown = Balance(program._repr_html_()).words
    assert any("tile.kernel" in word for word in shown)
    assert "inputs: x f32[3, 4], w f32[4, 5]" in shown
    report = program.report()
    words = Balance(report._repr_html_()).words
    assert {str(report), "contract_0", report.kernels[0].bound} <= set(words)
    check = tw.verify(layer, X, w, program=program)
    assert re.fullmatch(
        r"<Verification ok against JAX: graph .*, tile .*, npu typed .*, npu bytes .*>", repr(check)
    )
    assert sum(word == "ok" for word in Balance(check._repr_html_()).words) == len(check.checks)


def test_a_report_with_host_calls_shows_them() -> None:
    report = tw.compile(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3)) + 1.0, X).report()
    assert report.host_ops
    words = Balance(report._repr_html_()).words
    assert any(op.name in words for op in report.host_ops)
