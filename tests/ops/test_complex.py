"""Complex numbers, as pairs of real ones on the device, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array, lax
from tiering import examples, sampled

import tilewright as tw
from tilewright.dialects.elementwise import FUNCTIONS
from tilewright.passes.numbers.complex_functions import FORMULAS
from tilewright.passes.pipeline import PIPELINE, remaining

from .harness import host_ops

FEW = examples(3)
EXTENTS = st.sampled_from([0, 1, 2, 3, 7, 13, 31])


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed + 7 * len(shape) + sum(shape))
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def reals(*shape: int, seed: int = 0) -> np.ndarray:
    return np.ascontiguousarray(numbers(*shape, seed=seed).real)


def check(
    fn: Callable[..., Any], *args: Any, units: float = 16, host: tuple[str, ...] = (), memory: bool = True
) -> tw.Program:
    """A program gives what JAX does, in both memory modes, and calls the host for nothing but `host`."""
    program = tw.compile(fn, *args)
    got, want = jax.tree.leaves(program(*args)), jax.tree.leaves(jax.jit(fn)(*args))
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a, b = np.asarray(a), np.asarray(b)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        assert float(np.abs(a - b).max(initial=0)) <= units * np.finfo(np.float32).eps * scale
    if memory:
        for a, b in zip(got, program.executable("bytes")(*args), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert set(host_ops(program)) <= set(host), host_ops(program)
    return program


# -- classes of ops ----------------------------------------------------------------------------------------


@FEW
@given(shape=st.lists(EXTENTS, max_size=3))
def test_arithmetic(shape: list[int]) -> None:
    def fn(x: Array, y: Array) -> Any:
        z = (x + y) * (x - 1j) - jnp.conj(y)
        return z, -z.real, jnp.imag(z), jnp.abs(x), x == y, x != x, jnp.where(x.real > 0, x, y)

    check(fn, numbers(*shape), numbers(*shape, seed=1))


@FEW
@given(rows=EXTENTS.filter(bool), columns=EXTENTS.filter(bool))
def test_movement(rows: int, columns: int) -> None:
    def fn(x: Array, i: Array) -> Any:
        both = jnp.concatenate([x.T, x.T[::-1]], 1)[1:]
        padded = jnp.pad(x, ((1, 2), (0, 1)), constant_values=2 - 1j)
        moved = lax.dynamic_update_slice(x, x[:1] * 2, (i, 0))
        return both, padded, moved, jnp.roll(x, 1, 0).reshape(-1), jnp.broadcast_to(x[0], (3, columns))

    check(fn, numbers(rows, columns), np.int32(rows - 1))


def test_indexing() -> None:
    def fn(x: Array, at: Array) -> Any:
        return x[at], x.at[at].add(1j), x.at[at[0]].set(0), lax.dynamic_slice(x, (at[0], 0), (2, 3))

    check(fn, numbers(7, 5), np.array([3, 1, 1], np.int32))


@FEW
@given(rows=EXTENTS.filter(bool), columns=EXTENTS.filter(bool))
def test_sums_and_products(rows: int, columns: int) -> None:
    def fn(x: Array) -> Any:
        return x.sum(0), x.prod(1) if columns < 9 else x.sum(1), jnp.cumsum(x, 0), x.mean()

    check(fn, numbers(rows, columns), units=32)


@FEW
@given(m=EXTENTS, k=EXTENTS, n=EXTENTS)
def test_matrix_products(m: int, k: int, n: int) -> None:
    check(lambda x, y: x @ y, numbers(m, k), numbers(k, n), units=64)


def test_convolution() -> None:
    check(
        lambda x, k: lax.conv_general_dilated(x, k, (2,), "SAME"),
        numbers(2, 3, 17),
        numbers(4, 3, 3),
        units=64,
    )


def test_sorting() -> None:
    check(lambda x, y: (jnp.sort(x), lax.sort((y, x), num_keys=1)), numbers(9), reals(9, seed=3))


def test_constants_iota_and_conversions() -> None:
    table = numbers(3, 4, seed=9)

    def fn(x: Array, n: Array) -> Any:
        z = lax.complex(x, x) * table + np.complex64(-0.0)
        counted = lax.broadcasted_iota(np.complex64, (3, 4), 1)
        return z + counted, n.astype(np.complex64), lax.convert_element_type(lax.real(z), np.int32)

    check(fn, reals(3, 4), np.arange(3, dtype=np.int32))


# -- programs ----------------------------------------------------------------------------------------------


def rope(x: Array, turns: Array) -> Array:
    z = lax.complex(x[..., ::2], x[..., 1::2]) * turns[None, :, None]
    return jnp.stack([z.real, z.imag], -1).reshape(x.shape)


def turned(x: Array) -> Array:
    """The host computes both transforms."""
    return jnp.fft.ifft(jnp.fft.fft(x) * jnp.exp(1j * jnp.arange(16) / 16)).real


TURNS = np.exp(1j * np.outer(np.arange(9), 1e4 ** -(np.arange(4) / 4))).astype(np.complex64)
VERIFIED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rotary embedding": (rope, (reals(2, 9, 3, 8), TURNS)),
    "around host ops": (turned, (reals(3, 16),)),
    "functions": (lambda x: lax.tanh(lax.rsqrt(x)), (numbers(50),)),
    "a power": (lax.pow, (numbers(50), numbers(50, seed=1))),
}


def test_rotary_embedding() -> None:
    check(rope, *VERIFIED["rotary embedding"][1])


@sampled(4)
@pytest.mark.parametrize("name", VERIFIED)
def test_each_pass_is_verified(name: str) -> None:
    fn, args = VERIFIED[name]
    verified = tw.verify(fn, *args)
    assert verified.ok, verified


def test_associative_scan() -> None:
    def state_space(a: Array, u: Array, c: Array) -> Array:
        def combine(p: Any, q: Any) -> Any:
            return p[0] * q[0], q[0] * p[1] + q[1]

        _, x = lax.associative_scan(combine, (jnp.broadcast_to(a, u.shape), u))
        return (x @ c).real

    check(state_space, numbers(4) / 3, numbers(7, 4), numbers(4, 5), units=64)


def test_loops_and_branches_carry_both_parts() -> None:
    def fn(h: Array, xs: Array, a: Array) -> Any:
        def step(h: Array, x: Array) -> Any:
            h = a * h + x
            return lax.cond(h.real.sum() > 0, jnp.conj, lambda z: z * 1j, h), jnp.abs(h)

        h, ys = lax.scan(step, h, xs)
        return lax.while_loop(lambda s: jnp.abs(s).sum() < 50, lambda s: s * 1.5, h), ys

    check(fn, numbers(5), numbers(6, 5, seed=1), numbers(5, seed=2) / 3, units=64)


def test_gradients() -> None:
    def loss(z: Array, w: Array) -> Array:
        return jnp.sum(jnp.abs(jnp.exp(1j * (z @ w)) * z[0]) ** 2)

    check(jax.grad(loss, argnums=(0, 1)), numbers(3, 4) / 4, numbers(4, 4) / 4, units=128, memory=False)


def test_functions_that_are_called_twice() -> None:
    @jax.jit
    def layer(x: Array, w: Array) -> Array:
        for _ in range(9):
            x = jnp.sin(x @ w) + x * 0.1j
        return x

    program = check(
        lambda x, w: layer(layer(x, w), w), numbers(3, 4) / 8, numbers(4, 4) / 8, units=256, memory=False
    )
    assert any(op.name == "func.call" for op in program.module("graph").walk())


def test_what_is_around_a_host_op_runs_on_the_device() -> None:
    program = check(turned, reals(3, 16), host=("stablehlo.fft",))
    assert host_ops(program) == ["stablehlo.fft"] * 2


# -- functions ---------------------------------------------------------------------------------------------

SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, 2, 1e-30, -1e30, 1e30, 3e38, np.inf, -np.inf, np.nan, 88, -90, 1e-5], np.float32
)


def _grid() -> np.ndarray:
    z = np.empty((len(SPECIAL), len(SPECIAL)), np.complex64)
    z.real, z.imag = SPECIAL[:, None], SPECIAL[None, :]
    return z.reshape(-1)


def _alike(got: Any, want: Any, units: Any) -> None:
    """Parts that are NaN or infinite are so on both sides; others are close, relative to the magnitude."""
    got, want = np.asarray(got), np.asarray(want)
    parts = [(got.real, want.real), (got.imag, want.imag)] if want.dtype.kind == "c" else [(got, want)]
    magnitude = np.abs(want.astype(np.complex128))
    for a, b in parts:
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        room = units * np.finfo(np.float32).eps * np.where(np.isfinite(magnitude), magnitude, np.abs(b))
        with np.errstate(invalid="ignore"):
            near = np.abs(a.astype(np.float64) - b) <= np.maximum(room, np.finfo(np.float32).tiny)
        wrong = np.flatnonzero(~(same | near))
        assert not wrong.size, [(int(i), got[i], want[i]) for i in wrong[:5]]


def _wide() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.standard_normal(400) * 10 ** rng.uniform(-3, 1.5, 400)).astype(np.float32).view(np.complex64)


def test_functions_at_special_values() -> None:
    functions = [lax.abs, lax.sign, lax.sin, lax.cos, lax.exp, lax.log, lax.sqrt, lax.log1p]

    def fn(x: Array) -> Any:
        return [function(x) for function in functions]

    x = np.concatenate([_grid(), _wide()])
    program = tw.compile(fn, x)
    assert not host_ops(program)
    for got, want in zip(program(x), jax.jit(fn)(x), strict=True):
        _alike(got, want, 4)


def _exact_expm1(z: np.ndarray) -> np.ndarray:
    a, b = z.real, z.imag
    return np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2 + 1j * np.exp(a) * np.sin(b)


EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "tan": np.tan,
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "expm1": _exact_expm1,
}
"""In twice the precision, where nothing overflows on the way."""


def _no_further(got: Any, theirs: Any, exact: Any, units: float, bounded: bool = True) -> None:
    """A value is within some units of the exact one, relative to the magnitude, or no further from it than XLA's is;
    where there is no exact one, or XLA's overflowed, it is XLA's or the exact one. Not `bounded`: what f32 does
    not hold may overflow in its own way."""
    got, theirs, eps = np.asarray(got), np.asarray(theirs), np.finfo(np.float32).eps
    room = np.maximum(units * eps * np.abs(exact), np.finfo(np.float32).tiny)
    off = np.maximum(np.abs(theirs.real - exact.real), np.abs(theirs.imag - exact.imag))
    allowed = np.maximum(room, np.where(np.isfinite(off), off, 0))
    near = (np.abs(got.real - exact.real) <= allowed) & (np.abs(got.imag - exact.imag) <= allowed)
    same = [
        (a == b) | (np.isnan(a) & np.isnan(b)) for a, b in ((got.real, theirs.real), (got.imag, theirs.imag))
    ]
    over = ~(np.abs(exact) <= np.finfo(np.float32).max) & ~np.isfinite(theirs) & ~np.isfinite(got)
    wrong = np.flatnonzero(~(near & np.isfinite(exact) | same[0] & same[1] | over & (not bounded)))
    assert not wrong.size, [(int(i), got[i], theirs[i], exact[i]) for i in wrong[:5]]


@cache
def _tangents_roots_and_exponentials() -> tuple[tw.Program, Callable[[Array], Any]]:
    def fn(x: Array) -> Any:
        return [getattr(lax, name)(x) for name in EXACT]

    program = tw.compile(fn, jax.ShapeDtypeStruct((len(_grid()) + 200,), np.complex64))
    assert not host_ops(program)
    return program, jax.jit(fn)


@np.errstate(all="ignore")
def _hold_up(x: np.ndarray, bounded: bool = True) -> None:
    program, reference = _tangents_roots_and_exponentials()
    for name, got, theirs in zip(EXACT, program(x), reference(x), strict=True):
        _no_further(got, theirs, EXACT[name](x.astype(np.complex128)), 6, bounded)


def test_more_functions_at_special_values() -> None:
    """Branch cuts and signs of 0 too: of what is real on the real axis the other part keeps its sign."""
    x = np.concatenate([_grid(), _wide()])
    _hold_up(x)
    program, _ = _tangents_roots_and_exponentials()
    tanh, tan, rsqrt, expm1 = (np.asarray(y) for y in program(x))
    finite = np.isfinite(x.real) & (x.real != 0)
    for sign, y in ((0.0, 1), (-0.0, -1)):
        level = finite & (x.imag == 0) & (np.signbit(x.imag) == np.signbit(sign))
        assert np.all(np.copysign(1, tanh.imag[level]) == y) and np.all(np.copysign(1, tan.imag[level]) == y)
        assert np.all(np.copysign(1, expm1.imag[level]) == y) and np.all(
            np.copysign(1, rsqrt.imag[level]) == -y
        )


@examples(25)
@given(st.integers(0, 2**32 - 1), st.floats(-38, 0), st.floats(0, 38), st.booleans())
def test_functions_of_numbers_of_all_sizes(seed: int, low: float, high: float, poles: bool) -> None:
    """Parts of any magnitude, or as close to the poles of the tangents and the zeros of expm1 as f32 has numbers."""
    rng, n = np.random.default_rng(seed), len(_grid()) + 200
    parts = rng.standard_normal(2 * n) * 10 ** rng.uniform(low, high, 2 * n)
    if poles:
        parts[: n // 2] = rng.integers(-8, 8, n // 2) * np.pi / 2
    rng.shuffle(parts)
    with np.errstate(over="ignore"):
        x = parts.astype(np.float32).view(np.complex64)
    _hold_up(x, bounded=False)


def test_division_and_powers_at_special_values() -> None:
    """A power turns by |w log z|: its error grows with that. What is turned by millions of times a circle is left out:
    XLA's angle is as far off as ours."""

    def fn(x: Array, y: Array) -> Any:
        return lax.div(x, y), lax.pow(x, y)

    rng = np.random.default_rng(2)
    grid = _grid()
    x, y = (grid[rng.integers(0, grid.size, 3000)] for _ in range(2))
    x[2000:], y[2000:] = numbers(1000), 3 * numbers(1000, seed=1)
    program = tw.compile(fn, x, y)
    assert not host_ops(program)
    (quotient, power), (theirs, raised) = program(x, y), jax.jit(fn)(x, y)
    _alike(quotient, theirs, 4)
    with np.errstate(all="ignore"):
        turns = np.abs(y.astype(np.complex128) * np.log(x.astype(np.complex128)))
    some = ~(turns > 1e3) | np.isinf(turns)
    units = 4 * (1 + np.where(np.isfinite(turns), turns, 0))[some]
    _alike(np.asarray(power)[some], np.asarray(raised)[some], units)


