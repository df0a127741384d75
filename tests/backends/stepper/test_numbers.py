"""NumPy's functions of the stepping executor against the JAX functions of all levels, bit for bit."""

from __future__ import annotations

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest

from tilewright.backends.functions import values
from tilewright.backends.functions.compiling import OPTIONS, xla_jit
from tilewright.backends.stepper import functions, numbers
from tilewright.dialects.dtypes import name_of_numpy
from tilewright.dialects.elementwise import FUNCTIONS
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
        ends += [float(info.max), float(info.min), float(info.smallest_normal), 1e5, -1e5, 2.0**31, -(2.0**31), 1e20]
        with np.errstate(all="ignore"):
            drawn = (rng.standard_normal(400) * 10 ** rng.uniform(-3, 3, 400)).astype(dtype)
            x = np.concatenate([np.array(ends * 6).astype(dtype), drawn])[:512]
    return rng.permutation(x)


def by_jax(name: str, xs: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(xla_jit(lambda *a: values.apply(name, a, dtype), OPTIONS)(*xs))


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    d = compare(np.ascontiguousarray(got), want, bits=True)
    assert d.ratio == 0, d


@pytest.mark.parametrize("name", sorted({*numbers.FLOATS, *numbers.COMPARISONS, *numbers.WHOLE, *numbers.LOGICAL}))
def test_functions(name: str) -> None:
    """Every function and type for which NumPy's is used, at all pairs of special numbers."""
    row, tried = FUNCTIONS[name], 0
    for label, dtype in NAMED.items():
        of_bools = numbers.LOGICAL if dtype == numbers.BOOL else numbers.FLOATS
        table = numbers.WHOLE if dtype in numbers.INTEGERS else of_bools
        if not row.defined_on(label) or name not in {**table, **numbers.COMPARISONS}:
            continue
        out = numbers.BOOL if row.result == "i1" else dtype
        xs = [special(dtype, seed) for seed in range(row.arity)]
        with np.errstate(all="ignore"):
            got = numbers.apply(name, xs, xs[0].shape, out)
        same(got, by_jax(name, xs, out))
        tried += 1
    assert tried


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_conversions(source: np.dtype) -> None:
    x = special(source, 3)
    for target in DTYPES:
        with np.errstate(all="ignore"):
            got = numbers.apply("convert", [x], x.shape, target)
        same(got, by_jax("convert", [x], target))


def test_denormals_are_zeros() -> None:
    """Results that are denormal, and operands, which go to the JAX function."""
    x = np.array([1e-30, -1e-30, 2e-38, 1e-40, -1e-42, 0, 1], np.float32)
    y = np.array([1e-12, 1e-12, 0.1, 1, 1, 1, 1], np.float32)
    assert numbers.has_denormals(x) and not numbers.has_denormals(y)
    for name in ("mul", "add", "max", "sub", "div", "lt"):
        out = numbers.BOOL if name == "lt" else numbers.F32
        same(numbers.apply(name, [x, y], x.shape, out, denormals=True), by_jax(name, [x, y], out))
    small = np.array([1e-30, -1e-30, 2e-38], np.float32)
    same(numbers.apply("mul", [small, y[:3]], (3,), numbers.F32), by_jax("mul", [small, y[:3]], numbers.F32))


def test_functions_of_xla_do_not_depend_on_the_length() -> None:
    """Padded arrays have the bits of whole ones."""
    for name, dtype in itertools.product(("exp", "tanh", "erf", "log", "logistic"), FLOATS):
        x = np.abs(special(dtype, 5))[:333].astype(dtype)
        same(functions.apply(name, [x], x.shape, dtype), by_jax(name, [x], dtype))
    before = len(functions._COMPILED)
    for n in (1, 7, 200, 256):
        functions.apply("exp", [np.ones(n, np.float32)], (n,), numbers.F32)
    assert len(functions._COMPILED) <= before + 1
