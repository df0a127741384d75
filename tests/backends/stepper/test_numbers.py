"""NumPy's functions of the stepping executor against the JAX functions of all levels, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from tilewright.backends.functions import products as functions_products
from tilewright.backends.functions import scattering, sorting, values
from tilewright.backends.functions.compiling import OPTIONS, xla_jit
from tilewright.backends.stepper import functions, numbers, products, reductions
from tilewright.dialects.dtypes import name_of_numpy
from tilewright.dialects.elementwise import FUNCTIONS
from tilewright.dialects.shapes import Keys
from tilewright.verification.compare import compare

FLOATS = [numbers.F32, numbers.F16, numbers.BF16, numbers.F64]
DTYPES = [*FLOATS, *numbers.INTEGERS, numbers.BOOL]
NAMED = {name_of_numpy(d): d for d in DTYPES}


def special(dtype: np.dtype, seed: int) -> np.ndarray:
    """Numbers at the ends of a type, around zero and between, in another order for each seed; no denormals."""
    rng = np.random.default_rng(seed)
    if dtype == numbers.BOOL:
        return rng.integers(0, 2, 512).astype(bool)
    if dtype in numbers.INTEGERS:
        info = np.iinfo(dtype)
        ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 8, 31, 33, 64]
        ends += [-1, -2, -7] if info.min else []
        drawn = rng.integers(info.min, info.max, 400, dtype=dtype, endpoint=True)
        x = np.concatenate([np.array(ends * 7, dtype=dtype), drawn])[:512]
    else:
        info = ml_dtypes.finfo(dtype)
        ends = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 300.5, -129.0]
        ends += [
            float(info.max),
            float(info.min),
            float(info.smallest_normal),
            1e5,
            -1e5,
            2.0**31,
            -(2.0**31),
            1e20,
        ]
        with np.errstate(all="ignore"):
            drawn = (rng.standard_normal(400) * 10 ** rng.uniform(-3, 3, 400)).astype(dtype)
            x = np.concatenate([np.array(ends * 6).astype(dtype), drawn])[:512]
    return rng.permutation(x)


def by_jax(function: Callable[..., list[Any]], xs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What XLA makes of some functions of the same arrays."""
    with jax.enable_x64(True):
        return [np.asarray(y) for y in xla_jit(function, OPTIONS)(*xs)]


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    d = compare(np.ascontiguousarray(got), want, bits=True)
    assert d.ratio == 0, d


def table_of(dtype: np.dtype) -> set[str]:
    """The functions of a type for which NumPy's are used."""
    if dtype in numbers.INTEGERS:
        return {*numbers.WHOLE, *numbers.COMPARISONS}
    return {*(numbers.LOGICAL if dtype == numbers.BOOL else numbers.FLOATS), *numbers.COMPARISONS}


@pytest.mark.parametrize("label", NAMED)
def test_functions(label: str) -> None:
    """Every function of a type for which NumPy's is used, at many pairs of special numbers."""
    dtype = NAMED[label]
    names = sorted(n for n in table_of(dtype) if FUNCTIONS[n].defined_on(label))
    outs = {n: numbers.BOOL if FUNCTIONS[n].result == "i1" else dtype for n in names}
    xs = [special(dtype, seed) for seed in range(3)]
    wanted = by_jax(lambda *a: [values.apply(n, a[: FUNCTIONS[n].arity], outs[n]) for n in names], xs)
    for name, want in zip(names, wanted, strict=True):
        operands = xs[: FUNCTIONS[name].arity]
        with np.errstate(all="ignore"):
            same(numbers.apply(name, operands, xs[0].shape, outs[name]), want)
    assert len(names) >= 9


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_conversions(source: np.dtype) -> None:
    x = special(source, 3)
    wanted = by_jax(lambda a: [values.apply("convert", [a], d) for d in DTYPES], [x])
    for target, want in zip(DTYPES, wanted, strict=True):
        with np.errstate(all="ignore"):
            same(numbers.apply("convert", [x], x.shape, target), want)


def test_denormals_are_zeros() -> None:
    """Results that are denormal, and operands, which go to the JAX function."""
    x = np.array([1e-30, -1e-30, 2e-38, 1e-40, -1e-42, 0, 1], np.float32)
    y = np.array([1e-12, 1e-12, 0.1, 1, 1, 1, 1], np.float32)
    assert numbers.has_denormals(x) and not numbers.has_denormals(y)
    names = ("mul", "add", "max", "sub", "div", "lt")
    outs = [numbers.BOOL if n == "lt" else numbers.F32 for n in names]
    pairs = list(zip(names, outs, strict=True))
    wanted = by_jax(lambda a, b: [values.apply(n, [a, b], out) for n, out in pairs], [x, y])
    for (name, out), want in zip(pairs, wanted, strict=True):
        same(numbers.apply(name, [x, y], x.shape, out, denormals=True), want)
        if name in ("mul", "add", "sub", "lt"):
            with np.errstate(all="ignore"):
                same(numbers.apply(name, [x[:3], y[:3]], (3,), out), want[:3])


def test_functions_of_xla_do_not_depend_on_the_length() -> None:
    """Padded arrays have the bits of whole ones, and lengths share what is compiled."""
    names = ("exp", "tanh", "erf", "log")
    for dtype in (numbers.F32, numbers.F16):
        x = np.abs(special(dtype, 5))[:333].astype(dtype)
        wanted = by_jax(lambda a, d=dtype: [values.apply(n, [a], d) for n in names], [x])
        for name, want in zip(names, wanted, strict=True):
            same(functions.apply(name, [x], x.shape, dtype), want)
    before = len(functions._COMPILED)
    for n in (1, 7, 200, 256):
        functions.apply("exp", [np.ones(n, np.float32)], (n,), numbers.F32)
    assert len(functions._COMPILED) <= before + 1