TEXT = """func.func @main(%x: tensor<400xcomplex<f32>>) -> (tensor<400xcomplex<f32>>, tensor<400xcomplex<f32>>) {
  %0 = stablehlo.cbrt %x : tensor<400xcomplex<f32>>
  %1 = stablehlo.logistic %x : tensor<400xcomplex<f32>>
  return %0, %1 : tensor<400xcomplex<f32>>, tensor<400xcomplex<f32>>
}"""


def test_functions_that_jax_does_not_have() -> None:
    x = numbers(400)
    program = tw.compile(TEXT, x)
    assert not host_ops(program)
    root, curve = (np.asarray(y) for y in program(x))
    wide = x.astype(np.complex128)
    _no_further(root, np.full_like(root, np.nan), wide ** (1 / 3), 6)
    far = np.abs(1 + np.exp(-wide)) > 0.1
    exact = 1 / (1 + np.exp(-wide))
    _no_further(curve[far], np.full_like(curve[far], np.nan), exact[far], 60)


def test_an_order_is_left_to_the_host() -> None:
    """Complex numbers have none, and JAX and StableHLO refuse it; XLA gives them one."""
    kind = "tensor<4xcomplex<f32>>"
    program = tw.compile(
        f"func.func @main(%x: {kind}, %y: {kind}) -> tensor<4xi1> {{\n"
        f"  %0 = stablehlo.compare GE, %x, %y : ({kind}, {kind}) -> tensor<4xi1>\n"
        f"  %1 = stablehlo.compare EQ, %x, %x : ({kind}, {kind}) -> tensor<4xi1>\n"
        "  %2 = stablehlo.and %0, %1 : tensor<4xi1>\n  return %2 : tensor<4xi1>\n}"
    )
    assert host_ops(program) == ["stablehlo.compare"]
    assert np.asarray(program(*2 * [np.complex64([1, 2j, 0, -1j])])).all()


# -- the pass ----------------------------------------------------------------------------------------------


def test_every_function_with_a_formula_says_so() -> None:
    said = {name for name, function in FUNCTIONS.items() if function.complex_flops}
    assert said == {*FORMULAS, "convert"}


def test_a_program_without_complex_numbers_is_real_already() -> None:
    program = tw.compile(jnp.tanh, reals(4))
    source = program.source.lower()[0]
    skipped = ("graph-quantized", "graph-complex")
    always = [s.name for s in PIPELINE if not s.optional]
    assert [s.name for s in remaining(source)] == [name for name in always if name not in skipped]


def test_products_count_eight_operations() -> None:
    program = tw.compile(lambda x, y: x @ y, numbers(3, 5), numbers(5, 7))
    products = [op.flops() for op in program.module("graph").walk() if op.name == "graph.contract"]
    assert sum(products) == 8 * 3 * 5 * 7


def test_complex128_stays_on_the_host() -> None:
    with jax.enable_x64(True):
        x = numbers(4).astype(np.complex128)
        program = tw.compile(lambda x: x * x + 1, x)
        assert host_ops(program) == ["stablehlo.multiply, stablehlo.add"]
        np.testing.assert_allclose(np.asarray(program(x)), x * x + 1, 1e-12)
