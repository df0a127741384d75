"""Sums that leave the cube scaled: where the fixpipe can do what stands behind a product, no vector core does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array, lax
from tiering import sampled

import tilewright as tw
from tilewright.machine import Machine

RNG = np.random.default_rng(0)


@pytest.fixture
def without(tmp_path: Path) -> str:
    """A target that does nothing to sums on their way out of the cube."""
    path = tmp_path / "without.toml"
    path.write_text('name = "without"\nextends = "ascend-910b1"\n[fixpipe]\n')
    return str(path)


def product(m: int, k: int, n: int, made: str) -> str:
    """A product of quantized matrices, by 0.5 and 0.25, as graph-level text."""
    kinds = [
        f"tensor<{m}x{k}x!graph.quantized<i8:f32, 0.5>>",
        f"tensor<{k}x{n}x!graph.quantized<i8:f32, 0.25>>",
        f"tensor<{m}x{n}x{made}>",
    ]
    dims = "{lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}"
    return (
        f"func.func @main(%a: {kinds[0]}, %w: {kinds[1]}) -> {kinds[2]} {{\n"
        f"  %r = graph.contract %a, %w {dims} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}\n"
        f"  func.return %r : {kinds[2]}\n}}\n"
    )


def compiled(text: str, folder: Path, target: str = "ascend-910b1") -> tw.Program:
    path = folder / "product.mlir"
    path.write_text(text)
    return tw.compile(path, target=target)


def drains(program: tw.Program) -> list[dict[str, str]]:
    """The properties of the drains of a program that scale."""
    walked = program.module("npu").walk()
    found = [op for op in walked if op.name == "npu.fixpipe"]
    changed = [op for op in found if op.properties.keys() & {"factor", "relu"} or op.scales is not None]
    return [{k: str(v) for k, v in op.properties.items()} for op in changed]


@pytest.mark.parametrize(("scale", "zero"), [(64.0, 0), (64.0, -5), (1.0, 127), (0.015625, -128)])
@pytest.mark.parametrize("storage", ["i8", "ui8"])
def test_integers_are_stored_by_the_fixpipe(storage: str, scale: float, zero: int, tmp_path: Path) -> None:
    low, high = (0, 255) if storage == "ui8" else (-128, 127)
    zero = zero + 128 if storage == "ui8" else zero
    program = compiled(product(37, 65, 50, f"!graph.quantized<{storage}:f32, {scale}:{zero}>"), tmp_path)
    assert len(drains(program)) == 1 and [k.kind for k in program.report().kernels] == ["cube"]
    a, w = (RNG.integers(-128, 128, s, np.int8) for s in [(37, 65), (65, 50)])
    sums = (a.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    want = np.clip(np.rint(sums * np.float32(0.125 / scale)) + zero, low, high)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(a, w)[0]).astype(int), want)


@pytest.mark.parametrize(
    ("made", "target"),
    [
        ("!graph.quantized<i8:f32, 0.3>", "ascend-910b1"),  # the factor has more bits
        ("!graph.quantized<i8<-127:127>:f32, 1.0>", "ascend-910b1"),  # saturates elsewhere
        ("!graph.quantized<i16:f32, 1.0>", "ascend-910b1"),
        ("!graph.quantized<i8:f32:1, {1.0, 0.3, 1.0, 1.0}>", "ascend-910b1"),
        ("f32", "ascend-910b1"),
        ("!graph.quantized<i8:f32, 1.0>", "ascend-310"),  # has no fixpipe
    ],
)
def test_others_are_scaled_on_the_vector_cores(made: str, target: str, tmp_path: Path) -> None:
    assert not drains(compiled(product(8, 16, 4, made), tmp_path, target))


def test_columns_have_scales_of_their_own(tmp_path: Path) -> None:
    made = "!graph.quantized<i8:f32:1, {64.0:3, 32.0:3, 16.0:3, 8.0:3}>"
    program = compiled(product(37, 65, 4, made), tmp_path)
    assert [p["zero"] for p in drains(program)] == ["3 : i64"]
    assert [k.kind for k in program.report().kernels] == ["cube"]
    a, w = (RNG.integers(-128, 128, s, np.int8) for s in [(37, 65), (65, 4)])
    sums = (a.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    want = np.clip(np.rint(sums * (0.125 / np.array([64, 32, 16, 8], "f4"))) + 3, -128, 127)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(a, w)[0]).astype(int), want)


def test_numbers_of_16_bits_leave_as_such() -> None:
    def layer(a: np.ndarray, w: np.ndarray) -> np.ndarray:
        return ((a.astype("f4") * 0.5) @ (w.astype("f4") * 0.0625)).astype("f2")

    args = [RNG.integers(-128, 128, s, np.int8) for s in [(20, 33), (33, 17)]]
    program = tw.compile(layer, *args)
    assert len(drains(program)) == 1
    sums = args[0].astype(np.int32) @ args[1].astype(np.int32)
    want = (sums.astype(np.float32) / 32).astype(np.float16)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(*args)[0]), want)


def integers(a: Array, w: Array) -> Array:
    return lax.dot(a, w, preferred_element_type=jnp.int32)


def halves(sums: Array) -> Array:
    return (sums.astype("f4") * 0.0009765625).astype("f2")


HALVES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "one more step": lambda a, w, b: jnp.tanh(halves(integers(a, w))),
    "what reads more": lambda a, w, b: halves(integers(a, w)) * b.astype("f2") + a[:, :1].astype("f2"),
    "a bias before": lambda a, w, b: jnp.tanh(halves(integers(a, w) + b)),
}
"""Layers of which the fixpipe does the first steps."""


@sampled(2)
@pytest.mark.parametrize("name", HALVES)
def test_vector_cores_go_on_with_what_leaves_as_16_bits(name: str, without: str) -> None:
    args = [RNG.integers(-128, 128, s, t) for s, t in [((20, 33), "i1"), ((33, 17), "i1"), (17, "i4")]]
    program, other = tw.compile(HALVES[name], *args), tw.compile(HALVES[name], *args, target=without)
    assert [k.kind for k in program.report().kernels] == ["mix"]
    assert len(drains(program)) == 1 and not drains(other)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(program.executable(memory)(*args)[0], np.asarray(other(*args)))


def scaled(x: Array, low: float = -128, zero: int = 0, factor: float = 1 / 64) -> Array:
    x = lax.round(x.astype("f4") * factor, lax.RoundingMethod.TO_NEAREST_EVEN) + zero
    return jnp.clip(x, low, 127).astype("i1")


RELU: dict[str, Callable[[Array, Array], Array]] = {
    "f16": lambda a, w: jax.nn.relu(a @ w),
    "f32": lambda a, w: jax.nn.relu(a @ w),
    "f32 to f16": lambda a, w: jax.nn.relu(a @ w).astype("f2"),
    "f16 of f32": lambda a, w: jax.nn.relu((a @ w).astype("f2")),
    "sums": lambda a, w: jax.nn.relu(integers(a, w)),
    "before": lambda a, w: scaled(jax.nn.relu(integers(a, w))),
    "numbers": lambda a, w: jax.nn.relu(a.astype("f2") @ w.astype("f2")),
    "behind": lambda a, w: jax.nn.relu(integers(a, w).astype("f4") * 0.015625).astype("f2"),
    "halves": lambda a, w: jax.nn.relu((integers(a, w).astype("f4") * 0.015625).astype("f2")),
    "rounded": lambda a, w: scaled(integers(a, w), low=0),
    "moved": lambda a, w: scaled(integers(a, w), low=-5, zero=-5),
    "turned": lambda a, w: scaled(jax.nn.relu(integers(a, w)), factor=-1 / 64),
}
"""Products behind which the fixpipe makes negative numbers 0."""

OTHER: dict[str, Callable[[Array, Array], Array]] = {
    "of the negative": lambda a, w: scaled(integers(a, w), low=0, factor=-1 / 64),
    "another end": lambda a, w: scaled(integers(a, w), low=1),
    "behind a zero point": lambda a, w: scaled(integers(a, w), low=0, zero=-5),
    "f16 of another number": lambda a, w: jnp.maximum(a @ w, 1),
    "f16 of the other zero": lambda a, w: lax.max(a @ w, jnp.full((20, 17), -0.0, "f2")),
    "f16 used twice": lambda a, w: jax.nn.relu(x := a @ w) + x,
}


@sampled(5)
@pytest.mark.parametrize("name", [*RELU, *OTHER])
def test_negative_sums_become_0_on_their_way(name: str, without: str) -> None:
    dtype = {"f16": np.float16, "f32": np.float32}.get(name[:3], np.int8)
    args = [RNG.integers(-128, 128, s, np.int8).astype(dtype) for s in [(20, 33), (33, 17)]]
    layer = (RELU | OTHER)[name]
    program = tw.compile(layer, *args)
    assert [p.get("relu") for p in drains(program)] == ["unit"] * (name in RELU)
    assert [k.kind for k in program.report().kernels][-1] == ("cube" if name in RELU else "mix")
    on_vectors = tw.compile(layer, *args, target=without)
    want = np.asarray(on_vectors(*args))
    assert not drains(on_vectors)
    for memory in ("typed", "bytes"):
        made = np.asarray(program.executable(memory)(*args)[0])
        assert made.dtype == want.dtype
        np.testing.assert_array_equal(made.view(np.uint8), want.view(np.uint8))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_factors_have_ten_bits(factor: float) -> None:
    machine = Machine.load("ascend-910b1")
    bits = int(np.float32(factor).view(np.uint32))
    cut = float(np.uint32(bits & ~0x1FFF).view(np.float32))
    assert (machine.scales_drains("i32", "i8", factor, 0) is None) == (cut == factor != 0)


def test_what_the_machine_lacks_is_said() -> None:
    machine = Machine.load("ascend-910b1")
    assert machine.scales_drains("i32", "i8", 0.5, 256) == "adds 256, which does not fit 9 bits"
    assert machine.scales_drains("i32", "bf16", 0.5, 0) is not None
    assert machine.clips_drains("i32") is None and machine.clips_drains("i16") is not None
    assert "no path" in str(Machine.load("ascend-310").scales_drains("i32", "i8", 0.5, 0))