KINDS = ("sum", "prod", "max", "min")
WAYS = [(kind, back) for kind in ("sum", "max") for back in (False, True)]
I32 = np.dtype(np.int32)


@pytest.mark.parametrize(
    ("dtype", "shape", "dim"),
    [(numbers.F32, (3, 257), 1), (numbers.F16, (33, 5), 0), (numbers.BF16, (2, 9, 3), 1)],
)
def test_reductions_have_the_order_of_all_levels(dtype: np.dtype, shape: tuple[int, ...], dim: int) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    x.reshape(-1)[3] = np.nan

    def all_of(a: Any) -> list[Any]:
        found = [values.reduce(a, kind, [dim], True) for kind in KINDS]
        found += [values.cumulate(a, kind, dim, back) for kind, back in WAYS]
        return [*found, *(y for kind in KINDS[2:] for y in values.arg_reduce(a, kind, dim, I32, True))]

    with np.errstate(all="ignore"):
        got = [reductions.reduce(x, kind, [dim]) for kind in KINDS]
        got += [reductions.cumulate(x, kind, dim, back) for kind, back in WAYS]
        got += [y for kind in KINDS[2:] for y in reductions.arg_reduce(x, kind, dim, I32)]
    for mine, want in zip(got, by_jax(all_of, [x]), strict=True):
        same(mine, want)


def test_orders() -> None:
    """Sorts with several keys, NaN and zeros of both signs; scatters with rows that are named twice and left out."""
    rng = np.random.default_rng(2)
    x = special(numbers.F32, 1)[:96].reshape(3, 32)
    y = rng.integers(0, 4, (3, 32)).astype(np.int32)
    for keys in (Keys((0,), (0,), (0,)), Keys((0,), (1,), (1,)), Keys((1, 0), (1, 0), (0, 0))):
        want = by_jax(lambda a, b, k=keys: sorting.sort([a, b], k, 1, 20), [x, y])
        for got, wanted in zip(reductions.sort([x, y], keys, 20), want, strict=True):
            same(got, wanted)
    target = rng.standard_normal((6, 4)).astype(np.float16)
    updates = rng.standard_normal((9, 4)).astype(np.float16)
    index = np.array([0, 5, 5, 2, -1, 6, 0, 0, 3], np.int32)
    for kind in ("set", "sum", "prod", "max", "min"):
        (want,) = by_jax(lambda *a, k=kind: [scattering.scatter(*a, k)], [target, index, updates])
        same(reductions.scatter(target, index, updates, kind), want)


@pytest.mark.parametrize("dtype", [numbers.F32, numbers.F16, numbers.BF16, np.dtype(np.int8)], ids=str)
def test_products(dtype: np.dtype) -> None:
    """Integers are equal; floats are within the bound of the module, which says who of the two is off."""
    rng = np.random.default_rng(3)
    for m, k, n in ((1, 1, 1), (16, 64, 8), (100, 200, 70), (64, 129, 260), (3, 0, 2)):
        a, b = (rng.integers(-99, 99, s).astype(dtype) for s in ((m, k), (k, n)))
        if dtype.kind != "i":
            a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
        out = np.dtype(np.int32) if dtype.kind == "i" else numbers.F32
        acc = rng.integers(0, 9, (m, n)).astype(out)
        (want,) = by_jax(lambda *x: [functions_products.mma(*x, 1)], [a, b, acc])
        got = products.mma(a, b, acc, out)
        if dtype.kind == "i":
            same(got, want)
            continue
        exact = acc + a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(acc) + np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        assert (np.abs(got - exact) <= 2.0**-23 * np.maximum(np.abs(exact), np.abs(acc)) * 1.01 + 1e-30).all()
        assert (np.abs(got.astype(np.float64) - want) <= (k + 2) * 2.0**-24 * size + 1e-30).all()


def test_pairs_and_sparse_sides() -> None:
    """Numbers of 4 bits, two in a byte, and 2:4 sparse sides with the positions of what is kept."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-128, 128, (5, 12)).astype(np.int8), rng.integers(-128, 128, (12, 7)).astype(np.int8)
    kept, index = rng.integers(-9, 9, (8, 7)).astype(np.int8), rng.integers(-128, 128, (2, 7)).astype(np.int8)
    dense = rng.integers(-9, 9, (5, 16)).astype(np.int8)
    acc = np.zeros((5, 7), np.int32)

    def all_of(*x: Any) -> list[Any]:
        return [
            functions_products.mma(x[0], x[1], x[5], 1, pairs=True),
            functions_products.mma(x[2], x[3], x[5], 1, index=x[4]),
            functions_products.unpacked(x[0]),
        ]

    want = by_jax(all_of, [a, b, dense, kept, index, acc])
    got = [
        products.mma(a, b, acc, I32, pairs=True),
        products.mma(dense, kept, acc, I32, index=index),
        products.unpacked(a),
    ]
    for mine, wanted in zip(got, want, strict=True):
        same(mine, wanted)


def test_bits_of_one_number_keep_its_shape() -> None:
    made = numbers.apply("bitcast", [np.array(0x3F800000, np.uint32)], (), np.dtype(np.float32), False)
    assert made.shape == () and made == 1.0


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1024, 1025, 100_000])
def test_arrays_are_padded_to_few_lengths(n: int) -> None:
    """The least power that an array fits in."""
    found = functions.padded_length(n)
    assert n <= found
    assert found == functions.LEAST or found // functions.GROWTH < n
