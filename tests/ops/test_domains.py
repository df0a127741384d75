"""Each scalar function over its whole domain: every f16 and bf16 number, pairs of them, and f32 numbers of all sizes.

One program of an element type has all functions, and runs at the graph level, in typed and in addressed memory. The
narrow types are held against f32, rounded once; f32 against f64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from references import REFERENCE
from tiering import sampled

import tilewright as tw
from tilewright.backends.interpreter import run_graph
from tilewright.dialects import make_context
from tilewright.dialects.elementwise import FUNCTIONS
from tilewright.dialects.text import parse_module
from tilewright.verification.compare import compare

NARROW = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
Array = np.ndarray

EXACT: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round_even": np.rint,
    "round_away": lambda x: np.where(np.abs(x) < 2**23, np.copysign(np.floor(np.abs(x) + 0.5), x), x),
    "is_finite": np.isfinite,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "rem": np.fmod,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}
"""Functions that round at most once, in numpy. Twice as many digits and two more make the second rounding harmless."""

ROUNDED: dict[str, Callable[..., Any]] = {
    "exp": lax.exp,
    "expm1": lax.expm1,
    "log": lax.log,
    "log1p": lax.log1p,
    "rsqrt": lax.rsqrt,
    "cbrt": lax.cbrt,
    "tanh": lax.tanh,
    "logistic": lax.logistic,
    "sin": lax.sin,
    "cos": lax.cos,
    "tan": lax.tan,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "pow": lax.pow,
    "atan2": lax.atan2,
}
"""The others, as JAX has them in the wider type; and exp2."""

NARROW_UNITS = 2
"""Of these, how many units in the last place of a narrow type they may be off: XLA makes some of them of others, each
of which rounds."""

ELSEWHERE = {"convert", "bitcast", "select"}
"""Functions that compute nothing."""


def names(arity: int) -> list[str]:
    """The functions of so many numbers that are defined on floats."""
    return [
        f.name
        for f in FUNCTIONS.values()
        if f.arity == arity and f.domain not in ("whole", "integer") and f.name not in ELSEWHERE
    ]


def text(dtype: str, arity: int, size: int) -> str:
    """A module that applies each function of so many operands to its arguments."""
    x, mask = f"tensor<{size}x{dtype}>", f"tensor<{size}xi1>"
    made = {n: mask if FUNCTIONS[n].result == "i1" else x for n in names(arity)}
    operands = ", ".join(f"%x{i}" for i in range(arity))
    lines = []
    for n, t in made.items():
        kind = x if t == x else f"({', '.join([x] * arity)}) -> {t}"
        lines.append(f"  %{n} = graph.{n} {operands} : {kind}")
    params = ", ".join(f"%x{i}: {x}" for i in range(arity))
    results, types = ", ".join(f"%{n}" for n in made), ", ".join(made.values())
    body = "\n".join(lines)
    return f"func.func @main({params}) -> ({types}) {{\n{body}\n  func.return {results} : {types}\n}}\n"


def runs(dtype: str, *xs: Array) -> dict[str, dict[str, Array]]:
    """What each function gives at each level."""
    source = text(dtype, len(xs), xs[0].size)
    program = tw.compile(source)
    found = {
        "graph": run_graph(parse_module(make_context(), source, "functions"), *xs),
        "typed": program.executable("typed")(*xs),
        "bytes": program.executable("bytes")(*xs),
    }
    return {
        level: dict(zip(names(len(xs)), map(np.asarray, ys), strict=True)) for level, ys in found.items()
    }


def expected(xs: tuple[Array, ...], wide: type) -> dict[str, Array]:
    """What each function gives in the type `wide`."""
    wider = [x.astype(wide) for x in xs]
    chosen = [n for n in names(len(xs)) if n in ROUNDED]
    with jax.enable_x64(True), np.errstate(all="ignore"):
        compiled = jax.jit(lambda *ys: [ROUNDED[n](*ys) for n in chosen]).lower(*wider)
        found = dict(zip(chosen, compiled.compile(compiler_options=REFERENCE)(*wider), strict=True))
        found |= {n: EXACT[n](*wider) for n in names(len(xs)) if n in EXACT}
        if len(xs) == 1:
            found["exp2"] = np.exp(as_power_of_e(xs[0]).astype(wide))
    return {n: np.asarray(y) for n, y in found.items()}


def as_power_of_e(x: Array) -> Array:
    """The y of exp(y) that XLA computes for exp2(x): x log 2, rounded to x's type as log 2 is."""
    return x * np.asarray(np.log(2)).astype(x.dtype)


