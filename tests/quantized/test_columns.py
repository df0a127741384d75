"""A bias and factors of the columns of integer sums: the cube and its fixpipe take them where a chain is all that
stands behind a product, with the values of the vector cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from memories import outputs
from tiering import sampled

import tilewright as tw
from tilewright.dialects.npu.legality import refuse_product
from tilewright.machine import Machine

RNG = np.random.default_rng(1)

Layer = Callable[..., Array]


def factors(n: int, bits: int = 10) -> np.ndarray:
    """Positive f32 numbers, each with so many bits behind the point."""
    mantissa = RNG.integers(0, 1 << bits, n) * 2 + 1
    return np.ldexp(
        1 + mantissa / 2.0 ** (bits + 1) if bits > 10 else 1 + (mantissa // 2) / 2.0**bits, -8
    ).astype("f4")


def bias(n: int) -> np.ndarray:
    return RNG.integers(-9999, 9999, n, np.int32)


def product(a: Array, w: Array) -> Array:
    return lax.dot(a, w, preferred_element_type=jnp.int32)


def stored(x: Array, low: float = -128) -> Array:
    return jnp.clip(lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), low, 127).astype("i1")


def convolution(x: Array, w: Array, steps: int = 1) -> Array:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (steps, steps), "SAME", dimension_numbers=names, preferred_element_type=jnp.int32
    )


def numbers(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape, np.int8)


F, G, B = factors(300), factors(24), bias(300)
NEGATIVE = np.concatenate([-F[:1], F[1:]])
X, W = numbers(75, 90), numbers(90, 300)
IMAGE, FILTER = numbers(2, 9, 7, 20), numbers(3, 3, 20, 24)

IN_THE_CUBE: dict[str, tuple[Layer, list[np.ndarray]]] = {
    "a bias": (lambda a, w: product(a, w) + B, [X, W]),
    "a bias that is given": (lambda a, w, b: jnp.maximum(product(a, w) + b, 0), [X, W, B]),
    "a bias that every row has": (lambda a, w, b: product(a, w) + b[None], [X, W, B]),
    "a part of one": (lambda a, w, b: product(a, w) + b[100:400], [X, W, bias(500)]),
    "factors": (lambda a, w: stored(product(a, w).astype("f4") * F), [X, W]),
    "to f16": (lambda a, w: (product(a, w).astype("f4") * F).astype("f2"), [X, W]),
    "of floats": (lambda a, w: stored((a @ w) * F), [X.astype("f4"), W.astype("f4")]),
    "all": (lambda a, w, b: stored(jnp.maximum(product(a, w) + b, 0).astype("f4") * F), [X, W, B]),
    "all, relu last": (lambda a, w, b: stored((product(a, w) + b).astype("f4") * F, 0), [X, W, B]),
    "a convolution": (
        lambda x, w: stored(jnp.maximum(convolution(x, w) + B[:24], 0).astype("f4") * G),
        [IMAGE, FILTER],
    ),
    "one with steps": (
        lambda x, w: stored((convolution(x, w, 2) + B[:24]).astype("f4") * G),
        [IMAGE, FILTER],
    ),
    "two axes of columns": (
        lambda a, w, b: lax.dot_general(a, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32) + b,
        [X, numbers(90, 6, 50), bias(300).reshape(6, 50)],
    ),
}
"""Layers of which the cube does all."""

BESIDE_IT: dict[str, tuple[Layer, list[np.ndarray]]] = {
    "a bias of rows": (lambda a, w, b: product(a, w) + b[:, None], [X, W, bias(75)]),
    "one for all": (lambda a, w, b: product(a, w) + b, [X, W, np.int32(7)]),
    "one backwards": (lambda a, w, b: product(a, w) + lax.rev(b, (0,)), [X, W, B]),
    "a bias of floats": (lambda a, w, b: a @ w + b, [X.astype("f4"), W.astype("f4"), B.astype("f4")]),
    "factors of rows": (lambda a, w: stored(product(a, w).astype("f4") * factors(75)[:, None]), [X, W]),
    "factors of more bits": (lambda a, w: stored(product(a, w).astype("f4") * factors(300, 11)), [X, W]),
    "a negative factor": (
        lambda a, w: stored(product(a, w).astype("f4") * NEGATIVE),
        [X, W],
    ),
    "factors that are given": (lambda a, w, f: stored(product(a, w).astype("f4") * f), [X, W, F]),
    "a bias behind": (lambda a, w: (product(a, w).astype("f4") * F + B).astype("f2"), [X, W]),
    "two": (lambda a, w, b: product(a, w) + b + B, [X, W, B]),
}
"""Layers that have something for the vector cores."""


@pytest.fixture
def without(tmp_path: Path) -> str:
    """A target whose cubes have nothing for columns."""
    path = tmp_path / "without.toml"
    path.write_text('name = "without"\nextends = "ascend-910b1"\n[fixpipe]\n')
    return str(path)


def kinds(program: tw.Program) -> list[str]:
    return [k.kind for k in program.report().kernels]


def check_values(program: tw.Program, without: tw.Program, args: list[np.ndarray]) -> None:
    """Both memories of a program have the values of another one, bit for bit."""
    want = np.asarray(without(*args))
    (made,) = outputs(program, args)
    assert made.dtype == want.dtype
    np.testing.assert_array_equal(made, want)


@sampled(3)
@pytest.mark.parametrize("name", IN_THE_CUBE)
def test_the_cube_takes_what_its_columns_have(name: str, without: str) -> None:
    layer, args = IN_THE_CUBE[name]
    program, other = tw.compile(layer, *args), tw.compile(layer, *args, target=without)
    assert kinds(program) == ["cube"] and kinds(other) == ["mix"]
    check_values(program, other, args)
    assert program.report().microseconds <= other.report().microseconds


@pytest.mark.parametrize("name", BESIDE_IT)
def test_other_chains_are_for_the_vector_cores(name: str) -> None:
    layer, args = BESIDE_IT[name]
    assert "cube" not in kinds(tw.compile(layer, *args))


PINS: dict[str, tuple[tw.Schedule, str]] = {
    "several tiles of columns, rows inside": (tw.Schedule(base_m=16, base_n=48, cores=2), "cube"),
    "several tiles of columns inside": (tw.Schedule(base_m=32, base_n=16, cores=1, inner="n"), "cube"),
    "sums in parts": (tw.Schedule(split_k=2), "cube"),
    "more columns than bt has room for": (tw.Schedule(base_m=16, base_n=304), "mix"),
}


@sampled(2)
@pytest.mark.parametrize("pins", PINS)
def test_pinned_schedules_are_obeyed(pins: str, without: str) -> None:
    layer, args = IN_THE_CUBE["all"]
    schedule, kind = PINS[pins]
    program = tw.compile(layer, *args, options=tw.Options(schedule=schedule))
    assert kinds(program)[0] == kind
    check_values(program, tw.compile(layer, *args, target=without), args)


def test_equal_numbers_with_other_signs_have_kernels_of_their_own(without: str) -> None:
    def layers(a: Array, w: Array) -> tuple[Array, Array]:
        x = jnp.maximum(product(a, w), 0).astype("f4")
        return stored(x * F), stored(x * NEGATIVE)

    program, other = tw.compile(layers, X, W), tw.compile(layers, X, W, target=without)
    for made, want in zip(program(X, W), other(X, W), strict=True):
        np.testing.assert_array_equal(made, want)


def test_rows_of_a_large_product_are_loaded_tile_by_tile(without: str) -> None:
    n = 9000
    f, b = factors(n), bias(n)
    args = [numbers(20, 64), numbers(64, n)]

    def layer(a: Array, w: Array) -> Array:
        return stored((product(a, w) + b).astype("f4") * f)

    options = tw.Options(schedule=tw.Schedule(cores=1))
    program = tw.compile(layer, *args, options=options)
    assert kinds(program) == ["cube"]
    check_values(program, tw.compile(layer, *args, target=without), args)


def test_machines_say_what_their_columns_have() -> None:
    machine = Machine.load("ascend-910b1")
    assert machine.parameters("bt") == ("i32", "f32") and machine.parameters("fb") == ("ui64",)
    assert machine.holds("fb", "ui64") and machine.holds("l1", "ui64") and not machine.holds("fb", "f32")
    assert machine.scales_drains("i32", "i8", None, 0) is None
    assert refuse_product(machine, "i8", "i8", "i32", biased=True) is None
    drains = machine.scaled_drains
    assert drains is not None
    lacking = replace(machine, cube_biases=(), scaled_drains=replace(drains, words=None))
    assert not lacking.holds("bt", "i32") and not lacking.holds("l1", "ui64")
    assert "as a bias" in str(refuse_product(lacking, "i8", "i8", "i32", biased=True))
    assert "by a number each" in str(lacking.scales_drains("i32", "i8", None, 0))
    old = Machine.load("ascend-310")
    assert old.parameters("bt") == old.parameters("fb") == ()


def test_rows_of_bytes_fit_l0a_in_whole_blocks() -> None:
    """135 bytes of k take 160 in l0a, 224 rows of which do not fit twice."""
    options = tw.Options(schedule=tw.Schedule(base_m=224, base_n=128))
    assert kinds(tw.compile(product, numbers(838, 135), numbers(135, 300), options=options)) == ["cube"]
