"""Code that XLA compiles in two ways gives the same bits: typed memory is compiled quickly, bytes memory runs fast."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from memories import outputs
from tiering import MEMORIES, sampled

import tilewright as tw
from tilewright.backends.functions import values
from tilewright.backends.functions.compiling import (
    OPTIONS,
    QUICK_OPTIONS,
    ROLLED,
    SUMMING_OPTIONS,
    lowered,
    only_summed,
)
from tilewright.backends.functions.products import accumulator, dot_general, mma
from tilewright.backends.functions.scope import Scope
from tilewright.backends.interpreter import launch
from tilewright.dialects.elementwise import FUNCTIONS

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32]
SHAPES = [(1 << 14,), (64, 250), (7,), (1,)]


def numbers(count: int, dtype: type, seed: int) -> np.ndarray:
    """Half of them any bits, half of them ordinary."""
    rng = np.random.default_rng(seed)
    some = rng.integers(0, 2**32, -(-count // 2), dtype=np.uint32).view(np.float32)
    others = rng.standard_normal(some.shape) * np.exp(2 * rng.standard_normal(some.shape))
    with np.errstate(all="ignore"):
        return np.concatenate([some, others])[:count].astype(dtype)


def both(run: Callable[..., Any], *args: np.ndarray) -> list[list[np.ndarray]]:
    compiled = [jax.jit(lambda *xs: run(*xs), compiler_options=options) for options in (OPTIONS, QUICK_OPTIONS)]
    return [[np.asarray(x) for x in jax.tree.leaves(function(*args))] for function in compiled]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, but for what a NaN carries."""
    raw = np.dtype(f"u{a.dtype.itemsize}")
    nan = (a != a) & (b != b)
    return bool(((a.view(raw) == b.view(raw)) | nan).all())


DOMAINS, RESULTS = ("any", "number", "float"), ("same", "i1")
REAL = [
    name
    for name, f in FUNCTIONS.items()
    if f.domain in DOMAINS and f.result in RESULTS and not f.predicate
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", REAL)
@sampled(30)
def test_functions(name: str, dtype: type) -> None:
    function = FUNCTIONS[name]
    result = np.dtype(bool) if function.result == "i1" else np.dtype(dtype)
    for shape in SHAPES:
        count = int(np.prod(shape))
        xs = [numbers(count, dtype, seed).reshape(shape) for seed in range(function.arity)]

        def run(*xs: jax.Array) -> tuple[jax.Array, ...]:
            y = values.apply(name, xs, result)
            if result == np.dtype(bool):
                return (y,)
            product = values.apply("mul", [y, xs[0]], result)
            return y, values.apply("add", [product, xs[-1]], result)

        assert all(same(a, b) for a, b in zip(*both(run, *xs), strict=True))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [n for n in REAL if FUNCTIONS[n].arity == 1 and FUNCTIONS[n].result == "same"])