def places(x: Array) -> Array:
    """Numbers of a float type counted from 0 on, denormals as zeros: neighbours are 1 apart."""
    bits = without_denormals(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    first = int(np.asarray(ml_dtypes.finfo(x.dtype).smallest_normal).astype(x.dtype).view(f"i{x.dtype.itemsize}"))
    size = bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)
    return np.sign(np.where(bits < 0, -1, 1)) * np.maximum(size - first + 1, 0)


def assert_within(got: Array, want: Array, units: float, what: str) -> None:
    """NaNs in the same places, and so many units in the last place at most."""
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype)
    if got.dtype == np.bool_:
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan, err_msg=f"{what}: NaNs")
    apart = np.where(nan, 0, np.abs(places(got) - places(want)))
    at = int(apart.argmax())
    assert apart[at] <= units, f"{what}: {got[at]} where {want[at]} is expected, {apart[at]} units off"


def as_f32(x: Array) -> Array:
    """exp2 in f32."""
    with np.errstate(all="ignore"):
        return np.exp2(x.astype(np.float32))


def hold(dtype: str, xs: tuple[Array, ...], wide: type, units: Callable[[str], float]) -> None:
    found, want = runs(dtype, *xs), expected(xs, wide)
    for name, graph in want.items():
        for level in ("graph", "typed"):
            wider = name == "exp2" and level == "typed" and dtype == "bf16"  # which no vector unit computes in
            y = as_f32(xs[0]) if wider else graph
            assert_within(found[level][name], y, 0 if name in EXACT else units(name), f"{level}: {name} of {dtype}")
        difference = compare(found["bytes"][name], found["typed"][name], bits=True)
        assert difference.ratio == 0, f"{name} of {dtype} in addressed memory: {difference}"


def all_numbers(dtype: np.dtype) -> Array:
    """Each number of a type of 16 bits, with zeros for its denormals, which XLA takes for zeros in bf16 and f32."""
    x = np.arange(1 << 16).astype(np.uint16).view(dtype)
    return without_denormals(x)


def without_denormals(x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(x) < ml_dtypes.finfo(x.dtype).smallest_normal, np.zeros((), x.dtype), x)


def some_numbers(dtype: np.dtype, count: int) -> Array:
    """Numbers of all sizes, near 1, whole ones, and the special ones."""
    rng = np.random.default_rng(count)
    kinds = [
        all_numbers(dtype)[rng.integers(0, 1 << 16, count // 2)],
        rng.standard_normal(count // 4).astype(dtype),
        rng.integers(-9, 9, count // 4 - 8).astype(dtype),
        np.array([0.0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan], dtype),
    ]
    return np.concatenate(kinds)


def test_every_function_of_floats_is_here() -> None:
    assert {n for arity in (1, 2, 3) for n in names(arity)} == {*EXACT, *ROUNDED, "exp2"}
    assert {f for f, row in FUNCTIONS.items() if row.domain in ("any", "number", "float")} == {
        *EXACT,
        *ROUNDED,
        "exp2",
        *ELSEWHERE,
    }


@sampled(2)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_number(dtype: str) -> None:
    hold(dtype, (all_numbers(NARROW[dtype]),), np.float32, lambda _: NARROW_UNITS)


@sampled(2)
@pytest.mark.parametrize("dtype", NARROW)
def test_pairs_of_narrow_numbers(dtype: str) -> None:
    x = some_numbers(NARROW[dtype], 160)
    hold(dtype, (np.repeat(x, x.size), np.tile(x, x.size)), np.float32, lambda _: NARROW_UNITS)


@pytest.mark.parametrize("dtype", NARROW)
def test_clamps_of_narrow_numbers(dtype: str) -> None:
    x = some_numbers(NARROW[dtype], 160)
    low = np.repeat(x[~np.isnan(x)][:128], x.size)
    hold(dtype, (low, np.tile(x, 128), low + np.ones((), low.dtype)), np.float32, lambda _: NARROW_UNITS)


def test_f32_numbers_of_all_sizes() -> None:
    """Units in the last place as OpenCL C allows them, one for the reference; sines of angles within a few turns."""
    rng = np.random.default_rng(0)
    sizes = np.ldexp(rng.uniform(0.5, 1, 4000), rng.integers(-30, 4, 4000)).astype(np.float32)
    x = np.concatenate([sizes, -sizes, np.float32([0, 1, -1, 88, -88, 100, -100, np.inf, -np.inf, np.nan])])
    hold("f32", (x,), np.float64, lambda name: FUNCTIONS[name].ulps_in("f32") + 1)
