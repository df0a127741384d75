"""Arguments by keyword, their names in messages, and functions of every make: as jax.jit takes them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilewright as tw

X = np.linspace(0.1, 1, 12, dtype=np.float32).reshape(3, 4)


def affine(x: Any, scale: Any = 1.0, *, bias: Any = 0.0) -> Any:
    return x * scale + bias


def nested(x: Any, d: Any, *, k: Any) -> Any:
    return x + d["a"]["w"] * k["s"][1]


def with_target(x: Any, target: Any = 2.0, quick: Any = 1.0) -> Any:
    return x * target + quick


# -- by keyword ----------------------------------------------------------------------------------------------


def test_each_argument_goes_by_position_or_by_keyword() -> None:
    program = tw.compile(affine, X, bias=1.0, scale=2.0)
    want = np.asarray(affine(X, 3.0, bias=2.0))
    for got in (
        program(X, scale=3.0, bias=2.0),
        program(X, bias=2.0, scale=3.0),
        program(X, 3.0, bias=2.0),
        program(bias=2.0, x=X, scale=3.0),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(tw.compile(affine, X, 2.0)(scale=3.0, x=X), 3 * X, rtol=1e-6)
    assert tw.verify(affine, X, bias=1.0, scale=2.0).ok
    assert tw.verify(affine, x=X, scale=2.0, program=tw.compile(affine, x=X, scale=2.0)).ok


def test_keywords_are_pytrees() -> None:
    d, k = {"a": {"w": X}}, {"s": [1.0, X]}
    program = tw.compile(nested, X, k=k, d=d)
    np.testing.assert_allclose(program(X, d, k=k), nested(X, d, k=k), rtol=1e-6)
    assert program.input_names == ("x", "d['a']['w']", "k['s'][0]", "k['s'][1]")
    run = tw.jit(nested)
    np.testing.assert_allclose(run(X, k=k, d=d), nested(X, d, k=k), rtol=1e-6)
    np.testing.assert_allclose(run(d=d, x=X, k=k), nested(X, d, k=k), rtol=1e-6)
    assert tw.verify(nested, X, k=k, d=d).ok


def wrong(*args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: tw.compile(affine, X, bias=1.0, scale=2.0)(*args, **kwargs)


MISTAKES: dict[str, Callable[[], Any]] = {
    "affine takes 3 arguments, called with 2: argument bias is missing": wrong(X, scale=1.0),
    "affine takes 3 arguments, called with 1: bias, scale are missing": wrong(X),
    "affine takes 3 arguments, called with 4": wrong(X, 1.0, 2.0, 3.0),
    "argument scale of affine is given by position and by keyword": wrong(X, 1.0, scale=1.0, bias=1.0),
    "affine has no argument 'biass'; did you mean 'bias'?": wrong(X, 1.0, biass=1.0),
    "affine has no argument 'q'; it takes x, bias, scale": wrong(X, 1.0, q=1.0),
    "argument scale of affine was left at its default when it was compiled: compile it with a scale": lambda: (
        tw.compile(affine, X)(X, scale=2.0)
    ),
    "argument bias of affine was left at its default when": lambda: tw.compile(affine, X)(X, bias=2.0),
    "affine cannot be called with these arguments: missing a required argument: 'x'": lambda: tw.compile(
        affine
    ),
    "got an unexpected keyword argument 'scael'; did you mean 'scale'?": lambda: tw.compile(
        affine, X, scael=2.0
    ),
    "affine cannot be called with these arguments: multiple values for argument 'x'": lambda: tw.jit(affine)(
        X, x=X
    ),
    "affine cannot be called with these arguments: too many positional": lambda: tw.verify(affine, X, X, X),
    "argument x of <lambda> can only be given by position": lambda: tw.compile(lambda x, /: x + 1, X)(x=X),
    "scale= is given by keyword, which only functions of Python take": lambda: tw.compile("m.mlir", scale=X),
    "with_target has an argument target of its own, and target= is tw.compile's: give it by position, or as "
    "functools.partial(with_target, target=...)": lambda: tw.compile(with_target, X, target="ascend-310"),
    "with_target has an argument quick of its own, and quick= is tw.verify's": lambda: tw.verify(
        with_target, X, quick=True
    ),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_a_mistake_is_one_sentence(said: str) -> None:
    with pytest.raises(tw.CompileError, match=re.escape(said)) as caught:
        MISTAKES[said]()
    assert "\n" not in str(caught.value)


def test_arguments_that_are_called_as_options() -> None:
    for program, args in (
        (tw.compile(with_target, X, 3.0, target="ascend-310"), (X, 3.0)),
        (tw.compile(functools.partial(with_target, target=3.0), X, target="ascend-310"), (X,)),
    ):
        assert program.target == "ascend-310"
        np.testing.assert_allclose(program(*args), 3 * X + 1, rtol=1e-3)
    assert tw.verify(functools.partial(with_target, quick=0.0), X, quick=True).ok
    source = tw.compile(lambda source, self: source - self, source=X, self=X)
    np.testing.assert_array_equal(source(self=X, source=X), X - X)


# -- names in messages ---------------------------------------------------------------------------------------

D = {"a": {"w": X}}
K = {"s": [1.0, X]}


@pytest.mark.parametrize(
    ("d", "said"),
    [
        ({"a": {"w": X[:2]}}, "argument d['a']['w'] of nested must be f32[3, 4], got f32[2, 4]"),
        ({"a": {"w": X.astype(np.int16)}}, "argument d['a']['w'] of nested must be f32[3, 4], got i16[3, 4]"),
        ({"a": {"w": "w"}}, "argument d['a']['w'] of nested must be f32[3, 4], got a value of type str"),
        ({"a": {"v": X}}, "argument d['a'] of nested lacks 'w' and has 'v', which it was compiled without"),
        ({"a": {"w": [X]}}, "argument d['a']['w'] of nested was compiled for inputs *, called with [*]"),
        ({"a": None}, "argument d['a'] of nested was compiled for inputs {'w': *}, called with None"),
        (X, "argument d of nested was compiled for inputs {'a': {'w': *}}, called with *"),
    ],
)
def test_messages_have_the_path(d: Any, said: str) -> None:
    program = tw.compile(nested, X, D, k=K)
    for call in (program, lambda *a, **k: tw.verify(nested, *a, program=program, **k)):
        with pytest.raises(Exception, match=re.escape(said)) as caught:
            call(X, d, k=K)
        assert isinstance(caught.value, tw.CompileError)


def test_variadic_and_keyword_paths() -> None:
    program = tw.compile(lambda x, *xs, **named: x + xs[1] + named["y"], X, X, X, y=X)
    assert program.input_names == ("x", "xs[0]", "xs[1]", "y")
    with pytest.raises(
        tw.CompileError, match=re.escape("argument xs[1] of <lambda> must be f32[3, 4], got f32[1, 4]")
    ):
        program(X, X, X[:1], y=X)
    with pytest.raises(
        tw.CompileError, match=re.escape("argument k['s'][1] of nested is a str: give an array")
    ):
        tw.compile(nested, X, D, k={"s": [1.0, "two"]})
    with pytest.raises(
        tw.CompileError, match=re.escape("argument k['s'][1] of nested is a str: give an array")
    ):
        tw.jit(nested)(X, D, k={"s": [1.0, "two"]})


# -- functions of every make ---------------------------------------------------------------------------------


class Scaled:
    """Callable, and with a method."""

    w = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.w

    def method(self, x: Any, y: Any) -> Any:
        return x * self.w + y


def test_partials_objects_and_methods() -> None:
    for source, args, name, want in (
        (Scaled(), (X,), "Scaled", 2 * X),
        (Scaled().method, (X, X), "method", 3 * X),
        (functools.partial(affine, scale=3.0), (X,), "affine", 3 * X),
        (functools.partial(functools.partial(Scaled().method, X)), (X,), "method", 3 * X),
        (jax.jit(functools.partial(affine, scale=3.0)), (X,), "affine", 3 * X),
        (jax.tree_util.Partial(affine, scale=3.0), (X,), "affine", 3 * X),
    ):
        program = tw.compile(source, *args)
        if not isinstance(source, jax.stages.Wrapped):
            assert f"Program {name}:" in repr(program)
        np.testing.assert_allclose(program(*args), want, rtol=1e-6)
        np.testing.assert_allclose(tw.jit(source)(*args), want, rtol=1e-6)
        assert tw.verify(source, *args, program=program, quick=True).ok


def power(x: Any, n: int, d: Any) -> Any:
    return x**n + d["b"]


@pytest.mark.parametrize("way", [{"static_argnums": 1}, {"static_argnums": -2}, {"static_argnames": "n"}])
def test_static_arguments_of_a_jit(way: dict[str, Any]) -> None:
    source, d = jax.jit(power, **way), {"b": X}
    for args, kwargs in (((X, 3, d), {}), ((X,), {"d": d, "n": 3})):
        if kwargs and way == {"static_argnums": -2}:
            continue  # counted from the end of the call's positional arguments, which JAX refuses, too
        program = tw.compile(source, *args, **kwargs)
        assert program.input_names == ("x", "d['b']")
        np.testing.assert_allclose(program(X, d), power(X, 3, d), rtol=1e-5)
        np.testing.assert_allclose(program(d=d, x=X), power(X, 3, d), rtol=1e-5)
        assert tw.verify(source, *args, program=program, quick=True, **kwargs).ok
        with pytest.raises(
            tw.CompileError, match="argument n of power is static, and compiled in: leave it out"
        ):
            program(X, d=d, n=3)
    run = tw.jit(source)
    np.testing.assert_allclose(run(X, 2, d), power(X, 2, d), rtol=1e-5)
    np.testing.assert_allclose(run(X, 3, d), power(X, 3, d), rtol=1e-5)
    assert len(run.programs) == 2
    with pytest.raises(tw.CompileError, match="argument n of power is static and must be hashable, got list"):
        tw.compile(source, X, [3], d)


@pytest.mark.parametrize(
    "compiled",
    [
        lambda b: tw.compile(jax.jit(power, static_argnums=1, donate_argnums=2), X, 3, {"b": b}),
        lambda b: tw.compile(jax.jit(power, static_argnames="n", donate_argnames="d"), X, d={"b": b}, n=3),
        lambda b: tw.compile(jax.jit(power, static_argnums=1), X, 3, {"b": b}, options=tw.Options(donate=2)),
        lambda b: tw.compile(
            jax.jit(power, static_argnums=1), X, 3, {"b": b}, options=tw.Options(donate="d")
        ),
        lambda b: tw.jit(jax.jit(power, static_argnums=1, donate_argnums=2)).program(X, 3, {"b": b}),
        lambda b: tw.compile(jax.jit(power, static_argnums=-2, donate_argnums=-1), X, 3, {"b": b}),
        lambda b: tw.jit(jax.jit(power, static_argnums=-2, donate_argnums=-1)).program(X, 3, {"b": b}),
    ],
)
def test_donated_arguments_beside_static_ones(compiled: Callable[[Any], tw.Program]) -> None:
    b = jnp.asarray(X)
    compiled(b)(X, d={"b": b})
    assert b.is_deleted()


# -- what JAX has lowered ------------------------------------------------------------------------------------


def some(x: Any, unused: Any, d: Any, *, k: Any) -> tuple[Any, Any]:
    return x + d["w"] * k, k * 2


ARGS, KEYS = (X, 1.0, {"w": X}), {"k": 2.0}


@pytest.mark.parametrize("form", ["lower", "trace", "export"])
def test_stages_are_sources(form: str) -> None:
    fn = jax.jit(some)
    source = export.export(fn)(*ARGS, **KEYS) if form == "export" else getattr(fn, form)(*ARGS, **KEYS)
    named = form != "export"  # which has no names
    for program in (tw.compile(source), tw.compile(source, *ARGS, **KEYS)):
        got, want = program(*ARGS, **KEYS), fn(*ARGS, **KEYS)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
            assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
        assert program.input_names == (("x", "1", "d['w']", "k") if named else ("0", "1", "2['w']", "k"))
        assert tw.verify(source, *ARGS, program=program, quick=True, **KEYS).ok
        where = "d" if named else "2"
        with pytest.raises(
            tw.CompileError, match=rf"argument {where}\['w'\] of some must be f32\[3, 4\], got f32\[2"
        ):
            program(X, 1.0, {"w": X[:2]}, k=2.0)
    with pytest.raises(tw.CompileError, match=r"some takes 4 arguments, called with 1"):
        tw.compile(source, X)


def test_a_lowered_function_keeps_its_donation_and_its_callbacks() -> None:
    x = jnp.asarray(X)
    tw.compile(jax.jit(lambda unused, x: x * 2, donate_argnums=1).lower(X, x))(X, x)
    assert x.is_deleted()

    def double(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(X.shape, X.dtype), x)

    np.testing.assert_allclose(tw.compile(jax.jit(double).lower(X))(X), 2 * X)


def test_exports_of_symbolic_shapes() -> None:
    symbolic = jax.ShapeDtypeStruct(export.symbolic_shape("b, 4"), np.float32)
    source = export.export(jax.jit(lambda x: x @ x.T))(symbolic)
    for x in (X, X[:2]):
        np.testing.assert_allclose(tw.compile(source, x)(x), x @ x.T, rtol=1e-5)
    with pytest.raises(
        tw.CompileError, match=r"was exported with the symbolic shape float32\[b,4\]: give example"
    ):
        tw.verify(source)
    assert isinstance(tw.compile(source), tw.DynamicProgram)
    with pytest.raises(tw.CompileError, match="<lambda>: Shape mismatch"):
        tw.compile(source, X[:, :2])
    for_tpu = export.export(jax.jit(affine), platforms=["tpu"])(X)
    with pytest.raises(
        tw.CompileError, match=r"affine was exported for tpu: export it with platforms=\['cpu'\]"
    ):
        tw.compile(for_tpu)
    with pytest.raises(tw.CompileError, match=r"give what it was compiled from, as jax.jit\(f\).lower\(x\)"):
        tw.compile(jax.jit(affine).lower(X).compile(), X)
    with pytest.raises(
        tw.CompileError, match=r"affine is a tw.jit already: affine.program\(...\) is its program"
    ):
        tw.compile(tw.jit(affine), X)


# -- inside other transformations ----------------------------------------------------------------------------


def square(x: Any) -> Any:
    return (x * x).sum()


@pytest.mark.parametrize("outer", [jax.grad, jax.vmap, jax.jit])
def test_compiled_functions_are_outermost(outer: Callable[..., Any]) -> None:
    with pytest.raises(
        tw.CompileError, match=re.escape("put tw.jit outermost, as in tw.jit(jax.grad(square))")
    ):
        outer(tw.jit(square))(X)
    with pytest.raises(tw.CompileError, match=re.escape("as in tw.compile(jax.grad(square), ...)")):
        outer(tw.compile(square, X if outer is not jax.vmap else X[0]))(X)
    np.testing.assert_allclose(tw.jit(jax.grad(square))(X), 2 * X, rtol=1e-6)
    with pytest.raises(tw.CompileError, match=r"put tw\.jit outermost"):
        outer(lambda x: tw.jit(affine, static_argnames="scale")(X, scale=x))(X[0])