@sampled(22)
def test_functions_in_loops(name: str, dtype: type) -> None:
    """Where a loop writes parts of an array, XLA makes code as its older emitters do, whatever the options."""
    x = numbers(32 * 64, dtype, 0)

    def apply(x: jax.Array) -> jax.Array:
        return values.apply(name, [x], np.dtype(dtype))

    def looped(x: jax.Array, width: int) -> jax.Array:
        def step(i: jax.Array, y: jax.Array) -> jax.Array:
            part = lax.dynamic_slice(x, (i * width,), (width,))
            return lax.dynamic_update_slice(y, apply(part), (i * width,))

        return lax.fori_loop(0, x.size // width, step, jnp.zeros_like(x))

    whole = jax.jit(apply, compiler_options=OPTIONS)(x)
    for width in (1, 8, 64):
        parts = both(partial(looped, width=width), x)
        assert all(same(np.asarray(whole), p) for (p,) in parts)


WIDTHS = [*FLOATS, np.int8, np.uint8, np.int16, np.int32, np.uint32]


@sampled(3)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_conversions(dtype: type) -> None:
    for source in WIDTHS:
        x = numbers(1 << 12, np.float32, 1)
        with np.errstate(all="ignore"):
            x = x.astype(source)
        (a,), (b,) = both(lambda x: (values.convert(x, np.dtype(dtype)),), x)
        assert same(a, b), source


@sampled(3)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("shape", [(3, 4099), (64, 64), (17,)])
def test_reductions(kind: str, shape: tuple[int, ...]) -> None:
    for dtype in FLOATS:
        x = (numbers(int(np.prod(shape)), np.float32, 2) % 2).astype(dtype).reshape(shape)
        (a,), (b,) = both(lambda x: (values.reduce(x, kind, [x.ndim - 1]),), x)
        assert same(a, b), dtype


def additions(run: Callable[..., Any], shape: tuple[int, ...]) -> list[int]:
    """How many additions there are in each loop that XLA makes of a function of f32."""
    made = lowered(run, [jax.ShapeDtypeStruct(shape, np.float32)])
    (module,) = made.compile(QUICK_OPTIONS).runtime_executable().hlo_modules()
    computations = re.split(r"^\}", module.to_string(), flags=re.MULTILINE)
    return [n for text in computations if (n := len(re.findall(r" = \S+ add\(", text)))]


@pytest.mark.parametrize("count", [17, 128, 768, 5003])
def test_a_sum_is_added_up_once(count: int) -> None:
    """XLA computes no part of a sum again for each part that reads it."""
    found = additions(lambda x: values.reduce(x, "sum", [1]), (16, count))
    assert found
    assert max(found) < values.AT_ONCE


def test_each_step_of_a_running_sum_is_computed_once() -> None:
    assert additions(lambda x: values.cumulate(x, "sum", 1, False), (16, 1000)) == [1] * 10


def loops(a: jax.Array, b: jax.Array, acc: jax.Array, room: int, apart: bool) -> jax.Array:
    """Three products added to an accumulator, of operands that are padded along k."""

    def step(i: jax.Array, acc: jax.Array) -> jax.Array:
        left, right = lax.dynamic_index_in_dim(a, i, 0, False), lax.dynamic_index_in_dim(b, i, 0, False)
        nothing = np.zeros((), a.dtype)
        left = lax.pad(left, nothing, [(0, 0, 0), (0, room, 0)])
        right = lax.pad(right, nothing, [(0, room, 0), (0, 0, 0)])
        return acc + mma(left, right, acc, 0) if apart else mma(left, right, acc, 1)

    return lax.fori_loop(0, 3, step, acc)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("shape", [(128, 32, 256), (64, 7, 64), (64, 1, 8), (3, 5, 2), (1, 128, 1), (96, 512, 64)])
@pytest.mark.parametrize("room", [0, 3])
@sampled(12)
def test_products_with_their_sums(shape: tuple[int, int, int], dtype: type, room: int) -> None:
    """A product that the library adds to its accumulator is rounded as two instructions are."""
    m, k, n = shape
    rng = np.random.default_rng(3)
    scale = 1 if dtype is np.int8 else 7
    a, b = ((rng.integers(-100, 100, s) / scale).astype(dtype) for s in ((3, m, k), (3, k, n)))
    acc = accumulator(np.dtype(dtype), np.dtype(np.float32))
    start = (1000 * rng.standard_normal((m, n))).astype(acc)
    alone, *others = (
        np.asarray(jax.jit(partial(loops, room=room, apart=apart), compiler_options=options)(a, b, start))
        for options, apart in [(OPTIONS, True), (OPTIONS, False), (QUICK_OPTIONS, False), (SUMMING_OPTIONS, False)]
    )
    for x in others:
        assert same(x, alone)


@pytest.mark.parametrize(
    ("behind", "allowed"), [(lambda x: x, True), (jnp.exp, False), (lambda x: jnp.maximum(x, 0), False)]
)
def test_what_the_library_does_is_seen(behind: Callable[[Any], Any], allowed: bool) -> None:
    shape = jax.ShapeDtypeStruct((64, 64), np.float32)
    made = jax.jit(lambda a, b, c: behind(c + a @ b), compiler_options=SUMMING_OPTIONS).lower(shape, shape, shape)
    assert only_summed(made.compile()) == allowed


@pytest.mark.parametrize("flags", ["", f"--xla_backend_extra_options={ROLLED}=false"])
def test_loops_are_not_unrolled(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """The option reaches XLA behind those that JAX names, unless XLA_FLAGS say something about it."""
    monkeypatch.setenv("XLA_FLAGS", flags)
    salt = np.float32(np.random.default_rng().random())  # a program that JAX's cache on disk does not have
    made = lowered(lambda x: x + salt, [jax.ShapeDtypeStruct((8,), np.float32)])
    client = made._lowering.compile_args["backend"]
    real, given = client.client, []

    class Watched:
        def compile_and_load(self, module: Any, devices: Any, options: Any, **more: Any) -> Any:
            given.append(options)
            return real.compile_and_load(module, devices, options, **more)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    client.client = Watched()
    executable = made.compile({"xla_cpu_parallel_codegen_split_count": 1})
    np.testing.assert_array_equal(executable(np.zeros(8, np.float32)), np.full(8, salt))
    (options,) = given
    assert options.env_option_overrides == [("xla_cpu_parallel_codegen_split_count", 1)]
    entry = f'xla_backend_extra_options {{ key: "{ROLLED}" value: "true" }}'
    assert (entry in " ".join(str(options.executable_build_options.debug_options).split())) != bool(flags)


@sampled(4)
@pytest.mark.parametrize("count", [2, 13, 40, 257])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_vectors(count: int, batch: tuple[int, ...]) -> None:
    """XLA makes them multiplications and sums of what came before, and LLVM may merge these."""
    x = np.round(64 * np.random.default_rng(count).standard_normal((*batch, count))).astype(np.float32) / 64
    numbers = (([x.ndim - 1],) * 2, (list(range(len(batch))),) * 2)

    def run(x: Any) -> Any:
        y = jnp.hypot(x, x)
        return lax.dot_general(y, y, numbers) * 0.277

    program = tw.compile(run, x)
    (got,) = outputs(program, [x], MEMORIES)
    np.testing.assert_allclose(got, jax.jit(run)(x), rtol=1e-5)


@pytest.mark.parametrize("shape", [(111,), (2, 4, 37, 3), (16, 64)])
def test_functions_of_both_signs(shape: tuple[int, ...]) -> None:
    """An inverse hyperbolic tangent is log1p(x) - log1p(-x), and code for both may share what is equal."""
    x = (np.round(64 * np.random.default_rng(0).standard_normal(shape)) / 32).astype(np.float32)
    program = tw.compile(lambda x: jnp.arctanh(x * 0.236), x)
    outputs(program, [x], MEMORIES)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_mask_of_zeros_and_ones_keeps_the_sign_of_zero(dtype: str) -> None:
    """XLA selects where a converted i1 is multiplied: 0 for -1 x 0."""
    x, y = jnp.asarray([-1, 2, -3, -0.0, 5], dtype), jnp.asarray([-1, 3, 4, 0, 5], dtype)
    program = tw.compile(lambda x, y: x * (x == y).astype(dtype), x, y)
    for memory in ("typed", "bytes"):
        found = np.asarray(program.executable(memory)(x, y)[0], np.float32)
        np.testing.assert_array_equal(np.signbit(found), [True, False, True, True, False])


@sampled(2)
@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        (((13,), (13,)), (([0], [0]), ([], []))),
        (((1, 5, 1), (5, 1)), (([1], [0]), ([], []))),
        (((4, 3, 5), (3, 5, 1, 4)), (([1, 2], [0, 1]), ([0], [3]))),
        (((3, 5, 4), (5, 3)), (([0, 1], [1, 0]), ([], []))),
        (((1, 0), (0, 1)), (([1], [0]), ([], []))),
    ],
)
def test_dot_general_of_vectors(shapes: Any, numbers: Any) -> None:
    a, b = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes))
    got = dot_general(jnp.asarray(a), jnp.asarray(b), numbers, np.dtype(np.float32))
    want = lax.dot_general(a, b, numbers)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("m", "k", "n"), [(512, 256, 768), (300, 256, 1100)])
def test_zeros_are_arguments(monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int) -> None:
    """What a heavy kernel begins with, accumulators and parts of results, it is given: no code fills an array. All such
    zeros share one memory, which stays what it is."""
    asked: list[bool] = []
    zeros = Scope.zeros

    def counted(self: Scope, shape: Any, dtype: Any) -> Any:
        asked.append((tuple(shape), np.dtype(dtype)) in self.blanks)
        return zeros(self, shape, dtype)

    monkeypatch.setattr(Scope, "zeros", counted)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    program = tw.compile(lambda x, w: jnp.tanh(x @ w), x, w)
    run = program.executable("typed")
    first = [np.asarray(y) for y in run(*program.flatten((x, w)))]
    assert asked and all(asked)
    second = [np.asarray(y) for y in run(*program.flatten((x, w)))]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    np.testing.assert_allclose(first[0], np.tanh(x @ w), atol=1e-4)
    assert launch.zeros_of.memory.size >= 4 * m * n // 2 and not launch.zeros_of.memory.any()
