"""Numbers that are rounded, kept within limits and stored as integers: by conversions that do all of it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from tiering import sampled

import tilewright as tw
from tilewright.backends.functions import values

RNG = np.random.default_rng(0)
ODD = np.float32([0.0, -0.0, 65504, 65520, -65536, np.inf, -np.inf, 2**-14, 2**-24, -(2**-25), 2**-149, 1 + 2**-11])
"""Numbers at the ends of f16, and beside one that has no more digits."""


def to_odd(x: np.ndarray) -> np.ndarray:
    """f32 as f16, by the definition: the nearest number towards 0, with a last bit of 1 where that is not x."""
    with np.errstate(over="ignore"):
        near = x.astype(np.float16)
    bits = near.view(np.uint16) - (np.abs(near.astype(np.float32)) > np.abs(x))
    cut = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    return (bits | (cut != x)).astype(np.uint16).view(np.float16)


def ties() -> np.ndarray:
    """f32 numbers at, and right beside, all halves that an integer of 8 bits may be rounded from, and others."""
    halves = np.arange(-300, 300, 0.5, dtype=np.float32)
    beside = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    wide = (RNG.standard_normal(2000) * 10.0 ** RNG.uniform(-8, 6, 2000)).astype(np.float32)
    return np.concatenate([halves, *beside, wide, ODD])


def test_numbers_are_rounded_to_odd() -> None:
    bits = RNG.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([bits[~np.isnan(bits)], ties()])
    got = np.asarray(values.round_to(jnp.asarray(x), "odd", np.dtype(np.float16)))
    np.testing.assert_array_equal(got.view(np.uint16), to_odd(x).view(np.uint16))
    none = np.asarray(values.round_to(jnp.float32([np.nan, -np.nan]), "odd", np.dtype(np.float16)))
    assert np.isnan(none).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_what_was_rounded_to_odd_becomes_what_it_would_have_been(dtype: type) -> None:
    x, info = ties(), np.iinfo(dtype)
    half = values.round_to(jnp.asarray(x), "odd", np.dtype(np.float16))
    got = np.asarray(values.round_to(half, "even", np.dtype(dtype)))
    np.testing.assert_array_equal(got, np.clip(np.round(x), info.min, info.max).astype(dtype))
    with np.errstate(over="ignore"):
        twice = np.round(x.astype(np.float16))  # what lies beside a half becomes that
    assert (np.clip(twice, info.min, info.max).astype(dtype) != got).any()


def test_a_limit_that_no_float_is_is_met() -> None:
    x = jnp.float32([3e9, -3e9, 2.5, 1e9])
    got = np.asarray(values.round_to(x, "even", np.dtype(np.int32)))
    np.testing.assert_array_equal(got, [2**31 - 1, -(2**31), 2, 10**9])


def stored(low: float, high: float, dtype: type, zero: float = 0.0) -> Callable[[Array], Array]:
    """Numbers of units as integers between two ends."""
    return lambda x: jnp.clip(jnp.round(x) + zero if zero else jnp.round(x), low, high).astype(dtype)


CASES = {
    "i8": (stored(-128, 127, np.int8), 2, 0),
    "i8 of relu": (stored(0, 127, np.int8), 2, 1),
    "narrow i8": (stored(-127, 100, np.int8), 2, 2),
    "ui8": (stored(0, 255, np.uint8), 2, 0),
    "zero point": (stored(-128, 127, np.int8, 5.0), 2, 0),
    "limits before": (lambda x: jnp.round(jnp.clip(x, -128, 127)).astype(np.int8), 2, 0),
    "limit between integers": (stored(-100.5, 127, np.int8), 0, None),
    "beyond the type": (stored(-200, 127, np.int8), 0, None),
    "cut off": (lambda x: jnp.clip(x, -128, 127).astype(np.int8), 0, None),
    "rounded alone": (lambda x: jnp.round(jnp.clip(x, -100, 100)), 0, None),
}
"""Functions of f32 numbers, how many conversions round by a rule of their own, and how many limits are left."""


@sampled(2)
@pytest.mark.parametrize("target", ["ascend-310", "ascend-910b1"])
@pytest.mark.parametrize("name", CASES)
def test_chains(name: str, target: str) -> None:
    """The values are those of JAX in both memories; where a rule does not apply, nothing is changed."""
    function, rounded, limits = CASES[name]
    x = ties()
    x = x[np.abs(x) < 2e4] if limits is None else x
    program = tw.compile(function, jax.ShapeDtypeStruct(x.shape, x.dtype), target=target)
    text = program.ir("tile")
    assert text.count("tile.round_to") == rounded
    if limits is not None:
        assert text.count("tile.max") + text.count("tile.min") == limits and "tile.clamp" not in text
    wanted = np.asarray(function(jnp.asarray(x)))
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(x)[0]), wanted)


def test_what_else_needs_a_rounded_number_keeps_it() -> None:
    def both(x: Array) -> tuple[Array, Array]:
        whole = jnp.round(x)
        return whole, jnp.clip(whole, -128, 127).astype(np.int8)

    x = np.float32([0.5, 1.5, -128.5, 300, -0.4])
    program = tw.compile(both, x, target="ascend-310")
    for got, wanted in zip(program(x), both(jnp.asarray(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    assert "tile.round_even" in program.ir("tile")


def test_a_chip_without_such_conversions_rounds_by_itself() -> None:
    program = tw.compile(stored(-128, 127, np.int8), jax.ShapeDtypeStruct((512,), np.float32), target="systolic-tpu1")
    assert "tile.round_to" not in program.ir("tile") and "tile.round_even" in program.ir("tile")
